"""Rows of a data file, one at a time, each with its location.

Reads JSON lines, CSV and TSV (plain, ``.gz`` or ``.zst``), Parquet, folders of them or of text files, data
sets saved by ``datasets``
and those of the Hugging Face hub. Memory does not grow with the file. A fault in one line does not stop the
reading: all faults are counted, and one error at the end lists the first ten.
"""

import csv
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from adiabat.core.errors import ConfigError, DataError, Faults
from adiabat.core.files import reading
from adiabat.core.text import shown
from adiabat.core.wording import place_in
from adiabat.data.folders import Form, Place, place_of
from adiabat.data.lines import Cursor, byte_lines, header_of, shown_names, text_lines
from adiabat.data.sources import Source


class RowError(Exception):
    """A row that cannot be used; the message is a phrase with its file and line."""

    def __init__(self, phrase: str, *, advice: str = "") -> None:
        super().__init__(phrase)
        self.advice = advice


_FIELD_CHARACTERS = 1 << 24
"""Maximum length of a CSV or TSV field, so that an unclosed quote does not fill the memory."""
_SNIPPET_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    Attributes:
        location: ``path:line``, lines counted from 1; in Parquet and ``datasets`` sources the row number,
            from 1.
        values: Column name to value. An empty cell of CSV or TSV is None: these formats have no other way to
            write it.
        header: ``path:line`` of the header of CSV and TSV, whose values are texts; "" in other formats.
        number: Valid rows before it.
    """

    location: str
    values: Mapping[str, Any]
    header: str = ""
    number: int = 0


class FileFaults(Faults):
    """Faults of a file, raised together after reading."""

    def __init__(self) -> None:
        super().__init__()
        self._advice: dict[str, None] = {}

    def add(self, phrase: str, advice: str = "") -> None:
        """Add a fault; each advice is appended to the message once."""
        super().add(phrase)
        if advice:
            self._advice[advice] = None

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Add a row that the block could not use."""
        try:
            yield
        except RowError as fault:
            self.add(str(fault), fault.advice)

    def raise_if_any(self) -> None:
        """Raise all faults as one DataError."""
        if self.count:
            raise DataError("; ".join([self.told(), *self._advice]))


@dataclass(frozen=True, slots=True)
class UniqueNames:
    """Names that a file may give once each; another use is a fault that tells where both are.

    `places` has the first ``file:line`` of each name.
    """

    noun: str
    faults: FileFaults
    advice: str = ""
    places: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, location: str) -> None:
        """Note a name at ``file:line``."""
        first = self.places.setdefault(name, location)
        if first != location:
            fault = f'{location}: {self.noun} must be unique, got "{name}" again, first at {first}'
            self.faults.add(fault, self.advice)


def read_rows(
    source: str | Path,
    *,
    split: str | None = None,
    faults: FileFaults | None = None,
    cursor: Cursor | None = None,
    header: Sequence[str] | None = None,
    whole: bool = False,
    mapped: bool = False,
) -> Iterator[Row]:
    """Iterate over the rows of a table in order, in constant memory.

    The source is checked at the call, its rows as they are read. Blank lines are skipped. In TSV a quote is
    an ordinary character and a field holds neither tab nor line end; CSV is quoted as RFC 4180 says.

    Args:
        faults: Collects faults of single rows for the caller to raise. None raises them after the last row.
        cursor: Position of the first row to read, moved along with the rows. Where the format allows it,
            nothing before it is read, and a data set of the hub is streamed instead of downloaded. None
            begins at the first row.
        header: Required first line of CSV or TSV; None accepts any names of columns.
        whole: Whether all splits are read where none is named, as those of a corpus are.
        mapped: Whether the caller maps the columns that the address names; they are refused otherwise.
    """
    place = place_of(source, split, whole=whole)
    columns = Source.of(source).columns
    if columns and not mapped:
        raise ConfigError(
            f"{source} must not name columns in its address, got {', '.join(columns)}; "
            "settings name those of this data"
        )
    if place.note:
        warnings.warn(place.note, stacklevel=2)
    collected = FileFaults() if faults is None else faults
    position = Cursor() if cursor is None else cursor
    rows = _rows_at(place, collected, position, header, streaming=cursor is not None)

    def guarded() -> Iterator[Row]:
        """The rows, with any error of a reader as one line that names the file."""
        # A reader of a damaged file can fail in any way.
        with reading(Path(place.path), remedy="write or download it again"):
            yield from rows
        if faults is None:
            collected.raise_if_any()

    return guarded()


def count_rows(source: str | Path, *, split: str | None = None, whole: bool = False) -> int | None:
    """Number of rows, including faulty ones; None if that requires reading all of them.

    Parquet and ``datasets`` sources store it; JSON lines and TSV are scanned for lines that are not blank;
    CSV, whose fields may hold line ends, is not counted.
    """
    place = place_of(source, split, whole=whole)
    if place.form == "documents":
        return len(place.files)
    if place.form == "csv":
        return None
    if place.form in ("parquet", "saved", "hub"):
        # Loaded only for sources in these formats.
        from adiabat.data.table_formats import dataset_size, parquet_size

        if place.form == "parquet":
            return parquet_size(place.files)
        return dataset_size(place)
    total = 0
    for file in place.files:
        lines = sum(1 for _, line in byte_lines(file, Cursor()) if line.strip())
        # The first line of TSV is the header.
        total += max(0, lines - 1) if place.form == "tsv" else lines
    return total


def _rows_at(
    place: Place,
    faults: FileFaults,
    cursor: Cursor,
    header: Sequence[str] | None,
    *,
    streaming: bool,
) -> Iterator[Row]:
    """Rows of a place behind a cursor, which moves along."""
    if place.form in ("saved", "hub"):
        # Loaded only for sources in these formats.
        from adiabat.data.table_formats import dataset_rows

        values = dataset_rows(place, after=cursor.rows, streaming=streaming)
        numbered = enumerate(values, cursor.rows + 1)
        return _counted(((f"{place.path}:{number}", row) for number, row in numbered), cursor)
    if place.form == "parquet":
        from adiabat.data.table_formats import parquet_rows

        return _counted(parquet_rows(place.files, after=cursor.rows), cursor)
    if place.form == "documents":
        return _counted(_documents(place, faults, after=cursor.rows), cursor)
    return _text_rows(place, faults, cursor, header)


def _documents(place: Place, faults: FileFaults, *, after: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A document for each file, whose id is its path in the folder."""
    for file in place.files[after:]:
        text = "".join(line for _, line, _ in text_lines(file, faults, Cursor()))
        yield str(file), {"_id": file.relative_to(place.path).as_posix(), "text": text}


def _text_rows(
    place: Place, faults: FileFaults, cursor: Cursor, header: Sequence[str] | None
) -> Iterator[Row]:
    """Rows of text files, one after the other; the cursor tells the file to begin with."""
    for number in range(cursor.files, len(place.files)):
        if number > cursor.files:
            cursor.files, cursor.lines, cursor.offset = number, 0, 0
        file = place.files[number]
        if place.form == "json":
            yield from _json_rows(file, faults, cursor)
        else:
            yield from _delimited_rows(file, faults, cursor, form=place.form, expected=header)


def _counted(rows: Iterator[tuple[str, Mapping[str, Any]]], cursor: Cursor) -> Iterator[Row]:
    """Rows with their numbers; the cursor moves along."""
    for number, (location, values) in enumerate(rows, cursor.rows):
        cursor.rows += 1
        yield Row(location, values, number=number)


def _json_rows(path: Path, faults: FileFaults, cursor: Cursor) -> Iterator[Row]:
    """Rows of a file of JSON lines; the first line tells other kinds of JSON apart."""
    for number, line, is_valid in text_lines(path, faults, cursor):
        if not is_valid or not line.strip():
            continue
        try:
            values = json.loads(
                line.rstrip()
            )  # With its line end, a missing value would be reported on the next line.
            fault = value_kind(values)
        except (ValueError, RecursionError) as error:
            values, fault = None, _json_fault(error, line)
        if isinstance(values, dict):
            cursor.rows += 1
            yield Row(place_in(path, number), values, number=cursor.rows - 1)
        # A file with one value over all lines: a fault for each of them would say less.
        elif number == 1 and re.match(r"\[|.*[{[,]$", line.strip()):
            raise DataError(
                f'{path} must hold one JSON object per line, such as {{"query": ..., "positive": ...}}, got '
                f"an array, or one over many lines: {shown(line.strip())}; write each object on its own line"
            )
        else:
            faults.add(f"{path}:{number} must be one JSON object, got {fault}")


def _json_fault(error: Exception, line: str) -> str:
    """What a line that is no JSON holds, and why it is none."""
    text = line.strip()
    snippet = text if len(text) <= _SNIPPET_CHARACTERS else text[:_SNIPPET_CHARACTERS] + "..."
    if text.startswith("\ufeff"):  # Python's own message for it speaks of codecs.
        return f"{snippet[1:]} (after a byte-order mark, left where files were joined; remove it)"
    if isinstance(error, json.JSONDecodeError):
        return f"{snippet} ({error.msg} at column {error.colno})"
    # The only other ValueError of the parser is Python's limit on the digits of a whole number.
    detail = "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
    return f"{snippet} ({detail})"


def _delimited_rows(
    path: Path, faults: FileFaults, cursor: Cursor, *, form: Form, expected: Sequence[str] | None
) -> Iterator[Row]:
    """Rows of CSV or TSV below their header, which is read again where reading resumes."""
    names: tuple[str, ...] = ()
    location = ""
    if cursor.lines:  # The header lies before the first row to read.
        header_faults = FileFaults()
        line, cells = next(_cells(path, header_faults, Cursor(), form=form), (1, None))
        header_faults.raise_if_any()
        location = f"{path}:{line}"
        names = header_of(cells or [""], location, form=form, expected=expected)
    for line, cells in _cells(path, faults, cursor, form=form):
        if cells is None:
            if not names:
                faults.raise_if_any()
        elif not names:
            location = f"{path}:{line}"
            names = header_of(cells, location, form=form, expected=expected)
        elif len(cells) != len(names):
            faults.add(f"{path}:{line} must have {len(names)} fields as the header has, got {len(cells)}")
        else:
            cursor.rows += 1
            values = {name: cell or None for name, cell in zip(names, cells, strict=True) if name}
            yield Row(f"{path}:{line}", values, location, cursor.rows - 1)
    if names and not cursor.rows and not faults.count:
        raise DataError(
            f"{path} must hold at least one row, got none below line 1, {shown_names(names)}; check that "
            "the file is complete; if this line is a row, put a header of column names before it"
        )


def _cells(
    path: Path, faults: FileFaults, cursor: Cursor, *, form: Form
) -> Iterator[tuple[int, list[str] | None]]:
    """First line and fields of each non-blank row; None in place of the fields if a line is not UTF-8."""
    # The csv module refuses fields above 131,072 characters by default, and its limit is one for the whole
    # process.
    csv.field_size_limit(max(csv.field_size_limit(), _FIELD_CHARACTERS))
    invalid: set[int] = set()
    is_tsv, before = form == "tsv", cursor.lines

    def lines() -> Iterator[str]:
        """Lines for the csv module; numbers of invalid ones are noted."""
        for number, line, is_valid in text_lines(path, faults, cursor):
            if not is_valid:
                invalid.add(number)  # A quoted row may span several lines.
            # Without quoting, a carriage return inside a line is text, but the csv module would end the row
            # there.
            yield line.rstrip("\r\n").replace("\r", " ") if is_tsv else line

    # In TSV a quote is a character like any other.
    quoting: Literal[0, 3] = csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL
    reader = csv.reader(lines(), delimiter="\t" if is_tsv else ",", quoting=quoting, strict=True)
    while True:
        first = before + reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            fault = str(error)
            if "field limit" in fault:
                advice = "" if is_tsv else "; close the quote that was left open"
                fault = (
                    f"a field of more than {csv.field_size_limit():,} characters, read up "
                    f"to line {before + reader.line_num}{advice}"
                )
            faults.add(f"{path}:{first} must be well-formed {form.upper()}, got: {fault}")
            continue
        if cells is None:
            return
        is_valid = invalid.isdisjoint(range(first, before + reader.line_num + 1))
        invalid.clear()
        if not is_valid or len(cells) > 1 or "".join(cells).strip():
            yield first, cells if is_valid else None


_KINDS: Sequence[tuple[type | tuple[type, ...], str]] = (
    (bool, "true or false"),
    (str, "a string"),
    ((int, float), "a number"),
    ((list, tuple), "a list"),
    (Mapping, "an object"),
    (type(None), "null"),
)
"""Types of values, the narrower ones first: a bool is an int, too."""


def value_kind(value: object) -> str:
    """The kind of a value, in the terms of a data file."""
    for types, name in _KINDS:
        if isinstance(value, types):
            return name
    return type(value).__name__
