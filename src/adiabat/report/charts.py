"""Charts that all pages share: forest, curves, bars, histogram and scatter; the same data give the same
bytes.

Legends are beside the axes, so that they cover no curve.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec

import numpy as np

from adiabat.core.text import cut_middle
from adiabat.report.chart_style import (
    ACCENT,
    BAD,
    GOOD,
    INK,
    MUTED,
    PAPER,
    RULE,
    drawing,
    inline_svg,
    svg_file,
)
from adiabat.report.format import Format, cut_name, difference_tick, number, percent_tick
from adiabat.results.verdict import Word

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, NARROW = 7.4, 4.0
"""Widths and heights in inches, of a full-column picture, and of one for half a column or a phone."""

VERDICT_COLOURS: dict[Word | None, str] = {
    "better": GOOD,
    "not worse": INK,
    "undecided": MUTED,
    "worse": BAD,
    None: MUTED,
}

SERIES = (GOOD, BAD, ACCENT, "#2c7a5b", "#8a6d00", "#5d6773", "#9c2f6b", "#3a3f9e")
"""Colours of several lines, in order."""

Points = Sequence[tuple[float, float]]
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture by name, drawn on demand."""

    name: str
    plot: "Callable[[Figure], None]"

    def draw(self) -> "Figure":
        """The chart as a matplotlib figure."""
        from matplotlib.figure import Figure

        figure = Figure(layout="constrained")
        self.plot(figure)
        return figure

    def inline(self) -> str:
        """The chart as an element of a page, in its colours."""
        with drawing():
            return inline_svg(self.draw(), name=self.name)

    def file(self) -> str:
        """The chart as a standalone file."""
        with drawing():
            return svg_file(self.draw())


def _chart(
    plot: "Callable[Concatenate[Figure, Arguments], None]",
) -> Callable[Concatenate[str, Arguments], Chart]:
    """Turn a function that plots into a figure into one that takes the chart's name instead and plots
    later.
    """

    @wraps(plot)
    def chart(name: str, /, *args: Arguments.args, **options: Arguments.kwargs) -> Chart:
        def draw(figure: "Figure") -> None:
            plot(figure, *args, **options)

        return Chart(name, draw)

    return chart


@dataclass(frozen=True, slots=True)
class ForestRow:
    """A value with its interval; the verdict decides the colour.

    Attributes:
        text: Text after the row.
        main: Whether the mark is a diamond and the label bold.
    """

    label: str
    value: float
    interval: tuple[float, float]
    verdict: Word | None
    text: str = ""
    main: bool = False


@_chart
def forest(
    figure: "Figure",
    rows: Sequence[ForestRow],
    *,
    label: str,
    narrow: bool = False,
    flipped: bool = False,
) -> None:
    """Values with their intervals, a row each; `narrow` has labels above rows, for phones, `flipped` has
    lower values on the right.
    """
    figure.set_size_inches(NARROW if narrow else WIDE, 0.75 + (0.48 if narrow else 0.36) * len(rows))
    axes = _open_axes(figure, grid="x")
    for position, row in enumerate(rows):
        _draw_row(axes, position, row, narrow=narrow)
    # Intervals that cross this line show no difference.
    axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
    axes.set_ylim(len(rows) - 0.4, -0.8 if narrow else -0.6)
    axes.set_yticks(range(len(rows)), ["" if narrow else row.label for row in rows])
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set(color=INK, fontweight="bold" if row.main else "normal")
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(_ticks(difference_tick))
    axes.locator_params(axis="x", nbins=4 if narrow else 6, steps=[1, 2, 5, 10])
    axes.margins(x=0.06)
    if flipped:
        axes.invert_xaxis()


def _draw_row(axes: "Axes", position: int, row: ForestRow, *, narrow: bool) -> None:
    """The interval, the mark and the label of a row."""
    colour, weight = VERDICT_COLOURS[row.verdict], "bold" if row.main else "normal"
    axes.plot(row.interval, [position] * 2, color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
    face, mark = PAPER if row.verdict == "undecided" else colour, "D" if row.main else "o"
    axes.plot(
        row.value,
        position,
        mark,
        markersize=7,
        markerfacecolor=face,
        markeredgecolor=colour,
        markeredgewidth=1.8,
        zorder=3,
    )
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 8.5}
    if narrow:
        # The line at 0 passes behind the label, not through it.
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
        axes.text(0, position - 0.36, row.label, color=INK, fontweight=weight, bbox=box, **beside)
    elif row.text:
        axes.text(1.02, position, row.text, color=colour, **beside)


@dataclass(frozen=True, slots=True)
class Line:
    """A curve, or points.

    Attributes:
        points: (x, y) in order; y is None if the curve is interrupted.
        label: Label in the legend; "" for none.
        marker: Marker of matplotlib; "" for none.
        style: ``-``, ``--``, ``:`` or "" for marks alone.
        intervals: Ends of a vertical line at each point, or None.
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
        log: Axes that are logarithmic: "", ``x``, ``y`` or ``xy``.
        across: Horizontal lines: height, label and colour.
        down: Vertical lines, likewise.
        integers: Whether the horizontal axis has integer ticks.
        ticks: Tick positions; empty leaves them to the axis.
        linear_to: Above 0, the horizontal axis is linear up to here and logarithmic beyond.
        failed: Positions of crosses at the lower edge.
    """

    lines: Sequence[Line]
    x: str
    y: str = ""
    title: str = ""
    log: str = ""
    across: Sequence[tuple[float, str, str]] = ()
    down: Sequence[tuple[float, str, str]] = ()
    integers: bool = False
    from_zero: bool = False
    x_tick: Format | None = None
    y_tick: Format | None = None
    ticks: Sequence[float] = ()
    linear_to: float = 0.0
    failed: Sequence[float] = ()


@_chart
def curves(
    figure: "Figure", panels: Sequence[Panel], *, width: float = WIDE, height: float = 3.0, columns: int = 2
) -> None:
    """Panels side by side with one legend beside them."""
    # Rows of panels, the last of which may be shorter.
    across = min(columns, len(panels))
    down = -(-len(panels) // across)
    figure.set_size_inches(width, height * down)
    for position, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(down, across, position), panel)
    _add_legend(figure, beside=width == WIDE)


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    """All that a panel holds, from the background to the front."""
    axes.set(xscale="log" if "x" in panel.log else "linear", yscale="log" if "y" in panel.log else "linear")
    if panel.linear_to:
        axes.set_xscale("symlog", linthresh=panel.linear_to, linscale=0.6)
    for line in panel.lines:
        _draw_line(axes, line)
    if panel.failed:
        # Failed runs have no height: their marks stand on the lower edge.
        edge, label = axes.get_xaxis_transform(), "a run failed"
        axes.plot(
            panel.failed,
            [0.0] * len(panel.failed),
            "x",
            transform=edge,
            clip_on=False,
            color=BAD,
            markeredgewidth=1.8,
            label=label,
        )
    for height, label, colour in panel.across:
        axes.axhline(
            height,
            color=colour,
            linewidth=1.2,
            linestyle=(0, (5, 3)) if label else "-",
            zorder=1,
            label=label or None,
        )
    for index, label, colour in panel.down:
        axes.axvline(index, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1, label=label or None)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    if panel.title:
        axes.set_title(panel.title, color=INK)
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    _set_ticks(axes, panel)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)


def _set_ticks(axes: "Axes", panel: Panel) -> None:
    """Positions and texts of the ticks of both axes."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    if "x" not in panel.log and not panel.linear_to:
        axes.xaxis.set_major_locator(MaxNLocator(integer=panel.integers, nbins=8, min_n_ticks=1))
    if panel.ticks:
        axes.set_xticks(panel.ticks)
        axes.xaxis.set_minor_formatter(NullFormatter())
    if panel.x_tick:
        axes.xaxis.set_major_formatter(_ticks(panel.x_tick))
    axes.yaxis.set_major_formatter(_ticks(panel.y_tick or partial(number, digits=3)))
    for name, axis, (low, high) in (("x", axes.xaxis, axes.get_xlim()), ("y", axes.yaxis, axes.get_ylim())):
        if name not in panel.log:
            continue
        axis.set_minor_formatter(NullFormatter())
        is_given = name == "x" and panel.ticks
        # Powers of ten alone would leave a short range with one or two ticks, one below a decade with none.
        if not is_given and high / low <= 10:
            axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
        elif not is_given and high / low < 1000:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))


def _draw_line(axes: "Axes", line: Line) -> None:
    """A curve above the intervals of its points."""
    for (x, _), ends in zip(line.points, line.intervals, strict=False):
        if ends is not None:
            axes.plot([x, x], ends, color=line.colour, linewidth=1.2, alpha=0.6, zorder=1.5)
    # A curve is interrupted at NaN.
    points = np.array([(x, np.nan if y is None else y) for x, y in line.points], dtype=np.float64)
    axes.plot(
        *points.T,
        color=line.colour,
        linewidth=line.width,
        linestyle=line.style or "none",
        marker=line.marker,
        markersize=4.5,
        markerfacecolor=PAPER if line.hollow else line.colour,
        label=line.label or None,
    )


def _add_legend(figure: "Figure", *, beside: bool) -> None:
    """One entry for each label, right of the axes, or below them where the picture is narrow."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        # Panels that share a label share its entry: that of the last.
        handles, labels = axes.get_legend_handles_labels()
        entries |= zip(labels, handles, strict=True)
    if not entries:
        return
    look: dict[str, Any] = {"frameon": False, "fontsize": 8, "labelcolor": INK}
    if beside:
        figure.legend(entries.values(), entries, loc="outside right upper", ncols=1, **look)
    else:
        figure.legend(entries.values(), entries, loc="outside lower center", ncols=3, **look)


@_chart
def bars(figure: "Figure", rows: Sequence[tuple[str, float]], *, label: str) -> None:
    """Bars with their values, the first on top."""
    figure.set_size_inches(WIDE, 0.7 + 0.25 * len(rows))
    axes = _open_axes(figure, grid="x")
    widths = [value for _, value in rows]
    drawn = axes.barh(range(len(rows)), widths, height=0.62, color=GOOD)
    axes.bar_label(drawn, fmt=partial(number, digits=3), padding=4, fontsize=8, color=MUTED)
    axes.set_yticks(range(len(rows)), [cut_middle(text, limit=46) for text, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", labelsize=8, labelcolor=INK)
    axes.set_xlabel(label)
    # Room for the values behind the bars; bars of zero still need a range.
    axes.set_xlim(0, max(max(widths) * 1.1, 1e-12))
    axes.xaxis.set_major_formatter(_ticks(partial(number, digits=2)))
    axes.locator_params(axis="x", nbins=5)


@dataclass(frozen=True, slots=True)
class Spread:
    """A histogram of one model: the share in each bin, the median, and how it is drawn."""

    label: str
    shares: Sequence[float]
    median: float
    filled: bool


@_chart
def histogram(
    figure: "Figure",
    edges: Sequence[float],
    spreads: Sequence[Spread],
    *,
    label: str,
    width: float,
    band: tuple[float, float] | None = None,
) -> None:
    """Distributions over the same bins, with medians at the foot."""
    figure.set_size_inches(width, 3.0)
    axes = _open_axes(figure, grid="y")
    if band:
        axes.axvspan(*band, color=RULE, alpha=0.55, linewidth=0, zorder=0)
        axes.axvline(sum(band) / 2, color=MUTED, linewidth=1, zorder=1)
    for order, spread in enumerate(spreads):
        colour, dashes = (GOOD, "-") if spread.filled else (BAD, (0, (4, 2)))
        if spread.filled:
            axes.stairs(spread.shares, edges, fill=True, color=colour, alpha=0.3, linewidth=0, zorder=2)
        axes.stairs(
            spread.shares,
            edges,
            color=colour,
            linewidth=1.4,
            linestyle=dashes,
            zorder=3 + order,
            label=spread.label or None,
        )
        axes.axvline(spread.median, ymax=0.06, color=colour, linewidth=2.4, zorder=4 + order)
    axes.set(xlim=(edges[0], edges[-1]), xlabel=label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(_ticks(percent_tick))
    axes.locator_params(axis="y", nbins=4)
    axes.locator_params(axis="x", nbins=7)
    _add_legend(figure, beside=width == WIDE)


@_chart
def scatter(figure: "Figure", panels: Sequence[tuple[str, Sequence[tuple[str, Points]]]]) -> None:
    """Maps of points without axes: title of each panel, then label and points of each group, the last on
    top.
    """
    figure.set_size_inches((WIDE, 4.0) if len(panels) > 1 else (4.8, 4.9))
    for position, (title, groups) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), position)
        for (label, points), marker, colour in zip(groups, "^o", (BAD, GOOD), strict=False):
            axes.plot(
                *np.array(points).T,
                marker,
                color=colour,
                alpha=0.65,
                markersize=2.6,
                markeredgewidth=0,
                label=label,
            )
        axes.set_title(title, color=INK)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(visible=True, color=RULE)
    _add_legend(figure, beside=False)


def _open_axes(figure: "Figure", *, grid: Literal["x", "y"]) -> "Axes":
    """Axes without a line or ticks on the left, over a grid."""
    axes = figure.add_subplot()
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis=grid, color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    return axes


def _ticks(text: Format) -> Callable[[float, float], str]:
    """The texts of ticks for matplotlib, which also passes their positions."""

    def label(value: float, position: float) -> str:
        return text(value)

    return label


def short(name: str) -> str:
    """A name as shown in a chart."""
    return cut_name(name, limit=28)
