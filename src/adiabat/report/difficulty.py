"""Errors and improvement against the difficulty of negatives: the source's figure 6 as pictures (mission A11), and as tables."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from adiabat.measure.results import Change
from adiabat.report.svg import ACCENT, BAD, GOOD, INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.wording import DASH, cut, improvement, score, signed, value_interval, verdict

_STYLES = ((GOOD, "o"), (BAD, "s"), (ACCENT, "D"), (INK, "^"))
"""Colour and marker of each model, in order; markers tell them apart without colour."""

_SIZE = (7.4, 3.4)
"""Inches: a picture that takes the whole column."""


def error_curves(models: Mapping[str, Sequence[Change]], *, name: str = "difficulty") -> str:
    """PND at each difficulty with its 95 % interval, one curve per model.

    Args:
        models: Name to changes, difficulty 1 first, as `adiabat.measure.difficulty.changes_by_difficulty` gives them; at most four models.
        name: Prefix of the ids inside the picture, unique in a page.

    Returns:
        SVG.

    Raises:
        ValueError: If there is no model, or more than there are styles.
    """
    _require_drawable(models)
    with drawing():
        figure, axes = _frame("PND, % of queries in error", max(map(len, models.values())))
        for (label, changes), style in zip(models.items(), _STYLES, strict=False):
            values = [100 * change.after for change in changes]
            bounds = [change.after_interval for change in changes]
            ends = [None if own is None else (100 * own[0], 100 * own[1]) for own in bounds]
            _draw(axes, values, ends, style, label=label)
        axes.set_ylim(bottom=0)
        return _finished(figure, axes, name)


def improvement_curves(models: Mapping[str, Sequence[Change]], *, name: str = "difficulty-improvement") -> str:
    """Improvement of PND at each difficulty with its paired 95 % interval, one curve per model.

    Open markers stand where the paired interval leaves no evidence; a difficulty at which the baseline has no errors is left out.

    Args:
        models: As for `error_curves`, measured against a baseline.
        name: Prefix of the ids inside the picture, unique in a page.

    Returns:
        SVG.

    Raises:
        ValueError: As `error_curves`.
    """
    _require_drawable(models)
    with drawing():
        figure, axes = _frame("improvement of PND, % (up is better)", max(map(len, models.values())))
        axes.axhline(0, color=MUTED, linewidth=1, zorder=1)
        for (label, changes), style in zip(models.items(), _STYLES, strict=False):
            values = [change.improvement for change in changes]
            ends = [change.improvement_interval for change in changes]
            _draw(axes, values, ends, style, label=label, opened=[change.verdict == "no evidence" for change in changes])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: signed(value, decimals=0 if value == round(value) else 1)))
        return _finished(figure, axes, name)


def difficulty_rows(changes: Sequence[Change]) -> list[tuple[str, ...]]:
    """The same as a table: cells under difficulty, PND, its 95 % interval, and, where there is a baseline, before, change and verdict.

    Args:
        changes: Of one model, difficulty 1 first.

    Returns:
        One row per difficulty, in the words of the reports.
    """
    rows: list[tuple[str, ...]] = []
    for difficulty, change in enumerate(changes, 1):
        row: tuple[str, ...] = (str(difficulty), score(change.after), value_interval(change) or DASH)
        if change.before is not None:
            row += (score(change.before), improvement(change), verdict(change))
        rows.append(row)
    return rows


def _require_drawable(models: Mapping[str, Sequence[Change]]) -> None:
    if not 0 < len(models) <= len(_STYLES):
        raise ValueError(f"models must be 1 to {len(_STYLES)} to be told apart, got {len(models)}")


def _frame(label: str, steps: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_ylabel(label)
    axes.set_xlabel("difficulty (1: the most alike negative; the last: a random one)")
    axes.set_xlim(0.4, steps + 0.6)
    axes.xaxis.set_major_locator(FixedLocator(range(1, steps + 1)))
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    return figure, axes


def _draw(
    axes: Axes,
    values: Sequence[float | None],
    ends: Sequence[tuple[float, float] | None],
    style: tuple[str, str],
    *,
    label: str,
    opened: Sequence[bool] = (),
) -> None:
    """One curve; a value of None is a gap."""
    colour, marker = style
    places = [place for place, value in enumerate(values, 1) if value is not None]
    drawn = [value for value in values if value is not None]
    axes.plot(places, drawn, color=colour, linewidth=1.4, zorder=2, label=cut(label, limit=40), marker=marker, markersize=0)
    for place, end in enumerate(ends, 1):
        if end is not None:
            axes.plot([place, place], end, color=colour, linewidth=1.2, alpha=0.6, solid_capstyle="round", zorder=2)
    for place, value in zip(places, drawn, strict=True):
        hollow = bool(opened) and opened[place - 1]
        face = PAPER if hollow else colour
        axes.plot(place, value, marker=marker, markersize=5.5, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=1.4, zorder=3)


def _finished(figure: Figure, axes: Axes, name: str) -> str:
    legend = axes.legend(frameon=False, fontsize=8, loc="best")
    for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
        text.set_color(MUTED)
        if handle is not None:
            handle.set(markersize=5.5)
    return inline_svg(figure, name=name)
