"""Vectors as they come, in memory or in files that outlive the process: what was computed before is read, and not computed again."""

import os
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from adiabat.core.checksums import read_array, write_array
from adiabat.core.errors import DataError, JobError


class EmbeddingCache:
    """A row for each text or token, and which rows are known; float32, 4 bytes a number.

    Attributes:
        vectors: All rows; those that are not known hold anything.
        known: Which rows hold a vector.
    """

    vectors: Float[np.ndarray, "n e"]
    known: Bool[np.ndarray, " n"]

    def __init__(self, rows: int, width: int) -> None:
        """Nothing is known yet, and nothing written."""
        self.vectors = np.empty((rows, width), dtype=np.float32)
        self.known = np.zeros(rows, dtype=np.bool_)
        self._checksums = np.zeros(rows, dtype=np.uint64)
        self._flags: Path | None = None

    def keep_in(self, stem: Path, *, resume: bool) -> None:
        """Keep vectors in files from here on."""
        path, self._flags = stem.with_suffix(".f32"), stem.with_suffix(".npy")
        goes_on = resume and self._flags.is_file() and path.is_file() and path.stat().st_size == self.vectors.nbytes
        try:
            stem.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if goes_on else "w+b") as file:
                if self.vectors.nbytes:
                    # A page that the disk has no room for would end the process when it is written to.
                    os.posix_fallocate(file.fileno(), 0, self.vectors.nbytes)
        except OSError as fault:
            raise JobError(f"{path} must hold {self.vectors.nbytes:,} bytes, got: {fault.strerror}; free some space") from fault
        if self.vectors.nbytes:
            self.vectors = np.memmap(path, dtype=np.float32, mode="r+", shape=self.vectors.shape)
        if goes_on:
            self._checksums = _checksums_in(self._flags, len(self.known))
            saved = np.flatnonzero(self._checksums)
            self.known[saved] = self._checksums[saved] == _checksums_of(self.vectors, saved)
            self._checksums[~self.known] = 0

    def put(self, rows: Int[np.ndarray, " some"], vectors: Float[np.ndarray, "some e"]) -> None:
        """Fill some rows."""
        self.vectors[rows], self.known[rows] = vectors, True

    def save(self) -> None:
        """Note on the disk which rows are known, where they are kept in files: what comes later is computed again after a kill."""
        if self._flags is None:
            return
        new = np.flatnonzero(self.known & (self._checksums == 0))
        self._checksums[new] = _checksums_of(self.vectors, new)
        try:
            if isinstance(self.vectors, np.memmap):
                self.vectors.flush()
            write_array(self._checksums, self._flags)
        except (OSError, DataError) as fault:
            raise JobError(f"{self._flags} could not be written: {fault}; free some space; what came before is kept") from fault


def _checksums_of(vectors: Float[np.ndarray, "n e"], rows: Int[np.ndarray, " some"]) -> UInt64[np.ndarray, " some"]:
    """A number above 0 for each row."""
    return np.fromiter((zlib.crc32(vectors[row].data) | _KNOWN for row in rows.tolist()), dtype=np.uint64, count=len(rows))


def _checksums_in(path: Path, rows: int) -> UInt64[np.ndarray, " n"]:
    """The checksum of each row that a file says is known, 0 of others: of all, where it is damaged or of another number of rows."""
    try:
        checksums = read_array(path, remedy="")
    except DataError:
        checksums = np.empty(0)
    fits = checksums.shape == (rows,) and checksums.dtype == np.uint64
    return checksums if fits else np.zeros(rows, dtype=np.uint64)


_KNOWN = 1 << 32
"""Beyond a checksum of 32 bits, which may be 0."""
