"""Exact search over a whole store, streamed in blocks: nearest documents, counts of documents above a score,
and scores of given rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int, Int64, Integer, Shaped
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]
from torch import Tensor

from adiabat.core.ragged import Ragged
from adiabat.models.device import call, parallel_map
from adiabat.models.embedding_head import Similarity
from adiabat.results.evaluation_result import Hit
from adiabat.store.scoring import (
    CPU,
    PAIR_CHUNK,
    Block,
    FixedPoint,
    PairRows,
    PairScores,
    Queries,
    QueryArray,
    checked_queries,
    clear_bounds,
    exact_pairs,
    is_cpu,
    on_host,
    pair_slices,
    places,
    plain_arithmetic,
    reach,
    scale,
)
from adiabat.store.stored_blocks import BlockPlan, SearchProgress, each_block, require_finite
from adiabat.store.vector_store import Store

WAITING_PAIRS = 64
"""Minimum number of pairs collected before they are merged."""
MAX_THREADS = 8
"""Threads that score tiles at the same time; each has its own tile in memory (`TILE_SCORES`)."""

Excluded = Ragged | Sequence[Integer[np.ndarray, " _"]]
"""Rows of the store for each query."""


Removed = Int64[np.ndarray, " r"]
"""Ascending rows of the store that are left out of a ranking, for all queries."""


@dataclass(frozen=True, slots=True)
class Hits:
    """The nearest documents of each query, best first.

    Attributes:
        rows: Rows of the store; of equal scores, the lower row first; -1 if exclusions or a zero query leave
            fewer than k.
        scores: Higher is closer; minus infinity for a row of -1.
    """

    rows: Int64[np.ndarray, "q k"]
    scores: Float32[np.ndarray, "q k"]

    @classmethod
    def none(cls, queries: int, k: int) -> "Hits":
        """Room for the documents of each query, none of which is found yet."""
        shape = (queries, k)
        return cls(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))


def search(
    store: Store,
    queries: QueryArray,
    k: int,
    *,
    similarity: Similarity = "cosine",
    device: torch.device = CPU,
    block_rows: int | None = None,
    excluded: Excluded | None = None,
    removed: Removed | None = None,
    on_progress: SearchProgress | None = None,
) -> Hits:
    """Find the nearest documents of each query in the whole store.

    The result is exact (`adiabat.store.scoring` defines this) and depends neither on device nor `block_rows`
    nor on other queries.

    Args:
        queries: One row per query, of any length; a zero query, which has no direction, has no results.
        device: Device that scores: usually that of the model. A GPU keeps the vectors with the store, where
            they fit.
        block_rows: Documents at a time; None chooses for the device.
        excluded: Rows that are never returned, per query; None for no exclusions.
        removed: Ascending rows that are returned for no query.
    """
    checked = checked_queries(queries, store.width, similarity, device)
    exclusions = _Exclusions.of(excluded, len(queries), removed)
    plan = BlockPlan.of(store, len(queries), device, block_rows, threads=_threads())
    tiles = [_Nearest(checked.take(tile), min(k, store.count), exclusions.take(tile)) for tile in plan.tiles]
    _score(store, plan, [tile.update for tile in tiles], on_progress)
    tile_hits = [tile.hits() for tile in tiles]
    hits = Hits(
        np.concatenate([tile.rows for tile in tile_hits]), np.concatenate([tile.scores for tile in tile_hits])
    )
    zero = ~queries.any(axis=1)
    hits.rows[zero], hits.scores[zero] = -1, -np.inf
    return hits


def count_at_least(
    store: Store,
    queries: QueryArray,
    thresholds: Float[np.ndarray, "q p"],
    *,
    similarity: Similarity = "cosine",
    device: torch.device = CPU,
    block_rows: int | None = None,
    excluded: Excluded | None = None,
    removed: Removed | None = None,
    on_progress: SearchProgress | None = None,
) -> tuple[Int64[np.ndarray, "q p"], Int64[np.ndarray, "q p"]]:
    """Count, for each query and threshold, the documents of the store that score at least as high.

    With the scores of a query's positives (`score_rows`) as thresholds, and its positives excluded, these are
    the errors of PND over the
    full store: every other document that ties with a positive, or scores higher.

    Args:
        thresholds: Scores; plus infinity pads queries with fewer thresholds.
        excluded: Rows that are never counted, per query, each once; None for no exclusions.
        removed: Ascending rows that are counted apart, for all queries.

    Returns:
        The counts without the removed documents, and those of the removed ones.
    """
    checked = checked_queries(queries, store.width, similarity, device)
    counts = np.zeros((2, *thresholds.shape), dtype=np.int64)
    exclusions = _Exclusions.of(excluded, len(queries), removed)
    plan = BlockPlan.of(store, len(queries), device, block_rows, threads=_threads())
    tiles = [
        partial(_count_block, checked.take(tile), exclusions.take(tile), thresholds[tile], counts[:, tile])
        for tile in plan.tiles
    ]
    _score(store, plan, tiles, on_progress)
    return counts[0] - counts[1], counts[1]


def score_rows(
    store: Store,
    queries: QueryArray,
    rows: Integer[np.ndarray, "q r"],
    *,
    similarity: Similarity = "cosine",
) -> Float32[np.ndarray, "q r"]:
    """Scores of chosen documents, bit for bit those of `search` and `count_at_least`; minus infinity at a row
    of -1.
    """
    checked = checked_queries(queries, store.width, similarity)
    scores = np.full(rows.shape, -np.inf, dtype=np.float32)
    query, column = np.nonzero(rows != -1)
    for part in pair_slices(len(query), PAIR_CHUNK):
        pairs = query[part], column[part]
        distinct, index = np.unique(rows[pairs], return_inverse=True)
        documents = store.gather(distinct)
        require_finite(store, np.abs(documents).max(axis=1), distinct)
        fixed = FixedPoint.of(documents).take(index)
        scores[pairs] = exact_pairs(checked.exact.take(pairs[0]), fixed, similarity)
    return scores


def _score(
    store: Store,
    plan: BlockPlan,
    tiles: Sequence[Callable[[Block], None]],
    on_progress: SearchProgress | None,
) -> None:
    """Let every tile of queries score every block of the store."""
    with (
        _at_once(len(tiles) if is_cpu(plan.device) else 1) as run,
        closing(each_block(store, plan, on_progress)) as blocks,
    ):
        for block in blocks:
            for _ in run(partial(plan.within_memory, tile, block) for tile in tiles):
                pass


@contextmanager
def _at_once(tiles: int) -> Iterator[Callable[[Iterable[Callable[[], None]]], Iterator[None]]]:
    """A parallel map over a block's tiles, one per thread, so that no core waits for the others after every
    operation.
    """
    workers = min(_threads(), tiles)
    # Torch respects the caller's number of threads; numpy does not.
    with _libraries().limit(limits=1 if workers > 1 else torch.get_num_threads(), user_api="blas"):
        if workers < 2:
            yield partial(map, call)
            return
        # The precision of torch's products belongs to the whole process: no thread may reset it while another
        # computes.
        with plain_arithmetic(), parallel_map([call] * workers) as run:
            yield run


@cache
def _libraries() -> ThreadpoolController:
    """The libraries of linear algebra in this process; finding them takes milliseconds."""
    return ThreadpoolController()


def _threads() -> int:
    """Threads that score tiles at the same time."""
    return min(torch.get_num_threads(), MAX_THREADS)


@dataclass(frozen=True, slots=True)
class _Exclusions:
    """Excluded pairs, by row, and rows that are removed for all queries.

    Attributes:
        rows: Row of each excluded pair, ascending, so that those of a block are consecutive.
        queries: Query of each of these pairs.
        removed: Rows that are removed for all queries, ascending.
    """

    rows: Int64[np.ndarray, " x"]
    queries: Int64[np.ndarray, " x"]
    removed: Removed

    @classmethod
    def of(
        cls,
        excluded: Excluded | None,
        queries: int,
        removed: Removed | None,
    ) -> "_Exclusions":
        none = np.empty(0, dtype=np.int64)
        removed = none if removed is None else removed
        if excluded is None:
            return cls(none, none, removed)
        lists = excluded if isinstance(excluded, Ragged) else Ragged.of(excluded)
        # By row, so that those of a block are consecutive.
        order = np.argsort(lists.values, kind="stable")
        return cls(lists.values[order], np.repeat(np.arange(queries), lists.lengths)[order], removed)

    def take(self, queries: slice) -> "_Exclusions":
        inside = (self.queries >= queries.start) & (self.queries < queries.stop)
        return _Exclusions(self.rows[inside], self.queries[inside] - queries.start, self.removed)

    def on(self, block: Block) -> "_Exclusions":
        """Those of a block, whose documents count from 0."""
        ends = block.start, block.start + len(block)
        pairs = slice(*np.searchsorted(self.rows, ends))
        removed = self.removed[slice(*np.searchsorted(self.removed, ends))]
        return _Exclusions(self.rows[pairs] - block.start, self.queries[pairs], removed - block.start)

    def fill_pairs(self, table: Shaped[Tensor, "q b"], value: float, queries: Queries) -> None:
        """Put a value in the place of each excluded pair, on the device of the queries."""
        pairs = queries.on_device(self.queries), queries.on_device(self.rows)
        table.index_put_(pairs, table.new_full((), value))

    def fill(self, table: Shaped[Tensor, "q b"], value: float | bool, queries: Queries) -> None:
        """The same, and in the columns of removed documents."""
        self.fill_pairs(table, value, queries)
        table.index_fill_(1, queries.on_device(self.removed), value)


@dataclass
class _Nearest:
    """The best documents of some queries so far. New pairs are collected and merged in batches.

    A block passes in three steps: quick scores of all pairs, exact scores of those that may be among the best
    (`_possible`), and a sort of these with the best so far (`_sort_in`), once there are enough of them.

    Attributes:
        candidates: Query, row and exact score of the pairs that wait for the next sort.
        waiting: Their number.
    """

    queries: Queries
    k: int
    exclusions: _Exclusions
    candidates: list[tuple[PairRows, PairRows, PairScores]] = field(default_factory=list)
    waiting: int = 0

    def __post_init__(self) -> None:
        self.best = Hits.none(len(self.queries.vectors), self.k)

    def update(self, block: Block) -> None:
        """Collect the documents of a block that may be among the best."""
        scores, error = block.approximate(self.queries)
        barred = self.exclusions.on(block)
        barred.fill(scores, -np.inf, self.queries)
        possible = self._possible(scores, error)
        barred.fill(possible, False, self.queries)
        query, document = places(possible)
        if not len(query):
            return
        self.candidates.append((query, document + block.start, block.exact(self.queries, query, document)))
        self.waiting += len(query)
        if self.waiting >= max(WAITING_PAIRS, self.best.rows.size):
            self._sort_in()

    def _possible(
        self, scores: Float32[Tensor, "q b"], error: Float64[np.ndarray, " q"]
    ) -> Bool[Tensor, "q b"]:
        """Pairs that may be among the k best: all except those clearly below the k-th so far, or below the
        k-th of the block itself.
        """
        # Rounding the floor to float32 is far within the bound on the error; comparing in float64 would widen
        # every score.
        floor = (scale(self.best.scores[:, -1], self.queries.similarity) - error).astype(np.float32)
        possible = reach(scores, floor)
        (crowded,) = places(possible.sum(dim=1, dtype=torch.int32) > 2 * self.k)
        if len(crowded):
            rows = self.queries.on_device(crowded)
            crowd = scores.index_select(0, rows)
            # Two scores of this block may each be off by the error, in opposite directions.
            margin = self.queries.on_device((2 * error[crowded]).astype(np.float32)).unsqueeze(1)
            kth = torch.topk(crowd, self.k, dim=1).values.narrow(1, self.k - 1, 1) - margin
            floors = self.queries.on_device(floor[crowded]).unsqueeze(1)
            possible.index_copy_(0, rows, crowd >= torch.maximum(kth, floors))
        return possible

    def _sort_in(self) -> None:
        """Merge the waiting pairs with the best ones so far."""
        places_of_best = np.nonzero(self.best.rows >= 0)
        former = places_of_best[0], self.best.rows[places_of_best], self.best.scores[places_of_best]
        query, rows, scores = map(np.concatenate, zip(former, *self.candidates, strict=True))
        # By query, then score, then row: of equal scores the lower row comes first, whatever order blocks
        # came in.
        order = np.lexsort((rows, -scores, query))
        query, rows, scores = query[order], rows[order], scores[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        best = rank < self.k
        self.best.rows[query[best], rank[best]] = rows[best]
        self.best.scores[query[best], rank[best]] = scores[best]
        self.candidates, self.waiting = [], 0

    def hits(self) -> Hits:
        """The best of all blocks."""
        if self.waiting:
            self._sort_in()
        return self.best


def _count_block(
    queries: Queries,
    exclusions: _Exclusions,
    thresholds: Float[np.ndarray, "q p"],
    counts: Int64[np.ndarray, "2 q p"],
    block: Block,
) -> None:
    """Add to the counts of all documents and of removed ones: by the quick score if it decides clearly,
    otherwise by the exact one.

    A GPU is waited for four times a block, however many thresholds there are.
    """
    if not thresholds.size:
        return
    scores, error = block.approximate(queries)
    barred = exclusions.on(block)
    # NaN never counts as at least as high.
    barred.fill_pairs(scores, np.nan, queries)
    low, high = clear_bounds(thresholds, error[:, None], queries.similarity)
    removed = queries.on_device(barred.removed)
    undecided = torch.zeros_like(scores, dtype=torch.bool)
    asking = [np.flatnonzero(levels < np.inf) for levels in thresholds.T]
    sums = []
    for column, rows in enumerate(asking):
        index = queries.on_device(rows)
        of_rows = scores.index_select(0, index)
        surely = reach(of_rows, high[rows, column])
        unclear = surely ^ reach(of_rows, low[rows, column])
        undecided.index_copy_(0, index, undecided.index_select(0, index) | unclear)
        tables = surely, surely.index_select(1, removed)
        sums.append(torch.stack([table.sum(dim=1, dtype=torch.int32) for table in tables]))
    query, document = places(undecided)
    reached = np.zeros_like(counts)
    ends = np.cumsum([len(rows) for rows in asking])[:-1]
    parts = np.split(on_host(torch.cat(sums, dim=1)), ends, axis=1)
    for column, (rows, part) in enumerate(zip(asking, parts, strict=True)):
        reached[:, rows, column] = part
    if len(query):
        quick = on_host(scores.take(queries.on_device(query * len(block) + document)))
        exact = block.exact(queries, query, document)
        is_removed = np.isin(document, barred.removed)
        for column, levels in enumerate(thresholds.T):
            # Pairs from `high` on are counted already.
            close = (quick >= low[query, column]) & (quick < high[query, column])
            counted = close & (exact >= levels[query])
            reached[0, :, column] += np.bincount(query[counted], minlength=len(thresholds))
            reached[1, :, column] += np.bincount(query[counted & is_removed], minlength=len(thresholds))
    # At the end, so that a block whose memory did not suffice is counted once.
    counts += reached


def hits_of(
    store: Store,
    hits: Hits,
    query: int,
    positives: Int[np.ndarray, " p"],
    *,
    similarity: str,
    characters: int | None = None,
) -> list[Hit]:
    """The results of a query with ids and the beginnings of texts, best first; a text is "" if the store
    keeps none.
    """
    rows = hits.rows[query][hits.rows[query] >= 0]
    texts = [text[:characters] for text in store.texts(rows)] if store.has_texts else [""] * len(rows)
    relevant: Bool[np.ndarray, " k"] = np.isin(rows, positives)
    columns = zip(store.doc_ids(rows), texts, hits.scores[query], relevant, strict=False)
    return [Hit(doc_id, text, float(score), bool(good), similarity) for doc_id, text, score, good in columns]
