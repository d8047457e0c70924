"""``runs.parquet`` of a sweep: a row for each run that was tuned and measured."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adiabat.results.sweep_result import SweepRun, TaskOutcome
from adiabat.runs.row_files import Rows


def rows_at(path: Path) -> Rows[SweepRun]:
    """The runs of a sweep that are done."""
    return Rows(path, SweepRun, columns=_columns, of="a sweep")


def _columns(run: SweepRun) -> dict[str, Any]:
    scalars = {"run": run.name, "variant": run.variant, "seed": run.seed, "status": run.status, "reason": run.reason}
    # Values of one setting may be of several kinds, which a column is not.
    varied = {key: json.dumps(value) if isinstance(value, list) else value for key, value in run.varied.items()}
    numbers = {"learning_rate": run.learning_rate, "batch_size": run.batch_size, "steps": run.steps, "epochs": run.epochs}
    numbers |= {"best_epoch": run.best_epoch, "seconds": run.seconds}
    found = {name: value for task in run.tasks for name, value in _of_task(task)}
    drifted = {} if run.drift is None else {f"drift: {name}": value for name, value in run.drift.means.items()}
    return {**scalars, **varied, **numbers, **found, **drifted}


def _of_task(task: TaskOutcome) -> Iterator[tuple[str, Any]]:
    main = task.main
    name = f"{task.task}: {main.measure}"
    yield from ((name, main.after), (f"{name}, before", main.before), (f"{name}, improvement %", main.improvement))
    low, high = main.improvement_interval or (None, None)
    yield from ((f"{name}, low %", low), (f"{name}, high %", high), (f"{name}, p", main.p), (f"{name}, verdict", main.verdict))
    for grid in task.grids:
        where = f"{task.task}: {grid.comparison} by {grid.similarity}"
        yield from ((f"{where}, improved", grid.improved), (f"{where}, worsened", grid.worsened))
        yield from ((f"{where}, improved by z", grid.improved_z), (f"{where}, worsened by z", grid.worsened_z))
