"""Fits find the coefficients that runs were made from, and refuse runs that cannot tell them apart."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from adiabat.core.errors import DataError
from adiabat.scaling_laws.fitting import Ensemble, Fitted, estimate, fit, missing, refits
from adiabat.scaling_laws.law_search import MOST_VALUES, REFIT_DELTAS, Problems, descend
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Centre, Law, Points, columns_of
from tests.scaling_laws.simulated import BUDGETS, SIZES, by_one_share, by_share, by_size_and_tokens, grid

SHARES = (1.0, 0.75, 0.5, 0.25)
CASES = [
    (SIZE_AND_TOKENS, by_size_and_tokens, (1.0,)),
    (ONE_SHARE, by_one_share, (1.0,)),
    (SHARE, by_share, SHARES),
]


@pytest.mark.parametrize(("law", "truth", "shares"), CASES)
def test_runs_without_noise_give_their_own_coefficients(
    law: Law, truth: Any, shares: tuple[float, ...]
) -> None:
    found = fit(law, grid(truth, shares=shares)).coefficients
    if law is SIZE_AND_TOKENS:
        assert found == pytest.approx({"c": 0.2, "A": 126, "alpha": 0.3, "B": 707, "beta": 0.35}, rel=0.01)
    else:
        of_size = {"c": 0.15, "a_d": 2, "b_d": 80, "alpha": 0.3}
        wanted = {**of_size, "a_s": 300, "b_s": 2, "c_s": 700, "beta": 0.35}
        assert found == pytest.approx({name: wanted[name] for name in found}, rel=0.05)


@pytest.mark.parametrize(("law", "truth", "shares"), CASES)
def test_one_percent_of_noise_moves_predictions_at_four_times_the_budget_by_less_than_five(
    law: Law, truth: Any, shares: tuple[float, ...]
) -> None:
    beyond = grid(truth, budgets=4 * BUDGETS[-1:])
    for seed in range(3):
        found = fit(law, grid(truth, shares=shares, noise=0.01, seed=seed)).predict(beyond)
        assert np.abs(found / beyond.loss - 1).max() < 0.05


def problem(law: Law, points: Points) -> Any:
    centre = Centre.of(points)
    return Problems(law, *law.basis(points, centre), points.loss, np.ones((1, len(points))))


@pytest.mark.parametrize(("law", "truth", "shares"), CASES)
@pytest.mark.parametrize("delta", [1e-3, 0.1])
def test_gradients_are_those_of_the_objective(
    law: Law, truth: Any, shares: tuple[float, ...], delta: float
) -> None:
    one, first = problem(law, grid(truth, shares=shares, noise=0.2)), np.zeros(1, dtype=int)
    for start in one.starts():
        at = start + np.random.default_rng(1).normal(scale=0.05, size=len(start))
        slopes = approx_fprime(at, lambda x: one.objective(x[None], first, delta)[0][0], 1e-8)
        assert one.objective(at[None], first, delta)[1][0] == pytest.approx(
            slopes, rel=1e-3, abs=2e-3 / delta * 1e-3
        )


def test_the_objective_is_the_mean_huber_loss_of_logarithms() -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    total = 0.0
    for predicted, loss in zip(found.predict(points), points.loss, strict=True):
        residual = abs(np.log(predicted) - np.log(loss))
        total += residual**2 / 2 if residual <= 1e-3 else 1e-3 * (residual - 5e-4)
    assert found.objective == pytest.approx(total / len(points), rel=1e-9)


def test_predictions_below_zero_have_a_value_and_a_slope_that_leads_back() -> None:
    points = grid(by_share, shares=SHARES)
    one = problem(SHARE, points)
    below = one.starts()[0].copy()
    below[5:] = -5.0
    value, slope = (of[0] for of in one.objective(below[None], np.zeros(1, dtype=int), 1e-3))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    back = below - 1e-6 * slope / np.abs(slope).max()
    assert one.objective(back[None], np.zeros(1, dtype=int), 1e-3)[0][0] < value


def test_a_term_that_runs_do_not_have_falls_away() -> None:
    # Twenty times below the least loss, where the term of sizes would be largest.
    found = fit(SIZE_AND_TOKENS, grid(lambda size, tokens, share: 0.3 + 707 / tokens**0.35))
    base, powers = found.law.basis(grid(by_size_and_tokens), found.centre)
    by_size = columns_of(base, powers, found.exponents)[:, 1] * found.weights[1]
    assert by_size.max() < 0.005


@pytest.mark.parametrize(("law", "truth", "shares"), CASES)
def test_effects_are_how_much_losses_change_with_a_coefficient(
    law: Law, truth: Any, shares: tuple[float, ...]
) -> None:
    points = grid(truth, shares=shares)
    found = fit(law, points)
    for name, effect in found.effects(points).items():
        more = dict(zip((*law.exponents, *law.weights), (*found.exponents, *found.weights), strict=True))
        more[name] *= 1.0001
        exponents, weights = (np.array([more[n] for n in names]) for names in (law.exponents, law.weights))
        moved = replace(found, exponents=exponents, weights=weights)
        slopes = np.log(moved.predict(points) / found.predict(points)) / np.log(1.0001)
        assert effect == pytest.approx(np.sqrt(np.mean(slopes**2)), rel=1e-2, abs=1e-6)


def test_an_outlier_moves_the_fit_little() -> None:
    points = grid(by_size_and_tokens)
    spoilt = points.loss.copy()
    spoilt[20] *= 3
    found = fit(SIZE_AND_TOKENS, Points(points.size, points.tokens, points.share, spoilt)).predict(points)
    assert np.abs(found / points.loss - 1).max() < 0.005


def test_runs_that_do_not_decide_a_law_are_refused_with_all_that_they_lack() -> None:
    points = grid(by_share, shares=(1.0, 0.5))
    assert list(missing(SHARE, points)) == ["at least 3 shares of trained parameters at one size, got 2"]
    few = points.taken(np.flatnonzero(np.isin(points.size, SIZES[:2]) & (points.share == 1.0))[:5])
    lacks = "at least 9 runs, got 5 and at least 3 sizes, got 1 and at least 3 shares .*, got 1$"
    with pytest.raises(DataError, match=lacks):
        fit(SHARE, few)
    with pytest.raises(DataError, match="must have several budgets, got sizes and tokens that"):
        fit(SIZE_AND_TOKENS, grid(by_size_and_tokens, budgets=BUDGETS[:1]))
    # Whole steps scatter the tokens of a budget, which makes no second one of it.
    twice = grid(by_size_and_tokens, budgets=np.repeat(BUDGETS[:1], 2), noise=0.01)
    scattered = twice.tokens * np.random.default_rng(0).uniform(0.97, 1.03, len(twice))
    assert len(list(missing(SIZE_AND_TOKENS, Points(twice.size, scattered, twice.share, twice.loss)))) == 1
    assert list(missing(SIZE_AND_TOKENS, grid(by_size_and_tokens, budgets=BUDGETS[:2]))) == []


def objectives(fits: Sequence[Fitted]) -> list[float]:
    return [each.objective for each in fits]


def test_draws_follow_from_the_seed() -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    told: list[int] = []
    one, same = (objectives(refits(found, points, count=8, seed=3, note=told.append)) for _ in range(2))
    assert told == [8] * 2
    assert one == same
    assert len(set(one)) == 8
    assert objectives(refits(found, points, count=8, seed=4)) != one


@pytest.mark.parametrize(("law", "truth", "shares"), CASES)
def test_problems_searched_together_end_where_each_ends_alone(
    law: Law, truth: Any, shares: tuple[float, ...]
) -> None:
    points = grid(truth, shares=shares, noise=0.03)
    found = fit(law, points)
    rows = np.random.default_rng(5).integers(0, len(points), (12, len(points)))
    counts = np.stack([np.bincount(row, minlength=len(points)) for row in rows]).astype(float)
    problems = Problems(law, *law.basis(points, found.centre), points.loss, counts)
    start = problems.start_at(found.exponents, found.weights)
    together = problems.search_all(start)[1]
    alone = np.array([problems.search_one(number, [start], REFIT_DELTAS)[1] for number in range(12)])
    # A kink may stop either one short of the other.
    assert np.median(together / alone) == pytest.approx(1, abs=1e-6)
    assert (together / alone).max() < 1.01


def test_a_weight_that_vanished_returns_where_resampled_runs_have_its_term() -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    vanished = replace(found, weights=found.weights * np.array([1, 1, 1e-9]))
    plain, returned = (objectives(refits(one, points, count=6, seed=3)) for one in (found, vanished))
    assert returned == pytest.approx(plain, rel=1e-3)


def test_problems_that_need_more_steps_are_searched_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    plain = objectives(refits(found, points, count=6, seed=3))
    monkeypatch.setattr("adiabat.scaling_laws.law_search.MOST_VALUES", 2)
    told: list[int] = []
    slow = objectives(refits(found, points, count=6, seed=3, note=told.append))
    assert told == [*range(7)]
    assert slow == pytest.approx(plain, rel=1e-4)


def test_a_descent_finds_minima_with_kinks_and_stays_within_bounds() -> None:
    centres = np.array([[1.0, -2.0], [0.3, 4.0], [-5.0, 0.0]])
    weights = np.array([1.0, 100.0])

    def objective(at: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        apart = at - centres[rows]
        values = weights * np.abs(apart) + apart**2
        return values.sum(axis=1), weights * np.sign(apart) + 2 * apart

    low, high = np.full((3, 2), -3.0), np.full((3, 2), 3.0)
    found, values, ended = descend(objective, np.full((3, 2), 0.5), low, high)
    assert found == pytest.approx(np.clip(centres, -3, 3), abs=1e-5)
    assert values == pytest.approx([0, 101, 6], abs=1e-3)
    assert ended.all()
    assert MOST_VALUES > 100


def test_draws_of_too_few_sizes_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    every = grid(by_size_and_tokens, noise=0.01)
    # Of the third size there is one run, which a draw lacks in one case of three.
    alone = np.flatnonzero(every.size == SIZES[2])[0]
    points = every.taken(np.flatnonzero(np.isin(every.size, SIZES[:2]) | (np.arange(len(every)) == alone)))
    generator, drawn = np.random.default_rng(3), list[int]()

    class Noted:
        def integers(self, low: int, high: int, size: int) -> np.ndarray:
            found = generator.integers(low, high, size)
            drawn.append(len(np.unique(points.size[found])))
            return found

    found = fit(SIZE_AND_TOKENS, points)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Noted())
    assert len(refits(found, points, count=8, seed=0)) == 8
    assert drawn.count(3) == 8
    assert drawn.count(2) > 0


def test_a_draw_with_every_run_once_gives_the_fit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)

    class Every:
        def integers(self, low: int, high: int, size: int) -> np.ndarray:
            return np.arange(size)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Every())
    ensemble = Ensemble.of(found, points, resamples=1)
    (again,) = ensemble.again
    assert ensemble.draws(points) == pytest.approx(again.predict(points)[None], rel=1e-12)
    assert again.predict(points) == pytest.approx(found.predict(points), rel=2e-3)


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
    found = ensemble.estimates(beyond, ensemble.draws(beyond))
    assert all(one.low <= one.value <= one.high for one in found)
    # How often intervals hold the truth is counted over many seeds by scripts/recover_laws.py.
    assert all(
        0.98 * one.low <= loss <= 1.02 * one.high for one, loss in zip(found, beyond.loss, strict=True)
    )


def test_one_more_run_is_less_sure_than_the_law(ensemble: Ensemble) -> None:
    points = grid(by_size_and_tokens)
    draws = ensemble.draws(points)
    law, run = (ensemble.estimates(points, of) for of in (draws, ensemble.noisy(draws, 0)))
    assert [one.value for one in law] == [one.value for one in run]
    wider = [(b.high - b.low) / (a.high - a.low) for a, b in zip(law, run, strict=True)]
    assert np.median(wider) > 1.5
    # Residuals are as wide as the noise.
    assert ensemble.residuals.std() == pytest.approx(0.01, rel=0.3)
    assert ensemble.residuals.mean() == pytest.approx(0, abs=1e-12)


def test_a_good_grid_leaves_exponents_closed_and_a_poor_one_says_what_it_leaves_open(
    ensemble: Ensemble,
) -> None:
    coefficients = ensemble.coefficients()
    assert coefficients["alpha"].value == pytest.approx(0.3, rel=0.1)
    assert coefficients["beta"].low < coefficients["beta"].value < coefficients["beta"].high
    assert not any(line.startswith(("alpha", "beta")) for line in ensemble.left_open())
    # Where losses hardly depend on size, its exponent may be anything.
    flat = grid(lambda size, tokens, share: 0.3 + 700 / tokens**0.35, noise=0.01)
    poor = Ensemble.of(fit(SIZE_AND_TOKENS, flat), flat, resamples=40, seed=1)
    said = list(poor.left_open())
    assert [line.split()[0] for line in said] == ["A", "alpha"]
    assert said[0] == "A explains less of the loss than noise does (0.0% of it)"


def test_the_same_seed_gives_the_same_intervals() -> None:
    points: Points = grid(by_size_and_tokens, noise=0.01)
    found = fit(SIZE_AND_TOKENS, points)
    one, same = (Ensemble.of(found, points, resamples=5, seed=2) for _ in range(2))
    assert (one.noisy(one.draws(points), 3) == same.noisy(same.draws(points), 3)).all()
