"""The score of a query and a document: its value, and that it depends on nothing else."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from adiabat.core.errors import StoreError
from adiabat.models.embedding_head import Similarity
from adiabat.store.scoring import (
    SIMILARITIES,
    Block,
    FixedPoint,
    Queries,
    checked_queries,
    exact_pairs,
    exact_table,
    plain_arithmetic,
    row_scores,
)
from tests.refused import refused


def table(queries: np.ndarray, documents: np.ndarray, similarity: Similarity) -> np.ndarray:
    return exact_table(FixedPoint.of(queries), FixedPoint.of(documents), similarity)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def block(documents: np.ndarray) -> Block:
    vectors = torch.from_numpy(documents)
    return Block(0, vectors, torch.linalg.vector_norm(vectors, dim=1))


def test_scores_worked_by_hand() -> None:
    query, documents = (
        np.array([[3.0, 4.0]], dtype=np.float32),
        np.array([[3, 4], [6, 8], [4, -3], [0, 0]], dtype=np.float32),
    )
    assert table(query, documents, "cosine").tolist() == [[1, 1, 0, 0]]
    assert table(query, documents, "dot").tolist() == [[25, 50, 0, 0]]
    assert table(query, documents, "distance").tolist() == [[0, -5, -np.float32(np.sqrt(50)), -5]]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("width", [1, 2, 7, 384, 1024])
def test_scores_are_those_of_float64_to_float32_accuracy(similarity: Similarity, width: int) -> None:
    queries, documents = (
        draw(5, width),
        draw(40, width, seed=1) * np.logspace(-3, 3, 40, dtype=np.float32)[:, None],
    )
    one, other = queries.astype(np.float64), documents.astype(np.float64)
    lengths = np.linalg.norm(one, axis=1)[:, None], np.linalg.norm(other, axis=1)[None]
    if similarity == "distance":
        plain, unit = -np.linalg.norm(one[:, None] - other[None], axis=2), lengths[0] + lengths[1]
    else:
        unit = lengths[0] * lengths[1]
        plain = one @ other.T
        plain, unit = (plain / unit, 1.0) if similarity == "cosine" else (plain, unit)
    assert np.max(np.abs(table(queries, documents, similarity) - plain) / unit) < 1.2e-7


@pytest.mark.parametrize("width", [1, 3, 384, 513, 4096])
def test_sums_of_products_are_exact(width: int) -> None:
    """Against integers of unlimited size, for the worst case too: all components at the largest integer."""
    for vectors in (draw(2, width), np.full((2, width), 0.9999999, dtype=np.float32)):
        one = FixedPoint.of(vectors)
        integers = [[int(unit) for unit in row] for row in one.units]
        assert [[float(unit) for unit in row] for row in integers] == one.units.tolist()
        assert [sum(unit * unit for unit in row) for row in integers] == [
            Fraction(square) for square in one.squares.tolist()
        ]
        assert sum(a * b for a, b in zip(*integers, strict=True)) == Fraction(
            float(one.units[0] @ one.units[1])
        )


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_scores_do_not_depend_on_company_or_order(similarity: Similarity) -> None:
    queries, documents = draw(7, 384), draw(50, 384, seed=1)
    whole = table(queries, documents, similarity)
    alone = np.array(
        [
            [table(query[None], document[None], similarity)[0, 0] for document in documents]
            for query in queries
        ]
    )
    backwards = np.random.default_rng(2).permutation(384)
    shuffled = table(queries[:, backwards], documents[:, backwards], similarity)
    rows, columns = np.divmod(np.arange(350), 50)
    pairs = exact_pairs(FixedPoint.of(queries).take(rows), FixedPoint.of(documents).take(columns), similarity)
    assert np.array_equal(whole, alone)
    assert np.array_equal(whole, shuffled)
    assert np.array_equal(whole.ravel(), pairs)


@pytest.mark.parametrize("factor", np.float32([2.0**-20, 0.5, 1024.0]))
def test_cosine_ignores_length(factor: np.float32) -> None:
    queries, documents = draw(3, 16), draw(9, 16, seed=1)
    scaled = table(queries * factor, documents * factor, "cosine")
    assert np.array_equal(table(queries, documents, "cosine"), scaled)


def test_the_distance_of_a_vector_to_itself_is_zero_and_near_ones_are_told_apart() -> None:
    vector = draw(1, 384)
    near = vector.copy()
    near[0, 5] += np.float32(1e-4)
    assert table(vector, vector, "distance").tolist() == [[0.0]]
    step = float(near[0, 5]) - float(vector[0, 5])
    assert table(vector, near, "distance")[0, 0] == pytest.approx(-step, rel=1e-2)
    assert not np.signbit(table(vector, vector, "distance"))[0, 0]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("width", [1, 5, 384, 2048])
def test_the_quick_score_is_within_its_bound(similarity: Similarity, width: int) -> None:
    documents = np.concatenate(
        [
            draw(60, width, seed=1) * np.logspace(-3, 3, 60, dtype=np.float32)[:, None],
            np.zeros((1, width), np.float32),
        ]
    )
    queries = Queries(
        np.concatenate([draw(4, width), documents[30:34], np.zeros((1, width), np.float32)]), similarity
    )
    quick, error = block(documents).approximate(queries)
    exact = table(queries.vectors, documents, similarity).astype(np.float64)
    if similarity == "distance":
        exact = -(exact**2)
    # Half the bound, so that the safety factor that the code claims is there.
    assert (np.abs(quick.numpy() - exact) <= error[:, None] / 2).all()


@pytest.mark.parametrize("pairs", [3, 300, 5000])
def test_chosen_pairs_score_the_same_by_either_way(pairs: int) -> None:
    queries, documents, rng = Queries(draw(20, 32), "cosine"), draw(300, 32, seed=1), np.random.default_rng(2)
    query, place = rng.integers(20, size=pairs), rng.integers(300, size=pairs)
    assert np.array_equal(
        block(documents).exact(queries, query, place),
        table(queries.vectors, documents, "cosine")[query, place],
    )


def test_reduced_precision_elsewhere_changes_nothing() -> None:
    queries, documents = Queries(draw(20, 64), "cosine"), block(draw(300, 64, seed=1))
    plain, _ = documents.approximate(queries)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert np.array_equal(documents.approximate(queries)[0], plain)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert np.array_equal(documents.approximate(queries)[0], plain)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    with pytest.raises(RuntimeError), plain_arithmetic():
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("chosen", [{}, {"cuda": "tf32"}, {"cuda": "tf32", "mkldnn": "bf16"}])
def test_the_precision_of_products_is_restored_whichever_way_it_was_set(chosen: dict[str, str]) -> None:
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch knows one way to set the precision")
    backends = {name: getattr(torch.backends, name).matmul for name in ("cuda", "mkldnn")}

    def state() -> list[str]:
        return [backend.fp32_precision for backend in backends.values()]

    before = state()
    try:
        for name, precision in chosen.items():
            backends[name].fp32_precision = precision
        during = state()
        with plain_arithmetic():
            assert "tf32" not in state()
            assert "bf16" not in state()
            assert torch.get_float32_matmul_precision() == "highest"
        assert state() == during
    finally:
        torch.set_float32_matmul_precision("highest")
        for backend, precision in zip(backends.values(), before, strict=True):
            backend.fp32_precision = precision


@pytest.mark.parametrize("width", [1, 5, 384, 2048])
def test_integers_are_those_of_numpy(width: int) -> None:
    hard = [
        np.zeros(width),
        np.full(width, 1e15 / width),
        np.full(width, 1.3e-15),
        np.full(width, 0.99999994),
        np.full(width, 1e-45),
    ]
    # Halfway between two integers, where rounding must go to the even one.
    halves = (np.arange(width) % 64 + 0.5) * 2.0**-22
    halves[0] = 1.0
    vectors = np.concatenate(
        [np.array([*hard, halves], dtype=np.float32), draw(20, width) * np.logspace(-14, 14, 20)[:, None]]
    )
    fixed = FixedPoint.of(vectors.astype(np.float32))
    wide = vectors.astype(np.float32).astype(np.float64)
    exponents = np.frexp(np.abs(wide).max(axis=1))[1] - (53 - math.ceil(math.log2(width))) // 2
    units = np.rint(np.ldexp(wide, -exponents[:, None]))
    assert np.array_equal(fixed.units, units)
    assert np.array_equal(fixed.exponents, exponents)
    assert np.array_equal(fixed.squares, np.square(units).sum(axis=1))


def test_scores_of_rows_worked_by_hand() -> None:
    a, b = np.array([[3.0, 4.0], [0.0, 0.0], [1.0, 0.0]]), np.array([[6.0, 8.0], [1.0, 1.0], [0.0, -1.0]])
    assert row_scores(a, b, "cosine").tolist() == [1, 0, 0]
    assert row_scores(a, b, "dot").tolist() == [50, 0, 0]
    assert row_scores(a, b, "distance").tolist() == [-5, -math.sqrt(2), -math.sqrt(2)]


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_scores_of_rows_are_those_of_plain_loops_whatever_stands_beside_them(similarity: Similarity) -> None:
    a, sets = draw(20, 7).astype(np.float64), draw(3, 20, 7, seed=1).astype(np.float64)
    found = row_scores(a, sets, similarity)
    for place in np.ndindex(3, 20):
        one, other = a[place[1]].tolist(), sets[place].tolist()
        product = math.fsum(x * y for x, y in zip(one, other, strict=True))
        plain = {
            "dot": product,
            "cosine": product / (math.hypot(*one) * math.hypot(*other)),
            "distance": -math.dist(one, other),
        }
        assert found[place] == pytest.approx(plain[similarity], rel=1e-13, abs=1e-15)
        alone = row_scores(a[place[1]][None], sets[place][None], similarity)
        assert found[place] == alone[0]
    squares = np.vecdot(a, a) * np.vecdot(sets, sets)
    assert np.array_equal(row_scores(a, sets, similarity, squares=squares), found)
    assert np.array_equal(np.stack([row_scores(one, a, similarity) for one in sets]), found)


def test_a_vector_is_at_one_with_itself_to_the_last_bit() -> None:
    vectors = draw(200, 384).astype(np.float64)
    assert (row_scores(vectors, vectors, "cosine") == 1).all()
    assert (row_scores(vectors, vectors, "distance") == 0).all()


def test_unusable_queries_are_named() -> None:
    queries = draw(4, 8)
    with refused(StoreError, "queries must be rows of width 9", "got shape (4, 8)"):
        checked_queries(queries, 9, "cosine")
    queries[1, 3], queries[2] = np.nan, np.inf
    with refused(StoreError, "NaN or infinity in 2 queries: row 1; row 2"):
        checked_queries(queries, 8, "cosine")
    with refused(StoreError, "length 1e-15 to 1e+15, got another in row 0"):
        checked_queries(np.full((1, 8), 1e16, dtype=np.float32), 8, "cosine")
