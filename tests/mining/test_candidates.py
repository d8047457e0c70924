"""Sources of candidates: BM25, vectors, both; scores of documents that are not stored; and reasons to drop a
candidate.
"""

from pathlib import Path

import numpy as np
import pytest

from adiabat.data.records import Document
from adiabat.mining.candidates import (
    CONTAINMENT,
    PASSED,
    SHINGLE,
    DenseSource,
    FusedSource,
    LexicalSource,
    Pairs,
    Reason,
    Vectors,
    code_of,
    first_reasons,
    fused_ranks,
    normalised,
    overlaps,
    shingles,
    too_close,
)
from adiabat.store.bm25 import build_bm25
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder
from tests.mining.world import store_of

TEXTS = [f"document {number} says {'abcdefgh'[number % 8]} and {'stuv'[number % 4]}" for number in range(40)]
QUERIES = ["who says a and s", "document 7", "v"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """The corpus backwards."""
    documents = [Document(f"d{number}", text) for number, text in enumerate(TEXTS)][::-1]
    return store_of(documents, tmp_path / "s", dtype="float32")


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
        source = LexicalSource(lexical.index, search_by)
        found = source.find(QUERIES, 6, lambda: positives)
        for place, (query, texts) in enumerate(zip(QUERIES, positives, strict=True)):
            asked = [*texts, query] if search_by == "both" else texts
            rankings = [lexical.index.search([text], 6).rows[0] for text in asked]
            expected = fused_ranks(*rankings, depth=6).tolist()
            rows = found.hits.rows[place]
            assert rows[rows >= 0].tolist() == expected
            scores = lexical.index.scores(query, [TEXTS[row] for row in expected])
            assert found.hits.scores[place, rows >= 0].tolist() == scores.tolist()
            assert (found.hits.scores[place, rows < 0] == -np.inf).all()
        with pytest.raises(ValueError, match=f"searches by {search_by}, got none"):
            source.find(QUERIES, 6)
    # Of one positive alone there is nothing to fuse: the order is that of BM25.
    alone = LexicalSource(lexical.index, "positive").find(QUERIES[:1], 6, lambda: positives[:1])
    assert alone.hits.rows.tolist() == lexical.index.search(positives[0], 6).rows.tolist()


# --- Reasons to drop a candidate, by hand ---


def test_scaling_all_scores_changes_nothing_where_the_margin_is_relative() -> None:
    rng = np.random.default_rng(0)
    candidates, positives = (rng.standard_normal(count).astype(np.float32) for count in (100, 2))
    before = too_close(candidates, positives, 0.3, relative=True)
    assert np.array_equal(before, too_close(candidates * 8, positives * 8, 0.3, relative=True))
    assert 0 < before.sum() < 100


def test_the_first_reason_counts() -> None:
    masks: dict[Reason, np.ndarray] = {
        "judge": np.array([True, True, False]),
        "duplicate": np.array([True, False, False]),
    }
    assert first_reasons(3, masks).tolist() == [code_of("duplicate"), code_of("judge"), PASSED]
    assert first_reasons(2, {}).tolist() == [PASSED, PASSED]


def test_two_rankings_fused_by_hand() -> None:
    """Row 2 is second and first: 1/62 + 1/61; row 1 first and third: 1/61 + 1/63; rows 3 and 7 second and
    third of one: 1/62, 1/63.
    """
    one, other = np.array([1, 2, 7, -1]), np.array([2, 3, 1, -1])
    assert fused_ranks(one, other, depth=10).tolist() == [2, 1, 3, 7]
    assert fused_ranks(one, other, depth=2).tolist() == [2, 1]
    # First in two rankings more, row 7 comes before them: 1/63 + 2/61.
    assert fused_ranks(one, other, np.array([7]), np.array([7]), depth=2).tolist() == [7, 2]
    # Equal scores go by row.
    assert fused_ranks(np.array([9, 4]), np.array([4, 9]), depth=2).tolist() == [4, 9]


@pytest.mark.parametrize("seed", range(3))
def test_a_ranking_fused_with_itself_or_with_nothing_stays(seed: int) -> None:
    ranking = np.random.default_rng(seed).permutation(30)
    assert np.array_equal(fused_ranks(ranking, ranking, depth=30), ranking)
    assert np.array_equal(fused_ranks(ranking, np.full(5, -1), depth=30), ranking)


@pytest.mark.parametrize(
    ("candidates", "positives", "margin", "relative", "close"),
    [
        ([0.75, 0.5, 0.25], [0.5], 0.0, False, 2),  # A tie is too close.
        ([0.5, 0.375, 0.25, 0.125], [0.75, 0.5], 0.25, False, 3),  # Below the lowest positive.
        ([8.0, 7.5, 7.0], [10.0], 0.25, True, 2),
        ([-0.5, -0.625, -0.75], [-0.5], 0.25, True, 2),  # The bar lies below a negative score too.
    ],
)
def test_the_first_scores_are_within_the_margin_and_too_close(
    candidates: list[float], positives: list[float], margin: float, relative: bool, close: int
) -> None:
    scores = [np.array(values, dtype=np.float32) for values in (candidates, positives)]
    found = too_close(*scores, margin, relative=relative).tolist()
    assert found == [place < close for place in range(len(candidates))]


PASSAGE = (
    "The 1973 oil crisis began in October 1973 when members of the organisation "
    "proclaimed an oil embargo against several nations."
)


def runs(text: str) -> list[str]:
    return [text[start : start + SHINGLE] for start in range(max(1, len(text) - SHINGLE + 1))] if text else []


def plain_overlap(positive: str, candidate: str) -> float:
    one, other = runs(candidate), runs(positive)
    if not one or not other:
        return 0.0
    within = sum(run in other for run in one) / len(one)
    around = sum(run in one for run in other) / len(other)
    both = min(within, around)
    return max(within if len(one) >= CONTAINMENT else both, around if len(other) >= CONTAINMENT else both)


def overlap(positive: str, candidate: str) -> float:
    one, other = shingles([normalised(positive), normalised(candidate)])
    return float(overlaps(one, [other])[0])


def test_normalising_forgives_case_white_space_and_compatibility_forms() -> None:
    assert normalised("  The\tCAT\n\n sat ") == "the cat sat"
    assert normalised("ﬁne e\u0301") == normalised("FINE é")
    assert normalised("Straße") == normalised("STRASSE")
    assert normalised(" \n") == ""


def test_a_share_worked_by_hand() -> None:
    """abcdefgh has the runs abcde, bcdef, cdefg, defgh; abcdefxy has abcde, bcdef, cdefx, defxy: two of four,
    either way.
    """
    assert overlap("abcdefgh", "abcdefxy") == 0.5


@pytest.mark.parametrize("seed", range(6))
def test_shares_are_those_of_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = [normalised("".join(rng.choice(list("ab שק"), rng.integers(0, 90))).strip()) for _ in range(25)]
    found = shingles(texts)
    for positive, own in zip(texts, found, strict=True):
        plain = [plain_overlap(positive, candidate) for candidate in texts]
        assert overlaps(own, found).tolist() == pytest.approx(plain)


@pytest.mark.parametrize(
    "copy",
    [
        PASSAGE.upper(),
        PASSAGE.replace(",", "").replace(".", ""),
        f"It is said that {PASSAGE} This was long ago, and nobody remembers "
        "why any of it had to happen in that way.",
        PASSAGE[:70],
        PASSAGE.replace("several", "some"),
    ],
)
def test_copies_parts_and_wholes_are_near(copy: str) -> None:
    assert overlap(PASSAGE, copy) >= 0.8
    assert overlap(copy, PASSAGE) == pytest.approx(overlap(PASSAGE, copy))


def test_short_and_empty_texts_are_not_copies_of_every_text_that_holds_them() -> None:
    assert overlap("Paris", "Paris is the capital of France, and has been so for most of its history.") < 0.1
    assert overlap("Paris", "paris") == 1.0
    assert overlap("yes", "yes") == 1.0
    assert overlap("yes", "yes indeed") == 0.0
    assert shingles([]) == []
    assert [len(hashes) for hashes in shingles(["", "a", "abcde", "x" * 40])] == [0, 1, 1, 36]
    empty, full = shingles(["", PASSAGE])
    assert overlaps(full, []).shape == (0,)
    assert overlaps(empty, [full, empty]).tolist() == [0.0, 0.0]
