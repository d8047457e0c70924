"""Examples of a source that is too long to read at once: some at a time, from wherever the last ones ended (Reimers 2021)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from adiabat.core.errors import DataError
from adiabat.data.columns import Columns, parsed_rows
from adiabat.data.examples import is_beir_examples, parse_example
from adiabat.data.lines import START, Cursor, RowPosition
from adiabat.data.records import Example
from adiabat.data.table_rows import FileFaults, Row, read_rows, table_name


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """How far a source has been read."""

    mark: RowPosition = START
    ended: bool = False
    ends: int = 0

    def rewound(self) -> "SourcePosition":
        """The position of the first row."""
        return replace(self, mark=START, ended=False)


class ExampleReader:
    """Reads a source forward from any position.

    The file stays open between two consecutive readings, so that a compressed file is decompressed once.
    """

    def __init__(self, source: str, *, split: str | None = None, columns: Mapping[str, str] | None = None) -> None:
        require_streamable(source)
        self.name = f"{table_name(source)}/{split}" if split else table_name(source)
        self._source = source
        self._split = split
        self._columns = Columns(columns)
        self._open: _OpenSource | None = None
        self._position = SourcePosition()

    def remarks(self) -> list[str]:
        """Sentences on columns and values of the rows so far."""
        return [f"{self.name}: {remark}" for remark in self._columns.remarks.sentences()]

    def position(self) -> SourcePosition:
        """The position behind the last examples."""
        return self._position

    def read(self, start: SourcePosition, most: int) -> Iterator[Example]:
        """Read up to `most` examples; `position` is then behind the last."""
        self._position = start
        if not most or start.ended:
            return
        if self._open is None or self._open.cursor.position() != start.mark:
            self._open = self._open_at(start.mark)
        # A caller that stops early must not leave an open source that has moved on.
        opened, self._open = self._open, None
        before = opened.cursor.rows
        yield from islice(opened.examples, most)
        opened.faults.raise_if_any()
        ended = opened.cursor.rows < before + most
        if ended and not opened.cursor.rows:
            raise DataError(f"{self._source} must hold at least one row, got none; check that it was written to its end")
        self._position = SourcePosition(opened.cursor.position(), ended, start.ends + ended)
        self._open = None if ended else opened

    def _open_at(self, mark: RowPosition) -> "_OpenSource":
        cursor, faults = Cursor.at(mark), FileFaults()
        rows = read_rows(self._source, split=self._split, faults=faults, cursor=cursor)
        parse = partial(_parse_streamed, cursor=cursor, columns=self._columns)
        return _OpenSource(parsed_rows(self._checked(rows, cursor), faults, parse), cursor, faults)

    def _checked(self, rows: Iterator[Row], cursor: Cursor) -> Iterator[Row]:
        """The rows; the first of the source must be an example."""
        for row in rows:
            if cursor.rows == 1 and self._columns.layout(row, wanted=("grid", "examples")) == "grid":
                raise DataError(f"{self._source} must hold queries with positives, got a language grid; use it with adiabat evaluate")
            yield row


@dataclass(frozen=True, slots=True)
class _OpenSource:
    examples: Iterator[Example]
    cursor: Cursor
    faults: FileFaults


def _parse_streamed(number: int, row: Row, *, cursor: Cursor, columns: Columns) -> Example:
    """The example of a row, numbered from the source's first row."""
    del number
    return parse_example(cursor.rows - 1, row, columns=columns)


def require_streamable(source: str) -> None:
    """Refuse a source that cannot be read row by row."""
    if is_beir_examples(source):
        raise DataError(
            f"{source} must hold one example a row where data.stream is true, got a BEIR folder; leave data.stream out, or write a file"
        )
