"""What a ranking asks of whoever ranks: scores of given documents, and how many of all score as high. Vectors and BM25 answer alike."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Int64

from adiabat.data.ragged import Ragged
from adiabat.store.embeddings import Store
from adiabat.store.lexical import LexicalIndex
from adiabat.store.scoring import Similarity
from adiabat.store.search import count_at_least, score_rows

Share = Callable[[float], None]
"""Called with the share of the work that is done, up to 1."""

QUERIES_AT_A_TIME = 256
"""That BM25 is asked between two words on how far it is."""


@runtime_checkable
class Ranker(Protocol):
    """Ranks all documents for queries of its own; more is closer. A score is the same to the last bit wherever it comes from."""

    @property
    def similarity(self) -> str:
        """What it ranks by."""

    @property
    def count(self) -> int:
        """Documents."""

    @property
    def least(self) -> float:
        """The lowest score with which a document is found at all; minus infinity where every document is."""

    def scores(self, queries: slice, rows: Int64[np.ndarray, "q r"]) -> Float32[np.ndarray, "q r"]:
        """Scores of given documents.

        Returns:
            Scores; minus infinity at a row of -1.
        """

    def count_at_least(
        self, queries: slice, thresholds: Float[np.ndarray, "q p"], excluded: Ragged, on_progress: Share | None = None
    ) -> Int64[np.ndarray, "q p"]:
        """Count, for each query and threshold, the documents that score at least as high.

        Args:
            thresholds: Scores; plus infinity for "none".
        """


@dataclass(frozen=True, slots=True)
class DenseRanker:
    """Vectors of queries against those of a store.

    Attributes:
        store: The documents.
        vectors: One row per query.
        similarity: ``cosine``, ``distance`` or ``dot``.
    """

    store: Store
    vectors: Float[np.ndarray, "q e"]
    similarity: Similarity

    @property
    def count(self) -> int:
        """Documents."""
        return self.store.count

    @property
    def least(self) -> float:
        """Every document is found."""
        return -math.inf

    def scores(self, queries: slice, rows: Int64[np.ndarray, "q r"]) -> Float32[np.ndarray, "q r"]:
        """Scores of given documents."""
        return score_rows(self.store, self.vectors[queries], rows, similarity=self.similarity)

    def count_at_least(
        self, queries: slice, thresholds: Float[np.ndarray, "q p"], excluded: Ragged, on_progress: Share | None = None
    ) -> Int64[np.ndarray, "q p"]:
        """Count the documents that score at least as high, in one pass over the store."""
        told = None if on_progress is None else lambda done, total: on_progress(done / total)
        vectors = self.vectors[queries]
        return count_at_least(self.store, vectors, thresholds, similarity=self.similarity, excluded=excluded, on_progress=told)


@dataclass(frozen=True, slots=True)
class LexicalRanker:
    """Texts of queries against a BM25 index.

    Attributes:
        index: The documents.
        texts: Of the queries.
    """

    index: LexicalIndex
    texts: Sequence[str]

    @property
    def similarity(self) -> str:
        """What it ranks by."""
        return "bm25"

    @property
    def count(self) -> int:
        """Documents."""
        return self.index.count

    @property
    def least(self) -> float:
        """A document that shares no word with the query, and so scores 0, is not found."""
        return float(np.nextafter(np.float32(0), np.float32(1)))

    def scores(self, queries: slice, rows: Int64[np.ndarray, "q r"]) -> Float32[np.ndarray, "q r"]:
        """Scores of given documents."""
        return self.index.score_rows(self.texts[queries], rows)

    def count_at_least(
        self, queries: slice, thresholds: Float[np.ndarray, "q p"], excluded: Ragged, on_progress: Share | None = None
    ) -> Int64[np.ndarray, "q p"]:
        """Count the documents that score at least as high."""
        texts, counts = self.texts[queries], np.zeros(thresholds.shape, dtype=np.int64)
        for start in range(0, len(texts), QUERIES_AT_A_TIME):
            part = np.arange(start, min(start + QUERIES_AT_A_TIME, len(texts)))
            counts[part] = self.index.count_at_least(texts[start : start + len(part)], thresholds[part], excluded.take(part))
            if on_progress:
                on_progress((start + len(part)) / len(texts))
        return counts
