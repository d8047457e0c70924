"""Candidates for negatives: from BM25, vectors or both, with scores that they share with positives; and
reasons to drop one.

A candidate is dropped for the first reason that holds, in the order of `MEANING`, and is counted once.
"""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int64, UInt8, UInt64

from adiabat.data.records import Fingerprint, Side
from adiabat.models.embedding_head import Similarity
from adiabat.store.bm25 import BM25Index
from adiabat.store.scoring import CPU, PAIR_CHUNK, FixedPoint, exact_pairs
from adiabat.store.search import Hits, search
from adiabat.store.vector_store import Store

Rows = Int64[np.ndarray, " _"]
"""Rows of documents."""

PairScores = Float32[np.ndarray, " p"]
"""A score for each pair."""


@runtime_checkable
class TextEncoder(Protocol):
    """A model as mining needs it; a `DualEncoder` is one."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """Fingerprint of one side's vectors."""

    def encode(self, texts: Sequence[str], *, side: Side) -> Float32[np.ndarray, "n e"]:
        """One vector per text."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Queries with documents to score.

    Attributes:
        query: Position of each query in its block.
        rows: Row of each document in the corpus; -1 for a text that is not in it.
        texts: Texts of the documents, which only a model needs that has no vector of theirs.
    """

    query: Rows
    rows: Rows
    texts: Sequence[str]

    def __len__(self) -> int:
        return len(self.query)


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates of a block of queries.

    Attributes:
        hits: Rows of the corpus, best first, with the scores that margins apply to.
        score: Scores other documents alike: positives, and negatives that the data list.
    """

    hits: Hits
    score: Callable[[Pairs], PairScores]


PositiveTexts = Callable[[], Sequence[Sequence[str]]]
"""Returns the texts of each query's positives, which few sources need."""


_NO_ROWS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Vectors:
    """A model, and the stored vectors of the corpus, if any: other documents are encoded.

    Attributes:
        store: Vectors of the corpus, which the document tower of the model made.
        store_rows: Row in the store of each document of the corpus.
        device: Where vectors are searched.
    """

    model: TextEncoder
    store: Store | None = None
    store_rows: Rows = field(default_factory=_NO_ROWS.copy)
    similarity: Similarity = "cosine"
    device: torch.device = CPU

    def encode_queries(self, queries: Sequence[str]) -> Float32[np.ndarray, "q e"]:
        """One vector per query."""
        return self.model.encode(queries, side="query")

    def score(self, queries: Float32[np.ndarray, "q e"], pairs: Pairs) -> PairScores:
        """Similarities of pairs, exact in the sense of `adiabat.store.scoring`.

        Stored vectors are read for documents with a row; the other texts are encoded, each once.
        """
        scores = np.empty(len(pairs), dtype=np.float32)
        is_stored = np.zeros(len(pairs), dtype=np.bool_)
        if self.store is not None:
            is_stored = pairs.rows >= 0
            for chunk in _chunks(np.flatnonzero(is_stored)):
                documents = self.store.gather(self.store_rows[pairs.rows[chunk]])
                scores[chunk] = self._similarities(queries[pairs.query[chunk]], documents)
        others = np.flatnonzero(~is_stored)
        if len(others):
            # Each text is encoded once, however many queries it is scored for.
            texts = dict.fromkeys(pairs.texts[position] for position in others.tolist())
            number_of = {text: number for number, text in enumerate(texts)}
            vectors = self.model.encode(list(texts), side="document")
            for chunk in _chunks(others):
                numbers = [number_of[pairs.texts[position]] for position in chunk.tolist()]
                scores[chunk] = self._similarities(queries[pairs.query[chunk]], vectors[numbers])
        return scores

    def _similarities(
        self, queries: Float32[np.ndarray, "p e"], documents: Float32[np.ndarray, "p e"]
    ) -> PairScores:
        """Similarity of each query to the document beside it."""
        return exact_pairs(FixedPoint.of(queries), FixedPoint.of(documents), self.similarity).numpy()


def _chunks(positions: Rows) -> Iterator[Rows]:
    """Positions of pairs, as many at a time as are scored together."""
    for start in range(0, len(positions), PAIR_CHUNK):
        yield positions[start : start + PAIR_CHUNK]


@dataclass(frozen=True, slots=True)
class LexicalSource:
    """Candidates by BM25, searched by the texts of `search_by`.

    Several rankings of one query, as those of its positives, are fused by reciprocal rank.
    """

    index: BM25Index
    search_by: Literal["query", "positive", "both"] = "query"

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts | None = None) -> Candidates:
        """Find `depth` candidates for each query, with BM25 scores of the query."""
        score = partial(self._score, queries)
        if self.search_by == "query":
            return Candidates(self.index.search(queries, depth), score)
        if positives is None:
            raise ValueError(f"positives must be given where BM25 searches by {self.search_by}, got none")
        rankings = []
        for texts, query in zip(positives(), queries, strict=True):
            searched = [*texts, query] if self.search_by == "both" else texts
            rankings.append(self.index.search(searched, depth).rows)
        rows = _fused(rankings, depth)
        return Candidates(Hits(rows, self.index.score_rows(queries, rows)), score)

    def _score(self, queries: Sequence[str], pairs: Pairs) -> PairScores:
        """BM25 scores of pairs, those of a query together."""
        scores = np.empty(len(pairs), dtype=np.float32)
        for query in np.unique(pairs.query).tolist():
            positions = np.flatnonzero(pairs.query == query).tolist()
            texts = [pairs.texts[position] for position in positions]
            scores[positions] = self.index.scores(queries[query], texts)
        return scores


@dataclass(frozen=True, slots=True)
class DenseSource:
    """Candidates by the similarity to stored vectors; `corpus_rows` is the row in the corpus of each document
    of the store.
    """

    vectors: Vectors
    corpus_rows: Rows

    @classmethod
    def of(cls, vectors: Vectors) -> "DenseSource":
        """Invert the rows of the store."""
        # The rows of the store are a permutation of those of the corpus, which sorting inverts.
        return cls(vectors, np.argsort(vectors.store_rows))

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts | None = None) -> Candidates:
        """Find `depth` candidates for each query."""
        del positives
        own = self.vectors
        assert own.store is not None
        vectors = own.encode_queries(queries)
        hits = search(own.store, vectors, depth, similarity=own.similarity, device=own.device)
        rows = np.where(hits.rows < 0, -1, self.corpus_rows[hits.rows])
        return Candidates(Hits(rows, hits.scores), partial(own.score, vectors))


@dataclass(frozen=True, slots=True)
class FusedSource:
    """Candidates of two sources by reciprocal rank; scores are similarities of vectors."""

    lexical: LexicalSource
    dense: DenseSource

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts | None = None) -> Candidates:
        """Find `depth` candidates for each query, among as many of each source.

        Candidates of BM25 alone get the similarity of their vectors too, on which margins apply.
        """
        lexical, dense = self.lexical.find(queries, depth, positives), self.dense.find(queries, depth)
        rows = _fused(list(zip(lexical.hits.rows, dense.hits.rows, strict=True)), depth)
        query, column = np.nonzero(rows >= 0)
        # Ranks of both sources cannot be compared with positives; similarities can.
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        scores[query, column] = dense.score(Pairs(query, rows[query, column], [""] * len(query)))
        return Candidates(Hits(rows, scores), dense.score)


@runtime_checkable
class Reranker(Protocol):
    """Scores a query with a document; a `CrossEncoder` is one."""

    def score(self, queries: Sequence[str], documents: Sequence[str]) -> Float32[np.ndarray, " n"]:
        """One score for each query and the document beside it."""


@dataclass(frozen=True, slots=True)
class RerankedSource:
    """The candidates of two sources together, in the order of a reranker, whose scores positives have too."""

    lexical: LexicalSource
    dense: DenseSource
    reranker: Reranker
    texts: Callable[[Rows], list[str]]
    """Texts of rows of the corpus."""

    def find(self, queries: Sequence[str], depth: int, positives: PositiveTexts | None = None) -> Candidates:
        """Find half of `depth` candidates for each query by each source."""
        sources = (self.lexical, self.dense)
        found = np.concatenate([source.find(queries, depth // 2).hits.rows for source in sources], axis=1)
        hits = Hits.none(len(queries), depth)
        scored: dict[tuple[int, str], float] = {}

        def score(pairs: Pairs) -> PairScores:
            # Positives are candidates as a rule, and a pair is scored once.
            keys = list(zip(pairs.query.tolist(), pairs.texts, strict=True))
            new = [key for key in dict.fromkeys(keys) if key not in scored]
            scores = self.reranker.score([queries[query] for query, _ in new], [text for _, text in new])
            scored.update(zip(new, scores.tolist(), strict=True))
            return np.array([scored[key] for key in keys], dtype=np.float32)

        distinct = [np.unique(rows[rows >= 0]) for rows in found]
        owners = np.repeat(np.arange(len(queries)), [len(rows) for rows in distinct])
        rows = np.concatenate([_NO_ROWS, *distinct])
        scores = score(Pairs(owners, rows, self.texts(rows)))
        for query in range(len(queries)):
            own = owners == query
            # Best first; equal scores by row.
            order = np.argsort(-scores[own], kind="stable")
            hits.rows[query, : len(order)] = rows[own][order]
            hits.scores[query, : len(order)] = scores[own][order]
        return Candidates(hits, score)


CandidateSource = LexicalSource | DenseSource | FusedSource | RerankedSource


def _fused(rankings: Sequence[Iterable[Rows]], depth: int) -> Int64[np.ndarray, "q d"]:
    """Rows of each query's fused rankings, -1 where there are fewer than `depth`."""
    rows = np.full((len(rankings), depth), -1, dtype=np.int64)
    for query, of_query in enumerate(rankings):
        fused = fused_ranks(*of_query, depth=depth)
        rows[query, : len(fused)] = fused
    return rows


Reason = Literal[
    "known_positive",
    "query_itself",
    "listed",
    "duplicate",
    "near_duplicate",
    "repeated",
    "rank",
    "margin",
    "relative_margin",
    "judge",
]

MEANING: Mapping[Reason, str] = {
    "known_positive": "answers to the query by the data",
    "query_itself": "the query itself, with a title or without",
    "listed": "negatives of the query by the data already",
    "duplicate": "the text of an answer but for case and white space",
    "near_duplicate": "nearly the text of an answer, a part of it, or more than it",
    "repeated": "the text of a better-ranked candidate",
    "rank": "among the first ranks, which are skipped",
    "margin": "a score too close to that of the answer, or above",
    "relative_margin": "a score too close to that of the answer, as a share of it",
    "judge": "a score of the judge too close to that of the answer, or above",
}

REASONS: tuple[Reason, ...] = tuple(MEANING)

PASSED = 0
"""Code of a candidate that passes all filters; a reason's code is its number in `REASONS`, from 1."""

Codes = UInt8[np.ndarray, " c"]

SHINGLE = 5
"""Characters of a shingle, as is usual for passages: unrelated texts share few, and single letters may
differ."""

CONTAINMENT = 32
"""Shingles from which a text counts as a copy of a longer one that contains it. Shorter texts, such as the
answer "Paris", occur in others
by chance: there each must contain the other."""

_FACTOR, _MIXER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def code_of(reason: Reason) -> int:
    """The code of a reason."""
    return REASONS.index(reason) + 1


def too_close(
    scores: Float32[np.ndarray, " c"],
    positives: PairScores,
    margin: float,
    *,
    relative: bool = False,
) -> Bool[np.ndarray, " c"]:
    """Candidates whose score is at least that of the lowest positive, less a margin.

    ``score >= positive - margin``, or, relative, ``positive - margin |positive|``; with a margin of 0 a tie
    with the positive is too close.
    """
    lowest = float(positives.min())
    if relative:
        margin *= abs(lowest)
    return np.asarray(scores.astype(np.float64) >= lowest - margin)


def first_reasons(count: int, masks: Mapping[Reason, Bool[np.ndarray, " c"]]) -> Codes:
    """Code of the first reason that holds for each candidate."""
    codes: Codes = np.full(count, PASSED, dtype=np.uint8)
    # The first reason is written last, over all others.
    for reason in reversed(REASONS):
        if reason in masks:
            codes[masks[reason]] = code_of(reason)
    return codes


def fused_ranks(*rankings: Rows, depth: int, constant: float = 60.0) -> Rows:
    """Fuse rankings by reciprocal rank.

    ``score(d) = sum over rankings with d of 1 / (constant + rank of d)``, ranks from 1; equal scores by row.
    The constant is that of Cormack, Clarke and Buettcher 2009.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking[ranking >= 0].tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1.0 / (constant + rank)
    best = sorted(scores, key=lambda row: (-scores[row], row))
    return np.array(best[:depth], dtype=np.int64)


def normalised(text: str) -> str:
    """A text without differences that readers hardly see: compatibility forms, case, and runs of white
    space.
    """
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())


def shingles(texts: Sequence[str]) -> list[UInt64[np.ndarray, " s"]]:
    """64-bit hashes of every run of five characters of each text, repeated ones each time.

    A shorter text is one shingle, an empty one has none. Different shingles collide once in 2^64.
    """
    # A text shorter than a shingle is padded with a character that no normalised text contains.
    padded = [text.ljust(SHINGLE, "\n") if text else "" for text in texts]
    joined = "".join(padded).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(joined, dtype="<u4").astype(np.uint64)
    # One hash for each character and the four behind it, over all texts joined. Each step multiplies modulo
    # 2^64 by an odd number and mixes the high bits, which then depend on all others, into the low ones.
    hashes = np.zeros(max(0, len(codes) - SHINGLE + 1), dtype=np.uint64)
    for offset in range(SHINGLE):
        hashes = (hashes ^ codes[offset : offset + len(hashes)]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    hashes = hashes * _MIXER
    hashes ^= hashes >> np.uint64(32)
    of_texts, start = [], 0
    for text in padded:
        # The last four characters of a text begin no shingle of it.
        of_texts.append(hashes[start : start + max(0, len(text) - SHINGLE + 1)])
        start += len(text)
    return of_texts


def overlaps(
    positive: UInt64[np.ndarray, " p"], candidates: Sequence[UInt64[np.ndarray, " _"]]
) -> Float64[np.ndarray, " c"]:
    """How far candidates are copies of one text, of a part of it, or contain it.

    For each pair it is the larger of two shares: that of the candidate's shingles that the positive has, and
    that of the positive's that the candidate has; a share of fewer than `CONTAINMENT` shingles counts no more
    than the other one.
    """
    # All candidates are searched together, since numpy is slow on many short arrays.
    sizes = np.array([len(hashes) for hashes in candidates], dtype=np.int64)
    if not len(positive) or not sizes.sum():
        return np.zeros(len(candidates))
    owners = np.repeat(np.arange(len(candidates)), sizes)
    flat = np.concatenate(candidates)
    distinct, repeats = np.unique(positive, return_counts=True)
    # A table of the low 16 bits saves most of the binary searches.
    table = np.zeros(1 << 16, dtype=bool)
    table[distinct.astype(np.uint16)] = True
    possible = np.flatnonzero(table[flat.astype(np.uint16)])
    slots = np.minimum(np.searchsorted(distinct, flat[possible]), len(distinct) - 1)
    same = distinct[slots] == flat[possible]
    owners, slots = owners[possible[same]], slots[same]
    of_candidate = np.bincount(owners, minlength=len(candidates)) / np.maximum(sizes, 1)
    # Which shingles of the positive each candidate has.
    shared = np.zeros((len(candidates), len(distinct)), dtype=bool)
    shared[owners, slots] = True
    of_positive = shared @ repeats.astype(np.float64) / len(positive)
    both = np.minimum(of_candidate, of_positive)
    within = np.where(sizes >= CONTAINMENT, of_candidate, both)
    around = of_positive if len(positive) >= CONTAINMENT else both
    return np.asarray(np.maximum(within, around))
