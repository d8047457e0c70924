"""The linear map of query vectors: its loss and gradient, what it finds, its folds, and that no query is
mapped by its own answers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from adiabat.adiabatic import linear_map
from adiabat.adiabatic.linear_map import TEMPERATURE, apply_map, cross_validate, fit_maps, folds_of
from adiabat.adiabatic.linear_map import map_problem as problem_of
from adiabat.core.ragged import Ragged
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import store_of

WIDTH, DOCUMENTS, QUERIES = 6, 80, 60
NEAREST = np.full((QUERIES, 3), -1, dtype=np.int64)
MakeStore = Callable[[np.ndarray], Store]


@pytest.fixture(scope="module")
def make_store(tmp_path_factory: pytest.TempPathFactory) -> MakeStore:
    def make(vectors: np.ndarray) -> Store:
        return store_of(tmp_path_factory.mktemp("vectors"), vectors.astype(np.float32))

    return make


def map_problem(
    store: Store, queries: np.ndarray, positives: Ragged, nearest: np.ndarray = NEAREST, **options: Any
) -> linear_map.MapProblem:
    """Of the cosine where no similarity is named."""
    given = {"similarity": "cosine", "seed": 0, **options}
    return problem_of(store, queries, positives, nearest[: len(queries)], **given)


def drawn(seed: int = 0) -> tuple[np.ndarray, np.ndarray, Ragged]:
    """Documents, queries that are near two documents each before a fixed turn of the space, and those
    documents.
    """
    generator = np.random.default_rng(seed)
    documents = generator.normal(size=(DOCUMENTS, WIDTH)) * generator.uniform(0.5, 2, size=(DOCUMENTS, 1))
    positives = [[query, (query + 7) % DOCUMENTS][: 1 + query % 2] for query in range(QUERIES)]
    turn = np.linalg.qr(generator.normal(size=(WIDTH, WIDTH)) + 3 * np.eye(WIDTH))[0]
    queries = np.array([documents[rows].mean(axis=0) for rows in positives]) @ turn
    return documents.astype(np.float32), queries.astype(np.float32), Ragged.of(positives)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "distance"])
def test_the_loss_is_the_cross_entropy_of_the_similarity_and_its_gradient_that_of_differences(
    similarity: str, make_store: MakeStore
) -> None:
    documents, queries, positives = drawn()
    problem = map_problem(make_store(documents), queries, positives, similarity=similarity)
    change = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)) * 0.1
    vectors, rows = queries.astype(np.float64), documents.astype(np.float64)
    size = np.linalg.norm(vectors, axis=1).mean() * np.linalg.norm(rows, axis=1).mean()
    if similarity == "cosine":
        vectors, rows = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, rows))
        size = 1.0
    mapped = vectors + vectors @ change.T
    scores = mapped @ rows.T
    if similarity == "distance":
        scores = -np.square(mapped[:, None] - rows[None]).sum(axis=2) / 2
    scores /= TEMPERATURE * size
    expected = [logsumexp(scores[query]) - scores[query, positives[query]].mean() for query in range(QUERIES)]
    # A map cannot lower a query's own length, which all scores of a distance share: the differences are those
    # of the scores.
    assert problem.losses(torch.from_numpy(change).float()) == pytest.approx(expected, rel=1e-4, abs=1e-3)
    value, gradient = problem.objective(change.ravel(), 0.3)
    assert value == pytest.approx(np.mean(expected) + 0.15 * np.square(change).sum(), rel=1e-4)
    direction = np.random.default_rng(2).normal(size=change.size)
    ahead, behind = (problem.objective(change.ravel() + step * direction, 0.3)[0] for step in (2e-3, -2e-3))
    assert gradient @ direction == pytest.approx((ahead - behind) / 4e-3, rel=5e-3)


def test_a_turned_space_is_turned_back_on_queries_that_were_held_out(make_store: MakeStore) -> None:
    documents, queries, positives = drawn()
    problem = map_problem(make_store(documents), queries, positives)
    done, folds = list[tuple[int, int]](), np.arange(QUERIES) % 5
    found = cross_validate(problem, queries, folds, on_progress=lambda *numbers: done.append(numbers))
    unit = documents / np.linalg.norm(documents, axis=1, keepdims=True)

    def hits(vectors: np.ndarray) -> int:
        nearest = (vectors @ unit.T).argmax(axis=1).tolist()
        return sum(row in positives[query] for query, row in enumerate(nearest))

    assert hits(found.vectors) > hits(queries) + 10
    held_out = np.zeros(len(linear_map.PULLS))
    for fold in range(5):
        for number, change in enumerate(
            fit_maps(problem.take(np.flatnonzero(folds != fold)), linear_map.PULLS)
        ):
            inside = problem.take(np.flatnonzero(folds == fold))
            held_out[number] += inside.losses(torch.from_numpy(change)).sum()
    assert found.pull == linear_map.PULLS[int(held_out.argmin())]
    assert done == [(number, 20) for number in range(1, 21)]
    assert np.array_equal(cross_validate(problem, queries, folds).vectors, found.vectors)


def test_queries_that_are_right_already_stay_where_they_are(make_store: MakeStore) -> None:
    # Documents of one query each on the axes: every map that moves a query loses.
    documents = np.eye(10, dtype=np.float32)
    problem = map_problem(make_store(documents), documents, Ragged.of([row] for row in range(10)))
    found = cross_validate(problem, documents, np.arange(10) % 5)
    assert found.pull is None
    assert np.array_equal(found.vectors, documents)


def test_no_query_is_mapped_by_its_answers(make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_map, "PULLS", (0.3,))
    documents, queries, positives = drawn()
    folds = np.arange(QUERIES) % 5
    # Other answers for the first fold alone.
    lists = [
        positives[query].tolist() if folds[query] else [(query + 31) % DOCUMENTS] for query in range(QUERIES)
    ]
    store = make_store(documents)
    first, second = (
        cross_validate(map_problem(store, queries, given), queries, folds).vectors
        for given in (positives, Ragged.of(lists))
    )
    assert np.array_equal(first[folds == 0], second[folds == 0])
    assert not np.array_equal(first[folds == 1], second[folds == 1])


def test_a_strong_pull_holds_the_identity_and_a_weaker_one_lowers_the_loss(make_store: MakeStore) -> None:
    documents, queries, positives = drawn()
    problem = map_problem(make_store(documents), queries, positives, similarity="dot")
    strong, middle, weak = fit_maps(problem, [1e6, 1.0, 0.1])
    assert np.abs(strong).max() < 1e-3
    losses = [problem.losses(torch.from_numpy(change)).mean() for change in (strong, middle, weak)]
    assert losses == sorted(losses, reverse=True)
    assert np.allclose(apply_map(queries, strong), queries, atol=1e-2)


def test_a_sample_of_a_large_store_stands_for_all_of_it(make_store: MakeStore) -> None:
    generator = np.random.default_rng(0)
    documents = generator.normal(size=(2000, WIDTH)).astype(np.float32)
    queries, positives = documents[:QUERIES] + 0.1, Ragged.of([row] for row in range(QUERIES))
    store = make_store(documents)
    unit = documents / np.linalg.norm(documents, axis=1, keepdims=True)
    nearest = np.argsort(-(queries @ unit.T), axis=1)[:, :5]
    whole, part, least = (
        map_problem(store, queries, positives, nearest, **most) for most in ({}, {"most": 800}, {"most": 10})
    )
    assert (len(whole.documents), len(part.documents)) == (2000, 800)
    # Every document of the sample stands for as many as were not chosen for certain.
    assert float(part.offsets.exp().sum()) == pytest.approx(2000)
    identity = torch.zeros(WIDTH, WIDTH)
    assert part.losses(identity) == pytest.approx(whole.losses(identity), abs=0.15)
    # Positives are always in, however few documents may be.
    assert len(least.documents) == QUERIES + 1


@pytest.mark.parametrize(
    ("clusters", "folds", "sizes"),
    [
        (np.arange(10), 5, [2, 2, 2, 2, 2]),
        (np.array([0, 0, 0, 0, 1, 1, 2, 3, 4, 4]), 5, [1, 1, 2, 2, 4]),
        (np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4]), 5, None),
        (np.array([0, 0, 1, 1, 2, 2, 3, 3]), 5, None),
    ],
)
def test_folds_keep_clusters_whole_or_fail(clusters: np.ndarray, folds: int, sizes: list[int] | None) -> None:
    found = folds_of(clusters, folds, seed=0)
    assert (found is None) == (sizes is None)
    if found is not None:
        assert sorted(np.bincount(found).tolist()) == sizes
        assert all(len(set(found[clusters == cluster])) == 1 for cluster in clusters)


def test_zero_queries_stay_zero(make_store: MakeStore) -> None:
    documents, queries, positives = drawn()
    queries[3] = 0
    problem = map_problem(make_store(documents), queries, positives)
    found = cross_validate(problem, queries, np.arange(QUERIES) % 5)
    assert not found.vectors[3].any()
    assert np.isfinite(found.vectors).all()
