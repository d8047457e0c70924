"""Rows with intervals: what the forest plots of all pages are drawn of."""

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from adiabat.report.chart_style import INK, PAPER, RULE
from adiabat.report.format import signed


def draw_interval(axes: Axes, row: int, value: float, bounds: tuple[float, float], *, colour: str, filled: bool) -> None:
    """A line for the interval and a dot for the value."""
    axes.plot(bounds, [row, row], color=colour, linewidth=2, solid_capstyle="round", zorder=2)
    face = colour if filled else PAPER
    axes.plot(value, row, "o", markersize=7, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=1.6, zorder=3)


def clear_rows(axes: Axes) -> None:
    """Only what guides the eye along the rows: names, and lines down from round numbers."""
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.margins(x=0.06)


def difference_tick(value: float, _: int | None) -> str:
    """A difference below its tick, with as few decimals as show all of a round number."""
    return signed(value, decimals=next((decimals for decimals in (1, 2, 3) if abs(value - round(value, decimals)) < 1e-9), 4))
