"""Rows in a Parquet file, for anyone's tools: columns to look at, and one that has all that is known of each row."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from adiabat.errors import JobError
from adiabat.files import open_parquet, reading, write_parquet
from adiabat.jobs.rows import Rows

Row = TypeVar("Row")

RECORD = "record"
"""Column that holds the whole row as JSON."""


def parquet_rows(
    path: Path,
    kind: type[Row],
    *,
    key: Callable[[Row], str],
    columns: Callable[[Row], Mapping[str, Any]],
    of: str,
    fault: Callable[[Row], str] = lambda row: "",
    advice: str = "without the file, what is measured is made again",
) -> Rows[str, Row]:
    """Rows that are kept as Parquet.

    Args:
        fault: What is wrong with a row, beyond what its kind says; "" where nothing is.
    """

    def write(rows: Sequence[Row], place: Path) -> None:
        write_parquet(pa.Table.from_pylist(_filled([{**columns(row), RECORD: _record(row)} for row in rows])), place)

    return Rows(path, key=key, read=lambda place: _read(place, kind, fault, of=of, advice=advice), write=write)


def _read(path: Path, kind: type[Row], fault: Callable[[Row], str], *, of: str, advice: str) -> list[Row]:
    adapter, rows = TypeAdapter(kind), list[Row]()
    with reading(path, remedy=advice, error=JobError):
        records = open_parquet(path, remedy=advice, error=JobError).read(columns=[RECORD])[RECORD].to_pylist()
    for number, record in enumerate(records, start=1):
        try:
            rows.append(adapter.validate_json(record))
        except ValidationError as wrong:
            first = wrong.errors()[0]
            field, got = ".".join(map(str, first["loc"])), repr(first["input"])[:60]
            raise JobError(f"{path} must be the rows of {of}, got: row {number}: {field}: {first['msg']}, got {got}; {advice}") from wrong
    if found := next(filter(None, map(fault, rows)), ""):
        raise JobError(f"{path} must be the rows of {of}, got: {found}; {advice}")
    return rows


def _record(row: Any) -> str:
    return json.dumps(asdict(row), ensure_ascii=False, allow_nan=False)


def _filled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every row with the columns of all, so that a first run that failed does not decide them; a column of several kinds is JSON."""
    columns = dict.fromkeys(column for row in rows for column in row if column != RECORD)
    mixed = {column for column in columns if len({isinstance(row.get(column), str) for row in rows if row.get(column) is not None}) > 1}
    return [{**{column: _cell(row.get(column), column in mixed) for column in columns}, RECORD: row[RECORD]} for row in rows]


def _cell(value: Any, mixed: bool) -> Any:
    return json.dumps(value) if mixed and value is not None else value
