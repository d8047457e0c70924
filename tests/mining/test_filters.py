"""Reasons to drop a candidate, worked by hand."""

import numpy as np
import pytest

from adiabat.mining.filters import PASSED, Reason, code_of, first_reasons, fused_ranks, too_close


def test_scaling_all_scores_changes_nothing_where_the_margin_is_relative() -> None:
    rng = np.random.default_rng(0)
    candidates, positives = rng.standard_normal(100).astype(np.float32), rng.standard_normal(2).astype(np.float32)
    before = too_close(candidates, positives, 0.3, relative=True)
    assert np.array_equal(before, too_close(candidates * 8, positives * 8, 0.3, relative=True))
    assert 0 < before.sum() < 100


def test_the_first_reason_counts() -> None:
    masks: dict[Reason, np.ndarray] = {"judge": np.array([True, True, False]), "duplicate": np.array([True, False, False])}
    assert first_reasons(3, masks).tolist() == [code_of("duplicate"), code_of("judge"), PASSED]
    assert first_reasons(2, {}).tolist() == [PASSED, PASSED]


def test_two_rankings_fused_by_hand() -> None:
    """Row 2 is second and first: 1/62 + 1/61; row 1 first and third: 1/61 + 1/63; rows 3 and 7 second and third of one: 1/62, 1/63."""
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
    ("candidates", "positives", "margin", "relative", "expected"),
    [
        ([0.75, 0.5, 0.25], [0.5], 0.0, False, [True, True, False]),  # A tie is too close.
        ([0.5, 0.375, 0.25, 0.125], [0.75, 0.5], 0.25, False, [True, True, True, False]),  # Below the lowest positive.
        ([8.0, 7.5, 7.0], [10.0], 0.25, True, [True, True, False]),
        ([-0.5, -0.625, -0.75], [-0.5], 0.25, True, [True, True, False]),  # The bar lies below a negative score too.
    ],
)
def test_scores_within_the_margin_are_too_close(
    candidates: list[float], positives: list[float], margin: float, relative: bool, expected: list[bool]
) -> None:
    scores = [np.array(values, dtype=np.float32) for values in (candidates, positives)]
    assert too_close(*scores, margin, relative=relative).tolist() == expected
