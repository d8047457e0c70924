"""Intervals of what a law predicts: ends in order, wider far away and for one more run, and open where runs say nothing."""

import numpy as np
import pytest

from adiabat.scaling_laws.fitting import fit
from adiabat.scaling_laws.law_intervals import Ensemble, estimate
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS, Points
from tests.scaling_laws.simulated import BUDGETS, by_size_and_tokens, grid


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    points = grid(by_size_and_tokens, noise=0.01)
    return Ensemble.of(fit(SIZE_AND_TOKENS, points), points, resamples=40, seed=1)


def test_an_interval_leaves_as_many_draws_below_as_above() -> None:
    one = estimate(50.0, np.arange(101.0), confidence=0.9)
    assert (one.value, one.low, one.high) == pytest.approx((50, 5, 95))
    assert one.holds(5.1)
    assert not one.holds(4.9)


def test_predictions_lie_in_their_intervals_which_lie_about_the_truth(ensemble: Ensemble) -> None:
    beyond = grid(by_size_and_tokens, budgets=4 * BUDGETS[-1:])
    found = ensemble.predict(beyond)
    assert all(one.low <= one.value <= one.high for one in found)
    # How often intervals hold the truth is counted over many seeds by scripts/recover_laws.py.
    assert all(0.98 * one.low <= loss <= 1.02 * one.high for one, loss in zip(found, beyond.loss, strict=True))


def test_one_more_run_is_less_sure_than_the_law(ensemble: Ensemble) -> None:
    points = grid(by_size_and_tokens)
    law, run = (ensemble.predict(points, of_a_run=one) for one in (False, True))
    assert [one.value for one in law] == [one.value for one in run]
    wider = [(b.high - b.low) / (a.high - a.low) for a, b in zip(law, run, strict=True)]
    assert np.median(wider) > 1.5
    # Residuals are as wide as the noise.
    assert ensemble.residuals.std() == pytest.approx(0.01, rel=0.3)
    assert ensemble.residuals.mean() == pytest.approx(0, abs=1e-12)


def test_a_good_grid_leaves_exponents_closed_and_a_poor_one_says_what_it_leaves_open(ensemble: Ensemble) -> None:
    coefficients = ensemble.coefficients()
    assert coefficients["alpha"].value == pytest.approx(0.3, rel=0.1)
    assert coefficients["beta"].low < coefficients["beta"].value < coefficients["beta"].high
    assert not any(line.startswith(("alpha", "beta")) for line in ensemble.left_open())
    # Where losses hardly depend on size, its exponent may be anything.
    flat = grid(lambda size, tokens, share: 0.3 + 700 / tokens**0.35, noise=0.01)
    poor = Ensemble.of(fit(SIZE_AND_TOKENS, flat), flat, resamples=40, seed=1)
    said = list(poor.left_open())
    assert [line.split()[0] for line in said] == ["A", "alpha"]
    assert said[0] == "A decides less of the loss than noise does (0.0% of it)"


def test_the_same_seed_gives_the_same_intervals() -> None:
    points: Points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    one, same = (Ensemble.of(found, points, resamples=5, seed=2).predict(points, of_a_run=True, seed=3) for _ in range(2))
    assert one == same
