"""Student's t: quantiles, p-values and the interval of a bounded mean, against scipy and statsmodels, and by
simulation.
"""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from adiabat.stats.student_t import noncentrality, score_interval, student_p_value, student_quantile


@pytest.mark.parametrize("freedom", [1.0, 1.5, 2.0, 3.0, 30.0, math.inf])
def test_quantiles_of_t_are_scipys(freedom):
    for level in (0.025, 0.8, 0.975):
        assert student_quantile(level, freedom) == pytest.approx(stats.t.ppf(level, freedom), rel=1e-9)
    assert student_quantile(0.5, freedom) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("freedom", [1.5, 30.0])
def test_p_values_of_t_are_scipys(freedom):
    assert student_p_value(-0.3, 0.2, freedom) == pytest.approx(2 * stats.t.sf(1.5, freedom))


def test_p_values_where_nothing_varies():
    cases = ((0.1, 0.0, 5), (0.0, 0.0, 5), (0.1, 0.2, 0))
    assert [student_p_value(*case) for case in cases] == [0.0, 1.0, 1.0]


def test_the_noncentral_t_is_scipys():
    for critical, freedom in ((2.2, 8.0), (1.96, 5000.0)):
        shift = noncentrality(critical, freedom)
        assert stats.nct.sf(critical, freedom, shift) == pytest.approx(0.8, abs=2e-3)


@pytest.mark.parametrize(("right", "units"), [(45, 50), (97, 100), (3, 400)])
def test_a_share_of_many_units_has_the_interval_of_wilson(right, units):
    """With so many units that t is normal, and an error of exactly sqrt(p (1 - p) / n)."""
    share = right / units
    error = math.sqrt(share * (1 - share) / units)
    found = score_interval(share, error, math.inf, (0.0, 1.0))
    assert found == pytest.approx(proportion_confint(right, units, method="wilson"))
    low, high = score_interval(10 * share - 5, 10 * error, math.inf, (-5.0, 5.0))
    assert ((low + 5) / 10, (high + 5) / 10) == pytest.approx(found)


def test_a_mean_at_a_bound_has_the_interval_of_as_many_units_without_an_exception():
    """t_97.5 of 20 degrees is 2.086: 20 units without an error exclude shares above t^2 / (20 + t^2)."""
    end = 2.086**2 / (20 + 2.086**2)
    assert score_interval(0.0, 0.0, 20, (0.0, 1.0)) == pytest.approx((0.0, end), rel=1e-3)
    assert score_interval(1.0, 0.0, 20, (0.0, 1.0)) == pytest.approx((1 - end, 1.0), rel=1e-3)


def test_a_mean_that_does_not_vary_between_the_bounds_is_certain():
    assert score_interval(0.5, 0.0, 20, (0.0, 1.0)) == (0.5, 0.5)


def test_the_interval_stays_between_the_bounds_and_becomes_that_of_t_far_from_them():
    assert score_interval(1 + 1e-12, 0.2, 3, (0.0, 1.0))[1] == 1.0
    low, high = score_interval(0.4, 1e-4, 99, (0.0, 1.0))
    half = stats.t.ppf(0.975, 99) * 1e-4
    assert (low, high) == pytest.approx((0.4 - half, 0.4 + half), abs=1e-7)


def test_it_holds_a_high_share_of_few_units_where_equal_halves_do_not():
    random = np.random.default_rng(0)
    shares = random.binomial(50, 0.9, 2000) / 50
    errors = np.sqrt(shares * (1 - shares) / 49)
    missed = 0
    for share, error in zip(shares, errors, strict=True):
        low, high = score_interval(share, error, 49, (0.0, 1.0))
        missed += not low <= 0.9 <= high
    half = stats.t.ppf(0.975, 49) * errors
    assert missed / 2000 < 0.06
    assert np.mean(np.abs(shares - 0.9) > half) > 0.09
