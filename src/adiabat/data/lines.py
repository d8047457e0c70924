"""Lines of a text file, plain or packed, from its beginning or from a place that reading came to before."""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from adiabat.core.errors import AdiabatError, ConfigError, DataError, Faults

CODECS: Mapping[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
"""Ending of a packed file to how it is packed."""

_READ_BYTES = 1 << 13
"""At a time; where a packed file is cut short, the piece that its end falls into is lost, and the line told is that before it."""


@dataclass(frozen=True, slots=True)
class RowPosition:
    """A place between two rows of a source.

    Attributes:
        rows: Sound rows before it.
        lines: Lines before it, in text files.
        offset: Bytes before it, in text files; of a packed one, of what it unpacks to.
    """

    rows: int = 0
    lines: int = 0
    offset: int = 0


START = RowPosition()

LONGEST_LINE = "ADIABAT_LONGEST_LINE"
"""In the environment: bytes of the longest line that is read."""


@dataclass(slots=True)
class Cursor:
    """Where reading is: whoever reads moves it along, and `mark` says where to go on.

    Attributes:
        rows: As in `RowPosition`.
        lines: As in `RowPosition`.
        offset: As in `RowPosition`.
    """

    rows: int = 0
    lines: int = 0
    offset: int = 0

    @classmethod
    def at(cls, mark: RowPosition) -> "Cursor":
        """Begin at a place."""
        return cls(mark.rows, mark.lines, mark.offset)

    def mark(self) -> RowPosition:
        """The place behind the last row that was read."""
        return RowPosition(self.rows, self.lines, self.offset)


def byte_lines(path: Path, cursor: Cursor) -> Iterator[tuple[int, bytes]]:
    """Iterate over lines; a plain file is read from the cursor's byte on, of a packed one the lines before it are passed over.

    Yields:
        The number of each line, from 1, and its bytes with the line end.
    """
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
    except AdiabatError:
        raise
    except (OSError, EOFError, ValueError, pa.ArrowException) as error:
        raise DataError(_stream_fault(path, codec, number, str(error))) from error


def limited_lines(lines: BinaryIO | io.BufferedReader, path: Path, number: int = 0) -> Iterator[bytes]:
    """Lines of a file, of which none may fill the memory."""
    limit = longest_line()
    while line := lines.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise DataError(
                f"{path}:{number} must have at most {limit:,} bytes, got a longer line; end each row with a line end, or set "
                f"{LONGEST_LINE} to a larger number of bytes"
            )
        yield line


def longest_line() -> int:
    """Bytes of the longest line that is read."""
    stated = os.environ.get(LONGEST_LINE, str(64 << 20))
    if not (stated.isascii() and stated.isdigit() and 0 < len(stated) < 16 and int(stated)):
        raise ConfigError(f"{LONGEST_LINE} must be a whole number of bytes > 0, got {stated!r}; correct the environment")
    return int(stated)


def require_plain(path: Path) -> None:
    """Refuse what may have no end, or cannot be read twice: devices, pipes and sockets."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{os.fsencode(path)!r} must be a name in UTF-8, got other bytes; rename it") from error
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} must be a file or a folder, got a device, pipe or socket; copy what it gives into a file")


def _seek(stream: Any, path: Path, offset: int) -> None:
    """Go to a byte that must begin a line, or end the file."""
    size = os.stat(path).st_size
    if size < offset:
        raise _changed(path, f"{size:,} bytes", f"byte {offset:,}")
    stream.seek(offset - 1)
    if stream.read(1) != b"\n" and offset < size:
        raise _changed(path, "the middle of a line", f"byte {offset:,}")


def _changed(path: Path, found: str, place: str) -> DataError:
    return DataError(
        f"{path} must be the file that was read before, got {found} where reading goes on at {place}; bring it back, or start anew"
    )


def _stream_fault(path: Path, codec: str | None, number: int, reason: str) -> str:
    if codec is None:
        return f"{path} must be readable, got: {reason}"
    if "truncated" in reason.lower():
        return f"{path} must be a whole {codec} file, got one that is cut short after line {number}; copy or download it again"
    return f"{path} must be a {codec} file, got bytes that are not after line {number} ({reason}); rename it or download it again"


def text_lines(path: Path, faults: Faults, cursor: Cursor) -> Iterator[tuple[int, str, bool]]:
    """Iterate over lines as text."""
    for number, line in byte_lines(path, cursor):
        if number == 1:
            if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError(f"{path} must be UTF-8, got UTF-16; convert it, e.g. with iconv -f UTF-16 -t UTF-8")
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield number, line.decode("utf-8"), True
        except UnicodeDecodeError as error:
            faults.add(f"{path}:{number} must be UTF-8, got byte 0x{line[error.start]:02x} at byte {error.start + 1} of the line")
            yield number, line.decode("utf-8", "replace"), False
