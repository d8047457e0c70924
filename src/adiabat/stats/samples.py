"""Scores of one model on one task for every unit, from which every measure can be recomputed on any resample.

A unit is what a task samples: a query, a pair of texts, a sentence pair in all its languages, a labelled
text. Models with scores of the same units can be compared, today or from files years later.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Int

from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.suite_result import Kind
from adiabat.stats.clusters import Clusters
from adiabat.stats.unit_arrays import Numbers, Rows, Values

Statistic = Literal["mean", "spearman", "average precision", "v-measure"]
"""Statistic of the units; `adiabat.stats.statistics` has the formulas."""

Bounds = tuple[float, float]
"""The lowest and the highest possible value of a measure."""

SHARE: Bounds = (0.0, 1.0)
CORRELATION: Bounds = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Sample:
    """One measure of one model, unit by unit.

    Attributes:
        measure: Name, such as ``nDCG@10``, ``PND``, ``Spearman``, ``accuracy``.
        values: Value of each unit: its score; for ``spearman`` and ``average precision`` the model's
            similarity; for ``v-measure`` the number of the cluster.
        similarity: How texts were compared: ``cosine``, ``dot``, ``distance``, ``manhattan``, ``bm25``;
            ``best of all`` if every model used its best one, ``run`` for rankings from a file; "" if nothing
            was compared.
        reference: For ``mean`` the weight of each unit, at least 0, so that the value is ``sum(values) /
            sum(reference)`` (None: all 1); for ``spearman`` the human score; for ``average precision`` 1 for
            a matching pair, else 0; for ``v-measure`` the number of the label.
        statistic: Statistic that aggregates the units.
        groups: Group of each unit, from 0; the value is then the plain mean of the groups' values. None for
            one group.
        lower_is_better: True for the positive-negative discrepancy.
        proportion: Whether values count errors among `reference` independent trials, as the two-proportion
            test assumes.
        pseudo_values: Whether values are pseudo-values, which depend on the other units too, so that one
            changed unit changes all.
        bounds: Range of possible values; None for an unlimited measure, such as a count.
        clusters: Units that are not independent, for a mean without groups; None if all are.
        possible_losses: The most that each of further queries, which nobody judged, can lose from a baseline
            to this model (`adiabat.stats.possible_losses`); None without any. Not stored on disk.
    """

    measure: str
    values: Values
    similarity: str = ""
    reference: Values | None = None
    statistic: Statistic = "mean"
    groups: Numbers | None = None
    lower_is_better: bool = False
    proportion: bool = False
    pseudo_values: bool = False
    bounds: Bounds | None = None
    clusters: Clusters | None = None
    possible_losses: Values | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Measure and similarity: unique among the measures of a task."""
        return self.measure, self.similarity

    @property
    def weights(self) -> Values:
        """Weight of each unit: its reference, or 1."""
        return np.ones(self.values.shape) if self.reference is None else self.reference

    @property
    def unit_values(self) -> Values:
        """Value of each unit of a mean; NaN for a unit without weight."""
        weights = self.weights
        undefined = np.full(self.values.shape, np.nan)
        return np.asarray(np.divide(self.values, weights, out=undefined, where=weights > 0))

    def judges_like(self, other: "Sample") -> bool:
        """Whether both have the same references and groups."""
        for mine, theirs in ((self.reference, other.reference), (self.groups, other.groups)):
            # Most are one array, or both None.
            if mine is not theirs and (mine is None or theirs is None or not np.array_equal(mine, theirs)):
                return False
        return True

    def take(self, rows: Rows) -> "Sample":
        """The units of some rows, in that order."""
        return replace(
            self,
            values=self.values[rows],
            reference=_of_rows(self.reference, rows),
            groups=_of_rows(self.groups, rows),
            clusters=None if self.clusters is None else self.clusters.take(rows),
        )

    def summed_over(self, clusters: Clusters) -> "Sample":
        """A mean whose units are clusters: values and weights of a cluster's units are summed."""
        if self.statistic != "mean" or self.groups is not None:
            raise ValueError(
                f"{self.measure} must be a mean without groups to have clusters, "
                f"got the statistic {self.statistic}"
            )
        values = np.bincount(clusters.positions, weights=self.values)
        weights = np.bincount(clusters.positions, weights=self.weights)
        return replace(self, values=values, reference=weights, clusters=None)


def _of_rows(column: np.ndarray | None, rows: Rows) -> np.ndarray | None:
    """Some rows of a column that not all have."""
    return None if column is None else column[rows]


def is_discrepancy(measure: str) -> bool:
    """Whether a measure is a positive-negative discrepancy, which falls as a model gets better."""
    return measure.startswith("PND")


def ranking_sample(
    measure: str,
    values: Values,
    similarity: str = "",
    *,
    weights: Values | None = None,
    clusters: Clusters | None = None,
    proportion: bool = False,
) -> Sample:
    """The sample of a measure of rankings; its direction and bounds follow from the name.

    Discrepancies (``PND``, ``PND pooled``) fall as a model gets better, measures of the ir-measures grammar
    rise. All lie between 0 and 1 but counts such as ``NumRet``, which have no bounds.
    """
    return Sample(
        measure,
        values,
        similarity,
        weights,
        lower_is_better=is_discrepancy(measure),
        proportion=proportion,
        bounds=None if measure.startswith("Num") else SHARE,
        clusters=clusters,
    )


@dataclass(frozen=True, slots=True)
class GridSample:
    """One comparison of a language grid, such as ``entailment-neutral`` or ``P@1``; the value of a cell is
    the mean over its units.

    `rows` are the languages of the queries, `columns` those of the documents. A discrepancy over pairs of
    units is stored as pseudo-values.
    If the values count errors among `total` trials in every cell, `errors` has their sums: the value of a
    cell is ``errors / total``.
    """

    comparison: str
    similarity: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Float32[np.ndarray, "a b n"]
    lower_is_better: bool
    errors: Int[np.ndarray, "a b"] | None = None
    total: int = 0


def mean_grid(grids: Sequence[GridSample]) -> GridSample:
    """The mean over runs; error counts belong to a single run."""
    if len(grids) == 1:
        return grids[0]
    # Averaged in 64 bits, so that rounding to 32 bits happens once.
    values = np.stack([grid.values for grid in grids]).mean(axis=0, dtype=np.float64).astype(np.float32)
    return replace(grids[0], values=values, errors=None, total=0)


MAX_TRAINED_SHARE = 0.1
"""Maximum share of units in the training data of a model for a verdict."""


@dataclass(frozen=True, slots=True)
class TrainingOverlap:
    """Training data of the measured model's job among the units.

    Attributes:
        queries: Whether the job trained or validated on the unit's query, or for a language grid on one of
            its premises.
        relevant: Number of relevant documents of each unit.
        documents: Number of them that answered a query of the job; None if one side has texts and the other
            ids.
        unknown: Why there may be more; "" if the numbers are complete.
        near: Whether the unit's query is a near duplicate of one that the job used, or equal; None if that
            was not recorded.
    """

    queries: Bool[np.ndarray, " n"]
    relevant: Numbers
    documents: Numbers | None
    unknown: str = ""
    near: Bool[np.ndarray, " n"] | None = None

    @property
    def is_proof(self) -> bool:
        """Whether the job used at most `MAX_TRAINED_SHARE` of the units."""
        return int(self.queries.sum()) <= MAX_TRAINED_SHARE * self.queries.size

    def take(self, rows: Rows) -> "TrainingOverlap":
        """The units of some rows."""
        return replace(
            self,
            queries=self.queries[rows],
            relevant=self.relevant[rows],
            documents=_of_rows(self.documents, rows),
            near=_of_rows(self.near, rows),
        )


@dataclass(frozen=True, slots=True)
class TaskScores:
    """One model on one task.

    Attributes:
        unit: Name of a unit in the singular: ``query``, ``pair``.
        units: Distinct ids; models measured on the same task have the same ids in the same order.
        samples: Measures over the same units; the first one decides the verdict.
        texts: Text of each unit: a query, or the texts of a pair on two lines; empty without texts.
        documents: Number of documents that queries were compared with; 0 without a corpus.
        facts: Further figures, such as ``out-of-vocabulary words``, by name.
        trained: Training data of the model's job among the units; None for a model without a job, or if it
            was not counted.
        ladder: Errors against the first listed negative of each unit, the second, ..., if all list equally
            many; not stored on disk.
    """

    task: str
    kind: Kind
    unit: str
    units: Sequence[str]
    samples: Sequence[Sample]
    texts: Sequence[str] = ()
    documents: int = 0
    grids: Sequence[GridSample] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trained: TrainingOverlap | None = None
    ladder: Sequence[Sample] = ()

    @property
    def is_proof(self) -> bool:
        """Whether a verdict may rest on these scores: False if the model was trained on more than a few of
        the units.
        """
        return self.trained is None or self.trained.is_proof

    @property
    def cluster_notes(self) -> list[str]:
        """How intervals and tests treat units that are not independent."""
        clusters = self.samples[0].clusters
        sentence = "" if clusters is None else clusters.sentence(self.unit)
        return [sentence] if sentence else []

    def trained_on(self, model: str) -> list[TrainedOn]:
        """The record of training data of `model`, whose scores these are; empty for a model without a job."""
        overlap = self.trained
        if overlap is None:
            return []
        counts = overlap.documents
        return [
            TrainedOn(
                model=model,
                queries=len(self.units),
                trained_queries=int(overlap.queries.sum()),
                relevant=int(overlap.relevant.sum()),
                trained_relevant=None if counts is None else int(counts.sum()),
                answered=None if counts is None else int(np.count_nonzero(counts)),
                unknown=overlap.unknown,
                is_proof=overlap.is_proof,
                near_queries=None if overlap.near is None else int((overlap.near & ~overlap.queries).sum()),
            )
        ]

    def take(self, rows: Numbers) -> "TaskScores":
        """The units of some rows, in that order; grids keep their pseudo-values and lose their error
        counts.
        """
        return replace(
            self,
            units=[self.units[row] for row in rows],
            texts=[self.texts[row] for row in rows] if self.texts else (),
            samples=[sample.take(rows) for sample in self.samples],
            grids=[
                replace(sample, values=sample.values[:, :, rows], errors=None, total=0)
                for sample in self.grids
            ],
            trained=None if self.trained is None else self.trained.take(rows),
            ladder=[sample.take(rows) for sample in self.ladder],
        )
