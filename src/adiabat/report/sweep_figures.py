"""The figures of a sweep (Vasilyev et al. 2024): quantities of runs against a numeric setting, and against
the gain of the targets.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

from adiabat.core.text import cut_middle, setting_text
from adiabat.report import charts
from adiabat.report.captions import text_of
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED
from adiabat.report.format import cut_name, difference_tick, three_digits
from adiabat.report.measure_terms import in_order
from adiabat.report.sweep_tables import label_of, labels_apart, method_labels
from adiabat.results.record import Ends
from adiabat.results.sweep_result import Case, Setting, SweepResult, SweepRun, grouped, is_number, key_of

MOST_CURVES = 8
"""Maximum number of curves distinguishable in one panel."""

MOST_TICKS = 8
"""Maximum number of values with a tick label."""

_LOG_FROM = 20
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""

_NORMAL = 1.96
"""Standard errors on either side of a mean in a 95 % interval."""

# Mid-tones, to be seen on light and dark pages alike; markers tell curves apart without colour.
_STYLES = (
    (INK, "o"),
    ("#c2568f", "s"),
    ("#1b8a5a", "^"),
    (ACCENT, "v"),
    ("#a67c00", "D"),
    ("#2a8f9c", "<"),
    (BAD, "P"),
    (GOOD, "h"),
)


class Point(NamedTuple):
    """A value of a run; `open` if it is neither better nor worse, `interval` at 95 %."""

    y: float
    open: bool = False
    interval: Ends | None = None


Measure = Callable[[SweepRun], Point | None]
"""The point of a run, if it has one."""


class Quantity(NamedTuple):
    """What a panel shows, from the runs: `of` in solid curves, `dashed` in dashed ones.

    Attributes:
        signed: Whether values are changes, for which 0 is drawn.
        log: Whether the axis is logarithmic, unless a value is 0.
    """

    title: str
    up: str
    of: Measure
    dashed: Measure | None = None
    signed: bool = False
    log: bool = False


class Curve(NamedTuple):
    """Cases from left to right with their positions; `joined` if a line through their means has a meaning."""

    label: str
    cases: list[tuple[float, Case]]
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Axis:
    """What figures are drawn against.

    Attributes:
        name: Dotted setting; "" for the gain of the targets.
        label: Text below the axis.
        curves: At most `MOST_CURVES`, one for each combination of the other settings or for each method.
        of: Number of all combinations or methods.
        panel: The axes without curves.
    """

    name: str
    label: str
    curves: list[Curve]
    of: int
    panel: charts.Panel


class Drawing(NamedTuple):
    """One figure; `name` is that of its file."""

    name: str
    title: str
    caption: str
    panels: list[charts.Panel]

    @property
    def chart(self) -> charts.Chart:
        """Its panels side by side."""
        count = len(self.panels)
        height = 3.8 if count == 1 else 2.8
        return charts.curves(self.name, self.panels, height=height, columns=3 if count == 3 else 2)


# --- What is drawn against what ---


def axes_of(result: SweepResult) -> list[Axis]:
    """The numeric settings that curves can be drawn against."""
    view = result.variation
    axes = []
    for index in view.differing:
        setting = view.settings[index]
        if len(setting.numbers) > 1 and setting.numeric and (curves := _curves(result, index)):
            shown = sorted(curves, key=_runs_of, reverse=True)[:MOST_CURVES]
            positions = {x for curve in shown for x, _ in curve.cases}
            label = label_of(view, index)
            axes.append(Axis(setting.name, label, shown, len(curves), _axis(setting, label, positions)))
    return axes


def _runs_of(curve: Curve) -> int:
    return sum(len(case.runs) for _, case in curve.cases)


def _curves(result: SweepResult, index: int) -> list[Curve]:
    """A curve for each combination of the other settings that has two values of this one."""
    view = result.variation
    apart = [other for other in view.differing if not _is_tied(view.cases, other, index)]
    numbered = [case for case in view.cases if is_number(case.values[index])]
    lines = []
    for cases in grouped(numbered, apart):
        if len({key_of(case.values[index]) for case in cases}) > 1:
            lines.append(cases)
    curves = []
    for label, cases in zip(labels_apart(view, lines, apart), lines, strict=True):
        positions = [(float(value), case) for case in cases if is_number(value := case.values[index])]
        curves.append(Curve(label, sorted(positions, key=itemgetter(0))))
    return curves


def _is_tied(cases: Sequence[Case], first: int, second: int) -> bool:
    """Whether two settings map one to one, as a setting and itself, or a rate and the batch size that
    it is scaled with.
    """
    pairs = {(key_of(case.values[first]), key_of(case.values[second])) for case in cases}
    return len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})


def _axis(setting: Setting, label: str, positions: set[float]) -> charts.Panel:
    values, scale = sorted(positions), scale_of(setting)
    positive = [value for value in values if value > 0]
    # Every n-th value has a tick, n rounded up, so that they are not too many.
    return charts.Panel(
        [],
        cut_name(label, limit=60),
        log="x" if scale == "log" else "",
        x_tick=setting_text,
        y_tick=three_digits,
        ticks=values[:: -(-len(values) // MOST_TICKS)],
        linear_to=min(positive, default=0.0) if scale == "symlog" else 0.0,
    )


def scale_of(setting: Setting) -> str:
    """``log`` for learning rates and positive values that span more than an order of magnitude; ``symlog`` if
    they include 0.
    """
    values = setting.numbers
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0:
        return "linear"
    if max(positive) / min(positive) < _LOG_FROM and not setting.name.endswith("learning_rate"):
        return "linear"
    # 0 has no logarithm; `symlog` is linear near it.
    return "log" if len(positive) == len(values) else "symlog"


def gain_axis(result: SweepResult) -> Axis | None:
    """The gain of the targets, a curve for each method; None without two cases that have a gain."""
    view = result.variation
    curves = []
    for label, method in zip(method_labels(view), view.methods, strict=True):
        cases = [view.cases[position] for position in method.cases]
        curves.append(Curve(label, [(case.gain or 0.0, case) for case in cases], method.line))
    shown = sorted(curves, key=_runs_of, reverse=True)[:MOST_CURVES]
    if sum(len(curve.cases) for curve in shown) < 2:
        return None
    label = "gain on the targets, %"
    panel = charts.Panel([], label, down=[(0.0, "", MUTED)], x_tick=difference_tick, y_tick=three_digits)
    return Axis("", label, shown, len(curves), panel)


# --- Figures ---


def drawings(result: SweepResult) -> list[Drawing]:
    """All figures of a sweep, without empty ones."""
    drawn = []
    for axis in axes_of(result):
        drawn += against(result, axis)
    return [*drawn, *trade(result)]


def against(result: SweepResult, axis: Axis) -> list[Drawing]:
    """The figures against one setting, without empty ones."""
    slug = re.sub(r"[^a-z0-9]+", "-", axis.label.lower()).strip("-") or "setting"
    counts = {"steps taken": "steps", "kept epoch": "best_epoch"}
    training = [Quantity(title, "", partial(_count_of, name=name)) for title, name in counts.items()]
    kinds = [
        ("improvement", "Improvement", [_improvement(result, task) for task in result.ordered]),
        ("pairs", "Language pairs", _pairs(result)),
        ("drift", "Drift", _drifts(result)),
        ("validation", "Training", training),
    ]
    drawn = []
    for kind, title, quantities in kinds:
        if panels := _panels(result, axis, quantities):
            caption = text_of("sweep", f"{kind}-figure")
            drawn.append(Drawing(f"{kind}-{slug}", f"{title} against {axis.label}", caption, panels))
    return drawn


def trade(result: SweepResult) -> list[Drawing]:
    """Changes of the other tasks and drift against the gain of the targets, if any are known."""
    axis = gain_axis(result)
    if axis is None:
        return []
    quantities = [_improvement(result, task) for task in result.others]
    panels = _panels(result, axis, [*quantities, *_drifts(result)[:1]])
    caption = text_of("sweep", "trade-figure")
    return [Drawing("trade", "Gain on the targets and its cost", caption, panels)] if panels else []


def _improvement(result: SweepResult, task: str) -> Quantity:
    title = f"{task} (target)" if task in result.targets else task
    return Quantity(title, "improvement, %", partial(_improvement_of, task=task), signed=True)


def _improvement_of(run: SweepRun, task: str) -> Point | None:
    """Improvement of the main measure of a task in percent."""
    outcome = run.task(task)
    if outcome is None or (main := outcome.main).improvement is None:
        return None
    is_open = main.verdict not in ("better", "worse")
    return Point(main.improvement, is_open, main.improvement_interval)


def _pairs(result: SweepResult) -> list[Quantity]:
    """Language pairs improved and worsened by each comparison of a grid."""
    quantities = []
    for key in dict.fromkeys(counts.compared for case in result.variation.cases for counts in case.pairs):
        for side in ("improved", "worsened"):
            solid, dashed = (partial(_pairs_of, key=key, side=name) for name in (side, f"{side}_z"))
            task, comparison, similarity = key
            quantities.append(Quantity(f"{task} {comparison}", f"{side}, {similarity}", solid, dashed))
    return quantities


def _pairs_of(run: SweepRun, key: tuple[str, str, str], side: str) -> Point | None:
    """The count of language pairs of a task, comparison and similarity."""
    outcome = run.task(key[0])
    for grid in outcome.grids if outcome is not None else ():
        count: int | None = getattr(grid, side)
        if (grid.comparison, grid.similarity) == key[1:] and count is not None:
            return Point(float(count))
    return None


def _drifts(result: SweepResult) -> list[Quantity]:
    names = in_order(name for case in result.variation.cases for name in case.drift)
    return [Quantity(f"drift: {name}", "", partial(_drift_of, name=name), log=True) for name in names]


def _drift_of(run: SweepRun, name: str) -> Point | None:
    """Drift of the tuned tower from the untuned one, by one measure."""
    if run.drift is None or name not in run.drift.means:
        return None
    mean, error = run.drift.means[name], run.drift.errors.get(name)
    if error is None:
        return Point(mean)
    return Point(mean, interval=(mean - _NORMAL * error, mean + _NORMAL * error))


def _count_of(run: SweepRun, name: str) -> Point:
    return Point(float(getattr(run, name)))


def _panels(result: SweepResult, axis: Axis, quantities: Sequence[Quantity]) -> list[charts.Panel]:
    """A panel for each quantity with all curves, without empty panels."""
    failed = sorted({x for curve in axis.curves for x, case in curve.cases if case.failed})
    panels = []
    for quantity in quantities:
        lines: list[charts.Line] = []
        for curve, style in zip(axis.curves, _STYLES, strict=False):
            lines += _lines(result, curve, quantity, style)
        if not lines:
            continue
        panel = replace(axis.panel, lines=lines, y=quantity.up, failed=failed)
        panel = replace(panel, title=cut_middle(cut_name(quantity.title, limit=200), limit=34))
        if quantity.signed:
            panel = replace(panel, across=[(0.0, "", MUTED)], y_tick=difference_tick)
        lowest = min(y for line in lines for _, y in line.points if y is not None)
        if quantity.log and lowest > 0:
            panel = replace(panel, log=f"{panel.log}y")
        panels.append(panel)
    return panels


def _lines(
    result: SweepResult, curve: Curve, quantity: Quantity, style: tuple[str, str]
) -> list[charts.Line]:
    """The line of means, and a marker for each run: hollow without evidence, with its interval if it is alone
    at its position.
    """
    points = _points(result, curve, quantity.of)
    if not any(at for _, at in points):
        return []
    colour, marker = style
    several = any(len(at) > 1 for _, at in points)
    label = cut_name(curve.label, limit=34)
    # A marker on a line of means would look like a run.
    on_line = "" if several and curve.joined else marker
    lines = [charts.Line(_means(points), label, colour, on_line, "-" if curve.joined else "")]
    if quantity.dashed is not None:
        lines.append(charts.Line(_means(_points(result, curve, quantity.dashed)), "", colour, "", "--"))
    for hollow in (False, True):
        marked = [(x, point) for x, at in points for point in at if point.open == hollow]
        ends = () if several else [point.interval for _, point in marked]
        heights = [(x, point.y) for x, point in marked]
        if heights:
            lines.append(charts.Line(heights, "", colour, marker, "", ends, hollow=hollow))
    return lines


def _points(result: SweepResult, curve: Curve, measure: Measure) -> list[tuple[float, list[Point]]]:
    """The points of the runs at each position."""
    points = []
    for x, case in curve.cases:
        found = [measure(run) for run in result.runs_of(case)]
        points.append((x, [point for point in found if point is not None]))
    return points


def _means(points: Sequence[tuple[float, Sequence[Point]]]) -> list[tuple[float, float | None]]:
    """Means over runs; a position without a value leaves a gap."""
    return [(x, fmean(point.y for point in at) if at else None) for x, at in points]
