"""Which documents have the same text: 128 bits of each text on disk, by row."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from adiabat.data.text_hashes import HASH_BYTES, Hashes
from adiabat.store.id_index import rows_that_repeat

HASHES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Copies:
    """Documents whose text an earlier document has.

    Attributes:
        rows: Of them, ascending.
        originals: For each, the first row with its text.
    """

    rows: Int64[np.ndarray, " copies"]
    originals: Int64[np.ndarray, " copies"]

    @classmethod
    def of(cls, path: Path, *, after: Path | None, offset: int) -> "Copies":
        """Find the documents of a corpus whose text stands before them: in the corpus, or in the store that it is to follow.

        Args:
            after: Hashes of the texts of the store; None for none.

        Returns:
            The copies, by rows of the longer store; memory is 16 bytes a text of the corpus, and as much again while they are sorted.
        """
        hashes = np.fromfile(path, dtype=f"S{HASH_BYTES}")
        # Equal halves are rare but for equal texts, and numbers sort sooner than bytes.
        suspects = rows_that_repeat(hashes.view("<u8")[::2])
        _, first, inverse = np.unique(hashes[suspects], return_index=True, return_inverse=True)
        originals = np.full(len(hashes), -1, dtype=np.int64)
        originals[suspects] = offset + suspects[first][inverse]
        originals[originals == offset + np.arange(len(hashes))] = -1
        if after is not None:
            stored = first_rows(after, hashes)
            originals = np.where(stored >= 0, stored, originals)
        rows = np.flatnonzero(originals >= 0)
        return cls(offset + rows, originals[rows])

    def between(self, start: int, end: int) -> "Copies":
        """Those among some rows."""
        part = slice(*np.searchsorted(self.rows, [start, end]))
        return Copies(self.rows[part], self.originals[part])


def first_rows(path: Path, hashes: Hashes) -> Int64[np.ndarray, " n"]:
    """Find texts by their hash."""
    distinct, inverse = np.unique(hashes, return_inverse=True)
    rows = np.full(len(distinct), -1, dtype=np.int64)
    for start, block in _blocks(path) if len(distinct) else ():
        places = np.minimum(np.searchsorted(distinct, block), len(distinct) - 1)
        hits = np.flatnonzero(distinct[places] == block)
        hits = hits[rows[places[hits]] < 0]
        # Of several rows with one text the first is written last.
        rows[places[hits[::-1]]] = start + hits[::-1]
    return rows[inverse]


def _blocks(path: Path) -> Iterator[tuple[int, Hashes]]:
    start = 0
    with path.open("rb") as file:
        while len(block := np.fromfile(file, dtype=f"S{HASH_BYTES}", count=HASHES_AT_ONCE)):
            yield start, block
            start += len(block)
