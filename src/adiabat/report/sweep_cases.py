"""A sweep by its settings: runs that differ by nothing but the seed are one case, and their changes and counts are taken together."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeGuard

from adiabat.results.evaluation_result import Change, GridComparison, Verdict
from adiabat.results.sweep_result import SweepResult, SweepRun, Value

VARIANT = "variant"
"""What the overlay of a run is called beside the settings that a grid varies."""

Key = tuple[bool, object]
Measured = tuple[str, str]
"""A measure and its similarity."""
Compared = tuple[str, str, str]
"""A task with a language grid, one of its comparisons, and the similarity."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that runs differ by.

    Attributes:
        name: Dotted, or ``variant``.
        label: In words, as columns and axes have it.
        values: Each once; numbers from the lowest up, and then None, which is where the setting has no effect; others as they come.
    """

    name: str
    label: str
    values: tuple[Value, ...]

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers, but for None."""
        return bool(self.numbers) and all(is_number(value) or value is None for value in self.values)

    @property
    def numbers(self) -> list[float]:
        """Its values that are."""
        return [float(value) for value in self.values if is_number(value)]


@dataclass(frozen=True, slots=True)
class Case:
    """All runs of one combination of settings; they differ by their seeds.

    Attributes:
        values: Of the settings, in their order.
        runs: At least one.
    """

    values: tuple[Value, ...]
    runs: tuple[SweepRun, ...]

    @property
    def done(self) -> list[SweepRun]:
        """Runs that left a model."""
        return [run for run in self.runs if run.status == "done"]

    @property
    def failed(self) -> list[SweepRun]:
        """Runs that left none."""
        return [run for run in self.runs if run.status != "done"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runs of a case changed, by one measure of one task.

    Attributes:
        changes: One for each run that was measured; at least one.
    """

    changes: tuple[Change, ...]

    @property
    def percent(self) -> bool:
        """Whether values are improvements in percent; else differences, for a baseline of 0 has no percent."""
        return all(change.improvement is not None for change in self.changes)

    @property
    def values(self) -> list[float]:
        """Improvement, or difference, of each run that has one."""
        own = [change.improvement if self.percent else change.difference for change in self.changes]
        return [value for value in own if value is not None]

    @property
    def mean(self) -> float | None:
        """Over runs; None where nothing was compared."""
        return fmean(self.values) if self.values else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The paired 95 % interval of a single run; of several, the lowest value and the highest."""
        if len(self.changes) > 1:
            return (min(self.values), max(self.values)) if self.values else None
        (change,) = self.changes
        return change.improvement_interval if self.percent else change.difference_interval

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How many runs have each."""
        return Counter(change.verdict for change in self.changes if change.verdict is not None)

    @property
    def verdict(self) -> Verdict | None:
        """The one that all runs have; None where they disagree, or have none."""
        found = {change.verdict for change in self.changes}
        return next(iter(found)) if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Language pairs of a grid that changed, as means over runs.

    Attributes:
        pairs: How many there are.
        improved: By the paired test; None where it was not made.
        worsened: Likewise.
        improved_z: By the source's z-test; None where no errors are counted.
        worsened_z: Likewise.
    """

    pairs: int
    improved: float | None
    worsened: float | None
    improved_z: float | None
    worsened_z: float | None


@dataclass(frozen=True, slots=True)
class Overview:
    """A result with its runs sorted into cases.

    Attributes:
        result: Of the sweep.
        settings: That it varies; those of the grid in their order, then its overlays.
        cases: In the order in which their first runs come.
    """

    result: SweepResult
    settings: tuple[Setting, ...]
    cases: tuple[Case, ...]

    @property
    def others(self) -> list[str]:
        """Tasks that tuning is not for."""
        return [task for task in self.result.tasks if task not in self.result.targets]

    @property
    def ordered(self) -> list[str]:
        """Targets, then the others."""
        return [*(task for task in self.result.tasks if task in self.result.targets), *self.others]

    @property
    def done(self) -> list[SweepRun]:
        """Runs that left a model."""
        return [run for run in self.result.runs if run.status == "done"]

    @property
    def failed(self) -> list[SweepRun]:
        """Runs that left none."""
        return [run for run in self.result.runs if run.status != "done"]

    def worse(self, case: Case) -> list[str]:
        """Tasks that tuning is not for and that any run of a case made worse."""
        return [task for task in self.others if (view := outcome(case, task)) is not None and view.verdicts["worse"]]

    def harmless(self, case: Case) -> bool:
        """Whether no run of a case made a task worse that tuning is not for, as far as that is known of all of them."""
        return all(self.judged(case, task) for task in self.others) and not case.failed and not self.worse(case)

    def judged(self, case: Case, task: str) -> bool:
        """Whether every run of a case has a verdict on a task."""
        view = outcome(case, task)
        return view is not None and view.verdicts.total() == len(case.runs)

    def gain(self, case: Case) -> float | None:
        """Mean improvement of the targets in percent.

        Returns:
            Over runs and targets; None where a target has none.
        """
        view = [outcome(case, task) for task in self.result.targets]
        means = [one.mean for one in view if one is not None and one.percent and one.mean is not None]
        return fmean(means) if view and len(means) == len(view) else None


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether a setting can stand on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def key_of(value: Value) -> Key:
    """What tells a value from others."""
    return isinstance(value, bool), tuple(value) if isinstance(value, list) else value


def overview_of(result: SweepResult) -> Overview:
    """Sort the runs of a sweep."""
    names = [*result.varied, *([VARIANT] if any(run.variant for run in result.runs) else [])]
    values = [tuple(_value(run, name) for name in names) for run in result.runs]
    settings = (Setting(name, _label(name, names), _distinct([row[index] for row in values])) for index, name in enumerate(names))
    sorted_runs: dict[tuple[Key, ...], list[int]] = {}
    for index, row in enumerate(values):
        sorted_runs.setdefault(tuple(map(key_of, row)), []).append(index)
    cases = (Case(values[places[0]], tuple(result.runs[index] for index in places)) for places in sorted_runs.values())
    return Overview(result, tuple(settings), tuple(cases))


def _value(run: SweepRun, name: str) -> Value:
    return run.variant if name == VARIANT else run.varied.get(name)


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    once = {key_of(value): value for value in values}.values()
    numbers, none = [value for value in once if is_number(value)], [value for value in once if value is None]
    return (*sorted(numbers), *none) if len(numbers) + len(none) == len(once) else tuple(once)


def _label(name: str, names: Sequence[str]) -> str:
    """The last part of a dotted name; with its table where that is not ``tune``; all of it where another ends alike."""
    table, _, last = name.rpartition(".")
    alone = sum(other.rpartition(".")[2] == last for other in names) == 1
    shown = name if not alone else last if table in ("", "tune") else f"{table} {last}"
    return shown.replace("_", " ")


def outcome(case: Case, task: str, measured: Measured | None = None) -> Outcome | None:
    """What a case changed on a task.

    Args:
        measured: Measure and similarity; None is the main one.

    Returns:
        None where no run was measured by it.
    """
    found = [own for run in case.done if (own := run.task(task)) is not None]
    if measured is None:
        changes = [own.main for own in found]
    else:
        changes = [change for own in found for change in own.changes if (change.measure, change.similarity) == measured]
    return Outcome(tuple(changes)) if changes else None


def measures_of(result: SweepResult, task: str) -> list[Measured]:
    """What a task was measured by.

    Returns:
        The main one first; empty where no run was measured.
    """
    found = (own for run in result.runs if (own := run.task(task)) is not None)
    return list(dict.fromkeys((change.measure, change.similarity) for own in found for change in own.changes))


def comparisons_of(runs: Sequence[SweepRun], tasks: Sequence[str]) -> list[Compared]:
    """All comparisons of language grids."""
    found = ((task, grid) for task in tasks for grid, _ in _grids(runs, task))
    return list(dict.fromkeys((task, grid.comparison, grid.similarity) for task, grid in found))


def pair_counts(runs: Sequence[SweepRun], compared: Compared) -> PairCounts | None:
    """Language pairs that runs improved and worsened.

    Returns:
        Means over the runs that were measured; None where none was.
    """
    task, *by = compared
    found = [(grid, side) for grid, side in _grids(runs, task) if [grid.comparison, grid.similarity] == by]
    if not found:
        return None
    counts = ("improved", "worsened", "improved_z", "worsened_z")
    return PairCounts(found[0][1], *(_mean_count([getattr(grid, name) for grid, _ in found]) for name in counts))


def _grids(runs: Sequence[SweepRun], task: str) -> Iterator[tuple[GridComparison, int]]:
    """Grids of a task with the number of their cells."""
    for run in runs:
        own = run.task(task)
        if own is not None and run.status == "done":
            yield from ((grid, sum(map(len, grid.after))) for grid in own.grids)


def _mean_count(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return fmean(known) if len(known) == len(counts) else None
