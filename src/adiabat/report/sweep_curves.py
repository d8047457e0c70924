"""What the figures of a sweep show: points, the lines through their means, and what failed; `plots` draws them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from adiabat.report.sweep_cases import Case, Compared, Key, Overview, Setting, comparisons_of, is_number, key_of, pair_counts
from adiabat.report.sweep_values import line_labels
from adiabat.results.sweep_result import SweepRun, Value

MOST_COMBINATIONS = 6
"""Combinations of the other settings up to which each has its own curve."""

DRIFTS = ("overlap loss", "margins", "turn")
"""Measures of drift that come first."""

_LOG_FROM = 20
"""How many times its least value above zero a setting must reach for its axis to be logarithmic."""

_NORMAL = 1.96
"""Standard errors to either side of a mean that make a 95 % interval."""

Scale = Literal["log", "symlog", "linear"]
Kind = Literal["improvement", "pairs", "drift", "validation", "trade"]
"""Of a figure."""

Role = Literal["target", "other", "improved", "worsened", "combination"]


class Shown(NamedTuple):
    """What a run has to show: a value, whether it is without evidence, and its interval."""

    y: float
    open: bool = False
    interval: tuple[float, float] | None = None


Measure = Callable[[SweepRun], Shown | None]


@dataclass(frozen=True, slots=True)
class Point:
    """What one run shows.

    Attributes:
        x: Value of the setting.
        y: Of the run.
        seed: Of the run.
        open: Whether the paired verdict is "no evidence".
        interval: 95 %, where it has one.
    """

    x: float
    y: float
    seed: int
    open: bool = False
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one line.

    Attributes:
        label: For the legend.
        role: How it is drawn.
        points: From left to right.
        means: Value of the setting to the mean over seeds; None, a gap, where no run has a value.
        faint: Whether it stands behind another, as the counts of the z-test do.
    """

    label: str
    role: Role
    points: tuple[Point, ...]
    means: tuple[tuple[float, float | None], ...]
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: Over it; none where it is empty.
        curves: In the order of the legend.
        failed: Values of the setting at which a run failed.
        ceiling: What the values are counted of, such as all language pairs.
        percent: Whether the values are improvements in percent.
    """

    title: str
    curves: tuple[Curve, ...]
    failed: tuple[float, ...] = ()
    ceiling: int | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Combination:
    """Values of the other settings that a curve is drawn for.

    Attributes:
        label: In words; empty where no other setting varies.
        cases: That have them, each after its place on the axis, from left to right.
    """

    label: str
    cases: tuple[tuple[float, Case], ...]

    @property
    def failed(self) -> tuple[float, ...]:
        """Places at which a run failed."""
        return tuple(x for x, case in self.cases if case.failed)


@dataclass(frozen=True, slots=True)
class Series:
    """One setting against which things are drawn.

    Attributes:
        setting: Numeric, with two values or more.
        scale: Of its axis.
        combinations: Of the other settings; at most `MOST_COMBINATIONS`.
        of: How many combinations there are.
        tied: Labels of settings that go with it, so that they make no curves of their own.
        alone: How many cases are on no curve, for no other has the same other settings.
    """

    setting: Setting
    scale: Scale
    combinations: tuple[Combination, ...]
    of: int
    tied: tuple[str, ...] = ()
    alone: int = 0


def series_of(view: Overview) -> list[Series]:
    """Settings that figures are drawn against."""
    found = (_sweep(view, index) for index, setting in enumerate(view.settings) if setting.numeric and len(setting.numbers) > 1)
    return [series for series in found if series is not None]


def _sweep(view: Overview, index: int) -> Series | None:
    others = [other for other in range(len(view.settings)) if other != index and len(view.settings[other].values) > 1]
    tied = [other for other in others if _go_together(view.cases, other, index)]
    apart = [other for other in others if other not in tied]
    groups: dict[tuple[Key, ...], list[Case]] = {}
    numbered = [case for case in view.cases if is_number(case.values[index])]
    for case in numbered:
        groups.setdefault(tuple(key_of(case.values[other]) for other in apart), []).append(case)
    lines = [cases for cases in groups.values() if len({key_of(case.values[index]) for case in cases}) > 1]
    if not lines:
        return None
    shown = lines if len(lines) <= MOST_COMBINATIONS else [max(lines, key=lambda cases: sum(len(case.runs) for case in cases))]
    labels = line_labels(view, apart, lines)
    combinations = (Combination(label, _placed(cases, index)) for label, cases in zip(labels, lines, strict=True) if cases in shown)
    setting, alone = view.settings[index], len(numbered) - sum(map(len, lines))
    return Series(setting, scale_of(setting), tuple(combinations), len(lines), tuple(view.settings[other].label for other in tied), alone)


def _go_together(cases: Sequence[Case], one: int, other: int) -> bool:
    """Whether two settings tell the same of a case, as a learning rate and the batch size that it is scaled with."""
    both = {(key_of(case.values[one]), key_of(case.values[other])) for case in cases}
    return len(both) == len({first for first, _ in both}) == len({second for _, second in both})


def _placed(cases: Sequence[Case], index: int) -> tuple[tuple[float, Case], ...]:
    return tuple(sorted(((_number(case.values[index]), case) for case in cases), key=lambda placed: placed[0]))


def _number(value: Value) -> float:
    assert is_number(value)
    return float(value)


def scale_of(setting: Setting) -> Scale:
    """What an axis is like.

    Returns:
        ``log`` for learning rates and for what spans more than an order of magnitude above 0; ``symlog`` where 0 is among such values.
    """
    values = setting.numbers
    above = [value for value in values if value > 0]
    if not above or min(values) < 0:
        return "linear"
    wide = max(above) / min(above) >= _LOG_FROM or setting.name.endswith("learning_rate")
    return "linear" if not wide else "log" if len(above) == len(values) else "symlog"


def improvements(view: Overview, series: Series) -> list[Panel]:
    """Improvement of the main measure of each task in percent."""
    return [_filled(Panel(one.label, _task_curves(view, one), one.failed, percent=True)) for one in series.combinations]


def _task_curves(view: Overview, one: Combination) -> tuple[Curve, ...]:
    roles: list[tuple[str, Role]] = [(task, "target" if task in view.result.targets else "other") for task in view.ordered]
    return tuple(_curve(task, role, one, _improvement_on(task)) for task, role in roles)


def _improvement_on(task: str) -> Measure:
    def of(run: SweepRun) -> Shown | None:
        own = run.task(task)
        if own is None or own.main.improvement is None:
            return None
        return Shown(own.main.improvement, own.main.verdict not in ("better", "worse"), own.main.improvement_interval)

    return of


def pairs(view: Overview, series: Series) -> list[tuple[Compared, list[Panel]]]:
    """Language pairs improved and worsened, by the paired test and by the source's z-test."""
    return [(compared, [_pair_panel(one, compared) for one in series.combinations]) for compared in comparisons_of(view.done, view.ordered)]


def _pair_panel(one: Combination, compared: Compared) -> Panel:
    counted: tuple[tuple[str, Role, bool], ...] = (
        *(("improved", "improved", False), ("worsened", "worsened", False)),
        *(("improved_z", "improved", True), ("worsened_z", "worsened", True)),
    )
    curves = (
        _curve(f"{role}, z-test" if faint else role, role, one, _count_of(compared, name), faint=faint) for name, role, faint in counted
    )
    sides = [counts.pairs for _, case in one.cases if (counts := pair_counts(case.runs, compared)) is not None]
    return _filled(Panel(one.label, tuple(curves), one.failed, max(sides, default=None)))


def _count_of(compared: Compared, name: str) -> Measure:
    def of(run: SweepRun) -> Shown | None:
        counts = pair_counts([run], compared)
        value = None if counts is None else getattr(counts, name)
        return None if value is None else Shown(float(value))

    return of


def drifts(view: Overview, series: Series) -> list[Panel]:
    """How far what tuned towers find is from what the untuned one finds."""
    there = dict.fromkeys(name for run in view.done if run.drift is not None for name in run.drift.means)
    names = [*(name for name in DRIFTS if name in there), *(name for name in there if name not in DRIFTS)]
    return [panel for name in names if (panel := _by_combination(name, series, _drift_of(name))).curves]


def _drift_of(name: str) -> Measure:
    def of(run: SweepRun) -> Shown | None:
        if run.drift is None or name not in run.drift.means:
            return None
        mean, error = run.drift.means[name], run.drift.errors.get(name)
        return Shown(mean, interval=None if error is None else (mean - _NORMAL * error, mean + _NORMAL * error))

    return of


def validations(series: Series) -> list[Panel]:
    """How long runs trained, and which epoch was kept."""
    shown: tuple[tuple[str, Measure], ...] = (
        ("steps taken", lambda run: Shown(float(run.steps))),
        ("epoch that was kept", lambda run: Shown(float(run.best_epoch))),
    )
    return [panel for title, measure in shown if (panel := _by_combination(title, series, measure)).curves]


def _by_combination(title: str, series: Series, measure: Measure) -> Panel:
    curves = (_curve(one.label, "combination", one, measure) for one in series.combinations)
    failed = sorted({x for one in series.combinations for x in one.failed})
    return _filled(Panel(title, tuple(curves), tuple(failed)))


def _filled(panel: Panel) -> Panel:
    """Without curves that have no point."""
    return replace(panel, curves=tuple(curve for curve in panel.curves if curve.points))


def _curve(label: str, role: Role, one: Combination, measure: Measure, *, faint: bool = False) -> Curve:
    shown = [(x, run.seed, found) for x, case in one.cases for run in case.done if (found := measure(run)) is not None]
    points = tuple(Point(x, found.y, seed, found.open, found.interval) for x, seed, found in shown)
    heights = {x: [point.y for point in points if point.x == x] for x, _ in one.cases}
    return Curve(label, role, points, tuple((x, fmean(values) if values else None) for x, values in heights.items()), faint)
