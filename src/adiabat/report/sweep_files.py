"""A sweep on disk: its record, and the page, tables and figures that are made from the record alone."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from adiabat.report.svg import write_figures
from adiabat.report.sweep_cases import overview_of
from adiabat.report.sweep_exports import sweep_csv, sweep_latex, sweep_markdown
from adiabat.report.sweep_page import render_page
from adiabat.report.sweep_plots import figure_of, pictures
from adiabat.results.record import read_record, write_record
from adiabat.results.sweep_result import SWEEP_FORMAT, SweepResult, SweepRun, TaskOutcome


def write_sweep(result: SweepResult, folder: Path) -> None:
    """Write ``result.json``, ``report.html``, ``table.csv``, ``table.md`` and ``table.tex``, all or none, then the figures, each whole."""
    seen = overview_of(result)
    texts = {"report.html": render_page, "table.csv": sweep_csv, "table.md": sweep_markdown, "table.tex": sweep_latex}
    write_record(result.to_json(), folder / "result.json", beside={name: partial(render, seen) for name, render in texts.items()})
    if drawn := pictures(seen):
        write_figures(folder, {picture.name: partial(figure_of, picture) for picture in drawn})


def read_sweep(path: Path) -> SweepResult:
    """Read the record that `write_sweep` wrote."""
    return read_record(
        path, SweepResult, version=SWEEP_FORMAT, misfits=lambda result: [*_unnamed(result), *_misfits(result)], command="sweep"
    )


def _unnamed(result: SweepResult) -> Iterator[str]:
    """Names that are there twice, or that nothing bears."""
    named: tuple[tuple[str, Sequence[str]], ...] = (("task", result.tasks), ("run", [run.name for run in result.runs]))
    for what, names in named:
        yield from (f"{what} {name} must be there once, got {count}" for name, count in Counter(names).items() if count > 1)
    used = [*result.targets, *(own.task for run in result.runs for own in run.tasks)]
    known = ", ".join(result.tasks)
    yield from (f"task {name} must be one of the sweep, got {known}" for name in dict.fromkeys(used) if name not in result.tasks)


def _misfits(result: SweepResult) -> Iterator[str]:
    for run in result.runs:
        lacking = [name for name in result.varied if name not in run.varied]
        yield from (f"run {run.name}: a setting that the sweep varies must have a value, got none of {name}" for name in lacking)
        for own in run.tasks:
            yield from (f"run {run.name}, task {own.task}: {fault}" for fault in _faults(run, own))


def _faults(run: SweepRun, own: TaskOutcome) -> Iterator[str]:
    if sum(other.task == own.task for other in run.tasks) > 1:
        yield "a task must be there once"
    if not own.changes:
        yield "there must be a change, got none"
    for grid in own.grids:
        shape = {len(row) for row in grid.after}
        for name in ("after", "before", "improvement", "verdicts"):
            table = getattr(grid, name)
            if table is not None and (len(table) != len(grid.after) or {len(row) for row in table} != shape or len(shape) > 1):
                yield f"{name} of the {grid.comparison} grid must have {len(grid.after)} rows of the same length"
