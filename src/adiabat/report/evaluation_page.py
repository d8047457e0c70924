"""The report: one HTML page that needs nothing but itself.

The page is made from a `Result` alone. It holds no script and no address of another resource, every text in it is escaped, and parts that
have no data are left out. Equal results give equal bytes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from adiabat.report import evaluation_headline as sentences
from adiabat.report import evaluation_plots as plots
from adiabat.report import wording
from adiabat.report.page_templates import gathered, given, picture, template
from adiabat.results.evaluation_result import Change, ChangedQuery, DatasetResult, GridComparison, Hit, LayerChange, Result, TrainingRecord

EXAMPLES_SHOWN = 10
HITS_SHOWN = 5
"""Of each list of hits; relevant ones further down are shown as well."""
LAYERS_SHOWN = 15
QUERY_LENGTH = 400
DOCUMENT_LENGTH = 180
TELL_LENGTH = 2000
"""Characters of a text from which a cut also says how long the whole is."""

_ROLES = {"target": "target", "retain": "retention"}
_KINDS = {"ranking": "whole store ranked", "pairs": "listed candidates", "grid": "language grid"}


def render_page(result: Result) -> str:
    """The report of a result."""
    measured = [dataset.main_change() for dataset in result.datasets]
    return template("evaluation_page.html.j2").render(
        result=result,
        command=result.command,
        tone=sentences.tone(result),
        headline=sentences.headline(result),
        reservations=sentences.reservations(result),
        compared=any(change.before is not None for change in measured),
        rows=[_row(dataset) for dataset in result.datasets],
        forest=picture(plots.forest(result.datasets)),
        forest_narrow=picture(plots.forest(result.datasets, name="forest-narrow", narrow=True)),
        details=[{**_row(dataset), "changes": [_change(change) for change in dataset.changes]} for dataset in result.datasets],
        language_sets=[
            _languages(dataset, position) for position, dataset in enumerate(result.datasets) if dataset.grid and dataset.languages
        ],
        ladders=[
            {
                "name": dataset.name,
                "picture": picture(plots.ladder(dataset.ladder, name=f"ladder-{position}")),
                "changes": list(map(_change, dataset.ladder)),
            }
            for position, dataset in enumerate(result.datasets)
            if dataset.ladder
        ],
        training=None if result.training is None else _training(result.training),
        examples=[_example(example) for example in result.examples[:EXAMPLES_SHOWN]],
        examples_left_out=max(0, len(result.examples) - EXAMPLES_SHOWN),
        limits={"hits": HITS_SHOWN, "query": QUERY_LENGTH, "document": DOCUMENT_LENGTH},
        layers=None
        if result.training is None or not any(layer.relative != 0 for layer in result.training.layers)
        else _layers(result.training.layers),
        notes=gathered([(dataset.name, dataset.notes) for dataset in result.datasets], every="all data sets"),
        facts=_facts(result),
        given=_given(result),
        versions=sorted(result.versions.items()),
    )


def files(result: Result) -> dict[str, Callable[[], str]]:
    """The page."""
    return {"report.html": partial(render_page, result)}


def _row(dataset: DatasetResult) -> dict[str, Any]:
    counts = [wording.counted(dataset.queries, "query"), wording.counted(dataset.documents, "document")]
    if dataset.pairs:
        counts.append(wording.counted(dataset.pairs, "pair"))
    return {
        "name": dataset.name,
        "role": _ROLES[dataset.role],
        "about": ", ".join(counts),
        "kind": _KINDS[dataset.kind],
        "main": _change(dataset.main_change()),
    }


def _change(change: Change) -> dict[str, str]:
    return {
        "measure": change.measure,
        "similarity": change.similarity,
        "direction": "lower is better" if change.lower_is_better else "higher is better",
        "before": wording.DASH if change.before is None else wording.score(change.before),
        "after": wording.score(change.after),
        "after_interval": wording.value_interval(change),
        "improvement": wording.improvement(change, with_interval=False) if change.improvement is not None else wording.DASH,
        "improvement_interval": wording.improvement_interval(change),
        "difference": wording.difference(change, with_interval=False),
        "difference_interval": wording.difference_interval(change),
        "z": wording.z_value(change),
        "p": wording.p_value(change),
        "verdict": change.verdict or "",
        "badge": wording.verdict(change),
    }


def _languages(dataset: DatasetResult, position: int) -> dict[str, Any]:
    return {
        "name": dataset.name,
        "count": wording.counted(len(dataset.languages), "language"),
        "grids": [
            {
                "title": f"{grid.comparison}, {grid.similarity}",
                "picture": picture(plots.heatmap(dataset.languages, grid, name=f"grid-{position}-{number}")),
                "wide": len(dataset.languages) > 6,
                **_grid_counts(grid, cells=len(dataset.languages) ** 2),
            }
            for number, grid in enumerate(dataset.grid)
        ],
    }


def _grid_counts(grid: GridComparison, *, cells: int) -> dict[str, Any]:
    marked = grid.verdicts is not None
    if grid.improved is None or grid.worsened is None:
        return {"counts": None, "marked": marked}
    by_z = None
    if grid.improved_z is not None and grid.worsened_z is not None:
        by_z = {"improved": wording.integer(grid.improved_z), "worsened": wording.integer(grid.worsened_z)}
    paired = {
        "improved": wording.integer(grid.improved),
        "worsened": wording.integer(grid.worsened),
        "neither": wording.integer(cells - grid.improved - grid.worsened),
        "cells": wording.integer(cells),
    }
    return {"counts": paired, "by_z": by_z, "marked": marked}


def _training(record: TrainingRecord) -> dict[str, Any]:
    share = 100 * record.trainable / record.parameters if record.parameters else 0.0
    facts = [
        ("trained on", record.trained_on),
        (
            "parameters updated",
            f"{wording.integer(record.trainable)} of {wording.integer(record.parameters)} ({share:.1f}{wording.NO_BREAK}%)",
        ),
        ("length", sentences.length(record)),
        ("kept", "the start: no epoch improved on it" if record.best_epoch == 0 else sentences.kept(record)),
        *(
            (name, f"{wording.score(points[0][1])} \N{RIGHTWARDS ARROW} {wording.score(dict(points)[record.best_epoch])}")
            for name, points in record.measures.items()
        ),
        ("ended because", record.stop_reason),
        ("operations", _operations(record)),
        ("time", wording.duration(record.seconds)),
    ]
    return {
        "title": record.kind.capitalize(),
        "period": sentences.period(record),
        "facts": [fact for fact in facts if fact[1]],
        "sentence": sentences.training_sentence(record),
        "notes": record.notes,
        "curves": [picture(curve) for curve in plots.curves(record)],
    }


def _operations(record: TrainingRecord) -> str:
    """Planned and spent, and what was really done; nothing of records of before anybody counted."""
    if not record.flops:
        return ""
    planned = f", {record.planned:.3g} planned" if record.planned else ""
    counted = f"; {record.operations:.3g} counted one by one" if record.operations else ""
    return f"{record.flops:.3g}{wording.NO_BREAK}FLOP by parameters and tokens{planned}{counted}"


def _example(example: ChangedQuery) -> dict[str, Any]:
    before, after = example.before, example.after
    return {
        "dataset": example.dataset,
        "query": _text(example.query, limit=QUERY_LENGTH),
        "first_relevant": f"{_first_relevant(before)} \N{RIGHTWARDS ARROW} {_first_relevant(after)}",
        "sides": [
            {"title": "Before", "hits": _hits(before, other=after, is_after=False)},
            {"title": "After", "hits": _hits(after, other=before, is_after=True)},
        ],
    }


def _first_relevant(hits: Sequence[Hit]) -> str:
    rank = next((rank for rank, hit in enumerate(hits, start=1) if hit.relevant), None)
    return f"none in top {len(hits)}" if rank is None else f"rank {rank}"


def _hits(hits: Sequence[Hit], *, other: Sequence[Hit], is_after: bool) -> list[dict[str, Any]]:
    ranks = {hit.doc_id: rank for rank, hit in enumerate(other, start=1)}
    shown = []
    for rank, hit in enumerate(hits, start=1):
        if rank > HITS_SHOWN and not hit.relevant:
            continue
        kind, words = _movement(rank, ranks.get(hit.doc_id), is_after=is_after)
        text = _text(hit.text, limit=DOCUMENT_LENGTH)
        shown.append(
            {
                "rank": rank,
                "doc_id": hit.doc_id,
                "text": text,
                "score": f"{hit.score:.3f}",
                "relevant": hit.relevant,
                "kind": kind,
                "moved": words,
            }
        )
    return shown


def _movement(rank: int, other_rank: int | None, *, is_after: bool) -> tuple[str, str]:
    """How a document moved between the two lists: a word for the style sheet, and words with a sign for people."""
    if other_rank is None:
        return ("in", "+ moved in") if is_after else ("out", "\N{MULTIPLICATION SIGN} moved out")
    if other_rank == rank:
        return "same", "= same rank"
    if not is_after:
        return "same", f"\N{RIGHTWARDS ARROW} now {other_rank}"
    return ("up", f"\N{UPWARDS ARROW} from {other_rank}") if rank < other_rank else ("down", f"\N{DOWNWARDS ARROW} from {other_rank}")


def _text(text: str, *, limit: int) -> dict[str, Any]:
    shown = wording.cut(text, limit=limit)
    return {"shown": shown, "length": wording.integer(len(text)) if len(text) >= TELL_LENGTH else None}


def _layers(layers: Sequence[LayerChange]) -> dict[str, Any]:
    by_relative = sorted(
        (layer for layer in layers if layer.relative is not None), key=lambda layer: (-(layer.relative or 0.0), layer.name)
    )
    by_largest = sorted(layers, key=lambda layer: (-abs(layer.largest_change), layer.name))[:LAYERS_SHOWN]
    top = by_relative[:LAYERS_SHOWN]
    return {
        "count": wording.counted(sum(layer.relative != 0 for layer in layers), "parameter tensor"),
        "shown": max(len(top), len(by_largest)),
        "bars": picture(plots.layer_bars(top)),
        "tables": [
            {"title": "By relative change", "rows": [_layer(layer) for layer in top]},
            {"title": "By change of the largest weight", "rows": [_layer(layer) for layer in by_largest]},
        ],
        "zero_before": wording.counted(len(layers) - len(by_relative), "tensor") if len(by_relative) < len(layers) else None,
    }


def _layer(layer: LayerChange) -> dict[str, str]:
    largest = [100 * layer.largest_change]
    return {
        "name": layer.name,
        "relative": wording.DASH if layer.relative is None else f"{wording.number(100 * layer.relative, digits=3)}{wording.NO_BREAK}%",
        "largest": f"{wording.number(layer.largest_before)} \N{RIGHTWARDS ARROW} {wording.number(layer.largest_after)}",
        "largest_change": wording.signed(largest[0], decimals=wording.decimals_for(largest, least=2, most=5)) + f"{wording.NO_BREAK}%",
    }


def _facts(result: Result) -> list[tuple[str, str]]:
    facts = [("model", result.model), ("baseline", result.baseline or ""), ("made", result.created), ("seed", str(result.seed))]
    facts.append(("time for measuring" if result.datasets else "time", wording.duration(result.seconds)))
    return [fact for fact in facts if fact[1]]


def _given(result: Result) -> list[dict[str, Any]]:
    """What the run was given, as far as the result holds it: inputs, settings, and those of the training where they are others."""
    tuned = {} if result.training is None else result.training.settings
    tables = [("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings or tuned)]
    if result.settings and tuned != result.settings:
        tables.append(("training-settings", "Settings of the training", tuned))
    return given(*tables)
