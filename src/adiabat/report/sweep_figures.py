"""The figures of a sweep (Vasilyev et al. 2024): curves against numeric settings, and the costs of gains."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple

from adiabat.core.text import NO_BREAK, cut_middle, setting_text
from adiabat.report import charts
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED
from adiabat.report.format import cut_name, difference_tick, three_digits
from adiabat.report.sweep_tables import compared_in
from adiabat.results.sweep_result import (
    Case,
    Method,
    PairCounts,
    Setting,
    SweepResult,
    SweepRun,
    is_number,
    key_of,
)

DRIFTS = ("overlap loss", "margins", "turn")
"""Measures of drift shown first."""

MOST_COMBINATIONS = 6
"""Maximum number of combinations of the other settings with separate curves."""

MOST_METHODS = 8
"""Maximum number of methods distinguishable in one figure."""

MOST_TICKS = 8
"""Maximum number of values with a tick label."""

_LOG_FROM = 20
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""

_NORMAL = 1.96
"""Standard errors on either side of a mean in a 95 % interval."""

# Mid-tones, to be seen on light and dark pages alike; markers tell curves apart without colour.
_GREEN, _ROSE, _OCHRE, _TEAL = "#1b8a5a", "#c2568f", "#a67c00", "#2a8f9c"
_TARGETS = ((INK, "D"), (GOOD, "d"), (ACCENT, "P"))
_OTHERS = ((_GREEN, "o"), (_ROSE, "s"), (_OCHRE, "^"), (ACCENT, "v"), (_TEAL, "<"), (MUTED, "p"), (GOOD, "h"))
_SIDES = {"improved": (GOOD, "^"), "worsened": (BAD, "v")}

Style = tuple[str, str]
"""Colour and marker."""


class Drawing(NamedTuple):
    """One figure; `name` is that of its file."""

    name: str
    title: str
    caption: str
    panels: list[charts.Panel]
    columns: int = 2

    @property
    def chart(self) -> charts.Chart:
        """Its panels side by side."""
        return charts.curves(
            self.name, self.panels, height=3.8 if len(self.panels) == 1 else 2.8, columns=self.columns
        )


class Point(NamedTuple):
    """A value of a run; `open` if it is neither better nor worse, `interval` at 95 %."""

    x: float
    y: float
    seed: int
    open: bool = False
    interval: tuple[float, float] | None = None


Measure = Callable[[float, SweepRun], Point | None]
"""A point of a run at a value of the setting, if the run has one."""


class Combination(NamedTuple):
    """Values of the other settings, with their cases from left to right and their positions on the axis."""

    label: str
    cases: list[tuple[float, Case]]

    @property
    def failed(self) -> list[float]:
        """Positions at which a run failed."""
        return [x for x, case in self.cases if case.failed]


@dataclass(frozen=True, slots=True)
class Series:
    """A numeric setting that figures are drawn against.

    Attributes:
        combinations: Combinations of the other settings; at most `MOST_COMBINATIONS`.
        of: Number of all combinations.
        tied: Labels of settings that vary with it, and so make no separate curves.
        alone: Number of cases on no curve, because no other case has the same other settings.
    """

    setting: Setting
    combinations: list[Combination]
    of: int
    tied: list[str]
    alone: int

    @property
    def failed(self) -> list[float]:
        """Positions at which any run failed."""
        return sorted({x for combination in self.combinations for x in combination.failed})

    def panel(
        self,
        lines: Sequence[charts.Line],
        title: str,
        up: str = "",
        *,
        failed: Sequence[float],
        log: str = "",
    ) -> charts.Panel:
        """Axes against the setting."""
        values = sorted({x for combination in self.combinations for x, _ in combination.cases})
        scale = scale_of(self.setting)
        return charts.Panel(
            lines,
            cut_name(self.setting.label, limit=60),
            up,
            title=_title(title),
            log=("x" if scale == "log" else "") + log,
            x_tick=setting_text,
            y_tick=three_digits,
            ticks=values if len(values) <= MOST_TICKS else values[:: -(-len(values) // MOST_TICKS)],
            linear_to=min(value for value in values if value > 0)
            if scale == "symlog" and max(values) > 0
            else 0.0,
            failed=failed,
        )


def _title(text: str) -> str:
    return cut_middle(cut_name(text, limit=200), limit=40)


def series_of(result: SweepResult) -> list[Series]:
    """Settings for which figures are drawn."""
    numeric = [
        index
        for index, setting in enumerate(result.variation.settings)
        if setting.numeric and len(setting.numbers) > 1
    ]
    return [series for index in numeric if (series := _series(result, index)) is not None]


def _series(result: SweepResult, index: int) -> Series | None:
    view = result.variation
    others = [
        other
        for other in range(len(view.settings))
        if other != index and len(view.settings[other].values) > 1
    ]
    tied = [other for other in others if _is_tied(view.cases, other, index)]
    apart = [other for other in others if other not in tied]
    numbered = [case for case in view.cases if is_number(case.values[index])]
    lines = [
        cases
        for cases in view.grouped(numbered, apart)
        if len({key_of(case.values[index]) for case in cases}) > 1
    ]
    if not lines:
        return None
    shown = (
        lines
        if len(lines) <= MOST_COMBINATIONS
        else [max(lines, key=lambda cases: sum(len(case.runs) for case in cases))]
    )
    combinations = []
    for label, cases in zip(view.line_labels(apart, lines), lines, strict=True):
        if cases in shown:
            positions = [(float(value), case) for case in cases if is_number(value := case.values[index])]
            combinations.append(Combination(label, sorted(positions, key=lambda pair: pair[0])))
    alone = len(numbered) - sum(map(len, lines))
    return Series(
        view.settings[index], combinations, len(lines), [view.settings[other].label for other in tied], alone
    )


def _is_tied(cases: Sequence[Case], first: int, second: int) -> bool:
    """Whether two settings map one to one, as a learning rate and the batch size that it is scaled with."""
    pairs = {(key_of(case.values[first]), key_of(case.values[second])) for case in cases}
    return len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})


def scale_of(setting: Setting) -> str:
    """``log`` for learning rates and positive values that span more than an order of magnitude; ``symlog`` if
    they include 0.
    """
    values = setting.numbers
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0:
        return "linear"
    wide = max(positive) / min(positive) >= _LOG_FROM or setting.name.endswith("learning_rate")
    return "linear" if not wide else "log" if len(positive) == len(values) else "symlog"


def drawings(result: SweepResult) -> list[Drawing]:
    """All figures of a sweep, without empty ones."""
    against_settings = [drawing for series in series_of(result) for drawing in against(result, series)]
    return [*against_settings, *([cost] if (cost := trade(result)) else [])]


def against(result: SweepResult, series: Series) -> list[Drawing]:
    """The figures of one setting, without empty ones."""
    label = series.setting.label
    slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "setting"
    drifts = _drifts(result, series)
    taken: list[tuple[str, Measure]] = [
        ("steps taken", lambda x, run: Point(x, float(run.steps), run.seed)),
        ("kept epoch", lambda x, run: Point(x, float(run.best_epoch), run.seed)),
    ]
    drawn = [
        Drawing(
            f"improvement-{slug}", f"Improvement against {label}", _IMPROVEMENT, _improvements(result, series)
        ),
        *_pair_drawings(result, series, slug),
        Drawing(f"drift-{slug}", f"Drift against {label}", _DRIFT, drifts, 3 if len(drifts) == 3 else 2),
        Drawing(
            f"validation-{slug}",
            f"Training against {label}",
            _VALIDATION,
            _by_combination(result, series, taken),
        ),
    ]
    cross = " A cross at the lower edge marks a failed run." * bool(series.failed)
    return [
        drawing._replace(caption=drawing.caption + cross)
        for drawing in drawn
        if any(panel.lines for panel in drawing.panels)
    ]


_IMPROVEMENT = (
    "Main measures. Markers are runs, lines means over seeds; bars: paired "
    f"95{NO_BREAK}% intervals. Open: neither better nor worse."
)
_PAIRS = (
    "Solid: by the paired test, corrected over all pairs; dashed: by the z-test of "
    "Vasilyev et al. 2024, which treats pairs of texts as "
    "independent."
)
_DRIFT = f"0 is the untuned tower. Bars: 95{NO_BREAK}% intervals over probes."
_TRADE = (
    f"Markers are settings; the untuned tower is at 0. Bars: paired 95{NO_BREAK}% "
    "intervals. Open: neither better nor worse."
)
_VALIDATION = "Optimiser steps of the runs, and the epoch whose weights were kept; 0 is the start."


def _improvements(result: SweepResult, series: Series) -> list[charts.Panel]:
    """Improvement of the main measure of each task in percent, a panel for each combination."""

    def improvement_on(task: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            outcome = run.task(task)
            if outcome is None or (main := outcome.main).improvement is None:
                return None
            return Point(
                x,
                main.improvement,
                run.seed,
                main.verdict not in ("better", "worse"),
                main.improvement_interval,
            )

        return point

    def is_drawn(task: str) -> bool:
        outcomes = [outcome for run in result.runs_of() if (outcome := run.task(task)) is not None]
        return any(outcome.main.improvement is not None for outcome in outcomes)

    tasks = list(filter(is_drawn, result.ordered))
    targets = [task for task in tasks if task in result.targets]
    styles = _styles(targets, _TARGETS) | _styles([task for task in tasks if task not in targets], _OTHERS)
    panels = []
    for group in series.combinations:
        lines: list[charts.Line] = []
        for task in tasks:
            lines += _curve(
                result, group.cases, improvement_on(task), task, styles[task], target=task in targets
            )
        panels.append(
            _in_percent(
                series.panel(lines, group.label, "improvement, % (up is better)", failed=group.failed)
            )
        )
    return panels


def _in_percent(panel: charts.Panel) -> charts.Panel:
    return replace(panel, across=[(0.0, "", MUTED)], y_tick=difference_tick)


def _styles(labels: Sequence[str], palette: Sequence[Style]) -> dict[str, Style]:
    """Colour and marker of each label, the same in all panels of a figure."""
    count = len(palette)
    # Colours and markers come round at different times, so that many curves still differ.
    return {
        label: (palette[index % count][0], palette[(index + index // count) % count][1])
        for index, label in enumerate(labels)
    }


def _pair_drawings(result: SweepResult, series: Series, slug: str) -> Iterator[Drawing]:
    """A figure for each grid with all its comparisons; with several combinations a figure for each
    comparison.
    """
    by_task: dict[str, list[tuple[str, list[charts.Panel]]]] = {}
    for counts in sorted(compared_in(result), key=lambda counts: result.ordered.index(counts.task)):
        label = ", ".join(filter(None, [counts.comparison, counts.similarity]))
        panels = [_pair_panel(result, series, combination, counts) for combination in series.combinations]
        by_task.setdefault(counts.task, []).append((label, panels))
    figures: list[tuple[str, list[charts.Panel]]] = []
    for task, compared in by_task.items():
        title = f"Language pairs of {task} against {series.setting.label}"
        if len(series.combinations) == 1:
            figures.append((title, [replace(panel, title=_title(label)) for label, (panel,) in compared]))
        else:
            figures += [(f"{title}, {label}", panels) for label, panels in compared]
    for number, (title, panels) in enumerate(figures, start=1):
        yield Drawing(f"pairs-{slug}" + f"-{number}" * (len(figures) > 1), title, _PAIRS, panels)


def _pair_panel(
    result: SweepResult, series: Series, combination: Combination, compared: PairCounts
) -> charts.Panel:
    """Language pairs improved and worsened, by the paired test and by the z-test of Vasilyev et al. 2024."""

    def count_of(name: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            grids = outcome.grids if (outcome := run.task(compared.task)) is not None else []
            counts = [
                getattr(grid, name)
                for grid in grids
                if (grid.comparison, grid.similarity) == compared.compared[1:]
            ]
            return Point(x, float(counts[0]), run.seed) if counts and counts[0] is not None else None

        return point

    cases = combination.cases
    lines = [
        line for side, style in _SIDES.items() for line in _curve(result, cases, count_of(side), side, style)
    ]
    for side, style in _SIDES.items():
        lines += _curve(result, cases, count_of(f"{side}_z"), f"{side}, z-test", style, faint=True)
    totals = [
        counts.pairs for _, case in cases for counts in case.pairs if counts.compared == compared.compared
    ]
    up = f"language pairs of {max(totals):,.0f}" if totals else "language pairs"
    return series.panel(lines, combination.label, up, failed=combination.failed)


def _drifts(result: SweepResult, series: Series) -> list[charts.Panel]:
    """Drift of tuned towers from the untuned one, a panel for each measure."""

    def drift_by(name: str) -> Measure:
        def point(x: float, run: SweepRun) -> Point | None:
            if run.drift is None or name not in run.drift.means:
                return None
            mean, error = run.drift.means[name], run.drift.errors.get(name)
            return Point(
                x,
                mean,
                run.seed,
                interval=None if error is None else (mean - _NORMAL * error, mean + _NORMAL * error),
            )

        return point

    measured = dict.fromkeys(name for case in result.variation.cases for name in case.drift)
    names = [
        *(name for name in DRIFTS if name in measured),
        *(name for name in measured if name not in DRIFTS),
    ]
    panels = _by_combination(result, series, [(name, drift_by(name)) for name in names])
    lowest = [min(y for line in panel.lines for _, y in line.points if y is not None) for panel in panels]
    return [
        replace(panel, log=f"{panel.log}y") if low > 0 else panel
        for panel, low in zip(panels, lowest, strict=True)
    ]


def _by_combination(
    result: SweepResult, series: Series, measures: Sequence[tuple[str, Measure]]
) -> list[charts.Panel]:
    """A panel for each measure with a curve for each combination, without empty panels."""
    drawn = [
        group for group in series.combinations if any(len(case.runs) > case.failed for _, case in group.cases)
    ]
    styles = _styles([group.label for group in drawn], _OTHERS)
    panels = []
    for title, measure in measures:
        if lines := [
            line for label, cases in drawn for line in _curve(result, cases, measure, label, styles[label])
        ]:
            panels.append(series.panel(lines, title, failed=series.failed))
    return panels


def _curve(
    result: SweepResult,
    cases: Sequence[tuple[float, Case]],
    measure: Measure,
    label: str,
    style: Style,
    *,
    target: bool = False,
    faint: bool = False,
) -> list[charts.Line]:
    """Runs of one line from left to right with their means over seeds; a position without a value leaves a
    gap.
    """
    points = [
        point for x, case in cases for run in result.runs_of(case) if (point := measure(x, run)) is not None
    ]
    heights = {x: [point.y for point in points if point.x == x] for x, _ in cases}
    means = [(x, fmean(values) if values else None) for x, values in heights.items()]
    return _lines(points, means, label, style, target=target, faint=faint) if points else []


def _lines(
    points: Sequence[Point],
    means: Sequence[tuple[float, float | None]],
    label: str,
    style: Style,
    *,
    target: bool = False,
    faint: bool = False,
) -> list[charts.Line]:
    """The line of means, and a marker for each run: hollow without evidence, with its interval if it is alone
    at its position.
    """
    colour, marker = style
    shown = cut_name(label, limit=34) + (" (target)" if target else "")
    several = len({(point.x, point.seed) for point in points}) > len({point.x for point in points})
    mean = charts.Line(means, shown, colour, "", "--" if faint else "-", width=2.4 if target else 1.4)
    if faint:
        return [mean]
    lines = [
        replace(mean, marker="" if several else marker)
        if means
        else charts.Line([], shown, colour, marker, "")
    ]
    for hollow in (False, True):
        alike = [point for point in points if point.open == hollow]
        ends = () if several else [point.interval for point in alike]
        lines.append(
            charts.Line([(point.x, point.y) for point in alike], "", colour, marker, "", ends, hollow=hollow)
        )
    return [line for line in lines if line.points or line.label]


def trade(result: SweepResult) -> Drawing | None:
    """Changes of the other tasks and drift against the gain of the targets; None without two cases that
    have a gain and another change.
    """
    view = result.variation
    methods = sorted(view.methods, key=lambda method: -len(method.cases))[:MOST_METHODS]
    cases = [view.cases[position] for method in methods for position in method.cases]
    if len(cases) < 2:
        return None
    styles = _styles([method.label for method in methods], _OTHERS)

    def change_at(case: Case, task: str) -> Point | None:
        changed = case.change(task)
        if changed is None or changed.improvement is None:
            return None
        is_open = not changed.verdicts.keys() & {"better", "worse"}
        return Point(
            case.gain or 0.0, changed.improvement, 0, is_open, changed.interval if changed.runs == 1 else None
        )

    def drift_at(case: Case, measure: str) -> Point | None:
        return Point(case.gain or 0.0, case.drift[measure], 0) if measure in case.drift else None

    def panel(title: str, up: str, point_of: Callable[[Case, str], Point | None], name: str) -> charts.Panel:
        def lines(method: Method) -> list[charts.Line]:
            points = [
                point
                for position in method.cases
                if (point := point_of(view.cases[position], name)) is not None
            ]
            means = [(point.x, point.y) for point in points] if method.line else []
            return _lines(points, means, method.label, styles[method.label])

        drawn = [line for method in methods for line in lines(method)]
        axes = {
            "title": _title(title),
            "down": [(0.0, "", MUTED)],
            "x_tick": difference_tick,
            "y_tick": three_digits,
        }
        return charts.Panel(drawn, "gain on the targets, %", up, **axes)  # type: ignore[arg-type]

    tasks = [task for task in result.others if any(change_at(case, task) is not None for case in cases)]
    panels = [_in_percent(panel(task, "improvement, %", change_at, task)) for task in tasks]
    if measure := next((name for name in DRIFTS if any(name in case.drift for case in cases)), None):
        panels.append(panel(f"drift: {measure}", "drift", drift_at, measure))
    title = "Gain on the targets and its cost"
    return Drawing("trade", title, _TRADE, panels, 3 if len(panels) == 3 else 2) if panels else None
