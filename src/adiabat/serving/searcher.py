"""Search of the served store, by vectors or by vectors and BM25; exact, or with a recall that is measured."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from adiabat.adiabatic.probes import read_probes
from adiabat.config.shared import FusionSection
from adiabat.core.progress import Watch
from adiabat.evaluation.systems import System
from adiabat.models.towers import DualEncoder
from adiabat.results.evaluation_result import Hit
from adiabat.serving.batching import Vectors
from adiabat.store.approximate import DEPTH, FEWEST, ApproximateIndex
from adiabat.store.fusion import Fusion
from adiabat.store.own_bm25 import own_fusion
from adiabat.store.search import hits_of, search
from adiabat.store.stored_blocks import keep_in_memory
from adiabat.store.vector_store import Store


@dataclass
class Searcher:
    """Searches the store by the vectors of queries.

    One search runs at a time: each takes all threads of the processor, and two would wait for each other.

    Attributes:
        recall: Share of the first documents of an exact search that are found, by the worst tower.
    """

    store: Store
    fusion: Fusion | None
    approximate: ApproximateIndex | None = None
    recall: float = 1.0
    _one: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, store: Store, section: FusionSection, watch: Watch) -> "Searcher":
        """The exact searcher of a store, with its BM25 index if it is to be fused."""
        return cls(store, own_fusion(store, section, watch))

    def exact(self, watch: Watch) -> "Searcher":
        """The same with all vectors in memory, where they fit; else each search reads them from the disk."""
        if not keep_in_memory(self.store):
            watch.note(
                f"{self.store.path} does not fit in half of the free memory: "
                "each search reads it from the disk"
            )
        return self

    def approximated(self, models: Sequence[DualEncoder], least_recall: float, watch: Watch) -> "Searcher":
        """The same by an index of faiss, which finds the first documents of probe texts by each model."""
        store = self.store
        if store.count < FEWEST:
            watch.note(f"{store.count:,} documents are searched exactly, as that takes milliseconds")
            return self.exact(watch)
        index = ApproximateIndex.build(
            store, models[0].ranks_by, on_progress=partial(watch.progress, "indexing documents")
        )
        probes = read_probes("sample").texts
        asked = [
            model.query.encode(probes, side="query") for model in models if model.ranks_by == index.similarity
        ]
        recall = index.tune(asked, least_recall)
        watch.note(
            f"a query looks at {index.probed:,} of {index.index.nlist:,} groups of documents, which gives "
            f"recall@{DEPTH} of {recall:.3f} beside exact search over {len(probes):,} probe texts"
        )
        return replace(self, approximate=index, recall=recall)

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
        nearest = search if self.approximate is None else self.approximate.search
        system = System(model, self.store, self.fusion if fuse else None, nearest)
        with self._one:
            hits = system.search([query], vectors, k, similarity=model.ranks_by, excluded=excluded)
        similarity = "" if fuse else model.ranks_by
        return hits_of(self.store, hits, 0, np.empty(0, dtype=np.int64), similarity=similarity)
