"""The result of several models on a suite of tasks: plain data for ``result.json`` and pages."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.record import Ends, Record
from adiabat.results.verdict import Word

Kind = Literal[
    "retrieval",
    "triplets",
    "nli_grid",
    "question_grid",
    "bitext",
    "sts",
    "words",
    "pair_classification",
    "classification",
    "clustering",
    "mteb",
]
"""Kinds of tasks, by their names in a suite's TOML file."""


CLOSENESS = 1e-12
"""Absolute and relative tolerance within which two values count as equal, since sums depend on their
order."""


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """A task that models were measured on.

    Attributes:
        unit: Name of a unit in the singular, such as ``query``.
        documents: Number of documents that queries are compared with; 0 without a corpus.
        measure: Measure that decides the verdict.
        similarity: Similarity of that measure; "" if nothing is compared.
        notes: Notes that apply to every model.
    """

    name: str
    kind: Kind
    unit: str
    units: int
    documents: int
    measure: str
    similarity: str
    lower_is_better: bool
    languages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SuiteModel:
    """A model that was measured.

    Attributes:
        runs: Further models with other seeds, over which values are averaged; empty for a single run.
        parameters: Number of parameters of both towers; shared ones count once. None for BM25.
        width: Width of its vectors; None for BM25.
    """

    name: str
    model: str
    runs: list[str] = field(default_factory=list)
    parameters: int | None = None
    width: int | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Score:
    """One measure of one model on one task.

    Attributes:
        interval: 95 % interval, over units, and over seeds if there are several runs; None if fewer than two
            units were measured.
        is_proof: False if the model was trained on more than a tenth of the task's units: it is then not
            ranked.
    """

    task: str
    model: str
    measure: str
    similarity: str
    value: float
    interval: Ends | None
    lower_is_better: bool = False
    is_proof: bool = True


@dataclass(frozen=True, slots=True)
class Pairing:
    """One model compared with another on the main measure of a task.

    Attributes:
        model: Name; `Change.after` is its value.
        against: Name of the other; `Change.before` is its value.
        change: Change with intervals; a verdict that it is better or worse holds after Benjamini-Hochberg
            over all pairings of the suite.
    """

    task: str
    model: str
    against: str
    change: Change

    @property
    def verdict(self) -> Word:
        """The verdict after the correction."""
        assert self.change.verdict is not None, "both models were measured"
        return self.change.verdict

    @property
    def significant(self) -> bool:
        """Whether one of both is better."""
        return self.verdict in ("better", "worse")


@dataclass(frozen=True, slots=True)
class SuiteGrid:
    """A language grid of one model, compared with another if there are several.

    Attributes:
        against: Name of the other model, whose values are `GridComparison.before`; None without one.
    """

    task: str
    model: str
    against: str | None
    rows: list[str]
    columns: list[str]
    lower_is_better: bool
    grid: GridComparison


@dataclass(frozen=True, slots=True)
class UnitRow:
    """One unit of a task, with the values of models.

    Attributes:
        text: Text of the query, or of the pair; "" if unknown.
        values: Name of a model to its value of the main measure.
    """

    task: str
    unit: str
    text: str
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure of one model on one task that is not a measure, such as the number of unknown words."""

    model: str
    task: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class TaskRanking:
    """The order of the models on one task.

    Attributes:
        against: Model that the others are compared with; None if only one model did the task.
        ranks: 1 for the best; equal values share the mean of their ranks. Models trained on the units are
            left out, and so is a single model.
        best: Models with the best value, several if they are equal up to rounding; `against` first.
        even: The best models and those not measurably worse, if all are compared with the best.
        clear: Whether one model is measurably above every other.
    """

    task: str
    against: str | None
    ranks: dict[str, float]
    best: list[str]
    even: list[str]
    clear: bool


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """One model over all tasks.

    Attributes:
        tasks: Number of tasks that it did, including those that only it did.
        best: Number of tasks on which it has the best value.
        clear: Number of those on which it is measurably above every other model.
        even: Among tasks whose models are compared with the best, the number on which it is the best or not
            measurably worse; None if it did none of these because there is a baseline.
        verdicts: Counts of verdicts against the baseline; None for the baseline itself, and without one.
        mean_rank: None for a model that did not do every task that several models did.
    """

    model: str
    tasks: int
    best: int
    clear: int
    even: int | None
    verdicts: dict[Word, int] | None
    mean_rank: float | None


@dataclass(frozen=True, slots=True)
class KindMean:
    """Plain means over the tasks of one kind, if all have the same measure."""

    kind: Kind
    measure: str
    tasks: int
    lower_is_better: bool
    values: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class SuiteAnalysis:
    """Analysis over all tasks: the order on each, counts of each model, and means by kind."""

    tasks: list[TaskRanking] = field(default_factory=list)
    models: list[ModelStanding] = field(default_factory=list)
    means: list[KindMean] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult(Record):
    """The whole of the ``result.json`` of a suite.

    Attributes:
        scores: All measures of all models on all tasks, the main one of each first; without tasks that a
            model cannot do, such as sentence pairs for BM25.
        pairings: Every model compared with `baseline`, or with the best of each task, on its main measure.
        baseline: Name of the baseline; None if models are compared with the best of each task.
        resamples: Number of sign flips, and of resamples for statistics that are no mean.
        grids: Grids of the tasks that have them.
        units: Those on which models differ most, per task.
        facts: Further figures of single models on a task.
        analysis: Orders, counts and means over all tasks.
    """

    ROWS: ClassVar[str] = "scores"

    tasks: list[SuiteTask]
    models: list[SuiteModel]
    scores: list[Score]
    pairings: list[Pairing]
    baseline: str | None
    resamples: int
    grids: list[SuiteGrid] = field(default_factory=list)
    units: list[UnitRow] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    analysis: SuiteAnalysis = field(default_factory=SuiteAnalysis)
    kind: Literal["suite"] = "suite"

    @property
    def beside_best(self) -> list[str]:
        """Tasks whose models are compared with the best: all without a baseline, otherwise those that the
        baseline did not do.
        """
        return [
            ranking.task for ranking in self.analysis.tasks if ranking.against not in (None, self.baseline)
        ]

    @property
    def mixed(self) -> bool:
        """Whether models are compared with the baseline on some tasks and with the best on others."""
        return any(ranking.against == self.baseline is not None for ranking in self.analysis.tasks) and bool(
            self.beside_best
        )

    def main_score(self, task: str, model: str) -> Score | None:
        """A model's value of a task's main measure.

        Returns:
            The score; None if the model cannot do the task.
        """
        # BM25 ranks by its own similarity, so compare only the measure; of several similarities the main one
        # comes first.
        measure = next(outcome.measure for outcome in self.tasks if outcome.name == task)
        return next(
            (
                score
                for score in self.scores
                if (score.task, score.model, score.measure) == (task, model, measure)
            ),
            None,
        )


def equal_values(first: float, second: float) -> bool:
    """Whether two values are equal up to rounding, since equal units are not always summed in the same
    order.
    """
    return math.isclose(first, second, rel_tol=CLOSENESS, abs_tol=CLOSENESS)


def by_kind(tasks: Iterable[SuiteTask]) -> list[tuple[Kind, list[SuiteTask]]]:
    """Tasks in the order of their kinds."""
    kinds: dict[Kind, list[SuiteTask]] = {}
    for task in tasks:
        kinds.setdefault(task.kind, []).append(task)
    return list(kinds.items())
