"""Checksums of files that belong together: taken when they are whole, compared when they are read."""

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from adiabat.errors import AdiabatError, DataError
from adiabat.files import read_json, reading, write_json, write_text

CHECKSUMS = "checksums.json"
CHECKED = ".checked.json"
"""Beside sealed files: the state of each file when its checksum was last compared."""


class Digest(NamedTuple):
    """What a file must be.

    Attributes:
        size: In bytes.
        sha256: Of the whole file, in hexadecimal.
    """

    size: int
    sha256: str


def digest_of(path: Path) -> Digest:
    """Size and SHA-256 of a file.

    Args:
        path: Of the file.

    Returns:
        Both, of the same open file.
    """
    with path.open("rb") as stream:
        return Digest(os.fstat(stream.fileno()).st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def seal(folder: Path, names: Iterable[str], *, into: str = CHECKSUMS) -> None:
    """Write the checksums of files in a folder beside them.

    Args:
        folder: Holds the files, which must be whole and on disk.
        names: Of the files, relative to the folder.
        into: Name of the list of checksums.

    Raises:
        DataError: If the checksums cannot be written.
    """
    write_json({name: digest_of(folder / name)._asdict() for name in names}, folder / into)


def require_seal(
    folder: Path, *, remedy: str, error: type[AdiabatError] = DataError, always: bool = False, source: str = CHECKSUMS
) -> frozenset[str]:
    """Check that sealed files are as they were when `seal` saw them.

    Args:
        folder: That was sealed.
        remedy: What to do about a damaged file.
        error: Kind of error to raise.
        always: Whether to read files again that have not changed since they were last checked.
        source: Name of the list of checksums.

    Returns:
        The names of the sealed files.

    Raises:
        AdiabatError: If a file, or the list of checksums, is missing or damaged; of the kind `error`.
    """
    with reading(folder / source, remedy=remedy, error=error):
        record = read_json(folder / source, remedy=remedy, error=error)
        expected = {name: Digest(**digest) for name, digest in record.items()}
    require(expected, folder, remedy=remedy, error=error, always=always)
    return frozenset(expected)


def is_whole(folder: Path, source: str) -> bool:
    """Whether sealed files that can be made again are there and undamaged; of damage there is a warning.

    Args:
        folder: That was sealed.
        source: Name of the list of checksums.

    Returns:
        False where they must be made.
    """
    if not (folder / source).exists():
        return False
    try:
        require_seal(folder, remedy="it is made again", source=source)
    except DataError as damage:
        warnings.warn(str(damage), stacklevel=2)
        return False
    return True


def require(
    expected: Mapping[str, Digest], folder: Path, *, remedy: str, error: type[AdiabatError] = DataError, always: bool = False
) -> None:
    """Check sizes of files, and the checksums of those whose size, dates or inode changed since they were last checked.

    Args:
        expected: Name in the folder to what the file must be.
        folder: Holds the files.
        remedy: What to do about a damaged file.
        error: Kind of error to raise.
        always: Whether to compare every checksum.

    Raises:
        AdiabatError: If a file is missing or damaged; of the kind `error`.
    """
    checked = _checked(folder)
    states: dict[str, list[int | str]] = {}
    for name, digest in expected.items():
        path = folder / name
        with reading(path, remedy=remedy, error=error):
            state = path.stat()
            if state.st_size != digest.size:
                raise ValueError(f"{state.st_size} bytes in place of {digest.size}")
            states[name] = [digest.sha256, state.st_ino, state.st_mtime_ns, state.st_ctime_ns]
            if (always or checked.get(name) != states[name]) and digest_of(path) != digest:
                raise ValueError("its SHA-256 does not match its checksum")
    if any(checked.get(name) != state for name, state in states.items()):
        _remember({**checked, **states}, folder)


def _checked(folder: Path) -> dict[str, object]:
    """The remembered states; none where they cannot be read, so that every checksum is compared."""
    try:
        record = json.loads((folder / CHECKED).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _remember(states: Mapping[str, object], folder: Path) -> None:
    # A folder that is read-only, or full, is checked anew each time.
    with suppress(DataError):
        write_text(json.dumps(states), folder / CHECKED)
