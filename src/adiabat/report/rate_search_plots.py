"""The figures of a search for the largest safe rate; the same data give the same bytes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from adiabat.core.text import integer
from adiabat.report.rate_search_labels import Named, name_ends
from adiabat.report.rate_search_wording import Ended, ended, last, limit
from adiabat.report.svg import INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.wording import cut_name, number, setting
from adiabat.results.rate_search_result import Rung, SafeRate

WIDTH = 7.4
"""Inches: of a figure that takes the whole column."""

_LETTER = 0.075
"""Inches that a letter of a curve's name takes."""

_MOST_TICKS = 9

_TICK = 0.62
"""Inches that the label of a rate takes."""

# From the lowest rate to the highest ever darker, all of them seen on light and dark pages alike.
_RATES = LinearSegmentedColormap.from_list("low-high", ["#3f95dc", "#8071c4", "#b0508f", "#b0481f"])

_SIGNS: dict[Ended, tuple[str, str]] = {
    "inside": ("^", "inside to the end"),
    "left": ("o", "left the band"),
    "diverged": ("x", "diverged"),
}
_NO_DRIFT = ("v", "drift 0")


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure.

    Attributes:
        name: Of its files, and prefix of the ids inside it.
        title: In words.
        caption: What it shows.
        draw: Makes it of a search, within `adiabat.report.svg.drawing`.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[SafeRate], Figure]


def pictures() -> list[Picture]:
    """All figures of a search."""
    drift = (
        "A curve is a run, with its rate at the end; the darker, the higher. The limit is the dashed line: a run ends at the first look "
        "beyond it. Bold: the largest safe rate."
    )
    leave = (
        "Steps after which each run was found beyond the limit; the bar below reaches down to the look before, when it was still inside. "
        "A run that stayed inside lasts at least as long as its triangle stands high."
    )
    return [
        Picture("drift", "Drift against steps", drift, drift_figure),
        Picture("steps", "Steps inside the band against rate", leave, leave_figure),
    ]


def inlined(picture: Picture, result: SafeRate) -> str:
    """A figure for a page."""
    with drawing():
        return inline_svg(picture.draw(result), name=picture.name)


def drift_figure(result: SafeRate) -> Figure:
    """Drift by the measure that is limited, run by run; both axes are logarithmic."""
    figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
    axes = figure.add_subplot()
    every = [value for rung in result.rungs for value in [*rung.drift[result.measure], result.limit] if value > 0]
    low, high = min(every, default=result.limit) / 1.7, max(every, default=result.limit) * 1.7
    first, final = _steps(result)
    room = 0.3 + _LETTER * max(len(_name(result, rung)) for rung in result.rungs)
    _logarithmic(axes, (first / 1.15, final * (final / first) ** (room / (WIDTH - 1.6 - room))), (low, high))
    axes.xaxis.set_major_locator(FixedLocator(_ticks(max(first, 1.0), final)))
    axes.xaxis.set_major_formatter(FuncFormatter(_step_tick))
    axes.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(float(value), digits=1)))
    axes.set_xlabel("optimiser steps")
    axes.set_ylabel(f"drift, {cut_name(result.measure, limit=40)}")
    _limit_line(axes, result.limit, f"limit\n{limit(result)}")
    curves = [_draw_run(axes, result, rung) for rung in result.rungs]
    still = [_NO_DRIFT for rung in result.rungs if 0 in rung.drift[result.measure]]
    _legend(figure, [*(_end_sign(result, rung) for rung in result.rungs), *still])
    name_ends(figure, axes, curves, others=[np.array([(end, result.limit) for end in axes.get_xlim()])])
    return figure


def leave_figure(result: SafeRate) -> Figure:
    """Steps until each run left the band, by its rate; both axes are logarithmic."""
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.add_subplot()
    first, final = _steps(result)
    rates = sorted({rung.rate for rung in result.rungs})
    _logarithmic(axes, (rates[0] / 1.6, rates[-1] * 1.6), (first / 2, final * 2))
    axes.xaxis.set_major_locator(FixedLocator(_with_room(rates, result.rate)))
    axes.xaxis.set_minor_locator(FixedLocator(rates))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: setting(float(value))))
    axes.yaxis.set_major_locator(FixedLocator(_ticks(max(first / 2, 1.0), final * 2)))
    axes.yaxis.set_major_formatter(FuncFormatter(_step_tick))
    axes.set_xlabel("learning rate")
    axes.set_ylabel("optimiser steps")
    _limit_line(axes, float(result.steps), f"wanted\n{integer(result.steps)}")
    for rung in result.rungs:
        _draw_end(axes, result, rung, first / 2)
    _legend(figure, [_sign(result, rung) for rung in result.rungs])
    return figure


def _steps(result: SafeRate) -> tuple[float, float]:
    """The first and the last of all steps that are drawn, apart from one another."""
    every = [float(step) for rung in result.rungs for step in (*rung.steps, rung.left_at or 0) if step > 0]
    return min([*every, result.steps / 2]), max([*every, float(result.steps)])


def _logarithmic(axes: Axes, across: tuple[float, float], up: tuple[float, float]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log", nonpositive="mask")
    axes.set_xlim(*across)
    axes.set_ylim(*up)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers between two, 1, 2 and 5 of each power of ten where there are few powers."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    parts = (1, 2, 5) if len(powers) < _MOST_TICKS / 2 else (1,)
    every = [part * 10.0**power for power in powers[:: 1 + len(powers) // _MOST_TICKS] for part in parts]
    return [tick for tick in every if low <= tick <= high * 1.001] or [low, high]


def _step_tick(value: float, _: int | None) -> str:
    return integer(round(value))


def _limit_line(axes: Axes, height: float, name: str) -> None:
    axes.axhline(height, color=INK, linewidth=1.2, linestyle=(0, (5, 3)), zorder=1)
    axes.text(1.01, height, name, transform=axes.get_yaxis_transform(), va="center", ha="left", color=INK, fontsize=8.5)


def _colour(result: SafeRate, rung: Rung) -> str:
    rates = [one.rate for one in result.rungs] + result.rates
    span = math.log(max(rates) / min(rates))
    return to_hex(_RATES(math.log(rung.rate / min(rates)) / span if span else 0.0))


def _sign(result: SafeRate, rung: Rung) -> tuple[str, str]:
    return _SIGNS[ended(result, rung)]


def _end_sign(result: SafeRate, rung: Rung) -> tuple[str, str]:
    still = rung.left_at is None and rung.drift[result.measure][-1] == 0
    return _NO_DRIFT if still else _sign(result, rung)


def _name(result: SafeRate, rung: Rung) -> str:
    """The rate; runs of one rate that ended alike bear one name, at the highest of them."""
    every = [other for other in result.rungs if other.rate == rung.rate]
    alike = [other for other in every if ended(result, other) == ended(result, rung)]
    if rung is not max(alike, key=lambda other: last(other, result.measure) or 0.0):
        return ""
    seeds = f"{len(alike)} seeds" if len(alike) > 1 else f"seed {rung.seed}"
    return setting(rung.rate) + f", {seeds}" * (len(every) > 1)


def _draw_run(axes: Axes, result: SafeRate, rung: Rung) -> Named:
    """The curve of a run and its end; what has no logarithm stands at the lower edge, what is no number below the upper one."""
    colour, safe, (low, high) = _colour(result, rung), rung.rate == result.rate, axes.get_ylim()
    drift = rung.drift[result.measure]
    line: dict[str, Any] = {"color": colour, "linewidth": 2.4 if safe else 1.4, "zorder": 2.5 if safe else 2}
    axes.plot(rung.steps, [value or np.nan for value in drift], marker=".", markersize=4, **line)
    points = [(float(step), value or low) for step, value in zip(rung.steps, drift, strict=True)]
    for step, value in zip(rung.steps, drift, strict=True):
        if value == 0:
            _mark(axes, float(step), low, _NO_DRIFT[0], colour)
    if ended(result, rung) == "diverged":
        points.append((max(float(rung.left_at or 0), axes.get_xlim()[0]), high * (low / high) ** 0.04))
        axes.plot(*zip(*points[-2:], strict=True), linestyle=":", **line)
    _mark(axes, *points[-1], _end_sign(result, rung)[0], colour)
    return Named(_name(result, rung), np.array(points, dtype=np.float64), bold=safe)


def _draw_end(axes: Axes, result: SafeRate, rung: Rung, low: float) -> None:
    colour, sign = _colour(result, rung), _sign(result, rung)[0]
    if rung.left_at is None:
        _mark(axes, rung.rate, float(rung.steps[-1]), sign, colour)
        return
    inside = max((step for step in rung.steps if step < rung.left_at), default=0)
    axes.plot([rung.rate] * 2, [max(inside, low), max(rung.left_at, low)], color=colour, linewidth=1.2, zorder=2)
    _mark(axes, rung.rate, max(float(rung.left_at), low), sign, colour)


def _mark(axes: Axes, across: float, up: float, marker: str, colour: str) -> None:
    """Hollow where a run did not stay."""
    (drawn,) = axes.plot(across, up, clip_on=False, zorder=4)
    _style(drawn, marker, colour)


def _style(line: Line2D, marker: str, colour: str) -> None:
    line.set(linestyle="", marker=marker, markersize=7, markeredgewidth=1.6, markeredgecolor=colour)
    line.set_markerfacecolor(colour if marker in "^x" else PAPER)


def _with_room(rates: Sequence[float], first: float | None) -> list[float]:
    """Which rates can bear a label, the largest safe one before all others, then both ends."""
    room = _TICK * math.log(rates[-1] / rates[0] * 1.6**2) / (WIDTH - 1.4)
    kept: list[float] = []
    for one in [first or rates[0], rates[0], rates[-1], *rates]:
        if all(abs(math.log(one / other)) >= room for other in kept):
            kept.append(one)
    return kept


def _legend(figure: Figure, signs: Sequence[tuple[str, str]]) -> None:
    handles = []
    for marker, told in dict.fromkeys(signs):
        handles.append(Line2D([], [], label=told))
        _style(handles[-1], marker, MUTED)
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5)
    for text in legend.get_texts():
        text.set_color(INK)
