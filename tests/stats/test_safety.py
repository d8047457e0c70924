"""Limits on drift beside labels, worked by hand."""

import math

import pytest

from adiabat.results.drift_judgement import HEADROOM, Step, judge, limits_of

LADDER = (Step(1e-8, 0.01, ()), Step(1e-7, 0.05, ()), Step(1e-6, 0.2, ("xnli",)), Step(1e-5, 0.4, ("xnli", "squad")))
"""Damage begins at 1e-6."""


@pytest.mark.parametrize(
    ("limit", "safe", "agreement"),
    [(0.001, None, "early"), (0.02, 1e-8, "early"), (0.05, 1e-7, "hit"), (0.19, 1e-7, "hit"), (0.2, 1e-6, "late"), (9.0, 1e-5, "late")],
)
def test_a_limit_is_a_hit_within_its_bracket_alone(limit: float, safe: float | None, agreement: str) -> None:
    found = judge(LADDER[::-1], limit)
    assert (found.safe, found.harmless, found.harmed) == (safe, 1e-7, ("xnli",))
    assert found.agreement == agreement
    assert found.bracket == (0.05, 0.2)


def test_without_damage_a_limit_is_early_or_untested() -> None:
    unharmed = [Step(step.rate, step.drift, ()) for step in LADDER]
    assert judge(unharmed, 0.4).agreement == "untested"
    assert judge(unharmed, 0.39).agreement == "early"
    assert judge(unharmed, 0.4).bracket == (0.4, None)
    assert judge(unharmed, 0.4).harmed == ()


def test_damage_at_the_lowest_rate_leaves_nothing_harmless() -> None:
    harmed = [Step(step.rate, step.drift, ("squad",)) for step in LADDER]
    assert judge(harmed, 0.001).agreement == "untested"
    assert judge(harmed, 0.01).agreement == "late"
    assert judge(harmed, 0.01).harmless is None


def test_a_rate_behind_one_that_left_the_band_is_not_safe_again() -> None:
    wavering = (Step(1e-8, 0.1, ()), Step(1e-7, 0.3, ()), Step(1e-6, 0.1, ("xnli",)))
    assert judge(wavering, 0.2).safe == 1e-8
    assert judge(wavering, 0.2).bracket == (0.3, 0.1)


def test_each_rate_is_wanted_once() -> None:
    with pytest.raises(ValueError, match="one for each rate"):
        judge([LADDER[0], LADDER[0]], 0.1)
    with pytest.raises(ValueError, match="at least one"):
        judge([], 0.1)


def test_a_drift_at_the_limit_raises_the_noise_by_the_headroom() -> None:
    limit = limits_of({"turn": 0.2, "margins": 0.0})
    assert math.hypot(0.2, limit["turn"]) == pytest.approx(0.2 * (1 + HEADROOM))
    assert limit["margins"] == 0
