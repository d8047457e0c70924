"""Exact search of the served store, by vectors or by vectors and BM25."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from adiabat.config.shared import FusionSection
from adiabat.core.progress import Watch
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Hit
from adiabat.serving.batching import Vectors
from adiabat.store.fusion import Fusion
from adiabat.store.own_bm25 import own_fusion
from adiabat.store.search import hits_of
from adiabat.store.vector_store import Store


@dataclass
class Searcher:
    """Searches the store by the vectors of queries.

    One search runs at a time: each takes all threads of the processor, and two would wait for each other.
    """

    store: Store
    fusion: Fusion | None
    _one: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, store: Store, section: FusionSection, watch: Watch) -> "Searcher":
        """The searcher of a store, with its BM25 index if it is to be fused."""
        return cls(store, own_fusion(store, section, watch))

    def search(
        self,
        model: DualEncoder,
        query: str,
        vectors: Vectors,
        k: int,
        *,
        fuse: bool,
        exclude: Sequence[str],
    ) -> list[Hit]:
        """The first documents of a query, without those of some ids."""
        rows = self.store.rows(list(exclude))
        excluded = [np.unique(rows[rows >= 0])]
        system = System(model, self.store, self.fusion if fuse else None)
        with self._one:
            hits = system.search([query], vectors, k, similarity=model.ranks_by, excluded=excluded)
        similarity = "" if fuse else model.ranks_by
        return hits_of(self.store, hits, 0, np.empty(0, dtype=np.int64), similarity=similarity)
