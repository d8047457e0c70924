"""A sweep by its settings: runs that differ by their seed alone are one case, and their changes and counts are averaged."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeGuard

from adiabat.core.text import MINUS
from adiabat.report import format as formats
from adiabat.results.evaluation_result import Change, GridComparison, Verdict
from adiabat.results.sweep_result import SweepResult, SweepRun, Value

VARIANT = "variant"
"""Name of the overlay of a run beside the settings that a grid varies."""

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
        label: For columns and axes.
        values: Each once; numbers ascending, then None, where the setting has no effect; others in the order of the runs.
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
        """Its numeric values."""
        return [float(value) for value in self.values if is_number(value)]


@dataclass(frozen=True, slots=True)
class Case:
    """All runs of one combination of settings; they differ by their seeds."""

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
    """Changes of the measured runs of a case, at least one, by one measure of one task."""

    changes: tuple[Change, ...]

    @property
    def percent(self) -> bool:
        """Whether values are improvements in percent; else differences, for a baseline of 0 has no percent."""
        return all(change.improvement is not None for change in self.changes)

    @property
    def values(self) -> list[float]:
        """Improvement, or difference, of each run that has one."""
        values = [change.improvement if self.percent else change.difference for change in self.changes]
        return [value for value in values if value is not None]

    @property
    def mean(self) -> float | None:
        """Over runs; None without a comparison."""
        return fmean(self.values) if self.values else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The paired 95 % interval of a single run; the lowest and the highest value of several."""
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
        """The verdict that all runs share; None where they disagree, or have none."""
        verdicts = {change.verdict for change in self.changes}
        return next(iter(verdicts)) if len(verdicts) == 1 else None


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Language pairs of a grid that changed, as means over runs; None without the paired test, or without the source's z-test."""

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
        settings: Those of the grid in their order, then the overlays.
        cases: In the order of their first runs.
    """

    result: SweepResult
    settings: tuple[Setting, ...]
    cases: tuple[Case, ...]

    @property
    def others(self) -> list[str]:
        """Tasks that are no targets of tuning."""
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
        """Other tasks that any run of a case made worse."""
        return [task for task in self.others if (changed := outcome(case, task)) is not None and changed.verdicts["worse"]]

    def harmless(self, case: Case) -> bool:
        """Whether every run of a case has a verdict on all other tasks, and none is worse."""
        return all(self.judged(case, task) for task in self.others) and not case.failed and not self.worse(case)

    def judged(self, case: Case, task: str) -> bool:
        """Whether every run of a case has a verdict on a task."""
        changed = outcome(case, task)
        return changed is not None and changed.verdicts.total() == len(case.runs)

    def gain(self, case: Case) -> float | None:
        """Mean improvement in percent over runs and targets; None where a target has none."""
        outcomes = [outcome(case, task) for task in self.result.targets]
        means = [changed.mean for changed in outcomes if changed is not None and changed.percent and changed.mean is not None]
        return fmean(means) if outcomes and len(means) == len(outcomes) else None


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether a value has a position on an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def key_of(value: Value) -> Key:
    """A hashable key, which tells True from 1."""
    return isinstance(value, bool), tuple(value) if isinstance(value, list) else value


def grouped(cases: Sequence[Case], indices: Sequence[int]) -> list[list[Case]]:
    """Cases with equal values of some settings together."""
    groups: dict[tuple[Key, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(key_of(case.values[index]) for index in indices), []).append(case)
    return list(groups.values())


def overview_of(result: SweepResult) -> Overview:
    """Sort the runs of a sweep into cases."""
    names = [*result.varied, *([VARIANT] if any(run.variant for run in result.runs) else [])]
    single = [Case(tuple(run.variant if name == VARIANT else run.varied.get(name) for name in names), (run,)) for run in result.runs]
    settings = (Setting(name, _label(name, names), _distinct([case.values[index] for case in single])) for index, name in enumerate(names))
    groups = grouped(single, range(len(names)))
    return Overview(result, tuple(settings), tuple(Case(cases[0].values, tuple(case.runs[0] for case in cases)) for cases in groups))


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    distinct = {key_of(value): value for value in values}.values()
    numbers, none = [value for value in distinct if is_number(value)], [value for value in distinct if value is None]
    return (*sorted(numbers), *none) if len(numbers) + len(none) == len(distinct) else tuple(distinct)


def _label(name: str, names: Sequence[str]) -> str:
    """The last word of a dotted name, behind its table unless that is ``tune``; the whole name where another ends alike."""
    table, _, last = name.rpartition(".")
    unique = sum(other.rpartition(".")[2] == last for other in names) == 1
    label = name if not unique else last if table in ("", "tune") else f"{table} {last}"
    return label.replace("_", " ")


def outcome(case: Case, task: str, measured: Measured | None = None) -> Outcome | None:
    """Changes of a case on a task by a measure, by default the main one; None without measured runs."""
    outcomes = [outcome for run in case.done if (outcome := run.task(task)) is not None]
    if measured is None:
        changes = [outcome.main for outcome in outcomes]
    else:
        changes = [change for outcome in outcomes for change in outcome.changes if (change.measure, change.similarity) == measured]
    return Outcome(tuple(changes)) if changes else None


def measures_of(result: SweepResult, task: str) -> list[Measured]:
    """Measures of a task, the main one first; empty without measured runs."""
    outcomes = (outcome for run in result.runs if (outcome := run.task(task)) is not None)
    return list(dict.fromkeys((change.measure, change.similarity) for outcome in outcomes for change in outcome.changes))


def comparisons_of(runs: Sequence[SweepRun], tasks: Sequence[str]) -> list[Compared]:
    """All comparisons of language grids."""
    return list(dict.fromkeys((task, grid.comparison, grid.similarity) for task in tasks for grid in _grids(runs, task)))


def pair_counts(runs: Sequence[SweepRun], compared: Compared) -> PairCounts | None:
    """Language pairs that runs improved and worsened, as means over measured runs; None without them."""
    task, *by = compared
    grids = [grid for grid in _grids(runs, task) if [grid.comparison, grid.similarity] == by]
    if not grids:
        return None
    counts = ("improved", "worsened", "improved_z", "worsened_z")
    return PairCounts(sum(map(len, grids[0].after)), *(_mean_count([getattr(grid, name) for grid in grids]) for name in counts))


def _grids(runs: Sequence[SweepRun], task: str) -> Iterator[GridComparison]:
    for run in runs:
        if run.status == "done" and (outcome := run.task(task)) is not None:
            yield from outcome.grids


def _mean_count(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return fmean(known) if len(known) == len(counts) else None


def rate_setting(view: Overview) -> Setting | None:
    """The learning rate; None where it does not vary, or some of its values are no numbers."""
    rates = (setting for setting in view.settings if setting.name.endswith("learning_rate") and setting.numeric)
    return next((rate for rate in rates if len(rate.values) > 1), None)


def setting_value(value: Value) -> str:
    """The value of a setting as in a configuration, lists as ``embeddings + blocks[0]``, and ``none`` for empty ones."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return formats.setting(value)
    if isinstance(value, list):
        return " + ".join(map(str, value)) or "none"
    return "none" if value is None else str(value) or "none"


def combination_label(settings: Sequence[Setting], values: Sequence[Value]) -> str:
    """Several settings in one line."""
    return ", ".join(f"{setting.label} {setting_value(value)}" for setting, value in zip(settings, values, strict=True))


def line_labels(view: Overview, indices: Sequence[int], lines: Sequence[Sequence[Case]]) -> list[str]:
    """A label for each line of cases, by the settings that differ between lines."""
    differing = [index for index in indices if len(lines) == 1 or len({key_of(cases[0].values[index]) for cases in lines}) > 1]
    settings = [view.settings[index] for index in differing]
    return [combination_label(settings, [cases[0].values[index] for index in differing]) for cases in lines]


def case_label(view: Overview, case: Case) -> str:
    """A case in one line, by the settings that differ in the sweep."""
    labels = [combination_label([view.settings[index]], [case.values[index]]) for index in _differing(view)] or ["the only setting"]
    return " with ".join(filter(None, [labels[0], " and ".join(filter(None, [", ".join(labels[1:-1]), *labels[1:][-1:]]))]))


def case_head(view: Overview) -> str:
    """Head of a column of `case_cell`."""
    differing = _differing(view)
    return view.settings[differing[0]].label if len(differing) == 1 else "setting"


def case_cell(view: Overview, case: Case) -> str:
    """A case under `case_head`."""
    differing = _differing(view)
    return setting_value(case.values[differing[0]]) if len(differing) == 1 else case_label(view, case)


def _differing(view: Overview) -> list[int]:
    return [index for index, setting in enumerate(view.settings) if len(setting.values) > 1]


def rate(value: float) -> str:
    """A number of any order of magnitude with three digits, for an axis or a cell."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,g}".replace("-", MINUS)
    digits, _, exponent = f"{value:.2e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(exponent)}".replace("-", MINUS)
