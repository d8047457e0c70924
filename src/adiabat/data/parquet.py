"""Rows of Parquet files: a column becomes Python values only where somebody asks for it, so that columns nobody uses cannot do harm."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from adiabat.data.lines import require_plain
from adiabat.errors import DataError

_BATCH_ROWS = 1024


def parquet_paths(path: Path) -> list[Path]:
    """The files of a source, in order."""
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def parquet_size(path: Path) -> int:
    """Number of rows, which the files say themselves."""
    return sum(int(_open(part).metadata.num_rows) for part in parquet_paths(path))


def parquet_rows(path: Path, *, after: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterate over the rows of all files; files and row groups that lie before the first row wanted are not read."""
    for part in parquet_paths(path):
        with _open(part) as table:
            count = int(table.metadata.num_rows)
            if after < count:
                yield from _rows_of(table, part, after)
            after = max(0, after - count)
    if after:
        raise DataError(f"{path} must be what was read before, got {after:,} rows fewer; bring the former files back, or start anew")


def _rows_of(table: pq.ParquetFile, part: Path, after: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    groups, number = _groups_from(table, after)
    try:
        for batch in table.iter_batches(batch_size=_BATCH_ROWS, row_groups=groups):
            columns = _Columns(batch, part, number)
            for row in range(max(0, after - number), batch.num_rows):
                yield f"{part}:{number + row + 1}", _Values(columns, row)
            number += batch.num_rows
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{part} must be a whole Parquet file, got, after row {number}: {error}; write it again") from error


def _groups_from(table: pq.ParquetFile, after: int) -> tuple[list[int], int]:
    """Row groups from the one of a row on, and how many rows are before it."""
    before = 0
    for group in range(table.num_row_groups):
        rows = int(table.metadata.row_group(group).num_rows)
        if before + rows > after:
            return list(range(group, table.num_row_groups)), before
        before += rows
    return [], before


class _Columns:
    """The columns of one batch, each as Python values once it was asked for."""

    def __init__(self, batch: pa.RecordBatch, path: Path, before: int) -> None:
        self.names: tuple[str, ...] = tuple(dict.fromkeys(batch.schema.names))
        self._batch = batch
        self._path = path
        self._before = before
        self._values: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        values = self._values.get(name)
        if values is None:
            values = self._values[name] = self._as_python(name)
        return values

    def _as_python(self, name: str) -> list[Any]:
        places = self._batch.schema.get_all_field_indices(name)
        if not places:
            raise KeyError(name)
        if len(places) > 1:
            raise DataError(f'{self._path} must have one column "{name}", got {len(places)} of that name; rename or drop the others')
        column = self._batch.column(places[0])
        try:
            values: list[Any] = column.to_pylist()
        except Exception as error:
            raise DataError(self._fault(name, column, error)) from error
        return values

    def _fault(self, name: str, column: pa.Array, error: Exception) -> str:
        """The phrase for a column that cannot become Python values, with the first row that stands in the way."""
        place = f"{self._path}:{self._before + _first_unusable(column) + 1}"
        if isinstance(error, UnicodeDecodeError):
            found = f"byte 0x{error.object[error.start]:02x} at byte {error.start + 1} of the value"
            return f'{place}: "{name}" must be UTF-8, got {found}; write the column again as UTF-8'
        reason = " ".join(str(error).split())
        return f'{place}: "{name}" must hold values that Python can hold, got {column.type}: {reason}; write the column as text, or drop it'


def _first_unusable(column: pa.Array) -> int:
    for place, value in enumerate(column):
        try:
            value.as_py()
        except Exception:
            return place
    return 0


class _Values(Mapping[str, Any]):
    """One row of a batch."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: _Columns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._row]

    def __contains__(self, name: object) -> bool:
        # The inherited one asks for the value, and so would convert columns that nobody uses.
        return name in self._columns.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns.names)

    def __len__(self) -> int:
        return len(self._columns.names)


def _open(path: Path) -> pq.ParquetFile:
    require_plain(path)
    try:
        return pq.ParquetFile(path)
    except Exception as error:
        raise DataError(f"{path} must be a whole Parquet file, got: {error}; write or download it again") from error
