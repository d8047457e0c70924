"""Approximate search of a store by an inverted file of faiss, for servers whose users cannot wait.

Documents are grouped around centroids, and a query looks at the groups of its nearest ones. Vectors lie in
the index at half precision; the candidates are scored again, exactly as by `adiabat.store.search`. What is
found thus has its exact score, and differs by what is missed alone, which is measured by queries.

Reference:
    Jegou, Douze and Schmid 2011 (inverted files); Douze et al. 2024 (faiss).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from adiabat.models.embedding_head import Similarity
from adiabat.store.scoring import CPU, QueryArray
from adiabat.store.search import Excluded, Hits, Removed, score_rows, search
from adiabat.store.stored_blocks import SearchProgress
from adiabat.store.vector_store import Store

FEWEST = 10_000
"""Documents below which an exact search takes a few milliseconds, and no index is built."""

POINTS = 64
"""Documents for each centroid that k-means looks at; faiss asks for 39 at least."""

BLOCK = 65_536
"""Documents added at a time."""

SPARE = 4
"""Candidates for each document that is asked for, which half precision may put in another order."""

DEPTH = 10
"""Documents of a query that recall is measured over."""

Nearest = Callable[..., Hits]
"""A search with the arguments of `adiabat.store.search.search`."""


@dataclass
class ApproximateIndex:
    """An inverted file over the vectors of a store.

    Attributes:
        similarity: That the groups are made for; another one is searched exactly.
        probed: Groups that a query looks at.
    """

    store: Store
    similarity: Similarity
    faiss: Any
    index: Any
    probed: int = 1

    @classmethod
    def build(
        cls, store: Store, similarity: Similarity, *, on_progress: SearchProgress | None = None
    ) -> "ApproximateIndex":
        """Group the documents of a store; a million of 384 numbers take minutes on two cores."""
        # An extra, which only this needs.
        import faiss

        # Four for each of the square root of the documents, as faiss's guide has it.
        groups = min(4 * round(math.sqrt(store.count)), store.count // POINTS)
        metric = faiss.METRIC_L2 if similarity == "distance" else faiss.METRIC_INNER_PRODUCT
        coarse = faiss.IndexFlat(store.width, metric)
        half = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(coarse, store.width, groups, half, metric)
        drawn = np.random.default_rng(0).choice(store.count, groups * POINTS, replace=False)
        index.train(_comparable(store.gather(np.sort(drawn)), similarity))
        for start in range(0, store.count, BLOCK):
            rows = np.arange(start, min(start + BLOCK, store.count))
            index.add(_comparable(store.gather(rows), similarity))
            if on_progress is not None:
                on_progress(int(rows[-1]) + 1, store.count)
        return cls(store, similarity, faiss, index)

    def tune(self, queries: Sequence[QueryArray], least_recall: float) -> float:
        """Look at as many groups as the recall takes for each set of queries; doubled from 1, at most all.

        Returns:
            The least recall of a set, the share of the `DEPTH` first documents that the index finds too.
        """
        exact = [search(self.store, each, DEPTH, similarity=self.similarity, device=CPU) for each in queries]
        while True:
            recalls = []
            for each, wanted in zip(queries, exact, strict=True):
                found = self.search(self.store, each, DEPTH, similarity=self.similarity)
                recalls.append(_recall(found, wanted))
            if min(recalls) >= least_recall or self.probed >= self.index.nlist:
                return min(recalls)
            self.probed = min(2 * self.probed, self.index.nlist)

    def search(
        self,
        store: Store,
        queries: QueryArray,
        k: int,
        *,
        similarity: Similarity = "cosine",
        device: torch.device = CPU,
        excluded: Excluded | None = None,
        removed: Removed | None = None,
        on_progress: SearchProgress | None = None,
    ) -> Hits:
        """As `adiabat.store.search.search`, exact for another similarity than that of the index."""
        if similarity != self.similarity:
            leaving: dict[str, Any] = {"excluded": excluded, "removed": removed}
            return search(
                store, queries, k, similarity=similarity, device=device, on_progress=on_progress, **leaving
            )
        left_out = [np.empty(0, dtype=np.int64) if removed is None else removed for _ in queries]
        if excluded is not None:
            left_out = [np.union1d(rows, excluded[number]) for number, rows in enumerate(left_out)]
        most = SPARE * k + max((len(rows) for rows in left_out), default=0)
        parameters = self.faiss.SearchParametersIVF(nprobe=self.probed)
        asked = _comparable(np.asarray(queries), similarity)
        _, rows = self.index.search(asked, min(most, store.count), params=parameters)
        for own, lost in zip(rows, left_out, strict=True):
            own[np.isin(own, lost)] = -1
        scores = score_rows(store, queries, rows, similarity=similarity)
        # Of equal scores the lower row first, as in exact search; what is missing last.
        best = np.lexsort((rows, -scores), axis=-1)[:, :k]
        hits = Hits(np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1))
        # A zero query has no direction.
        zero = ~np.asarray(queries).any(axis=1)
        hits.rows[zero], hits.scores[zero] = -1, -np.inf
        return hits


def _recall(found: Hits, wanted: Hits) -> float:
    """Share of the wanted rows that were found."""
    pairs = zip(found.rows, wanted.rows, strict=True)
    shared = sum(len(np.intersect1d(ours[ours >= 0], theirs[theirs >= 0])) for ours, theirs in pairs)
    return shared / max(1, int((wanted.rows >= 0).sum()))


def _comparable(vectors: np.ndarray, similarity: Similarity) -> Float[np.ndarray, "n e"]:
    """Vectors as faiss compares them: of unit length for the cosine."""
    exact = np.ascontiguousarray(vectors, dtype=np.float32)
    if similarity != "cosine":
        return exact
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    unit: Float[np.ndarray, "n e"] = exact / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
