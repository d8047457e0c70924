"""Sources of candidates: BM25, vectors, both; and scores of documents that are not stored."""

from pathlib import Path

import numpy as np
import pytest

from adiabat.data.records import Document
from adiabat.mining.candidates import DenseSource, FusedSource, LexicalSource, Pairs, Vectors, fused_ranks
from adiabat.store.bm25 import build_bm25
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder

TEXTS = [f"document {number} says {'abcdefgh'[number % 8]} and {'stuv'[number % 4]}" for number in range(40)]
QUERIES = ["who says a and s", "document 7", "v"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The corpus backwards."""
    documents = [Document(f"d{number}", text) for number, text in enumerate(TEXTS)][::-1]
    return build_store(
        FakeEncoder(),
        lambda: iter(documents),
        tmp_path / "s",
        source="c",
        encoder_name="fake",
        dtype="float32",
    ).store


@pytest.fixture
def dense(store: Store) -> DenseSource:
    return DenseSource.of(Vectors(FakeEncoder(), store, np.arange(len(TEXTS))[::-1].copy()))


@pytest.fixture
def lexical(tmp_path: Path) -> LexicalSource:
    return LexicalSource(build_bm25(TEXTS, tmp_path))


def plain_cosines(queries: list[str], texts: list[str]) -> np.ndarray:
    encoder = FakeEncoder()
    cosines: np.ndarray = encoder.encode(queries, side="query") @ encoder.encode(texts, side="document").T
    return cosines


def test_dense_candidates_are_the_nearest_by_rows_of_the_corpus(dense: DenseSource) -> None:
    found = dense.find(QUERIES, 7)
    cosines = plain_cosines(QUERIES, TEXTS)
    assert found.hits.rows.tolist() == np.argsort(-cosines, axis=1)[:, :7].tolist()
    assert np.allclose(found.hits.scores, -np.sort(-cosines, axis=1)[:, :7], atol=1e-6)


def test_vectors_score_the_stored_and_encode_the_rest(store: Store) -> None:
    encoder = FakeEncoder()
    vectors = Vectors(encoder, store, np.arange(len(TEXTS))[::-1].copy())
    texts = [TEXTS[3], "outside", TEXTS[9], "outside", "also outside"]
    pairs = Pairs(np.array([0, 0, 1, 2, 2]), np.array([3, -1, 9, -1, -1]), texts)
    scores = vectors.score(vectors.encode_queries(QUERIES), pairs)
    assert np.allclose(scores, plain_cosines(QUERIES, texts)[pairs.query, np.arange(5)], atol=1e-6)
    assert encoder.calls == [3, 2]


def test_without_a_store_everything_is_encoded_once(dense: DenseSource) -> None:
    encoder = FakeEncoder()
    vectors = Vectors(encoder)
    pairs = Pairs(np.array([0, 1, 2]), np.array([3, 3, -1]), [TEXTS[3], TEXTS[3], "outside"])
    scores = vectors.score(vectors.encode_queries(QUERIES), pairs)
    assert encoder.calls == [3, 2]
    assert np.allclose(scores, dense.vectors.score(dense.vectors.encode_queries(QUERIES), pairs), atol=1e-6)


def test_candidates_and_positives_score_alike(dense: DenseSource, lexical: LexicalSource) -> None:
    for source in (dense, lexical):
        found = source.find(QUERIES, 5)
        query, column = np.nonzero(found.hits.rows >= 0)
        rows = found.hits.rows[query, column]
        scores = found.score(Pairs(query, rows, [TEXTS[row] for row in rows]))
        assert np.array_equal(scores, found.hits.scores[query, column])


def test_fused_candidates_are_those_of_both_with_cosines(dense: DenseSource, lexical: LexicalSource) -> None:
    fused = FusedSource(lexical, dense)
    found, one, other = fused.find(QUERIES, 6), lexical.find(QUERIES, 6), dense.find(QUERIES, 6)
    cosines = plain_cosines(QUERIES, TEXTS)
    for place in range(len(QUERIES)):
        plain: dict[int, float] = {}
        for ranking in (one.hits.rows[place], other.hits.rows[place]):
            for rank, row in enumerate(ranking.tolist()):
                if row >= 0:
                    plain[row] = plain.get(row, 0) + 1 / (61 + rank)
        expected = sorted(plain, key=lambda row: (-plain[row], row))[:6]
        assert found.hits.rows[place].tolist() == expected
        assert np.allclose(found.hits.scores[place], cosines[place, expected], atol=1e-6)


def test_candidates_by_the_positives_are_those_of_their_texts_with_the_scores_of_the_query(
    lexical: LexicalSource,
) -> None:
    positives = [["says b and t"], ["document 12", "says h and v"], ["unheard of"]]
    for search_by in ("positive", "both"):
        found = LexicalSource(lexical.index, search_by).find(QUERIES, 6, lambda: positives)
        for place, (query, texts) in enumerate(zip(QUERIES, positives, strict=True)):
            asked = [*texts, query] if search_by == "both" else texts
            expected = fused_ranks(
                *(lexical.index.search([text], 6).rows[0] for text in asked), depth=6
            ).tolist()
            rows = found.hits.rows[place]
            assert rows[rows >= 0].tolist() == expected
            scores = lexical.index.scores(query, [TEXTS[row] for row in expected])
            assert found.hits.scores[place, rows >= 0].tolist() == scores.tolist()
            assert (found.hits.scores[place, rows < 0] == -np.inf).all()
        with pytest.raises(
            ValueError, match=f"positives must be given where BM25 searches by {search_by}, got none"
        ):
            LexicalSource(lexical.index, search_by).find(QUERIES, 6)
    # Of one positive alone there is nothing to fuse: the order is that of BM25.
    alone = LexicalSource(lexical.index, "positive").find(QUERIES[:1], 6, lambda: positives[:1])
    assert alone.hits.rows.tolist() == lexical.index.search(positives[0], 6).rows.tolist()
