"""Lines of a text file, plain or compressed, from its beginning or from an earlier reading position."""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa

from adiabat.core.errors import AdiabatError, ConfigError, DataError, Faults

HUB_PREFIX = "hf:"
"""Prefix of a name on the hub."""

CODECS: Mapping[str, Literal["gzip", "zstd"]] = {".gz": "gzip", ".zst": "zstd"}
"""Ending of a compressed file to its compression."""

LONGEST_LINE = "ADIABAT_LONGEST_LINE"
"""Environment variable: bytes of the longest line that is read."""

_READ_BYTES = 1 << 13
"""Bytes read at once. Of a truncated compressed file the last chunk is lost; the reported line is the one before it."""


@dataclass(slots=True)
class Cursor:
    """A position between two rows: valid rows, lines and bytes (decompressed) before it, the latter two in text files only.

    Readers move it along.
    """

    rows: int = 0
    lines: int = 0
    offset: int = 0

    def position(self) -> "Cursor":
        """A copy, which stays behind the last row that was read."""
        return Cursor(self.rows, self.lines, self.offset)


def byte_lines(path: Path, cursor: Cursor) -> Iterator[tuple[int, bytes]]:
    """Iterate over the numbers of lines, from 1, and their bytes with the line end.

    A plain file is read from the cursor's byte on; of a compressed one the lines before it are skipped.
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


def text_lines(path: Path, faults: Faults, cursor: Cursor) -> Iterator[tuple[int, str, bool]]:
    """Iterate over lines as (number, text, whether it is valid UTF-8)."""
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


def limited_lines(lines: BinaryIO | io.BufferedReader, path: Path, number: int = 0) -> Iterator[bytes]:
    """Lines of a file, none of which may fill the memory; `number` lines lie before them."""
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
    setting = os.environ.get(LONGEST_LINE, str(64 << 20))
    if not (setting.isascii() and setting.isdigit() and 0 < len(setting) < 16 and int(setting)):
        raise ConfigError(f"{LONGEST_LINE} must be a whole number of bytes > 0, got {setting!r}; correct the environment")
    return int(setting)


def require_plain(path: Path) -> None:
    """Refuse devices, pipes and sockets: they may have no end, or cannot be read twice."""
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


def _changed(path: Path, content: str, position: str) -> DataError:
    return DataError(
        f"{path} must be the file that was read before, got {content} where reading resumes at {position}; bring it back, or start again"
    )


def _stream_fault(path: Path, codec: str | None, number: int, reason: str) -> str:
    if codec is None:
        return f"{path} must be readable, got: {reason}"
    if "truncated" in reason.lower():
        return f"{path} must be a whole {codec} file, got one that is cut short after line {number}; copy or download it again"
    return f"{path} must be a {codec} file, got bytes that are not after line {number} ({reason}); rename it or download it again"
