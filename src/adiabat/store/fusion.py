"""Fusion of two rankings of a store: by the similarity of vectors, and by BM25.

The candidates of a query are the first documents of both rankings. The scores that each ranking gives all of
them are standardised, and a candidate scores their weighted mean,

    weight (v - mean(v)) / sd(v)  +  (1 - weight) (b - mean(b)) / sd(b),

with v its similarity and b its BM25 score. A ranking that gives all candidates one score adds nothing.

Reference:
    Bruch, Gai and Ingber 2023 (convex combinations of normalised scores keep what ranks lose).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from adiabat.models.embedding_head import Similarity
from adiabat.store.bm25 import BM25Index
from adiabat.store.scoring import CPU, QueryArray
from adiabat.store.search import Excluded, Hits, Removed, score_rows, search
from adiabat.store.stored_blocks import SearchProgress
from adiabat.store.vector_store import Store

FIRST = 100
"""Documents of each ranking that are candidates."""


@dataclass(frozen=True, slots=True)
class FusedCandidates:
    """The candidates of some queries, with the scores of both rankings.

    Attributes:
        rows: Rows of the store, ascending; -1 pads.
        by_vectors: Similarities, exact as those of `search`; minus infinity at a row of -1.
        by_words: BM25 scores; 0 without a shared word, minus infinity at a row of -1.
    """

    rows: Int64[np.ndarray, "q c"]
    by_vectors: Float32[np.ndarray, "q c"]
    by_words: Float32[np.ndarray, "q c"]

    @classmethod
    def of(
        cls,
        store: Store,
        index: BM25Index,
        queries: QueryArray,
        texts: Sequence[str],
        *,
        similarity: Similarity = "cosine",
        device: torch.device = CPU,
        excluded: Excluded | None = None,
        removed: Removed | None = None,
        on_progress: SearchProgress | None = None,
        nearest: Callable[..., Hits] = search,
    ) -> Self:
        """Search by both.

        Args:
            index: BM25 over the documents of the store, in their order.
            queries: A vector for each query.
            texts: The queries.
            excluded: Rows that are never candidates, per query.
            removed: Ascending rows that are candidates of no query.
            nearest: Search by vectors; it may be approximate.
        """
        leaving: dict[str, Any] = {"excluded": excluded, "removed": removed}
        first = nearest(
            store, queries, FIRST, similarity=similarity, device=device, on_progress=on_progress, **leaving
        )
        rows = np.sort(np.concatenate([first.rows, index.search(texts, FIRST, **leaving).rows], axis=1))
        # Both rankings may hold a document.
        rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = -1
        rows.sort(axis=1)
        # Columns that pad every query go, but one.
        last = rows.shape[1] - 1
        rows = rows[:, (rows < 0).sum(axis=1).min(initial=last) :]
        by_vectors = score_rows(store, queries, rows, similarity=similarity)
        return cls(rows, by_vectors, index.score_rows(texts, rows))

    def take(self, queries: slice) -> "FusedCandidates":
        """Those of some of the queries."""
        return FusedCandidates(self.rows[queries], self.by_vectors[queries], self.by_words[queries])

    def fused(self, weight: float) -> Float32[np.ndarray, "q c"]:
        """Fused scores of the candidates; minus infinity at a row of -1."""
        fused = self.fused_like(self.by_vectors, self.by_words, weight)
        fused[self.rows < 0] = -np.inf
        return fused

    def fused_like(
        self, by_vectors: Float32[np.ndarray, "q r"], by_words: Float32[np.ndarray, "q r"], weight: float
    ) -> Float32[np.ndarray, "q r"]:
        """Fused scores of any documents, standardised as those of the candidates are."""
        vectors = self._standardised(by_vectors, self.by_vectors)
        words = self._standardised(by_words, self.by_words)
        return (weight * vectors + (1 - weight) * words).astype(np.float32)

    def _standardised(
        self, scores: Float32[np.ndarray, "q r"], of_candidates: Float32[np.ndarray, "q c"]
    ) -> Float64[np.ndarray, "q r"]:
        """Scores of one ranking less their mean over the candidates, in standard deviations."""
        known = np.ma.masked_array(of_candidates.astype(np.float64), self.rows < 0)
        mean = known.mean(axis=1, keepdims=True).filled(0.0)
        deviation = known.std(axis=1, keepdims=True).filled(np.inf)
        # One score for all says nothing, and rounding of their mean would.
        deviation[np.ma.ptp(known, axis=1, keepdims=True).filled(0.0) == 0] = np.inf
        return np.asarray((np.where(np.isfinite(scores), scores, mean) - mean) / deviation)

    def hits(self, k: int, weight: float) -> Hits:
        """The best candidates of each query by their fused scores; of equal ones, the lower row first."""
        fused = self.fused(weight)
        best = np.lexsort((self.rows, -fused), axis=-1)[:, :k]
        return Hits(np.take_along_axis(self.rows, best, axis=1), np.take_along_axis(fused, best, axis=1))


@dataclass(frozen=True, slots=True)
class Fusion:
    """BM25 beside the vectors of a store.

    Attributes:
        index: Over the documents of the store, in their order.
        weight: Of the vectors, from 0 (BM25 alone ranks the candidates) to 1 (the vectors alone).
    """

    index: BM25Index
    weight: float
