"""The pictures of a suite, as SVG for inlining (see `svg`); the same data give the same bytes."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from adiabat.report import wording
from adiabat.report.interval_rows import clear_rows, difference_tick, draw_interval
from adiabat.report.suite_analysis import finding
from adiabat.report.svg import BAD, GOOD, MUTED, drawing, inline_svg
from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import Pairing

_COLOURS: Mapping[Verdict, str] = {"better": GOOD, "worse": BAD, "no evidence": MUTED}

_WIDTH = 5.6
"""Inches: of a picture that a telephone still shows in letters that can be read."""

_NAME_LENGTH = 28


def forest(pairings: Sequence[Pairing], *, name: str) -> str | None:
    """Differences of models to the one that a task compares them with, with their intervals; right is better.

    Returns:
        SVG; None where there is nothing to compare.
    """
    rows = [pairing for pairing in pairings if pairing.change.difference_interval is not None]
    if not rows:
        return None
    change = rows[0].change
    with drawing():
        figure = Figure(figsize=(_WIDTH, 0.75 + 0.3 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for row, pairing in enumerate(rows):
            _draw(axes, row, pairing)
        axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
        axes.set_yticks(range(len(rows)), [wording.cut_name(pairing.model, limit=_NAME_LENGTH) for pairing in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        measure, against = wording.cut_name(change.measure, limit=40), wording.cut_name(rows[0].against, limit=_NAME_LENGTH)
        axes.set_xlabel(f"{measure} minus that of {against} (right is better)")
        axes.xaxis.set_major_formatter(FuncFormatter(difference_tick))
        clear_rows(axes)
        if change.lower_is_better:
            axes.invert_xaxis()
        return inline_svg(figure, name=name)


def _draw(axes: Axes, row: int, pairing: Pairing) -> None:
    change = pairing.change
    assert change.difference is not None
    assert change.difference_interval is not None
    found = finding(pairing)
    draw_interval(axes, row, change.difference, change.difference_interval, colour=_COLOURS[found], filled=found != "no evidence")
