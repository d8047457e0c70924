"""Sources of candidates, with scores that candidates and positives share: BM25, vectors, or both."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from adiabat.data.records import Side
from adiabat.mining.filters import fused_ranks
from adiabat.models.embedding_head import Similarity
from adiabat.models.fingerprint import Fingerprint
from adiabat.store.bm25 import BM25Index
from adiabat.store.scoring import PAIR_CHUNK, FixedPoint, exact_pairs
from adiabat.store.search import Hits, search
from adiabat.store.vector_store import Store


@runtime_checkable
class TextEncoder(Protocol):
    """A model as mining needs it; a `DualEncoder` is one."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """Fingerprint of one side's vectors."""

    def encode(self, texts: Sequence[str], *, side: Side) -> Float32[np.ndarray, "n e"]:
        """One vector per text."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries, by their position in a block, with documents to score; `rows` is -1 for a text that is not in the corpus."""

    query: Int64[np.ndarray, " p"]
    rows: Int64[np.ndarray, " p"]
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates of a block of queries by row, best first, with the scores that margins apply to, and what scores others alike."""

    hits: Hits
    score: Callable[[Pairs], Float32[np.ndarray, " p"]]


PositiveTexts = Callable[[], Sequence[Sequence[str]]]
"""Returns the texts of each query's positives, which few sources need."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """A model, and the stored vectors of the corpus, if any: other documents are encoded."""

    model: TextEncoder
    store: Store | None = None
    store_rows: Int64[np.ndarray, " documents"] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    similarity: Similarity = "cosine"

    def encode_queries(self, queries: Sequence[str]) -> Float32[np.ndarray, "q e"]:
        """One vector per query."""
        return self.model.encode(queries, side="query")

    def score(self, queries: Float32[np.ndarray, "q e"], pairs: Pairs) -> Float32[np.ndarray, " p"]:
        """Similarities of pairs, exact in the sense of `adiabat.store.scoring`."""
        scores = np.empty(len(pairs), dtype=np.float32)
        is_stored = (pairs.rows >= 0) if self.store else np.zeros(len(pairs), dtype=np.bool_)
        if self.store:
            for chunk in _chunks(np.flatnonzero(is_stored)):
                documents = self.store.gather(self.store_rows[pairs.rows[chunk]])
                scores[chunk] = self._similarities(queries[pairs.query[chunk]], documents)
        others = np.flatnonzero(~is_stored)
        number_of = {text: number for number, text in enumerate(dict.fromkeys(pairs.texts[position] for position in others.tolist()))}
        if number_of:
            vectors = self.model.encode(list(number_of), side="document")
            for chunk in _chunks(others):
                documents = vectors[[number_of[pairs.texts[position]] for position in chunk.tolist()]]
                scores[chunk] = self._similarities(queries[pairs.query[chunk]], documents)
        return scores

    def _similarities(self, queries: Float32[np.ndarray, "p e"], documents: Float32[np.ndarray, "p e"]) -> Float32[np.ndarray, " p"]:
        return exact_pairs(FixedPoint.of(queries), FixedPoint.of(documents), self.similarity)


def _chunks(positions: Int64[np.ndarray, " n"]) -> list[Int64[np.ndarray, " _"]]:
    return [positions[start : start + PAIR_CHUNK] for start in range(0, len(positions), PAIR_CHUNK)]


@dataclass(frozen=True, slots=True)
class LexicalSource:
    """Candidates by BM25, searched by the texts of `search_by`; several rankings are fused by reciprocal rank."""

    index: BM25Index
    search_by: Literal["query", "positive", "both"] = "query"

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts = tuple) -> Candidates:
        """Find `depth` candidates for each query, with BM25 scores of the query."""

        def score(pairs: Pairs) -> Float32[np.ndarray, " p"]:
            scores = np.empty(len(pairs), dtype=np.float32)
            for query in np.unique(pairs.query).tolist():
                positions = np.flatnonzero(pairs.query == query).tolist()
                scores[positions] = self.index.scores(queries[query], [pairs.texts[position] for position in positions])
            return scores

        if self.search_by == "query":
            return Candidates(self.index.search(queries, depth), score)
        searches = [[*texts, query] if self.search_by == "both" else texts for texts, query in zip(positives(), queries, strict=True)]
        rows = _fused([self.index.search(texts, depth).rows for texts in searches], depth)
        return Candidates(Hits(rows, self.index.score_rows(queries, rows)), score)


@dataclass(frozen=True, slots=True)
class DenseSource:
    """Candidates by the similarity to stored vectors; `corpus_rows` is the row in the corpus of each document of the store."""

    vectors: Vectors
    corpus_rows: Int64[np.ndarray, " documents"]

    @classmethod
    def of(cls, vectors: Vectors) -> "DenseSource":
        """Invert the rows of the store."""
        return cls(vectors, np.argsort(vectors.store_rows))

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts = tuple) -> Candidates:
        """Find `depth` candidates for each query."""
        del positives
        assert self.vectors.store is not None
        vectors = self.vectors.encode_queries(queries)
        hits = search(self.vectors.store, vectors, depth, similarity=self.vectors.similarity)
        hits = Hits(np.where(hits.rows < 0, -1, self.corpus_rows[hits.rows]), hits.scores)
        return Candidates(hits, partial(self.vectors.score, vectors))


@dataclass(frozen=True, slots=True)
class FusedSource:
    """Candidates of two sources by reciprocal rank; scores are similarities of vectors."""

    lexical: LexicalSource
    dense: DenseSource

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts = tuple) -> Candidates:
        """Find `depth` candidates for each query, among as many of each source."""
        lexical, dense = self.lexical.find(queries, depth, positives), self.dense.find(queries, depth)
        rows = _fused(list(zip(lexical.hits.rows, dense.hits.rows, strict=True)), depth)
        query, column = np.nonzero(rows >= 0)
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        scores[query, column] = dense.score(Pairs(query, rows[query, column], [""] * len(query)))
        return Candidates(Hits(rows, scores), dense.score)


CandidateSource = LexicalSource | DenseSource | FusedSource


def _fused(rankings: Sequence[Iterable[Int64[np.ndarray, " _"]]], depth: int) -> Int64[np.ndarray, "q d"]:
    """Rows of each query's fused rankings, -1 where there are fewer than `depth`."""
    rows = np.full((len(rankings), depth), -1, dtype=np.int64)
    for query, of_query in enumerate(rankings):
        fused = fused_ranks(*of_query, depth=depth)
        rows[query, : len(fused)] = fused
    return rows
