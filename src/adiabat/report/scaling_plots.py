"""The figures of a scaling experiment, drawn; `curves` has what they show, and the same data give the same bytes."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Formatter, Locator, LogLocator, MaxNLocator, NullFormatter, NullLocator

from adiabat.core.text import cut_middle, integer
from adiabat.report.chart_style import INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.format import number
from adiabat.report.scaling_curves import Curve, Panel, Picture

WIDTH, HEIGHT = 7.4, 2.9
"""Inches: of a figure that takes the whole column, and of a row of panels."""

_LINE = 0.19
"""Inches of a line of the legend."""

MOST_OWN_TICKS, APART = 6, 1.4
"""Ticks that stand at the values that are drawn, and how many times each the next must be."""

MOST_DIGITS = 5
"""Of the number at a tick."""

_PER_LINE = 4
"""Names in a line of the legend."""

# Mid-tones, to be seen on light and dark pages alike; markers tell methods apart without colour.
_HUES = (("#1f6fb4", "o"), ("#a67c00", "s"), ("#c2568f", "^"), ("#1b8a5a", "D"))
_SHADES = LinearSegmentedColormap.from_list("small-large", ["#3f95dc", "#8071c4", "#b0508f", "#b0481f"])


def inlined(picture: Picture) -> str:
    """A figure for a page."""
    with drawing():
        return inline_svg(figure_of(picture), name=picture.name)


def figure_of(picture: Picture) -> Figure:
    """Draw a figure, within `adiabat.report.chart_style.drawing`."""
    handles = _handles(picture)
    across = min(2, len(picture.panels))
    rows, lines = math.ceil(len(picture.panels) / across), math.ceil(len(handles) / _PER_LINE)
    figure = Figure(figsize=(WIDTH, HEIGHT * rows + _LINE * lines), layout=ConstrainedLayoutEngine(h_pad=0.1))
    every = figure.subplots(rows, across, squeeze=False).ravel()
    for place, axes in enumerate(every):
        if place < len(picture.panels):
            _draw(axes, picture.panels[place])
        else:
            axes.remove()
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=_PER_LINE, frameon=False, fontsize=8.5, labelcolor=MUTED)
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    for curve in panel.curves:
        axes.plot(*zip(*curve.points, strict=True), **_style(curve))
    if panel.diagonal:
        every = [value for curve in panel.curves for point in curve.points for value in point]
        axes.plot(*[(min(every), max(every))] * 2, color=MUTED, linewidth=1, linestyle=":", zorder=1)
    own = sorted({x for curve in panel.curves if curve.look == "marked" for x, _ in curve.points})
    for axis, name, scaled in ((axes.xaxis, "across", axes.set_xscale), (axes.yaxis, "up", axes.set_yscale)):
        if name in panel.linear:
            continue
        scaled("log")
        low, high = sorted(map(float, axis.get_view_interval()))
        axis.set_major_locator(_locator(low, high, own if name == "across" else []))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(_Ticks())
    axes.grid(color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(panel.across)
    axes.set_ylabel(panel.up)
    if panel.title:
        axes.set_title(cut_middle(panel.title, limit=44), color=INK)


def _locator(low: float, high: float, own: Sequence[float]) -> Locator:
    """Ticks at values of their own where these are few, else at round numbers."""
    if 0 < len(own) <= MOST_OWN_TICKS and all(one * APART <= other for one, other in pairwise(own)):
        return FixedLocator(own)
    if high / low < 4:
        return MaxNLocator(nbins=4)
    return LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 300 else (1.0,))


class _Ticks(Formatter):
    """Numbers as an axis has room for them, with as many digits as tell each from the next."""

    def format_ticks(self, values: Iterable[float]) -> list[str]:
        """All of an axis."""
        every = [float(value) for value in values]
        if all(value.is_integer() and value < 1e4 for value in every):
            return [integer(round(value)) for value in every]
        for digits in range(2, MOST_DIGITS):
            if len(set(told := [_tick(value, digits) for value in every])) == len(every):
                return told
        return [_tick(value, MOST_DIGITS) for value in every]

    def __call__(self, x: float, pos: int | None = None) -> str:
        """One, for whoever asks about a place."""
        return _tick(x, 2)


def _tick(value: float, digits: int) -> str:
    if value >= 1e4:
        for limit, unit in ((1e12, ""), (1e9, "G"), (1e6, "M"), (1e3, "k")):
            if value >= limit:
                return f"{value / limit:.{digits + 1}g}{unit}" if unit else f"{value:.{digits}g}".replace("e+", "e")
    return number(value, digits=digits)


def _style(curve: Curve) -> dict[str, Any]:
    colour, marker = _colour(curve)
    if curve.look in ("line", "dashed"):
        return {"color": colour, "linewidth": 1.1, "linestyle": "-" if curve.look == "line" else "--", "alpha": 0.8}
    hollow = curve.look == "hollow"
    look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 5.5 if hollow or curve.look == "point" else 4}
    look |= {"markerfacecolor": PAPER if hollow else colour, "linestyle": "-" if curve.look == "marked" else "none", "linewidth": 1.4}
    return look


def _colour(curve: Curve) -> tuple[str, str]:
    if isinstance(curve.hue, int):
        return _HUES[curve.hue]
    return to_hex(_SHADES(curve.hue)), "D" if curve.look == "point" else "o"


def _handles(picture: Picture) -> list[Line2D]:
    """One for each name, in the order in which names come."""
    named = {curve.label: curve for panel in picture.panels for curve in panel.curves if curve.label}
    return [Line2D([], [], label=label, **_style(curve)) for label, curve in named.items()]
