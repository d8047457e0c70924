"""Sentences about a search for the largest safe rate: the headline, the origin of the limit, and how long the
rate may last.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from adiabat.core.text import counted, integer, share, two_digits
from adiabat.report.captions import text_of
from adiabat.report.format import number, setting
from adiabat.report.pages import Tone
from adiabat.results.rate_search_result import RateTrial, SafeRate

FAR = 100
"""Maximum factor of extrapolation in steps; beyond it, no number is given."""

Ended = Literal["inside", "left", "diverged"]


def ended(trial: RateTrial) -> Ended:
    """How a run ended."""
    if trial.left_at is None:
        return "inside"
    return "diverged" if trial.diverged else "left"


def ending(trial: RateTrial) -> str:
    """How a run ended, in words."""
    if trial.left_at is None:
        return "stays within"
    verb = "diverged" if trial.diverged else "exceeded"
    return f"{verb} after {integer(trial.left_at)}"


def drift_value(value: float) -> str:
    """A drift."""
    return number(value, digits=3)


def limit(result: SafeRate) -> str:
    """The limit of drift: a measured one is rounded, a given one stands as it was written."""
    return drift_value(result.limit) if result.noise else setting(result.limit)


def drift_range(trials: Sequence[RateTrial], measure: str) -> str:
    """Drift at the end of several runs; "" without measurements."""
    values = []
    for trial in trials:
        value = last(trial, measure)
        if value is not None:
            values.append(value)
    if not values:
        return ""
    low, high = drift_value(min(values)), drift_value(max(values))
    return low if low == high else f"{low} to {high}"


def safe_runs(result: SafeRate) -> list[RateTrial]:
    """Runs of the largest safe rate."""
    return [trial for trial in result.trials if trial.rate == result.rate]


def last(trial: RateTrial, measure: str) -> float | None:
    """Drift at the last measurement; None without measurements."""
    values = trial.drift.get(measure)
    return values[-1] if values else None


def headline(result: SafeRate) -> str:
    """The rate up to which results stay unchanged, and the effect of the next higher one that was tried."""
    within = "noise" if result.noise else f"the limit of {limit(result)}"
    steps = counted(result.steps, "step")
    above = [trial for trial in result.trials if trial.rate > (result.rate or 0.0)]
    at_next = [trial for trial in above if trial.rate == min(other.rate for other in above)]
    ends = [(trial.left_at, ended(trial)) for trial in at_next if trial.left_at is not None]
    fate = ""
    if ends:
        # Of several runs at that rate, the one that ended first is told.
        step, how = min(ends)
        outcome = "drift exceeds it" if how == "left" else "a run diverged"
        fate = f"; at {setting(at_next[0].rate)}, {outcome} after {counted(step, 'step')}"
    if result.rate is None:
        return f"No rate in the search keeps the answers within {within} for {steps}{fate}."
    seeds = counted(len(safe_runs(result)), "seed")
    return (
        f"Up to a learning rate of {setting(result.rate)} the answers stay within {within} for {steps}, "
        f"tried with {seeds}{fate}."
    )


def tone(result: SafeRate) -> Tone:
    """Whether the headline is good news."""
    return "bad" if result.rate is None else "good"


def reservations(result: SafeRate) -> list[str]:
    """Reservations beside the headline."""
    notes = [f"Note: {note}" for note in result.notes]
    return [
        about_limit(result),
        *pace(result),
        *notes,
        text_of("rate-search", "quality"),
        text_of("rate-search", "seed"),
    ]


def about_limit(result: SafeRate) -> str:
    """The limit and its origin."""
    is_of = f"The limit is a drift of {limit(result)} by {result.measure}"
    if not result.noise:
        return f"{is_of}, taken from the settings, not measured."
    noise = result.noise[result.measure]
    part = result.limit / noise
    # Independent drifts add by their squares: sqrt(noise^2 + limit^2) / noise - 1.
    increase = math.hypot(1, part) - 1
    probes = f"the final punctuation of the {counted(result.probes, 'probe')}"
    return (
        f"{is_of}, derived from noise: changing only {probes} makes the untuned tower's results drift by "
        f"{drift_value(noise)}. The limit is {share(part)} of that; independent drift of this size increases "
        f"the noise by {share(increase)}."
    )


def pace(result: SafeRate) -> list[str]:
    """The step at which the safe rate is expected to exceed the limit; empty if no rate is safe."""
    if result.rate is None:
        return []
    steps = lasts(result)
    about = "an unknown number of"
    if steps is not None:
        about = f"about {integer(two_digits(min(steps, FAR * result.steps)))}"
        if steps > FAR * result.steps:
            about = f"more than {integer(FAR * result.steps)}"
    return [text_of("rate-search", "pace", rate=setting(result.rate), steps=about)]


def lasts(result: SafeRate) -> float | None:
    """Step at which the largest safe rate would exceed the limit if drift continued to grow.

    Returns:
        The earliest step among its runs; None if no rate is safe, or if there are too few measurements.
    """
    expected = []
    for trial in safe_runs(result):
        steps = expected_leave(trial.steps, trial.drift[result.measure], result.limit)
        if steps is not None:
            expected.append(steps)
    return min(expected, default=None)


def expected_leave(steps: Sequence[int], drift: Sequence[float], limit: float) -> float | None:
    """Step at which drift reaches a limit if it continues to grow as a power of the steps.

    ``d = c t^b`` by least squares of ``ln d`` on ``ln t`` over the later half of the measurements, solved for
    ``d = limit``: Adam's steps have constant length, so weights move in proportion to their number at first,
    and with its square root once their directions are independent.

    Returns:
        Steps; infinite if drift does not grow, None with fewer than three measurements in the later half, or
        if one of them is 0.
    """
    half = len(steps) // 2
    later, drifts = np.array(steps[half:], dtype=np.float64), np.array(drift[half:], dtype=np.float64)
    if len(later) < 3 or (drifts <= 0).any():
        return None
    exponent, offset = np.polyfit(np.log(later), np.log(drifts), 1)
    # A slope of rounding size makes it infinite too.
    with np.errstate(over="ignore"):
        return float(np.exp((np.log(limit) - offset) / exponent)) if exponent > 0 else float("inf")
