"""Lines through the best of each budget, and parabolas over sizes."""

import math
from itertools import pairwise

import numpy as np
import pytest

from adiabat.experiments.plan_prior import BUDGETS, FULL, LORA, PYTHIA, SWITCH
from adiabat.scaling_laws.frontier import (
    Crossing,
    Line,
    Trend,
    crossing,
    frontier,
    least_of_each,
    line_through,
    noisy_losses,
    optimal_sizes,
    profiles,
)


def test_a_line_worked_by_hand() -> None:
    line = line_through(np.array([1.0, np.e, np.e**2]), np.array([np.e**3, np.e**2, np.e]))
    assert (line.slope, line.intercept) == pytest.approx((-1, 3))
    assert line.at(np.e**3) == pytest.approx(1)


def test_a_line_is_that_of_least_squares() -> None:
    x, y = np.array([2.0, 3.0, 7.0, 20.0]), np.array([5.0, 4.0, 4.5, 1.0])
    line = line_through(x, y)
    slope, intercept = np.polyfit(np.log(x), np.log(y), 1)
    assert (line.slope, line.intercept) == pytest.approx((slope, intercept))
    assert line_through(np.array([1.0, 2.0]), np.ones(2)) == Line(0.0, 0.0)


def test_lines_meet_where_they_are_equal() -> None:
    one, other = Line(-0.21, 8.39), Line(-0.22, 8.93)
    where = one.meets(other)
    assert one.at(where) == pytest.approx(other.at(where))
    # The printed lines of Ziarko et al. 2024 do not meet at its switch, 9.06e16, but at e^54.
    assert math.log(where) == pytest.approx(54)
    assert math.isinf(one.meets(Line(-0.21, 8.0)))
    # Lines that are all but beside each other meet beyond every number, on one side or the other.
    assert math.isinf(one.meets(Line(-0.21 - 1e-9, 8.5)))
    assert one.meets(Line(-0.21 + 1e-9, 8.5)) == 0


def test_the_best_of_each_budget_is_kept() -> None:
    budgets, best = least_of_each(np.array([4.0, 1.0, 4.0, 1.0]), np.array([0.5, 0.9, 0.4, 0.8]))
    assert budgets.tolist() == [1, 4]
    assert best.tolist() == [0.8, 0.4]


def test_a_frontier_holds_its_line_within_the_interval() -> None:
    generator = np.random.default_rng(0)
    budget = np.repeat([1e15, 4e15, 1.6e16, 6.4e16], 6)
    loss = (
        np.exp(-0.2 * np.log(budget) + 8)
        * (1 + np.tile([0, 0.1, 0.2, 0.3, 0.4, 0.5], 4))
        * np.exp(0.01 * generator.normal(size=24))
    )
    noisy = noisy_losses(loss, 0.01 * generator.normal(size=24), resamples=200)
    found = frontier(budget, loss, noisy)
    assert found is not None
    assert found.line.slope == pytest.approx(-0.2, abs=0.01)
    beyond = np.quantile([one.at(2.56e17) for one in found.again], [0.025, 0.975])
    assert beyond[0] < found.line.at(2.56e17) < beyond[1]
    assert found.budgets.tolist() == [1e15, 4e15, 1.6e16, 6.4e16]
    assert len(found.again) == 200
    # The best of a budget stays within its noise, however few runs of that budget there are.
    assert beyond[1] / beyond[0] < 1.1
    silent = frontier(budget, loss, noisy_losses(loss, None))
    assert silent is not None
    assert silent.again == []
    assert frontier(np.full(24, 1e15), loss, noisy) is None


CROSSED = np.array([1e15, 4e15, 1.6e16, 6.4e16])


def two_frontiers(noise: float, *, slope: float = -0.3) -> tuple[Trend, Trend]:
    """Of losses that are equal at 1e16 FLOP, with residuals of this size."""
    residuals = noise * np.array([-1.0, -0.4, 0.4, 1.0]) if noise else None
    lines = (Line(-0.2, 0.2 * math.log(1e16)), Line(slope, -slope * math.log(1e16)))
    trends = []
    for seed, line in enumerate(lines):
        loss = np.array([line.at(x) for x in CROSSED])
        trend = frontier(CROSSED, loss, noisy_losses(loss, residuals, resamples=400, seed=seed))
        assert trend is not None
        trends.append(trend)
    return trends[0], trends[1]


def test_a_frontier_overtakes_another_where_they_are_equal() -> None:
    found = crossing(*two_frontiers(0))
    assert found.budget == pytest.approx(1e16)
    assert (found.interval, found.agree) == (None, None)


def test_where_frontiers_cross_is_as_sure_as_the_noise_is_small() -> None:
    sure, unsure = crossing(*two_frontiers(0.01)), crossing(*two_frontiers(0.05))
    for one in (sure, unsure):
        assert one.interval is not None
        low, high = one.interval
        assert low is not None
        assert high is not None
        assert low < 1e16 < high
    assert sure.agree == unsure.agree == 1
    assert np.divide(*reversed(unsure.interval or ())) > 2 * np.divide(*reversed(sure.interval or ()))
    # Lines that noise turns around cross anywhere.
    beside = crossing(*two_frontiers(0.2, slope=-0.201))
    assert beside.agree == pytest.approx(0.5, abs=0.1)
    assert beside.interval is not None
    assert (beside.interval[0] or math.inf) < 1e12
    assert (beside.interval[1] or math.inf) > 1e20


def test_frontiers_beside_each_other_never_cross() -> None:
    one, other = (Trend(line, [line] * 3, CROSSED, CROSSED) for line in (Line(-0.2, 1.0), Line(-0.2, 2.0)))
    assert crossing(one, other) == Crossing(math.inf, (None, None), 0.0)


def parabola(size: np.ndarray, best: float) -> np.ndarray:
    found: np.ndarray = np.exp(0.1 + 0.05 * (np.log(size) - math.log(best)) ** 2)
    return found


SIZES = np.array([1e6, 4e6, 2e7, 9e7])


def test_a_profile_finds_the_size_at_which_it_is_least() -> None:
    (one,) = profiles(np.full(4, 1e15), SIZES, parabola(SIZES, 7e6))
    assert one.optimum == pytest.approx(7e6, rel=1e-6)
    assert one.sizes == tuple(SIZES)
    at = math.log(3e7)
    constant, linear, quadratic = one.coefficients
    assert constant + linear * at + quadratic * at**2 == pytest.approx(
        math.log(parabola(np.array([3e7]), 7e6)[0])
    )


STRAIGHT = 30 * SIZES**-0.3


@pytest.mark.parametrize(
    "losses",
    [
        parabola(SIZES, 1e3),
        parabola(SIZES, 1e10),
        1 / parabola(SIZES, 7e6),
        STRAIGHT * np.array([1, 1, 1, 1 + 1e-12]),
        STRAIGHT,
        np.ones(4),
    ],
    ids=["falls", "rises", "bulges", "all but straight", "straight", "equal"],
)
def test_a_profile_without_a_minimum_has_no_optimum(losses: np.ndarray) -> None:
    assert profiles(np.full(4, 1e15), SIZES, losses)[0].optimum is None


def test_two_sizes_make_no_profile_and_of_each_size_the_best_counts() -> None:
    budget = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    size = np.array([1e6, 2e6, 1e6, 2e6, 3e6, 3e6])
    (one,) = profiles(budget, size, np.array([0.5, 0.4, 0.5, 0.4, 0.45, 0.9]))
    assert one.budget == 2
    assert one.losses == (0.5, 0.4, 0.45)


def growing(*, least_at: float = 2.0) -> dict[str, np.ndarray]:
    """Runs at three budgets, whose best sizes are `least_at` million times the root of budgets of 1, 4 and
    16.
    """
    sizes = np.array([1e6, 2e6, 4e6, 8e6, 1.6e7])
    losses = [parabola(sizes, least_at * 1e6 * budget**0.5) for budget in (1.0, 4.0, 16.0)]
    return {
        "budget": np.repeat([1.0, 4.0, 16.0], 5),
        "size": np.tile(sizes, 3),
        "loss": np.concatenate(losses),
    }


def best_sizes(runs: dict[str, np.ndarray], residuals: np.ndarray | None = None) -> Trend | None:
    return optimal_sizes(**runs, noisy=noisy_losses(runs["loss"], residuals, resamples=200))


def test_best_sizes_lie_on_a_line() -> None:
    found = best_sizes(growing())
    assert found is not None
    assert found.line.at(64.0) == pytest.approx(1.6e7)
    assert found.budgets.tolist() == [1, 4, 16]
    assert found.values == pytest.approx([2e6, 4e6, 8e6])
    assert found.again == []


def test_a_budget_without_an_optimum_is_left_out_of_the_line() -> None:
    found = best_sizes(growing(least_at=5.0))
    assert found is not None
    assert found.budgets.tolist() == [1, 4]
    assert best_sizes(growing(least_at=10.0)) is None


def test_the_growth_of_the_best_size_is_within_the_interval_of_its_noise() -> None:
    noise = 0.002 * np.random.default_rng(0).normal(size=15)
    found = best_sizes(growing(), noise)
    assert found is not None
    low, high = np.quantile([one.slope for one in found.again], [0.025, 0.975])
    assert low < 0.5 < high < low + 0.5
    assert len(found.again) == 200
    # Where noise takes the optima away, nothing is said of the rest.
    loud = best_sizes(growing(), 200 * noise)
    assert loud is not None
    assert (loud.line, loud.again) == (found.line, [])


def test_sizes_are_those_that_the_suite_names_without_embeddings() -> None:
    # From the suite's own model cards; the two smallest have no card with this number.
    assert [one.parameters for one in PYTHIA][2:] == [
        18_915_328,
        85_056_000,
        302_311_424,
        805_736_448,
        1_208_602_624,
        2_517_652_480,
    ]


def test_budgets_are_four_times_one_another() -> None:
    for one, following in pairwise(BUDGETS):
        assert following / one == pytest.approx(4, rel=0.02)


def test_the_printed_lines_do_not_meet_at_the_printed_switch() -> None:
    assert math.log(FULL.meets(LORA)) == pytest.approx(54)
    assert FULL.at(SWITCH) / LORA.at(SWITCH) == pytest.approx(0.86, abs=0.01)
