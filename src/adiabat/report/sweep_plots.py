"""The figures of a sweep (Vasilyev et al. 2024); `curves` has what they show, and the same data give the same bytes."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from adiabat.core.text import cut_middle
from adiabat.report import sweep_curves as curves
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.format import cut_name, signed
from adiabat.report.sweep_cases import Overview
from adiabat.report.sweep_curves import Curve, Kind, Panel, Series
from adiabat.report.sweep_gain_tradeoff import trades
from adiabat.report.sweep_values import rate, setting_value

WIDTH = 7.4
"""Inches: of a figure that takes the whole column."""

_HEIGHTS = {1: 4.0, 2: 2.8, 3: 2.6}
"""Inches of a row of panels, by how many stand in it."""

_LINE = 0.19
"""Inches of a line of the legend."""

# Mid-tones, to be seen on light and dark pages alike; markers tell curves apart without colour.
_GREEN, _ROSE, _OCHRE, _TEAL = "#1b8a5a", "#c2568f", "#a67c00", "#2a8f9c"
_TARGETS = ((INK, "D"), (GOOD, "d"), (ACCENT, "P"))
_OTHERS = ((_GREEN, "o"), (_ROSE, "s"), (_OCHRE, "^"), (ACCENT, "v"), (_TEAL, "<"), (MUTED, "p"), (GOOD, "h"))
_SIDES = {"improved": (GOOD, "^"), "worsened": (BAD, "v")}

_NAME_LENGTH = 34
_LETTER = 0.068
"""Inches that a letter of a tick's label takes."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure: its data, and what they are drawn with.

    Attributes:
        name: Of its files, and prefix of the ids inside it.
        kind: What it shows.
        title: In words, with what it is drawn against.
        panels: Left to right, top to bottom.
        series: Setting that it is drawn against; None is the gain of the targets.
    """

    name: str
    kind: Kind
    title: str
    panels: tuple[Panel, ...]
    series: Series | None = None

    @property
    def across(self) -> str:
        """What the horizontal axis has."""
        return "gain of the targets, %" if self.series is None else cut_name(self.series.setting.label, limit=60)


def pictures(seen: Overview) -> list[Picture]:
    """All figures of a sweep, with something to show on each."""
    drawn = [picture for series in curves.series_of(seen) for picture in against(seen, series)]
    return [*drawn, *([cost] if (cost := trade_picture(seen)) else [])]


def trade_picture(seen: Overview) -> Picture | None:
    """What gains of the targets cost.

    Returns:
        The figure; None where no two settings have a gain, or nothing beside it.
    """
    panels = [panel for panel in trades(seen) if any(curve.points for curve in panel.curves)]
    return Picture("trade", "trade", "Gain of the targets, and what it costs", tuple(panels)) if panels else None


def against(seen: Overview, series: Series) -> list[Picture]:
    """The figures of one setting, with something to show on each."""
    return [picture for picture in _against(seen, series) if any(panel.curves for panel in picture.panels)]


def _against(seen: Overview, series: Series) -> Iterator[Picture]:
    slug = re.sub(r"[^a-z0-9]+", "-", series.setting.label.lower()).strip("-") or "setting"
    against = f"against {series.setting.label}"
    yield Picture(f"improvement-{slug}", "improvement", f"Improvement {against}", tuple(curves.improvements(seen, series)), series)
    yield from _pair_pictures(seen, series, slug)
    yield Picture(f"drift-{slug}", "drift", f"Drift {against}", tuple(curves.drifts(seen, series)), series)
    yield Picture(f"validation-{slug}", "validation", f"Training {against}", tuple(curves.validations(series)), series)


def _pair_pictures(seen: Overview, series: Series, slug: str) -> Iterator[Picture]:
    """All comparisons of a grid side by side; where there are several combinations, those side by side for each comparison."""
    by_task: dict[str, list[tuple[str, list[Panel]]]] = {}
    for (task, comparison, similarity), panels in curves.pairs(seen, series):
        by_task.setdefault(task, []).append((", ".join(filter(None, [comparison, similarity])), panels))
    shown: list[tuple[str, Sequence[Panel]]] = []
    for task, compared in by_task.items():
        title = f"Language pairs of {task} against {series.setting.label}"
        if len(series.combinations) == 1:
            shown.append((title, [replace(panel, title=told) for told, (panel,) in compared]))
        else:
            shown += [(f"{title}, {told}", own) for told, own in compared]
    for place, (title, every) in enumerate(shown, start=1):
        yield Picture(f"pairs-{slug}" + f"-{place}" * (len(shown) > 1), "pairs", title, tuple(every), series)


def inlined(picture: Picture) -> str:
    """A figure for a page."""
    with drawing():
        return inline_svg(figure_of(picture), name=picture.name)


def figure_of(picture: Picture) -> Figure:
    """Draw a figure, within `adiabat.report.chart_style.drawing`."""
    across = min(len(picture.panels), 3 if len(picture.panels) == 3 and picture.kind in ("drift", "trade") else 2)
    rows = math.ceil(len(picture.panels) / across)
    handles = _handles(picture)
    size = (WIDTH, _HEIGHTS[across] * rows + _LINE * _legend_lines(handles))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.04 if rows == 1 else 0.1))
    shared = picture.kind in ("improvement", "pairs")
    every = figure.subplots(rows, across, squeeze=False, sharey="all" if shared else "none").ravel()
    for place, axes in enumerate(every):
        if place >= len(picture.panels):
            axes.remove()
            continue
        _draw_panel(axes, picture, place, width=WIDTH / across - 0.75)
        if shared and place % across:
            axes.set_ylabel("")
    if handles:
        _legend(figure, handles)
    return figure


def _draw_panel(axes: Axes, picture: Picture, place: int, *, width: float) -> None:
    panel = picture.panels[place]
    styles = _styles(picture)
    if picture.series is not None:
        _scale(axes, picture.series, width=width)
    for curve in panel.curves:
        _draw_curve(axes, curve, styles[curve.label])
    _frame(axes, picture.kind, panel)
    _mark_edge(axes, [(x, "x", BAD) for x in panel.failed])
    if panel.title:
        axes.set_title(cut_middle(cut_name(panel.title, limit=200), limit=int(width / 0.088)), color=INK)
    axes.set_xlabel(picture.across)


def _styles(picture: Picture) -> dict[str, tuple[str, str]]:
    """Colour and marker of each label, the same in all panels of a figure."""
    roles = {curve.label: curve.role for panel in picture.panels for curve in panel.curves}
    styles: dict[str, tuple[str, str]] = {}
    for among, roles_among in ((_TARGETS, {"target"}), (_OTHERS, {"other", "combination"})):
        labels = [label for label, role in roles.items() if role in roles_among]
        for place, label in enumerate(labels):
            # Colours and markers come round at different times, so that many curves still differ.
            styles[label] = (among[place % len(among)][0], among[(place + place // len(among)) % len(among)][1])
    return styles | {label: _SIDES[role] for label, role in roles.items() if role in _SIDES}


def _scale(axes: Axes, series: Series, *, width: float) -> None:
    """An axis with labels at values of the setting, as many as have room."""
    values = sorted({x for one in series.combinations for x, _ in one.cases})
    if series.scale == "log":
        axes.set_xscale("log")
    elif series.scale == "symlog":
        axes.set_xscale("symlog", linthresh=min(value for value in values if value > 0), linscale=0.6)
    places = axes.xaxis.get_transform().transform(np.array(values, dtype=np.float64)).tolist()
    pad = 0.05 * (places[-1] - places[0])
    ends = axes.xaxis.get_transform().inverted().transform(np.array([places[0] - pad, places[-1] + pad]))
    axes.set_xlim(*ends)
    labels = [setting_value(value) for value in values]
    room = (max(map(len, labels)) + 1) * _LETTER * (places[-1] - places[0]) / (0.9 * width)
    axes.xaxis.set_major_locator(FixedLocator([values[place] for place in spread(places, room=room)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: setting_value(float(value))))
    axes.xaxis.set_minor_locator(FixedLocator(values))
    axes.xaxis.set_minor_formatter(NullFormatter())


def spread(places: Sequence[float], *, room: float) -> list[int]:
    """Which of some places can bear a label, the first and the last among them."""
    kept = [0]
    for position in range(1, len(places) - 1):
        if places[position] - places[kept[-1]] >= room and places[-1] - places[position] >= room:
            kept.append(position)
    return [*kept, len(places) - 1] if len(places) > 1 else kept


def _draw_curve(axes: Axes, curve: Curve, style: tuple[str, str]) -> None:
    """The line of means, and over it a marker for each run; a run alone at its place bears its interval."""
    colour, marker = style
    target = curve.role == "target"
    several = len({(point.x, point.seed) for point in curve.points}) > len({point.x for point in curve.points})
    line = np.array([(x, np.nan if mean is None else mean) for x, mean in curve.means], dtype=np.float64).reshape(-1, 2)
    dashes = (0, (4, 2.5)) if curve.faint else "-"
    axes.plot(*line.T, color=colour, linewidth=_line(curve), linestyle=dashes, alpha=0.5 if curve.faint else 1, zorder=2)
    if curve.faint:
        return
    bars = [] if several else [(point.x, end) for point in curve.points if point.interval for end in (*point.interval, np.nan)]
    if bars:
        axes.plot(*zip(*bars, strict=True), color=colour, linewidth=1.1, alpha=0.4, solid_capstyle="round", zorder=1.5)
    for hollow in (True, False):
        if found := [(point.x, point.y) for point in curve.points if point.open == hollow]:
            (drawn,) = axes.plot(*zip(*found, strict=True), zorder=4 if target else 3)
            _set_marker(drawn, colour, marker, hollow=hollow, size=4.2 if several else 6.2)


def _line(curve: Curve) -> float:
    return 2.4 if curve.role == "target" else 1.4


def _set_marker(line: Line2D, colour: str, marker: str, *, hollow: bool, size: float = 6.2) -> None:
    line.set(linestyle="", marker=marker, markersize=size, markeredgewidth=1.3, markeredgecolor=colour)
    line.set_markerfacecolor(PAPER if hollow else colour)


def _frame(axes: Axes, kind: Kind, panel: Panel) -> None:
    """The vertical axis of a kind of figure, and what guides the eye."""
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    if kind == "improvement":
        axes.axhline(0, color=MUTED, linewidth=1, zorder=1)
        axes.set_ylabel("improvement, % (up is better)")
        axes.yaxis.set_major_formatter(FuncFormatter(_percent_tick))
        axes.margins(y=0.1)
    elif kind == "pairs":
        axes.set_ylabel("language pairs" + ("" if panel.ceiling is None else f" of {panel.ceiling:,.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10]))
        if panel.ceiling is not None:
            axes.set_ylim(-0.08 * panel.ceiling, 1.05 * panel.ceiling)
    elif kind == "drift":
        _logarithmic(axes, panel)
    elif kind == "trade":
        axes.axhline(0, color=MUTED, linewidth=1, zorder=1)
        axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
        axes.margins(0.08)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.xaxis.set_major_formatter(FuncFormatter(_percent_tick))
        axes.set_ylabel("improvement, %" if panel.percent else "drift")
        if panel.percent:
            axes.yaxis.set_major_formatter(FuncFormatter(_percent_tick))
    else:
        highest = max((point.y for curve in panel.curves for point in curve.points), default=0.0)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(-0.08 * max(highest, 1.0), 1.1 * max(highest, 1.0))


def _logarithmic(axes: Axes, panel: Panel) -> None:
    """Values that have no logarithm stand at the edge below."""
    points = [point for curve in panel.curves for point in curve.points]
    if not any(point.y > 0 for point in points):
        return
    axes.set_yscale("log", nonpositive="mask")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,), numticks=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: rate(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    _mark_edge(axes, [(point.x, "v", MUTED) for point in points if point.y <= 0])


def _mark_edge(axes: Axes, marks: Sequence[tuple[float, str, str]]) -> None:
    """Marks at the lower edge, which are values of nothing."""
    for x, marker, colour in dict.fromkeys(marks):
        axes.plot(
            x,
            0,
            marker,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            color=colour,
            markerfacecolor=PAPER if marker == "v" else colour,
            markersize=6,
            markeredgewidth=1.8,
            zorder=5,
            gid="failed" if marker == "x" else "zero",
        )


def _legend_lines(handles: Sequence[Line2D]) -> int:
    """How many lines a legend takes in the width of a figure."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    widest = max(1, int(WIDTH / (0.55 + 0.07 * longest)))
    return math.ceil(len(handles) / widest)


def _legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    columns = math.ceil(len(handles) / _legend_lines(handles))
    # A legend is filled column by column; it is read line by line.
    by_column = [handles[place] for column in range(columns) for place in range(column, len(handles), columns)]
    legend = figure.legend(handles=by_column, loc="outside lower center", ncols=columns, frameon=False, fontsize=8.5, handlelength=2.4)
    for text in legend.get_texts():
        text.set_color(INK)


def _handles(picture: Picture) -> list[Line2D]:
    """Targets first, then the others, then what marks mean."""
    drawn = {curve.label: curve for panel in picture.panels for curve in panel.curves if curve.label}
    styles = _styles(picture)
    ordered = sorted((curve for curve in drawn.values() if not curve.faint), key=lambda curve: curve.role != "target")
    handles = [Line2D([], [], label=_told(curve), linewidth=_line(curve), color=styles[curve.label][0]) for curve in ordered]
    for handle, curve in zip(handles, ordered, strict=True):
        handle.set(marker=styles[curve.label][1], markersize=6)
    return [*handles, *_signs(picture)]


def _signs(picture: Picture) -> list[Line2D]:
    """What stands for the same on all curves."""
    every = [curve for panel in picture.panels for curve in panel.curves]
    points = [point for curve in every for point in curve.points]
    signs = []
    if any(curve.faint for curve in every):
        signs.append(Line2D([], [], color=MUTED, linewidth=1.4, linestyle=(0, (4, 2.5)), label="by the z-test"))
    if any(point.open for point in points):
        signs.append(Line2D([], [], label="open: no evidence"))
        _set_marker(signs[-1], MUTED, "o", hollow=True)
    if picture.kind == "drift" and any(point.y <= 0 for point in points) and any(point.y > 0 for point in points):
        signs.append(Line2D([], [], label="0 or below"))
        _set_marker(signs[-1], MUTED, "v", hollow=True)
    if any(panel.failed for panel in picture.panels):
        signs.append(Line2D([], [], color=BAD, marker="x", markeredgewidth=1.8, linestyle="", label="a run failed"))
    return signs


def _percent_tick(value: float, _: int | None) -> str:
    return signed(value, decimals=0 if value == round(value) else 1)


def _told(curve: Curve) -> str:
    return cut_name(curve.label, limit=_NAME_LENGTH) + (" (target)" if curve.role == "target" else "")
