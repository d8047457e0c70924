"""The recipe finds the best option of laws that are known, and says how sure it is."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.scaling_laws.fitting import Ensemble
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.held_out import widths
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS, Kind, Method, Option, Points, Run, Way, points_of
from adiabat.scaling_laws.recommendation import (
    KindFit,
    _greedy_gains,
    fit_kinds,
    narrowing,
    points_at,
    recommend,
)
from adiabat.scaling_laws.selection import REACH
from tests.laws_once import equal_laws_are_fitted_once as equal_laws_are_fitted_once
from tests.scaling_laws.simulated import BUDGETS, SIZES

Truth = Callable[[float, float], float]


def better_when_small(size: float, tokens: float) -> float:
    """Full training: costs six operations a parameter and token, and learns fast from few."""
    return float(0.2 + 126 / size**0.3 + 707 / tokens**0.35)


def worse_when_small(size: float, tokens: float) -> float:
    return float(0.4 + 150 / size**0.3 + 1500 / tokens**0.35)


def option(size: float, method: Method = "full") -> Option:
    whole = int(size)
    updated = whole if method == "full" else whole // 20
    name = f"model of {whole:,}"
    way = Way("", name, name, None, method, 32 if method == "lora" else None, 0)
    passed = whole + (updated if method == "lora" else 0)
    return Option(way, PassedParameters(passed, passed, updated))


def swept(
    truths: dict[Method, Truth], *, noise: float = 0.01, seed: int = 0, budgets: np.ndarray = BUDGETS
) -> list[Run]:
    generator = np.random.default_rng(seed)
    found = []
    for method, truth in truths.items():
        for size in SIZES:
            for budget in budgets:
                one = option(size, method)
                tokens = budget / one.flops_per_token
                loss = truth(size, tokens) * math.exp(noise * generator.normal())
                found.append(Run(one, float(budget), tokens, loss))
    return found


BOTH: dict[Method, Truth] = {"full": better_when_small, "lora": worse_when_small}
OPTIONS = [option(size, method) for method in BOTH for size in SIZES]


@pytest.fixture(scope="module")
def fits() -> list[KindFit]:
    return fit_kinds(swept(BOTH), resamples=12)


def true_best(budget: float, data_tokens: float = math.inf) -> Option:
    def loss(one: Option) -> float:
        return BOTH[one.way.method](one.size, min(budget / one.flops_per_token, data_tokens))

    return min(OPTIONS, key=loss)


def test_operations_and_shares_of_options_by_hand() -> None:
    one = option(1000.0, "lora")
    assert (one.size, one.share, one.flops_per_token) == (1000, 50 / 1050, 2 * (1050 + 1050 + 50))


@pytest.mark.parametrize("budget", [1.5e15, 1e17, 6e18])
def test_the_best_option_of_known_laws_is_recommended(fits: list[KindFit], budget: float) -> None:
    found = recommend(fits, dict.fromkeys(OPTIONS, budget))
    best = true_best(budget)
    assert found.best.option.way.method == best.way.method
    truth = BOTH[best.way.method]
    chosen = truth(found.best.option.size, found.best.tokens)
    # A neighbouring size may be as good; the loss tells.
    assert chosen <= 1.02 * truth(best.size, budget / best.flops_per_token)
    assert found.best.flops == pytest.approx(budget)
    assert found.best.law.low <= found.best.law.value <= found.best.law.high
    assert found.best.run.high - found.best.run.low > found.best.law.high - found.best.law.low
    assert found.sure == 1.0
    assert found.runner_up is not None
    assert found.runner_up.option.way.method == "lora"
    values = [one.law.value for one in found.candidates]
    assert values == sorted(values)
    assert len(values) == len(OPTIONS)
    # Every law of drawn runs has one best option.
    assert sum(one.wins for one in found.candidates) == pytest.approx(1.0)
    kinds = sum(one.wins for one in found.candidates if one.option.way.kind == found.best.option.way.kind)
    assert kinds == pytest.approx(found.sure)


def test_few_tokens_make_the_largest_model_best_and_leave_budget(fits: list[KindFit]) -> None:
    found = recommend(fits, dict.fromkeys(OPTIONS, 1e18), data_tokens=2e7)
    assert found.best.tokens == 2e7
    assert found.best.flops < 1e18
    assert found.best.option.size == max(SIZES)
    assert true_best(1e18, 2e7).size == max(SIZES)


def test_methods_that_cannot_be_told_apart_leave_it_unsure() -> None:
    same: dict[Method, Truth] = {"full": better_when_small, "freezing": better_when_small}
    found = recommend(
        fit_kinds(swept(same, noise=0.03), resamples=20),
        dict.fromkeys([option(s, m) for m in same for s in SIZES], 1e17),
    )
    assert 0.02 < found.sure < 0.98


def falls_below_nothing(size: float, tokens: float) -> float:
    """A law of the source's form whose loss is none beyond some 4e12 tokens."""
    return float((5.8 - 0.2 * math.log(tokens)) * (1e8 / size) ** 0.05 + 300 / tokens**0.35)


def test_a_law_that_falls_below_nothing_where_it_is_asked_is_not_taken() -> None:
    runs = swept({"full": falls_below_nothing, "lora": worse_when_small}, noise=0.001)
    near, far = (dict.fromkeys(OPTIONS, budget) for budget in (float(BUDGETS[2]), 1e24))
    full, lora = fit_kinds(runs, asked=near, resamples=5)
    assert full.choice is not None
    assert full.choice.law is not SIZE_AND_TOKENS
    assert full.choice.passed_over == ()
    assert recommend([full, lora], near).best.option.way.method == "full"
    with pytest.raises(DataError, match=r"^laws must give losses above 0 at the budget, got -\S+; "):
        recommend([full, lora], far)
    fits = fit_kinds(runs, asked=far, resamples=5)
    assert fits[0].choice is not None
    assert fits[0].choice.law is SIZE_AND_TOKENS
    assert full.choice.law in fits[0].choice.passed_over
    found = recommend(fits, far)
    # No option is left out, so that none is best for want of another.
    assert {one.option for one in found.candidates} == set(OPTIONS)
    assert min(one.law.low for one in found.candidates) > 0


def test_a_law_that_is_about_to_fall_below_nothing_is_not_taken_either() -> None:
    runs = swept({"full": falls_below_nothing}, noise=0.001)
    alone = [one for one in OPTIONS if one.way.method == "full"]
    (trusted,) = fit_kinds(runs, asked=dict.fromkeys(alone, 1e17), resamples=5)
    assert trusted.law is not None

    def least(budget: float) -> float:
        assert trusted.law is not None
        return float(trusted.law.fitted.predict(points_at([(one, budget) for one in alone])).min())

    last = max(budget for budget in np.geomspace(1e17, 1e24, 200) if least(budget) > 0)
    assert least(REACH * last) <= 0
    (found,) = fit_kinds(runs, asked=dict.fromkeys(alone, last), resamples=5)
    assert found.choice is not None
    assert found.choice.law is SIZE_AND_TOKENS


def test_laws_of_drawn_runs_below_nothing_are_left_out_and_told(fits: list[KindFit]) -> None:
    full, lora = fits
    assert lora.law is not None
    first, *others = lora.law.again
    bad = replace(lora, law=replace(lora.law, again=[replace(first, weights=-first.weights), *others]))
    asked = dict.fromkeys(OPTIONS, 4 * BUDGETS[-1])
    found = recommend([full, bad], asked)
    assert found.unsound == {lora.kind: pytest.approx(1 / 12)}
    assert min(one.law.low for one in found.candidates) > 0
    assert sum(one.wins for one in found.candidates if one.option.way.method == "lora") == 0
    assert sum(one.wins for one in found.candidates) == pytest.approx(1.0)
    assert recommend(fits, asked).unsound == {}
    turned = [replace(one, weights=-one.weights) for one in lora.law.again]
    every = replace(lora, law=replace(lora.law, again=turned))
    with pytest.raises(DataError, match=r"^laws fitted to resampled runs must .* above 0 .* got none"):
        recommend([full, every], asked)


def test_methods_of_equal_losses_are_ahead_half_of_the_time(fits: list[KindFit]) -> None:
    full = fits[0]
    other = replace(full, kind=Kind("", "bias"))
    options = [option(size) for size in SIZES]
    both = [*options, *(replace(one, way=replace(one.way, method="bias")) for one in options)]
    assert recommend([full, other], dict.fromkeys(both, BUDGETS[-1])).sure == 0.5


def test_only_one_method_has_no_runner_up_and_no_method_nothing_to_choose(fits: list[KindFit]) -> None:
    found = recommend(fits, dict.fromkeys([one for one in OPTIONS if one.way.method == "full"], 1e17))
    assert (found.runner_up, found.sure) == (None, 1.0)
    with pytest.raises(ConfigError, match=r"^options must hold one of a method that has a law, got none"):
        recommend(fits, {})


def test_too_few_runs_for_a_law_are_told() -> None:
    runs = [run for run in swept({"full": better_when_small}) if run.option.size in SIZES[:2]]
    (one,) = fit_kinds(runs, resamples=5)
    assert one.law is None
    assert one.why_not == "at least 3 sizes, got 2"
    assert one.frontier is not None
    with pytest.raises(DataError, match=r"got none: full lacks at least 3 sizes, got 2"):
        recommend([one], dict.fromkeys(OPTIONS, 1e17))


def test_runs_without_a_loss_are_left_out_and_none_with_one_is_an_error() -> None:
    runs = swept({"full": better_when_small}, budgets=BUDGETS[:1])
    failed = [Run(runs[0].option, 1e15, 1e9, loss) for loss in (math.nan, math.inf, 0.0, -1.0)]
    assert fit_kinds([*failed, *runs])[0].runs == runs
    assert len(points_of(runs)) == len(SIZES)
    with pytest.raises(DataError, match=r"^runs must .* a loss above 0, got 4 runs without"):
        fit_kinds(failed)


@pytest.fixture(scope="module")
def kinds_of() -> list[KindFit]:
    """Two methods that noise all but hides the difference of."""
    return fit_kinds(swept(BOTH, noise=0.05), resamples=20)


def orthogonal(count: int, rows: int) -> np.ndarray:
    """Rows of variance 1 that have nothing to do with one another, to the last digit."""
    made = np.random.default_rng(0).standard_normal((count, rows + 1))
    made[:, 0] = 1
    basis, _ = np.linalg.qr(made)
    return basis[:, 1:].T * np.sqrt(count - 1)


def test_gains_worked_by_hand() -> None:
    one, other = orthogonal(1001, 2)
    # The difference is made of both; a run tells of the first, with as much noise as there is to be told.
    difference = 3 * one + 4 * other
    ((place, gain),) = _greedy_gains(np.stack([difference, one]), np.array([1.0]), np.array([1.0]), 1)
    # cov^2 / (var + noise) / whole = 9 / 2 / 25, less what draws show by chance.
    assert (place, gain) == (0, pytest.approx(9 / 2 / 25 - 1 / 1000))


def test_a_run_that_tells_the_same_again_comes_after_one_that_tells_something_else() -> None:
    one, other = orthogonal(1001, 2)
    runs = np.stack([3 * one + 2 * other, one, one, other])
    picked = _greedy_gains(runs, np.full(3, 0.01), np.ones(3), 3)
    assert [place for place, _ in picked[:2]] in ([0, 2], [1, 2])
    assert sum(gain for _, gain in picked) <= 1


def test_what_is_dear_must_tell_more() -> None:
    one, other = orthogonal(1001, 2)
    runs = np.stack([2 * one + other, one, other])
    for cost, first in ((10.0, 1), (2.0, 0)):
        assert _greedy_gains(runs, np.full(2, 0.01), np.array([cost, 1.0]), 1)[0][0] == first


POSSIBLE = [(option, float(budget)) for option in OPTIONS for budget in BUDGETS[:3]]


def test_nothing_is_proposed_where_runs_tell_nothing_or_nothing_is_open() -> None:
    assert _greedy_gains(orthogonal(1001, 2), np.array([0.01]), np.array([1.0]), 3) == []
    assert _greedy_gains(np.full((3, 10), 0.5), np.zeros(2), np.ones(2), 2) == []
    # A run whose loss is known exactly tells nothing either, and is no division by zero.
    draws = np.stack([np.linspace(0, 1, 10), np.full(10, 0.5), np.linspace(0, 1, 10)])
    assert [place for place, _ in _greedy_gains(draws, np.zeros(2), np.ones(2), 2)] == [1]


def test_only_kinds_in_question_are_asked(kinds_of: list[KindFit]) -> None:
    found = recommend(kinds_of, dict.fromkeys(OPTIONS, 1e17))
    proposed = narrowing(kinds_of, found, POSSIBLE)
    assert 1 <= len(proposed) <= 3
    assert all(0 < one.gain <= 1 for one in proposed)
    assert narrowing(kinds_of, found, []) == []
    of_first = [one for one in OPTIONS if one.way.kind == kinds_of[0].kind]
    alone = recommend(kinds_of[:1], dict.fromkeys(of_first, 1e17))
    assert narrowing(kinds_of[:1], alone, POSSIBLE) == []


def test_runs_of_a_third_kind_are_not_proposed(kinds_of: list[KindFit]) -> None:
    third = Kind("", "bias")
    others = [
        replace(option, way=replace(option.way, method="bias", rank=None))
        for option in OPTIONS
        if option.way.method == "full"
    ]
    more = [*kinds_of, replace(kinds_of[0], kind=third)]
    found = recommend(kinds_of, dict.fromkeys(OPTIONS, 1e17))
    plain = narrowing(kinds_of, found, POSSIBLE)
    assert plain
    # They cost next to nothing, and would tell all that runs of the first kind tell.
    assert narrowing(more, found, [*((option, 1e3) for option in others), *POSSIBLE]) == plain


def test_one_law_that_reaches_no_loss_decides_nothing(
    kinds_of: list[KindFit], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recommend(kinds_of, dict.fromkeys(OPTIONS, 1e17))
    plain, draws = narrowing(kinds_of, found, POSSIBLE), Ensemble.draws

    def spoilt(self: Ensemble, points: Points) -> np.ndarray:
        rows = draws(self, points)
        rows[3] *= -1
        return rows

    monkeypatch.setattr(Ensemble, "draws", spoilt)
    without = narrowing(kinds_of, found, POSSIBLE)
    assert [one.gain for one in without] == pytest.approx([one.gain for one in plain], abs=0.2)
    monkeypatch.setattr(Ensemble, "draws", lambda self, points: -draws(self, points))
    assert narrowing(kinds_of, found, POSSIBLE) == []


def test_intervals_of_a_method_are_widened_for_the_reach_beyond_its_own_runs() -> None:
    budgets = np.array([4.0**power * 1e12 for power in range(6)])
    runs = [
        *swept({"full": better_when_small}, budgets=budgets),
        *swept({"lora": worse_when_small}, budgets=budgets[:4]),
    ]
    fits = fit_kinds(runs, resamples=12)
    candidates = recommend(fits, dict.fromkeys(OPTIONS, 4 * budgets[-1])).candidates
    predicted = [one for each in fits for one in each.held_out]
    for method, reach in (("full", 4.0), ("lora", 64.0)):
        wide = widths(predicted, "", reach, reach)
        assert wide.law is not None
        assert wide.line is not None
        for one in (one for one in candidates if one.option.way.method == method):
            assert one.held_out == pytest.approx(wide.law.around(one.law.low, one.law.high))
            assert one.line is not None
            assert one.line_held_out == pytest.approx(wide.line.around(one.line, one.line))
