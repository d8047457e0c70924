"""Which runs would narrow an answer, worked by hand and against what they do."""

import numpy as np
import pytest

from adiabat.plan.narrowing import _picked, narrowing
from adiabat.plan.recipe import KindFit, fit_kinds, recommend
from tests.plan.simulated import BUDGETS
from tests.plan.test_recipe import BOTH, OPTIONS, swept


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
    ((place, gain),) = _picked(np.stack([difference, one]), np.array([1.0]), np.array([1.0]), 1)
    # cov^2 / (var + noise) / whole = 9 / 2 / 25, less what draws show by chance.
    assert (place, gain) == (0, pytest.approx(9 / 2 / 25 - 1 / 1000))


def test_a_run_that_tells_the_same_again_comes_after_one_that_tells_something_else() -> None:
    one, other = orthogonal(1001, 2)
    runs = np.stack([3 * one + 2 * other, one, one, other])
    picked = _picked(runs, np.full(3, 0.01), np.ones(3), 3)
    assert [place for place, _ in picked[:2]] in ([0, 2], [1, 2])
    assert sum(gain for _, gain in picked) <= 1


def test_what_is_dear_must_tell_more() -> None:
    one, other = orthogonal(1001, 2)
    runs = np.stack([2 * one + other, one, other])
    cheap = _picked(runs, np.full(2, 0.01), np.array([10.0, 1.0]), 1)
    assert cheap[0][0] == 1
    assert _picked(runs, np.full(2, 0.01), np.array([2.0, 1.0]), 1)[0][0] == 0


def test_runs_that_tell_nothing_are_not_proposed() -> None:
    one, other = orthogonal(1001, 2)
    assert _picked(np.stack([one, other]), np.array([0.01]), np.array([1.0]), 3) == []


def test_only_kinds_in_question_are_asked(fits: list[KindFit]) -> None:
    found = recommend(fits, dict.fromkeys(OPTIONS, 1e17))
    possible = [(option, float(budget)) for option in OPTIONS for budget in BUDGETS[:3]]
    proposed = narrowing(fits, found, possible)
    assert 1 <= len(proposed) <= 3
    assert all(0 < one.gain <= 1 for one in proposed)
    assert narrowing(fits, found, []) == []
    alone = recommend(fits[:1], dict.fromkeys([one for one in OPTIONS if one.way.kind == fits[0].kind], 1e17))
    assert narrowing(fits[:1], alone, possible) == []
