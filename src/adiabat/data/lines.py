"""Lines of a text file, plain or compressed, from its beginning or an earlier position; and the known names
of columns.
"""

import io
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

from adiabat.core.errors import ConfigError, DataError, Faults, reraise_unrelated
from adiabat.core.files import require_plain
from adiabat.core.text import cut, number_of, shown

HUB_PREFIX = "hf:"
"""Prefix of a name on the hub."""

CODECS: Mapping[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
"""Suffix of a compressed file to its compression."""

LONGEST_LINE = "ADIABAT_LONGEST_LINE"
"""Environment variable with the maximum bytes of a line."""

_READ_BYTES = 1 << 13
"""Bytes read at once. The last chunk of a truncated compressed file is lost; the reported line is the one
before it."""


@dataclass(slots=True)
class Cursor:
    """A position between two rows: valid rows before it; in text files also files, and lines and bytes
    (decompressed) of its own file.

    Readers advance it.
    """

    rows: int = 0
    lines: int = 0
    offset: int = 0
    files: int = 0

    def position(self) -> "Cursor":
        """A copy at the same position, unaffected by readers."""
        return Cursor(self.rows, self.lines, self.offset, self.files)


def byte_lines(path: Path, cursor: Cursor) -> Iterator[tuple[int, bytes]]:
    """Iterate over line numbers, from 1, and lines in bytes including the line end.

    A plain file is read from the cursor's byte; in a compressed one, earlier lines are skipped.
    """
    # Names of columns are known without it, as the help of a verb needs them.
    import pyarrow as pa

    codec = CODECS.get(path.suffix.lower())
    number = 0
    require_plain(path)
    try:
        # pyarrow's stubs do not say that its files are raw streams; they are (readable, readinto, closed).
        stream: Any = pa.input_stream(str(path), compression=codec)
        with stream:
            if codec is None and cursor.offset:
                _seek(stream, path, cursor.offset)
                number = cursor.lines
            with io.BufferedReader(stream, _READ_BYTES) as buffered:
                lines = limited_lines(buffered, path, number)
                for _ in islice(lines, cursor.lines - number):
                    number += 1
                if number < cursor.lines:
                    raise _changed(path, f"{number:,} lines", f"line {cursor.lines + 1:,}")
                for line in lines:
                    number += 1
                    cursor.lines, cursor.offset = number, cursor.offset + len(line)
                    yield number, line
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        reraise_unrelated(error)
        raise DataError(_stream_fault(path, codec, number, str(error))) from error


def text_lines(path: Path, faults: Faults, cursor: Cursor) -> Iterator[tuple[int, str, bool]]:
    """Iterate over lines as (number, text, whether it is valid)."""
    for number, line in byte_lines(path, cursor):
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(
                    f"{path} must be UTF-8, got UTF-16; convert it, e.g. with iconv -f UTF-16 -t UTF-8"
                )
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield number, *decoded(line, f"{path}:{number}", faults)


def decoded(line: bytes, location: str, faults: Faults) -> tuple[str, bool]:
    """The text of a line, and whether it is valid UTF-8 without zero bytes, which no text file has."""
    if b"\0" in line:
        place = f"a zero byte at byte {line.index(0) + 1:,} of the line"
        faults.add(
            f"{location} must be text, got {place}; part of the file is lost, or "
            "it is UTF-16: write it again as UTF-8"
        )
        return line.decode("utf-8", "replace"), False
    try:
        return line.decode("utf-8"), True
    except UnicodeDecodeError as error:
        faults.add(
            f"{location} must be UTF-8, got byte 0x{line[error.start]:02x} at "
            f"byte {error.start + 1} of the line"
        )
        return line.decode("utf-8", "replace"), False


def limited_lines(lines: BinaryIO | io.BufferedReader, path: Path, number: int = 0) -> Iterator[bytes]:
    """Lines of a file, each within the length limit; `number` lines come before them."""
    limit = longest_line()
    # One byte more than allowed tells a line that is too long.
    while line := lines.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise DataError(
                f"{path}:{number} must have at most {limit:,} bytes, got a longer line; end each row with a "
                f"newline, or set {LONGEST_LINE} to a larger number of bytes"
            )
        yield line


def longest_line() -> int:
    """Bytes of the longest line that is read."""
    setting = os.environ.get(LONGEST_LINE, str(64 << 20))
    if not (setting.isascii() and setting.isdigit() and 0 < len(setting) < 16 and int(setting)):
        raise ConfigError(
            f"{LONGEST_LINE} must be a whole number of bytes > 0, got {setting!r}; "
            "correct the environment variable"
        )
    return int(setting)


def _seek(stream: Any, path: Path, offset: int) -> None:
    """Seek to a byte that must begin a line or end the file."""
    size = os.stat(path).st_size
    if size < offset:
        raise _changed(path, f"{size:,} bytes", f"byte {offset:,}")
    # The byte before must end a line, or the file has changed.
    stream.seek(offset - 1)
    if stream.read(1) != b"\n" and offset < size:
        raise _changed(path, "the middle of a line", f"byte {offset:,}")


def _changed(path: Path, content: str, position: str) -> DataError:
    """The error for a file that is not the one that was read before."""
    return DataError(
        f"{path} must be unchanged since it was read, got {content} where reading "
        f"resumes at {position}; restore it, or start again"
    )


def _stream_fault(path: Path, codec: str | None, number: int, reason: str) -> str:
    """The phrase for a file that cannot be read, or not decompressed to its end."""
    if codec is None:
        return f"{path} must be readable, got: {reason}"
    if "truncated" in reason.lower():
        return (
            f"{path} must be a whole {codec} file, got one that ends early, after "
            f"line {number}; copy or download it again"
        )
    return (
        f"{path} must be a {codec} file, got other bytes after line {number} "
        f"({reason}); rename it or download it again"
    )


Layout = Literal["grid", "examples", "corpus"]
"""Kind of a row: a sentence pair in several languages, a query with its documents, or a document."""


COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "doc_id": ("doc_id", "_id", "id", "docid", "pid"),
    "text": ("text", "passage", "contents", "content", "body", "abstract"),
    "title": ("title",),
    "query_id": ("query_id", "query-id", "qid", "_id", "id"),
    "query": ("query", "anchor", "question", "q", "query_text"),
    "positive": ("positive", "pos", "positives", "passage", "positive_document_ids", "answer"),
    "negative": ("negative", "neg", "negatives", "negative_document_ids"),
    "topic": ("topic",),
    "tag": ("tag",),
    "measure.cluster": (),
    "premise": ("premise",),
    "hypothesis": ("hypothesis",),
    "label": ("label", "labels", "score", "relevance", "is_relevant"),
    "scores": ("scores",),
}
"""Our name of a column to its names in files. Our own name wins; two other matches are an error that asks for
a mapping. A name with a dot is the setting that maps it."""


_NUMBERED = re.compile(r"(?:(positives?|pos)_?|(?:hard_)?(?:negatives?|neg)_?)(\d+)|hard_(?:negatives?|neg)")
"""Further columns of positives and negatives: ``positive_2``, ``negative1``, ``hard_negatives`` ..."""


OF_LAYOUT: Mapping[Layout, tuple[str, ...]] = {
    "grid": ("premise", "hypothesis", "label"),
    "examples": (
        "query_id",
        "query",
        "positive",
        "negative",
        "label",
        "scores",
        "topic",
        "tag",
        "measure.cluster",
    ),
    "corpus": ("doc_id", "text", "title"),
}
"""Our names of the columns of each kind of row; if two are mapped to one column, a profile lists the last."""


def parted_columns(
    columns: Mapping[str, str], *, has_corpus: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """The columns of examples, and those of documents in a corpus apart; without one, examples have all."""
    if not has_corpus:
        return dict(columns), {}
    of_examples, of_documents = dict[str, str](), dict[str, str]()
    for name, column in columns.items():
        table = of_documents if name in OF_LAYOUT["corpus"] else of_examples
        table[name] = column
    return of_examples, of_documents


REQUIRED: Mapping[Layout, tuple[str, ...]] = {
    "grid": ("premise", "hypothesis"),
    "examples": ("query", "positive"),
    "corpus": ("doc_id", "text"),
}
"""The columns by which each kind of row is told."""


MEANING: Mapping[Layout, str] = {
    "grid": "a sentence pair, two objects by language",
    "examples": "an example",
    "corpus": "a document",
}
"""What each kind of row is, for messages."""


_KNOWN = frozenset(chain.from_iterable(COLUMN_ALIASES.values()))
"""All known names; a header with one of them is a header."""


_LONGEST_NAME = 80
_MAX_WORDS = 6
"""Characters and words of the longest name of a column; a longer cell of a header is a value."""


_SEPARATORS = {"csv": ("commas", ";|\t"), "tsv": ("tabs", ",;|")}
"""Of each format the separator in words, and those of other files."""


def more_columns(name: str, columns: Iterable[str]) -> list[str]:
    """Further columns of positives or negatives, by number."""
    numbered = [(match[1], column) for column in columns if (match := _numbered(column)) and match[0] == name]
    return [column for _, column in sorted(numbered)]


@lru_cache(maxsize=1024)
def _numbered(column: str) -> tuple[str, int] | None:
    """Role and number of a further column of documents; None for any other column."""
    match = _NUMBERED.fullmatch(column)
    return match and ("positive" if match[1] else "negative", int(match[2] or 0))


def header_of(
    cells: Sequence[str], location: str, *, form: str, expected: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Read a line as the header; `expected` are its names, None allows any.

    The name "" is an index of pandas, and is not read.
    """
    names = tuple(cell.strip() for cell in cells)
    if expected is not None and names != tuple(expected):
        raise DataError(
            f"{location} must be the header {' '.join(expected)} (by tabs), got "
            f"{cut(' '.join(names), limit=120)}; add it"
        )
    # One column whose name holds another separator: the file has the wrong ending.
    got = f"got {shown_names(names)}"
    separator, others = _SEPARATORS[form]
    if len(names) == 1 and not set(others).isdisjoint(names[0]):
        raise DataError(f"{location} must separate its columns by {separator}, {got}; separate them so")
    if "" in names[1:] or names == ("",) or len(set(names)) < len(names):
        raise DataError(f"{location} must name every column once, {got}; correct the header")
    # A number or sentence may be a column name if pandas numbered the columns, or beside known names.
    values = [
        name
        for name in names
        if number_of(name) is not None or len(name) > _LONGEST_NAME or len(name.split()) > _MAX_WORDS
    ]
    if values and _KNOWN.isdisjoint(names) and names != tuple(map(str, range(len(names)))):
        advice = "put a header before the first row"
        raise DataError(
            f"{location} must be a header of column names, {got}, but "
            f"{shown(values[0])} is not a name; {advice}"
        )
    if names[0] == "":
        warnings.warn(
            f"{location}: the first column is ignored: it has no name, like an index that pandas wrote",
            stacklevel=2,
        )
    return names


def shown_names(names: Sequence[str]) -> str:
    """The first names of a header, for messages."""
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(map(shown, names[:10])) + more
