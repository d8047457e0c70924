"""Rows of finished work, as Parquet, in files that always hold whole rows."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import ValidationError

from adiabat.core.arrow_columns import table_of
from adiabat.core.errors import JobError
from adiabat.core.files import open_parquet, reading, write_parquet
from adiabat.core.formats import FORMAT, UPDATE, Format, reader_of
from adiabat.core.misfits import misfits
from adiabat.core.version import __version__, is_newer, version_in
from adiabat.runs.run_config import exists

RECORD = "record"
"""Column that holds the whole row as JSON."""

ROWS = Format(1, oldest=1)
"""Format of the file; a row is a dataclass, whose fields are checked."""


class _NamedRow(Protocol):
    """A dataclass with a name."""

    @property
    def name(self) -> str: ...


Row = TypeVar("Row", bound=_NamedRow)


class Rows(Generic[Row]):
    """Rows by their name.

    A file has one line for each row, with columns for other programs, and a column with the whole row as
    JSON, from which adiabat reads it. Each addition writes the file anew, since a Parquet file cannot grow.
    """

    def __init__(
        self,
        path: Path,
        kind: type[Row],
        *,
        columns: Callable[[Row], Mapping[str, Any]],
        of: str,
        fault: Callable[[Row], str] | None = None,
        advice: str = "remove the file to measure again",
    ) -> None:
        """Read the existing rows.

        Args:
            fault: Returns what is wrong with a row beyond its types, "" for a valid row; None checks no more.
        """
        self.path = path
        self._columns = columns
        rows = _read(path, kind, fault, of=of, advice=advice) if exists(path) else []
        self._rows = {row.name: row for row in rows}

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def __getitem__(self, name: str) -> Row:
        return self._rows[name]

    @property
    def every(self) -> list[Row]:
        """All rows, in the order they were added."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Append a row atomically."""
        rows: dict[str, Any] = {**self._rows, row.name: row}
        texts = {
            name: json.dumps(asdict(row), ensure_ascii=False, allow_nan=False) for name, row in rows.items()
        }
        plain = _filled([{**self._columns(row), RECORD: texts[name]} for name, row in rows.items()])
        write_parquet(table_of(plain).replace_schema_metadata({FORMAT: str(ROWS.number)}), self.path)
        self._rows = rows


def _read(
    path: Path, kind: type[Row], fault_of: Callable[[Row], str] | None, *, of: str, advice: str
) -> list[Row]:
    adapter, rows = reader_of(kind), list[Row]()
    with reading(path, remedy=advice, error=JobError):
        file = open_parquet(path, remedy=advice, error=JobError)
        # Rows of adiabat 0.1 state no format.
        number = int((file.schema_arrow.metadata or {}).get(FORMAT.encode(), ROWS.oldest))
        ROWS.require(number, path, older=advice, error=JobError)
        records = file.read(columns=[RECORD])[RECORD].to_pylist()
    # A row that does not fit may come from a newer version, which only an update reads.
    writer = version_in(path)
    if writer is not None and is_newer(writer):
        advice = UPDATE
    for number, record in enumerate(records, start=1):
        try:
            rows.append(adapter.validate_json(record, strict=True))
        except ValidationError as wrong:
            wrote = f", written by adiabat {writer}" if writer not in (None, __version__) else ""
            fault = f"row {number}: {misfits(wrong)[0]}{wrote}"
            raise JobError(f"{path} must be the rows of {of}, got: {fault}; {advice}") from wrong
    if fault_of and (wrong_row := next(filter(None, map(fault_of, rows)), "")):
        raise JobError(f"{path} must be the rows of {of}, got: {wrong_row}; {advice}")
    return rows


def _filled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every row with the columns of all rows, so that a failed first run does not decide them; a column of
    mixed types is JSON.
    """
    columns: dict[str, list[Any]] = {}
    for row in rows:
        for column in row:
            columns.setdefault(column, [])
    for column, values in columns.items():
        values += [row.get(column) for row in rows]
        is_text = {isinstance(value, str) for value in values if value is not None}
        if len(is_text) > 1:
            columns[column] = [None if value is None else json.dumps(value) for value in values]
    # The whole row comes last.
    columns[RECORD] = columns.pop(RECORD)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
