"""Rows of what is done, as Parquet, in files that always hold whole rows."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from adiabat.core.errors import JobError
from adiabat.core.files import open_parquet, reading, write_parquet

Key = TypeVar("Key")
Row = TypeVar("Row")


class Rows(Generic[Key, Row]):
    """Rows by their key."""

    def __init__(
        self, path: Path, *, key: Callable[[Row], Key], read: Callable[[Path], Iterable[Row]], write: Callable[[Sequence[Row], Path], None]
    ) -> None:
        """Read what is there."""
        self.path = path
        self._key, self._write = key, write
        self._rows = {key(row): row for row in read(path)} if path.exists() else {}

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __getitem__(self, key: Key) -> Row:
        return self._rows[key]

    @property
    def every(self) -> list[Row]:
        """All rows, in the order they were added."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Put a row on the disk; it is there whole, or not at all."""
        rows = {**self._rows, self._key(row): row}
        self._write(list(rows.values()), self.path)
        self._rows = rows


RowKind = TypeVar("RowKind")

RECORD = "record"
"""Column that holds the whole row as JSON."""


def parquet_rows(
    path: Path,
    kind: type[RowKind],
    *,
    key: Callable[[RowKind], str],
    columns: Callable[[RowKind], Mapping[str, Any]],
    of: str,
    fault: Callable[[RowKind], str] = lambda row: "",
    advice: str = "without the file, what is measured is made again",
) -> Rows[str, RowKind]:
    """Rows that are kept as Parquet.

    Args:
        fault: What is wrong with a row, beyond what its kind says; "" where nothing is.
    """

    def write(rows: Sequence[RowKind], place: Path) -> None:
        write_parquet(pa.Table.from_pylist(_filled([{**columns(row), RECORD: _record(row)} for row in rows])), place)

    return Rows(path, key=key, read=lambda place: _read(place, kind, fault, of=of, advice=advice), write=write)


def _read(path: Path, kind: type[RowKind], fault: Callable[[RowKind], str], *, of: str, advice: str) -> list[RowKind]:
    adapter, rows = TypeAdapter(kind), list[RowKind]()
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
