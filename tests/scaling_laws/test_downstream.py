"""Rank correlation of losses and scores, by hand and against scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from adiabat.scaling_laws.selection import rank_correlation


def test_worked_by_hand() -> None:
    # Ranks 1 2 3 4 against 4 3 1 2: 1 - 6 (9 + 1 + 4 + 4) / (4 * 15).
    found = rank_correlation(np.array([0.1, 0.2, 0.3, 0.4]), np.array([9.0, 8.0, 1.0, 2.0]), resamples=50)
    assert found is not None
    assert found.value == pytest.approx(1 - 6 * 18 / 60)


def test_ties_and_noise_as_scipy_has_them() -> None:
    generator = np.random.default_rng(0)
    loss = np.round(generator.uniform(size=60), 1)
    score = np.round(1 - loss + 0.2 * generator.standard_normal(60), 1)
    found = rank_correlation(loss, score, resamples=300)
    assert found is not None
    assert found.value == pytest.approx(spearmanr(loss, score).statistic)
    assert found.low < found.value < found.high < 0
    # Too few that differ say nothing.
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0])) is None
    assert rank_correlation(np.arange(9.0), np.ones(9)) is None
