"""The choice of a law by what it predicts of runs that are held out, and correlations of ranks."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from adiabat.experiments.scaling_analysis import rows_in
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Kind, Points, Run, points_of
from adiabat.scaling_laws.selection import ChosenLaw, _distance, _held_out, choose_law, rank_correlation
from tests.scaling_laws.simulated import SIZES, by_share, by_size_and_tokens, grid

SWEPT = Path(__file__).parents[2] / "benchmarks" / "scaling" / "short-pairs"
SHARES = (1.0, 0.75, 0.5, 0.25)


def budgets_of(points: Points) -> np.ndarray:
    """Of a grid, in FLOP: rounded, to be the same of every size."""
    return np.array([float(f"{each:.6g}") for each in (2 + 4 * points.share) * points.size * points.tokens])


def chosen_for(points: Points, budgets: np.ndarray) -> ChosenLaw:
    """The law that runs suffice for."""
    choice = choose_law(points, budgets)
    assert choice is not None
    return choice


def test_the_distance_by_hand() -> None:
    loss = np.array([1.0, 0.5, 2.0])
    assert _distance(np.array([2.0, 0.5, 1.0]), loss) == pytest.approx((math.log(2) + 0 + math.log(2)) / 3)
    assert _distance(np.array([2.0, 0.0, 1.0]), loss) == math.inf
    assert _distance(np.array([2.0, -0.1, 1.0]), loss) == math.inf


def test_each_part_is_held_out_by_itself() -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    chosen = chosen_for(points, budgets_of(points))
    assert chosen.law in (SIZE_AND_TOKENS, ONE_SHARE)
    distances = []
    budgets = budgets_of(points)
    for part, out in (
        (chosen.without_model, points.size == SIZES[-1]),
        (chosen.without_budget, budgets == budgets.max()),
    ):
        assert part is not None
        assert 0 < out.sum() < len(points)
        assert part.fitted.law is chosen.law
        # The runs that are left predict those that are not, as a fit to them alone does.
        again = _held_out(chosen.law, points, out)
        assert again is not None
        distance = _distance(part.fitted.predict(points.taken(out)), points.loss[out])
        assert part.distance == again.distance == pytest.approx(distance)
        assert part.error == pytest.approx(math.exp(part.distance) - 1)
        assert part.error < 0.02
        distances.append(part.distance)
    assert chosen.distance == pytest.approx(sum(distances) / 2)


def test_budgets_within_one_percent_are_held_out_together() -> None:
    points = grid(by_size_and_tokens, noise=0.01)
    budgets = budgets_of(points)
    nearly = budgets * np.random.default_rng(0).uniform(0.9905, 1.0, len(budgets))
    exact, near = chosen_for(points, budgets), chosen_for(points, nearly)
    assert exact.without_budget is not None
    assert near.without_budget is not None
    assert (near.law, near.without_budget.distance) == (exact.law, exact.without_budget.distance)


def test_shares_are_found_where_they_decide() -> None:
    points = grid(by_share, shares=SHARES, noise=0.002)
    assert chosen_for(points, budgets_of(points)).law is SHARE


def test_too_few_runs_for_holding_out_leave_the_simplest() -> None:
    points = grid(by_size_and_tokens)
    three = points.taken(np.flatnonzero(np.isin(points.size, SIZES[:3])))
    # Without the largest, two sizes are left; without the largest budget there are enough.
    chosen = chosen_for(three, budgets_of(three))
    assert chosen.without_model is None
    assert chosen.without_budget is not None
    assert chosen.distance == chosen.without_budget.distance
    few = three.taken(np.isin(budgets_of(three), np.unique(budgets_of(three))[:3]))
    # Of three budgets two are left, which do not suffice for six runs of three sizes to be more than the
    # coefficients.
    chosen = chosen_for(few.taken(np.arange(7)), budgets_of(few)[:7])
    assert (chosen.law, chosen.distance) == (SIZE_AND_TOKENS, 0.0)
    assert chosen.without_model is chosen.without_budget is None
    two = few.taken(np.isin(few.size, SIZES[:2]))
    assert choose_law(two, budgets_of(two)) is None


def test_a_law_that_reaches_no_loss_at_the_largest_budget_is_not_chosen() -> None:
    """Of real runs: the law of one share is a little nearer to the largest model, and below 0 at the largest
    budget.
    """
    rows = [
        row
        for row in rows_in(SWEPT)
        if row.way.kind == Kind("MiniLM", "full") and row.budget < 3e13 and row.steps >= 10
    ]
    runs = [Run(row.option, row.budget, row.tokens, row.validation_loss or math.nan) for row in rows]
    points = points_of(runs)
    budgets = np.array([row.budget for row in rows])
    size, budget = (points.size == points.size.max(), budgets == budgets.max())
    nearer, farther = (_held_out(law, points, size) for law in (ONE_SHARE, SIZE_AND_TOKENS))
    assert nearer is not None
    assert farther is not None
    assert nearer.distance < farther.distance
    below = _held_out(ONE_SHARE, points, budget)
    assert below is not None
    assert below.distance == math.inf
    assert chosen_for(points, budgets).law is SIZE_AND_TOKENS


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
