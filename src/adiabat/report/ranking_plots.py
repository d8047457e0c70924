"""The pictures of a ranking, as SVG for inlining (see `svg`); the same data give the same bytes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from adiabat.core.text import cut
from adiabat.report import ranking_wording as words
from adiabat.report.chart_style import ACCENT, BAD, GOOD, INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.heat_cells import legible
from adiabat.report.interval_rows import clear_rows, difference_tick, draw_interval
from adiabat.results.sweep_result import Level, Ranking, Standing

_WIDTH = 7.4
_NAME_LENGTH = 34
_GAPS = LinearSegmentedColormap.from_list("gap", ["#9c3d02", "#e08a4a", "#f6d9c0", "#f5f5f4", "#a9cbe8"], N=61)
_LEAST_REACH = 0.02
"""Gap to the best of a task at which colours are full, at least, so that nearly nothing looks like nothing."""


def ranking(found: Ranking, *, name: str = "ranking") -> str:
    """Variants from the highest down: scores with intervals and single runs on the left, differences to the first on the right."""
    count = len(found.standings) + len(found.starts)
    with drawing():
        figure = Figure(figsize=(_WIDTH, 1.0 + 0.34 * count), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for row, one in enumerate(found.standings):
            _draw_level(left, row, one.overall, one.runs, INK)
            _draw_contrast(right, row, one)
        for row, start in enumerate(found.starts, start=len(found.standings)):
            _draw_level(left, row, start.overall, (), MUTED)
        labels = [cut(one.name, limit=_NAME_LENGTH) for one in found.standings] + [words.start_name(one) for one in found.starts]
        left.set_yticks(range(count), labels)
        left.set_ylim(count - 0.4, -0.6)
        left.set_xlabel(f"{found.measure}, 95 % interval")
        right.set_xlabel("difference to the first, simultaneous 95 %")
        right.axvline(0, color=MUTED, linewidth=1, zorder=1)
        right.xaxis.set_major_formatter(FuncFormatter(difference_tick))
        for axes in (left, right):
            clear_rows(axes)
        return inline_svg(figure, name=name)


def _draw_level(axes: Axes, row: int, level: Level, runs: Sequence[float], colour: str) -> None:
    """A line for the interval, a dot for the mean, a tick for each run."""
    draw_interval(axes, row, level.score, level.interval, colour=colour, filled=colour != MUTED)
    if len(runs) > 1:
        axes.plot(runs, [row + 0.24] * len(runs), "|", markersize=6, markeredgewidth=1.2, color=ACCENT, zorder=3)


def _draw_contrast(axes: Axes, row: int, one: Standing) -> None:
    if one.to_best is None:
        axes.plot(0, row, "D", markersize=7, color=GOOD, zorder=3)
        return
    worse = one.to_best.verdict == "worse"
    draw_interval(axes, row, one.to_best.difference, one.to_best.interval, colour=BAD if worse else MUTED, filled=worse)


def tasks(found: Ranking, *, name: str = "tasks") -> str | None:
    """A heat map of variants on tasks: the score in each cell, its colour by how far below the task's best variant it is.

    Returns:
        SVG; None where there is but one task.
    """
    if len(found.tasks) < 2:
        return None
    variants = np.array([[level.score for level in one.tasks] for one in found.standings])
    starts = np.array([[level.score for level in start.tasks] for start in found.starts])
    cells = np.concatenate([variants, starts])
    gaps = cells - variants.max(axis=0)
    with drawing():
        figure = Figure(figsize=(min(_WIDTH, 2.6 + 0.85 * len(found.tasks)), 1.2 + 0.34 * len(cells)), layout="constrained")
        axes = figure.add_subplot()
        # Above zero only an untrained start can be; it has the colour of the best.
        scale = Normalize(-max(_LEAST_REACH, float(-gaps.min())), 0, clip=True)
        axes.pcolormesh(gaps, cmap=_GAPS, norm=scale, edgecolors=PAPER, linewidth=0.8)
        _write_scores(axes, cells, gaps, scale)
        labels = [cut(one.name, limit=_NAME_LENGTH) for one in found.standings] + [words.start_name(one) for one in found.starts]
        axes.set_yticks([row + 0.5 for row in range(len(labels))], labels)
        turned = max(len(task.name) for task in found.tasks) > 10
        titles = [cut(task.name, limit=22) for task in found.tasks]
        axes.set_xticks(
            [column + 0.5 for column in range(len(titles))], titles, rotation=30 if turned else 0, ha="right" if turned else "center"
        )
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK)
        for spine in axes.spines.values():
            spine.set_visible(False)
        return inline_svg(figure, name=name)


def _write_scores(axes: Axes, cells: Float[np.ndarray, "c t"], gaps: Float[np.ndarray, "c t"], scale: Normalize) -> None:
    for (row, column), value in np.ndenumerate(cells):
        colour = legible(float(gaps[row, column]), _GAPS, scale)
        axes.text(column + 0.5, row + 0.52, f"{value:.3f}", ha="center", va="center", fontsize=7.5, color=colour)


def speed(found: Ranking, *, name: str = "speed") -> str | None:
    """Quality against the speed of encoding, one dot per backbone; filled where no other is both faster and higher.

    Returns:
        SVG; None where no speed was measured.
    """
    timed = [(one, one.speed) for one in found.standings if one.speed is not None]
    if not timed:
        return None
    with drawing():
        figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        for one, own in timed:
            beaten = any(
                other.overall.score > one.overall.score and theirs.texts_per_second > own.texts_per_second for other, theirs in timed
            )
            _draw_speed(axes, one, (own.slowest, own.texts_per_second, own.fastest), colour=MUTED if beaten else GOOD)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.3g}" if value < 10 else f"{value:,.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("documents encoded per second (right is faster)")
        axes.set_ylabel(f"{found.measure}, 95 % interval")
        axes.grid(color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.margins(x=0.18, y=0.12)
        return inline_svg(figure, name=name)


def _draw_speed(axes: Axes, one: Standing, rates: tuple[float, float, float], *, colour: str) -> None:
    slowest, median, fastest = rates
    score = one.overall.score
    axes.plot([median, median], one.overall.interval, color=colour, linewidth=1.8, solid_capstyle="round", zorder=2)
    axes.plot([slowest, fastest], [score, score], color=colour, linewidth=1.8, solid_capstyle="round", zorder=2)
    face = PAPER if colour == MUTED else colour
    axes.plot(median, score, "o", markersize=8, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=1.6, zorder=3)
    axes.annotate(
        cut(one.name, limit=_NAME_LENGTH), (median, score), xytext=(8, 6), textcoords="offset points", color=INK, fontsize=8.5, zorder=4
    )
