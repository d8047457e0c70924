import numpy as np
import pytest

from adiabat.measure import grid_draws
from adiabat.measure.grid_draws import Compared, Side, resamples_for
from adiabat.measure.significance import resampling_counts


def test_the_normal_p_value_is_that_of_the_spread_of_the_draws():
    # Influences -1, 0, 0, 1: drawn 4 times out of 4 the sum has variance 2; a difference of 2 sqrt(2) is 2 standard deviations.
    influence = np.array([[-1.0], [0.0], [0.0], [1.0]])
    zero = np.zeros_like(influence)
    errors = np.array([[4]])
    one = Compared("c", "cosine", 1, Side(errors, influence), Side(0 * errors, zero))
    draws = np.concatenate([counts @ influence for counts in resampling_counts(4, resamples=20_000, seed=0)])
    assert draws.std() == pytest.approx(2**0.5, rel=0.02)
    # 4 / sqrt(2) standard deviations, two-sided.
    assert grid_draws._normal_p_values(one) == pytest.approx([0.0046777], rel=1e-4)


def test_as_many_resamples_as_the_cells_need_and_no_fewer_than_asked_for():
    assert [resamples_for(cells, wanted=10_000) for cells in (0, 225, 250, 251, 1296, 10_000)] == [
        10_000,
        10_000,
        10_000,
        10_040,
        51_840,
        100_000,
    ]
    assert resamples_for(10_000, wanted=200_000) == 200_000
