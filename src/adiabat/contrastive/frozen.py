"""Embeddings of a tower that does not change: each text passes through it once, when it is first asked for, or never where it is stored."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.data.pairs import TextColumn
from adiabat.data.records import Side
from adiabat.errors import DataError, several
from adiabat.model.encoder import Encoder
from adiabat.model.precision import Precision
from adiabat.report.wording import cut
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store
from adiabat.store.kept import KeptVectors
from adiabat.train.operations import operations_of


class FrozenTower:
    """Reads what it has embedded before: float32, 4 bytes a number for as many texts as there are, in memory or in a job's directory.

    The last bits of a vector depend on the texts that pass beside it. In a directory vectors outlive the process, so that a run that was
    resumed reads what it embedded before, and is equal to one that never stopped.
    """

    def __init__(self, encoder: Encoder, texts: TextColumn, *, side: Side, precision: Precision) -> None:
        """Set up; nothing is embedded yet, and nothing written."""
        self.encoder = encoder
        self._texts = texts
        self._side = side
        self._precision = precision
        self._kept = KeptVectors(len(texts), encoder.width)
        self._spent = 0.0

    def keep_in(self, place: Path, *, resume: bool) -> None:
        """Keep vectors in files from here on."""
        self._kept.keep_in(place, resume=resume)

    def save(self) -> None:
        """Note on the disk which texts are embedded, where vectors are kept in files: to be called with every checkpoint."""
        self._kept.save()

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embeddings of some texts."""
        kept = self._kept
        new = np.unique(rows[~kept.known[rows]])
        if len(new):
            texts = self._texts.take(new)
            kept.vectors[new] = self.encoder.encode(texts, side=self._side, precision=self._precision)
            kept.known[new] = True
            self._spent += self._operations(texts)
        return torch.from_numpy(np.asarray(kept.vectors[rows])).to(self.encoder.device)

    def spent(self) -> float:
        """What was embedded since this was last asked."""
        spent, self._spent = self._spent, 0.0
        return spent

    def _operations(self, texts: Sequence[str]) -> float:
        lengths = np.array([len(ids) for ids in self.encoder.tokenize(texts, side=self._side)], dtype=np.int64)
        return operations_of(self.encoder).of(lengths, trained=False, cached=False, checkpointed=False)


class StoredTower:
    """Reads the vectors of a store."""

    def __init__(self, store: Store, documents: TextColumn, *, device: torch.device) -> None:
        """Find documents in a store."""
        self._store = store
        self._rows = rows_of_entries(list(documents), store)
        self._device = device
        if absent := [f'"{cut(entry, limit=60)}"' for entry in documents.take(np.flatnonzero(self._rows < 0))]:
            raise DataError(
                f"every document must be in the store {store.path}, it lacks {several(absent, of='documents')}; "
                "embed them (adiabat embed, or --append to the store), or leave towers.store out"
            )

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Vectors of some documents."""
        return torch.from_numpy(self._store.gather(self._rows[rows])).to(self._device)
