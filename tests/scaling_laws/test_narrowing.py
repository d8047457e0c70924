"""Which runs would narrow an answer, worked by hand and against what they do."""

from dataclasses import replace

import numpy as np
import pytest

from adiabat.scaling_laws.law_intervals import Ensemble
from adiabat.scaling_laws.laws import Kind, Points
from adiabat.scaling_laws.recommendation import KindFit, _greedy_gains, fit_kinds, narrowing, recommend
from tests.scaling_laws.simulated import BUDGETS
from tests.scaling_laws.test_recipe import BOTH, OPTIONS, swept


@pytest.fixture(scope="module")
def fits() -> list[KindFit]:
    """Two methods that noise all but hides the difference of."""
    return fit_kinds(swept(BOTH, noise=0.05), resamples=40)


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


def test_only_kinds_in_question_are_asked(fits: list[KindFit]) -> None:
    found = recommend(fits, dict.fromkeys(OPTIONS, 1e17))
    proposed = narrowing(fits, found, POSSIBLE)
    assert 1 <= len(proposed) <= 3
    assert all(0 < one.gain <= 1 for one in proposed)
    assert narrowing(fits, found, []) == []
    kind = fits[0].kind
    assert narrowing(fits[:1], recommend(fits[:1], dict.fromkeys([one for one in OPTIONS if one.way.kind == kind], 1e17)), POSSIBLE) == []


def test_runs_of_a_third_kind_are_not_proposed(fits: list[KindFit]) -> None:
    third = Kind("", "bias")
    others = [replace(option, way=replace(option.way, method="bias", rank=None)) for option in OPTIONS if option.way.method == "full"]
    more = [*fits, replace(fits[0], kind=third)]
    found = recommend(fits, dict.fromkeys(OPTIONS, 1e17))
    plain = narrowing(fits, found, POSSIBLE)
    assert plain
    # They cost next to nothing, and would tell all that runs of the first kind tell.
    assert narrowing(more, found, [*((option, 1e3) for option in others), *POSSIBLE]) == plain


def test_one_law_that_reaches_no_loss_decides_nothing(fits: list[KindFit], monkeypatch: pytest.MonkeyPatch) -> None:
    found = recommend(fits, dict.fromkeys(OPTIONS, 1e17))
    plain, draws = narrowing(fits, found, POSSIBLE), Ensemble.draws

    def spoilt(self: Ensemble, points: Points) -> np.ndarray:
        rows = draws(self, points)
        rows[3] *= -1
        return rows

    monkeypatch.setattr(Ensemble, "draws", spoilt)
    without = narrowing(fits, found, POSSIBLE)
    assert [one.gain for one in without] == pytest.approx([one.gain for one in plain], abs=0.2)
    monkeypatch.setattr(Ensemble, "draws", lambda self, points: -draws(self, points))
    assert narrowing(fits, found, POSSIBLE) == []
