"""Reasons to drop a candidate, worked by hand."""

import numpy as np
import pytest

from adiabat.mining.filters import KEPT, MEANING, REASONS, Reason, code_of, coded, first_ranks, fused_ranks, nearly_equal, too_near


def scores(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_a_tie_with_the_positive_is_too_near() -> None:
    assert too_near(scores(0.75, 0.5, 0.25), scores(0.5), 0.0).tolist() == [True, True, False]


def test_a_margin_reaches_below_the_lowest_positive() -> None:
    assert too_near(scores(0.5, 0.375, 0.25, 0.125), scores(0.75, 0.5), 0.25).tolist() == [True, True, True, False]


def test_a_relative_margin_is_a_share_of_the_positives_score() -> None:
    assert too_near(scores(8.0, 7.5, 7.0), scores(10.0), 0.25, relative=True).tolist() == [True, True, False]


def test_a_relative_margin_lowers_the_bar_below_a_negative_score_too() -> None:
    assert too_near(scores(-0.5, -0.625, -0.75), scores(-0.5), 0.25, relative=True).tolist() == [True, True, False]


def test_scaling_all_scores_changes_nothing_where_the_margin_is_relative() -> None:
    rng = np.random.default_rng(0)
    candidates, positives = rng.standard_normal(100).astype(np.float32), rng.standard_normal(2).astype(np.float32)
    before = too_near(candidates, positives, 0.3, relative=True)
    assert np.array_equal(before, too_near(candidates * 8, positives * 8, 0.3, relative=True))
    assert 0 < before.sum() < 100


def test_ranks_are_counted_among_the_candidates_that_are_left() -> None:
    others = np.array([False, True, True, False, True])
    assert first_ranks(others, 2).tolist() == [False, True, True, False, False]
    assert not first_ranks(others, 0).any()


def test_nearness_to_any_of_the_answers_is_enough() -> None:
    assert nearly_equal(np.array([[0.1, 0.8, 0.2], [0.9, 0.0, 0.2]]), 0.8).tolist() == [True, True, False]


def test_the_first_reason_counts() -> None:
    masks: dict[Reason, np.ndarray] = {"judge": np.array([True, True, False]), "duplicate": np.array([True, False, False])}
    assert coded(3, masks).tolist() == [code_of("duplicate"), code_of("judge"), KEPT]
    assert coded(2, {}).tolist() == [KEPT, KEPT]


def test_every_reason_is_explained_and_has_a_code_of_its_own() -> None:
    assert set(MEANING) == set(REASONS)
    assert len({KEPT, *map(code_of, REASONS)}) == len(REASONS) + 1


def test_two_rankings_fused_by_hand() -> None:
    """Row 2 is second and first: 1/62 + 1/61; row 1 first and third: 1/61 + 1/63; rows 3 and 7 second and third of one: 1/62, 1/63."""
    one, other = np.array([1, 2, 7, -1]), np.array([2, 3, 1, -1])
    assert fused_ranks(one, other, depth=10).tolist() == [2, 1, 3, 7]
    assert fused_ranks(one, other, depth=2).tolist() == [2, 1]
    # First in two rankings more, row 7 comes before them: 1/63 + 2/61.
    assert fused_ranks(one, other, np.array([7]), np.array([7]), depth=2).tolist() == [7, 2]


def test_of_equal_fused_scores_the_lower_row_comes_first() -> None:
    assert fused_ranks(np.array([9, 4]), np.array([4, 9]), depth=2).tolist() == [4, 9]
    assert fused_ranks(np.array([5, -1]), np.array([3, -1]), depth=2).tolist() == [3, 5]


@pytest.mark.parametrize("seed", range(3))
def test_a_ranking_fused_with_itself_or_with_nothing_stays(seed: int) -> None:
    ranking = np.random.default_rng(seed).permutation(30)
    assert np.array_equal(fused_ranks(ranking, ranking, depth=30), ranking)
    assert np.array_equal(fused_ranks(ranking, np.full(5, -1), depth=30), ranking)
