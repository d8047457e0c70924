"""``runs.parquet``: a row for each run that was tuned and measured, for anyone's tools; its last column has all that is known of it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from adiabat.errors import JobError
from adiabat.files import write_parquet
from adiabat.jobs.rows import Rows
from adiabat.measure.study_results import StudyRun, TaskOutcome

RECORD = "record"
"""Column that holds the whole run as JSON; the others are there to look at."""


def rows_at(path: Path) -> Rows[str, StudyRun]:
    """The runs of a study that are done.

    Args:
        path: Of the file; perhaps missing.

    Returns:
        Runs by name.

    Raises:
        JobError: If the file is damaged.
    """
    return Rows(path, key=lambda run: run.name, read=read_rows, write=_write)


def read_rows(path: Path) -> list[StudyRun]:
    """Read the runs of a study.

    Args:
        path: The file.

    Returns:
        The runs, in the order they were added.

    Raises:
        JobError: If it is damaged.
    """
    adapter = TypeAdapter(StudyRun)
    try:
        records = pq.read_table(path, columns=[RECORD])[RECORD].to_pylist()
        return [adapter.validate_json(record) for record in records]
    except (OSError, pa.ArrowException, KeyError, ValidationError) as fault:
        raise JobError(
            f"{path} must be the rows of a study, got: {str(fault).splitlines()[0]}; remove it, and what is measured is made again"
        ) from fault


def _write(runs: Sequence[StudyRun], path: Path) -> None:
    write_parquet(pa.Table.from_pylist(_filled([_row(run) for run in runs])), path)


def _filled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every row with the columns of all, so that a first run that failed does not decide them; a column of several kinds is JSON."""
    columns = dict.fromkeys(column for row in rows for column in row if column != RECORD)
    mixed = {column for column in columns if len({isinstance(row.get(column), str) for row in rows if row.get(column) is not None}) > 1}
    return [{**{column: _cell(row.get(column), column in mixed) for column in columns}, RECORD: row[RECORD]} for row in rows]


def _cell(value: Any, mixed: bool) -> Any:
    return json.dumps(value) if mixed and value is not None else value


def _row(run: StudyRun) -> dict[str, Any]:
    scalars = {"run": run.name, "variant": run.variant, "seed": run.seed, "status": run.status, "reason": run.reason}
    # Values of one setting may be of several kinds, which a column is not.
    varied = {key: json.dumps(value) if isinstance(value, list) else value for key, value in run.varied.items()}
    numbers = {"learning_rate": run.learning_rate, "batch_size": run.batch_size, "steps": run.steps, "epochs": run.epochs}
    numbers |= {"best_epoch": run.best_epoch, "seconds": run.seconds}
    found = {name: value for task in run.tasks for name, value in _columns(task)}
    drifted = {} if run.drift is None else {f"drift: {name}": value for name, value in run.drift.means.items()}
    return {**scalars, **varied, **numbers, **found, **drifted, RECORD: json.dumps(asdict(run), ensure_ascii=False, allow_nan=False)}


def _columns(task: TaskOutcome) -> Iterator[tuple[str, Any]]:
    main = task.main
    name = f"{task.task}: {main.measure}"
    yield from ((name, main.after), (f"{name}, before", main.before), (f"{name}, improvement %", main.improvement))
    low, high = main.improvement_interval or (None, None)
    yield from ((f"{name}, low %", low), (f"{name}, high %", high), (f"{name}, p", main.p), (f"{name}, verdict", main.verdict))
    for grid in task.grids:
        where = f"{task.task}: {grid.comparison} by {grid.similarity}"
        yield from ((f"{where}, improved", grid.improved), (f"{where}, worsened", grid.worsened))
        yield from ((f"{where}, improved by z", grid.improved_z), (f"{where}, worsened by z", grid.worsened_z))
