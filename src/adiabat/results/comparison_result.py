"""What a comparison of data sets or backbones leaves behind: plain data for ``result.json``, of which tables and pages are made."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from adiabat.results.evaluation_result import Verdict
from adiabat.results.record import Record

Compared = Literal["data", "backbones"]
"""What the candidates differ in."""


@dataclass(frozen=True, slots=True)
class ComparedTask:
    """A task that every model was measured on.

    Attributes:
        name: Of the task.
        kind: ``ranking`` (whole corpus ranked) or ``pairs`` (listed candidates).
        queries: How many.
        documents: How many the corpus holds.
        notes: What was left out.
    """

    name: str
    kind: Literal["ranking", "pairs"]
    queries: int
    documents: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """A value of the main measure.

    Attributes:
        score: Mean over seeds and queries, and over tasks where it is of several.
        interval: 95 % interval of it, over queries and runs.
    """

    score: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference of two levels.

    Attributes:
        difference: Of the main measure.
        interval: Simultaneous 95 % interval: all differences of its kind in this comparison lie in theirs, 19 times of 20.
        verdict: Whether it lies beside zero.
    """

    difference: float
    interval: tuple[float, float]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a model encodes documents.

    Attributes:
        texts_per_second: Median over rounds.
        slowest: Of the rounds, texts per second.
        fastest: Likewise.
        texts: In each round.
        rounds: Timed.
    """

    texts_per_second: float
    slowest: float
    fastest: float
    texts: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Start:
    """A model before it is trained.

    Attributes:
        model: Its name.
        candidate: Whose start it is; "" where it is that of all.
        overall: Mean over tasks, equally weighted.
        tasks: One for each task.
        measures: All measures, means over queries and tasks.
        parameters: Of both towers, each once.
        speed: Of encoding; None where it was not measured.
    """

    model: str
    candidate: str
    overall: Level
    tasks: list[Level]
    measures: dict[str, float]
    parameters: int
    speed: Speed | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How a candidate came off.

    Attributes:
        name: Of the candidate.
        trained_on: Names of the data.
        model: Where it started.
        overall: Mean over seeds and tasks, tasks equally weighted.
        best_share: Share of the resamples in which no other candidate is higher; ties are shared.
        to_best: Difference to the candidate ranked first; None for that one.
        gain: Difference to its own start.
        runs: One value for each seed, in order.
        tasks: One for each task.
        measures: All measures, means over seeds, queries and tasks.
        parameters: Of both towers, each once, adapters among them.
        trained: Those that were updated.
        steps: Of each run.
        passes: How often a run went over its pairs.
        pairs: Trained on.
        step_seconds: Median time of an optimiser step; None where runs were too short to tell.
        speed: Of encoding, before training; None where it was not measured.
    """

    name: str
    trained_on: str
    model: str
    overall: Level
    best_share: float
    to_best: Contrast | None
    gain: Contrast
    runs: list[float]
    tasks: list[Level]
    measures: dict[str, float]
    parameters: int
    trained: int
    steps: int
    passes: float
    pairs: int
    step_seconds: float | None = None
    speed: Speed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Record):
    """The whole of the ``result.json`` of a comparison.

    Attributes:
        compared: What the candidates differ in.
        seeds: Of the runs.
        measure: That ranks the candidates.
        tasks: What was measured on.
        standings: Highest first.
        starts: The untrained models.
        run_deviation: Standard deviation of a run's overall score about the mean of its candidate, pooled over candidates; None with one
            seed.
        resamples: Of the bootstrap.
    """

    ROWS: ClassVar[str] = "standings"

    compared: Compared
    seeds: list[int]
    measure: str
    tasks: list[ComparedTask]
    standings: list[Standing]
    starts: list[Start]
    run_deviation: float | None
    resamples: int
    kind: Literal["comparison"] = "comparison"
