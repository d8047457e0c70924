"""Sentences about a search for the largest safe rate: the headline, the origin of the limit, and how long the
rate may last.
"""

import math
from typing import Literal

from adiabat.core.text import DASH, counted, integer, share, two_digits
from adiabat.report.format import number, setting
from adiabat.report.pages import Tone
from adiabat.results.rate_search_result import RateTrial, SafeRate

FAR = 100
"""Maximum factor of extrapolation in steps; beyond it, no number is given."""

Ended = Literal["inside", "left", "diverged"]


def ended(result: SafeRate, trial: RateTrial) -> Ended:
    """How a run ended."""
    if trial.left_at is None:
        return "inside"
    return "diverged" if trial.diverged else "left"


def ending(result: SafeRate, trial: RateTrial) -> str:
    """How a run ended, in words."""
    if trial.left_at is None:
        return "stays within"
    return (
        f"{'diverged' if ended(result, trial) == 'diverged' else 'exceeded'} after {integer(trial.left_at)}"
    )


def drift_value(value: float) -> str:
    """A drift."""
    return number(value, digits=3)


def limit(result: SafeRate) -> str:
    """The limit of drift."""
    return drift_value(result.limit) if result.noise else setting(result.limit)


def drift_range(values: list[float]) -> str:
    """Drift of several runs."""
    ends = dict.fromkeys(drift_value(end) for end in (min(values), max(values))) if values else [DASH]
    return " to ".join(ends)


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
    stays = f"{_within(result)} for {counted(result.steps, 'step')}"
    if result.rate is None:
        return (
            "No rate in the search stays "
            f"{stays}{_fate(result, min(result.rates), before=': even at the lowest, ')}."
        )
    seeds = len({trial.seed for trial in safe_runs(result)})
    stays += f" with each of {seeds} seeds" * (seeds > 1)
    if result.rate == max(result.rates):
        return f"Even the highest rate in the search, {setting(result.rate)}, stays {stays}."
    above = min((trial.rate for trial in result.trials if trial.rate > result.rate), default=math.inf)
    return (
        f"Up to a learning rate of {setting(result.rate)} the answers stay "
        f"{stays}{_fate(result, above, before='; at ')}."
    )


def _within(result: SafeRate) -> str:
    return "within noise" if result.noise else f"within the limit of {limit(result)}"


def _fate(result: SafeRate, of: float, *, before: str) -> str:
    """Outcome of an unsafe rate: that of its first run to end."""
    runs = [trial for trial in result.trials if trial.rate == of]
    ends = [(trial.left_at, ended(result, trial)) for trial in runs if trial.left_at is not None]
    if not ends:
        return ""
    step, how = min(ends)
    of_all = f" with {len(ends)} of {len(runs)} seeds" * (len(ends) < len(runs))
    return (
        f"{before}{setting(of)}, {'drift exceeds it' if how == 'left' else 'a run diverged'} "
        f"after {counted(step, 'step')}{of_all}"
    )


def tone(result: SafeRate) -> Tone:
    """Whether the headline is good news."""
    return "bad" if result.rate is None else "good"


def reservations(result: SafeRate) -> list[str]:
    """Reservations beside the headline."""
    notes = [
        f"{note[:1].upper()}{note[1:]}" + "." * (not note.endswith((".", "!", "?"))) for note in result.notes
    ]
    nothing = (
        "Drift measures change, not quality: only labelled data show whether answers "
        "got better or worse; see adiabat evaluate."
    )
    return [*filter(None, [about_limit(result), pace(result), about_seeds(result)]), *notes, nothing]


def about_limit(result: SafeRate) -> str:
    """The limit and its origin."""
    is_of = f"The limit is a drift of {limit(result)} by {result.measure}"
    if not result.noise:
        return f"{is_of}, taken from the settings, not measured."
    noise = result.noise[result.measure]
    part = result.limit / noise
    probes = f"the final punctuation of the {counted(result.probes, 'probe')}"
    return (
        f"{is_of}, derived from noise: changing only {probes} makes the untuned "
        f"tower's results drift by {drift_value(noise)}. "
        f"The limit is {share(part)} of that; independent drift of this size increases "
        f"the noise by {share(math.hypot(1, part) - 1)}."
    )


def pace(result: SafeRate) -> str:
    """Number of steps after which the safe rate would exceed the limit."""
    if result.rate is None:
        return ""
    steps = result.lasts()
    if steps is None:
        unknown = (
            "would stay within the limit is unknown: it has too few checks, or some checks found no drift."
        )
        return f"How long {setting(result.rate)} {unknown}"
    if math.isinf(steps):
        return (
            f"Over the later half of the checks, drift at {setting(result.rate)} did not "
            "grow, so no step is known to exceed the limit."
        )
    grows = "If drift keeps growing by the same power of the steps as over the later half of the checks,"
    earliest = " (its earliest run)" * (len(safe_runs(result)) > 1)
    return (
        f"{grows} {setting(result.rate)}{earliest} {_leaves(steps, result.steps)}: "
        "an extrapolation, not a measurement."
    )


def _leaves(steps: float, made: int) -> str:
    if steps > FAR * made:
        return f"stays within the limit for more than {FAR} times as many steps"
    rounded = two_digits(steps)
    return (
        f"would exceed the limit after about {integer(rounded)} steps"
        if rounded > made
        else "is about to exceed the limit"
    )


def about_seeds(result: SafeRate) -> str:
    """Disagreement between the runs of the safe rate."""
    runs = safe_runs(result)
    if not runs:
        return ""
    if len(runs) == 1:
        return "This is one seed; another may drift more or less."
    values = [value for trial in runs if (value := last(trial, result.measure)) is not None]
    left = sum(trial.left_at is not None for trial in runs)
    beside = f"; {counted(left, 'run')} exceeded the limit (seed no longer requested)" * bool(left)
    return (
        f"With {len(runs)} seeds at {setting(runs[0].rate)}, drift at the "
        f"end is {drift_range(values)}{beside}."
    )
