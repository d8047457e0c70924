"""The pictures of a report, each a figure of its own, as SVG for inlining (see `svg`).

Every function gives the same bytes for the same data.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from adiabat.core.text import cut, cut_middle, integer
from adiabat.report.evaluation_headline import period
from adiabat.report.heat_cells import colours, legible
from adiabat.report.svg import ACCENT, BAD, GOOD, INK, MUTED, PAPER, RULE, drawing, inline_svg
from adiabat.report.wording import improvement, number, signed
from adiabat.results.evaluation_result import Change, DatasetResult, GridComparison, LayerChange, TrainingRecord, Verdict

_VERDICT_COLOURS: Mapping[Verdict | None, str] = {"better": GOOD, "worse": BAD, "no evidence": MUTED, None: MUTED}
_WIDTH = 7.4
"""Inches: of a picture that takes the whole column."""

_NARROW = 4.0
"""Inches: of a picture that takes half of it, or a telephone."""

LARGEST_LABELLED_GRID = 20
"""Languages up to which a heat map prints the value in each cell."""

_MOST_POINTS = 300
"""Points of the training loss that a curve draws; more are averaged in runs of equal length."""


def forest(datasets: Sequence[DatasetResult], *, name: str = "forest", narrow: bool = False) -> str | None:
    """Improvement of each data set's main measure with its paired 95 % interval, one row each.

    Returns:
        SVG, or None where no data set has an improvement with an interval.
    """
    rows = [
        dataset
        for dataset in datasets
        if dataset.main_change().improvement_interval is not None and dataset.main_change().improvement is not None
    ]
    if not rows:
        return None
    with drawing():
        width, height = (_NARROW, 0.48) if narrow else (_WIDTH, 0.36)
        figure = Figure(figsize=(width, 0.75 + height * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for row, dataset in enumerate(rows):
            _forest_row(axes, row, dataset, narrow=narrow)
        axes.axvline(0, color=MUTED, linewidth=1, zorder=1)
        _forest_frame(axes, rows, narrow=narrow)
        return inline_svg(figure, name=name)


def _forest_row(axes: Axes, row: int, dataset: DatasetResult, *, narrow: bool) -> None:
    change = dataset.main_change()
    assert change.improvement is not None
    assert change.improvement_interval is not None
    colour = _VERDICT_COLOURS[change.verdict]
    axes.plot(change.improvement_interval, [row, row], color=colour, linewidth=2.2, solid_capstyle="round", zorder=2)
    axes.plot(
        change.improvement,
        row,
        marker="D" if dataset.role == "target" else "o",
        markersize=7 if dataset.role == "target" else 7.5,
        markerfacecolor=PAPER if change.verdict == "no evidence" else colour,
        markeredgecolor=colour,
        markeredgewidth=1.8,
        zorder=3,
    )
    if not narrow:
        axes.text(1.02, row, improvement(change), transform=axes.get_yaxis_transform(), va="center", ha="left", color=colour, fontsize=8.5)


def _forest_frame(axes: Axes, rows: Sequence[DatasetResult], *, narrow: bool) -> None:
    labels = [cut(f"{row.name} \N{MIDDLE DOT} {row.main}", limit=44) for row in rows]
    axes.set_ylim(len(rows) - 0.4, -0.8 if narrow else -0.6)
    axes.set_yticks(range(len(rows)), [""] * len(rows) if narrow else labels)
    axes.tick_params(axis="y", length=0)
    for row, (dataset, label) in enumerate(zip(rows, labels, strict=True)):
        weight = "bold" if dataset.role == "target" else "normal"
        if narrow:
            axes.text(
                0,
                row - 0.36,
                label,
                transform=axes.get_yaxis_transform(),
                va="center",
                ha="left",
                color=INK,
                fontweight=weight,
                fontsize=8.5,
                # The line at zero passes behind the name, not through it.
                bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.0},
            )
        else:
            axes.get_yticklabels()[row].set(color=INK, fontweight=weight)
    axes.set_xlabel("improvement, % (right is better)" if narrow else "improvement of the main measure, % (right of zero is better)")
    axes.xaxis.set_major_formatter(FuncFormatter(_percent_tick))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4 if narrow else 6, steps=[1, 2, 5, 10]))
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.margins(x=0.06)


def curves(record: TrainingRecord, *, name: str = "curves") -> list[str]:
    """Training and validation loss, then validation errors, by epoch, with the kept epoch marked: one picture each."""
    by_epoch = record.epochs > 0 and record.steps > 0
    pictures = []
    with drawing():
        for panel, there in (("loss", record.loss or record.validation_loss), ("errors", record.validation_errors)):
            if not there:
                continue
            figure = Figure(figsize=(_NARROW, 2.7), layout="constrained")
            axes = figure.add_subplot()
            if panel == "loss":
                _draw_losses(axes, record, steps_per_epoch=record.steps / record.epochs if by_epoch else 1.0)
            else:
                _draw_errors(axes, record)
            _mark_best(axes, record, by_epoch=by_epoch or panel == "errors")
            axes.legend(facecolor=PAPER, edgecolor="none", borderpad=0.2, fontsize=8, labelcolor=MUTED)
            pictures.append(inline_svg(figure, name=f"{name}-{panel}"))
    return pictures


def _draw_losses(axes: Axes, record: TrainingRecord, *, steps_per_epoch: float) -> None:
    if record.loss:
        steps, losses = _thinned(np.array(record.loss, dtype=float))
        axes.plot(steps / steps_per_epoch, losses, color=MUTED, linewidth=1, alpha=0.75, label="training")
    if record.validation_loss:
        axes.plot(*zip(*record.validation_loss, strict=True), color=GOOD, linewidth=1.6, marker="o", markersize=4, label="validation")
    axes.set_title("Loss", color=INK)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, digits=3)))


def _thinned(points: Float[np.ndarray, "p 2"]) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """At most `_MOST_POINTS` points: means over runs of neighbours."""
    runs = np.array_split(points, min(len(points), _MOST_POINTS))
    means = np.array([run.mean(axis=0) for run in runs])
    return means[:, 0], means[:, 1]


def _draw_errors(axes: Axes, record: TrainingRecord) -> None:
    epochs, errors = zip(*record.validation_errors, strict=True)
    axes.plot(epochs, errors, color=BAD, linewidth=1.6, marker="s", markersize=4, label="validation")
    of = f" of {integer(record.validation_pairs)} {record.unit}" if record.validation_pairs else ""
    axes.set_title(f"Validation errors{of}", color=INK)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: integer(round(value))))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))


def _mark_best(axes: Axes, record: TrainingRecord, *, by_epoch: bool) -> None:
    axes.set_xlabel(period(record) if by_epoch else "step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.grid(axis="y", color=RULE, linewidth=0.7)
    axes.set_axisbelow(True)
    if not by_epoch:
        return
    label = "start kept" if record.best_epoch == 0 else f"kept: {period(record)} {record.best_epoch}"
    axes.axvline(record.best_epoch, color=ACCENT, linewidth=1.2, linestyle=(0, (4, 3)), zorder=1, label=label)


def heatmap(languages: Sequence[str], grid: GridComparison, *, name: str) -> str:
    """One cell per (query language, document language): improvement in percent, or PND where there is no baseline.

    A dot marks cells whose paired verdict, corrected over all cells, is better or worse; a cell without a value is grey with a dash.
    """
    compared = grid.improvement is not None
    cells = np.array(grid.improvement if grid.improvement is not None else grid.after, dtype=float)
    side = len(languages)
    with drawing():
        width = 1.7 + max(1.2, 0.4 * side)
        figure = Figure(figsize=(width, width - 0.75), layout="constrained")
        axes = figure.add_subplot()
        colour_map, scale = colours(cells, compared=compared)
        axes.set_facecolor(RULE)
        mesh = axes.pcolormesh(np.ma.masked_invalid(cells), cmap=colour_map, norm=scale, edgecolors=PAPER, linewidth=0.8)
        if side <= LARGEST_LABELLED_GRID:
            _write_cells(axes, cells, colour_map=colour_map, scale=scale, compared=compared)
        if grid.verdicts is not None:
            _dot_cells(axes, grid.verdicts, cells, colour_map=colour_map, scale=scale)
        _heat_frame(axes, languages)
        bar = figure.colorbar(mesh, ax=axes, fraction=0.04, pad=0.02, aspect=24)
        if bar.solids is not None:
            # Viewers leave hairlines between the colours of a bar without edges.
            bar.solids.set_edgecolor("face")
            bar.solids.set_rasterized(False)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=7.5)
        bar.ax.yaxis.set_major_formatter(FuncFormatter(_percent_tick if compared else lambda value, _: number(value, digits=2)))
        bar.set_label("improvement of PND, %" if compared else "PND (lower is better)", color=MUTED, fontsize=8)
        return inline_svg(figure, name=name)


def _write_cells(axes: Axes, cells: Float[np.ndarray, "q d"], *, colour_map: Colormap, scale: Normalize, compared: bool) -> None:
    shown = cells[np.isfinite(cells)]
    decimals = 0 if compared and np.abs(shown).max(initial=0.0) >= 100 else 1
    for (row, column), value in np.ndenumerate(cells):
        if not np.isfinite(value):
            text = "\N{EN DASH}"
        elif compared:
            text = signed(float(value), decimals=decimals)
        else:
            text = f"{value:.3f}".removeprefix("0") if value < 1 else "1"
        axes.text(column + 0.5, row + 0.54, text, ha="center", va="center", fontsize=6.6, color=legible(value, colour_map, scale))


def _dot_cells(
    axes: Axes, verdicts: Sequence[Sequence[Verdict]], cells: Float[np.ndarray, "q d"], *, colour_map: Colormap, scale: Normalize
) -> None:
    marked = [(row, column) for row, line in enumerate(verdicts) for column, verdict in enumerate(line) if verdict != "no evidence"]
    for row, column in marked:
        axes.plot(column + 0.86, row + 0.16, "o", markersize=2.5, markeredgewidth=0, color=legible(cells[row, column], colour_map, scale))


def _heat_frame(axes: Axes, languages: Sequence[str]) -> None:
    places = [place + 0.5 for place in range(len(languages))]
    names = [cut(language, limit=8) for language in languages]
    axes.set_xticks(places, names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(places, names)
    axes.set_aspect("equal")
    axes.invert_yaxis()
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    axes.set_xlabel("document language")
    axes.set_ylabel("query language")
    for spine in axes.spines.values():
        spine.set_visible(False)


def layer_bars(layers: Sequence[LayerChange], *, name: str = "layers") -> str | None:
    """Relative change of parameter tensors as bars.

    Returns:
        SVG, or None where no bar is left.
    """
    values = [(layer.name, 100 * layer.relative) for layer in layers if layer.relative is not None]
    if not values:
        return None
    with drawing():
        figure = Figure(figsize=(_WIDTH, 0.7 + 0.25 * len(values)), layout="constrained")
        axes = figure.add_subplot()
        widths = [value for _, value in values]
        axes.barh(range(len(values)), widths, height=0.62, color=GOOD)
        for row, value in enumerate(widths):
            axes.annotate(
                number(value, digits=3), (value, row), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=MUTED
            )
        axes.set_yticks(range(len(values)), [cut_middle(label, limit=46) for label, _ in values])
        axes.set_ylim(len(values) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0, labelsize=8, labelcolor=INK)
        axes.set_xlabel("relative change of the tensor (Frobenius norm), %")
        axes.set_xlim(0, max(max(widths) * 1.1, 1e-12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value, digits=2)))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.spines["left"].set_visible(False)
        axes.grid(axis="x", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        return inline_svg(figure, name=name)


def ladder(changes: Sequence[Change], *, name: str) -> str:
    """PND by the number of the listed negative with its 95 % interval, before and after."""
    with drawing():
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        axes = figure.add_subplot()
        numbers = range(1, len(changes) + 1)
        if all(change.before is not None for change in changes):
            axes.plot(numbers, [100 * (change.before or 0.0) for change in changes], color=MUTED, marker="s", markersize=4, label="before")
        axes.plot(numbers, [100 * change.after for change in changes], color=GOOD, marker="o", markersize=5, label="after")
        for number_, change in zip(numbers, changes, strict=True):
            if change.after_interval is not None:
                axes.plot([number_, number_], [100 * end for end in change.after_interval], color=GOOD, linewidth=1.2, alpha=0.6)
        axes.set_ylabel("PND, % of queries in error")
        axes.set_xlabel("number of the negative in the list")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=21, integer=True, min_n_ticks=1))
        axes.grid(axis="y", color=RULE, linewidth=0.7)
        axes.set_axisbelow(True)
        if len(axes.lines) > 1 and changes[0].before is not None:
            axes.legend(frameon=False, fontsize=8, loc="best", labelcolor=MUTED)
        return inline_svg(figure, name=name)


def _percent_tick(value: float, _: int | None) -> str:
    """A round number without decimals, another with as few as show all of it."""
    decimals = next((decimals for decimals in range(3) if abs(value - round(value, decimals)) < 1e-9), 3)
    return signed(value, decimals=decimals)
