"""The page of an evaluation, and of a training run."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from adiabat.core.text import DASH, NO_BREAK, counted, cut, duration, integer
from adiabat.report import evaluation_headline as sentences
from adiabat.report import format as texts
from adiabat.report.chart_style import GOOD, MUTED
from adiabat.report.charts import WIDE, ForestRow, Line, Panel, curves, forest
from adiabat.report.page import Examples, Figure, Group, HeatMap, Notes, Page, Terms, gathered, heat_cells
from adiabat.report.tables import Cell, Column, Section, Table
from adiabat.report.training_sections import layers_of, training_of
from adiabat.results.evaluation_result import Change, ChangedQuery, DatasetResult, GridComparison, Hit, Result, TrainingRecord

EXAMPLES_SHOWN = 10
HITS_SHOWN = 5
"""Of each list of hits; relevant ones further down are shown as well."""
QUERY_LENGTH = 400
DOCUMENT_LENGTH = 180
COUNTED_LENGTH = 2000
"""Characters of a text from which a cut also states the whole length."""

_ARROW = "\N{RIGHTWARDS ARROW}"
_ROLES = {"target": "target", "retain": "retention"}
_KINDS = {"ranking": "whole store ranked", "pairs": "listed candidates", "grid": "language grid"}

PND = (
    "PND, positive–negative discrepancy",
    "For one query, the share of (relevant, irrelevant) document pairs in which the relevant document is not strictly closer than the "
    "irrelevant one; ties count as errors. 0 is perfect, 0.5 is chance. “PND” is the mean over queries; “PND pooled” counts all pairs "
    "together, so queries with many pairs weigh more.",
)
_COMPARED = [
    ("Improvement", "The change relative to the baseline, in percent; right of zero is always good. The difference is after − before."),
    (
        "The paired interval and the verdict",
        f"Both models answer the same queries. The interval is the paired 95{NO_BREAK}% bootstrap interval over queries (BCa); p is that "
        "of exchanging before and after at random, query by query. Interval above zero (as improvement) and p below 0.05: better. Below "
        "and p below 0.05: worse. Otherwise: no evidence, which is not proof of equality; the interval bounds the change. Where fewer "
        "than six queries changed, p cannot fall below 0.05.",
    ),
    (
        "z, the two-proportion test",
        "Compares two error shares of “PND pooled” as if all pairs were independent; beyond ±1.96 it calls a change significant. The "
        "pairs share queries, so it may be too bold or too timid. It is shown for comparison with published tables; the paired answer "
        "comes first.",
    ),
]
_GRIDS = (
    "Language grids",
    "With hundreds of language pairs some would look changed by luck alone. The paired verdicts of the cells are corrected over the "
    f"whole grid (Benjamini–Hochberg at 5{NO_BREAK}%); counts by the z-test are not.",
)


def page(result: Result) -> Page:
    """The page of an evaluation or a training run."""
    compared = any(dataset.main_change().before is not None for dataset in result.datasets)
    about = [("model", result.model), ("compared with", result.baseline or "")]
    sections: list[Section | None] = [_datasets(result, compared=compared) if result.datasets else None]
    for position, dataset in enumerate(result.datasets):
        if dataset.ladder:
            sections.append(_by_negative(dataset, position, compared=compared))
    sections += [_languages(dataset, position) for position, dataset in enumerate(result.datasets) if dataset.grid and dataset.languages]
    sections.append(_examples(result.examples) if result.examples else None)
    if result.training is not None:
        sections += [training_of(result.training, measured=bool(result.datasets)), layers_of(result.training.layers)]
    return Page(
        record=result,
        name="report",
        headline=sentences.headline(result),
        tone=sentences.tone(result),
        reservations=sentences.reservations(result),
        about=[fact for fact in about if fact[1]],
        sections=sections,
        facts=[
            *(("model", result.model), ("baseline", result.baseline or ""), ("made", result.created), ("seed", str(result.seed))),
            ("time for measuring" if result.datasets else "time", duration(result.seconds)),
        ],
        tables=_settings(result),
    )


def terminal(result: Result) -> list[Table]:
    """One row per data set by its main measure; for a training run alone, one row per validation figure."""
    title, caption = cut(result.title, limit=200), [sentences.headline(result)]
    if not result.datasets and result.training is not None:
        return [_validation(result.training, title=title, caption=caption)]
    changes = [dataset.main_change() for dataset in result.datasets]
    heads = [
        Column("data set", lambda row: f"{row.role}: {row.name}{', listed candidates' * (row.kind == 'pairs')}", "name"),
        Column("measure", lambda row: row.main),
    ]
    if any(change.before is not None for change in changes):
        columns = [
            Column("before", lambda row: _before(row.main_change()), "number"),
            Column("after", lambda row: texts.score(row.main_change().after), "number"),
            Column("change [paired 95 %]", lambda row: texts.improvement(row.main_change()), "number"),
            Column("verdict", lambda row: _badge(row.main_change())),
        ]
    else:
        columns = [
            Column("value", lambda row: texts.score(row.main_change().after), "number"),
            Column("95 % interval", lambda row: texts.value_interval(row.main_change()), "number"),
        ]
    return [Table(title=title, columns=[*heads, *columns], rows=result.datasets, caption=caption)]


def _validation(record: TrainingRecord, *, title: str, caption: Sequence[str]) -> Table:
    """Losses, errors and further figures of the validation, at the start and of the weights that are the result."""
    best = record.best_epoch
    losses, errors = dict(record.validation_loss), dict(record.validation_errors)
    of = f" of {integer(record.validation_pairs)} {record.unit}" if record.validation_pairs else ""
    rows = [("loss", texts.number(losses[0]), texts.number(losses[best]))] if {0, best} <= losses.keys() else []
    rows += [(f"errors{of}", integer(errors[0]), integer(errors[best]))] if {0, best} <= errors.keys() else []
    rows += [(name, texts.score(points[0][1]), texts.score(dict(points)[best])) for name, points in record.measures.items()]
    heads = ("validation", "start", f"kept ({sentences.kept(record)})")
    columns = [Column(head, itemgetter(at), "number" if at else "text") for at, head in enumerate(heads)]
    return Table(title=title, columns=columns, rows=rows, caption=caption)


def _before(change: Change) -> str:
    return DASH if change.before is None else texts.score(change.before)


def _badge(change: Change) -> Cell:
    tone = (change.verdict or "").replace(" ", "-")
    return Cell(texts.verdict(change), tone=tone, badge=bool(tone))


def _improvement(change: Change) -> Cell:
    shown = texts.improvement(change, with_interval=False) if change.improvement is not None else DASH
    return Cell(shown, [texts.improvement_interval(change)])


def _difference(change: Change) -> Cell:
    return Cell(texts.difference(change, with_interval=False), [texts.difference_interval(change)])


def _measure(change: Change) -> Cell:
    return Cell(change.measure, ["lower is better" if change.lower_is_better else "higher is better"])


def _datasets(result: Result, *, compared: bool) -> Group:
    datasets = result.datasets
    paired = [f"[paired 95{NO_BREAK}%]"]
    columns = [Column("data set", _about, "name"), Column("measure", lambda row: _measure(row.main_change()))]
    if compared:
        columns += [
            Column("before", lambda row: _before(row.main_change()), "number"),
            Column("after", lambda row: texts.score(row.main_change().after), "number"),
            Column("improvement", lambda row: _improvement(row.main_change()), "number", paired),
            Column("difference", lambda row: _difference(row.main_change()), "number", paired),
            Column("verdict", lambda row: _badge(row.main_change())),
        ]
        lead = (
            f"One main measure per data set, before and after on the same queries. Intervals are paired 95{NO_BREAK}% bootstrap "
            "intervals over queries; they carry the verdict. The z-test comes second: it stands under “All measures”."
        )
    else:
        columns += [
            Column("value", lambda row: texts.score(row.main_change().after), "number"),
            Column("95 % interval", lambda row: texts.value_interval(row.main_change()), "number"),
        ]
        lead = f"One main measure per data set with its 95{NO_BREAK}% bootstrap interval over queries. There is no baseline."
    notes = gathered([(dataset.name, dataset.notes) for dataset in datasets], every="all data sets")
    has_grid = any(dataset.grid and dataset.languages for dataset in datasets)
    return Group(
        id="datasets",
        title="What changed" if compared else "What was measured",
        lead=lead,
        sections=[
            _forest(datasets),
            Table(columns=columns, rows=datasets, look="stack"),
            Notes(notes=notes) if notes else None,
            Group(
                id="all-measures",
                title="All measures",
                folded=True,
                sections=[_changes(dataset.changes, cut(dataset.name, limit=120), compared=compared) for dataset in datasets],
            ),
            Terms(terms=[PND, *(_COMPARED if compared else []), *([_GRIDS] if has_grid and compared else [])]),
        ],
    )


def _about(dataset: DatasetResult) -> Cell:
    counts = [counted(dataset.queries, "query"), counted(dataset.documents, "document")]
    counts += [counted(dataset.pairs, "pair")] if dataset.pairs else []
    name = cut(dataset.name, limit=120)
    return Cell(name, [_KINDS[dataset.kind], ", ".join(counts)], bold=True, tag=_ROLES[dataset.role])


def _forest(datasets: Sequence[DatasetResult]) -> Figure | None:
    """Improvement of each main measure with its paired interval; None where no data set has both."""
    rows = [
        ForestRow(
            label=cut(f"{dataset.name} \N{MIDDLE DOT} {dataset.main}", limit=44),
            value=change.improvement,
            interval=change.improvement_interval,
            verdict=change.verdict,
            text=texts.improvement(change),
            main=dataset.role == "target",
        )
        for dataset in datasets
        if (change := dataset.main_change()).improvement is not None and change.improvement_interval is not None
    ]
    if not rows:
        return None
    return Figure(
        charts=[forest("forest", rows, label="improvement of the main measure, % (right of zero is better)")],
        narrow=forest("forest-narrow", rows, label="improvement, % (right is better)", narrow=True),
        label="Improvement of each data set with its paired 95 percent interval; the table below holds the numbers",
        caption="Filled: the verdict is better or worse. Open: no evidence, though the interval may exclude zero where fewer than six "
        "queries changed. Diamond: target. Circle: retention set.",
    )


def _changes(changes: Sequence[Change], title: str = "", *, compared: bool) -> Table:
    """All measures of a data set."""
    paired = [f"[paired 95{NO_BREAK}%]"]
    after = Column(
        "after" if compared else "value",
        lambda row: Cell(texts.score(row.after), [texts.value_interval(row)]),
        "number",
        [f"[95{NO_BREAK}%]"],
    )
    columns = [Column("measure", _measure), Column("similarity", lambda row: row.similarity)]
    if compared:
        columns.append(Column("before", _before, "number"))
    columns.append(after)
    if compared:
        columns += [
            Column("improvement", _improvement, "number", paired),
            Column("difference", _difference, "number", paired),
            Column(f"paired{NO_BREAK}p", texts.p_value, "number"),
            Column("z", texts.z_value, "number"),
            Column("verdict", _badge),
        ]
    return Table(title=title, columns=columns, rows=changes)


def _by_negative(dataset: DatasetResult, position: int, *, compared: bool) -> Group:
    """PND by the number of the listed negative."""

    def line(label: str, colour: str, values: Sequence[float | None], intervals: Sequence[tuple[float, float] | None] = ()) -> Line:
        points = [(float(at), None if value is None else 100 * value) for at, value in enumerate(values, start=1)]
        ends = [None if bounds is None else (100 * bounds[0], 100 * bounds[1]) for bounds in intervals]
        return Line(points, label, colour, "s" if colour == MUTED else "o", intervals=ends)

    changes = dataset.ladder
    after = line("after", GOOD, [change.after for change in changes], [change.after_interval for change in changes])
    before = [line("before", MUTED, [change.before for change in changes])] if all(change.before is not None for change in changes) else []
    panel = Panel([*before, after], "number of the negative in the list", "PND, % of queries in error", whole=True, from_zero=True)
    return Group(
        id=f"negatives-{position}",
        title=f"Errors by listed negative: {cut(dataset.name, limit=120)}",
        lead="The share of queries whose relevant document is not strictly closer than the negative that they list first, second, and so "
        "on: a curve from hard to easy where the data is so ordered.",
        sections=[
            Figure(
                charts=[curves(f"ladder-{position}", [panel], width=WIDE)],
                label="PND by the number of the listed negative; the table below holds the numbers",
                caption=f"Vertical lines: 95{NO_BREAK}% intervals{' of the values after' if compared else ''}.",
            ),
            Group(title="Table", folded=True, sections=[_changes(changes, compared=compared)]),
        ],
    )


def _languages(dataset: DatasetResult, position: int) -> Group:
    count = counted(len(dataset.languages), "language")
    return Group(
        id=f"languages-{position}",
        title=f"Languages: {cut(dataset.name, limit=120)}",
        lead=f"{count}; a row is the language of the query, a column that of the document.",
        sections=[_heat_map(grid, dataset.languages) for grid in dataset.grid],
        side_by_side=True,
    )


def _heat_map(grid: GridComparison, languages: Sequence[str]) -> HeatMap:
    """Improvement of each pair of languages in percent, or its PND where there is no baseline."""
    compared = grid.improvement is not None
    values = np.array(grid.improvement if grid.improvement is not None else grid.after, dtype=float)
    verdicts = grid.verdicts or [["no evidence"] * len(languages)] * len(languages)
    what = "Improvement of PND in percent: blue is better, orange is worse." if compared else "PND: lower is better."
    dots = " A dot marks a cell whose paired verdict is better or worse after correction." if grid.verdicts is not None else ""
    large = compared and float(np.nanmax(np.abs(values), initial=0.0)) >= 100
    return HeatMap(
        title=f"{grid.comparison}, {grid.similarity}",
        rows=languages,
        columns=languages,
        cells=heat_cells(
            values, np.array(verdicts) != "no evidence", among=values, compared=compared, decimals=(0 if large else 1) if compared else 3
        ),
        lines=grid_counts(grid, cells=len(languages) ** 2),
        caption=f"{what}{dots}",
    )


def grid_counts(grid: GridComparison, *, cells: int) -> list[str]:
    """How many cells of a language grid improved and worsened."""
    if grid.improved is None or grid.worsened is None:
        return []
    neither = integer(cells - grid.improved - grid.worsened)
    lines = [f"paired: {integer(grid.improved)} better, {integer(grid.worsened)} worse, {neither} no evidence, of {integer(cells)}"]
    if grid.improved_z is not None and grid.worsened_z is not None:
        lines.append(f"z-test: {integer(grid.improved_z)} better, {integer(grid.worsened_z)} worse")
    return lines


def _examples(examples: Sequence[ChangedQuery]) -> Group:
    more = max(0, len(examples) - EXAMPLES_SHOWN)
    return Group(
        id="examples",
        title="Queries whose top results changed",
        lead=f"The first {HITS_SHOWN} results and any relevant one further down, with the ranks of the other list. ✓ marks known relevant "
        f"documents. Queries are cut after {QUERY_LENGTH} characters and documents after {DOCUMENT_LENGTH} (…)."
        f"{f' {more} more are in result.json.' if more else ''}",
        sections=[Examples(examples=[_example(example) for example in examples[:EXAMPLES_SHOWN]])],
    )


def _example(example: ChangedQuery) -> dict[str, Any]:
    before, after = example.before, example.after
    return {
        "dataset": example.dataset,
        "query": _text(example.query, limit=QUERY_LENGTH),
        "first_relevant": f"{_first_relevant(before)} {_ARROW} {_first_relevant(after)}",
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
        if rank <= HITS_SHOWN or hit.relevant:
            kind, moved = _movement(rank, ranks.get(hit.doc_id), is_after=is_after)
            text = _text(hit.text, limit=DOCUMENT_LENGTH)
            entry = {"rank": rank, "doc_id": hit.doc_id, "text": text, "score": f"{hit.score:.3f}", "relevant": hit.relevant}
            shown.append({**entry, "kind": kind, "moved": moved})
    return shown


def _movement(rank: int, other_rank: int | None, *, is_after: bool) -> tuple[str, str]:
    """How a document moved between the two lists: a word for the style sheet, and words with a sign for people."""
    if other_rank is None:
        return ("in", "+ moved in") if is_after else ("out", "\N{MULTIPLICATION SIGN} moved out")
    if other_rank == rank:
        return "same", "= same rank"
    if not is_after:
        return "same", f"{_ARROW} now {other_rank}"
    return ("up", f"\N{UPWARDS ARROW} from {other_rank}") if rank < other_rank else ("down", f"\N{DOWNWARDS ARROW} from {other_rank}")


def _text(text: str, *, limit: int) -> dict[str, Any]:
    return {"shown": cut(text, limit=limit), "length": integer(len(text)) if len(text) >= COUNTED_LENGTH else None}


def _settings(result: Result) -> list[tuple[str, str, dict[str, Any]]]:
    """Inputs, settings, and those of the training where they are others."""
    trained = {} if result.training is None else result.training.settings
    tables = [("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings or trained)]
    if result.settings and trained != result.settings:
        tables.append(("training-settings", "Settings of the training", trained))
    return tables
