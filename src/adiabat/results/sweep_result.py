"""The result of a sweep: plain data for ``result.json``, of which its page, figures and tables are made (Vasilyev et al. 2024)."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from adiabat.results.drift_judgement import Drift
from adiabat.results.evaluation_result import Change, GridComparison, LayerChange, Verdict
from adiabat.results.record import Record
from adiabat.results.suite_result import Kind

Value = str | float | int | bool | list[str] | None
"""Of a setting."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One tuned tower beside the untuned one, on one task.

    Attributes:
        task: Name, unique in the sweep.
        kind: What is asked.
        unit: What the units are, in the singular, such as ``query``.
        units: How many.
        changes: One for each measure and similarity; the first carries the verdict.
        languages: Of a grid.
        grids: Tables of a grid, with counts of language pairs improved and worsened.
        notes: What was left out, or needs saying.
    """

    task: str
    kind: Kind
    unit: str
    units: int
    changes: list[Change]
    languages: list[str] = field(default_factory=list)
    grids: list[GridComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def main(self) -> Change:
        """The change that carries the verdict."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: Unique in the sweep; also that of its folder.
        variant: Name of the overlay that it has; "" where there is none.
        varied: Dotted setting to its value, of those that the grid varies.
        seed: Of the run.
        learning_rate: As taken, after any scaling with the batch size.
        batch_size: Queries per step.
        status: ``done``, or ``failed`` where it ended without a model.
        reason: Why it stopped, or failed.
        seconds: Of training and validation.
        steps: Taken.
        epochs: Finished.
        best_epoch: Whose weights were kept; 0 is the start.
        validation_loss: (epoch, loss) points, epoch 0 first.
        validation_errors: (epoch, errors) points, epoch 0 first.
        validation_pairs: That the errors are counted over.
        parameters: Of both towers, each once.
        trainable: Parameters that were updated.
        pairs: Trained on.
        passes: How often the run went over its pairs; 0 where that is not known.
        step_seconds: Median time of an optimiser step; None where the run was too short to tell.
        tasks: In the order of the sweep.
        layers: How much each tensor moved.
        drift: From the untuned tower on the probes; None where there are none.
        device: That it ran on.
    """

    name: str
    variant: str
    varied: dict[str, Value]
    seed: int
    learning_rate: float
    batch_size: int
    status: Literal["done", "failed"]
    reason: str
    seconds: float = 0.0
    steps: int = 0
    epochs: int = 0
    best_epoch: int = 0
    validation_loss: list[tuple[int, float]] = field(default_factory=list)
    validation_errors: list[tuple[int, int]] = field(default_factory=list)
    validation_pairs: int = 0
    parameters: int = 0
    trainable: int = 0
    pairs: int = 0
    passes: float = 0.0
    step_seconds: float | None = None
    tasks: list[TaskOutcome] = field(default_factory=list)
    layers: list[LayerChange] = field(default_factory=list)
    drift: Drift | None = None
    device: str = ""

    def task(self, name: str) -> TaskOutcome | None:
        """What it did on a task.

        Returns:
            None where it was not measured.
        """
        return next((one for one in self.tasks if one.task == name), None)


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
        interval: Simultaneous 95 % interval: all differences of its kind in this ranking lie in theirs, 19 times of 20.
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
        case: Whose start it is; "" where all runs start from it.
        overall: Mean over tasks, equally weighted.
        tasks: One for each task.
        measures: All measures, means over queries and tasks.
        parameters: Of both towers, each once.
        speed: Of encoding; None where it was not measured.
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
    """How one variant or combination of settings, a case, came off.

    Attributes:
        name: Of the case: its variant and values.
        trained_on: Names of the data.
        model: Where it started.
        overall: Mean over seeds and tasks, tasks equally weighted.
        best_share: Share of the resamples in which no other case is higher; ties are shared.
        to_best: Difference to the case ranked first; None for that one.
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


@dataclass(frozen=True, slots=True)
class RankedTask:
    """A task whose scores rank the cases.

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
class Ranking:
    """The cases of a sweep ranked by their scores on retrieval tasks.

    Attributes:
        measure: That ranks them.
        seeds: Of the runs.
        tasks: That were measured on.
        standings: Highest first.
        starts: The models before training.
        run_deviation: Standard deviation of a run's overall score about the mean of its case, pooled over cases; None with one seed.
        resamples: Of the bootstrap.
        notes: What a reader must know.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult(Record):
    """The whole ``result.json`` of a sweep.

    Attributes:
        model: Where training starts; several are listed.
        targets: Names of the tasks that tuning is for; the others must not get worse.
        tasks: Names of all tasks, in order.
        varied: Dotted settings that the grid varies, in order.
        runs: In order of the grid.
        noise: Measure of drift to how far the untuned tower drifts when only the writing of the probes changes (`adiabat.adiabatic.drift`);
            empty where drift was not measured.
        ranking: Cases by their scores on retrieval tasks; None where there are fewer than two, or too many.
    """

    ROWS: ClassVar[str] = "runs"

    model: str
    targets: list[str]
    tasks: list[str]
    varied: list[str]
    runs: list[SweepRun]
    noise: dict[str, float] = field(default_factory=dict)
    ranking: Ranking | None = None
    kind: Literal["sweep"] = "sweep"

    @property
    def verb(self) -> str:
        """Verb that made the runs: ``tune`` or ``train``."""
        return str(self.settings.get("sweep", {}).get("verb", "tune"))
