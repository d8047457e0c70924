"""What an evaluation of several models on a suite of tasks leaves behind: plain data for ``result.json``, of which pages are made."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from adiabat.results.evaluation_result import Change, GridComparison, Verdict
from adiabat.results.record import Record

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
"""What is asked of a model; the names are those of a suite's TOML file."""


CLOSENESS = 1e-12
"""Values that differ by no more than this, or than this share of them, are one value in two orders of addition."""


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """A task that models were measured on.

    Attributes:
        unit: What the units are, in the singular, such as ``query``.
        documents: How many the queries are compared with; 0 where there is no corpus.
        measure: That carries the verdict.
        similarity: That it is by; "" where nothing is compared.
        notes: What was left out, or needs saying; true of every model.
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
        runs: Further models of other seeds, of which values are means; empty where there is one.
        parameters: Of both towers, each once; None where it has none (BM25).
        width: Of its vectors; None likewise.
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
        interval: 95 % interval, over units, and over seeds where there are several runs; None where fewer than two units were measured.
        is_proof: False where the model was trained on more than a tenth of the task's units: it is then neither ranked nor compared.
    """

    task: str
    model: str
    measure: str
    similarity: str
    value: float
    interval: tuple[float, float] | None
    lower_is_better: bool = False
    is_proof: bool = True


@dataclass(frozen=True, slots=True)
class Pairing:
    """One model compared with another on the main measure of a task.

    Attributes:
        model: Name; `Change.after` is its value.
        against: Name of the other; `Change.before` is its value.
        change: With intervals; its verdict is that of this comparison alone.
        significant: Whether it holds after Benjamini-Hochberg over all pairings of the suite.
    """

    task: str
    model: str
    against: str
    change: Change
    significant: bool

    @property
    def verdict(self) -> Verdict:
        """The finding after the correction."""
        if not self.significant or not self.change.difference:
            return "no evidence"
        return "better" if (self.change.difference < 0) == self.change.lower_is_better else "worse"


@dataclass(frozen=True, slots=True)
class SuiteGrid:
    """A language grid of one model, compared with another where there are several.

    Attributes:
        against: Name of the other model, whose values are `GridComparison.before`; None where there is none.
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
    """One unit of a task, for looking at what models do on it.

    Attributes:
        text: Of the query, or of the pair; "" where it is not known.
        values: Name of a model to its value of the main measure.
    """

    task: str
    unit: str
    text: str
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure of one model on one task that is no measure, such as how many words it did not know."""

    model: str
    task: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class TaskRanking:
    """The order of the models on one task.

    Attributes:
        against: Model that the others are compared with; None where one model alone did the task.
        ranks: 1 for the best; equal values share the mean of their ranks. Models that were trained on the units are left out, and so is a
            model on its own.
        best: Models with the best value, more than one where they are equal but for rounding; `against` first.
        not_worse: The best, and models that are not measurably worse where all are compared with the best.
        clear: Whether one model is measurably above every other.
    """

    task: str
    against: str | None
    ranks: dict[str, float]
    best: list[str]
    not_worse: list[str]
    clear: bool


@dataclass(frozen=True, slots=True)
class ModelStanding:
    """One model over all tasks.

    Attributes:
        tasks: How many it did, those on its own among them.
        best: On how many it has the best value.
        clear: On how many of those it is measurably above every other.
        not_worse: Of the tasks whose models are compared with the best, on how many it is that or not measurably worse; None where it did
            none of them because there is a baseline.
        verdicts: Against the baseline, counted; None for the baseline itself, and where there is none.
        mean_rank: None for a model that did not do every task that several models did.
    """

    model: str
    tasks: int
    best: int
    clear: int
    not_worse: int | None
    verdicts: dict[Verdict, int] | None
    mean_rank: float | None


@dataclass(frozen=True, slots=True)
class KindMean:
    """Plain means over the tasks of one kind, where all have one measure."""

    kind: Kind
    measure: str
    tasks: int
    lower_is_better: bool
    values: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class SuiteAnalysis:
    """What the scores and comparisons say over all tasks: the order on each, each model's counts, and means by kind."""

    tasks: list[TaskRanking] = field(default_factory=list)
    models: list[ModelStanding] = field(default_factory=list)
    means: list[KindMean] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult(Record):
    """The whole of the ``result.json`` of a suite.

    Attributes:
        scores: All measures of all models on all tasks, the main one of each first; a model that cannot do a task, as BM25 cannot judge
            pairs of sentences, has none of it.
        pairings: Every model with `baseline`, or with the best of each task, on its main measure.
        baseline: Name of the model that all were compared with; None where it was the best of each task.
        resamples: Of the bootstrap, and sign flips.
        grids: Of the tasks that are grids.
        units: Those on which models differ most, per task.
        facts: What else is known of single models on a task.
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
        """Tasks whose models are compared with the best of them: all where there is no baseline, else those that it did not do."""
        return [ranking.task for ranking in self.analysis.tasks if ranking.against not in (None, self.baseline)]

    @property
    def mixed(self) -> bool:
        """Whether models are compared with the baseline on some tasks and with the best on others."""
        return any(ranking.against == self.baseline is not None for ranking in self.analysis.tasks) and bool(self.beside_best)

    def main_score(self, task: str, model: str) -> Score | None:
        """A model's value of the measure that carries the verdict of a task.

        Returns:
            The score; None where the model cannot do the task.
        """
        # BM25 ranks by its own similarity, so the measure alone tells; of several similarities the main one comes first.
        measure = next(outcome.measure for outcome in self.tasks if outcome.name == task)
        return next((score for score in self.scores if (score.task, score.model, score.measure) == (task, model, measure)), None)


def equal_values(first: float, second: float) -> bool:
    """Whether two values of a measure are the same but for rounding: units that are alike are not always added up in one order."""
    return math.isclose(first, second, rel_tol=CLOSENESS, abs_tol=CLOSENESS)


def by_kind(tasks: Iterable[SuiteTask]) -> list[tuple[Kind, list[SuiteTask]]]:
    """Tasks side by side with others of their kind."""
    kinds: dict[Kind, list[SuiteTask]] = {}
    for task in tasks:
        kinds.setdefault(task.kind, []).append(task)
    return list(kinds.items())
