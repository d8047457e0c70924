"""One task of a suite: its chart, table, language grids, units, and all measures."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Float

from adiabat.core.text import DASH, MINUS, NO_BREAK, counted, cut, integer
from adiabat.report import format as texts
from adiabat.report import suite_headline as words
from adiabat.report.captions import text_of
from adiabat.report.chart_style import LEAST_REACH
from adiabat.report.charts import ForestRow, forest, short
from adiabat.report.evaluation_page import grid_counts
from adiabat.report.pages import Figure, Group, HeatMap, Sections
from adiabat.report.suite_headline import Overview
from adiabat.report.tables import (
    LEVEL,
    PAIRED,
    Cell,
    Column,
    Table,
    pair_cell,
    value_cell,
    verdict_cell,
)
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
    sizes = [counted(task.units, task.unit)]
    if task.documents:
        sizes.append(counted(task.documents, "document"))
    if task.languages:
        sizes.append(counted(len(task.languages), "language"))
    way = "lower" if task.lower_is_better else "higher"
    about = f"{words.KINDS[task.kind]}; {', '.join(sizes)}; {words.measure(view, task)} ({way} is better)"
    sections: Sections = [_forest(view, task, position), _compared(view, task)]
    sections += _grids([grid for grid in result.grids if grid.task == task.name])
    units = [row for row in result.units if row.task == task.name]
    if units:
        sections.append(_units(view, task, units, position))
    sections.append(_all_measures(view, task))
    return Group(
        id=f"task-{position}",
        title=cut(task.name, limit=120),
        subtitle=words.best_of(view, task),
        lead=about,
        folded=True,
        opened=position == 0,
        sections=sections,
    )


def _forest(view: Overview, task: SuiteTask, position: int) -> Figure | None:
    """Differences to the reference model of a task; right is better."""
    rows = []
    for model in view.result.models:
        pairing = view.pairings.get((task.name, model.name))
        if pairing is None:
            continue
        difference, ends = pairing.change.difference, pairing.change.difference_interval
        if difference is not None and ends is not None:
            rows.append(ForestRow(short(model.name), difference, ends, pairing.verdict))
    if not rows:
        return None
    against = view.rankings[task.name].against or ""
    measure = texts.cut_name(task.measure, limit=40)
    name, right = f"forest-{position}", "(right is better)"
    draw = partial(forest, rows=rows, flipped=task.lower_is_better)
    wide = draw(name, label=f"{measure} minus that of {short(against)} {right}")
    # A phone has no room for the names of measure and model.
    narrow = draw(f"{name}-narrow", label=f"difference {right}", narrow=True)
    differences = f"Differences to {cut(against, limit=60)} with 95 percent intervals"
    return Figure(
        charts=[wide],
        narrow=narrow,
        label=f"{differences}; the table below holds the numbers",
        caption=text_of("suite", "forest"),
    )


def _level(score: Score) -> Cell:
    """A value to four decimals, with its interval."""
    return value_cell(score.value, score.interval, partial(texts.value, decimals=4))


def _compared(view: Overview, task: SuiteTask) -> Table:
    """Values of the main measure, and each model beside its reference."""
    scores, ranking = view.on(task.name), view.rankings[task.name]
    has_one_similarity = len({score.similarity for score in scores}) == 1
    best_first = first_click(task.lower_is_better)
    measure = texts.cut_name(words.measure(view, task), limit=60)
    columns = [Column("model", "name"), Column(measure, "number", LEVEL, best_first)]
    if ranking.against is not None:
        columns += [
            Column("difference", "number", PAIRED, best_first),
            Column("p", "number", first="ascending"),
            Column("effect", "number", ["dz"], best_first),
            Column("units", "number", ["gained, lost"], "descending"),
            Column("detectable", "number", first="ascending"),
            Column("verdict"),
        ]
    table = Table(columns=columns, sortable=True)
    for score in scores:
        pairing = view.pairings.get((task.name, score.model))
        below = [] if has_one_similarity else [f"by {score.similarity}"]
        # The best ones are bold, and so is a model that no comparison could show to be worse.
        bold = score.model in ranking.best or pairing is None
        cells = [Cell(cut(score.model, limit=80), below, bold=bold), _level(score)]
        if ranking.against is not None and pairing is not None:
            cells += [*_paired(pairing.change), verdict_cell(pairing.verdict)]
        elif ranking.against is not None:
            cells += [*[Cell(DASH)] * 5, Cell(_unpaired(view, score))]
        table.add(*cells, style="reference" if pairing is None else "")
    return table


def _paired(change: Change) -> list[Cell]:
    """A comparison on the same units."""
    return [
        pair_cell(texts.difference(change), change.difference),
        Cell(texts.p_value(change), [change.test or ""], value=change.p),
        value_cell(change.effect, text=partial(texts.signed, decimals=2)),
        _gained(change),
        value_cell(change.detectable, text=texts.value),
    ]


def _unpaired(view: Overview, score: Score) -> str:
    """Why a model is compared with no other."""
    against = view.rankings[score.task].against
    if score.model != against:
        return DASH if score.is_proof else "trained on it"
    return "baseline" if against == view.result.baseline else "best"


def _gained(change: Change) -> Cell:
    """Units that gained and lost, sorted by their difference; a dash where units have no values."""
    gained, lost = change.gained, change.lost
    if gained is None or lost is None:
        return Cell(DASH)
    return Cell(f"+{gained:,} {MINUS}{lost:,}", value=gained - lost)


def _grids(grids: Sequence[SuiteGrid]) -> list[Group]:
    """Heat maps of a language grid: values of each model, and its differences to its reference."""
    by_comparison: dict[tuple[str, str], list[SuiteGrid]] = {}
    for grid in grids:
        by_comparison.setdefault((grid.grid.comparison, grid.grid.similarity), []).append(grid)
    groups = []
    for comparison, group in by_comparison.items():
        groups.append(_grid(group, ", ".join(filter(None, comparison))))
    return groups


def _grid(grids: Sequence[SuiteGrid], title: str) -> Group:
    """The heat maps of one comparison, which share their colours."""
    values, changes = [], []
    for grid in grids:
        after = 100 * np.array(grid.grid.after, dtype=np.float64)
        change = None
        if grid.grid.before is not None:
            change = after - 100 * np.array(grid.grid.before)
        values.append(after)
        changes.append(change)
    # Colours of all maps span the values of all models, so that equal numbers look equal.
    levels = np.concatenate([cells.ravel() for cells in values])
    compared = [cells.ravel() for cells in changes if cells is not None]
    moved = np.concatenate([[0.0], *compared])
    maps = []
    for grid, value, change in zip(grids, values, changes, strict=True):
        name = f"{cut(grid.model, limit=80)}, mean of the cells {value.mean():.1f}"
        text = "{:.1f}".format
        rows, columns = grid.rows, grid.columns
        maps.append(HeatMap(title=name, rows=rows, columns=columns, shades=value, text=text, scale=levels))
        if change is not None:
            maps.append(_changed_cells(grid, change, moved))
    better = "lower is better" if grids[0].lower_is_better else "higher is better"
    low, high = levels.min(), levels.max()
    reach = max(float(np.abs(moved).max()), LEAST_REACH)
    lead = text_of("suite", "grid", direction=better, low=low, high=high, reach=reach)
    side_by_side = Group(title="", sections=maps, side_by_side=True)
    return Group(title=title, lead=lead, sections=[side_by_side])


def _changed_cells(
    grid: SuiteGrid, change: Float[np.ndarray, "q d"], scale: Float[np.ndarray, " n"]
) -> HeatMap:
    """Differences to the reference; blue is better, also where the number falls."""
    sign = -1 if grid.lower_is_better else 1
    verdicts, marked = grid.grid.verdicts, None
    if verdicts is not None:
        marked = np.isin(verdicts, ("better", "worse"))
    model, against = cut(grid.model, limit=80), cut(grid.against or "", limit=80)
    return HeatMap(
        title=f"{model} minus {against}",
        rows=grid.rows,
        columns=grid.columns,
        shades=sign * change,
        text=partial(_signed, sign=sign),
        scale=scale,
        compared=True,
        marked=marked,
        counts=grid_counts(grid.grid, cells=change.size),
    )


def _signed(shade: float, *, sign: int) -> str:
    """The difference itself, whatever its colour says about the direction of the measure."""
    return texts.signed(sign * shade, decimals=1)


def _units(view: Overview, task: SuiteTask, units: Sequence[UnitRow], position: int) -> Table:
    """Units on which models differ most, side by side, the best in bold unless all are equal."""
    models = [score.model for score in view.on(task.name)]
    first = first_click(task.lower_is_better)
    columns = [Column("id", "code"), Column("text")]
    columns += [Column(texts.cut_name(model, limit=40), "number", first=first) for model in models]
    table = Table(
        id=f"task-{position}-units",
        title=f"Units on which models differ most ({len(units)})",
        columns=columns,
        folded=True,
        sortable=True,
        filtered="Only rows with",
    )
    for row in units:
        lines = [cut(line, limit=TEXT_LENGTH) for line in row.text.split("\n", maxsplit=1)]
        values = [row.values[name] for name in models if name in row.values]
        best = max(values, default=0.0)
        if task.lower_is_better:
            best = min(values, default=0.0)
        differ = not all(equal_values(other, best) for other in values)
        cells = []
        for model in models:
            value = row.values.get(model)
            bold = differ and value is not None and equal_values(value, best)
            cell = value_cell(value, text=texts.value)
            cells.append(replace(cell, bold=bold))
        table.add(cut(row.unit, limit=60), Cell(lines[0], lines[1:]), *cells)
    return table


def _all_measures(view: Overview, task: SuiteTask) -> Table | None:
    """All measures and facts; None if there are no more than the main one."""
    scores = [score for score in view.result.scores if score.task == task.name]
    facts = [fact for fact in view.result.facts if fact.task == task.name]
    if len(scores) + len(facts) <= len(view.on(task.name)):
        return None
    first = first_click(all(score.lower_is_better for score in scores))
    columns = [Column("model", "name"), Column("measure"), Column("similarity")]
    columns.append(Column(f"value [95{NO_BREAK}%]", "number", first=first))
    caption = []
    # Vectors of length 1 explain why several similarities have the same scores.
    models = cut(", ".join(_of_unit_length(scores)), limit=300)
    if models:
        caption.append(text_of("suite", "unit-length", models=models))
    table = Table(title="All measures", columns=columns, caption=caption, folded=True, sortable=True)
    for score in scores:
        measure = Cell(cut(score.measure, limit=60), [direction(score.lower_is_better)])
        table.add(cut(score.model, limit=80), measure, score.similarity, _level(score))
    for fact in facts:
        text = texts.value(fact.value)
        # Facts may be counts.
        if fact.value.is_integer():
            text = integer(int(fact.value))
        name = Cell(cut(fact.name, limit=60))
        table.add(cut(fact.model, limit=80), name, DASH, Cell(text, value=fact.value))
    return table


def _of_unit_length(scores: Sequence[Score]) -> list[str]:
    """Models whose further measures rank by dot product or distance exactly as by cosine."""
    by_model: dict[str, set[str]] = {}
    for score in scores:
        by_model.setdefault(score.model, set()).add(score.similarity)
    others = {"dot", "distance"}
    if not others & {score.similarity for score in scores}:
        return []
    return [name for name, found in by_model.items() if "cosine" in found and not others & found]
