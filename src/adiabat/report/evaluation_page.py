"""The page of an evaluation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from adiabat.core.text import NO_BREAK, counted, cut, integer
from adiabat.report import evaluation_headline as sentences
from adiabat.report import format as texts
from adiabat.report.captions import glossary, text_of
from adiabat.report.chart_style import GOOD, MUTED
from adiabat.report.charts import NARROW, ForestRow, Line, Panel, curves, forest
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import Examples, Figure, Group, HeatMap, Page, Terms, notes_section
from adiabat.report.power_section import assumptions, finding, power_section
from adiabat.report.tables import (
    LEVEL,
    PAIRED,
    Cell,
    Column,
    Content,
    Section,
    Table,
    pair_cell,
    value_cell,
    verdict_cell,
)
from adiabat.report.training_page import layers_of, page_of, training_of
from adiabat.results.evaluation_result import Change, ChangedQuery, DatasetResult, GridComparison, Hit, Result

EXAMPLES_SHOWN = 10
HITS_SHOWN = 5
"""Number of hits shown in each list; relevant ones further down are shown as well."""
QUERY_LENGTH = 400
DOCUMENT_LENGTH = 180

_ARROW = "\N{RIGHTWARDS ARROW}"
_ROLES = {"target": "target", "retain": "retention"}
_KINDS = {"ranking": "whole store ranked", "pairs": "listed candidates", "grid": "language grid"}


_COLUMNS = {
    "measure": Column("measure"),
    "measure, with direction": Column("measure"),
    "similarity": Column("similarity"),
    "before": Column("before", "number"),
    "after": Column("after", "number"),
    "after, with interval": Column("after", "number", LEVEL),
    "value": Column("value", "number", LEVEL),
    "change": Column(f"change [paired 95{NO_BREAK}%]", "number"),
    "improvement": Column("improvement", "number", PAIRED),
    "difference": Column("difference", "number", PAIRED),
    "p": Column(f"paired{NO_BREAK}p", "number"),
    "z": Column("z", "number"),
    "verdict": Column("verdict"),
}
"""Columns of tables of changes."""


def _columns(names: Sequence[str]) -> list[Column]:
    return [_COLUMNS[name] for name in names]


def _cells(change: Change, names: Sequence[str], *, decides: bool = True) -> list[Content]:
    """The cells of a change in the columns of these names; only the measure that decides has a verdict."""
    direction = "lower is better" if change.lower_is_better else "higher is better"
    after = value_cell(change.after, change.after_interval)
    cells: dict[str, Content] = {
        "measure": change.measure,
        "measure, with direction": Cell(change.measure, [direction]),
        "similarity": change.similarity,
        "before": None if change.before is None else texts.score(change.before),
        "after": texts.score(change.after),
        "after, with interval": after,
        "value": after,
        "change": texts.improvement(change),
        "improvement": pair_cell(texts.percent(change)),
        "difference": pair_cell(texts.difference(change)),
        "p": texts.p_value(change),
        "z": None if change.z is None else texts.signed(change.z, decimals=2),
        "verdict": verdict_cell(change.verdict) if decides else Cell(""),
    }
    return [cells[name] for name in names]


def _others(dataset: DatasetResult) -> list[Change]:
    """The reported measures by the main similarity beside the main one; PND only where it is the main one."""
    if dataset.kind == "grid":
        return []
    main, others = dataset.main_change(), []
    for change in dataset.changes:
        if (
            change is not main
            and change.similarity == main.similarity
            and not change.measure.startswith("PND")
        ):
            others.append(change)
    return others


def _reported(
    datasets: Sequence[DatasetResult],
    names: Sequence[str],
    about: Callable[[DatasetResult], Cell],
    **options: Any,
) -> Table:
    """A row for each reported measure of each data set, the main one first."""
    table = Table(columns=[Column("data set", "name"), *_columns(names)], **options)
    for dataset in datasets:
        table.add(about(dataset), *_cells(dataset.main_change(), names))
        for change in _others(dataset):
            table.add(Cell(""), *_cells(change, names, decides=False), style="muted")
    return table


def page(result: Result) -> Page:
    """The page of an evaluation."""
    datasets, training = result.datasets, result.training
    compared = _is_compared(result)
    sections: list[Section | None] = []
    if datasets:
        sections.append(_datasets(result, compared=compared))
    for position, dataset in enumerate(datasets):
        if dataset.ladder:
            sections.append(_by_negative(dataset, position, compared=compared))
    for position, dataset in enumerate(datasets):
        if dataset.grid and dataset.languages:
            sections.append(_languages(dataset, position))
    sections.append(power_section(result.power))
    if result.examples:
        sections.append(_examples(result.examples))
    if training is not None:
        sections += [training_of(training, measured=True), layers_of(training.layers)]
    return page_of(
        result,
        sections,
        headline=sentences.headline(result),
        tone=sentences.tone(result),
        reservations=sentences.reservations(result),
    )


def _is_compared(result: Result) -> bool:
    return any(dataset.main_change().before is not None for dataset in result.datasets)


def terminal(result: Result) -> list[Table]:
    """A row for each reported measure of each data set."""
    powers = [f"Power of {finding(power)}" for power in result.power]
    caption = [sentences.headline(result), *powers, *assumptions(result.power)]
    names = ["before", "after", "change", "verdict"] if _is_compared(result) else ["value"]
    return [
        _reported(
            result.datasets,
            ["measure", *names],
            _in_terminal,
            title=cut(result.title, limit=200),
            caption=caption,
        )
    ]


def _in_terminal(dataset: DatasetResult) -> Cell:
    candidates = ", listed candidates" if dataset.kind == "pairs" else ""
    return Cell(f"{dataset.role}: {dataset.name}{candidates}")


def notes(result: Result) -> list[str]:
    """Notes below a table in the terminal; a training run's notes were printed hours before an evaluation."""
    sentence = sentences.cells_over_runs(result)
    return [*sentences.caveats(result), *([sentence] if sentence else [])]


def _datasets(result: Result, *, compared: bool) -> Group:
    datasets = result.datasets
    if compared:
        names = ["measure, with direction", "before", "after", "improvement", "difference", "verdict"]
        lead = text_of("evaluation", "datasets-2")
    else:
        names = ["measure, with direction", "value"]
        lead = text_of("evaluation", "datasets")
    shown = []
    for dataset in datasets:
        shown += [change.measure for change in (dataset.main_change(), *_others(dataset))]
    changed = _reported(datasets, names, _about, look="stack")
    sections: list[Section | None] = [measures_section(shown), _forest(datasets), changed]
    sections += [_parts(dataset, names) for dataset in datasets if dataset.parts]
    notes = [
        (dataset.name, [note for note in dataset.notes if note not in result.equal_towers])
        for dataset in datasets
    ]
    sections.append(notes_section("Notes", notes, everyone="all data sets"))
    measures = [
        _changes(dataset.changes, cut(dataset.name, limit=120), compared=compared) for dataset in datasets
    ]
    sections.append(Group(id="all-measures", title="All measures", folded=True, sections=measures))
    sections.append(Terms(terms=_terms(result, shown, compared=compared)))
    title = "What changed" if compared else "What was measured"
    return Group(id="datasets", title=title, lead=lead, sections=sections)


def _terms(result: Result, shown: Sequence[str], *, compared: bool) -> list[tuple[str, str]]:
    """Measures that are not shown at the top, and the columns of comparisons."""
    measures: list[str] = []
    for dataset in result.datasets:
        measures += [change.measure for change in dataset.changes]
    if result.training is not None:
        measures += result.training.measures
    terms = explained(name for name in measures if name not in shown)
    if compared:
        terms += glossary("evaluation")
        if any(dataset.grid and dataset.languages for dataset in result.datasets):
            terms += glossary("language-grids")
    return terms


def _parts(dataset: DatasetResult, names: Sequence[str]) -> Table:
    """The main measure by what was trained on; the first part decides."""
    title = f"{cut(dataset.name, limit=120)}: queries with new and with seen documents"
    columns = [Column("part", "name"), *_columns(names)]
    table = Table(title=title, columns=columns, look="stack", caption=["The first part decides."])
    for part in dataset.parts:
        name = Cell(part.name, [counted(part.queries, "query")], bold=part is dataset.parts[0])
        table.add(name, *_cells(part.change, names))
    return table


def _about(dataset: DatasetResult) -> Cell:
    counts = [counted(dataset.queries, "query"), counted(dataset.documents, "document")]
    if dataset.clusters:
        counts.append(counted(dataset.clusters, "cluster"))
    # Only PND counts pairs.
    if dataset.pairs and dataset.main.startswith("PND"):
        counts.append(counted(dataset.pairs, "pair"))
    name = cut(dataset.name, limit=120)
    return Cell(name, [_KINDS[dataset.kind], ", ".join(counts)], bold=True, tag=_ROLES[dataset.role])


def _forest(datasets: Sequence[DatasetResult]) -> Figure | None:
    """Improvement of each main measure with its paired interval; None if no data set has both."""
    rows = []
    for dataset in datasets:
        change = dataset.main_change()
        if change.improvement is not None and change.improvement_interval is not None:
            row = ForestRow(
                label=cut(f"{dataset.name} \N{MIDDLE DOT} {dataset.main}", limit=44),
                value=change.improvement,
                interval=change.improvement_interval,
                verdict=change.verdict,
                text=texts.improvement(change),
                main=dataset.role == "target",
            )
            rows.append(row)
    if not rows:
        return None
    return Figure(
        charts=[forest("forest", rows, label="improvement of the main measure, % (right of zero is better)")],
        narrow=forest("forest-narrow", rows, label="improvement, % (right is better)", narrow=True),
        label=text_of("evaluation", "forest-label"),
        caption=text_of("evaluation", "forest-caption"),
    )


def _changes(changes: Sequence[Change], title: str = "", *, compared: bool) -> Table:
    """All measures of a data set."""
    names = ["measure, with direction", "similarity", "value"]
    if compared:
        names[2:] = ["before", "after, with interval", "improvement", "difference", "p", "z", "verdict"]
    table = Table(title=title, columns=_columns(names))
    for change in changes:
        table.add(*_cells(change, names))
    return table


def _by_negative(dataset: DatasetResult, position: int, *, compared: bool) -> Group:
    """PND by the number of the listed negative."""
    after, before = [], []
    for at, change in enumerate(dataset.ladder, start=1):
        after.append((float(at), change.after))
        if change.before is not None:
            before.append((float(at), change.before))
    lines = [Line(after, "after", GOOD, intervals=[change.after_interval for change in dataset.ladder])]
    if len(before) == len(after):
        lines.insert(0, Line(before, "before", MUTED, "s"))
    panel = Panel(
        lines,
        "number of the negative in the list",
        "PND, queries in error",
        integers=True,
        from_zero=True,
        y_tick=texts.percent_tick,
    )
    of = " of the values after" if compared else ""
    figure = Figure(
        charts=[curves(f"ladder-{position}", [panel])],
        narrow=curves(f"ladder-{position}-narrow", [panel], width=NARROW),
        label=text_of("evaluation", "by-negative-label"),
        caption=f"Vertical lines: 95{NO_BREAK}% intervals{of}.",
    )
    return Group(
        id=f"negatives-{position}",
        title=f"Errors by listed negative: {cut(dataset.name, limit=120)}",
        lead=text_of("evaluation", "by-negative"),
        sections=[
            figure,
            Group(title="Table", folded=True, sections=[_changes(dataset.ladder, compared=compared)]),
        ],
    )


def _languages(dataset: DatasetResult, position: int) -> Group:
    count = counted(len(dataset.languages), "language")
    return Group(
        id=f"languages-{position}",
        title=f"Languages: {cut(dataset.name, limit=120)}",
        lead=f"{count}; rows are query languages, columns document languages.",
        sections=[_heat_map(grid, dataset.languages) for grid in dataset.grid],
        side_by_side=True,
    )


def _heat_map(grid: GridComparison, languages: Sequence[str]) -> HeatMap:
    """Improvement of each pair of languages in percent, or its PND without a baseline."""
    if grid.improvement is None:
        compared, values = False, np.array(grid.after, dtype=float)
        caption, text = "PND: lower is better.", "{:.3f}".format
    else:
        compared, values = True, np.array(grid.improvement, dtype=float)
        caption = "Improvement of PND in percent: blue is better, orange is worse."
        # Three digits before the point leave no room for one behind it.
        decimals = 0 if np.nanmax(np.abs(values), initial=0.0) >= 100 else 1
        text = partial(texts.signed, decimals=decimals)
    marked = None
    if grid.verdicts is not None:
        marked = np.isin(grid.verdicts, ("better", "worse"))
        caption += " A dot marks a cell whose paired verdict is better or worse after correction."
    return HeatMap(
        title=f"{grid.comparison}, {grid.similarity}",
        rows=languages,
        columns=languages,
        shades=values,
        text=text,
        compared=compared,
        marked=marked,
        counts=grid_counts(grid, cells=len(languages) ** 2),
        caption=caption,
    )


def grid_counts(grid: GridComparison, *, cells: int) -> list[str]:
    """Numbers of improved and worsened cells of a language grid."""
    if grid.improved is None or grid.worsened is None:
        return []
    kept = grid.not_worse or 0
    undecided = cells - grid.improved - grid.worsened - kept
    counts = {"better": grid.improved, "worse": grid.worsened, "not worse": kept, "undecided": undecided}
    paired = ", ".join(f"{integer(count)} {verdict}" for verdict, count in counts.items())
    lines = [f"paired: {paired}, of {integer(cells)}"]
    if grid.improved_z is not None and grid.worsened_z is not None:
        lines.append(f"z-test: {integer(grid.improved_z)} better, {integer(grid.worsened_z)} worse")
    return lines


def _examples(examples: Sequence[ChangedQuery]) -> Group:
    hidden = len(examples) - EXAMPLES_SHOWN
    more = f" {hidden} more are in result.json." if hidden > 0 else ""
    lead = text_of(
        "evaluation",
        "examples",
        hits_shown=HITS_SHOWN,
        query_length=QUERY_LENGTH,
        document_length=DOCUMENT_LENGTH,
        more=more,
    )
    shown = Examples(
        examples=[_example(example) for example in examples[:EXAMPLES_SHOWN]],
        query_length=QUERY_LENGTH,
        document_length=DOCUMENT_LENGTH,
    )
    return Group(id="examples", title="Queries whose top results changed", lead=lead, sections=[shown])


def _example(example: ChangedQuery) -> dict[str, Any]:
    before, after = example.before, example.after
    return {
        "dataset": example.dataset,
        "query": example.query,
        "first_relevant": f"{_first_relevant(before)} {_ARROW} {_first_relevant(after)}",
        "sides": {
            "Before": _hits(before, other=after, is_after=False),
            "After": _hits(after, other=before, is_after=True),
        },
    }


def _first_relevant(hits: Sequence[Hit]) -> str:
    for rank, hit in enumerate(hits, start=1):
        if hit.relevant:
            return f"rank {rank}"
    return f"none in top {len(hits)}"


def _hits(hits: Sequence[Hit], *, other: Sequence[Hit], is_after: bool) -> list[dict[str, Any]]:
    others = {hit.doc_id: rank for rank, hit in enumerate(other, start=1)}
    entries = []
    for rank, hit in enumerate(hits, start=1):
        if rank <= HITS_SHOWN or hit.relevant:
            moved = _movement(rank, others.get(hit.doc_id), is_after=is_after)
            entries.append({"rank": rank, "hit": hit, "moved": moved})
    return entries


def _movement(rank: int, other_rank: int | None, *, is_after: bool) -> tuple[str, str]:
    """Movement of a document between the two lists: a CSS class, and words with a sign."""
    if other_rank is None:
        return ("in", "+ moved in") if is_after else ("out", "\N{MULTIPLICATION SIGN} moved out")
    if other_rank == rank:
        return "same", "= same rank"
    if not is_after:
        return "same", f"{_ARROW} now {other_rank}"
    if rank < other_rank:
        return "up", f"\N{UPWARDS ARROW} from {other_rank}"
    return "down", f"\N{DOWNWARDS ARROW} from {other_rank}"
