"""Embeddings of a tower that does not change: each text passes through it once, when it is first asked for, or never where it is stored."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.data.records import Side
from adiabat.errors import DataError, several
from adiabat.model.encoder import Encoder
from adiabat.model.precision import Precision
from adiabat.report.wording import cut
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store


class FrozenTower:
    """Reads what it has embedded before; float32 on the CPU, 4 bytes a number for as many texts as there are.

    The last bits of a vector depend on the texts that pass beside it. So that a run that was resumed, and has to embed texts again, gets
    the same vectors as one that never stopped, a text always passes with the others of the group that it first comes up in.
    """

    def __init__(
        self, encoder: Encoder, texts: Sequence[str], *, side: Side, precision: Precision, groups: Iterable[Int[np.ndarray, " _"]]
    ) -> None:
        """Set up; nothing is embedded yet.

        Args:
            encoder: The tower.
            texts: All that may be asked for.
            side: Whose prompt is put before.
            precision: Of the forward pass.
            groups: Rows of texts that a run asks for together, in the order in which it does; every text that is asked for is in one of
                them, and belongs to the first. Read no further than needed.
        """
        self.encoder = encoder
        self._texts = texts
        self._side = side
        self._precision = precision
        self._groups = iter(groups)
        self._members: list[Int[np.ndarray, " _"]] = []
        self._group = np.full(len(texts), -1, dtype=np.int64)
        self._vectors = np.empty((len(texts), encoder.width), dtype=np.float32)
        self._known = np.zeros(len(texts), dtype=np.bool_)

    def embed(self, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embeddings of some texts.

        Args:
            rows: Which.

        Returns:
            One row for each, without gradient, on the tower's device.
        """
        while (self._group[rows] < 0).any():
            self._next_group()
        for number in np.unique(self._group[rows[~self._known[rows]]]).tolist():
            members = self._members[number]
            texts = [self._texts[row] for row in members]
            self._vectors[members] = self.encoder.encode(texts, side=self._side, precision=self._precision)
            self._known[members] = True
        return torch.from_numpy(self._vectors[rows]).to(self.encoder.device)

    def _next_group(self) -> None:
        rows = np.unique(next(self._groups))
        members = rows[self._group[rows] < 0]
        self._group[members] = len(self._members)
        self._members.append(members)


class StoredTower:
    """Reads the vectors of a store."""

    def __init__(self, store: Store, documents: list[str], *, device: torch.device) -> None:
        """Find documents in a store.

        Args:
            store: Of the frozen tower.
            documents: Their ids or texts, each once.
            device: Where vectors go.

        Raises:
            DataError: If the store lacks some.
        """
        self._store = store
        self._rows = rows_of_entries(documents, store)
        self._device = device
        if absent := [f'"{cut(documents[place], limit=60)}"' for place in np.flatnonzero(self._rows < 0).tolist()]:
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
