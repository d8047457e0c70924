"""Tables of other programs in Parquet or Arrow's own formats, read a few rows at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TABLE_SUFFIXES = (".parquet", ".arrow", ".feather")

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """An opened table; `batches` reads some columns from the beginning, at most so many rows at a time."""

    names: list[str]
    batches: Callable[[Sequence[str], int], Batches]


def open_table(path: Path) -> ArrowTable:
    """Open a table by its suffix; an Arrow file may also be a stream, as `datasets` writes it."""
    if path.suffix == ".parquet":
        file = pq.ParquetFile(path)
        return ArrowTable(
            file.schema_arrow.names,
            lambda columns, rows: file.iter_batches(batch_size=rows, columns=list(columns)),
        )
    try:
        names = pa.ipc.open_file(pa.OSFile(str(path))).schema.names
        return ArrowTable(names, partial(_selected, partial(_batches_of_file, path)))
    except pa.ArrowInvalid:
        names = pa.ipc.open_stream(pa.OSFile(str(path))).schema.names
        return ArrowTable(names, partial(_selected, partial(_batches_of_stream, path)))


def _batches_of_file(path: Path) -> Batches:
    """All batches of Arrow's file format, in which each is found by its number."""
    reader = pa.ipc.open_file(pa.OSFile(str(path)))
    yield from map(reader.get_batch, range(reader.num_record_batches))


def _batches_of_stream(path: Path) -> Batches:
    """All batches of Arrow's stream format, which is read from its beginning."""
    yield from pa.ipc.open_stream(pa.OSFile(str(path)))


def _selected(batches: Callable[[], Batches], columns: Sequence[str], rows: int) -> Batches:
    """Some columns, at most so many rows at a time."""
    for batch in batches():
        chosen = batch.select(columns)
        for start in range(0, len(batch), rows):
            yield chosen.slice(start, rows)
