"""The pictures of an analysis of spaces, as SVG for inlining (see `svg`); the same data give the same bytes."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from adiabat.report.svg import BAD, GOOD, INK, MUTED, RULE, drawing, inline_svg
from adiabat.results.space_result import QUANTILES, Distribution, Histogram, MapPanel, SpaceMap

_WIDTH, _NARROW = 7.4, 4.0
_MEDIAN = QUANTILES.index(0.5)
_NEAR = (0.9, 1.1)
"""Ratios that count as near 1."""


def cosines(found: Distribution, *, label: str, name: str) -> str:
    """Histogram of cosines, before as a line over after."""
    with drawing():
        figure = Figure(figsize=(_NARROW, 2.7), layout="constrained")
        _draw_spread(figure.add_subplot(), found, label=label)
        return inline_svg(figure, name=name)


def ratio(found: Distribution, *, name: str = "ratio") -> str | None:
    """Histogram of the ratio, with what is near 1 marked.

    Returns:
        SVG; None where no ratio is defined.
    """
    if not any(one.total for one in (found.after, found.before) if one):
        return None
    with drawing():
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        axes = figure.add_subplot()
        axes.axvspan(*_NEAR, color=RULE, alpha=0.55, linewidth=0, zorder=0)
        axes.axvline(1, color=MUTED, linewidth=1, zorder=1)
        _draw_spread(axes, found, label="cos(query, other query) / cos(query, other's positive)")
        return inline_svg(figure, name=name)


def _draw_spread(axes: Axes, found: Distribution, *, label: str) -> None:
    if found.after.total:
        axes.stairs(_shares(found.after), found.edges, fill=True, color=GOOD, alpha=0.3, linewidth=0, zorder=2)
        axes.stairs(_shares(found.after), found.edges, color=GOOD, linewidth=1.4, zorder=3, label="after" if found.before else None)
        axes.axvline(found.after.quantiles[_MEDIAN], ymax=0.06, color=GOOD, linewidth=2.4, zorder=4)
    if found.before and found.before.total:
        axes.stairs(_shares(found.before), found.edges, color=BAD, linewidth=1.4, linestyle=(0, (4, 2)), zorder=5, label="before")
        axes.axvline(found.before.quantiles[_MEDIAN], ymax=0.06, color=BAD, linewidth=2.4, zorder=6)
        legend = axes.legend(frameon=False, fontsize=8)
        for text in legend.get_texts():
            text.set_color(MUTED)
    axes.set_xlim(found.edges[0], found.edges[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(label)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)


def _shares(one: Histogram) -> list[float]:
    """Percent of all values, so that two models with unequally many can be compared."""
    return [100 * count / one.total for count in one.counts]


def towers(found: SpaceMap, *, name: str = "map") -> str:
    """Maps of both towers, before on the left where there is a before."""
    panels = [("before", found.before), ("after", found.after)] if found.before else [("", found.after)]
    with drawing():
        figure = Figure(figsize=(_WIDTH, 4.0) if len(panels) > 1 else (4.8, 4.9), layout="constrained")
        for place, (title, panel) in enumerate(panels, start=1):
            assert panel is not None
            _draw_panel(figure.add_subplot(1, len(panels), place), panel, title=title)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        legend = figure.legend(
            handles[::-1], labels[::-1], loc="outside lower center", ncols=2, frameon=False, fontsize=8.5, markerscale=2.2
        )
        for text in legend.get_texts():
            text.set_color(INK)
        return inline_svg(figure, name=name)


def _draw_panel(axes: Axes, panel: MapPanel, *, title: str) -> None:
    """Points as lines without a line: they hide nothing behind them, and the background stays the page's."""
    for places, marker, colour, label in ((panel.documents, "^", BAD, "their positives"), (panel.queries, "o", GOOD, "queries")):
        across, up = np.array(places).T
        axes.plot(across, up, marker, color=colour, alpha=0.65, markersize=2.6, markeredgewidth=0, label=label)
    axes.set_title(title, color=INK)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color=RULE)
