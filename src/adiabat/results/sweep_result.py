"""The result of a sweep: that of a suite whose models are the settings of the grid, with the runs behind it.

Reference: Vasilyev et al. 2024.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import ClassVar, Literal, TypeGuard

from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.rate_search_result import Drift
from adiabat.results.record import Ends
from adiabat.results.suite_result import Kind, SuiteResult
from adiabat.results.training_record import LayerChange
from adiabat.results.verdict import Word

Value = str | float | int | bool | list[str] | None
"""Value of a setting."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """One trained model compared with the untrained one, on one task.

    Attributes:
        task: Name, unique in the sweep.
        unit: Name of a unit in the singular, such as ``query``.
        changes: Changes for each measure and similarity; the first decides the verdict.
        grids: Tables of a grid, with counts of language pairs improved and worsened.
        notes: Notes in sentences.
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
        """The change that decides the verdict."""
        return self.changes[0]


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run of a sweep.

    Attributes:
        name: Name, unique in the sweep; also that of its folder.
        variant: Name of its variant; "" without variants.
        varied: Dotted setting to value, for settings that the grid varies.
        learning_rate: Learning rate, after any scaling with the batch size.
        status: ``done``, or ``failed`` if it left no model.
        best_epoch: Epoch of the saved weights; 0 is the start.
        validation_loss: (epoch, loss) points, epoch 0 first.
        validation_errors: (epoch, errors) points, epoch 0 first.
        validation_pairs: Number of pairs behind the errors.
        parameters: Number of parameters of both towers; shared ones count once.
        passes: Number of passes over the pairs; 0 if unknown.
        start: Name of its initial model among `SweepResult.models`; "" in rows of earlier versions.
        step_seconds: Median time of an optimizer step; None if the run was too short to measure it.
        drift: Drift from the untuned tower on the probes; None without probes.
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
    start: str = ""

    @property
    def case(self) -> str:
        """Its variant and values, which the runs of all seeds share; the name of their model."""
        return case_of(self.name, self.seed) or ONLY_CASE

    @property
    def trained_share(self) -> float | None:
        """Trained parameters in percent; None if their number is unknown."""
        return 100 * self.trainable / self.parameters if self.parameters else None

    def task(self, name: str) -> TaskOutcome | None:
        """Its outcome on a task; None if it was not measured."""
        return next((outcome for outcome in self.tasks if outcome.task == name), None)


ONLY_CASE = "the only setting"
"""Name of the case of a sweep without variation."""


def case_of(run: str, seed: int) -> str:
    """The part of a run's name that the runs of all seeds share; "" in a sweep without variation."""
    return run.removesuffix(f"seed={seed}").removesuffix(", ")


VARIANT = "variant"
"""Name of a run's variant among the settings that vary."""


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether a value has a position on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def mean_of(values: Sequence[float]) -> float | None:
    """The mean; for equal values the value itself, without rounding errors of a sum."""
    return fmean(values) if len(set(values)) > 1 else next(iter(values), None)


def key_of(value: Value) -> tuple[bool, object]:
    """A hashable key that distinguishes True from 1."""
    return isinstance(value, bool), tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that differs between runs.

    Attributes:
        name: Dotted name, or ``variant``.
        values: Distinct values; numbers ascending, then None, where the setting has no effect; others in the
            order of the runs.
    """

    name: str
    values: list[Value]

    @property
    def numbers(self) -> list[float]:
        """Its numeric values."""
        return [float(value) for value in self.values if is_number(value)]

    @property
    def numeric(self) -> bool:
        """Whether all of its values except None are numbers."""
        return bool(self.numbers) and all(is_number(value) or value is None for value in self.values)


@dataclass(frozen=True, slots=True)
class CaseChange:
    """Change of a case on a task by one measure; the first of a task is its main measure.

    Attributes:
        percent: Whether values are improvements in percent; otherwise they are differences, because the
            baseline is 0.
        values: Values of the runs that have a comparison.
        interval: Paired 95 % interval of a single run; the lowest and highest value of several runs.
        difference: Mean over runs.
        verdicts: Verdict to its number of runs.
        runs: Number of runs that were measured.
    """

    task: str
    measure: str
    similarity: str
    percent: bool
    values: list[float]
    mean: float | None
    interval: Ends | None
    difference: float | None
    verdicts: dict[Word, int]
    runs: int

    @property
    def verdict(self) -> Word | None:
        """The verdict that all runs share; None if they disagree, or have none."""
        return next(iter(self.verdicts)) if list(self.verdicts.values()) == [self.runs] else None

    @property
    def improvement(self) -> float | None:
        """The mean, if it is in percent."""
        return self.mean if self.percent else None


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Language pairs of a grid that changed, as means over runs; None without the paired test, or without the
    z-test.
    """

    task: str
    comparison: str
    similarity: str
    pairs: int
    improved: float | None
    worsened: float | None
    improved_z: float | None
    worsened_z: float | None

    @property
    def compared(self) -> tuple[str, str, str]:
        """Task, comparison and similarity."""
        return self.task, self.comparison, self.similarity


@dataclass(frozen=True, slots=True)
class Case:
    """All runs of one combination of settings, which differ in their seeds; figures cover the runs that left
    a model.

    Attributes:
        values: In the order of `SweepAnalysis.settings`.
        runs: Positions in `SweepResult.runs`.
        failed: Number of runs that left no model.
        pairs: By task and comparison of language grids.
        drift: Measure to its mean over runs.
        layers: Measure of change to the names and values of the most changed tensors, the largest first.
        gain: Mean improvement in percent over runs and targets; None if a target has none.
        worse: Tasks beside the targets that got worse in any run.
        harmless: Whether every run has a verdict on each of these tasks, and none is worse.
    """

    values: list[Value]
    runs: list[int]
    failed: int
    changes: list[CaseChange]
    pairs: list[PairCounts]
    drift: dict[str, float]
    layers: dict[str, list[tuple[str, float]]]
    gain: float | None
    worse: list[str]
    harmless: bool

    def change(self, task: str, measured: tuple[str, str] | None = None) -> CaseChange | None:
        """The change on a task by a measure and its similarity, by default the main one; None without
        measured runs.
        """
        for one in self.changes:
            if one.task == task and measured in (None, (one.measure, one.similarity)):
                return one
        return None


def grouped(cases: Iterable[Case], indices: Sequence[int]) -> list[list[Case]]:
    """Cases with equal values of some settings together, in the order of their first cases."""
    groups: dict[tuple[object, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(key_of(case.values[index]) for index in indices), []).append(case)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class Method:
    """Cases with a gain that differ only in their numeric settings.

    Attributes:
        cases: Positions, in the order of their numbers.
        line: Whether they differ in one number, so that values between neighbours can be interpolated.
    """

    cases: list[int]
    line: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs of one method at a gain that other methods reach too.

    Attributes:
        method: Position in `SweepAnalysis.methods`.
        changes: Task beside the targets to its improvement in percent; None if it has none.
        drift: Drift of the probes; None without a measurement.
        interpolated: Whether the gain lies between two cases.
        harmless: The largest gain above 0 of a harmless case; None without one.
    """

    method: int
    changes: dict[str, float | None]
    drift: float | None
    interpolated: bool
    harmless: float | None


@dataclass(frozen=True, slots=True)
class EqualGain:
    """Methods compared at one gain, in percent; those that reach it, lowest drift first."""

    gain: float
    costs: list[Cost]


@dataclass(frozen=True, slots=True)
class DriftLimit:
    """A drift limit compared with labelled damage, for cases that differ only in their learning rate.

    Attributes:
        cases: Positions, lowest rate first.
        safe: The largest rate up to which every drift is within the limit; None if the lowest rate exceeds
            it.
        harmless: The largest rate up to which no task is measurably worse; None if one is at the lowest rate.
        harmed: Tasks that are worse at the next rate, and ``no model`` if a run failed; empty if damage does
            not begin among these rates.
        bracket: Limits that would have been a hit: from the first up to but excluding the second, None for no
            upper end.
        agreement: ``hit`` if drift exceeds the limit at the rate where damage begins, ``early`` at a lower
            one, ``late`` at a higher one; ``untested`` if both happen beyond an end of the rates.
    """

    cases: list[int]
    measure: str
    limit: float
    safe: float | None
    harmless: float | None
    harmed: list[str]
    bracket: tuple[float, float | None]
    agreement: Literal["hit", "early", "late", "untested"]


@dataclass(frozen=True, slots=True)
class SweepAnalysis:
    """Analysis over the runs of a sweep.

    Attributes:
        settings: Settings of the grid in their order, then the variants.
        cases: In the order of their first runs.
        best: Position of the case with the largest gain among those that made no other task worse; None
            without such a case.
        methods: Cases grouped by their non-numeric settings; empty without tasks beside the targets.
        equal_gain: Methods compared at the gain that most of them reach; None if no two methods share one.
        drift_limits: For each series of learning rates and measure of drift.
    """

    settings: list[Setting] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    best: int | None = None
    methods: list[Method] = field(default_factory=list)
    equal_gain: EqualGain | None = None
    drift_limits: list[DriftLimit] = field(default_factory=list)

    @property
    def best_case(self) -> Case | None:
        """The case at `best`."""
        return None if self.best is None else self.cases[self.best]

    @property
    def differing(self) -> list[int]:
        """Positions of the settings that have several values."""
        return [position for position, setting in enumerate(self.settings) if len(setting.values) > 1]

    @property
    def rate(self) -> int | None:
        """Position of the learning rate; None if it does not vary, or some of its values are not numbers."""
        for position in self.differing:
            setting = self.settings[position]
            if setting.numeric and setting.name.endswith("learning_rate"):
                return position
        return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult(SuiteResult):
    """The whole ``result.json`` of a sweep.

    Its models are the cases, whose runs are the seeds, and their initial models. Each is compared with the
    best of each task. The rows compare each run with its own start.

    Attributes:
        model: Initial model; several are listed.
        targets: Names of the tasks that training should improve; the others must not get worse.
        varied: Dotted settings that the grid varies, in order.
        runs: A row for each run.
        starts: Names of the initial models among `models`.
        speed: Encoding speed by initial model; empty if it was not measured.
        noise: Measure of drift to that of the untuned tower when only the final punctuation of the probes
            changes (`adiabat.adiabatic.drift`); empty if drift was not measured.
        variation: Analysis over the rows: means over seeds, harm, costs of gains, drift limits.
    """

    ROWS: ClassVar[str] = "runs"

    model: str
    targets: list[str]
    varied: list[str]
    runs: list[SweepRun]
    starts: list[str] = field(default_factory=list)
    speed: dict[str, Speed] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)
    variation: SweepAnalysis = field(default_factory=SweepAnalysis)
    kind: Literal["sweep"] = "sweep"  # type: ignore[assignment]

    @property
    def verb(self) -> str:
        """Verb that made the runs: ``tune`` or ``train``."""
        return str(self.settings.get("sweep", {}).get("verb", "tune"))

    @property
    def task_names(self) -> list[str]:
        """Names of the tasks."""
        return [task.name for task in self.tasks]

    @property
    def others(self) -> list[str]:
        """Tasks that are not targets."""
        return [task for task in self.task_names if task not in self.targets]

    @property
    def ordered(self) -> list[str]:
        """Targets, then the others."""
        targets = [task for task in self.task_names if task in self.targets]
        return [*targets, *self.others]

    def runs_of(self, case: Case | None = None, status: str | None = "done") -> list[SweepRun]:
        """Runs of a case, by default of all cases, that left a model (``done``), that failed, or all."""
        runs = self.runs if case is None else [self.runs[position] for position in case.runs]
        return [run for run in runs if status in (None, run.status)]
