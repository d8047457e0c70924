"""How far answers to unlabelled probes drift: what a sweep measures, and how far it may go."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

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
