"""The figures of a sweep (Vasilyev et al. 2024): curves against each numeric setting, and the costs of gains."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

from adiabat.core.text import cut_middle
from adiabat.report import charts
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED
from adiabat.report.format import cut_name, difference_tick
from adiabat.report.sweep_analysis import DRIFTS, Combination, Method, Series, change_of, drift_of, gain_of, methods_of, series_of
from adiabat.report.sweep_cases import Case, Compared, Overview, comparisons_of, outcome, pair_counts, rate, setting_value
from adiabat.results.sweep_result import SweepRun

# Mid-tones, to be seen on light and dark pages alike; markers tell curves apart without colour.
_GREEN, _ROSE, _OCHRE, _TEAL = "#1b8a5a", "#c2568f", "#a67c00", "#2a8f9c"
_TARGETS = ((INK, "D"), (GOOD, "d"), (ACCENT, "P"))
_OTHERS = ((_GREEN, "o"), (_ROSE, "s"), (_OCHRE, "^"), (ACCENT, "v"), (_TEAL, "<"), (MUTED, "p"), (GOOD, "h"))
_SIDES = {"improved": (GOOD, "^"), "worsened": (BAD, "v")}


MOST_METHODS = 8
"""Methods that can be told apart in one figure."""

MOST_TICKS = 8
"""Values of a setting up to which each has a number below the axis."""


_NORMAL = 1.96
"""Standard errors to either side of a mean that make a 95 % interval."""

Kind = Literal["improvement", "pairs", "drift", "validation", "trade"]
"""Of a figure."""
Role = Literal["target", "other", "improved", "worsened", "combination"]


class Point(NamedTuple):
    """A value of a run; `open` without evidence of a change, `interval` at 95 %."""

    x: float
    y: float
    seed: int
    open: bool = False
    interval: tuple[float, float] | None = None


Measure = Callable[[float, SweepRun], Point | None]
"""A point of a run at a value of the setting, if the run has one."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one line, from left to right.

    Attributes:
        means: Value of the setting to the mean over seeds; None, a gap, without values.
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
        failed: Values of the setting at which a run failed.
        ceiling: The largest possible count, such as all language pairs.
        percent: Whether the values are improvements in percent.
    """

    title: str
    curves: tuple[Curve, ...]
    failed: tuple[float, ...] = ()
    ceiling: int | None = None
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure; `series` is None against the gain of the targets, `name` is that of its file."""

    name: str
    kind: Kind
    title: str
    panels: tuple[Panel, ...]
    series: Series | None = None


def pictures(view: Overview) -> list[Picture]:
    """All figures of a sweep, without empty ones."""
    against_settings = [picture for series in series_of(view) for picture in against(view, series)]
    return [*against_settings, *([cost] if (cost := trade_picture(view)) else [])]


def against(view: Overview, series: Series) -> list[Picture]:
    """The figures of one setting, without empty ones."""
    label = series.setting.label
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "setting"
    drawn = [
        Picture(f"improvement-{slug}", "improvement", f"Improvement against {label}", improvements(view, series), series),
        *_pair_pictures(view, series, slug),
        Picture(f"drift-{slug}", "drift", f"Drift against {label}", drifts(view, series), series),
        Picture(f"validation-{slug}", "validation", f"Training against {label}", validations(series), series),
    ]
    return [picture for picture in drawn if any(panel.curves for panel in picture.panels)]


def improvements(view: Overview, series: Series) -> tuple[Panel, ...]:
    """Improvement of the main measure of each task in percent, a panel for each combination."""

    def improvement_on(task: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            outcome = run.task(task)
            if outcome is None or (main := outcome.main).improvement is None:
                return None
            return Point(x, main.improvement, run.seed, main.verdict not in ("better", "worse"), main.improvement_interval)

        return point

    roles: list[tuple[str, Role]] = [(task, "target" if task in view.result.targets else "other") for task in view.ordered]
    return tuple(
        _panel_of(group.label, [_curve(task, role, group, improvement_on(task)) for task, role in roles], group.failed, percent=True)
        for group in series.combinations
    )


def pairs(view: Overview, series: Series) -> list[tuple[Compared, tuple[Panel, ...]]]:
    """Language pairs improved and worsened, by the paired test and by the source's z-test."""
    compared = comparisons_of(view.done, view.ordered)
    return [(comparison, tuple(_pair_panel(group, comparison) for group in series.combinations)) for comparison in compared]


def _pair_panel(group: Combination, compared: Compared) -> Panel:
    def count_of(name: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            counts = pair_counts([run], compared)
            value = None if counts is None else getattr(counts, name)
            return None if value is None else Point(x, float(value), run.seed)

        return point

    sides: tuple[Role, Role] = ("improved", "worsened")
    curves = [
        *(_curve(side, side, group, count_of(side)) for side in sides),
        *(_curve(f"{side}, z-test", side, group, count_of(f"{side}_z"), faint=True) for side in sides),
    ]
    totals = [counts.pairs for _, case in group.cases if (counts := pair_counts(case.runs, compared)) is not None]
    return _panel_of(group.label, curves, group.failed, ceiling=max(totals, default=None))


def _pair_pictures(view: Overview, series: Series, slug: str) -> Iterator[Picture]:
    """A figure for each grid with all its comparisons; with several combinations a figure for each comparison."""
    by_task: dict[str, list[tuple[str, tuple[Panel, ...]]]] = {}
    for (task, comparison, similarity), panels in pairs(view, series):
        by_task.setdefault(task, []).append((", ".join(filter(None, [comparison, similarity])), panels))
    figures: list[tuple[str, tuple[Panel, ...]]] = []
    for task, compared in by_task.items():
        title = f"Language pairs of {task} against {series.setting.label}"
        if len(series.combinations) == 1:
            figures.append((title, tuple(replace(panel, title=label) for label, (panel,) in compared)))
        else:
            figures += [(f"{title}, {label}", panels) for label, panels in compared]
    for number, (title, panels) in enumerate(figures, start=1):
        yield Picture(f"pairs-{slug}" + f"-{number}" * (len(figures) > 1), "pairs", title, panels, series)


def drifts(view: Overview, series: Series) -> tuple[Panel, ...]:
    """Drift of tuned towers from the untuned one, a panel for each measure."""

    def drift_by(name: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            if run.drift is None or name not in run.drift.means:
                return None
            mean, error = run.drift.means[name], run.drift.errors.get(name)
            return Point(x, mean, run.seed, interval=None if error is None else (mean - _NORMAL * error, mean + _NORMAL * error))

        return point

    measured = dict.fromkeys(name for run in view.done if run.drift is not None for name in run.drift.means)
    names = [*(name for name in DRIFTS if name in measured), *(name for name in measured if name not in DRIFTS)]
    return _by_combination(series, [(name, drift_by(name)) for name in names])


def validations(series: Series) -> tuple[Panel, ...]:
    """Steps of the runs, and their best epochs."""
    return _by_combination(
        series,
        [
            ("steps taken", lambda x, run: Point(x, float(run.steps), run.seed)),
            ("epoch that was kept", lambda x, run: Point(x, float(run.best_epoch), run.seed)),
        ],
    )


def _by_combination(series: Series, measures: Sequence[tuple[str, Measure]]) -> tuple[Panel, ...]:
    """A panel for each measure with a curve for each combination, without empty panels."""
    failed = tuple(sorted({x for group in series.combinations for x in group.failed}))
    panels = (
        _panel_of(title, [_curve(group.label, "combination", group, measure) for group in series.combinations], failed)
        for title, measure in measures
    )
    return tuple(panel for panel in panels if panel.curves)


def _panel_of(
    title: str, curves: Sequence[Curve], failed: tuple[float, ...] = (), *, ceiling: int | None = None, percent: bool = False
) -> Panel:
    """A panel without empty curves."""
    return Panel(title, tuple(curve for curve in curves if curve.points), failed, ceiling, percent)


def _curve(label: str, role: Role, group: Combination, measure: Measure, *, faint: bool = False) -> Curve:
    points = tuple(point for x, case in group.cases for run in case.done if (point := measure(x, run)) is not None)
    heights = {x: [point.y for point in points if point.x == x] for x, _ in group.cases}
    return Curve(label, role, points, tuple((x, fmean(values) if values else None) for x, values in heights.items()), faint)


def trade_picture(view: Overview) -> Picture | None:
    """Changes of the other tasks and drift against the gain of the targets; None where no two cases have a gain, or nothing beside it."""
    panels = [panel for panel in trades(view) if any(curve.points for curve in panel.curves)]
    return Picture("trade", "trade", "Gain of the targets, and what it costs", tuple(panels)) if panels else None


def trades(view: Overview) -> list[Panel]:
    """A panel for each other task, then one for the drift; a curve for each method."""
    methods = sorted(methods_of(view), key=lambda method: -len(method.cases))[:MOST_METHODS]
    cases = [case for method in methods for case in method.cases]
    if len(cases) < 2:
        return []

    def change_at(case: Case, task: str) -> Point | None:
        changed, change = outcome(case, task), change_of(case, task)
        if changed is None or change is None:
            return None
        no_evidence = not changed.verdicts["better"] + changed.verdicts["worse"]
        interval = changed.bounds if len(changed.changes) == 1 else None
        return Point(gain_of(view, case), change, case.runs[0].seed, no_evidence, interval)

    def drift_at(case: Case, measure: str) -> Point | None:
        drift = drift_of(case, measure)
        return None if drift is None else Point(gain_of(view, case), drift, case.runs[0].seed)

    def curve(method: Method, point_of: Callable[[Case, str], Point | None], name: str) -> Curve:
        points = tuple(point for case in method.cases if (point := point_of(case, name)) is not None)
        return Curve(method.label, "combination", points, tuple((point.x, point.y) for point in points) if method.line else ())

    tasks = [task for task in view.others if any(change_of(case, task) is not None for case in cases)]
    panels = [Panel(task, tuple(curve(method, change_at, task) for method in methods), percent=True) for task in tasks]
    measure = next((name for name in DRIFTS if any(drift_of(case, name) is not None for case in cases)), None)
    if measure is not None:
        panels.append(Panel(f"drift: {measure}", tuple(curve(method, drift_at, measure) for method in methods)))
    return panels


def chart_of(picture: Picture) -> charts.Chart:
    """Panels side by side, with one colour and marker for each label."""
    styles = _styles(picture)
    panels = [_panel(picture, panel, styles) for panel in picture.panels]
    columns = 3 if len(panels) == 3 and picture.kind in ("drift", "trade") else 2
    return charts.curves(picture.name, panels, height=3.8 if len(panels) == 1 else 2.8, columns=columns)


def _styles(picture: Picture) -> dict[str, tuple[str, str]]:
    """Colour and marker of each label, the same in all panels of a figure."""
    roles = {curve.label: curve.role for panel in picture.panels for curve in panel.curves}
    styles: dict[str, tuple[str, str]] = {}
    for palette, palette_roles in ((_TARGETS, {"target"}), (_OTHERS, {"other", "combination"})):
        labels = [label for label, role in roles.items() if role in palette_roles]
        for index, label in enumerate(labels):
            # Colours and markers come round at different times, so that many curves still differ.
            styles[label] = (palette[index % len(palette)][0], palette[(index + index // len(palette)) % len(palette)][1])
    return styles | {label: _SIDES[role] for label, role in roles.items() if role in _SIDES}


def _panel(picture: Picture, panel: Panel, styles: dict[str, tuple[str, str]]) -> charts.Panel:
    series, kind = picture.series, picture.kind
    values = sorted({x for group in series.combinations for x, _ in group.cases}) if series else []
    positive = [value for value in values if value > 0]
    heights = [point.y for curve in panel.curves for point in curve.points]
    is_log = kind == "drift" and bool(heights) and min(heights) > 0
    total = "" if panel.ceiling is None else f" of {panel.ceiling:,.0f}"
    axes: dict[Kind, str] = {"improvement": "improvement, % (up is better)", "pairs": f"language pairs{total}"}
    return charts.Panel(
        [line for curve in panel.curves for line in _lines(curve, styles[curve.label])],
        "gain of the targets, %" if series is None else cut_name(series.setting.label, limit=60),
        axes.get(kind, "improvement, %" if panel.percent else "drift" if kind == "trade" else ""),
        title=cut_middle(cut_name(panel.title, limit=200), limit=40),
        log=("x" if series and series.scale == "log" else "") + ("y" if is_log else ""),
        across=[(0.0, "", MUTED)] if panel.percent else [],
        down=[(0.0, "", MUTED)] if kind == "trade" else [],
        x_tick=setting_value if series else difference_tick,
        y_tick=difference_tick if panel.percent else rate,
        ticks=values if len(values) <= MOST_TICKS else values[:: -(-len(values) // MOST_TICKS)],
        linear_to=min(positive) if series and series.scale == "symlog" and positive else 0.0,
        failed=panel.failed,
    )


def _lines(curve: Curve, style: tuple[str, str]) -> list[charts.Line]:
    """The line of means, and a marker for each run: hollow without evidence; with its interval where it is alone at its position."""
    colour, marker = style
    label = cut_name(curve.label, limit=34) + (" (target)" if curve.role == "target" else "")
    width = 2.4 if curve.role == "target" else 1.4
    several = len({(point.x, point.seed) for point in curve.points}) > len({point.x for point in curve.points})
    means = charts.Line(curve.means, label, colour, "", "--" if curve.faint else "-", width=width)
    if curve.faint:
        return [means]
    lines = [replace(means, marker="" if several else marker) if curve.means else charts.Line([], label, colour, marker, "")]
    for hollow in (False, True):
        points = [point for point in curve.points if point.open == hollow]
        ends = () if several else [point.interval for point in points]
        lines.append(charts.Line([(point.x, point.y) for point in points], "", colour, marker, "", ends, hollow=hollow))
    return [line for line in lines if line.points or line.label]
