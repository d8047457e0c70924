"""Examples of a source that is too long to be read as a whole: some at a time, from wherever the last ones ended (Reimers 2021)."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
from jaxtyping import Int

from adiabat.core.errors import DataError
from adiabat.data.columns import Columns, parsed_rows
from adiabat.data.examples import is_beir_examples, parse_example
from adiabat.data.lines import START, Cursor, RowPosition
from adiabat.data.records import Example
from adiabat.data.table_rows import FileFaults, Row, read_rows, table_name


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far a source has been read.

    Attributes:
        mark: Where reading goes on.
        ended: Whether its end was seen, and it has not begun anew.
        ends: How often its end was seen.
    """

    mark: RowPosition = START
    ended: bool = False
    ends: int = 0

    def rewound(self) -> "SourcePosition":
        """The same source, to be read from its first row."""
        return replace(self, mark=START, ended=False)


class ExampleReader:
    """Reads a source forward from a standing.

    The file stays open between two readings that follow each other, so that of a packed file nothing is unpacked twice.
    """

    def __init__(self, source: str, *, split: str | None = None, columns: Mapping[str, str] | None = None) -> None:
        """Set up; nothing is read yet."""
        require_streamable(source)
        self.name = f"{table_name(source)}/{split}" if split else table_name(source)
        self._source = source
        self._split = split
        self._columns = Columns(columns)
        self._open: _Reading | None = None
        self._standing = SourcePosition()

    def remarks(self) -> list[str]:
        """What was passed over in the rows so far."""
        return [f"{self.name}: {remark}" for remark in self._columns.remarks.sentences()]

    def position(self) -> SourcePosition:
        """Where reading came to."""
        return self._standing

    def read(self, start: SourcePosition, most: int) -> Iterator[Example]:
        """Read some examples; `standing` says afterwards where they ended."""
        self._standing = start
        if not most or start.ended:
            return
        if self._open is None or self._open.cursor.mark() != start.mark:
            self._open = self._opened(start.mark)
        # Whoever ends reading halfway leaves nothing open that has moved on.
        reading, self._open = self._open, None
        before = reading.cursor.rows
        yield from islice(reading.examples, most)
        reading.faults.raise_if_any()
        ended = reading.cursor.rows < before + most
        if ended and not reading.cursor.rows:
            raise DataError(f"{self._source} must hold at least one row, got none; check that it was written to its end")
        self._standing = SourcePosition(reading.cursor.mark(), ended, start.ends + ended)
        self._open = None if ended else reading

    def _opened(self, mark: RowPosition) -> "_Reading":
        cursor, faults = Cursor.at(mark), FileFaults()
        rows = read_rows(self._source, split=self._split, faults=faults, cursor=cursor)
        parse = partial(_example, cursor=cursor, columns=self._columns)
        return _Reading(parsed_rows(self._looked_at(rows, cursor), faults, parse), cursor, faults)

    def _looked_at(self, rows: Iterator[Row], cursor: Cursor) -> Iterator[Row]:
        """The rows; the first one of a source must be an example."""
        for row in rows:
            if cursor.rows == 1 and self._columns.layout(row, wanted=("grid", "examples")) == "grid":
                raise DataError(f"{self._source} must hold queries with positives, got a language grid; use it with adiabat evaluate")
            yield row


@dataclass(frozen=True, slots=True)
class _Reading:
    """A source that is open."""

    examples: Iterator[Example]
    cursor: Cursor
    faults: FileFaults


def _example(number: int, row: Row, *, cursor: Cursor, columns: Columns) -> Example:
    """The example of a row, numbered from the source's first row on wherever reading began."""
    del number
    return parse_example(cursor.rows - 1, row, columns=columns)


def require_streamable(source: str) -> None:
    """Refuse a source that cannot be read row by row."""
    if is_beir_examples(source):
        raise DataError(
            f"{source} must hold one example a row where data.stream is true, got a BEIR folder; leave data.stream out, or write a file"
        )


def held_out_queries(queries: Iterable[str], fraction: float, most: int) -> Int[np.ndarray, " n"]:
    """Which queries are held out: those whose text hashes lowest, so that equal queries are always on the same side.

    Added data moves no query from training to validation; it moves one the other way only where the limit is reached.
    """
    hashes = np.fromiter((_hashed(query) for query in queries), dtype=np.uint64)
    below = np.uint64(int(fraction * 2**64))
    low = np.sort(hashes[hashes < below])
    return np.flatnonzero(hashes < (low[most] if len(low) > most else below))


def _hashed(query: str) -> int:
    return int.from_bytes(hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8], "big")
