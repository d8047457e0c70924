"""The positive-negative discrepancy as samples: by hand, and against its definition."""

import numpy as np
import pytest

from adiabat.stats.ranking_measures import PairCounts, pnd_samples
from adiabat.stats.statistics import value_of
from tests.stats.brute_force import discrepancy_by_loops


def counts(errors: list[int], pairs: list[int]) -> PairCounts:
    return PairCounts(np.array(errors), np.array(pairs))


def test_both_forms_of_a_case_worked_by_hand() -> None:
    mean, pooled = pnd_samples(counts([1, 0, 6], [2, 0, 8]), similarity="cosine")
    assert value_of(mean).tolist() == [(1 / 2 + 6 / 8) / 2]
    assert value_of(pooled).tolist() == [7 / 10]
    assert [one.key for one in (mean, pooled)] == [("PND", "cosine"), ("PND pooled", "cosine")]
    assert (mean.lower_is_better, pooled.lower_is_better) == (True, True)
    assert (mean.proportion, pooled.proportion) == (False, True)


def test_they_are_the_discrepancy_of_any_counts() -> None:
    generator = np.random.default_rng(0)
    pairs = generator.integers(0, 9, 50)
    drawn = PairCounts(generator.integers(0, pairs + 1), pairs)
    values = [float(value_of(one)[0]) for one in pnd_samples(drawn, similarity="distance")]
    assert values == pytest.approx(discrepancy_by_loops(drawn.errors.tolist(), pairs.tolist()))


def test_more_errors_than_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 of 1 at query 0"):
        pnd_samples(counts([2], [1]), similarity="cosine")
