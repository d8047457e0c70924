"""Exact search and counting against plain loops, on stores full of duplicates."""

from pathlib import Path

import numpy as np
import pytest
import torch

from adiabat.core.errors import StoreError
from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import Similarity
from adiabat.store import search as search_module
from adiabat.store import stored_blocks as blocks_module
from adiabat.store.manifest import HEADER_BYTES, VECTOR_FILE
from adiabat.store.scoring import CPU, SIMILARITIES
from adiabat.store.search import count_at_least, score_rows, search
from adiabat.store.stored_blocks import BlockPlan
from tests.refused import refused
from tests.store.on_a_device import score_as_on_a_device
from tests.store.worlds import all_scores, drawn_queries, duplicated, store_of

ONES = np.ones((3, 2), dtype=np.float32)


def searched_plainly(
    scores: np.ndarray, k: int, excluded: list[np.ndarray]
) -> tuple[list[list[int]], list[list[float]]]:
    rows, values = [], []
    for line, barred in zip(scores.tolist(), excluded, strict=True):
        order = sorted(
            (row for row in range(len(line)) if row not in set(barred.tolist())),
            key=lambda row: (-line[row], row),
        )[:k]
        missing = min(k, len(line)) - len(order)
        rows.append(order + [-1] * missing)
        values.append([line[row] for row in order] + [-np.inf] * missing)
    return rows, values


@pytest.fixture(params=["CPU", "device"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Numpy's products and choice, or those of a device."""
    if request.param == "device":
        score_as_on_a_device(monkeypatch)
    return request.param


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("way")
def test_search_and_counts_equal_plain_loops(tmp_path: Path, seed: int, similarity: Similarity) -> None:
    rng = np.random.default_rng(seed)
    count, width = int(rng.integers(1, 200)), int(rng.choice([1, 2, 5, 64]))
    store = store_of(duplicated(rng, count, width), tmp_path, dtype="float16" if seed % 2 else "float32")
    queries = drawn_queries(rng, store, 5)
    scores = all_scores(store, queries, similarity)
    k, block_rows = int(rng.integers(1, count + 3)), int(rng.integers(1, count + 5))
    excluded = [rng.choice(count, size=rng.integers(0, count + 1), replace=False) for _ in queries]
    for barred in (None, excluded):
        hits = search(store, queries, k, similarity=similarity, block_rows=block_rows, excluded=barred)
        rows, values = searched_plainly(scores, k, barred or [np.empty(0, dtype=np.int64)] * 5)
        assert hits.rows.tolist() == rows
        assert hits.scores.tolist() == values
    thresholds = scores[:, rng.integers(count, size=4)].copy()
    thresholds[0, 1:] = np.inf
    thresholds[1, 0] = -np.inf
    for barred in (None, excluded, Ragged.of(excluded)):
        for removed in (None, np.flatnonzero(rng.random(count) < 0.3)):
            options = {
                "similarity": similarity,
                "block_rows": block_rows,
                "excluded": barred,
                "removed": removed,
            }
            counts, apart = count_at_least(store, queries, thresholds, **options)
            gone = np.isin(np.arange(count), [] if removed is None else removed)
            for query, rows in enumerate(excluded if barred else [[]] * 5):
                left = ~np.isin(np.arange(count), rows)
                reached = scores[query] >= thresholds[query][:, None]
                assert counts[query].tolist() == (reached & left & ~gone).sum(axis=1).tolist()
                assert apart[query].tolist() == (reached & left & gone).sum(axis=1).tolist()
            if removed is not None:
                without = [np.union1d(rows, removed) for rows in (barred or [[]] * 5)]
                hits = search(store, queries, k, **options)
                assert hits.rows.tolist() == searched_plainly(scores, k, without)[0]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.usefixtures("way")
def test_copies_in_different_blocks_tie_and_the_lower_row_comes_first(
    tmp_path: Path, similarity: Similarity
) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1000, 384)).astype(np.float32)
    copies = [3, 64, 129, 500, 999]
    vectors[copies] = vectors[3]
    store = store_of(vectors, tmp_path, dtype="float16")
    for block_rows in (1, 7, 64, 4096):
        hits = search(store, vectors[3:4], 5, similarity=similarity, block_rows=block_rows)
        if similarity != "dot":
            assert hits.rows.tolist() == [copies]
        counts = count_at_least(
            store, vectors[3:4], hits.scores[:, :1], similarity=similarity, block_rows=block_rows
        )
        assert counts[0].tolist() == [[5]]
    equal = score_rows(store, vectors[3:4], np.array([copies]), similarity=similarity)
    assert len(set(equal[0].tolist())) == 1


def test_results_depend_neither_on_blocks_nor_on_other_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    store = store_of(duplicated(rng, 700, 48), tmp_path)
    queries = drawn_queries(rng, store, 9)
    whole = search(store, queries, 20)
    monkeypatch.setattr(blocks_module, "TILE_SCORES", 64)
    for block_rows in (5, 33, 700, 10_000):
        other = search(store, queries, 20, block_rows=block_rows)
        assert np.array_equal(whole.rows, other.rows)
        assert np.array_equal(whole.scores, other.scores)
    for place in range(9):
        alone = search(store, queries[place : place + 1], 20)
        assert np.array_equal(whole.rows[place], alone.rows[0])
        assert np.array_equal(whole.scores[place], alone.scores[0])


@pytest.mark.parametrize("similarity", ["cosine", "dot", "distance"])
@pytest.mark.usefixtures("way")
def test_a_query_of_zeros_finds_nothing_and_leaves_the_others_alone(
    tmp_path: Path, similarity: Similarity
) -> None:
    store = store_of(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32), tmp_path)
    queries = np.array([[0, 0, 0], [1, 0, 0]], dtype=np.float32)
    hits = search(store, queries, 3, similarity=similarity)
    alone = search(store, queries[1:], 3, similarity=similarity)
    assert hits.rows.tolist() == [[-1] * 3, *alone.rows.tolist()]
    assert hits.scores.tolist() == [[-np.inf] * 3, *alone.scores.tolist()]


@pytest.mark.usefixtures("way")
def test_full_store_discordance_is_a_count_less_the_positives(tmp_path: Path) -> None:
    """PND over the whole store, worked by hand: the positive at 0.8 is beaten by 1.0 and tied by one copy;
    0.6 and 0 are farther.
    """
    vectors = np.array([[4, 3], [5, 0], [4, 3], [3, 4], [0, 5]], dtype=np.float32)
    store = store_of(vectors, tmp_path)
    query = np.array([[1.0, 0.0]], dtype=np.float32)
    thresholds = score_rows(store, query, np.array([[0]]))
    at_least, _ = count_at_least(store, query, thresholds)
    assert at_least.tolist() == [[3]]
    assert (at_least[0, 0] - 1) / (5 - 1) == 0.5


@pytest.mark.usefixtures("way")
def test_progress_ends_with_the_whole_store(tmp_path: Path) -> None:
    store = store_of(np.ones((10, 2), dtype=np.float32), tmp_path)
    seen: list[tuple[int, int]] = []
    told = {"block_rows": 4, "on_progress": lambda done, total: seen.append((done, total))}
    search(store, ONES[:1], 1, **told)
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    store = store_of(ONES, tmp_path)
    with refused(StoreError, "rows must lie in 0..2, got 3"):
        score_rows(store, ONES[:1], np.array([[3]]))
    with refused(StoreError, "queries must be rows of width 2"):
        search(store, np.ones((1, 3), dtype=np.float32), 1)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_that_share_out_the_queries_find_what_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, similarity: Similarity
) -> None:
    rng = np.random.default_rng(1)
    store = store_of(duplicated(rng, 150, 16), tmp_path)
    queries = drawn_queries(rng, store, 20)
    scores = all_scores(store, queries, similarity)
    thresholds = scores[:, :2].copy()
    thresholds[::3, 1] = np.inf
    monkeypatch.setattr(blocks_module, "SMALLEST_TILE", 4)
    monkeypatch.setattr(search_module.torch, "get_num_threads", lambda: threads)
    assert len(BlockPlan.of(store, len(queries), CPU, 40, threads=threads).tiles) == threads
    before = torch.get_float32_matmul_precision()
    hits = search(store, queries, 7, similarity=similarity, block_rows=40)
    counts, _ = count_at_least(store, queries, thresholds, similarity=similarity, block_rows=40)
    assert hits.rows.tolist() == searched_plainly(scores, 7, [np.empty(0, dtype=np.int64)] * 20)[0]
    assert np.array_equal(counts, (scores[:, None] >= thresholds[:, :, None]).sum(axis=2))
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.usefixtures("way")
def test_a_damaged_vector_ends_a_search_in_whatever_thread(tmp_path: Path) -> None:
    store = store_of(np.eye(8, dtype=np.float32), tmp_path)
    with (store.path / VECTOR_FILE).open("r+b") as file:
        file.seek(HEADER_BYTES + 5 * store.manifest.row_bytes)
        file.write(np.full(8, np.inf, dtype=np.float32).tobytes())
    queries = np.ones((200, 8), dtype=np.float32)
    for asked in (
        lambda: search(store, queries, 3),
        lambda: score_rows(store, queries[:1], np.array([[0, 5]])),
    ):
        with refused(StoreError, 'NaN or infinity for "5"', "rebuild the store"):
            asked()


@pytest.mark.usefixtures("way")
def test_no_queries_give_no_hits_and_rows_of_minus_one_score_minus_infinity(tmp_path: Path) -> None:
    store = store_of(ONES, tmp_path)
    no_queries, no_thresholds = np.empty((0, 2), dtype=np.float32), np.empty((0, 3), dtype=np.float32)
    assert search(store, no_queries, 2).rows.shape == (0, 2)
    assert count_at_least(store, no_queries, no_thresholds)[0].shape == (0, 3)
    assert score_rows(store, ONES[:1], np.array([[-1, 2]])).tolist() == [[-np.inf, 1.0]]
