"""One task of a suite: its chart, table, language grids, units, and all measures."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from adiabat.core.text import DASH, MINUS, NO_BREAK, counted, cut, integer
from adiabat.report import format as texts
from adiabat.report import suite_headline as words
from adiabat.report.chart_style import LEAST_REACH
from adiabat.report.charts import ForestRow, forest, short
from adiabat.report.computed_tables import Column, Table
from adiabat.report.evaluation_page import grid_counts
from adiabat.report.pages import Figure, Group, HeatMap
from adiabat.report.suite_headline import Overview
from adiabat.report.tables import LEVEL, PAIRED, Cell, pair_cell, value_cell, verdict_cell
from adiabat.results.evaluation_result import Change
from adiabat.results.suite_result import Score, SuiteGrid, SuiteTask, UnitRow, equal_values

TEXT_LENGTH = 240
"""Maximum characters of a unit's text on the page; of each text for pairs."""


def first_click(lower_is_better: bool) -> str:
    """Sort order of the first click: best on top."""
    return "ascending" if lower_is_better else "descending"


def direction(lower_is_better: bool) -> str:
    """The direction of a measure, if it is unusual."""
    return "lower is better" if lower_is_better else ""


def task_section(view: Overview, task: SuiteTask, position: int) -> Group:
    """One task: chart, table, grids, units and all measures."""
    result = view.result
    sizes = [
        counted(task.units, task.unit),
        *([counted(task.documents, "document")] if task.documents else []),
    ]
    sizes += [counted(len(task.languages), "language")] if task.languages else []
    direction = "lower" if task.lower_is_better else "higher"
    units = [row for row in result.units if row.task == task.name]
    return Group(
        id=f"task-{position}",
        title=cut(task.name, limit=120),
        subtitle=words.best_of(view, task),
        lead=f"{words.KINDS[task.kind]}; {', '.join(sizes)}; {words.measure(view, task)} "
        f"({direction} is better)",
        folded=True,
        opened=position == 0,
        sections=[
            _forest(view, task, position),
            _compared(view, task),
            *_grids(
                [grid for grid in result.grids if grid.task == task.name],
                against=view.rankings[task.name].against,
            ),
            _units(view, task, units, position) if units else None,
            _all_measures(view, task),
        ],
    )


def _forest(view: Overview, task: SuiteTask, position: int) -> Figure | None:
    """Differences to the reference model of a task; right is better."""
    pairings = [
        view.pairings[task.name, model.name]
        for model in view.result.models
        if (task.name, model.name) in view.pairings
    ]
    rows = [
        ForestRow(short(pairing.model), change.difference, change.difference_interval, pairing.verdict)
        for pairing in pairings
        if (change := pairing.change).difference is not None and change.difference_interval is not None
    ]
    if not rows:
        return None
    against = view.rankings[task.name].against or ""
    label = f"{texts.cut_name(task.measure, limit=40)} minus that of {short(against)} (right is better)"
    return Figure(
        charts=[forest(f"forest-{position}", rows, label=label, flipped=task.lower_is_better)],
        narrow=forest(
            f"forest-{position}-narrow",
            rows,
            label="difference (right is better)",
            flipped=task.lower_is_better,
            narrow=True,
        ),
        label=f"Differences to {cut(against, limit=60)} with 95 percent intervals; "
        "the table below holds the numbers",
        caption="Filled: better, not worse or worse after the correction. Open: undecided. "
        "An interval covers one comparison and may "
        "exclude zero; "
        "the verdict is corrected over all of them.",
    )


def _level(score: Score) -> Cell:
    return value_cell(score.value, score.interval, partial(texts.value, decimals=4))


def _compared(view: Overview, task: SuiteTask) -> Table:
    """Values of the main measure, and each model beside its reference."""
    scores, ranking = view.on(task.name), view.rankings[task.name]
    has_one_similarity = len({score.similarity for score in scores}) == 1
    lead = "baseline" if ranking.against == view.result.baseline else "best"

    def name(score: Score) -> Cell:
        below = [] if has_one_similarity else [f"by {score.similarity}"]
        return Cell(
            cut(score.model, limit=80),
            below,
            bold=score.model in ranking.best or (task.name, score.model) not in view.pairings,
        )

    def paired(
        head: str, cell: Callable[[Change], Cell], sub: Sequence[str] = (), first: str = "ascending"
    ) -> Column:
        def of(score: Score) -> Cell:
            pairing = view.pairings.get((task.name, score.model))
            return Cell(DASH) if pairing is None else cell(pairing.change)

        return Column(head, of, "number", sub, first)

    def verdict(score: Score) -> Cell:
        pairing = view.pairings.get((task.name, score.model))
        if pairing is None:
            return Cell(
                lead if score.model == ranking.against else "trained on it" if not score.is_proof else DASH
            )
        return verdict_cell(pairing.verdict)

    best_first = first_click(task.lower_is_better)
    columns = [
        Column("model", name, "name"),
        Column(texts.cut_name(words.measure(view, task), limit=60), _level, "number", LEVEL, best_first),
    ]
    if ranking.against is not None:
        columns += [
            paired(
                "difference",
                lambda change: pair_cell(texts.difference(change), change.difference),
                PAIRED,
                best_first,
            ),
            paired("p", lambda change: Cell(texts.p_value(change), [change.test or ""], value=change.p)),
            paired(
                "effect",
                lambda change: value_cell(change.effect, text=partial(texts.signed, decimals=2)),
                ["dz"],
                best_first,
            ),
            paired("units", _gained, ["gained, lost"], "descending"),
            paired("detectable", lambda change: value_cell(change.detectable, text=texts.value)),
            Column("verdict", verdict),
        ]

    def row_class(score: Score) -> str:
        return "" if (task.name, score.model) in view.pairings else "reference"

    return Table(columns=columns, rows=scores, sortable=True, row_class=row_class)


def _gained(change: Change) -> Cell:
    if change.gained is None or change.lost is None:
        return Cell(DASH)
    return Cell(f"+{change.gained:,} {MINUS}{change.lost:,}", value=change.gained - change.lost)


def _grids(grids: Sequence[SuiteGrid], *, against: str | None) -> list[Group]:
    """Heat maps of a language grid: values of each model, and its differences to its reference."""
    by_comparison: dict[tuple[str, str], list[SuiteGrid]] = {}
    for grid in grids:
        by_comparison.setdefault((grid.grid.comparison, grid.grid.similarity), []).append(grid)
    return [
        _grid(group, ", ".join(filter(None, comparison)), against)
        for comparison, group in by_comparison.items()
    ]


def _grid(grids: Sequence[SuiteGrid], title: str, against: str | None) -> Group:
    values = [100 * np.array(grid.grid.after, dtype=np.float64) for grid in grids]
    changes = [
        None
        if grid.against is None or grid.grid.before is None
        else 100 * (np.array(grid.grid.after) - np.array(grid.grid.before))
        for grid in grids
    ]
    levels = np.concatenate([cells.ravel() for cells in values])
    moved = np.concatenate([[0.0], *(cells.ravel() for cells in changes if cells is not None)])
    # Cells with means over several runs on either side have no verdicts.
    without = [
        grid.model
        for grid in grids
        if against is not None and grid.model != against and grid.grid.verdicts is None
    ]
    direction = "lower is better" if grids[0].lower_is_better else "higher is better"
    lead = (
        f"Times 100, {direction}; rows are query languages, columns document languages. "
        "Values of all models share one colour scale, "
        f"from {levels.min():.1f} to {levels.max():.1f}. Differences share another: "
        "blue is better, orange is worse, full at "
        f"{max(float(np.abs(moved).max()), LEAST_REACH):.1f} points. • marks a cell "
        "whose verdict holds after Benjamini–Hochberg "
        "over the cells of its map."
    )
    if without:
        lead += (
            f" Cells of {', '.join(without)} have no verdict: they compare means over "
            "several runs, and exchanging values unit by unit "
            "does not cover other seeds."
        )
    maps = []
    for grid, value, change in zip(grids, values, changes, strict=True):
        name = cut(grid.model, limit=80)
        level = f"{name}, mean of the cells {value.mean():.1f}"
        maps.append(
            HeatMap(
                title=level,
                rows=grid.rows,
                columns=grid.columns,
                shades=value,
                text="{:.1f}".format,
                scale=levels,
            )
        )
        if change is not None:
            plus, minus = partial(texts.signed, decimals=1), lambda shade: texts.signed(-shade, decimals=1)
            maps.append(
                HeatMap(
                    title=f"{name} minus {cut(grid.against or '', limit=80)}",
                    rows=grid.rows,
                    columns=grid.columns,
                    shades=-change if grid.lower_is_better else change,
                    text=minus if grid.lower_is_better else plus,
                    scale=moved,
                    compared=True,
                    marked=None
                    if grid.grid.verdicts is None
                    else np.isin(grid.grid.verdicts, ("better", "worse")),
                    counts=grid_counts(grid.grid, cells=value.size),
                )
            )
    return Group(title=title, lead=lead, sections=[Group(title="", sections=maps, side_by_side=True)])


def _units(view: Overview, task: SuiteTask, units: Sequence[UnitRow], position: int) -> Table:
    """Units on which models differ most, side by side, the best in bold unless all are equal."""
    models = [score.model for score in view.on(task.name)]

    def text(row: UnitRow) -> Cell:
        lines = [cut(line, limit=TEXT_LENGTH) for line in row.text.split("\n", maxsplit=1)]
        return Cell(lines[0], lines[1:])

    def column(model: str) -> Column:
        def cell(row: UnitRow) -> Cell:
            values = [row.values[name] for name in models if name in row.values]
            best = (min if task.lower_is_better else max)(values, default=0.0)
            value = row.values.get(model)
            if value is None:
                return Cell(DASH)
            differ = not all(equal_values(other, best) for other in values)
            return Cell(texts.value(value), value=value, bold=differ and equal_values(value, best))

        return Column(texts.cut_name(model, limit=40), cell, "number", (), first_click(task.lower_is_better))

    return Table(
        id=f"task-{position}-units",
        title=f"Units on which models differ most ({len(units)})",
        columns=[
            Column("id", lambda row: cut(row.unit, limit=60), "code"),
            Column("text", text),
            *map(column, models),
        ],
        rows=units,
        folded=True,
        sortable=True,
        filtered="Only rows with",
    )


def _all_measures(view: Overview, task: SuiteTask) -> Table | None:
    """All measures and facts; None if there are no more than the main one."""
    scores = [score for score in view.result.scores if score.task == task.name]
    facts = [fact for fact in view.result.facts if fact.task == task.name]
    rows: list[tuple[Any, ...]] = [
        (
            score.model,
            Cell(cut(score.measure, limit=60), [direction(score.lower_is_better)]),
            score.similarity,
            _level(score),
        )
        for score in scores
    ]
    for fact in facts:
        text = integer(int(fact.value)) if fact.value.is_integer() else texts.value(fact.value)
        rows.append((fact.model, Cell(cut(fact.name, limit=60)), DASH, Cell(text, value=fact.value)))
    if len(rows) <= len(view.on(task.name)):
        return None
    unit_length = ", ".join(_of_unit_length(scores))
    caption = (
        f"{cut(unit_length, limit=300)}: vectors of unit length, so dot and "
        "distance rank like cosine and are omitted."
    )
    first = first_click(all(score.lower_is_better for score in scores))
    return Table(
        title="All measures",
        columns=[
            Column("model", lambda row: cut(row[0], limit=80), "name"),
            Column("measure", itemgetter(1)),
            Column("similarity", itemgetter(2)),
            Column(f"value [95{NO_BREAK}%]", itemgetter(3), "number", (), first),
        ],
        rows=rows,
        caption=[caption] if unit_length else [],
        folded=True,
        sortable=True,
    )


def _of_unit_length(scores: Sequence[Score]) -> list[str]:
    """Models whose further measures rank by dot product or distance exactly as by cosine."""
    by_model: dict[str, set[str]] = {}
    for score in scores:
        by_model.setdefault(score.model, set()).add(score.similarity)
    more = {"dot", "distance"} & set().union(*by_model.values())
    return [
        model
        for model, similarities in by_model.items()
        if more and "cosine" in similarities and not more & similarities
    ]
