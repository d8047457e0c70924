"""Who proposes candidates, and what scores they and the positives have: BM25, vectors, or both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from adiabat.data.records import Side
from adiabat.mining.filters import fused_ranks
from adiabat.models.embedding_head import Similarity
from adiabat.models.fingerprint import Fingerprint
from adiabat.store.bm25 import LexicalIndex
from adiabat.store.scoring import PAIR_CHUNK, FixedPoint, exact_pairs
from adiabat.store.search import Hits, search
from adiabat.store.vector_store import Store


@runtime_checkable
class TextEncoder(Protocol):
    """What mining asks of a model; a `DualEncoder` has it."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """What decides the vectors of one side."""

    def encode(self, texts: Sequence[str], *, side: Side) -> Float32[np.ndarray, "n e"]:
        """Vectors of texts, in their order.

        Returns:
            One row per text.
        """


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries of a block with documents that are to be scored.

    Attributes:
        query: Which query of the block.
        rows: Which document of the corpus; -1 for a text that is not in it.
        texts: Of the documents.
    """

    query: Int64[np.ndarray, " p"]
    rows: Int64[np.ndarray, " p"]
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.query)


@runtime_checkable
class Found(Protocol):
    """What a source says of a block of queries."""

    @property
    def hits(self) -> Hits:
        """Candidates by rows of the corpus, best first, with the scores that margins are taken of."""

    def score(self, pairs: Pairs) -> Float32[np.ndarray, " p"]:
        """Scores of other documents, comparable with those of the candidates.

        Returns:
            One score per pair.
        """


Positives = Callable[[], Sequence[Sequence[str]]]
"""Gives the texts of each query's positives, which few sources ask for."""


@runtime_checkable
class Source(Protocol):
    """Proposes candidates."""

    def find(self, queries: Sequence[str], depth: int, positives: Positives = tuple) -> Found:
        """Candidates of a block of queries.

        Args:
            depth: Candidates per query.
        """


@dataclass(frozen=True, slots=True)
class LexicalFound:
    """What BM25 says of a block of queries."""

    index: LexicalIndex
    queries: Sequence[str]
    hits: Hits

    def score(self, pairs: Pairs) -> Float32[np.ndarray, " p"]:
        """Scores of other documents; see `Found.score`.

        Returns:
            One score per pair.
        """
        scores = np.empty(len(pairs), dtype=np.float32)
        for query in np.unique(pairs.query).tolist():
            places = np.flatnonzero(pairs.query == query).tolist()
            scores[places] = self.index.scores(self.queries[query], [pairs.texts[place] for place in places])
        return scores


@dataclass(frozen=True, slots=True)
class LexicalSource:
    """Candidates by BM25.

    Attributes:
        index: Of the corpus.
        search_by: Whose text they are searched by; several rankings become one by reciprocal rank.
    """

    index: LexicalIndex
    search_by: Literal["query", "positive", "both"] = "query"

    def find(self, queries: Sequence[str], depth: int, positives: Positives = tuple) -> LexicalFound:
        """Candidates of a block of queries; see `Source.find`.

        Args:
            depth: Candidates per query.
        """
        if self.search_by == "query":
            return LexicalFound(self.index, queries, self.index.search(queries, depth))
        rows = np.full((len(queries), depth), -1, dtype=np.int64)
        for place, texts in enumerate(positives()):
            asked = [*texts, queries[place]] if self.search_by == "both" else texts
            fused = fused_ranks(*self.index.search(asked, depth).rows, depth=depth)
            rows[place, : len(fused)] = fused
        return LexicalFound(self.index, queries, Hits(rows, self.index.score_rows(queries, rows)))


@dataclass(frozen=True, slots=True)
class Vectors:
    """A model, with the vectors that are stored of the corpus, if any: what is not stored is encoded.

    Attributes:
        model: Both towers.
        store: Of its document tower; None where nothing is stored.
        in_store: Row in the store of each document of the corpus.
        similarity: What query and document vectors are compared by.
    """

    model: TextEncoder
    store: Store | None = None
    in_store: Int64[np.ndarray, " documents"] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    similarity: Similarity = "cosine"

    def of_queries(self, queries: Sequence[str]) -> Float32[np.ndarray, "q e"]:
        """Encode queries."""
        return self.model.encode(queries, side="query")

    def score(self, queries: Float32[np.ndarray, "q e"], pairs: Pairs) -> Float32[np.ndarray, " p"]:
        """Similarities, exact in the sense of `adiabat.store.scoring`.

        Returns:
            One score per pair.
        """
        scores = np.empty(len(pairs), dtype=np.float32)
        stored = np.flatnonzero(pairs.rows >= 0) if self.store else np.empty(0, dtype=np.int64)
        if self.store:
            for start in range(0, len(stored), PAIR_CHUNK):
                part = stored[start : start + PAIR_CHUNK]
                scores[part] = self._scores(queries[pairs.query[part]], self.store.gather(self.in_store[pairs.rows[part]]))
        others = np.setdiff1d(np.arange(len(pairs)), stored)
        distinct = {pairs.texts[place]: None for place in others}
        number = {text: place for place, text in enumerate(distinct)}
        if number:
            vectors = self.model.encode(list(number), side="document")
            for start in range(0, len(others), PAIR_CHUNK):
                part = others[start : start + PAIR_CHUNK]
                scores[part] = self._scores(queries[pairs.query[part]], vectors[[number[pairs.texts[place]] for place in part]])
        return scores

    def _scores(self, queries: Float32[np.ndarray, "p e"], documents: Float32[np.ndarray, "p e"]) -> Float32[np.ndarray, " p"]:
        return exact_pairs(FixedPoint.of(queries), FixedPoint.of(documents), self.similarity)


@dataclass(frozen=True, slots=True)
class DenseFound:
    """What a model says of a block of queries."""

    vectors: Vectors
    queries: Float32[np.ndarray, "q e"]
    hits: Hits

    def score(self, pairs: Pairs) -> Float32[np.ndarray, " p"]:
        """Scores of other documents; see `Found.score`.

        Returns:
            One score per pair.
        """
        return self.vectors.score(self.queries, pairs)


@dataclass(frozen=True, slots=True)
class DenseSource:
    """Candidates by the similarity to stored vectors.

    Attributes:
        vectors: Model and store.
        in_corpus: Row in the corpus of each document of the store.
    """

    vectors: Vectors
    in_corpus: Int64[np.ndarray, " documents"]

    @classmethod
    def of(cls, vectors: Vectors) -> "DenseSource":
        """Build the way back from the store to the corpus."""
        in_corpus = np.empty(len(vectors.in_store), dtype=np.int64)
        in_corpus[vectors.in_store] = np.arange(len(in_corpus))
        return cls(vectors, in_corpus)

    def find(self, queries: Sequence[str], depth: int, positives: Positives = tuple) -> DenseFound:
        """Candidates of a block of queries; see `Source.find`.

        Args:
            depth: Candidates per query.
        """
        del positives
        assert self.vectors.store is not None
        asked = self.vectors.of_queries(queries)
        hits = search(self.vectors.store, asked, depth, similarity=self.vectors.similarity)
        return DenseFound(self.vectors, asked, Hits(np.where(hits.rows < 0, -1, self.in_corpus[hits.rows]), hits.scores))


@dataclass(frozen=True, slots=True)
class FusedSource:
    """Candidates of two sources by reciprocal rank; scores are similarities of vectors."""

    lexical: LexicalSource
    dense: DenseSource

    def find(self, queries: Sequence[str], depth: int, positives: Positives = tuple) -> DenseFound:
        """Candidates of a block of queries; see `Source.find`.

        Args:
            depth: Candidates per query, of each source and of both together.
        """
        one, other = self.lexical.find(queries, depth, positives), self.dense.find(queries, depth)
        rows = np.full((len(queries), depth), -1, dtype=np.int64)
        for place in range(len(queries)):
            fused = fused_ranks(one.hits.rows[place], other.hits.rows[place], depth=depth)
            rows[place, : len(fused)] = fused
        query, column = np.nonzero(rows >= 0)
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        scores[query, column] = other.score(Pairs(query, rows[query, column], [""] * len(query)))
        return DenseFound(other.vectors, other.queries, Hits(rows, scores))
