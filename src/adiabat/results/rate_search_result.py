"""Judgements of drift, and the record of a search for the largest learning rate that keeps drift within its limit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from adiabat.results.record import Record

HEADROOM = 0.1
"""Share by which drift may raise the noise that is there anyway."""


def limits_of(noise: Mapping[str, float]) -> dict[str, float]:
    """How much drift raises the noise by no more than `HEADROOM`, where the two are independent: ``noise sqrt((1 + h)^2 - 1)``.

    Args:
        noise: Measure of drift to its mean over the probes, written otherwise.

    Returns:
        Measure to limit.
    """
    share = math.sqrt((1 + HEADROOM) ** 2 - 1)
    return {name: share * value for name, value in noise.items()}


@dataclass(frozen=True, slots=True)
class Drift:
    """How far what a tuned tower finds for probe texts is from what the untuned one finds.

    Attributes:
        means: Measure to its mean over probes; `adiabat.adiabatic.drift` has the formulas.
        errors: Measure to the standard error of that mean.
        groups: Group of probes, such as a language, to the means of its probes.
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
        steps: After which the drift was looked at, ascending.
        drift: Measure to its mean over the probes at each of these steps.
        left_at: Step at which the drift was beyond the limit, or the loss no number any more; None where it stayed inside.
    """

    rate: float
    seed: int
    steps: list[int]
    drift: dict[str, list[float]]
    left_at: int | None
    reason: str
    seconds: float
    device: str

    @property
    def name(self) -> str:
        """Unique in the search."""
        return f"rate {self.rate:g}, seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafeRate(Record):
    """The whole ``result.json`` of a search for the largest safe rate.

    Attributes:
        noise: Measure to what `adiabat.adiabatic.drift` found; empty where the limit was given as a number.
        steps: For which a rate must stay inside.
        rates: All of the search, ascending.
        rate: The largest that stayed inside with every seed; None where none did.
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
        """After how many steps the largest safe rate would leave the band, if drift went on as it did.

        Returns:
            Of its runs, the earliest; None where no rate is safe, or the looks are too few to tell.
        """
        expected = [expected_leave(trial.steps, trial.drift[self.measure], self.limit) for trial in self.trials if trial.rate == self.rate]
        return min((steps for steps in expected if steps is not None), default=None)


def expected_leave(steps: Sequence[int], drift: Sequence[float], limit: float) -> float | None:
    """When drift reaches a limit, if it goes on growing as a power of the steps.

    ``d = c t^b`` by least squares of ``ln d`` on ``ln t`` over the later half of the looks, solved for ``d = limit``: Adam's steps are of
    one length, so that weights move in proportion to their number at first, and with its root where their directions are independent.

    Returns:
        Steps; infinite where drift does not grow, None with fewer than three looks in the later half, or where one of them found no drift.
    """
    half = len(steps) // 2
    later, drifts = np.array(steps[half:], dtype=np.float64), np.array(drift[half:], dtype=np.float64)
    if len(later) < 3 or (drifts <= 0).any():
        return None
    exponent, offset = np.polyfit(np.log(later), np.log(drifts), 1)
    # A slope that is nothing but rounding makes it infinite as well.
    with np.errstate(over="ignore"):
        return float(np.exp((np.log(limit) - offset) / exponent)) if exponent > 0 else float("inf")
