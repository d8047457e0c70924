"""Held-out budgets: predictions from smaller ones alone, widths worked by hand, and intervals that hold what
laws miss.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from adiabat.scaling_laws.fitting import Estimate
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.held_out import (
    ENOUGH,
    Prediction,
    Width,
    coverages,
    line_at,
    predictions,
    width_of,
    widths,
)
from adiabat.scaling_laws.laws import Kind, Option, Run, Way

BUDGETS = (1e13, 4e13, 1.6e14, 6.4e14)


def option(size: int, family: str = "f") -> Option:
    return Option(
        Way(family, f"m{size}", f"m{size}", None, "full", None, 0), PassedParameters(size, size, size)
    )


def runs_of(loss: object, budgets: tuple[float, ...] = BUDGETS, family: str = "f") -> list[Run]:
    options = [option(size, family) for size in (1_000_000, 2_000_000, 4_000_000)]
    return [
        Run(one, budget, tokens, loss(one.size, tokens))
        for one in options
        for budget in budgets
        if (tokens := budget / (6 * one.size))
    ]  # type: ignore[operator]


def known(size: float, tokens: float) -> float:
    return 0.1 + 20 / size**0.3 + 30 / tokens**0.3


def prediction(
    loss: float, *, budget: float = 1e13, family: str = "f", line: float | None = 1.0, reach: float = 4.0
) -> Prediction:
    run = Run(option(1_000_000, family), budget, 1e6, loss)
    return Prediction(Kind(family, "full"), run, reach, Estimate(1.0, 0.8, 1.25), line, reach)


def test_the_width_is_the_score_of_the_rank_of_split_conformal_prediction() -> None:
    # ceil(0.95 * 20) = 19 of 19, ceil(0.95 * 40) = 38 of 39.
    assert width_of([float(score) for score in range(1, 20)]) == Width(19.0, 0.95, 19)
    assert width_of([float(score) for score in range(1, 40)]) == Width(38.0, 0.95, 39)
    assert ENOUGH == 19
    few = width_of([0.3, 0.1, 0.2])
    assert few == Width(0.3, 0.75, 3)
    assert few.around(1.0, 2.0) == pytest.approx((math.exp(-0.3), 2 * math.exp(0.3)))
    assert width_of([]) is None


def test_widths_hold_new_scores_as_often_as_they_say() -> None:
    generator = np.random.default_rng(0)
    held = [
        generator.exponential() <= width.size
        for _ in range(4000)
        if (width := width_of(generator.exponential(size=19).tolist())) is not None
    ]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)


def test_scores_are_how_far_a_loss_lies_outside() -> None:
    assert prediction(1.0).law_score == 0
    assert prediction(0.4).law_score == pytest.approx(math.log(2))
    assert prediction(2.5).law_score == pytest.approx(math.log(2))
    assert prediction(2.0).law_error == prediction(2.0).line_error == pytest.approx(math.log(2))
    assert prediction(2.0, line=None).line_error is None


def test_a_family_uses_its_own_scores_where_they_are_enough_and_the_latest_budgets_first() -> None:
    own = [prediction(2.5, budget=4e13) for _ in range(19)]
    early = [prediction(25.0, budget=1e13) for _ in range(19)]
    others = [prediction(250.0, family="g", budget=4e13) for _ in range(3)]
    every = [*own, *early, *others]
    wide = widths(every, "f", 4.0, 4.0).law
    assert wide is not None
    assert (wide.size, wide.scores) == (pytest.approx(math.log(2)), 19)
    # Three scores of its own are too few, so that those of all families serve.
    pooled = widths(every, "g", 4.0, 4.0).law
    assert pooled is not None
    assert (pooled.size, pooled.scores) == (pytest.approx(math.log(200)), 22)
    # Twice as far in logarithms, twice as wide; nearer, no narrower.
    for reach, factor in ((16.0, 2), (2.0, 1), (0.5, 1)):
        further = widths(every, "f", reach, reach)
        assert further.law is not None
        assert further.law.size == pytest.approx(factor * math.log(2))
        assert further.line is not None
        assert further.line.size == pytest.approx(factor * math.log(2.5))
    assert widths([], "f", 4.0, 4.0).law is None


def test_lines_are_those_of_an_option_alone() -> None:
    runs = [Run(option(1), budget, 1.0, budget**-0.5) for budget in (4.0, 16.0)] + [
        Run(option(2), 4.0, 1.0, 9.0)
    ]
    assert line_at(option(1), 64.0, runs) == pytest.approx(1 / 8)
    assert line_at(option(2), 64.0, runs) is None


def test_a_budget_is_predicted_from_smaller_ones_alone() -> None:
    runs = runs_of(known)
    found = predictions(runs, resamples=5, seed=0)
    assert {one.run.budget for one in found} == set(BUDGETS[2:])
    assert all(one.reach == pytest.approx(4) for one in found)
    # A law that holds predicts what was held out.
    assert max(one.law_error for one in found if one.run.budget == BUDGETS[-1]) < 0.01
    spoilt = [replace(run, loss=5 * run.loss) if run.budget == BUDGETS[-1] else run for run in runs]
    again = predictions(spoilt, resamples=5, seed=0)
    assert [one.law for one in again] == [one.law for one in found]
    assert [one.line for one in again] == [one.line for one in found]
    assert predictions(runs_of(known, BUDGETS[:2]), resamples=5, seed=0) == []


def test_budgets_that_nearly_coincide_are_no_test_of_extrapolation() -> None:
    near = (1e13, 4e13, 1.6e14, 1.603e14)
    found = predictions(
        runs_of(lambda size, tokens: known(size, tokens) * (1 + 0.01 * math.sin(tokens)), near),
        resamples=5,
        seed=0,
    )
    # The largest two are held out together, from the budgets before both.
    assert {one.run.budget for one in found} == set(near[2:])
    assert {one.reach for one in found} == {4.0, 1.603e14 / 4e13}
    assert {one.line_reach for one in found} == {4.0, 1.603e14 / 4e13}
    (coverage,) = coverages(found)
    assert (coverage.runs, coverage.widened) == (6, None)
    wide = widths(found, "f", 16.0, 16.0)
    assert wide.law is not None
    assert wide.line is not None
    assert max(wide.law.size, wide.line.size) < 1
    # Nor does a line go through two of them.
    assert line_at(option(1), 64.0, [Run(option(1), budget, 1.0, budget) for budget in (4.0, 4.01)]) is None


def test_a_line_reaches_as_far_as_the_budgets_of_its_option() -> None:
    runs = [
        run
        for run in runs_of(known, (*BUDGETS, 2.56e15))
        if not (run.option.size == 1_000_000 and run.budget == 6.4e14)
    ]
    last = {
        one.run.option.size: (one.reach, one.line_reach)
        for one in predictions(runs, resamples=5, seed=0)
        if one.run.budget == 2.56e15
    }
    assert last == {1_000_000: (4.0, 16.0), 2_000_000: (4.0, 4.0), 4_000_000: (4.0, 4.0)}


def test_coverage_is_that_of_the_largest_budget_with_widths_of_smaller_ones() -> None:
    before = [prediction(1.25 * 2, budget=1e13) for _ in range(19)]
    tested = [prediction(loss, budget=4e13, line=loss) for loss in (1.0, 1.2, 2.4, 2.6)]
    (one,) = coverages([*before, *tested])
    assert (one.family, one.runs, one.nominal, one.widened, one.line, one.lines) == ("f", 4, 2, 3, 4, 4)
    assert one.law_error == pytest.approx(np.mean(np.log([1.0, 1.2, 2.4, 2.6])))
    assert one.line_error == 0
    # All are predicted alike, so that the first one is chosen.
    assert one.regret == 0
    assert coverages([*before, *tested[::-1]])[0].regret == pytest.approx(1.6)
    (alone,) = coverages(tested)
    assert (alone.nominal, alone.widened, alone.line) == (2, None, None)
    both = coverages([*before, *tested, prediction(1.0, budget=4e13, family="g")])
    assert [one.family for one in both] == [None, "f", "g"]
    assert coverages([]) == []
