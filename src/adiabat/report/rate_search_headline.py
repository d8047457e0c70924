"""Sentences about a search for the largest safe rate: the headline, the origin of the limit, and how long the
rate may last.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from adiabat.core.text import DASH, counted, integer, share, two_digits
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
    """The limit of drift."""
    return drift_value(result.limit) if result.noise else setting(result.limit)


def drift_range(trials: Sequence[RateTrial], measure: str) -> str:
    """Drift at the end of several runs; a dash without measurements."""
    values = []
    for trial in trials:
        value = last(trial, measure)
        if value is not None:
            values.append(value)
    if not values:
        return DASH
    low, high = drift_value(min(values)), drift_value(max(values))
    return low if low == high else f"{low} to {high}"


def safe_runs(result: SafeRate) -> list[RateTrial]:
    """Runs of the largest safe rate."""
    return [trial for trial in result.trials if trial.rate == result.rate]


def last(trial: RateTrial, measure: str) -> float | None:
    """Drift at the last measurement.

    Returns:
        None without measurements.
    """
    values = trial.drift.get(measure)
    return values[-1] if values else None


def headline(result: SafeRate) -> str:
    """The rate up to which results stay unchanged, and the effect of higher rates."""
    within = "within noise" if result.noise else f"within the limit of {limit(result)}"
    stays = f"{within} for {counted(result.steps, 'step')}"
    if result.rate is None:
        lowest = min(result.rates)
        return f"No rate in the search stays {stays}{_fate(result, lowest, before=': even at the lowest, ')}."
    seeds = len({trial.seed for trial in safe_runs(result)})
    if seeds > 1:
        stays += f" with each of {seeds} seeds"
    if result.rate == max(result.rates):
        return f"Even the highest rate in the search, {setting(result.rate)}, stays {stays}."
    above = min((trial.rate for trial in result.trials if trial.rate > result.rate), default=math.inf)
    fate = _fate(result, above, before="; at ")
    return f"Up to a learning rate of {setting(result.rate)} the answers stay {stays}{fate}."


def _fate(result: SafeRate, of: float, *, before: str) -> str:
    """Outcome of an unsafe rate: that of its first run to end."""
    runs = [trial for trial in result.trials if trial.rate == of]
    ends = [(trial.left_at, ended(trial)) for trial in runs if trial.left_at is not None]
    if not ends:
        return ""
    step, how = min(ends)
    outcome = "drift exceeds it" if how == "left" else "a run diverged"
    of_all = f" with {len(ends)} of {len(runs)} seeds" if len(ends) < len(runs) else ""
    return f"{before}{setting(of)}, {outcome} after {counted(step, 'step')}{of_all}"


def tone(result: SafeRate) -> Tone:
    """Whether the headline is good news."""
    return "bad" if result.rate is None else "good"


def reservations(result: SafeRate) -> list[str]:
    """Reservations beside the headline."""
    sentences = [about_limit(result), pace(result), about_seeds(result)]
    for note in result.notes:
        end = "" if note.endswith((".", "!", "?")) else "."
        sentences.append(f"{note[:1].upper()}{note[1:]}{end}")
    sentences.append(
        "Drift measures change, not quality: only labelled data show whether answers got better or worse; "
        "see adiabat evaluate."
    )
    return [sentence for sentence in sentences if sentence]


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


def pace(result: SafeRate) -> str:
    """Number of steps after which the safe rate would exceed the limit."""
    if result.rate is None:
        return ""
    rate, steps = setting(result.rate), lasts(result)
    if steps is None:
        unknown = (
            "would stay within the limit is unknown: it has too few checks, or some checks found no drift."
        )
        return f"How long {rate} {unknown}"
    if math.isinf(steps):
        steady = f"Over the later half of the checks, drift at {rate} did not grow"
        return f"{steady}, so no step is known to exceed the limit."
    grows = "If drift keeps growing by the same power of the steps as over the later half of the checks,"
    earliest = " (its earliest run)" if len(safe_runs(result)) > 1 else ""
    return f"{grows} {rate}{earliest} {_leaves(steps, result.steps)}: an extrapolation, not a measurement."


def lasts(result: SafeRate) -> float | None:
    """Step at which the largest safe rate would exceed the limit if drift continued to grow.

    Returns:
        The earliest step among its runs; None if no rate is safe, or if there are too few measurements.
    """
    earliest = None
    for trial in safe_runs(result):
        steps = expected_leave(trial.steps, trial.drift[result.measure], result.limit)
        if steps is not None and (earliest is None or steps < earliest):
            earliest = steps
    return earliest


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


def _leaves(steps: float, made: int) -> str:
    if steps > FAR * made:
        return f"stays within the limit for more than {FAR} times as many steps"
    rounded = two_digits(steps)
    if rounded <= made:
        return "is about to exceed the limit"
    return f"would exceed the limit after about {integer(rounded)} steps"


def about_seeds(result: SafeRate) -> str:
    """Disagreement between the runs of the safe rate."""
    runs = safe_runs(result)
    if not runs:
        return ""
    if len(runs) == 1:
        return "This is one seed; another may drift more or less."
    left = sum(trial.left_at is not None for trial in runs)
    beside = f"; {counted(left, 'run')} exceeded the limit (seed no longer requested)" if left else ""
    drift = drift_range(runs, result.measure)
    return f"With {len(runs)} seeds at {setting(runs[0].rate)}, drift at the end is {drift}{beside}."
