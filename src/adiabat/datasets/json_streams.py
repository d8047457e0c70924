"""Readers of publishers' files other than tables with a header: one JSON value, one long JSON array, and TSV
without column names.
"""

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from adiabat.core.errors import DataError, reraise_unrelated
from adiabat.core.progress import SILENT, Watch
from adiabat.data.folders import require_path
from adiabat.data.lines import CODECS, decoded, limited_lines
from adiabat.data.table_rows import FileFaults

_READ_BYTES = 1 << 20
_PROGRESS_LINES = 1 << 16
_LONGEST_ELEMENT = 1 << 24
"""Characters of one element of an array: a limit, so that a damaged element does not fill the memory."""
_LOOKAHEAD = 4
"""Characters required behind a value: a window that ends in ``12e+`` holds the beginning of a longer
number."""
_SHOWN_CHARACTERS = 60
_WHITE_SPACE = re.compile(r"[ \t\r\n]*")


def split_files(source: Path, patterns: Mapping[str, str]) -> dict[str, Path]:
    """The publisher's file of each split: those in a folder, or the file itself, whose split its name tells
    (else ``test``).
    """
    require_path(source)
    if not source.is_dir():
        return {next((split for split, pattern in patterns.items() if source.match(pattern)), "test"): source}
    matches = {split: sorted(source.glob(pattern)) for split, pattern in patterns.items()}
    if ambiguous := [
        " and ".join(path.name for path in paths) for paths in matches.values() if len(paths) > 1
    ]:
        raise DataError(
            f"{source} must hold one file of each split, got {', '.join(ambiguous)}; name one of them"
        )
    if not any(matches.values()):
        raise DataError(
            f"{source} must hold {' or '.join(patterns.values())}, got none of them; name the file itself"
        )
    return {split: paths[0] for split, paths in matches.items() if paths}


def read_json(path: Path) -> Any:
    """Read a file that is one JSON value."""
    text = "".join(_text_chunks(path, SILENT))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} must be JSON, got {error}; download it again") from error


def json_elements(path: Path, *, watch: Watch = SILENT) -> Iterator[tuple[int, Any]]:
    """Iterate over the elements of a file that is one JSON array, in memory for the largest of them; numbers
    begin at 1.
    """
    window = _Window(_text_chunks(path, watch))
    if window.next_character() != "[":
        raise DataError(
            f"{path} must be one JSON array, got {window.snippet()}; check that it is the right file"
        )
    window.position += 1
    number = 0
    separator = "," if window.next_character() != "]" else "]"
    while separator == ",":
        number += 1
        yield number, _element(window, f"{path}: element {number}")
        separator = window.next_character()
        if separator not in (",", "]"):
            raise DataError(
                f"{path} must have a comma or its end after element {number}, got "
                f"{window.snippet()}; download it again"
            )
        window.position += 1
    if not number:
        window.position += 1
    if window.next_character():
        raise DataError(
            f"{path} must be one JSON array with nothing after it, got {window.snippet()}; download it again"
        )


def tab_rows(
    path: Path, width: int, faults: FileFaults, *, watch: Watch = SILENT
) -> Iterator[tuple[str, list[str]]]:
    """Iterate over ``file:line`` and fields of a TSV file without a header, in constant memory."""
    with _opened(path, watch) as (stream, report):
        for number, line in enumerate(limited_lines(stream, path), 1):
            if number % _PROGRESS_LINES == 0:
                report()
            location = f"{path}:{number}"
            text, is_valid = decoded(line, location, faults)
            fields = text.rstrip("\r\n").split("\t")
            if is_valid and len(fields) == width:
                yield location, fields
            elif is_valid and text.strip():
                faults.add(f"{location} must have {width} fields between tabs, got {len(fields)}")


class _Window:
    """The part of a text that is in memory, and the reading position in it."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self.text, self.position = "", 0
        self._chunks = chunks

    def extend(self) -> bool:
        """Read on, at least doubling the unread text, so that a long element is parsed again a few times
        only; False at the end.
        """
        parts = [self.text[self.position :]]
        # The window at least doubles, so that parsing an element again costs about twice its length.
        unread, added = len(parts[0]), 0
        for chunk in self._chunks:
            parts.append(chunk)
            added += len(chunk)
            if added and added >= unread:
                break
        self.text, self.position = "".join(parts), 0
        return added > 0

    def next_character(self) -> str:
        """The next character that is not white space, "" at the end."""
        while True:
            space = _WHITE_SPACE.match(self.text, self.position)
            self.position = space.end() if space else self.position
            if self.position < len(self.text):
                return self.text[self.position]
            if not self.extend():
                return ""

    def snippet(self) -> str:
        """The next characters, for messages."""
        text = self.text[self.position : self.position + _SHOWN_CHARACTERS]
        return text or "the end of the file"


def _element(window: _Window, location: str) -> Any:
    """The next value of an array; the window grows until it holds all of it."""
    decoder = json.JSONDecoder()
    window.next_character()
    while True:
        too_long = len(window.text) - window.position > _LONGEST_ELEMENT
        try:
            value, end = decoder.raw_decode(window.text, window.position)
        except (ValueError, RecursionError) as error:
            # Either damaged or incomplete: read on to find out.
            if isinstance(error, RecursionError) or too_long or not window.extend():
                raise DataError(
                    f"{location} must be whole JSON, got {window.snippet()}; download the file again"
                ) from error
            continue
        size = end - window.position
        # A number at the end of the window may go on behind it.
        if len(window.text) - end < _LOOKAHEAD and window.extend():
            continue
        window.position += size
        return value


def _text_chunks(path: Path, watch: Watch) -> Iterator[str]:
    """The text of a file, a chunk at a time, without a byte-order mark."""
    # A character may stand across two chunks.
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with _opened(path, watch) as (stream, report):
        at_end = False
        while not at_end:
            chunk = stream.read(_READ_BYTES)
            at_end = not chunk
            try:
                yield decoder.decode(chunk, final=at_end)
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path} must be UTF-8, got byte 0x{error.object[error.start]:02x}; download it again"
                ) from error
            report()


@contextmanager
def _opened(path: Path, watch: Watch) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """The decompressed bytes of a file, and a function that reports how many bytes of the file itself were
    read.
    """
    require_path(path)
    try:
        with pa.OSFile(str(path)) as file:
            # Bytes of the compressed file, which are known before it is read.
            size = file.size()
            codec = CODECS.get(path.suffix.lower())
            # pyarrow's stubs do not say that its files are raw streams; they are (readable, readinto,
            # closed).
            stream: Any = pa.CompressedInputStream(file, codec) if codec else file
            with io.BufferedReader(stream, _READ_BYTES) as lines:
                yield (
                    cast(BinaryIO, lines),
                    lambda: watch.progress(
                        f"bytes of {path.name}", size if file.closed else file.tell(), size
                    ),
                )
    except OSError as error:
        reraise_unrelated(error)
        raise DataError(
            f"{path} must be readable to its end, got: {error}; copy or download it again"
        ) from error
