"""Judgements of drift, and the record of a search for the largest learning rate that keeps drift within its
limit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from adiabat.results.record import Record

HEADROOM = 0.1
"""Share by which drift may increase the noise that exists anyway."""


def limits_of(noise: Mapping[str, float]) -> dict[str, float]:
    """Drift that increases independent noise by `HEADROOM`: ``noise sqrt((1 + h)^2 - 1)``.

    Args:
        noise: Measure of drift to its mean over probes with changed punctuation.

    Returns:
        Measure to limit.
    """
    share = math.sqrt((1 + HEADROOM) ** 2 - 1)
    return {name: share * value for name, value in noise.items()}


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift of a tuned tower: distance of its results on probe texts from those of the untuned tower.

    Attributes:
        means: Measure to its mean over probes; `adiabat.adiabatic.drift` has the formulas.
        errors: Measure to the standard error of that mean.
        groups: Group of probes, such as a language, to its means.
    """

    probes: int
    means: dict[str, float]
    errors: dict[str, float]
    groups: dict[str, dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One run of a search.

    Attributes:
        rate: Its learning rate, before any scaling with the batch size.
        steps: Steps after which drift was measured, ascending.
        drift: Measure to its mean over the probes at each of these steps.
        losses: Validation loss at each of these steps in a range test; empty in a search for a safe rate.
        left_at: Step at which drift exceeded the limit, or the loss became non-finite; None if neither
            happened.
    """

    rate: float
    seed: int
    steps: list[int]
    drift: dict[str, list[float]]
    left_at: int | None
    reason: str
    seconds: float
    device: str
    losses: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name, unique in the search."""
        return f"rate {self.rate:g}, seed {self.seed}"

    @property
    def diverged(self) -> bool:
        """Whether the loss became non-finite: drift beyond the limit ends a run only where it is measured."""
        return self.left_at is not None and self.left_at not in self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRate(Record):
    """The whole ``result.json`` of a search for the largest safe rate.

    Attributes:
        noise: Measure to the drift of the untuned tower on probes with changed punctuation; empty if the
            limit was given as a number.
        steps: Number of steps for which a rate must stay within the limit.
        rates: All rates of the search, ascending.
        rate: The largest rate within the limit for every seed; None if there is none.
    """

    ROWS: ClassVar[str] = "trials"

    model: str
    measure: str
    limit: float
    noise: dict[str, float]
    probes: int
    steps: int
    rates: list[float]
    rate: float | None
    trials: list[RateTrial]
    kind: Literal["rate-search"] = "rate-search"

    def lasts(self) -> float | None:
        """Step at which the largest safe rate would exceed the limit if drift continued to grow.

        Returns:
            The earliest step among its runs; None if no rate is safe, or if there are too few measurements.
        """
        expected = [
            expected_leave(trial.steps, trial.drift[self.measure], self.limit)
            for trial in self.trials
            if trial.rate == self.rate
        ]
        return min((steps for steps in expected if steps is not None), default=None)


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
