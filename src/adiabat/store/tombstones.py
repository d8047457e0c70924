"""Rows of the vector file that belong to no document any more, until the store is compacted."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt64

from adiabat.core.arrays import Mask, RowNumbers
from adiabat.core.provenance import Digest, DigestedFile
from adiabat.store.corpus_files import hash_ids
from adiabat.store.manifest import TOMBSTONE_FILE


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The rows, ascending, and the hash of the id that each had.

    Documents are numbered without them: all readers of a store see its documents alone, in the order of the
    file.
    """

    rows: Int64[np.ndarray, " t"]
    id_hashes: UInt64[np.ndarray, " t"]

    @classmethod
    def none(cls) -> "Tombstones":
        """Every row has a document."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint64))

    @classmethod
    def read(cls, folder: Path, count: int, *, file_rows: int) -> "Tombstones":
        """Read `count` tombstones of a store."""
        rows, id_hashes = np.fromfile(folder / TOMBSTONE_FILE, dtype="<u8").reshape(2, count)
        if np.any(rows[1:] <= rows[:-1]) or np.any(rows >= file_rows):
            raise ValueError(f"rows that do not ascend from 0 to {file_rows - 1}")
        return cls(rows.astype(np.int64), id_hashes.astype(np.uint64))

    def write(self, folder: Path) -> Digest:
        """Write the tombstones into the folder of a store."""
        with DigestedFile(folder / TOMBSTONE_FILE) as file:
            file.write(self.rows.astype("<u8").data)
            file.write(self.id_hashes.astype("<u8").data)
            file.sync()
        return file.digest

    def file_rows(self, documents: RowNumbers) -> RowNumbers:
        """Row of the vector file of each document."""
        if not len(self.rows):
            return documents
        # The tombstone of number k has rows[k] - k documents before it. A document is moved by the number of
        # tombstones that have no more documents before them than it has itself.
        documents_before = self.rows - np.arange(len(self.rows))
        return documents + np.searchsorted(documents_before, documents, side="right")

    def with_deleted(self, documents: Int64[np.ndarray, " d"], doc_ids: Sequence[str]) -> "Tombstones":
        """These tombstones, and those of some documents, whose numbers do not count the former tombstones."""
        rows = np.concatenate([self.rows, self.file_rows(documents)])
        id_hashes = np.concatenate([self.id_hashes, hash_ids(doc_ids)])
        order = np.argsort(rows)
        return Tombstones(rows[order], id_hashes[order])

    def hold(self, doc_ids: Sequence[str]) -> Mask:
        """Which ids a deleted or replaced document had."""
        return np.isin(hash_ids(doc_ids), self.id_hashes)
