"""The page of an evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from adiabat.core.text import DASH, NO_BREAK, counted, cut, integer
from adiabat.report import evaluation_headline as sentences
from adiabat.report import format as texts
from adiabat.report.chart_style import GOOD, MUTED
from adiabat.report.charts import NARROW, ForestRow, Line, Panel, curves, forest
from adiabat.report.computed_tables import Column, Table
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import Examples, Figure, Group, HeatMap, Page, Terms, notes_section
from adiabat.report.power_section import assumptions, power_section
from adiabat.report.tables import LEVEL, PAIRED, Cell, Section, pair_cell, value_cell, verdict_cell
from adiabat.report.training_page import layers_of, page_of, training_of
from adiabat.results.evaluation_result import (
    Change,
    ChangedQuery,
    DatasetResult,
    GridComparison,
    Hit,
    Part,
    Result,
)

EXAMPLES_SHOWN = 10
HITS_SHOWN = 5
"""Number of hits shown in each list; relevant ones further down are shown as well."""
QUERY_LENGTH = 400
DOCUMENT_LENGTH = 180
COUNTED_LENGTH = 2000
"""Length from which a truncated text also states its whole length."""

_ARROW = "\N{RIGHTWARDS ARROW}"
_ROLES = {"target": "target", "retain": "retention"}
_KINDS = {"ranking": "whole store ranked", "pairs": "listed candidates", "grid": "language grid"}

_COMPARED = [
    (
        "Improvement",
        "The change relative to the baseline, in percent; right of zero is "
        "good. The difference is after − before.",
    ),
    (
        "The paired interval and the verdict",
        f"Both models answer the same queries. The interval is the paired 95{NO_BREAK}% "
        "BCa bootstrap interval over queries; p comes from "
        "swapping before and after at random, query by query. Queries that share relevant "
        "documents, or a value of measure.cluster, are "
        "drawn and swapped together, as the notes say. Better or worse: the interval "
        "excludes zero and p is below 0.05, which "
        "requires at least six changed queries. Not worse: neither, and the one-sided "
        "95\N{NO-BREAK SPACE}% bound excludes a loss of the "
        "margin. Otherwise undecided: the data do not exclude such a loss. The bound allows for total losses "
        "that the sample missed: to exclude a loss of 1\N{NO-BREAK SPACE}% takes 300 "
        "queries if the baseline is perfect, 430 at an nDCG "
        "of 0.7, and more for each that lost much. A retention set that got better is "
        "called not worse only if that loss is excluded too.",
    ),
    (
        "z, the two-proportion test",
        "Compares two error shares of “PND pooled” as if pairs were independent; |z| "
        "above 1.96 counts as significant. Pairs share "
        "queries, so the test may be too liberal or too conservative. It is "
        "shown for comparison with published tables.",
    ),
]
_GRIDS = (
    "Language grids",
    "Among hundreds of language pairs, some look changed by chance alone. The paired "
    "verdicts of the cells are corrected over the "
    f"whole grid (Benjamini–Hochberg at 5{NO_BREAK}%); z-test counts are not.",
)

_COLUMNS = {
    "measure": Column(
        "measure",
        lambda change: Cell(change.measure, [f"{'lower' if change.lower_is_better else 'higher'} is better"]),
    ),
    "similarity": Column("similarity", lambda change: change.similarity),
    "before": Column(
        "before", lambda change: DASH if change.before is None else texts.score(change.before), "number"
    ),
    "after": Column("after", lambda change: texts.score(change.after), "number"),
    "after, with interval": Column(
        "after", lambda change: value_cell(change.after, change.after_interval), "number", LEVEL
    ),
    "value": Column("value", lambda change: value_cell(change.after, change.after_interval), "number", LEVEL),
    "change": Column(f"change [paired 95{NO_BREAK}%]", texts.improvement, "number"),
    "improvement": Column("improvement", lambda change: pair_cell(texts.percent(change)), "number", PAIRED),
    "difference": Column("difference", lambda change: pair_cell(texts.difference(change)), "number", PAIRED),
    "p": Column(f"paired{NO_BREAK}p", texts.p_value, "number"),
    "z": Column(
        "z", lambda change: DASH if change.z is None else texts.signed(change.z, decimals=2), "number"
    ),
    "verdict": Column("verdict", lambda change: verdict_cell(change.verdict)),
}
"""Columns of tables whose rows are changes."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A row of a data set: its main change, or one of its other reported measures, which have no verdict
    there.
    """

    dataset: DatasetResult
    change: Change
    is_main: bool


def reported(datasets: Sequence[DatasetResult]) -> list[Reported]:
    """The reported measures of each data set by its main similarity, the main one first; PND only where it is
    the main one.
    """
    rows = []
    for dataset in datasets:
        main = dataset.main_change()
        others = [
            change
            for change in dataset.changes
            if change is not main and change.similarity == main.similarity
        ]
        rows.append(Reported(dataset, main, is_main=True))
        if dataset.kind != "grid":
            rows += [
                Reported(dataset, change, is_main=False)
                for change in others
                if not change.measure.startswith("PND")
            ]
    return rows


def _reported(name: str) -> Column:
    """A column of a table with a row for each reported measure."""
    column = _COLUMNS[name]
    return replace(
        column, of=lambda row: column.of(row.change) if row.is_main or name != "verdict" else Cell("")
    )


def page(result: Result) -> Page:
    """The page of an evaluation."""
    datasets, training = result.datasets, result.training
    compared = any(dataset.main_change().before is not None for dataset in datasets)
    sections: list[Section | None] = [_datasets(result, compared=compared) if datasets else None]
    sections += [
        _by_negative(dataset, at, compared=compared) for at, dataset in enumerate(datasets) if dataset.ladder
    ]
    sections += [
        _languages(dataset, at) for at, dataset in enumerate(datasets) if dataset.grid and dataset.languages
    ]
    sections.append(power_section(result.power) if result.power else None)
    sections.append(_examples(result.examples) if result.examples else None)
    if training is not None:
        sections += [training_of(training, measured=True), layers_of(training.layers)]
    return page_of(
        result,
        sections,
        headline=sentences.headline(result),
        tone=sentences.tone(result),
        reservations=sentences.reservations(result),
    )


def terminal(result: Result) -> list[Table]:
    """One row per data set by its main measure."""
    title, caption = cut(result.title, limit=200), [sentences.headline(result)]
    caption += [f"Power of {power.findings}" for power in result.power] + assumptions(result.power)
    compared = any(dataset.main_change().before is not None for dataset in result.datasets)
    columns = [
        Column("data set", _in_terminal, "name"),
        Column("measure", lambda row: row.change.measure),
        *map(_reported, ("before", "after", "change", "verdict") if compared else ("value",)),
    ]
    rows = reported(result.datasets)
    return [
        Table(
            title=title,
            columns=columns,
            rows=rows,
            caption=caption,
            row_class=lambda row: "" if row.is_main else "muted",
        )
    ]


def _in_terminal(row: Reported) -> Cell:
    dataset = row.dataset
    return Cell(
        f"{dataset.role}: {dataset.name}{', listed candidates' * (dataset.kind == 'pairs')}"
        if row.is_main
        else ""
    )


def notes(result: Result) -> list[str]:
    """Notes below a table in the terminal; a training run's notes were printed hours before an evaluation."""
    return [*sentences.caveats(result), *filter(None, [sentences.cells_over_runs(result)])]


def _datasets(result: Result, *, compared: bool) -> Group:
    datasets = result.datasets
    if compared:
        names = ["measure", "before", "after", "improvement", "difference", "verdict"]
        lead = (
            "Each data set before and after, on the same queries. The target should get "
            "better; retention sets must not get worse. The "
            "first measure of a set decides. The range in brackets holds the true "
            f"change with 95{NO_BREAK}% confidence."
        )
    else:
        names = ["measure", "value"]
        lead = (
            "The reported measures of each data set. The range in brackets holds the "
            f"true value with 95{NO_BREAK}% confidence. "
            "There is no baseline."
        )
    rows = reported(datasets)
    shown = list(dict.fromkeys(row.change.measure for row in rows))
    others = [change.measure for dataset in datasets for change in dataset.changes]
    others += [] if result.training is None else result.training.measures
    notes = [
        (dataset.name, [note for note in dataset.notes if note not in result.equal_towers])
        for dataset in datasets
    ]
    has_grid = any(dataset.grid and dataset.languages for dataset in datasets)
    measures = [
        _changes(dataset.changes, cut(dataset.name, limit=120), compared=compared) for dataset in datasets
    ]
    terms = explained(name for name in others if name not in shown)
    return Group(
        id="datasets",
        title="What changed" if compared else "What was measured",
        lead=lead,
        sections=[
            measures_section(shown),
            _forest(datasets),
            Table(
                columns=[Column("data set", _about, "name"), *map(_reported, names)], rows=rows, look="stack"
            ),
            *(_parts(dataset, names) for dataset in datasets if dataset.parts),
            notes_section("Notes", notes, everyone="all data sets"),
            Group(id="all-measures", title="All measures", folded=True, sections=measures),
            Terms(
                terms=[*terms, *(_COMPARED if compared else []), *([_GRIDS] if has_grid and compared else [])]
            ),
        ],
    )


def _parts(dataset: DatasetResult, names: Sequence[str]) -> Table:
    """The main measure by what was trained on; the first part decides."""
    columns = [replace(_COLUMNS[name], of=partial(_of_change, _COLUMNS[name])) for name in names]
    title = f"{cut(dataset.name, limit=120)}: queries with new and with seen documents"
    part = Column(
        "part",
        lambda part: Cell(part.name, [counted(part.queries, "query")], bold=part is dataset.parts[0]),
        "name",
    )
    return Table(
        title=title,
        columns=[part, *columns],
        rows=dataset.parts,
        look="stack",
        caption=["The first part decides."],
    )


def _of_change(column: Column, part: Part) -> Any:
    return column.of(part.change)


def _about(row: Reported) -> Cell:
    dataset = row.dataset
    if not row.is_main:
        return Cell("")
    counts = [counted(dataset.queries, "query"), counted(dataset.documents, "document")]
    counts += [counted(dataset.clusters, "cluster")] if dataset.clusters else []
    # Only PND counts pairs.
    counts += [counted(dataset.pairs, "pair")] if dataset.pairs and dataset.main.startswith("PND") else []
    name = cut(dataset.name, limit=120)
    return Cell(name, [_KINDS[dataset.kind], ", ".join(counts)], bold=True, tag=_ROLES[dataset.role])


def _forest(datasets: Sequence[DatasetResult]) -> Figure | None:
    """Improvement of each main measure with its paired interval; None if no data set has both."""
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
        if (change := dataset.main_change()).improvement is not None
        and change.improvement_interval is not None
    ]
    if not rows:
        return None
    return Figure(
        charts=[forest("forest", rows, label="improvement of the main measure, % (right of zero is better)")],
        narrow=forest("forest-narrow", rows, label="improvement, % (right is better)", narrow=True),
        label="Improvement of each data set with its paired 95 percent interval; "
        "the table below holds the numbers",
        caption="Filled: better, not worse or worse. Open: undecided; the interval "
        "may still exclude zero if fewer than six "
        "queries changed. Diamond: target. Circle: retention set.",
    )


def _changes(changes: Sequence[Change], title: str = "", *, compared: bool) -> Table:
    """All measures of a data set."""
    names = (
        ["before", "after, with interval", "improvement", "difference", "p", "z", "verdict"]
        if compared
        else ["value"]
    )
    return Table(
        title=title, columns=[_COLUMNS[name] for name in ("measure", "similarity", *names)], rows=changes
    )


def _by_negative(dataset: DatasetResult, position: int, *, compared: bool) -> Group:
    """PND by the number of the listed negative."""
    changes = dataset.ladder
    after = [(float(at), 100 * change.after) for at, change in enumerate(changes, start=1)]
    before = [
        (float(at), 100 * change.before)
        for at, change in enumerate(changes, start=1)
        if change.before is not None
    ]
    ends = [
        change.after_interval and (100 * change.after_interval[0], 100 * change.after_interval[1])
        for change in changes
    ]
    lines = [Line(before, "before", MUTED, "s")] if len(before) == len(changes) else []
    lines.append(Line(after, "after", GOOD, intervals=ends))
    panel = Panel(
        lines,
        "number of the negative in the list",
        "PND, % of queries in error",
        integers=True,
        from_zero=True,
    )
    return Group(
        id=f"negatives-{position}",
        title=f"Errors by listed negative: {cut(dataset.name, limit=120)}",
        lead="The share of queries whose relevant document is not strictly closer than "
        "their first, second, … listed negative. The curve "
        "runs from hard to easy if the data lists hard negatives first.",
        sections=[
            Figure(
                charts=[curves(f"ladder-{position}", [panel])],
                narrow=curves(f"ladder-{position}-narrow", [panel], width=NARROW),
                label="PND by the number of the listed negative; the table below holds the numbers",
                caption=f"Vertical lines: 95{NO_BREAK}% "
                f"intervals{' of the values after' if compared else ''}.",
            ),
            Group(title="Table", folded=True, sections=[_changes(changes, compared=compared)]),
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
    compared = grid.improvement is not None
    values = np.array(grid.improvement if compared else grid.after, dtype=float)
    large = float(np.nanmax(np.abs(values), initial=0.0)) >= 100
    meaning = (
        "Improvement of PND in percent: blue is better, orange is worse."
        if compared
        else "PND: lower is better."
    )
    dots = (
        " A dot marks a cell whose paired verdict is better or worse after correction."
        if grid.verdicts is not None
        else ""
    )
    return HeatMap(
        title=f"{grid.comparison}, {grid.similarity}",
        rows=languages,
        columns=languages,
        shades=values,
        text=partial(texts.signed, decimals=0 if large else 1) if compared else "{:.3f}".format,
        compared=compared,
        marked=None if grid.verdicts is None else np.isin(grid.verdicts, ("better", "worse")),
        counts=grid_counts(grid, cells=len(languages) ** 2),
        caption=f"{meaning}{dots}",
    )


def grid_counts(grid: GridComparison, *, cells: int) -> list[str]:
    """Numbers of improved and worsened cells of a language grid."""
    if grid.improved is None or grid.worsened is None:
        return []
    kept = grid.not_worse or 0
    rest = f"{integer(kept)} not worse, {integer(cells - grid.improved - grid.worsened - kept)} undecided"
    lines = [
        f"paired: {integer(grid.improved)} better, {integer(grid.worsened)} "
        f"worse, {rest}, of {integer(cells)}"
    ]
    if grid.improved_z is not None and grid.worsened_z is not None:
        lines.append(f"z-test: {integer(grid.improved_z)} better, {integer(grid.worsened_z)} worse")
    return lines


def _examples(examples: Sequence[ChangedQuery]) -> Group:
    more = max(0, len(examples) - EXAMPLES_SHOWN)
    return Group(
        id="examples",
        title="Queries whose top results changed",
        lead=f"The first {HITS_SHOWN} results and any relevant ones further down, with "
        "their ranks in the other list. ✓ marks known "
        f"relevant documents. Queries are cut after {QUERY_LENGTH} characters "
        f"and documents after {DOCUMENT_LENGTH} (…)."
        f"{f' {more} more are in result.json.' if more else ''}",
        sections=[Examples(examples=[_example(example) for example in examples[:EXAMPLES_SHOWN]])],
    )


def _example(example: ChangedQuery) -> dict[str, Any]:
    before, after = example.before, example.after
    return {
        "dataset": example.dataset,
        "query": _text(example.query, limit=QUERY_LENGTH),
        "first_relevant": f"{_first_relevant(before)} {_ARROW} {_first_relevant(after)}",
        "sides": {
            "Before": _hits(before, other=after, is_after=False),
            "After": _hits(after, other=before, is_after=True),
        },
    }


def _first_relevant(hits: Sequence[Hit]) -> str:
    rank = next((rank for rank, hit in enumerate(hits, start=1) if hit.relevant), None)
    return f"none in top {len(hits)}" if rank is None else f"rank {rank}"


def _hits(hits: Sequence[Hit], *, other: Sequence[Hit], is_after: bool) -> list[dict[str, Any]]:
    ranks = {hit.doc_id: rank for rank, hit in enumerate(other, start=1)}
    return [
        {
            "rank": rank,
            "hit": hit,
            "text": _text(hit.text, limit=DOCUMENT_LENGTH),
            "moved": _movement(rank, ranks.get(hit.doc_id), is_after=is_after),
        }
        for rank, hit in enumerate(hits, start=1)
        if rank <= HITS_SHOWN or hit.relevant
    ]


def _movement(rank: int, other_rank: int | None, *, is_after: bool) -> tuple[str, str]:
    """Movement of a document between the two lists: a CSS class, and words with a sign."""
    if other_rank is None:
        return ("in", "+ moved in") if is_after else ("out", "\N{MULTIPLICATION SIGN} moved out")
    if other_rank == rank:
        return "same", "= same rank"
    if not is_after:
        return "same", f"{_ARROW} now {other_rank}"
    return (
        ("up", f"\N{UPWARDS ARROW} from {other_rank}")
        if rank < other_rank
        else ("down", f"\N{DOWNWARDS ARROW} from {other_rank}")
    )


def _text(text: str, *, limit: int) -> dict[str, Any]:
    return {
        "text": cut(text, limit=limit),
        "length": integer(len(text)) if len(text) >= COUNTED_LENGTH else None,
    }
