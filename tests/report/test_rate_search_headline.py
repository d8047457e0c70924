"""When drift is expected to reach its limit, against curves whose answer is known."""

import math

import pytest

from adiabat.report.rate_search_headline import expected_leave

STEPS = list(range(50, 1_001, 50))


@pytest.mark.parametrize("exponent", [1.0, 0.5, 0.8])
def test_a_power_of_the_steps_is_solved_for_the_limit(exponent: float) -> None:
    drift = [0.001 * step**exponent for step in STEPS]
    limit = 0.001 * 7_000**exponent
    assert expected_leave(STEPS, drift, limit) == pytest.approx(7_000)


def test_the_earlier_half_does_not_count() -> None:
    drift = [9.0 if step <= 500 else 1e-5 * step for step in STEPS]
    assert expected_leave(STEPS, drift, 0.02) == pytest.approx(2_000)


def test_drift_that_does_not_grow_never_reaches_it() -> None:
    assert (
        expected_leave(STEPS, [0.01] * 10 + [0.02 - 0.0001 * place for place in range(10)], 0.1) == math.inf
    )


def test_too_few_looks_or_no_drift_say_nothing() -> None:
    assert expected_leave([], [], 0.1) is None
    assert expected_leave([10, 20, 30, 40], [0.1, 0.2, 0.3, 0.4], 0.5) is None
    assert expected_leave([10, 20, 30, 40, 50, 60], [0.0] * 6, 0.5) is None
