"""Exact ranks of the relevant documents of each query, in a whole corpus or among listed candidates; ties are
lost.

No ranking is written out. The rank of a positive is the number of other documents that score at least as
high, which are counted, plus the few positives before it. Counts and ranks are exact to any depth.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Int64

from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import Similarity
from adiabat.stats.ranking_measures import PairCounts, measures_of_ranks
from adiabat.stats.unit_arrays import Rows
from adiabat.store.addressing import AddressedSet
from adiabat.store.bm25 import BM25Index
from adiabat.store.fusion import FusedCandidates
from adiabat.store.scoring import CPU
from adiabat.store.search import Hits, count_at_least, score_rows
from adiabat.store.vector_store import Store

ShareProgress = Callable[[float], None]
"""Receives the finished share of the work, up to 1."""

Counts = tuple[Int64[np.ndarray, "q p"], Int64[np.ndarray, "q p"]]
"""Numbers of documents for each query and threshold: without the removed ones, and of the removed ones."""

RowTable = Int64[np.ndarray, "q r"]
"""Rows of some documents for each query."""

EntryNumbers = Int[np.ndarray, " entries"]
Scores = Float32[np.ndarray, "q r"]
Thresholds = Float[np.ndarray, "q p"]

BM25_QUERIES = 256
"""Queries of BM25 between two reports of progress."""


@runtime_checkable
class Ranker(Protocol):
    """Ranks all documents for its queries; higher is closer.

    The score of a document is always the same to the last bit.
    """

    @property
    def similarity(self) -> str:
        """The similarity that it ranks by."""

    @property
    def count(self) -> int:
        """Number of documents."""

    @property
    def min_score(self) -> float:
        """Lowest score of a retrieved document; minus infinity where every document is retrieved."""

    def scores(self, queries: slice, rows: RowTable) -> Scores:
        """Scores of documents by row; minus infinity at a row of -1."""

    def count_at_least(
        self,
        queries: slice,
        thresholds: Thresholds,
        excluded: Ragged,
        removed: Rows,
        on_progress: ShareProgress | None = None,
    ) -> Counts:
        """Number of documents that score at least each threshold (infinity for "none"), for each query:
        others, and removed ones.
        """


@dataclass(frozen=True, slots=True)
class DenseRanker:
    """Query vectors against those of a store."""

    store: Store
    vectors: Float[np.ndarray, "q e"]
    similarity: Similarity
    device: torch.device = CPU
    min_score: ClassVar[float] = -math.inf
    """Every document is retrieved."""

    @property
    def count(self) -> int:
        """Number of documents."""
        return self.store.count

    def scores(self, queries: slice, rows: RowTable) -> Scores:
        """Scores of documents by row."""
        return score_rows(self.store, self.vectors[queries], rows, similarity=self.similarity)

    def count_at_least(
        self,
        queries: slice,
        thresholds: Thresholds,
        excluded: Ragged,
        removed: Rows,
        on_progress: ShareProgress | None = None,
    ) -> Counts:
        """Count in one pass over the store."""
        report = None if on_progress is None else lambda scanned, total: on_progress(scanned / total)
        return count_at_least(
            self.store,
            self.vectors[queries],
            thresholds,
            similarity=self.similarity,
            device=self.device,
            excluded=excluded,
            removed=removed,
            on_progress=report,
        )


@dataclass(frozen=True, slots=True)
class BM25Ranker:
    """Query texts against a BM25 index."""

    index: BM25Index
    texts: Sequence[str]
    similarity: ClassVar[str] = "bm25"
    min_score: ClassVar[float] = float(np.nextafter(np.float32(0), np.float32(1)))
    """A document that shares no word with the query scores 0 and is not retrieved."""

    @property
    def count(self) -> int:
        """Number of documents."""
        return self.index.count

    def scores(self, queries: slice, rows: RowTable) -> Scores:
        """Scores of documents by row."""
        return self.index.score_rows(self.texts[queries], rows)

    def count_at_least(
        self,
        queries: slice,
        thresholds: Thresholds,
        excluded: Ragged,
        removed: Rows,
        on_progress: ShareProgress | None = None,
    ) -> Counts:
        """Count in blocks of queries, with progress between them."""
        texts = self.texts[queries]
        counts = np.zeros((2, *thresholds.shape), dtype=np.int64)
        for block in _blocks(len(texts), BM25_QUERIES):
            without = excluded.take(np.arange(block.start, block.stop))
            counts[:, block] = self.index.count_at_least(texts[block], thresholds[block], without, removed)
            if on_progress:
                on_progress(block.stop / len(texts))
        return counts[0], counts[1]


@dataclass(frozen=True, slots=True)
class FusedRanker:
    """Both rankings fused (`adiabat.store.fusion`): documents that are no candidates are not retrieved.

    Attributes:
        dense: Ranks by vectors.
        lexical: Ranks by BM25.
        candidates: Of all queries.
        weight: Of the vectors.
        in_lists: Score any document, as among listed candidates; otherwise only candidates have a score.
    """

    dense: DenseRanker
    lexical: BM25Ranker
    candidates: FusedCandidates
    weight: float
    in_lists: bool = False
    min_score: ClassVar[float] = float(np.finfo(np.float32).min)
    """A document that is no candidate scores minus infinity."""

    @property
    def similarity(self) -> str:
        """That of the vectors."""
        return self.dense.similarity

    @property
    def count(self) -> int:
        """Number of documents."""
        return self.dense.count

    def scores(self, queries: slice, rows: RowTable) -> Scores:
        """Scores of documents by row."""
        own = self.candidates.take(queries)
        vectors, words = self.dense.scores(queries, rows), self.lexical.scores(queries, rows)
        scores = own.fused_like(vectors, words, self.weight)
        ranked = rows >= 0
        if not self.in_lists:
            ranked &= np.stack([np.isin(*pair) for pair in zip(rows, own.rows, strict=True)])
        return np.where(ranked, scores, np.float32(-np.inf))

    def count_at_least(
        self,
        queries: slice,
        thresholds: Thresholds,
        excluded: Ragged,
        removed: Rows,
        on_progress: ShareProgress | None = None,
    ) -> Counts:
        """Count among the candidates; every document reaches minus infinity."""
        own = self.candidates.take(queries)
        fused = own.fused(self.weight)
        counts, apart = np.zeros((2, *thresholds.shape), dtype=np.int64)
        for query, (rows, scores) in enumerate(zip(own.rows, fused, strict=True)):
            others = (rows >= 0) & ~np.isin(rows, excluded[query])
            reached = others[:, None] & (scores[:, None] >= thresholds[query])
            is_removed = np.isin(rows, removed)
            counts[query] = np.count_nonzero(reached & ~is_removed[:, None], axis=0)
            apart[query] = np.count_nonzero(reached & is_removed[:, None], axis=0)
            everything = thresholds[query] == -np.inf
            removed_here = np.setdiff1d(removed, excluded[query]).size
            counts[query, everything] = self.count - np.union1d(removed, excluded[query]).size
            apart[query, everything] = removed_here
        if on_progress:
            on_progress(1.0)
        return counts, apart


def fused_ranker(
    dense: DenseRanker,
    lexical: BM25Ranker,
    weight: float,
    *,
    left_out: Ragged | None,
    name: str,
    watch: Watch,
) -> FusedRanker:
    """The fusion of two rankings of the same queries.

    Args:
        left_out: Documents that are no candidates of a query; None if only listed documents are ranked.
        name: Of the queries.
    """
    candidates = FusedCandidates.of(
        dense.store,
        lexical.index,
        dense.vectors,
        lexical.texts,
        similarity=dense.similarity,
        device=dense.device,
        excluded=left_out,
        on_progress=lambda done, total: watch.progress(f"searching {name}", done, total),
    )
    return FusedRanker(dense, lexical, candidates, weight, in_lists=left_out is None)


QUERIES_PER_BLOCK = 4096
"""Queries per pass over the documents: bounds the scores in memory."""


@dataclass(frozen=True, slots=True)
class PositiveRanks:
    """Ranks of the positives of each query, from 0; ranks from `retrieved` on, the length of the ranking,
    mean not retrieved.

    `counts` are of pairs of a positive and another document. `grades` are those of the ranked documents: 0
    for one judged not relevant. `above` says for which queries a removed document scores at least as high as
    the first positive; None if nothing was removed.
    """

    counts: PairCounts
    ranks: Ragged
    grades: Ragged
    retrieved: Int64[np.ndarray, " q"]
    above: Bool[np.ndarray, " q"] | None = None

    def values(self, measure: str, *, depth: int) -> Float[np.ndarray, " q"]:
        """A measure of each query's first documents, at most `depth`."""
        retrieved = np.minimum(self.retrieved, depth)
        return measures_of_ranks(self.ranks, self.grades, retrieved, [measure])[measure]


def rank_in_store(
    ranker: Ranker,
    examples: AddressedSet,
    left_out: Ragged,
    watch: Watch,
    *,
    judged: bool = False,
    removed: Rows | None = None,
) -> PositiveRanks:
    """Rank the positives of each query against every document that is neither a positive nor left out.

    Args:
        judged: Rank the documents that were judged not relevant too. Of documents that tie, unjudged ones
            come first, relevant ones last.
        removed: Ascending rows of documents that no query is ranked against, none of them judged.
    """
    queries = len(examples)
    # Ranks of irrelevant documents matter to few measures, and cost a threshold each.
    documents, grades = examples.positives, examples.grades
    if judged and examples.is_judged:
        documents, grades = _judged(examples, left_out, ranker.count)
    rows = np.empty(0, dtype=np.int64) if removed is None else removed
    compared = ranker.count - rows.size - left_out.where(~np.isin(left_out.values, rows)).lengths
    lost = np.zeros(len(documents.values), dtype=np.int64)
    scores = np.zeros(len(lost), dtype=np.float32)
    retrieved = compared.copy()
    above = np.zeros(queries, dtype=np.bool_)
    for block in _blocks(queries, QUERIES_PER_BLOCK):

        def report(share: float, block: slice = block) -> None:
            finished = block.start + int(share * (block.stop - block.start))
            watch.progress(f"ranking {examples.name}", finished, queries)

        entries = _entries(documents, block)
        near, inside = _padded(documents, block)
        # Padding reaches no document: nothing scores infinity.
        levels = np.where(inside, ranker.scores(block, near), np.inf).astype(np.float32)
        # A last threshold counts the documents that the ranker retrieves at all.
        thresholds = np.pad(levels, ((0, 0), (0, 1)), constant_values=ranker.min_score)
        retrieves_all = ranker.min_score == -np.inf
        counted, apart = ranker.count_at_least(
            block,
            levels if retrieves_all else thresholds,
            _joined(documents, left_out, block),
            rows,
            report,
        )
        lost[entries] = counted[:, : levels.shape[1]][inside]
        scores[entries] = levels[inside]
        if not retrieves_all:
            reached = (levels >= ranker.min_score) & inside
            retrieved[block] = counted[:, -1] + reached.sum(axis=1)
        # A removed document that scores as high as the best positive would have come first.
        relevant = np.zeros(inside.shape, dtype=np.bool_)
        relevant[inside] = grades.values[entries] > 0
        first = np.where(relevant, levels, -np.inf).argmax(axis=1)
        above[block] = apart[np.arange(len(first)), first] > 0
    others = compared - examples.positives.lengths
    ranks = _standings(documents, grades, lost, scores, others, retrieved)
    return ranks if removed is None else replace(ranks, above=above)


def rank_in_lists(ranker: Ranker, examples: AddressedSet, watch: Watch) -> PositiveRanks:
    """Rank the positives of each query against its listed negatives, all of which are retrieved."""
    positives, negatives = examples.positives, examples.negatives
    lost = np.zeros(len(positives.values), dtype=np.int64)
    scores = np.zeros(len(lost), dtype=np.float32)
    for block in _blocks(len(examples), QUERIES_PER_BLOCK):
        entries = _entries(positives, block)
        near, inside = _padded(positives, block)
        far, _ = _padded(negatives, block)
        table = ranker.scores(block, np.concatenate([near, far], axis=1))
        levels, others = np.split(table, [near.shape[1]], axis=1)
        at_least = np.stack([(others >= level[:, None]).sum(axis=1) for level in levels.T], axis=1)
        lost[entries] = at_least[inside]
        scores[entries] = levels[inside]
        watch.progress(f"scoring {examples.name}", block.stop, len(examples))
    lengths = negatives.lengths
    return _standings(positives, examples.grades, lost, scores, lengths, positives.lengths + lengths)


def tied_positives_last(hits: Hits, examples: AddressedSet) -> Int64[np.ndarray, "q k"]:
    """Rows of a search in which a positive loses its ties, as in all ranks here; a search puts the lower row
    first.
    """
    rows = np.array(hits.rows)
    for query, (found, scores) in enumerate(zip(hits.rows, hits.scores, strict=True)):
        rows[query] = found[np.lexsort((np.isin(found, examples.positives[query]), -scores))]
    return rows


def errors_by_negative(ranker: Ranker, examples: AddressedSet) -> Bool[np.ndarray, "q d"]:
    """Whether each query's positive is not strictly closer than its first listed negative, its second, ...; a
    tie is an error.
    """
    assert examples.negative_columns is not None
    errors = np.empty(examples.negative_columns.shape, dtype=np.bool_)
    for block in _blocks(len(examples), QUERIES_PER_BLOCK):
        # Negatives stand in columns only where each query has a single positive.
        own = examples.positives.values[block, None]
        scores = ranker.scores(block, np.concatenate([own, examples.negative_columns[block]], axis=1))
        errors[block] = scores[:, 1:] >= scores[:, :1]
    return errors


def _judged(examples: AddressedSet, left_out: Ragged, documents: int) -> tuple[Ragged, Ragged]:
    """The judged documents of each query that are not left out, and their grades, 0 for irrelevant ones."""
    queries = np.arange(len(examples))

    def keys(lists: Ragged) -> Int64[np.ndarray, " k"]:
        # One number for each query and document.
        return np.asarray(np.repeat(queries, lists.lengths) * documents + lists.values)

    irrelevant = examples.negatives.where(~np.isin(keys(examples.negatives), keys(left_out)))
    zeros = Ragged(np.zeros(len(irrelevant.values), dtype=np.int64), irrelevant.offsets)
    everything = slice(0, len(examples))
    return _joined(examples.positives, irrelevant, everything), _joined(examples.grades, zeros, everything)


def _standings(
    documents: Ragged,
    grades: Ragged,
    lost: EntryNumbers,
    scores: Float[np.ndarray, " entries"],
    others: Int[np.ndarray, " q"],
    retrieved: Int[np.ndarray, " q"],
) -> PositiveRanks:
    """Ranks from the further documents that each one loses to, its score, and the documents that a positive
    is compared with.
    """
    owners = np.repeat(np.arange(len(documents)), documents.lengths)
    ranks = lost + _ranked_before(owners, grades.values, scores)
    relevant = grades.values > 0
    # An error is an irrelevant document before a positive: other positives before it are none.
    wrong = ranks[relevant] - _ranked_before(owners[relevant], grades.values[relevant], scores[relevant])
    errors = np.zeros(len(documents), dtype=np.int64)
    np.add.at(errors, owners[relevant], wrong)
    positives = np.bincount(owners[relevant], minlength=len(documents))
    counts = PairCounts(errors, others * positives)
    return PositiveRanks(counts, Ragged(ranks, documents.offsets), grades, retrieved)


def _ranked_before(
    owners: EntryNumbers, grades: EntryNumbers, scores: Float[np.ndarray, " entries"]
) -> EntryNumbers:
    """Number of the query's other entries ranked before each: those of higher scores, and of equal scores
    those of lower grades.
    """
    order = np.lexsort((grades, -scores, owners))
    before = np.empty(len(order), dtype=np.int64)
    # The sort is within queries, whose entries are adjacent, so place i of the order belongs to the query
    # that owns entry i.
    before[order] = np.arange(len(order)) - np.searchsorted(owners, owners)
    return before


def _blocks(queries: int, size: int) -> Iterator[slice]:
    """All queries, so many at a time."""
    for start in range(0, queries, size):
        yield slice(start, min(start + size, queries))


def _entries(lists: Ragged, block: slice) -> slice:
    """Where the entries of a block's lists stand among all."""
    return slice(lists.offsets[block.start], lists.offsets[block.stop])


def _joined(lists: Ragged, further: Ragged, block: slice) -> Ragged:
    """Lists of a block, each joined with its counterpart."""
    lengths = np.stack([lists.lengths[block], further.lengths[block]])
    numbers = np.arange(lengths.shape[1])
    owners = np.concatenate([np.repeat(numbers, lengths[0]), np.repeat(numbers, lengths[1])])
    values = np.concatenate([each.values[_entries(each, block)] for each in (lists, further)])
    # The sort is stable, so the entries of the first list stay before those of its counterpart.
    order = np.argsort(owners, kind="stable")
    return Ragged(values[order], np.concatenate([[0], np.cumsum(lengths.sum(axis=0))]))


def _padded(lists: Ragged, block: slice) -> tuple[RowTable, Bool[np.ndarray, "q r"]]:
    """Lists of a block as a rectangle padded with -1, and a mask of the real entries."""
    lengths = lists.lengths[block]
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.full(inside.shape, -1, dtype=np.int64)
    rows[inside] = lists.values[_entries(lists, block)]
    return rows, inside
