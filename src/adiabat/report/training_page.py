"""The page of a training run: its curves and facts, and the layers that changed most; evaluations have these
sections too.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from adiabat.core.text import NO_BREAK, counted, cut, duration, integer
from adiabat.report import format as texts
from adiabat.report.candidates_section import candidates_of
from adiabat.report.captions import text_of
from adiabat.report.chart_style import ACCENT, BAD, GOOD, MUTED
from adiabat.report.charts import NARROW, Chart, Line, Panel, bars, curves
from adiabat.report.measure_terms import measures_section
from adiabat.report.pages import Facts, Group, Page, Sections, Tone, figure
from adiabat.report.power_section import power_section
from adiabat.report.tables import Contents, Section, Table
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
    sections = [
        training_of(record, measured=False),
        candidates_of(record.candidates),
        layers_of(record.layers),
        power_section(result.power),
    ]
    validated = [text_of("training", "validated")]
    return page_of(result, sections, headline=training_sentence(record), reservations=validated)


def page_of(
    result: Result,
    sections: Sequence[Section | None],
    *,
    headline: str,
    reservations: Sequence[str],
    tone: Tone = "plain",
) -> Page:
    """A page with what runs and evaluations share: the names of their models, and settings."""
    trained, tables = {}, []
    if result.training is not None:
        trained = result.training.settings
    settings = result.settings or trained
    # The page of an evaluation has settings of its own, beside those of the training.
    if settings != trained:
        tables.append(("training-settings", "Settings of the training", trained))
    time = "time for measuring" if result.datasets else "time"
    models = [
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
        about=models,
        sections=sections,
        facts=[("model", result.model), ("baseline", result.baseline or "")],
        time=time,
        settings=settings,
        tables=tables,
    )


def terminal(result: Result) -> list[Table]:
    """Losses, errors and further figures of the validation, at the start and for the resulting weights."""
    record = run_of(result)
    rows = []
    head = f"kept ({result_weights(record)})"
    for name, start, kept in _figures(record):
        rows.append({"validation": name, "start": start, head: kept})
    title, caption = cut(result.title, limit=200), [training_sentence(record)]
    return [Table.of(rows, title=title, caption=caption)]


def _figures(record: TrainingRecord) -> Iterator[tuple[str, str, str]]:
    """Name of each figure of the validation, at the start and for the resulting weights."""
    errors = f"errors{of_pairs(record)}"
    measured: list[tuple[str, Sequence[tuple[int, Any]], Callable[[Any], str]]] = []
    measured.append(("loss", record.validation_loss, texts.number))
    measured.append((errors, record.validation_errors, integer))
    for measure, values in record.measures.items():
        measured.append((measure, values, texts.score))
    for name, points, text in measured:
        at = dict(points)
        # A run may end before its first validation.
        if {0, record.best_epoch} <= at.keys():
            yield name, text(at[0]), text(at[record.best_epoch])


def notes(result: Result) -> list[str]:
    """The notes below the table of the terminal."""
    return list(run_of(result).notes)


def training_of(record: TrainingRecord, *, measured: bool) -> Group:
    """Curves and facts of a run, with a sentence where the headline of the page does not cover the run."""
    updated = f"{integer(record.trainable)} of {integer(record.parameters)}"
    if record.parameters:
        percent = 100 * record.trainable / record.parameters
        updated += f" ({percent:.1f}{NO_BREAK}%)"
    kept = result_weights(record)
    if record.chosen is not None:
        kept = record.chosen.name
    elif record.best_epoch == 0 or record.candidates:
        kept = "the start: no epoch improved on it" if record.steps else "the start"
    facts = [
        ("trained on", record.trained_on),
        ("parameters updated", updated),
        ("length", length(record)),
        ("kept", kept),
    ]
    if record.expected is not None:
        gain, *ends = record.expected
        change, interval = texts.signed_pair(gain, (ends[0], ends[1]), least=1, most=3)
        facts.append(("gain expected before the first step", f"{change}{NO_BREAK}% {interval}"))
    if record.shown is not None:
        change = texts.signed(record.shown, decimals=1)
        facts.append(("gain on the validation queries", f"{change}{NO_BREAK}%"))
    for name, before, after in _figures(record):
        facts.append((name, f"{before} {_ARROW} {after}"))
    facts += [
        ("ended because", record.stop_reason),
        ("FLOP by parameters and tokens", _flop(record.flops)),
        ("FLOP planned", _flop(record.planned)),
        ("FLOP counted one by one", _flop(record.operations)),
        ("time", duration(record.seconds)),
    ]
    facts += [("note", note) for note in record.notes]
    sections: Sections = [Facts(facts=facts)]
    charts = training_curves(record)
    if charts:
        sections.insert(0, figure("training", "curves", *charts, wide=False, period=period_of(record)))
    if not measured:
        # On the page of an evaluation, all measures are explained in one place.
        sections.append(measures_section(record.measures))
    lead = training_sentence(record) if measured else ""
    return Group(id="training", title=record.kind.capitalize(), lead=lead, sections=sections)


def _flop(operations: float) -> str:
    """A number of operations; "" for 0, which older records and uncounted runs have."""
    return f"{operations:.3g}" if operations else ""


def training_curves(record: TrainingRecord) -> list[Chart]:
    """Training and validation loss, then validation errors; the epoch whose weights were kept is marked."""
    by_epoch = record.epochs > 0 and record.steps > 0
    period = period_of(record)
    label = f"kept: {period} {record.best_epoch}"
    if record.best_epoch == 0:
        label = "start kept"
    kept = [(float(record.best_epoch), label, ACCENT)]
    lines = []
    if record.loss:
        lines.append(Line(_thinned(record), "training", MUTED, marker="", width=1.0))
    if record.validation_loss:
        lines.append(Line(record.validation_loss, "validation", GOOD))
    charts = []
    if lines:
        # Without epochs the axis counts steps, where the best epoch has no position.
        across, down = (period, kept) if by_epoch else ("step", [])
        panel = Panel(lines, across, title="Loss", integers=True, down=down)
        charts.append(curves("curves-loss", [panel], width=NARROW, height=2.9))
    if record.validation_errors:
        points = [(epoch, float(errors)) for epoch, errors in record.validation_errors]
        line = Line(points, "validation", BAD, "s")
        title = f"Validation errors{of_pairs(record)}"
        panel = Panel([line], period, title=title, integers=True, down=kept, y_tick=texts.whole)
        charts.append(curves("curves-errors", [panel], width=NARROW, height=2.9))
    return charts


def _thinned(record: TrainingRecord) -> list[tuple[float, float | None]]:
    """At most `MOST_POINTS` points of the training loss, by epoch if there are epochs: means of neighbouring
    steps.
    """
    points = np.array(record.loss, dtype=np.float64)
    groups = np.array_split(points, min(len(points), MOST_POINTS))
    # Of steps and of losses: a mean loss stands at the mean of its steps.
    means = [points_of.mean(axis=0) for points_of in groups]
    steps_per_epoch = 1.0
    if record.epochs > 0 and record.steps > 0:
        steps_per_epoch = record.steps / record.epochs
    return [(float(step) / steps_per_epoch, float(loss)) for step, loss in means]


def layers_of(layers: Sequence[LayerChange]) -> Group | None:
    """The parameter tensors that changed most, folded; None if none changed."""
    changed = sum(layer.relative != 0 for layer in layers)
    if not changed:
        return None
    by_largest = sorted(layers, key=_by_largest_weight)
    # A tensor of zeros has no relative change.
    known = [layer for layer in layers if layer.relative is not None]
    by_relative = sorted(known, key=_by_relative_change)
    sections: list[Section] = [_layers(by_largest, "By change of the largest weight")]
    if by_relative:
        changes = [(layer.name, 100 * (layer.relative or 0.0)) for layer in by_relative[:LAYERS_SHOWN]]
        chart = bars("layers", changes, label="relative change of the tensor (Frobenius norm), %")
        drawn = figure("training", "layers", chart)
        sections = [drawn, _layers(by_relative, "By relative change"), *sections]
    tensors = counted(changed, "parameter tensor")
    zeros = counted(len(layers) - len(known), "tensor")
    lead = (
        f"Training changed {tensors} of the query tower; {zeros} had only zeros "
        "before, so no relative change is defined."
    )
    return Group(id="layers", title="Layers that changed most", folded=True, lead=lead, sections=sections)


def _by_relative_change(layer: LayerChange) -> tuple[float, str]:
    """The largest relative change first."""
    return -(layer.relative or 0.0), layer.name


def _by_largest_weight(layer: LayerChange) -> tuple[float, str]:
    """The largest change of the largest weight first."""
    return -abs(layer.largest_change), layer.name


def _layers(layers: Sequence[LayerChange], title: str) -> Table:
    """The first of these parameter tensors with their changes."""
    rows: list[Contents] = []
    for layer in layers[:LAYERS_SHOWN]:
        before, after = texts.number(layer.largest_before), texts.number(layer.largest_after)
        change, _ = texts.signed_pair(100 * layer.largest_change, None, least=2, most=5)
        row: Contents = {
            "tensor": cut(layer.name, limit=200),
            "relative change": texts.if_known(layer.relative, _percent),
            "largest weight": f"{before} {_ARROW} {after}",
            "(W after − W before) / (W after + W before)": f"{change}{NO_BREAK}%",
        }
        rows.append(row)
    return Table.of(rows, {"tensor": "code"}, title=title)


def _percent(relative: float) -> str:
    """A share in percent with three digits."""
    return f"{texts.number(100 * relative, digits=3)}{NO_BREAK}%"


def period_of(record: TrainingRecord) -> str:
    """Unit of a run's length between two validations."""
    return "epoch" if record.passes is None else "validation"


def training_sentence(record: TrainingRecord) -> str:
    """Results of a training run on its validation set."""
    ran, kind = length(record), record.kind.capitalize()
    if record.steps == 0:
        return f"{kind} took no step, and the starting weights were kept: {record.stop_reason}"
    if record.chosen is not None:
        gain = f"{texts.signed(record.chosen.percent, decimals=1)}{NO_BREAK}%"
        return f"{kind} ran {ran} and chose {record.chosen.name}: nDCG@10 of its validation queries {gain}."
    if record.best_epoch == 0 or record.candidates:
        return f"{kind} did not improve on the start in {ran}; the starting weights were kept."
    sentence = f"{kind} ran {ran} and kept {result_weights(record)}"
    figures = [f"{name} {start}{NO_BREAK}{_ARROW} {kept}" for name, start, kept in _figures(record)]
    if figures:
        sentence += f"; on its validation set: {', '.join(figures)}"
    return f"{sentence}."


def length(record: TrainingRecord) -> str:
    """Length of a run."""
    steps = counted(record.steps, "step")
    if record.passes is None:
        return f"{counted(record.epochs, 'epoch')} ({steps})"
    return f"{steps} ({record.passes:.2g} passes over its pairs)"


def of_pairs(record: TrainingRecord) -> str:
    """Unit of the validation errors, after their count."""
    if not record.validation_pairs:
        return ""
    return f" of {integer(record.validation_pairs)} {record.unit}"


def result_weights(record: TrainingRecord) -> str:
    """Choice of the resulting weights."""
    if record.passes is None:
        return f"epoch {record.best_epoch}"
    return f"the weights of validation {record.best_epoch} of {record.epochs}"
