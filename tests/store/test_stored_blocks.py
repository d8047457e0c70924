"""Scoring on a device: the same hits, scores and ties as on a CPU, in the memory that is free, with few
waits.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from adiabat.core.errors import ConfigError
from adiabat.models.embedding_head import Similarity
from adiabat.store import scoring
from adiabat.store import search as search_module
from adiabat.store import stored_blocks as blocks_module
from adiabat.store.manifest import StoreDtype
from adiabat.store.scoring import SIMILARITIES
from adiabat.store.search import Hits, count_at_least, score_rows, search
from adiabat.store.stored_blocks import BlockPlan
from adiabat.store.vector_store import Store
from tests.refused import refused
from tests.store.on_a_device import score_as_on_a_device
from tests.store.worlds import all_scores, drawn_queries, duplicated, store_of


def both_ways(
    store: Store, queries: np.ndarray, options: dict[str, Any]
) -> Iterator[tuple[Hits, np.ndarray]]:
    """Hits and counts as on a CPU, then as on a device: in blocks, and again from what stays on the
    device.
    """
    thresholds = score_rows(
        store, queries, np.tile(np.arange(3), (len(queries), 1)), similarity=options["similarity"]
    )
    for on_device in (False, True, True):
        with pytest.MonkeyPatch.context() as patch:
            if on_device:
                score_as_on_a_device(patch)
            yield (
                search(store, queries, 10, **options),
                np.stack(count_at_least(store, queries, thresholds, **options)),
            )


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_device_finds_the_same_hits_scores_and_ties(
    tmp_path: Path, similarity: Similarity, dtype: StoreDtype
) -> None:
    """Copies, near copies, lengths from 1e-6 to 1e6, a query of zeros, and queries that are documents."""
    rng = np.random.default_rng(7)
    vectors = duplicated(rng, 300, 33)
    vectors[100:200] = vectors[100] + (rng.integers(0, 2, (100, 33)) * 1e-3).astype(np.float32)
    vectors[::50] *= 1e-3 if dtype == "float16" else 1e-6
    vectors[1::50] *= 1e3 if dtype == "float16" else 1e6
    store = store_of(vectors, tmp_path, dtype=dtype)
    queries = np.concatenate(
        [store.gather(np.arange(95, 115)), rng.standard_normal((6, 33)), np.zeros((1, 33))]
    ).astype(np.float32)
    excluded = [rng.choice(300, size=5, replace=False) for _ in queries]
    options = {
        "similarity": similarity,
        "block_rows": 64,
        "excluded": excluded,
        "removed": np.arange(3, 300, 7),
    }
    (hits, counts), *others = both_ways(store, queries, options)
    for other_hits, other_counts in others:
        assert np.array_equal(hits.rows, other_hits.rows)
        assert np.array_equal(hits.scores, other_hits.scores)
        assert np.array_equal(counts, other_counts)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_block_on_a_device_reaches_the_same_levels(
    monkeypatch: pytest.MonkeyPatch, similarity: Similarity
) -> None:
    """A block may hold zero vectors, which no store does."""
    vectors = duplicated(np.random.default_rng(5), 60, 24)
    vectors[::7] = 0
    block = scoring.Block(
        0, torch.from_numpy(vectors), torch.linalg.vector_norm(torch.from_numpy(vectors), dim=1)
    )
    queries = scoring.Queries(np.concatenate([vectors[:20], np.ones((1, 24), np.float32)]), similarity)
    levels = scoring.exact_pairs(queries.exact, scoring.FixedPoint.of(vectors[20:41]), similarity).numpy()
    levels[3] = np.nan
    plain = block.at_least(queries, levels)
    monkeypatch.setattr(scoring, "is_cpu", lambda device: False)
    assert np.array_equal(block.at_least(queries, levels), plain)
    assert plain.any()
    assert not plain[3].any()


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_store_that_ties_throughout_is_found_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, similarity: Similarity
) -> None:
    monkeypatch.setattr(scoring, "DEVICE_NUMBERS", 64)
    store = store_of(np.full((50, 4), 0.3, dtype=np.float32), tmp_path)
    queries = np.array([[1, 2, 3, 4], [-1, 0, 0, 2]], dtype=np.float32)
    (hits, counts), *others = both_ways(store, queries, {"similarity": similarity})
    assert hits.rows.tolist() == [list(range(10))] * 2
    assert counts[0].tolist() == [[50] * 3] * 2
    for other_hits, other_counts in others:
        assert np.array_equal(hits.scores, other_hits.scores)
        assert np.array_equal(counts, other_counts)


def test_vectors_stay_on_a_device_where_half_of_its_memory_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    store, query = store_of(vectors, tmp_path), vectors[:2]
    size = 4 * 40 * (8 + 1)
    score_as_on_a_device(monkeypatch, free=2 * size - 1)
    first = search(store, query, 5, block_rows=16)
    assert not store.kept
    score_as_on_a_device(monkeypatch, free=2 * size)
    with torch.inference_mode():
        search(store, query, 5, block_rows=16)
    assert [block.vectors.numpy().tolist() for block in store.kept.values()] == [vectors.tolist()]
    # The file is not read again, whatever the blocks, and is still watched.
    monkeypatch.setattr(Store, "read_into", lambda *_: pytest.fail("the vectors are on the device"))
    assert np.array_equal(search(store, query, 5, block_rows=7).rows, first.rows)
    watched: list[str] = []
    monkeypatch.setattr(Store, "require_unchanged", lambda self: watched.append("watched"))
    search(store, query, 5)
    assert watched == ["watched"]


def test_vectors_of_a_search_that_was_broken_off_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(np.eye(8, dtype=np.float32), tmp_path)
    score_as_on_a_device(monkeypatch)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(store, np.eye(8, dtype=np.float32), 1, block_rows=2, on_progress=stop)
    assert not store.kept


def let_memory_suffice_for(documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scoring._products

    def products(queries: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
        if len(block) > documents:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(queries, block)

    monkeypatch.setattr(scoring, "_products", products)


def test_blocks_are_halved_once_when_memory_does_not_suffice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    store = store_of(duplicated(rng, 90, 16), tmp_path)
    queries = drawn_queries(rng, store, 6)
    thresholds = all_scores(store, queries, "cosine")[:, :3].copy()
    hits, counts = search(store, queries, 4), count_at_least(store, queries, thresholds)[0]
    score_as_on_a_device(monkeypatch)
    let_memory_suffice_for(20, monkeypatch)
    with pytest.warns(UserWarning, match="cpu has too little memory for 40 documents at a time") as warned:
        halved = search(store, queries, 4, block_rows=40)
    assert len(warned) == 1
    assert np.array_equal(halved.rows, hits.rows)
    with pytest.warns(UserWarning, match="halved"):
        assert np.array_equal(count_at_least(store, queries, thresholds, block_rows=40)[0], counts)


def test_too_little_memory_for_half_a_block_or_a_copy_of_one_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, queries = store_of(np.eye(8, dtype=np.float32), tmp_path), np.eye(8, dtype=np.float32)
    score_as_on_a_device(monkeypatch)
    let_memory_suffice_for(3, monkeypatch)
    with pytest.warns(UserWarning, match="halved"), refused(ConfigError, "run.device = cpu"):
        search(store, queries, 1, block_rows=8)
    let_memory_suffice_for(0, monkeypatch)
    with refused(ConfigError, "run.device"):
        search(store, queries, 1, block_rows=1)

    def on_host(values: torch.Tensor) -> np.ndarray:
        raise torch.OutOfMemoryError("CUDA out of memory")

    let_memory_suffice_for(100, monkeypatch)
    monkeypatch.setattr(blocks_module, "on_host", on_host)
    with refused(ConfigError, "run.device = cpu"):
        search(store, queries, 1)


@pytest.mark.parametrize("queries", [1, 14, 4096, 100_000])
@pytest.mark.parametrize("free", [1 << 20, 1 << 28, 1 << 37])
def test_a_search_is_divided_to_fit_into_the_memory_of_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: int, free: int
) -> None:
    store = store_of(np.eye(64, 384, dtype=np.float32), tmp_path)
    monkeypatch.setattr(Store, "count", 1_000_000)
    monkeypatch.setattr(blocks_module, "free_memory", lambda device: free)
    plan = BlockPlan.of(store, queries, torch.device("cuda"), None, threads=2)
    tile = plan.tiles[0].stop
    assert sum(part.stop - part.start for part in plan.tiles) == queries
    assert tile * plan.block_rows * 32 <= free / 4
    assert plan.block_rows * 384 * 4 <= free / 16
    # Vectors that stay on the device are scored at once, as far as scores fit.
    store.kept["cuda"] = "all vectors"
    kept = BlockPlan.of(store, queries, torch.device("cuda"), None, threads=2)
    assert kept.block_rows >= plan.block_rows
    assert tile * kept.block_rows * 32 <= free / 4
    assert free < 1 << 37 or queries > 14 or kept.block_rows == 1_000_000
    # With enough memory, one tile of many queries, and large blocks for few of them.
    if free == 1 << 37:
        assert tile == min(queries, 4096)
        assert plan.block_rows >= 32_768
        assert queries > 14 or plan.block_rows > 100_000


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_gpu_is_waited_for_a_few_times_a_block(
    monkeypatch: pytest.MonkeyPatch, similarity: Similarity
) -> None:
    """The tensors of a GPU without a GPU: a product of two devices fails here, and so does a wait outside the
    two counted functions.
    """
    waits: list[tuple[int, ...]] = []

    def on_host(values: torch.Tensor) -> np.ndarray:
        assert values.device.type == "cuda"
        waits.append(tuple(values.shape))
        return np.ones(values.shape, dtype=str(values.dtype).removeprefix("torch."))

    def places(mask: torch.Tensor) -> tuple[np.ndarray, ...]:
        assert mask.device.type == "cuda"
        waits.append(tuple(mask.shape))
        return tuple(np.zeros(3, dtype=np.int64) for _ in mask.shape)

    def on_device(self: scoring.Queries, values: np.ndarray) -> torch.Tensor:
        # Without support for CUDA, `Tensor.to` fails even where no memory is taken.
        return torch.empty(values.shape, dtype=getattr(torch, str(values.dtype)), device=self.device)

    monkeypatch.setattr(scoring.Queries, "on_device", on_device)
    for module in (scoring, search_module):
        monkeypatch.setattr(module, "on_host", on_host)
        monkeypatch.setattr(module, "places", places)
    device, vectors = torch.device("cuda"), np.ones((5, 16), dtype=np.float32)
    exclusions = search_module._Exclusions.of([np.array([number]) for number in range(5)], 5, np.array([2]))
    with torch.inference_mode(), FakeTensorMode():
        block = scoring.Block(0, torch.empty(100, 16, device=device), torch.empty(100, device=device))
        queries = scoring.Queries(vectors, similarity, device)
        search_module._Nearest(queries, 3, exclusions).update(block)
        # Whose list of the best is crowded, which pairs are possible, their sums; and how long the longest
        # vector is.
        assert len(waits) == 3 + (similarity != "cosine")
        waits.clear()
        counts = np.zeros((2, 5, 2), dtype=np.int64)
        thresholds = np.array([[0.5, 0.25]] * 4 + [[0.5, np.inf]], dtype=np.float32)
        search_module._count_block(queries, exclusions, thresholds, counts, block)
        # Which pairs are undecided, the counts of others, quick scores and sums of the undecided.
        assert len(waits) == 4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_gpu_finds_what_a_cpu_finds(tmp_path: Path, similarity: Similarity, dtype: StoreDtype) -> None:
    rng = np.random.default_rng(0)
    store = store_of(duplicated(rng, 20_000, 384), tmp_path, dtype=dtype)
    queries = drawn_queries(rng, store, 200)
    thresholds = score_rows(store, queries, rng.integers(store.count, size=(200, 3)), similarity=similarity)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        results = [
            (search(store, queries, 20, **options), count_at_least(store, queries, thresholds, **options)[0])
            for options in (
                {"similarity": similarity, "device": torch.device(name)} for name in ("cpu", "cuda", "cuda")
            )
        ]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    for hits, counts in results[1:]:
        assert np.array_equal(hits.rows, results[0][0].rows)
        assert np.array_equal(hits.scores, results[0][0].scores)
        assert np.array_equal(counts, results[0][1])


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("queries", [1, 70])
def test_vectors_in_memory_give_the_same_hits_and_counts_without_the_file(
    tmp_path: Path, similarity: Similarity, dtype: StoreDtype, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = duplicated(np.random.default_rng(7), 5_000, 16)
    store = store_of(vectors, tmp_path, dtype=dtype)
    asked = np.concatenate([vectors[:1], np.random.default_rng(8).normal(size=(queries - 1, 16))])
    thresholds = score_rows(store, asked, np.tile(np.arange(3), (queries, 1)), similarity=similarity)
    options: dict[str, Any] = {"similarity": similarity, "removed": np.array([3, 4_999])}
    before = search(store, asked, 10, **options), count_at_least(store, asked, thresholds, **options)
    assert blocks_module.keep_in_memory(store)
    # Blocks of many documents, since none is read.
    assert BlockPlan.of(store, 1, scoring.CPU, None, threads=2).block_rows > blocks_module.BLOCK_ROWS
    monkeypatch.setattr(Store, "read_into", None)
    after = search(store, asked, 10, **options), count_at_least(store, asked, thresholds, **options)
    np.testing.assert_array_equal(before[0].rows, after[0].rows)
    np.testing.assert_array_equal(before[0].scores, after[0].scores)
    np.testing.assert_array_equal(np.stack(before[1]), np.stack(after[1]))


def test_a_store_that_free_memory_does_not_hold_twice_stays_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(duplicated(np.random.default_rng(7), 300, 16), tmp_path)
    needed = 4 * store.count * (store.width + 1)
    for free, fits in ((2 * needed - 1, False), (2 * needed, True)):
        monkeypatch.setattr("adiabat.store.stored_blocks.free_memory", lambda device, free=free: free)
        assert blocks_module.keep_in_memory(store) is fits
        assert bool(store.kept) is fits
