"""Reasons of verdicts in sentences."""

from collections.abc import Mapping

from adiabat.results.verdict import Reason

SENTENCES: Mapping[Reason, str] = {
    Reason.ONE_MODEL: "model and baseline have the same weights, so nothing differs",
    Reason.TRAINED_ON: "a model was trained on so many of its units that too few others are left",
    Reason.CELLS_OVER_RUNS: "its cells are means over runs, and their test does not cover the spread of runs",
    Reason.FEW_CLUSTERS: (
        "its units depend on one another and form too few clusters, so that intervals are too narrow"
    ),
    Reason.MANY_COMPARISONS: "the change does not hold among all comparisons",
    Reason.NO_MARGIN: "a share of its baseline is no margin; measure.margin_absolute may decide",
    Reason.FEW_UNITS: "it has fewer than 10 units, which say little about others",
    Reason.LOSS_POSSIBLE: "the data do not exclude a loss of the margin",
    Reason.TRAINING_UNKNOWN: "whether a model was trained on more of it is unknown",
    Reason.SEEN_DOCUMENTS: (
        "relevant documents answered training queries, so that part of the change may be memory"
    ),
    Reason.NEAR_DUPLICATES: "more than a tenth of its queries are near duplicates of training queries",
    Reason.RUNS_DIFFER: "the runs of the model differ in more than the seed",
    Reason.EQUAL_RUNS: "runs of the model have equal weights, so that intervals over runs are too narrow",
}
