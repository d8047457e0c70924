"""The ranking of a sweep's cases by their scores on retrieval tasks (Reimers 2021)."""

from dataclasses import dataclass, field
from typing import Literal

from adiabat.results.evaluation_result import Verdict


@dataclass(frozen=True, slots=True)
class Level:
    """A value of the main measure.

    Attributes:
        score: Mean over seeds and queries, and over tasks if there are several.
        interval: 95 % interval of the score, over queries and runs.
    """

    score: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Contrast:
    """A difference of two levels.

    Attributes:
        interval: Simultaneous 95 % interval: all differences of its kind in this ranking lie in theirs with
            95 % probability.
        verdict: Whether the interval excludes zero.
    """

    difference: float
    interval: tuple[float, float]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Speed:
    """Encoding speed of a model.

    Attributes:
        texts_per_second: Median over rounds.
        slowest: Texts per second in the slowest round.
        fastest: Texts per second in the fastest round.
        texts: Number of texts per round.
    """

    texts_per_second: float
    slowest: float
    fastest: float
    texts: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Start:
    """A model before training.

    Attributes:
        case: The case that starts from it; "" if all runs do.
        overall: Mean over tasks, equally weighted.
        measures: All measures, means over queries and tasks.
        parameters: Number of parameters of both towers; shared ones count once.
        speed: Encoding speed; None if it was not measured.
    """

    model: str
    case: str
    overall: Level
    tasks: list[Level]
    measures: dict[str, float]
    parameters: int
    speed: Speed | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Results of one case: a variant or combination of settings.

    Attributes:
        name: Name of the case: its variant and values.
        overall: Mean over seeds and tasks, tasks equally weighted.
        best_share: Share of the resamples in which no other case is higher; ties are shared.
        to_best: Difference to the case ranked first; None for that one.
        gain: Difference to its own start.
        runs: One value for each seed, in order.
        measures: All measures, means over seeds, queries and tasks.
        parameters: Number of parameters of both towers, including adapters; shared ones count once.
        passes: Number of passes of a run over its pairs.
        step_seconds: Median time of an optimizer step; None if runs were too short to measure it.
        speed: Encoding speed before training; None if it was not measured.
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


@dataclass(frozen=True, slots=True)
class RankedTask:
    """A task whose scores rank the cases.

    Attributes:
        kind: ``ranking`` (whole corpus ranked) or ``pairs`` (listed candidates).
    """

    name: str
    kind: Literal["ranking", "pairs"]
    queries: int
    documents: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The cases of a sweep ranked by their scores on retrieval tasks.

    Attributes:
        run_deviation: Standard deviation of a run's overall score about the mean of its case, pooled over
            cases; None with one seed.
    """

    measure: str
    seeds: list[int]
    tasks: list[RankedTask]
    standings: list[Standing]
    starts: list[Start]
    run_deviation: float | None
    resamples: int
    notes: list[str] = field(default_factory=list)

    @property
    def compares_models(self) -> bool:
        """Whether cases start from several models."""
        return len(self.starts) > 1
