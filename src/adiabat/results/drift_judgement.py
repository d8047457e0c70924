"""How far answers to unlabelled probes drift: what a sweep measures, how far it may go, and whether that agrees with labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

HEADROOM = 0.1
"""Share by which drift may raise the noise that is there anyway."""

Agreement = Literal["hit", "early", "late", "untested"]
"""The drift leaves its band just where damage begins, at a lower rate, or at a higher one; or both do so beyond an end of the series."""


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
class Step:
    """What is known of one rate.

    Attributes:
        rate: The learning rate.
        drift: Of the probes.
        harmed: Names of the labelled tasks that are measurably worse.
    """

    rate: float
    drift: float
    harmed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A limit on drift beside the labelled truth.

    Attributes:
        limit: Of the drift.
        safe: The largest rate up to which every drift is within the limit; None where the lowest is beyond it.
        harmless: The largest rate up to which no task is measurably worse; None where one is at the lowest.
        harmed: Tasks that are worse at the next rate; none where damage does not begin on the series.
        bracket: Limits that would have been a hit: from the first, up to but without the second, None where nothing ends them.
    """

    limit: float
    safe: float | None
    harmless: float | None
    harmed: tuple[str, ...]
    bracket: tuple[float, float | None]

    @property
    def agreement(self) -> Agreement:
        """Whether the limit was well placed."""
        if self.safe == self.harmless:
            return "untested" if self.safe is None or not self.harmed else "hit"
        return "early" if (self.safe or 0.0) < (self.harmless or 0.0) else "late"


def judge(steps: Sequence[Step], limit: float) -> Judgement:
    """Hold a limit on drift against labels.

    Args:
        steps: At least one; in any order, each rate once.
        limit: Of the drift.

    Returns:
        The judgement. Where drift does not rise with the rate, the bracket may be empty: its second limit not above its first.

    Raises:
        ValueError: If there are no steps, or a rate comes twice.
    """
    series = sorted(steps, key=lambda step: step.rate)
    if not series or len({step.rate for step in series}) < len(series):
        raise ValueError(f"steps must be one for each rate, and at least one, got rates {[step.rate for step in series]}")
    safe = list(takewhile(lambda step: step.drift <= limit, series))
    harmless = list(takewhile(lambda step: not step.harmed, series))
    beyond = series[len(harmless) :]
    return Judgement(
        limit=limit,
        safe=safe[-1].rate if safe else None,
        harmless=harmless[-1].rate if harmless else None,
        harmed=beyond[0].harmed if beyond else (),
        bracket=(max((step.drift for step in harmless), default=0.0), beyond[0].drift if beyond else None),
    )


@dataclass(frozen=True, slots=True)
class Drift:
    """How far what a tuned tower finds for probe texts is from what the untuned one finds.

    Attributes:
        probes: How many texts.
        means: Measure to its mean over probes; `adiabat.adiabatic.drift` has the formulas.
        errors: Measure to the standard error of that mean.
        groups: Group of probes, such as a language, to the means of its probes.
    """

    probes: int
    means: dict[str, float]
    errors: dict[str, float]
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
