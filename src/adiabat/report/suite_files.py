"""A suite on disk: its record, and the page and tables that are made from the record alone."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from adiabat.report.suite_analysis import overview_of
from adiabat.report.suite_exports import suite_csv, suite_latex, suite_markdown
from adiabat.report.suite_page import render_suite
from adiabat.results.record import read_record, write_record
from adiabat.results.suite_result import SUITE_FORMAT, Pairing, SuiteGrid, SuiteResult


def write_suite(result: SuiteResult, folder: Path) -> None:
    """Write ``result.json``, ``report.html``, ``table.csv``, ``table.md`` and ``table.tex``, all or none."""
    seen = overview_of(result)
    texts = {"report.html": render_suite, "table.csv": suite_csv, "table.md": suite_markdown, "table.tex": suite_latex}
    write_record(result.to_json(), folder / "result.json", beside={name: partial(render, seen) for name, render in texts.items()})


def read_suite(path: Path) -> SuiteResult:
    """Read the record that `write_suite` wrote."""
    return read_record(path, SuiteResult, version=SUITE_FORMAT, misfits=lambda result: [*_unnamed(result), *_misfits(result)])


def _unnamed(result: SuiteResult) -> Iterator[str]:
    """Names that are there twice, or that nothing bears."""
    tasks, models = [task.name for task in result.tasks], [model.name for model in result.models]
    for what, names in (("task", tasks), ("model", models)):
        yield from (f"{what} {name} must be there once, got {count}" for name, count in Counter(names).items() if count > 1)
    compared: list[Pairing | SuiteGrid] = [*result.pairings, *result.grids]
    used = [one.task for one in (*result.scores, *compared, *result.units, *result.facts)]
    yield from (f"task {name} must be one of the suite, got {', '.join(tasks)}" for name in dict.fromkeys(used) if name not in tasks)
    named = [one.model for one in (*result.scores, *compared, *result.facts)] + [name for unit in result.units for name in unit.values]
    named += [name for name in [result.baseline, *(one.against for one in compared)] if name is not None]
    yield from (f"model {name} must be one of the suite, got {', '.join(models)}" for name in dict.fromkeys(named) if name not in models)


def _misfits(result: SuiteResult) -> Iterator[str]:
    """Comparisons without values or with several models, and grids without their languages."""
    against: dict[str, str] = {}
    measured = {(score.task, score.model) for score in result.scores}
    for pairing in result.pairings:
        other = against.setdefault(pairing.task, pairing.against)
        if other != pairing.against:
            yield f"task {pairing.task}: models must be compared with the same one, got {other} and {pairing.against}"
        lacking = {pairing.model, pairing.against} - {model for task, model in measured if task == pairing.task}
        yield from (f"task {pairing.task}: a model that is compared must have a value, got none of {name}" for name in sorted(lacking))
        if pairing.change.difference is None:
            yield f"task {pairing.task}: a comparison must have a difference, got none of {pairing.model}"
    for grid in result.grids:
        yield from _grid_faults(grid)


def _grid_faults(grid: SuiteGrid) -> Iterator[str]:
    shape = (len(grid.rows), len(grid.columns))
    for name in ("after", "before", "improvement", "verdicts"):
        table = getattr(grid.grid, name)
        if table is not None and (len(table) != shape[0] or any(len(row) != shape[1] for row in table)):
            where = f"task {grid.task}: {name} of the {grid.grid.comparison} grid"
            yield f"{where} must have {shape[0]} rows of {shape[1]}, one cell per pair of languages"
