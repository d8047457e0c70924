"""The fusion of two rankings, against its formula in plain loops."""

from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest

from adiabat.core.ragged import Ragged
from adiabat.store import fusion
from adiabat.store.bm25 import BM25Index, build_bm25
from adiabat.store.fusion import FusedCandidates
from adiabat.store.search import score_rows, search
from adiabat.store.vector_store import Store
from tests.store.worlds import store_of

WORDS = ("ash", "birch", "cedar", "elm", "fir", "gum", "holly")


def world(folder: Path, seed: int, documents: int = 40) -> tuple[Store, BM25Index, list[str], np.ndarray]:
    """A store with an index of as many texts, of which some are equal, and queries."""
    generator = np.random.default_rng(seed)
    vectors = generator.standard_normal((documents, 6)).astype(np.float32)
    texts = [" ".join(generator.choice(WORDS, 4)) for _ in range(documents)]
    if documents > 3:
        vectors[3], texts[3] = vectors[0], texts[0]
    queries = [" ".join(generator.choice(WORDS, 2)) for _ in range(12)]
    asked = generator.standard_normal((12, 6)).astype(np.float32)
    # A query that no ranking knows, and one that each knows alone.
    queries[1], asked[2] = "zebra", 0
    return store_of(vectors, folder / "store"), build_bm25(texts, folder / "bm25"), queries, asked


def by_loops(
    store: Store, index: BM25Index, query: str, vector: np.ndarray, left_out: set[int], weight: float
) -> list[tuple[int, float]]:
    """Rows and fused scores of all candidates, best first."""
    found = search(store, vector[None], store.count).rows[0].tolist()
    nearest = [row for row in found if row >= 0 and row not in left_out][: fusion.FIRST]
    lexical = [row for row in index.search([query], store.count).rows[0].tolist() if row >= 0]
    rows = sorted({*nearest, *[row for row in lexical if row not in left_out][: fusion.FIRST]})
    fused = dict.fromkeys(rows, 0.0)
    similarities = score_rows(store, vector[None], np.array([rows], dtype=np.int64))[0].tolist()
    shared = index.score_rows([query], np.array([rows], dtype=np.int64))[0].tolist()
    for share, scores in ((weight, similarities), (1 - weight, shared)):
        if len(set(scores)) > 1:
            for row, score in zip(rows, scores, strict=True):
                fused[row] += share * (score - fmean(scores)) / pstdev(scores)
    return sorted(fused.items(), key=lambda item: (-round(item[1], 6), item[0]))


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.7, 1.0])
def test_candidates_and_scores_are_those_of_the_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weight: float
) -> None:
    monkeypatch.setattr(fusion, "FIRST", 7)
    store, index, queries, asked = world(tmp_path, seed=3)
    generator = np.random.default_rng(4)
    excluded = [generator.permutation(40)[: number % 3].tolist() for number in range(12)]
    removed = np.array([5, 17])
    found = FusedCandidates.of(store, index, asked, queries, excluded=Ragged.of(excluded), removed=removed)
    hits = found.hits(20, weight)
    for number, query in enumerate(queries):
        left_out = {*excluded[number], *removed.tolist()}
        expected = by_loops(store, index, query, asked[number], left_out, weight)
        rows = hits.rows[number][hits.rows[number] >= 0]
        assert rows.tolist() == [row for row, _ in expected]
        scores = hits.scores[number][: len(rows)]
        assert scores == pytest.approx([score for _, score in expected], abs=1e-5)
        assert np.isneginf(hits.scores[number][len(rows) :]).all()


def test_by_hand(tmp_path: Path) -> None:
    store = store_of(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=np.float32), tmp_path / "store")
    index = build_bm25(["ash", "birch", "ash birch"], tmp_path / "bm25")
    found = FusedCandidates.of(store, index, np.array([[1.0, 0.0]], dtype=np.float32), ["zebra"])
    # Cosines 1, 0 and -1 have the mean 0 and the standard deviation sqrt(2/3); no document has the word.
    assert found.rows.tolist() == [[0, 1, 2]]
    assert found.fused(0.7)[0] == pytest.approx([0.7 * 1.5**0.5, 0, -0.7 * 1.5**0.5])
    # On that scale, further documents have scores too.
    further = found.fused_like(np.array([[0.5, -np.inf]], dtype=np.float32), np.zeros((1, 2)), 0.7)
    assert further[0] == pytest.approx([0.35 * 1.5**0.5, 0])


def test_a_store_of_one_and_no_queries(tmp_path: Path) -> None:
    store, index, queries, asked = world(tmp_path, seed=5, documents=1)
    hits = FusedCandidates.of(store, index, asked, queries).hits(10, 0.7)
    # The zero vector finds nothing, and neither do words that the document lacks.
    assert set(hits.rows.ravel().tolist()) <= {0, -1}
    assert hits.rows[0].tolist() == [0]
    assert hits.scores[0].tolist() == [0.0]
    none = FusedCandidates.of(store, index, asked[:0], [])
    assert none.hits(10, 0.7).rows.shape[0] == 0
