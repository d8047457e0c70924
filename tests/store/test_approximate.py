"""Approximate search: exact scores of what is found, what is left out, and a recall that is measured."""

import numpy as np
import pytest

from adiabat.store import approximate as module
from adiabat.store.approximate import DEPTH, ApproximateIndex
from adiabat.store.scoring import SIMILARITIES
from adiabat.store.search import search
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import random_vectors, store_of

faiss = pytest.importorskip("faiss")

DOCUMENTS, WIDTH = 3_000, 16


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    vectors = random_vectors(DOCUMENTS, width=WIDTH)
    # Ties: the same vector in many rows.
    vectors[100:110] = vectors[100]
    return store_of(tmp_path_factory.mktemp("store"), vectors)


@pytest.fixture(scope="module")
def queries() -> np.ndarray:
    return random_vectors(40, seed=5, width=WIDTH)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_all_groups_give_the_exact_search_with_its_scores_and_ties(
    store: Store, queries: np.ndarray, similarity: str
) -> None:
    index = ApproximateIndex.build(store, similarity)
    index.probed = index.index.nlist
    asked = np.concatenate([queries, store.gather(np.array([100]))])
    found = index.search(store, asked, DEPTH, similarity=similarity)
    wanted = search(store, asked, DEPTH, similarity=similarity)
    np.testing.assert_array_equal(found.rows, wanted.rows)
    np.testing.assert_array_equal(found.scores, wanted.scores)


def test_as_many_groups_are_looked_at_as_the_recall_takes(store: Store, queries: np.ndarray) -> None:
    index = ApproximateIndex.build(store, "cosine")
    wanted = search(store, queries, DEPTH)
    probed = []
    for least in (0.1, 0.8, 1.0):
        recall = index.tune([queries, queries[:20]], least)
        probed.append(index.probed)
        found = index.search(store, queries, DEPTH)
        brute = np.mean(
            [len({*own} & {*other}) / DEPTH for own, other in zip(found.rows, wanted.rows, strict=True)]
        )
        assert recall >= least
        # The least of both sets of queries.
        assert recall <= brute + 1e-9
    assert probed == sorted(probed)
    assert probed[0] < probed[-1] <= index.index.nlist
    # What is found has its exact score, whether all is found or not.
    index.probed = 1
    few = index.search(store, queries, DEPTH)
    exact = dict(zip(wanted.rows[0].tolist(), wanted.scores[0].tolist(), strict=True))
    for row, score in zip(few.rows[0].tolist(), few.scores[0].tolist(), strict=True):
        assert row == -1 or exact.get(row, score) == score


def test_documents_that_are_left_out_make_room_for_the_next(store: Store, queries: np.ndarray) -> None:
    index = ApproximateIndex.build(store, "cosine")
    index.probed = index.index.nlist
    first = search(store, queries, 60)
    excluded = [rows[:50] for rows in first.rows]
    removed = np.unique(first.rows[:, 50])
    for options in ({"excluded": excluded}, {"removed": removed}, {"excluded": excluded, "removed": removed}):
        found = index.search(store, queries, DEPTH, **options)
        wanted = search(store, queries, DEPTH, **options)
        np.testing.assert_array_equal(found.rows, wanted.rows)


def test_a_zero_query_finds_nothing_and_another_similarity_is_searched_exactly(
    store: Store, queries: np.ndarray
) -> None:
    index = ApproximateIndex.build(store, "cosine")
    assert (index.search(store, np.zeros((1, WIDTH), np.float32), DEPTH).rows == -1).all()
    found = index.search(store, queries, DEPTH, similarity="dot")
    np.testing.assert_array_equal(found.rows, search(store, queries, DEPTH, similarity="dot").rows)
    # More than the groups hold: what is missing is -1 with no score.
    most = index.search(store, queries, DOCUMENTS)
    assert (most.rows[:, -1] == -1).all()
    assert np.isneginf(most.scores[:, -1]).all()
    assert (np.diff(most.scores[np.isfinite(most.scores).all(axis=1)], axis=1) <= 0).all()


def test_building_tells_how_far_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 1_000)
    told: list[tuple[int, int]] = []
    ApproximateIndex.build(store, "cosine", on_progress=lambda done, total: told.append((done, total)))
    assert told == [(1_000, DOCUMENTS), (2_000, DOCUMENTS), (3_000, DOCUMENTS)]
