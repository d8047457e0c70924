"""The most that a query can lose, against every judgement of small rankings."""

from itertools import product

import numpy as np
import pytest

from adiabat.stats.possible_losses import TopLists, length_of_lists, possible_losses
from adiabat.stats.ranking_measures import ranking_measures

MEASURES = ("nDCG@3", "RR@3", "Success@3", "R@3", "P@3", "P@1", "RR")
DOCUMENTS = 6


def top(scores: np.ndarray, length: int) -> TopLists:
    """The best documents of a query, of equal scores the lower number first."""
    rows = np.lexsort((np.arange(scores.size), -scores))[:length]
    return TopLists(rows[None].astype(np.int64), scores[rows][None].astype(np.float32))


def bound(measure: str, before: np.ndarray, after: np.ndarray) -> float:
    length = length_of_lists(measure, depth=3)
    (loss,) = possible_losses(measure, top(before, length), top(after, length), depth=3)
    return float(loss)


def largest_loss(measure: str, before: np.ndarray, after: np.ndarray, *, depth: int | None = None) -> float:
    """Over all judgements: every document irrelevant or of grade 1 or 3."""
    kept = [top(scores, depth or scores.size).rows[0] for scores in (before, after)]
    runs = [
        {str(row): float(scores[row]) for row in rows}
        for rows, scores in zip(kept, (before, after), strict=True)
    ]
    judgements = [grades for grades in product((0, 1, 3), repeat=DOCUMENTS) if any(grades)]
    qrels = {
        str(number): {str(row): grade for row, grade in enumerate(grades) if grade}
        for number, grades in enumerate(judgements)
    }
    first, last = (ranking_measures(dict.fromkeys(qrels, run), qrels, [measure])[measure] for run in runs)
    return float((first - last).max())


@pytest.mark.parametrize("measure", MEASURES)
def test_without_ties_the_bound_is_the_largest_loss_of_any_judgement(measure: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(12):
        before, after = (random.permutation(DOCUMENTS).astype(float) for _ in range(2))
        # A measure without a cutoff is one of rankings of the depth.
        largest = largest_loss(measure, before, after, depth=3 if measure == "RR" else None)
        assert bound(measure, before, after) == pytest.approx(largest, abs=1e-9)


@pytest.mark.parametrize("measure", MEASURES[:-1])
def test_no_judgement_loses_more_where_documents_tie(measure: str) -> None:
    random = np.random.default_rng(1)
    attained = 0
    for _ in range(30):
        before, after = (random.integers(0, 3, DOCUMENTS).astype(float) for _ in range(2))
        most, largest = bound(measure, before, after), largest_loss(measure, before, after)
        assert largest <= most + 1e-9
        attained += largest == pytest.approx(most)
    assert attained


@pytest.mark.parametrize("measure", MEASURES)
def test_a_query_whose_ranking_stays_can_lose_nothing(measure: str) -> None:
    scores = np.array([6.0, 5.0, 5.0, 4.0, 2.0, 1.0])
    # Scores may change as long as ties keep their ranks.
    assert bound(measure, scores, scores / 2) == 0


def test_bounds_worked_by_hand() -> None:
    """Documents 0 1 2 3 become 1 0 4 5: two fall out of the first three, and one falls from rank 1 to 2."""
    before, after = np.array([6.0, 5, 4, 3, 2, 1]), np.array([5.0, 6, 2, 1, 4, 3])
    second, third = 1 / np.log2(3), 1 / 2
    assert bound("nDCG@3", before, after) == pytest.approx(max(third, (third + 1 - second) / (1 + second)))
    assert bound("RR@3", before, after) == pytest.approx(1 / 2)
    assert (bound("R@3", before, after), bound("P@3", before, after)) == (1, pytest.approx(1 / 3))
    assert (bound("P@1", before, after), bound("Success@1", before, before)) == (1, 0)


def test_several_relevant_documents_can_lose_more_than_one() -> None:
    """The first stays, and all others go: one document loses .63 at most, nine of ten 3.54 of 4.25."""
    rows = np.arange(12)
    lists = [
        TopLists(row[None], -rows[None, :11].astype(np.float32))
        for row in (rows[:11], np.r_[0, rows[1:11] + 20])
    ]
    (loss,) = possible_losses("nDCG@10", *lists, depth=10)
    gains = 1 / np.log2(np.arange(2.0, 12))
    assert loss == pytest.approx(gains[1:].sum() / gains[:9].sum())
    assert loss == pytest.approx(0.833, abs=1e-3)


def test_short_lists_and_queries_without_results_are_bounded() -> None:
    """A store of two documents, and a query that has no results afterwards."""
    rows, none = np.array([[1, 0, -1, -1]]), np.full((1, 4), -1)
    scores = np.array([[0.9, 0.5, -np.inf, -np.inf]], dtype=np.float32)
    found, nothing = TopLists(rows, scores), TopLists(none, np.full((1, 4), -np.inf, dtype=np.float32))
    assert possible_losses("nDCG@3", found, found, depth=3) == 0
    assert possible_losses("nDCG@3", found, nothing, depth=3) == 1
    assert possible_losses("nDCG@3", nothing, found, depth=3) == 0


def test_other_measures_have_no_bound() -> None:
    assert [length_of_lists(name, depth=100) for name in ("AP", "Judged@10", "RR", "nDCG@10")] == [
        0,
        0,
        101,
        11,
    ]
