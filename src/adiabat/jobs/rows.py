"""Rows of what is done, in a file that always holds whole ones: what was cut short goes on from there."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

Key = TypeVar("Key")
Row = TypeVar("Row")


class Rows(Generic[Key, Row]):
    """Rows by their key."""

    def __init__(
        self, path: Path, *, key: Callable[[Row], Key], read: Callable[[Path], Iterable[Row]], write: Callable[[Sequence[Row], Path], None]
    ) -> None:
        """Read what is there.

        Args:
            path: Of the file; perhaps missing.
            key: What a row is known by.
            read: Gives the rows of a file, in the order they were added, or raises a JobError where it is damaged.
            write: Writes all rows, whole or not at all.

        Raises:
            JobError: If the file is damaged.
        """
        self.path = path
        self._key, self._write = key, write
        self._rows = {key(row): row for row in read(path)} if path.exists() else {}

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __getitem__(self, key: Key) -> Row:
        return self._rows[key]

    @property
    def every(self) -> list[Row]:
        """All rows, in the order they were added."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Put a row on the disk; it is there whole, or not at all.

        Args:
            row: Of what is done; takes the place of a former one of its key.

        Raises:
            DataError: If the disk is full or not writable; the rows of before stay.
        """
        rows = {**self._rows, self._key(row): row}
        self._write(list(rows.values()), self.path)
        self._rows = rows
