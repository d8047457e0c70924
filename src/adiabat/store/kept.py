"""Vectors as they come, in memory or in files that outlive the process: what was computed before is read, and not computed again."""

import os
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from adiabat.errors import JobError


class KeptVectors:
    """A row for each text or token, and which rows are known; float32, 4 bytes a number.

    Attributes:
        vectors: All rows; those that are not known hold anything.
        known: Which rows hold a vector.
    """

    vectors: Float[np.ndarray, "n e"]
    known: Bool[np.ndarray, " n"]

    def __init__(self, rows: int, width: int) -> None:
        """Nothing is known yet, and nothing written.

        Args:
            rows: How many there are.
            width: Numbers in each.
        """
        self.vectors = np.empty((rows, width), dtype=np.float32)
        self.known = np.zeros(rows, dtype=np.bool_)
        self._flags: Path | None = None

    def keep_in(self, place: Path, *, resume: bool) -> None:
        """Keep vectors in files from here on.

        Args:
            place: Of the files, without their endings; its folder is made where missing.
            resume: Whether to read what stands there; else it is begun anew.

        Raises:
            JobError: If there is no room for all vectors.
        """
        path, self._flags = place.with_suffix(".f32"), place.with_suffix(".npy")
        goes_on = resume and self._flags.is_file() and path.is_file() and path.stat().st_size == self.vectors.nbytes
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if goes_on else "w+b") as file:
                if self.vectors.nbytes:
                    # A page that the disk has no room for would end the process when it is written to.
                    os.posix_fallocate(file.fileno(), 0, self.vectors.nbytes)
            if goes_on:
                self.known = _flags_in(self._flags, len(self.known))
        except OSError as fault:
            raise JobError(f"{path} must hold {self.vectors.nbytes:,} bytes, got: {fault.strerror}; free some space") from fault
        if self.vectors.nbytes:
            self.vectors = np.memmap(path, dtype=np.float32, mode="r+", shape=self.vectors.shape)

    def save(self) -> None:
        """Note on the disk which rows are known, where they are kept in files: what comes later is computed again after a kill.

        Raises:
            JobError: If the disk is full or not writable.
        """
        if self._flags is None:
            return
        try:
            if isinstance(self.vectors, np.memmap):
                self.vectors.flush()
            partial = self._flags.with_suffix(".partial.npy")
            np.save(partial, self.known)
            partial.replace(self._flags)
        except OSError as fault:
            raise JobError(f"{self._flags} could not be written: {fault.strerror}; free some space; what came before is kept") from fault


def _flags_in(path: Path, rows: int) -> Bool[np.ndarray, " n"]:
    """Which rows a file says are known: none, where it is damaged or of another number of rows."""
    try:
        flags = np.load(path)
    except (OSError, ValueError, EOFError):
        flags = None
    return flags if flags is not None and flags.shape == (rows,) and flags.dtype == np.bool_ else np.zeros(rows, dtype=np.bool_)
