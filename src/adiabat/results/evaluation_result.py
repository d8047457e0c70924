"""The result of an evaluation: plain data for ``result.json``, and back.

Plots and pages are made from these records, never from live models.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from adiabat.core.text import NO_BREAK, counted
from adiabat.results.power_record import Power
from adiabat.results.record import Ends, Record
from adiabat.results.training_record import TrainingRecord
from adiabat.results.verdict import EXPLAINING, Reason, Word

FailOn = Literal["worse", "undecided"]
"""The least that makes a data set fail: a worse measure, or also too little knowledge."""

Test = Literal["sign flips", "bootstrap", "t test"]
"""Source of a p-value: random exchanges of the two models' scores of a unit; the tails of the resampled
difference; or, over several runs, the t test of units and runs."""


@dataclass(frozen=True, slots=True)
class Change:
    """One measure on one data set, before and after.

    Attributes:
        measure: ``PND`` (mean over queries), ``PND pooled``, a name of ir-measures such as ``nDCG@10``, or a
            measure of another task.
        similarity: How texts were compared, as in `adiabat.stats.samples.Sample.similarity`: ``cosine``,
            ``dot``, ``distance``, ``manhattan``, ``bm25``; "" if nothing was compared.
        lower_is_better: True for the PND pair.
        after: Value of the model under test.
        after_interval: 95 % interval of `after`, over units, and over seeds if there are several runs: of a
            mean by t, of other statistics BCa. Like the others it stays in the range of the measure, such as
            0 to 1. None if fewer than two units were measured.
        before: Value of the baseline; None without one (then only `after` and its interval are set).
        improvement: Percent, ``s (after - before) / before``; None if `before` is not above 0.
        difference: ``after - before``.
        difference_interval: Paired 95 % interval of the difference: of means that of t, wider where changes
            are skewed; of other statistics the wider of BCa and t on each side. None as for `after_interval`.
        improvement_interval: The same for `improvement`, in percent; None where `improvement` is.
        p: Two-sided p-value of the difference, in (0, 1].
        z: The two-proportion statistic of Vasilyev et al. 2024 over pooled pairs; only for measures that
            count errors, such as ``PND pooled``.
        verdict: From the paired interval, with p < 0.05. Fewer than six changed units are never evidence if
            the value is a mean of independent units, for average precision (pairs whose similarity changed)
            and for the V-measure (texts that changed cluster, ignoring cluster numbers). This does not apply
            to rank correlations and language grids of sentence pairs, where a changed unit affects others.
        test: Origin of `p`.
        effect: Cohen's d_z, mean over standard deviation of the units' differences; above 0 if the value
            rose. None if units have no differences of their own (a rank correlation), or all differ alike.
        gained: Number of units on which the model under test does better; None if units have no values of
            their own (a rank correlation, the pseudo-values of a language grid).
        lost: Number of units on which it does worse; None likewise.
        detectable: The smallest true difference, above 0 and in the measure's own unit, that would be
            detected with about 80 % probability in data with the same variation: 2.80 standard errors of the
            difference, and more with few units or runs, or where the interval is wider than that of a t test.
            It is too low if few units changed. None if nothing varies, or with fewer than two units.
        margin: The loss that would matter, in the measure's own unit; None without a baseline, and for a
            share of a baseline that is not above 0.
        loss_bound: The largest loss that the data allow at one-sided 95 %, in the measure's own unit; below 0
            if a gain is certain. None with fewer than ten units, if too few clusters are drawn singly, or if
            nothing bounds it. Not worse: it is below `margin`, and no loss is shown.
        loss_by_spread: The part of `loss_bound` that the spread of the units alone allows, without rare large
            losses that none of them shows; at most as large. None likewise, and in results before it.
        needed: Only if undecided: the number of units that would decide four times in five, if the observed
            change is the true one. None if no number up to a million would do, or more units alone would not
            decide.
        reasons: What made or limits the verdict, the weightiest first; without a baseline, what limits the
            interval.
    """

    measure: str
    similarity: str
    lower_is_better: bool
    after: float
    after_interval: Ends | None
    before: float | None = None
    improvement: float | None = None
    difference: float | None = None
    difference_interval: Ends | None = None
    improvement_interval: Ends | None = None
    p: float | None = None
    z: float | None = None
    verdict: Word | None = None
    test: Test | None = None
    effect: float | None = None
    gained: int | None = None
    lost: int | None = None
    detectable: float | None = None
    margin: float | None = None
    loss_bound: float | None = None
    loss_by_spread: float | None = None
    needed: int | None = None
    reasons: list[Reason] = field(default_factory=list)

    @property
    def doubts(self) -> list[Reason]:
        """Reasons that limit the verdict; empty if it is proof."""
        return [reason for reason in self.reasons if reason not in EXPLAINING]

    @property
    def most(self) -> float | None:
        """All that a measure between 0 and 1 can lose; None without a baseline."""
        if self.before is None:
            return None
        return 1 - self.before if self.lower_is_better else self.before

    @property
    def not_worse(self) -> bool:
        """Whether a loss of the margin is excluded."""
        if self.verdict is None or self.margin is None or self.loss_bound is None:
            return False
        return self.loss_bound < self.margin


@dataclass(frozen=True, slots=True)
class GridComparison:
    """The language grid for one comparison.

    Attributes:
        comparison: ``entailment-neutral`` or ``entailment-contradiction``, whose values are PND; or the
            measure itself, such as ``P@1``.
        similarity: As in `Change`.
        after: Values, one row per query language, one column per document language.
        before: Values of the baseline, or None.
        improvement: Percent, or None; None in a cell whose `before` is not above 0.
        verdicts: Verdict of each cell, from sign flips over units after Benjamini-Hochberg over all cells;
            None without a baseline.
        improved: Number of better cells by the paired test.
        worsened: Number of worse cells by the paired test.
        improved_z: Number of better cells by the z-test of Vasilyev et al. 2024; None if no errors are
            counted.
        worsened_z: Number of worse cells by the z-test; None likewise.
        reasons: What limits the verdicts of all cells, such as several runs.
    """

    comparison: str
    similarity: str
    after: list[list[float]]
    before: list[list[float]] | None = None
    improvement: list[list[float | None]] | None = None
    verdicts: list[list[Word]] | None = None
    improved: int | None = None
    worsened: int | None = None
    improved_z: int | None = None
    worsened_z: int | None = None
    not_worse: int | None = None
    reasons: list[Reason] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """The part of a data set that a model's job trained or validated on.

    Attributes:
        queries: Number of queries; for a language grid, of premises.
        trained_queries: Number of them whose text the job trained or validated on.
        relevant: Number of relevant documents, counted once for each query.
        trained_relevant: Number of them that answered a query of training or validation; None if unknown,
            because the job has texts and the store only ids, or vice versa.
        answered: Number of queries with such a document; None likewise.
        unknown: Why the job may have trained on more; "" if it did not.
        near_queries: Number of further queries that are near duplicates of one that the job used
            (`adiabat.data.near_duplicates`); None if that is unknown.
        is_proof: Whether a verdict may rest on the data set: `evaluate` leaves queries out that were trained
            on, and needs enough others; suites and sweeps leave none out, and allow a tenth of them.
    """

    model: str
    queries: int
    trained_queries: int
    relevant: int
    trained_relevant: int | None
    answered: int | None
    unknown: str = ""
    is_proof: bool = True
    near_queries: int | None = None

    @property
    def is_apart(self) -> bool:
        """Whether the job is known to have trained on none of the queries and relevant documents."""
        # Counts of 0 prove nothing where some of the training data are unknown.
        is_used = self.trained_queries or self.near_queries or self.trained_relevant
        return not (is_used or self.uncounted)

    @property
    def uncounted(self) -> str:
        """Why the job may have trained on more than is counted; "" if it did not."""
        if self.trained_relevant is None and not self.unknown:
            return "relevant documents cannot be compared, since one side has texts and the other ids"
        return self.unknown

    @property
    def said(self) -> str:
        """The counts in a phrase."""
        if self.is_apart:
            return f"{self.model} was trained or validated on none of the queries and relevant documents"
        counts = [f"{self.trained_queries:,} of {self.queries:,} queries"]
        if self.near_queries:
            counts.append(f"near duplicates of {counted(self.near_queries, 'other')}")
        if self.trained_relevant is not None:
            counts.append(f"{self.trained_relevant:,} of their {self.relevant:,} relevant documents")
        phrases = [f"{self.model} was trained or validated on {' and '.join(counts)}"]
        # Fewer documents than queries may be seen: one document can answer many queries.
        if self.answered:
            phrases[0] += f", which answer {self.answered:,} of the queries"
        if not self.is_proof:
            phrases.append("that is too many for a verdict")
        if self.uncounted:
            phrases.append(f"there may be more: {self.uncounted}")
        return "; ".join(phrases)


PartName = Literal["all queries", "other queries", "new documents", "seen documents", "residual collection"]
"""Queries by what a job of the models trained on: all; those that were not trained on; of these, those
without and with relevant documents that answered a training query; and those with other relevant documents
where such documents are taken out of ranking and judgements."""


@dataclass(frozen=True, slots=True)
class Part:
    """The main measure on a part of the queries.

    Attributes:
        queries: Number of these queries.
        change: The change on these queries.
        above: Of a residual collection: number of queries for which a document that was taken out would have
            stood above the first relevant one.
    """

    name: PartName
    queries: int
    change: Change
    above: int = 0


@dataclass(frozen=True, slots=True)
class DatasetResult:
    """All measurements on one data set.

    Attributes:
        role: ``target`` for data to be improved, ``retain`` for data that must not get worse.
        kind: ``ranking`` (whole store ranked), ``pairs`` (listed candidates) or ``grid`` (languages).
        pairs: Number of (positive, negative) pairs compared.
        main: `Change.measure` of the data set's verdict.
        notes: Notes in sentences.
        ladder: PND against the first negative that each query lists, against the second, ...: a curve from
            hard to easy, where the data is so ordered. Only for listed candidates, of which every query has
            one positive and equally many negatives.
        trained: Of each model that is of a job.
        parts: Parts of the queries by what was trained on; the first one decides, and is measured in
            `changes`. Empty if nothing was trained on, or what was trained on is unknown.
        left_out: Number of queries that were trained on and are left out.
        units: Number of units behind the main change: queries, or the premises of a grid; None in results
            that do not count them.
        clusters: Number of clusters of queries that intervals and tests draw whole; None if they draw single
            queries.
        near_queries: Number of the deciding queries that are near duplicates of training queries; None if
            unknown, as in a residual collection.
        unlabelled: Number of further queries, which nobody judged, whose two rankings bound the losses that
            the judged ones do not show (`Change.loss_bound`).
    """

    name: str
    role: Literal["target", "retain"]
    kind: Literal["ranking", "pairs", "grid"]
    queries: int
    documents: int
    pairs: int
    main: str
    changes: list[Change]
    languages: list[str] = field(default_factory=list)
    grid: list[GridComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ladder: list[Change] = field(default_factory=list)
    trained: list[TrainedOn] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    left_out: int = 0
    units: int | None = None
    clusters: int | None = None
    near_queries: int | None = None
    unlabelled: int = 0

    @property
    def cells(self) -> int:
        """Number of language pairs."""
        return len(self.languages) ** 2

    def worse_cells(self) -> int:
        """Number of language pairs that are worse in any comparison of the grid."""
        # A cell that is worse in two comparisons counts once.
        worse = set()
        for grid in self.grid:
            for row, verdicts in enumerate(grid.verdicts or []):
                worse |= {(row, column) for column, word in enumerate(verdicts) if word == "worse"}
        return len(worse)

    def worse_parts(self) -> list[PartName]:
        """Parts of the queries that are worse, whether they decide or not."""
        return [part.name for part in self.parts if part.change.verdict == "worse"]

    @property
    def training_unknown(self) -> str:
        """Why a job may have trained on more of the data set than is counted; "" if none did."""
        return next((overlap.uncounted for overlap in self.trained if overlap.uncounted), "")

    @property
    def doubts(self) -> list[Reason]:
        """What limits the verdict on the data set; empty if it is proof."""
        return self.main_change().doubts

    def main_change(self) -> Change:
        """The change that decides the verdict: `main`, by the main similarity, which comes first."""
        return next(change for change in self.changes if change.measure == self.main)


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved document.

    Attributes:
        text: Its text; "" if the store keeps no texts.
        score: Higher is closer.
        relevant: Whether it is a known positive.
        similarity: Similarity of the score: ``cosine``, ``dot`` or ``distance`` (minus the Euclidean
            distance); "" if it was not recorded.
    """

    doc_id: str
    text: str
    score: float
    relevant: bool
    similarity: str = ""


@dataclass(frozen=True, slots=True)
class ChangedQuery:
    """A query whose top results changed, side by side."""

    dataset: str
    query: str
    before: list[Hit]
    after: list[Hit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Record):
    """The whole of a ``result.json``.

    Attributes:
        model: One line that names the model under test.
        runs: Names of its further runs, of other seeds; values are means over all runs.
        run_differences: Sentences on further runs whose jobs differ from that of the model in more than the
            seed.
        equal_towers: Sentences on models with one query tower, so that nothing differs or intervals over runs
            are too narrow.
        baseline: One line that names the baseline, or None.
        training: Record of the job that trained the model, if any.
        datasets: Target first, then the retention sets.
        power: What each data set, or the validation set of a tuning job, could show; empty if it was not
            asked for.
    """

    model: str
    runs: list[str] = field(default_factory=list)
    run_differences: list[str] = field(default_factory=list)
    equal_towers: list[str] = field(default_factory=list)
    baseline: str | None = None
    training: TrainingRecord | None = None
    datasets: list[DatasetResult] = field(default_factory=list)
    examples: list[ChangedQuery] = field(default_factory=list)
    power: list[Power] = field(default_factory=list)
    kind: Literal["evaluation", "training"] = "evaluation"

    def failing(self, least: FailOn) -> list[str]:
        """Data sets that are worse, or have worse cells or worse parts; for ``undecided`` also those of which
        too little is known.
        """
        # A data set without a verdict has no baseline: nothing is known about its change.
        bad = {"worse"} if least == "worse" else {"worse", "undecided", None}
        names = []
        for dataset in self.datasets:
            if dataset.main_change().verdict in bad:
                names.append(dataset.name)
            elif parts := dataset.worse_parts():
                names.append(f"{dataset.name} ({', '.join(parts)})")
            elif worse := dataset.worse_cells():
                cells = counted(dataset.cells, "language pair").replace(NO_BREAK, " ")
                names.append(f"{dataset.name} ({worse:,} of {cells})")
            elif least == "undecided" and dataset.doubts:
                names.append(
                    f"{dataset.name} ({dataset.main_change().verdict}, but {'; '.join(dataset.doubts)})"
                )
        return names

    def rows(self) -> list[dict[str, Any]]:
        """A row for each data set and measure; for a training run without data sets, a row for each
        validation.
        """
        if self.datasets:
            rows = []
            for dataset in self.datasets:
                about = {name: getattr(dataset, name) for name in ("role", "kind", "queries")}
                rows += [{"dataset": dataset.name, **about, **asdict(change)} for change in dataset.changes]
            return rows
        # Losses and errors may have been measured at different epochs.
        record = self.training
        points: dict[int, dict[str, Any]] = {}
        if record is not None:
            figures: dict[str, Sequence[tuple[int, float]]] = {
                "loss": record.validation_loss,
                "errors": record.validation_errors,
                **record.measures,
            }
            for name, values in figures.items():
                for epoch, value in values:
                    points.setdefault(epoch, {"epoch": epoch})[name] = value
        return list(points.values())
