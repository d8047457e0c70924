"""Rows of what is done, in a file that always holds whole ones: what was cut short goes on from there."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from adiabat.errors import JobError
from adiabat.files import write_text
from adiabat.journal import line_of, read_lines

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


def json_rows(path: Path, kind: type[Row], *, key: Callable[[Row], Key], sound: Callable[[Row], bool] = lambda row: True) -> Rows[Key, Row]:
    """Rows that are lines of JSON."""
    return Rows(path, key=key, read=lambda place: _read_lines(place, kind, sound), write=_write_lines)


REMEDY = "remove the line, and the run is made again"


def _write_lines(rows: Sequence[Any], path: Path) -> None:
    write_text("".join(str(line_of(json.loads(json.dumps(asdict(one), allow_nan=False)))) for one in rows), path)


def _read_lines(path: Path, kind: type[Row], sound: Callable[[Row], bool]) -> list[Row]:
    adapter, rows = TypeAdapter(kind), []
    for number, line in enumerate(read_lines(path, remedy=REMEDY, error=JobError, chained=False), start=1):
        try:
            row = adapter.validate_json(json.dumps(line.row))
            what = "" if sound(row) else "some of it is missing"
        except ValidationError as fault:
            what = fault.errors(include_url=False)[0]["msg"]
        if what:
            raise JobError(f"{path}:{number} must be a row of a finished run, got: {what}; {REMEDY}")
        rows.append(row)
    return rows
