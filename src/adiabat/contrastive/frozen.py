"""Embeddings of a tower that does not change: each text passes through it once, when it is first asked for, or never where it is stored."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.data.pairs import TextColumn
from adiabat.data.records import Side
from adiabat.errors import DataError, JobError, several
from adiabat.model.encoder import Encoder
from adiabat.model.precision import Precision
from adiabat.report.wording import cut
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store
from adiabat.train.operations import operations_of


class FrozenTower:
    """Reads what it has embedded before: float32, 4 bytes a number for as many texts as there are, in memory or in a job's directory.

    The last bits of a vector depend on the texts that pass beside it. In a directory vectors outlive the process, so that a run that was
    resumed reads what it embedded before, and is equal to one that never stopped.
    """

    def __init__(self, encoder: Encoder, texts: TextColumn, *, side: Side, precision: Precision) -> None:
        """Set up; nothing is embedded yet, and nothing written.

        Args:
            encoder: The tower.
            texts: All that may be asked for.
            side: Whose prompt is put before.
            precision: Of the forward pass.
        """
        self.encoder = encoder
        self._texts = texts
        self._side = side
        self._precision = precision
        self._vectors = np.empty((len(texts), encoder.width), dtype=np.float32)
        self._known = np.zeros(len(texts), dtype=np.bool_)
        self._flags: Path | None = None
        self._spent = 0.0

    def keep_in(self, place: Path, *, resume: bool) -> None:
        """Keep vectors in files from here on.

        Args:
            place: Of the files, without their endings; its folder is made where missing.
            resume: Whether to read what stands there; else it is begun anew.

        Raises:
            JobError: If there is no room for all vectors.
        """
        vectors, self._flags = place.with_suffix(".f32"), place.with_suffix(".npy")
        goes_on = resume and self._flags.is_file() and vectors.is_file() and vectors.stat().st_size == self._vectors.nbytes
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with vectors.open("r+b" if goes_on else "w+b") as file:
                if self._vectors.nbytes:
                    # A page that the disk has no room for would end the process when it is written to.
                    os.posix_fallocate(file.fileno(), 0, self._vectors.nbytes)
            if goes_on:
                self._known = np.load(self._flags)
        except OSError as fault:
            raise JobError(f"{vectors} must hold {self._vectors.nbytes:,} bytes, got: {fault.strerror}; free some space") from fault
        if self._vectors.nbytes:
            self._vectors = np.memmap(vectors, dtype=np.float32, mode="r+", shape=self._vectors.shape)

    def save(self) -> None:
        """Note on the disk which texts are embedded, where vectors are kept in files: to be called with every checkpoint.

        Raises:
            JobError: If the disk is full or not writable.
        """
        if self._flags is None:
            return
        try:
            if isinstance(self._vectors, np.memmap):
                self._vectors.flush()
            partial = self._flags.with_suffix(".partial.npy")
            np.save(partial, self._known)
            partial.replace(self._flags)
        except OSError as fault:
            raise JobError(f"{self._flags} could not be written: {fault.strerror}; free some space, and go on with --resume") from fault

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embeddings of some texts.

        Args:
            rows: Which.

        Returns:
            One row for each, without gradient, on the tower's device.
        """
        new = np.unique(rows[~self._known[rows]])
        if len(new):
            texts = self._texts.take(new)
            self._vectors[new] = self.encoder.encode(texts, side=self._side, precision=self._precision)
            self._known[new] = True
            self._spent += self._operations(texts)
        return torch.from_numpy(np.asarray(self._vectors[rows])).to(self.encoder.device)

    def spent(self) -> float:
        """What was embedded since this was last asked.

        Returns:
            Multiplications and additions of matrix products, without what little padding there is; see `adiabat.train.operations`.
        """
        spent, self._spent = self._spent, 0.0
        return spent

    def _operations(self, texts: Sequence[str]) -> float:
        lengths = np.array([len(ids) for ids in self.encoder.tokenize(texts, side=self._side)], dtype=np.int64)
        return operations_of(self.encoder).of(lengths, trained=False, cached=False, checkpointed=False)


class StoredTower:
    """Reads the vectors of a store."""

    def __init__(self, store: Store, documents: TextColumn, *, device: torch.device) -> None:
        """Find documents in a store.

        Args:
            store: Of the frozen tower.
            documents: Their ids or texts, each once.
            device: Where vectors go.

        Raises:
            DataError: If the store lacks some.
        """
        self._store = store
        self._rows = rows_of_entries(list(documents), store)
        self._device = device
        if absent := [f'"{cut(entry, limit=60)}"' for entry in documents.take(np.flatnonzero(self._rows < 0))]:
            raise DataError(
                f"every document must be in the store {store.path}, it lacks {several(absent, of='documents')}; "
                "embed them (adiabat embed, or --append to the store), or leave towers.store out"
            )

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Vectors of some documents.

        Args:
            rows: Which.

        Returns:
            One row for each, float32.
        """
        return torch.from_numpy(self._store.gather(self._rows[rows])).to(self._device)
