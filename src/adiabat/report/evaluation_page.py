"""The page of an evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from adiabat.core.text import NO_BREAK, counted, cut, integer
from adiabat.report import evaluation_headline as words
from adiabat.report import format as texts
from adiabat.report.captions import glossary, texts_of
from adiabat.report.chart_style import GOOD, MUTED
from adiabat.report.charts import NARROW, ForestRow, Line, Panel, curves, forest
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import (
    Examples,
    Figure,
    Group,
    HeatMap,
    Page,
    Sections,
    Terms,
    figure,
    group,
    notes_section,
)
from adiabat.report.power_section import assumptions, finding, power_section
from adiabat.report.tables import (
    Cell,
    ColumnKind,
    Contents,
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


_VALUE = f"value [95{NO_BREAK}%]"
_PAIRED = f"[paired 95{NO_BREAK}%]"
_TEXTS: Mapping[str, ColumnKind] = dict.fromkeys(("measure", "similarity", "verdict"), "text")
"""Columns of changes that hold no numbers."""


def _levels(change: Change) -> Contents:
    """The values before and after, or the only one with its interval."""
    if change.before is None:
        return {_VALUE: value_cell(change.after, change.after_interval)}
    return {"before": texts.score(change.before), "after": texts.score(change.after)}


def _cells(change: Change) -> Contents:
    """A change by the heads of its columns."""
    direction = "lower is better" if change.lower_is_better else "higher is better"
    return {
        "measure": Cell(change.measure, [direction]),
        **_levels(change),
        f"improvement {_PAIRED}": pair_cell(texts.percent(change)),
        f"difference {_PAIRED}": pair_cell(texts.difference(change)),
        "verdict": verdict_cell(change.verdict),
    }


def _cells_in_terminal(change: Change) -> Contents:
    """A change in fewer columns: the improvement, or the difference where there is no percentage."""
    cells: Contents = {"measure": change.measure, **_levels(change)}
    cells[f"change {_PAIRED}"] = texts.improvement(change)
    return cells | {"verdict": verdict_cell(change.verdict)}


def _all_cells(change: Change) -> Contents:
    """A change with all its intervals and tests."""
    # The main table has no room for the interval of a level.
    cells = _cells(change)
    if change.before is not None:
        cells["after"] = value_cell(change.after, change.after_interval)
    verdict = cells.pop("verdict")
    z = texts.if_known(change.z, partial(texts.signed, decimals=2))
    allowed, by_spread = texts.possible_losses(change)
    below = [f"by spread: {by_spread}"] if by_spread else []
    tests: Contents = {
        f"paired{NO_BREAK}p": texts.p_value(change),
        "z": z,
        "possible loss": Cell(allowed, below) if allowed else None,
        "verdict": verdict,
    }
    return {"measure": cells.pop("measure"), "similarity": change.similarity, **cells, **tests}


def _others(dataset: DatasetResult) -> list[Change]:
    """The reported measures by the main similarity beside the main one; PND only where it is the main one."""
    if dataset.kind == "grid":
        return []
    main, others = dataset.main_change(), []
    for change in dataset.changes:
        is_alike = change is not main and change.similarity == main.similarity
        if is_alike and not change.measure.startswith("PND"):
            others.append(change)
    return others


def _reported(
    datasets: Sequence[DatasetResult],
    about: Callable[[DatasetResult], Cell],
    cells: Callable[[Change], Contents],
    **options: Any,
) -> Table:
    """A row for each reported measure of each data set, the main one first; it alone has a verdict."""
    rows, styles = [], []
    for dataset in datasets:
        rows.append({"data set": about(dataset), **cells(dataset.main_change())})
        styles.append("")
        for change in _others(dataset):
            rows.append({"data set": Cell(""), **cells(change), "verdict": Cell("")})
            styles.append("muted")
    return Table.of(rows, _TEXTS, styles, **options)


def page(result: Result) -> Page:
    """The page of an evaluation."""
    datasets, training = result.datasets, result.training
    compared = _is_compared(result)
    sections: Sections = []
    if datasets:
        sections.append(_datasets(result, compared=compared))
    for position, dataset in enumerate(datasets):
        if dataset.ladder:
            sections.append(_by_negative(dataset, position))
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
        headline=words.headline(result),
        tone=words.tone(result),
        reservations=words.reservations(result),
    )


def _is_compared(result: Result) -> bool:
    """Whether any data set was measured beside a baseline."""
    return any(dataset.main_change().before is not None for dataset in result.datasets)


def terminal(result: Result) -> list[Table]:
    """A row for each reported measure of each data set, and a table of the parts of a set that has them."""
    powers = [f"Power of {finding(power)}" for power in result.power]
    title = cut(result.title, limit=200)
    tables = [_reported(result.datasets, _in_terminal, _cells_in_terminal, title=title)]
    for dataset in result.datasets:
        if dataset.parts:
            tables.append(_parts(dataset, _cells_in_terminal))
    caption = [words.headline(result), *powers, *assumptions(result.power)]
    tables[-1] = replace(tables[-1], caption=caption)
    return tables


def _in_terminal(dataset: DatasetResult) -> Cell:
    """The name of a data set with what is ranked for it."""
    candidates = ", listed candidates" if dataset.kind == "pairs" else ""
    return Cell(f"{dataset.role}: {dataset.name}{candidates}")


def notes(result: Result) -> list[str]:
    """Notes below a table in the terminal; a training run's notes were printed hours before an evaluation."""
    return words.caveats(result)


def _datasets(result: Result, *, compared: bool) -> Group:
    """All data sets: figure and tables of the reported measures, and all measures folded."""
    datasets = result.datasets
    reported, measures, notes, parts = [], [], [], []
    for dataset in datasets:
        reported += [change.measure for change in (dataset.main_change(), *_others(dataset))]
        measures.append(_changes(dataset.changes, cut(dataset.name, limit=120)))
        # Notes on equal towers stand among the reservations.
        notes.append((dataset.name, [note for note in dataset.notes if note not in result.equal_towers]))
        if dataset.parts:
            parts.append(_parts(dataset, _cells))
    sections = [
        measures_section(reported),
        _forest(datasets),
        _reported(datasets, _about, _cells, look="stack"),
        *parts,
        notes_section("Notes", notes, everyone="all data sets"),
        Group(id="all-measures", title="All measures", folded=True, sections=measures),
        Terms(terms=_terms(result, reported, compared=compared)),
    ]
    return replace(group("evaluation", "compared" if compared else "measured", *sections), id="datasets")


def _terms(result: Result, reported: Sequence[str], *, compared: bool) -> list[tuple[str, str]]:
    """Measures that are not reported at the top, and the columns of comparisons."""
    measures: list[str] = []
    for dataset in result.datasets:
        measures += [change.measure for change in dataset.changes]
    if result.training is not None:
        measures += result.training.measures
    terms = explained(name for name in measures if name not in reported)
    if compared:
        terms += glossary("evaluation")
        if any(dataset.grid for dataset in result.datasets):
            terms += glossary("language-grids")
    return terms


def _parts(dataset: DatasetResult, cells: Callable[[Change], Contents]) -> Table:
    """The main measure by what was trained on; the first part decides."""
    rows: list[Contents] = []
    for part in dataset.parts:
        below = [counted(part.queries, "query")]
        if part.above:
            below.append(f"{integer(part.above)} with a removed document above the first relevant one")
        rows.append({"part": Cell(part.name, below, bold=not rows), **cells(part.change)})
    told = texts_of("evaluation", "parts", name=cut(dataset.name, limit=120))
    return Table.of(rows, _TEXTS, look="stack", **told)


def _about(dataset: DatasetResult) -> Cell:
    """The name of a data set with its role, what is ranked, and its counts."""
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
    wide = forest("forest", rows, label="improvement of the main measure, % (right of zero is better)")
    narrow = forest("forest-narrow", rows, label="improvement, % (right is better)", narrow=True)
    return figure("evaluation", "forest", wide, narrow=narrow)


def _changes(changes: Sequence[Change], title: str) -> Table:
    """All measures of a data set."""
    return Table.of([_all_cells(change) for change in changes], _TEXTS, title=title)


def _by_negative(dataset: DatasetResult, position: int) -> Group:
    """PND by the number of the listed negative."""
    after, before = [], []
    for at, change in enumerate(dataset.ladder, start=1):
        after.append((float(at), change.after))
        if change.before is not None:
            before.append((float(at), change.before))
    lines = [Line(after, "after", GOOD, intervals=[change.after_interval for change in dataset.ladder])]
    if before:
        lines.insert(0, Line(before, "before", MUTED, "s"))
    panel = Panel(
        lines,
        "number of the negative in the list",
        "PND, queries in error",
        integers=True,
        from_zero=True,
        y_tick=texts.percent_tick,
    )
    wide = curves(f"ladder-{position}", [panel])
    narrow = curves(f"ladder-{position}-narrow", [panel], width=NARROW)
    table = replace(_changes(dataset.ladder, "Table"), folded=True)
    drawn = figure("evaluation", "ladder", wide, narrow=narrow)
    shown = group("evaluation", "negatives", drawn, table, name=cut(dataset.name, limit=120))
    return replace(shown, id=f"negatives-{position}")


def _languages(dataset: DatasetResult, position: int) -> Group:
    """The grids of a data set, side by side."""
    maps = [_heat_map(grid, dataset.languages) for grid in dataset.grid]
    name, count = cut(dataset.name, limit=120), len(dataset.languages)
    shown = group("evaluation", "languages", *maps, name=name, count=count)
    return replace(shown, id=f"languages-{position}", side_by_side=True)


def _heat_map(grid: GridComparison, languages: Sequence[str]) -> HeatMap:
    """Improvement of each pair of languages in percent, or its PND without a baseline."""
    compared = grid.improvement is not None
    # A missing improvement becomes NaN.
    values = np.array(grid.improvement if compared else grid.after, dtype=float)
    text = "{:.3f}".format
    if compared:
        # Three digits before the point leave no room for one behind it.
        decimals = 0 if np.nanmax(np.abs(values), initial=0.0) >= 100 else 1
        text = partial(texts.signed, decimals=decimals)
    return HeatMap(
        title=f"{grid.comparison}, {grid.similarity}",
        rows=languages,
        columns=languages,
        shades=values,
        text=text,
        compared=compared,
        marked=np.isin(grid.verdicts, ("better", "worse")) if grid.verdicts else None,
        counts=grid_counts(grid, cells=len(languages) ** 2),
        **texts_of("evaluation", "improvement" if compared else "level"),
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
    """The first queries whose results changed, with both lists."""
    shown = [_example(example) for example in examples[:EXAMPLES_SHOWN]]
    lists = Examples(examples=shown, query_length=QUERY_LENGTH, document_length=DOCUMENT_LENGTH)
    counts = {"shown": len(shown), "total": len(examples), "hits_shown": HITS_SHOWN}
    return group("evaluation", "examples", lists, **counts)


def _example(example: ChangedQuery) -> dict[str, Any]:
    """What the template needs of a query."""
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
    """The rank of the first relevant document in words."""
    for rank, hit in enumerate(hits, start=1):
        if hit.relevant:
            return f"rank {rank}"
    return f"none in top {len(hits)}"


def _hits(hits: Sequence[Hit], *, other: Sequence[Hit], is_after: bool) -> list[dict[str, Any]]:
    """The first hits of a list and all relevant ones, each with its movement between the lists."""
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
