"""Formats of the files that adiabat writes: a file of another version is told apart from a damaged one, and
names its version.

A format has a number. It is raised when a version that knows only the former number must not read the file.
Every file also states the version that wrote it (`WRITER`). A file whose checksum is right, but whose keys or
types are not those that this version reads, comes from another version.
"""

import json
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adiabat.core.errors import AdiabatError, DataError
from adiabat.core.misfits import said_by
from adiabat.core.version import __version__, is_newer, version_in
from adiabat.core.wording import call_of, written

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

UNKNOWN = "another version"
"""Writer of a file that does not name it."""

UPDATE = "update adiabat"

FORMAT = "format"
"""Key of a record with the number of its format."""


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Attributes:
        number: Number of the layout that is written today.
        oldest: Lowest number that is read as it is.
        writers: Former numbers with the version of adiabat that wrote them.
    """

    number: int
    oldest: int
    writers: Mapping[int, str] = field(default_factory=dict)

    def stamp(self) -> dict[str, int]:
        """The key of a record with its format."""
        return {FORMAT: self.number}

    def require(
        self,
        number: object,
        path: Path,
        *,
        older: str,
        error: type[AdiabatError] = DataError,
        writer: str | None = None,
    ) -> None:
        """Refuse a file of another format.

        Args:
            number: Number that the file states.
            older: What to do with a file of an older format.
            writer: Version of adiabat that wrote it; None looks it up.
        """
        # A bool is an int to Python.
        if not isinstance(number, int) or isinstance(number, bool):
            raise error(
                f"{path} must state its format, a number such as {self.number}, got {number}; {older}"
            )
        if self.oldest <= number <= self.number:
            return
        is_newer = number > self.number
        wrote = writer or version_in(path) or self.writers.get(number) or UNKNOWN
        raise error(
            f"{path} was written by {_named(wrote)} (format {number}), this is adiabat {__version__} (format "
            f"{self.number}); {UPDATE if is_newer else older}"
        )


def to_upgrade(path: Path) -> str:
    """Advice for files that `upgrade` converts."""
    return f"run {call_of('upgrade', written(path))}"


@contextmanager
def layout_of(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> Iterator[None]:
    """Report keys or types that this version does not expect, in a file whose checksum is right, as another
    version's.
    """
    try:
        yield
    except AdiabatError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as fault:
        raise error(_other_layout(path, said_by(fault), remedy)) from fault


def rebuilt(
    kind: type[T],
    record: Any,
    path: Path,
    *,
    remedy: str,
    error: type[AdiabatError] = DataError,
    optional: Container[str] = (),
) -> T:
    """Make a value of a type, such as a dataclass, from plain data of a file.

    Fields of dataclasses must all be there, also those with a default, since a run went on from their values,
    and no others.

    Args:
        optional: Fields that may be missing.
    """
    with layout_of(path, remedy=remedy, error=error):
        # JSON has lists for tuples, which strict reading of Python's own values refuses.
        value: T = reader_of(kind).validate_json(json.dumps(record), strict=True)
        if phrases := [phrase for name, phrase in _key_faults(value, record) if name not in optional]:
            raise LookupError(", ".join(phrases))
        return value


def _key_faults(value: Any, record: Any) -> Iterator[tuple[str, str]]:
    """Names of missing and unknown keys, each with a phrase, in the record that a value was made from."""
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        yield from ((name, f"unknown key {name}") for name in record if name not in names)
        for name in names:
            if name in record:
                yield from _key_faults(getattr(value, name), record[name])
            else:
                yield name, f"no key {name}"
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            yield from _key_faults(entry, record[name])
    # A named tuple checks its keys itself.
    elif isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        for entry, plain in zip(value, record, strict=True):
            yield from _key_faults(entry, plain)


def reader_of(kind: Any) -> "TypeAdapter[Any]":
    """The reader of a type, built once: that takes longer than reading most records."""
    return _adapter(kind)


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    # To mypy a class is not hashable, so `reader_of` takes it first. Only reading needs pydantic.
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _named(version: str) -> str:
    """Who wrote a file, for messages."""
    return f"{version} of adiabat" if version == UNKNOWN else f"adiabat {version}"


def _other_layout(path: Path, detail: str, remedy: str) -> str:
    """The message for a file whose checksum is right and whose content this version does not read.

    This version wrote it itself if somebody edited it and made a new checksum; else another one did.
    """
    # Lines of a log have the number of their line after the path.
    file = path if path.exists() else Path(str(path).rpartition(":")[0])
    writer = version_in(file)
    advice = UPDATE if writer is not None and is_newer(writer) else remedy
    if writer == __version__:
        return (
            f"{path} must be as adiabat {__version__} writes it, got other content "
            f"under a right checksum: {detail}; {remedy}"
        )
    wrote = _named(writer or UNKNOWN)
    return (
        f"{path} was written by {wrote}, this is adiabat {__version__}, which "
        f"expects other content ({detail}); {advice}"
    )
