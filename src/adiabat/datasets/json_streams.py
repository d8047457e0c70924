"""Files that hold no rows under a header: one JSON value, one long JSON array, and tables without column names."""

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.data.lines import CODECS, limited_lines
from adiabat.data.table_rows import FileFaults, require_path

_READ_BYTES = 1 << 20
_LINES_PER_REPORT = 1 << 16
_LONGEST = 1 << 24
"""Characters of one element of an array: far more than any holds, and little enough for a damaged one not to fill the memory."""
_TAIL = 4
"""Characters that must follow a value before it is believed: a window that ends in ``12e+`` holds the beginning of a longer number."""
_SHOWN = 60
_SPACE = re.compile(r"[ \t\r\n]*")


def split_files(source: Path, patterns: Mapping[str, str]) -> dict[str, Path]:
    """The publisher's files that a source names."""
    require_path(source)
    if not source.is_dir():
        return {next((split for split, pattern in patterns.items() if source.match(pattern)), "test"): source}
    found = {split: sorted(source.glob(pattern)) for split, pattern in patterns.items()}
    if twice := [f"{' and '.join(path.name for path in paths)}" for paths in found.values() if len(paths) > 1]:
        raise DataError(f"{source} must hold one file of each split, got {', '.join(twice)}; name the one that is meant")
    if not any(found.values()):
        raise DataError(f"{source} must hold {' or '.join(patterns.values())}, got none of them; name the file itself")
    return {split: paths[0] for split, paths in found.items() if paths}


def read_json(path: Path) -> Any:
    """Read a file that is one JSON value."""
    text = "".join(_text_pieces(path, SILENT))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} must be JSON, got {_reason(error)}; download it again") from error


def json_elements(path: Path, *, watch: Watch = SILENT) -> Iterator[tuple[int, Any]]:
    """Iterate over the elements of a file that is one JSON array, in memory for the largest of them."""
    window = _Window(_text_pieces(path, watch))
    if window.following() != "[":
        raise DataError(f"{path} must be one JSON array, got {window.shown()}; check that it is the file meant")
    window.at += 1
    number = 0
    mark = "," if window.following() != "]" else "]"
    while mark == ",":
        number += 1
        yield number, _element(window, f"{path}: element {number}")
        mark = window.following()
        if mark not in (",", "]"):
            raise DataError(f"{path} must have a comma or its end after element {number}, got {window.shown()}; download it again")
        window.at += 1
    if not number:
        window.at += 1
    if window.following():
        raise DataError(f"{path} must be one JSON array and nothing behind it, got {window.shown()}; download it again")


def tab_rows(path: Path, width: int, faults: FileFaults, *, watch: Watch = SILENT) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the rows of a file of fields between tabs that has no header, in constant memory."""
    with _opened(path, watch) as (stream, report):
        for number, line in enumerate(limited_lines(stream, path), 1):
            if number % _LINES_PER_REPORT == 0:
                report()
            place = f"{path}:{number}"
            try:
                text = line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                faults.add(f"{place} must be UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line")
                continue
            fields = text.split("\t")
            if len(fields) == width:
                yield place, fields
            elif text.strip():
                faults.add(f"{place} must have {width} fields between tabs, got {len(fields)}")


class _Window:
    """The part of a text that is being looked at."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.text, self.at = "", 0
        self._pieces = pieces

    def read_on(self) -> bool:
        """Take at least as much again as is waiting, so that a long element is parsed anew a few times only; False at the end."""
        parts = [self.text[self.at :]]
        wanted, got = len(parts[0]), 0
        for piece in self._pieces:
            parts.append(piece)
            got += len(piece)
            if got and got >= wanted:
                break
        self.text, self.at = "".join(parts), 0
        return got > 0

    def following(self) -> str:
        """The next character that is not white space, "" at the end."""
        while True:
            space = _SPACE.match(self.text, self.at)
            self.at = space.end() if space else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.read_on():
                return ""

    def shown(self) -> str:
        waiting = self.text[self.at : self.at + _SHOWN + 1]
        if not waiting:
            return "the end of the file"
        return waiting if len(waiting) <= _SHOWN else f"{waiting[:_SHOWN]}..."


def _element(window: _Window, place: str) -> Any:
    decoder = json.JSONDecoder()
    window.following()
    while True:
        too_long = len(window.text) - window.at > _LONGEST
        try:
            value, end = decoder.raw_decode(window.text, window.at)
        except (ValueError, RecursionError) as error:
            # Damaged, or only its beginning: the rest of it tells.
            if isinstance(error, RecursionError) or too_long or not window.read_on():
                raise DataError(f"{place} must be whole JSON, got {window.shown()}; download the file again") from error
            continue
        size = end - window.at
        if len(window.text) - end < _TAIL and window.read_on():
            continue
        window.at += size
        return value


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    return "a value nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def _text_pieces(path: Path, watch: Watch) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with _opened(path, watch) as (stream, report):
        done = False
        while not done:
            piece = stream.read(_READ_BYTES)
            done = not piece
            try:
                yield decoder.decode(piece, final=done)
            except UnicodeDecodeError as error:
                raise DataError(f"{path} must be UTF-8, got byte 0x{error.object[error.start]:02x}; download it again") from error
            report()


@contextmanager
def _opened(path: Path, watch: Watch) -> Iterator[tuple[BinaryIO, Callable[[], None]]]:
    """The unpacked bytes of a file, and a function that says how much of the packed ones was read."""
    require_path(path)
    try:
        with pa.OSFile(str(path)) as packed:
            size = packed.size()
            codec = CODECS.get(path.suffix.lower())
            # pyarrow's stubs do not say that its files are raw streams; they are (readable, readinto, closed).
            stream: Any = pa.CompressedInputStream(packed, codec) if codec else packed
            with io.BufferedReader(stream, _READ_BYTES) as lines:
                yield cast(BinaryIO, lines), lambda: watch.progress(f"bytes of {path.name}", size if packed.closed else packed.tell(), size)
    except OSError as error:
        raise DataError(f"{path} must be readable to its end, got: {error}; copy or download it again") from error
