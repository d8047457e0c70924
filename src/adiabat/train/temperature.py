"""What similarities are divided by: a fixed number, one that falls with the step, or one that is learned (mission D1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

COLDEST = 0.01
"""Least temperature that is learned: CLIP clips the factor at 100, beyond which training was unstable."""


def scheduled_temperature(step: int, *, first: float = 1.0, last: float = 1 / 23, steps: int = 10_000) -> float:
    """Temperature whose inverse, the factor on similarities, grows linearly: ``1/T = 1/T0 + (1/T1 - 1/T0) min(step / steps, 1)``.

    Args:
        step: Optimiser steps taken, >= 0.
        first: ``T0`` above, > 0: a factor of 1.
        last: ``T1`` above, > 0: a factor of 23.
        steps: Over which the factor grows, > 0; afterwards it stays.

    Returns:
        The temperature of this step.

    Raises:
        ValueError: If a temperature is not a finite number above 0, or `steps` is below 1.

    Reference:
        Source 003 (factor from 1 to 23 over the first 10,000 steps); mission D1.
    """
    _check(first=first, last=last)
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}; the source takes 10,000")
    share = min(step / steps, 1.0)
    return 1.0 / ((1.0 - share) / first + share / last)


class LearnedTemperature(nn.Module):
    """One trained number, ``ln(1/T)``, which keeps ``T`` above 0 whatever a step does to it.

    It is a scale and not a weight: leave it out of weight decay, which would pull the temperature towards 1.
    """

    def __init__(self, start: float, *, coldest: float = COLDEST) -> None:
        """Begin at a temperature.

        Args:
            start: > 0, at least `coldest`.
            coldest: Least temperature there can be, > 0.

        Raises:
            ValueError: If a temperature is not a finite number above 0, or `start` is below `coldest`.
        """
        super().__init__()
        _check(start=start, coldest=coldest)
        if start < coldest:
            raise ValueError(f"start must be at least {coldest}, the coldest temperature, got {start}; begin at 0.05")
        self.log_factor = nn.Parameter(torch.tensor(-math.log(start)))
        self.coldest = coldest

    def forward(self) -> Float[Tensor, ""]:
        """The temperature as it stands.

        Returns:
            ``T``, for a loss to divide by.
        """
        return torch.exp(-self.log_factor)

    @torch.no_grad()
    def clamp_(self) -> None:
        """Bring the number back into its range: to be called after each optimiser step."""
        self.log_factor.clamp_(max=-math.log(self.coldest))


def _check(**temperatures: float) -> None:
    for name, temperature in temperatures.items():
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {temperature}; typical temperatures are 0.01 to 0.1")
