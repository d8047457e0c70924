"""Lines of JSON that a run adds one by one, each with a checksum of itself and of the lines before it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adiabat.core.errors import AdiabatError, DataError
from adiabat.core.files import CHECKSUM, reading

LENGTH = 16
"""Hexadecimal digits of a line's SHA-256 that are kept."""


class Line(NamedTuple):
    """A row and its checksum.

    Attributes:
        row: JSON values without the key ``checksum``.
        checksum: Of the row and of all before it; "" in a file of an earlier version.
    """

    row: dict[str, Any]
    checksum: str

    def __str__(self) -> str:
        """The line as it stands in the file."""
        return json.dumps({**self.row, **({CHECKSUM: self.checksum} if self.checksum else {})}, allow_nan=True) + "\n"


def line_of(row: Mapping[str, Any], *, after: str = "") -> Line:
    """Give a row its checksum.

    Args:
        after: Checksum of the line before; "" for the first line.
    """
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return Line(dict(row), hashlib.sha256(f"{after}{text}".encode()).hexdigest()[:LENGTH])


def read_lines(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> Iterator[Line]:
    """Read lines that were written one by one; a last one that was cut off is left out."""
    with reading(path, remedy=remedy, error=error):
        *whole, rest = path.read_bytes().split(b"\n")
    before: str | None = ""
    for number, text in enumerate(whole, start=1):
        with reading(Path(f"{path}:{number}"), remedy=remedy, error=error):
            line = _read(text, before)
            if before and not line.checksum:
                raise ValueError("it has no checksum, while the line before it has one")
        yield line
        # What follows a line without a checksum cannot be compared with it.
        before = line.checksum or None
    if rest and (last := _last(rest, before)):
        yield last


def last_checksum(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> str:
    """What the next line's checksum follows.

    Returns:
        Checksum of the last line; "" where there is none.
    """
    if not path.exists():
        return ""
    with reading(path, remedy=remedy, error=error):
        _, _, text = path.read_bytes().removesuffix(b"\n").rpartition(b"\n")
        return _read(text, None).checksum if text else ""


def _read(text: bytes, before: str | None) -> Line:
    row = json.loads(text.decode("utf-8"))
    if not isinstance(row, dict):
        raise TypeError(f"a JSON {type(row).__name__}, not an object")
    checksum = row.pop(CHECKSUM, "")
    if checksum and before is not None and checksum != line_of(row, after=before).checksum:
        raise ValueError("its content, or a line before it, does not match its checksum")
    return Line(row, checksum)


def _last(text: bytes, before: str | None) -> Line | None:
    """The last line, where all but its end of line is there."""
    try:
        return _read(text, before)
    except (ValueError, TypeError, RecursionError):
        return None
