"""Charts that all pages share: forest, curves, bars, histogram and scatter; the same data give the same bytes.

Legends stand beside the axes, so that they cover no curve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from adiabat.core.text import cut_middle
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED, PAPER, RULE, drawing, inline_svg, saved
from adiabat.report.format import cut_name, difference_tick, number
from adiabat.results.evaluation_result import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 7.4, 4.0
"""Inches: of a picture over the whole column, and of one over half of it or a telephone."""

VERDICT_COLOURS: dict[Verdict | None, str] = {"better": GOOD, "worse": BAD, "no evidence": MUTED, None: MUTED}

SERIES = (GOOD, BAD, ACCENT, "#2c7a5b", "#8a6d00", "#5d6773", "#9c2f6b", "#3a3f9e")
"""Colours of several lines, in order."""

Format = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture by name, drawn when it is asked for."""

    name: str
    draw: "Callable[[], Figure]"

    def inline(self) -> str:
        """As an element of a page, in its colours."""
        with drawing():
            return inline_svg(self.draw(), name=self.name)

    def file(self) -> str:
        """As a file that stands alone."""
        return saved(self.draw)


@dataclass(frozen=True, slots=True)
class ForestRow:
    """A value with its interval.

    Attributes:
        label: Beside the axes.
        value: Where the mark stands.
        interval: Ends of the line.
        verdict: Decides the colour; the mark is hollow where there is no evidence.
        text: Behind the row.
        main: Whether the mark is a diamond and the label bold.
        runs: Values of single runs, as ticks below.
    """

    label: str
    value: float
    interval: tuple[float, float]
    verdict: Verdict | None
    text: str = ""
    main: bool = False
    runs: Sequence[float] = ()


def forest(
    name: str,
    rows: Sequence[ForestRow],
    *,
    label: str,
    tick: Format | None = None,
    narrow: bool = False,
    flipped: bool = False,
    zero: bool = True,
) -> Chart:
    """Values with their intervals, a row each, and a line at 0.

    Args:
        narrow: Whether labels stand over their rows, for a telephone.
        flipped: Whether lower values stand on the right.
        zero: Whether a line stands at 0.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def draw() -> "Figure":
        figure = Figure(figsize=(NARROW if narrow else WIDE, 0.75 + (0.48 if narrow else 0.36) * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for position, row in enumerate(rows):
            _draw_row(axes, position, row, narrow=narrow)
        if zero:
            axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
        axes.set_ylim(len(rows) - 0.4, -0.8 if narrow else -0.6)
        axes.set_yticks(range(len(rows)), ["" if narrow else row.label for row in rows])
        for text, row in zip(axes.get_yticklabels(), rows, strict=True):
            text.set(color=INK, fontweight="bold" if row.main else "normal")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(label)
        axes.xaxis.set_major_formatter(FuncFormatter(_ticks(tick) if tick else difference_tick))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if narrow else 6, steps=[1, 2, 5, 10]))
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.margins(x=0.06)
        if flipped:
            axes.invert_xaxis()
        return figure

    return Chart(name, draw)


def _draw_row(axes: "Axes", position: int, row: ForestRow, *, narrow: bool) -> None:
    colour = VERDICT_COLOURS[row.verdict]
    axes.plot(row.interval, [position] * 2, color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
    face = PAPER if row.verdict == "no evidence" else colour
    axes.plot(
        row.value,
        position,
        "D" if row.main else "o",
        markersize=7,
        markerfacecolor=face,
        markeredgecolor=colour,
        markeredgewidth=1.8,
        zorder=3,
    )
    if len(row.runs) > 1:
        axes.plot(row.runs, [position + 0.24] * len(row.runs), "|", markersize=6, markeredgewidth=1.2, color=ACCENT, zorder=3)
    across = axes.get_yaxis_transform()
    if narrow:
        # The line at 0 passes behind the label, not through it.
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
        weight = "bold" if row.main else "normal"
        axes.text(0, position - 0.36, row.label, transform=across, va="center", color=INK, fontweight=weight, fontsize=8.5, bbox=box)
    elif row.text:
        axes.text(1.02, position, row.text, transform=across, va="center", color=colour, fontsize=8.5)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, or points.

    Attributes:
        points: (x, y) in order; y is None where the curve is interrupted.
        label: In the legend; "" for none.
        colour: Of line and marks.
        marker: Of matplotlib; "" for none.
        style: ``-``, ``--``, ``:`` or "" for marks alone.
        intervals: Ends of a vertical line at each point, or None.
        width: Of the line, in points.
        hollow: Whether marks are not filled.
    """

    points: Sequence[tuple[float, float | None]]
    label: str = ""
    colour: str = GOOD
    marker: str = "o"
    style: str = "-"
    intervals: Sequence[tuple[float, float] | None] = ()
    width: float = 1.6
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """Axes with curves.

    Attributes:
        lines: Curves; the first is drawn first.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
        title: Above the axes.
        log: Axes that are logarithmic: "", ``x``, ``y`` or ``xy``.
        across: Horizontal lines: height, label and colour.
        down: Vertical lines, likewise.
        band: Heights between which the background is shaded, or None.
        whole: Whether the horizontal axis counts.
        from_zero: Whether the vertical axis begins at 0.
        x_tick: Text of a number below the axis.
        y_tick: Text of a number beside the axis.
        ticks: Where numbers stand below the axis; empty where the axis decides.
        linear_to: Above 0, the horizontal axis is linear up to here and logarithmic beyond.
        failed: Places of a cross at the lower edge.
    """

    lines: Sequence[Line]
    x: str
    y: str = ""
    title: str = ""
    log: str = ""
    across: Sequence[tuple[float, str, str]] = ()
    down: Sequence[tuple[float, str, str]] = ()
    band: tuple[float, float] | None = None
    whole: bool = False
    from_zero: bool = False
    x_tick: Format | None = None
    y_tick: Format | None = None
    ticks: Sequence[float] = ()
    linear_to: float = 0.0
    failed: Sequence[float] = ()


def curves(name: str, panels: Sequence[Panel], *, width: float = WIDE, height: float = 3.0, columns: int = 2) -> Chart:
    """Panels side by side with one legend beside them."""
    from matplotlib.figure import Figure

    def draw() -> "Figure":
        across = min(columns, len(panels))
        down = -(-len(panels) // across)
        figure = Figure(figsize=(width, height * down), layout="constrained")
        for position, panel in enumerate(panels, start=1):
            _draw_panel(figure.add_subplot(down, across, position), panel)
        _add_legend(figure, beside=width == WIDE)
        return figure

    return Chart(name, draw)


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axes.set_xscale("log" if "x" in panel.log else "linear")
    axes.set_yscale("log" if "y" in panel.log else "linear")
    if panel.linear_to:
        axes.set_xscale("symlog", linthresh=panel.linear_to, linscale=0.6)
    if panel.band:
        axes.axhspan(*panel.band, color=RULE, alpha=0.55, linewidth=0, zorder=0)
    for line in panel.lines:
        _draw_line(axes, line)
    if panel.failed:
        edge, label = axes.get_xaxis_transform(), "a run failed"
        axes.plot(panel.failed, [0.0] * len(panel.failed), "x", transform=edge, clip_on=False, color=BAD, markeredgewidth=1.8, label=label)
    for height, label, colour in panel.across:
        axes.axhline(height, color=colour, linewidth=1.2, linestyle=(0, (5, 3)) if label else "-", zorder=1, label=label or None)
    for index, label, colour in panel.down:
        axes.axvline(index, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1, label=label or None)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.title:
        axes.set_title(panel.title, color=INK)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if "x" not in panel.log and not panel.linear_to:
        axes.xaxis.set_major_locator(MaxNLocator(integer=panel.whole, nbins=8, min_n_ticks=1))
    if panel.ticks:
        axes.set_xticks(panel.ticks)
        axes.xaxis.set_minor_formatter(NullFormatter())
    if panel.x_tick:
        axes.xaxis.set_major_formatter(FuncFormatter(_ticks(panel.x_tick)))
    axes.yaxis.set_major_formatter(FuncFormatter(_ticks(panel.y_tick or (lambda value: number(value, digits=3)))))
    for name, axis, (low, high) in (("x", axes.xaxis, axes.get_xlim()), ("y", axes.yaxis, axes.get_ylim())):
        if name in panel.log:
            axis.set_minor_formatter(NullFormatter())
            if high / low < 1000 and not (name == "x" and panel.ticks):
                axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)


def _draw_line(axes: "Axes", line: Line) -> None:
    xs = np.array([x for x, _ in line.points], dtype=np.float64)
    ys = np.array([np.nan if y is None else y for _, y in line.points], dtype=np.float64)
    for x, ends in zip(xs, line.intervals, strict=False):
        if ends is not None:
            axes.plot([x, x], ends, color=line.colour, linewidth=1.2, alpha=0.6, zorder=1.5)
    face = PAPER if line.hollow else line.colour
    axes.plot(
        xs,
        ys,
        color=line.colour,
        linewidth=line.width,
        linestyle=line.style or "none",
        marker=line.marker,
        markersize=4.5,
        markerfacecolor=face,
        label=line.label or None,
    )


def _add_legend(figure: "Figure", *, beside: bool) -> None:
    """One entry for each label, right of the axes, or below them where the picture is narrow."""
    entries = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if entries:
        where: Literal["outside right upper", "outside lower center"] = "outside right upper" if beside else "outside lower center"
        legend = figure.legend(list(entries.values()), list(entries), loc=where, ncols=1 if beside else 3, frameon=False, fontsize=8)
        for text in legend.get_texts():
            text.set_color(INK)


def bars(name: str, rows: Sequence[tuple[str, float]], *, label: str) -> Chart:
    """Bars with their values, the first on top."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def draw() -> "Figure":
        figure = Figure(figsize=(WIDE, 0.7 + 0.25 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        widths = [value for _, value in rows]
        axes.barh(range(len(rows)), widths, height=0.62, color=GOOD)
        for row, value in enumerate(widths):
            text = number(value, digits=3)
            axes.annotate(text, (value, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=MUTED)
        axes.set_yticks(range(len(rows)), [cut_middle(text, limit=46) for text, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelsize=8, labelcolor=INK)
        axes.set_xlabel(label)
        axes.set_xlim(0, max(max(widths) * 1.1, 1e-12))
        axes.xaxis.set_major_formatter(FuncFormatter(_ticks(lambda value: number(value, digits=2))))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        return figure

    return Chart(name, draw)


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram of one model: percent in each bin, the median, and how it is drawn."""

    label: str
    shares: Sequence[float]
    median: float
    filled: bool


def histogram(
    name: str, edges: Sequence[float], spreads: Sequence[Spread], *, label: str, width: float, band: tuple[float, float] | None = None
) -> Chart:
    """Distributions over the same bins, with medians at the foot."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    def draw() -> "Figure":
        figure = Figure(figsize=(width, 3.0), layout="constrained")
        axes = figure.add_subplot()
        if band:
            axes.axvspan(*band, color=RULE, alpha=0.55, linewidth=0, zorder=0)
            axes.axvline(sum(band) / 2, color=MUTED, linewidth=1, zorder=1)
        for order, spread in enumerate(spreads):
            colour, dashes = (GOOD, "-") if spread.filled else (BAD, (0, (4, 2)))
            if spread.filled:
                axes.stairs(spread.shares, edges, fill=True, color=colour, alpha=0.3, linewidth=0, zorder=2)
            axes.stairs(spread.shares, edges, color=colour, linewidth=1.4, linestyle=dashes, zorder=3 + order, label=spread.label or None)
            axes.axvline(spread.median, ymax=0.06, color=colour, linewidth=2.4, zorder=4 + order)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.yaxis.set_major_formatter(FuncFormatter(_ticks(lambda value: f"{value:g} %")))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        _add_legend(figure, beside=width == WIDE)
        return figure

    return Chart(name, draw)


Points = Sequence[tuple[float, float]]


def scatter(name: str, panels: Sequence[tuple[str, Sequence[tuple[str, Points]]]]) -> Chart:
    """Maps of points without axes: title of each panel, then label and points of each group, the last on top."""
    from matplotlib.figure import Figure

    def draw() -> "Figure":
        figure = Figure(figsize=(WIDE, 4.0) if len(panels) > 1 else (4.8, 4.9), layout="constrained")
        for position, (title, groups) in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), position)
            for (label, points), marker, colour in zip(groups, "^o", (BAD, GOOD), strict=False):
                axes.plot(*np.array(points).T, marker, color=colour, alpha=0.65, markersize=2.6, markeredgewidth=0, label=label)
            axes.set_title(title, color=INK)
            axes.set_aspect("equal", adjustable="datalim")
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set(visible=True, color=RULE)
        _add_legend(figure, beside=False)
        return figure

    return Chart(name, draw)


def _ticks(text: Format) -> Callable[[float, int | None], str]:
    return lambda value, _: text(value)


def short(name: str) -> str:
    """A name as a chart shows it."""
    return cut_name(name, limit=28)
