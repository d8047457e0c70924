"""The page of a training run: its curves and facts, and the layers that changed most; evaluations have these
sections too.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from adiabat.core.text import DASH, NO_BREAK, counted, cut, duration, integer
from adiabat.report import format as texts
from adiabat.report.chart_style import ACCENT, BAD, GOOD, MUTED
from adiabat.report.charts import NARROW, Chart, Line, Panel, bars, curves
from adiabat.report.computed_tables import Column, Table
from adiabat.report.measure_terms import measures_section
from adiabat.report.pages import Facts, Figure, Group, Page, Tone
from adiabat.report.power_section import power_section
from adiabat.report.tables import Section
from adiabat.results.evaluation_result import Result
from adiabat.results.training_record import LayerChange, TrainingRecord

LAYERS_SHOWN = 15

MOST_POINTS = 300
"""Maximum points of the training-loss curve; more are averaged in groups of equal size."""

_ARROW = "\N{RIGHTWARDS ARROW}"


def run_of(result: Result) -> TrainingRecord:
    """The run that a result of kind ``training`` records."""
    assert result.training is not None, "a training job records its run"
    return result.training


def page(result: Result) -> Page:
    """The page of a training run."""
    record = run_of(result)
    chosen = record.passes is None or record.best_epoch != record.epochs
    choice = (
        f" that selected the {period_of(record)}"
        if chosen
        else ", which neither stopped the run nor selected weights"
    )
    return page_of(
        result,
        [
            training_of(record, measured=False),
            layers_of(record.layers),
            power_section(result.power) if result.power else None,
        ],
        headline=training_sentence(record),
        reservations=[
            f"These figures are from the validation set{choice}; confirm them on "
            "held-out data with adiabat evaluate."
        ],
    )


def page_of(
    result: Result,
    sections: Sequence[Section | None],
    *,
    headline: str,
    reservations: Sequence[str],
    tone: Tone = "plain",
) -> Page:
    """A page with what runs and evaluations share: the names of their models, and settings."""
    trained = {} if result.training is None else result.training.settings
    about = [
        ("model", result.model),
        ("further runs", ", ".join(result.runs)),
        ("compared with", result.baseline or ""),
    ]
    return Page(
        record=result,
        name="report",
        headline=headline,
        tone=tone,
        reservations=reservations,
        about=[fact for fact in about if fact[1]],
        sections=sections,
        facts=[("model", result.model), ("baseline", result.baseline or "")],
        time="time for measuring" if result.datasets else "time",
        settings=result.settings or trained,
        tables=[("training-settings", "Settings of the training", trained)]
        if result.settings and trained != result.settings
        else [],
    )


def terminal(result: Result) -> list[Table]:
    """Losses, errors and further figures of the validation, at the start and for the resulting weights."""
    record = run_of(result)
    figures: list[tuple[str, Sequence[tuple[int, Any]], Any]] = [
        ("loss", record.validation_loss, texts.number),
        (f"errors{of_pairs(record)}", record.validation_errors, integer),
        *((name, points, texts.score) for name, points in record.measures.items()),
    ]
    ends = (0, record.best_epoch)
    rows = [
        (name, *(text(dict(points)[at]) for at in ends))
        for name, points, text in figures
        if set(ends) <= dict(points).keys()
    ]
    heads = ("validation", "start", f"kept ({result_weights(record)})")
    columns = [Column(head, itemgetter(at), "number" if at else "text") for at, head in enumerate(heads)]
    return [
        Table(
            title=cut(result.title, limit=200),
            columns=columns,
            rows=rows,
            caption=[training_sentence(record)],
        )
    ]


def notes(result: Result) -> list[str]:
    """The notes below the table of the terminal."""
    return list(run_of(result).notes)


def training_of(record: TrainingRecord, *, measured: bool) -> Group:
    """Curves and facts of a run, with a summary sentence on the page of an evaluation, whose headline does
    not cover the run.
    """
    period = period_of(record)
    charts = training_curves(record)
    share = 100 * record.trainable / record.parameters if record.parameters else 0.0
    facts = [
        ("trained on", record.trained_on),
        (
            "parameters updated",
            f"{integer(record.trainable)} of {integer(record.parameters)} ({share:.1f}{NO_BREAK}%)",
        ),
        ("length", length(record)),
        ("kept", "the start: no epoch improved on it" if record.best_epoch == 0 else result_weights(record)),
        *(
            (name, f"{texts.score(points[0][1])} {_ARROW} {texts.score(dict(points)[record.best_epoch])}")
            for name, points in record.measures.items()
        ),
        ("ended because", record.stop_reason),
        ("operations", _operations(record)),
        ("time", duration(record.seconds)),
        *(("note", note) for note in record.notes),
    ]
    figure = Figure(
        charts=charts,
        wide=False,
        label=f"Loss and validation errors by {period}",
        caption=f"The dashed line marks the {period} whose weights were kept; {period} 0 is "
        "the start. Long curves of the training loss "
        "are averaged over neighbouring points.",
    )
    return Group(
        id="training",
        title=record.kind.capitalize(),
        lead=training_sentence(record) if measured else "",
        sections=[
            figure if charts else None,
            Facts(facts=[fact for fact in facts if fact[1]]),
            # On the page of an evaluation, all measures are explained in one place.
            None if measured else measures_section(record.measures),
        ],
    )


def training_curves(record: TrainingRecord) -> list[Chart]:
    """Training and validation loss, then validation errors; the epoch whose weights were kept is marked."""
    by_epoch = record.epochs > 0 and record.steps > 0
    period = period_of(record)
    label = "start kept" if record.best_epoch == 0 else f"kept: {period} {record.best_epoch}"
    best = [(float(record.best_epoch), label, ACCENT)]
    charts = []
    if record.loss or record.validation_loss:
        lines = [Line(_thinned(record), "training", MUTED, marker="", width=1.0)] if record.loss else []
        lines += [Line(record.validation_loss, "validation", GOOD)] if record.validation_loss else []
        panel = Panel(
            lines, period if by_epoch else "step", title="Loss", integers=True, down=best if by_epoch else []
        )
        charts.append(curves("curves-loss", [panel], width=NARROW, height=2.9))
    if record.validation_errors:
        line = Line(
            [(epoch, float(errors)) for epoch, errors in record.validation_errors], "validation", BAD, "s"
        )
        title = f"Validation errors{of_pairs(record)}"
        panel = Panel(
            [line], period, title=title, integers=True, down=best, y_tick=lambda value: integer(round(value))
        )
        charts.append(curves("curves-errors", [panel], width=NARROW, height=2.9))
    return charts


def _thinned(record: TrainingRecord) -> list[tuple[float, float | None]]:
    """At most `MOST_POINTS` points of the training loss, by epoch if there are epochs: means of neighbouring
    steps.
    """
    points = np.array(record.loss, dtype=np.float64)
    means = [run.mean(axis=0) for run in np.array_split(points, min(len(points), MOST_POINTS))]
    steps_per_epoch = record.steps / record.epochs if record.epochs > 0 and record.steps > 0 else 1.0
    return [(float(step) / steps_per_epoch, float(loss)) for step, loss in means]


def _operations(record: TrainingRecord) -> str:
    """Planned and spent FLOP, and FLOP counted one by one; "" in records without them."""
    if not record.flops:
        return ""
    planned = f", {record.planned:.3g} planned" if record.planned else ""
    each = f"; {record.operations:.3g} counted one by one" if record.operations else ""
    return f"{record.flops:.3g}{NO_BREAK}FLOP estimated from parameters and tokens{planned}{each}"


def layers_of(layers: Sequence[LayerChange]) -> Group | None:
    """The parameter tensors that changed most, folded; None if none changed."""
    changed = sum(layer.relative != 0 for layer in layers)
    if not changed:
        return None
    relative = {layer.name: layer.relative for layer in layers if layer.relative is not None}
    top = sorted(
        (layer for layer in layers if layer.name in relative),
        key=lambda layer: (-relative[layer.name], layer.name),
    )
    by_largest = sorted(layers, key=lambda layer: (-abs(layer.largest_change), layer.name))
    zeros = len(layers) - len(top)
    without = (
        f"; {counted(zeros, 'tensor')} had only zeros before, so no relative change is defined"
        if zeros
        else ""
    )
    changes = [(layer.name, 100 * relative[layer.name]) for layer in top[:LAYERS_SHOWN]]
    figure = Figure(
        charts=[bars("layers", changes, label="relative change of the tensor (Frobenius norm), %")],
        label="Relative change of the parameter tensors that changed most; the table below holds the numbers",
    )
    return Group(
        id="layers",
        title="Layers that changed most",
        folded=True,
        lead=f"Training changed {counted(changed, 'parameter tensor')} of the query tower{without}.",
        sections=[
            *([figure, _layers(top, "By relative change")] if top else []),
            _layers(by_largest, "By change of the largest weight"),
        ],
    )


def _layers(layers: Sequence[LayerChange], title: str) -> Table:
    def relative(layer: LayerChange) -> str:
        return (
            DASH if layer.relative is None else f"{texts.number(100 * layer.relative, digits=3)}{NO_BREAK}%"
        )

    def largest(layer: LayerChange) -> str:
        return f"{texts.number(layer.largest_before)} {_ARROW} {texts.number(layer.largest_after)}"

    def change(layer: LayerChange) -> str:
        return f"{texts.signed_pair(100 * layer.largest_change, None, least=2, most=5)[0]}{NO_BREAK}%"

    columns = [
        Column("tensor", lambda layer: cut(layer.name, limit=200), "code"),
        Column("relative change", relative, "number"),
        Column("largest weight", largest, "number"),
        Column("(W after − W before) / (W after + W before)", change, "number"),
    ]
    return Table(title=title, columns=columns, rows=layers[:LAYERS_SHOWN])


def period_of(record: TrainingRecord) -> str:
    """Unit of a run's length between two validations."""
    return "epoch" if record.passes is None else "validation"


def training_sentence(record: TrainingRecord) -> str:
    """Results of a training run on its validation set."""
    ran = length(record)
    if record.best_epoch == 0:
        return (
            f"{record.kind.capitalize()} did not improve on the start in {ran}; "
            "the starting weights were kept."
        )
    figures = []
    losses, errors = dict(record.validation_loss), dict(record.validation_errors)
    if {0, record.best_epoch} <= losses.keys():
        figures.append(
            f"loss {texts.number(losses[0])}{NO_BREAK}{_ARROW} {texts.number(losses[record.best_epoch])}"
        )
    if {0, record.best_epoch} <= errors.keys():
        first, last = errors[0], errors[record.best_epoch]
        fall = f" ({texts.signed(100 * (last / first - 1), decimals=1)}{NO_BREAK}%)" if first else ""
        figures.append(f"errors {integer(first)}{NO_BREAK}{_ARROW} {integer(last)}{of_pairs(record)}{fall}")
    reached = f"; on its validation set: {', '.join(figures)}" if figures else ""
    return f"{record.kind.capitalize()} ran {ran} and kept {result_weights(record)}{reached}."


def length(record: TrainingRecord) -> str:
    """Length of a run."""
    steps = counted(record.steps, "step")
    return (
        f"{counted(record.epochs, 'epoch')} ({steps})"
        if record.passes is None
        else f"{steps} ({record.passes:.2g} passes over its pairs)"
    )


def of_pairs(record: TrainingRecord) -> str:
    """Unit of the validation errors, after their count."""
    return f" of {integer(record.validation_pairs)} {record.unit}" if record.validation_pairs else ""


def result_weights(record: TrainingRecord) -> str:
    """Choice of the resulting weights."""
    if record.passes is None:
        return f"epoch {record.best_epoch}"
    return (
        "the last weights"
        if record.best_epoch == record.epochs
        else f"the weights of validation {record.best_epoch}"
    )
