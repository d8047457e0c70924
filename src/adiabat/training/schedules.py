"""Learning-rate schedules as pure functions of the optimizer step (Vasilyev et al. 2024).

A factor multiplies the peak learning rate. Step 0 is the first update. Every schedule may begin with a linear warm-up, and its own curve
starts where the warm-up ends.
"""

import math
from dataclasses import dataclass

from adiabat.config.section import ScalingRule, ScheduleName
from adiabat.config.training_choices import Schedule as ScheduleChoice
from adiabat.core.errors import ConfigError

ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that come down to a final fraction at a last step, which they must therefore know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule with its lengths; the settings check the ranges of its numbers.

    Attributes:
        name: Which curve; see `factor`.
        total_steps: Optimiser steps of the whole run, warm-up included; None where the run's end is not known, which ``linear``,
            ``quadratic`` and ``cosine`` do not allow. Later steps get the last factor.
        steps_per_epoch: Optimiser steps of an epoch, >= 1. Read by ``exponential``.
        gamma: Factor per epoch, in (0, 1]. Read by ``exponential``.
        warmup_steps: The first ``W`` updates get the factors ``1/W, 2/W, ... 1``; 0 for none. See `warmup_steps_of`.
        final_fraction: Share of the peak at the end, in [0, 1]. Read by ``linear``, ``quadratic`` and ``cosine``.
    """

    name: ScheduleName = "constant"
    total_steps: int | None = None
    steps_per_epoch: int = 1000
    gamma: float = 0.95
    warmup_steps: int = 0
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.total_steps is None and self.name in ENDING:
            raise ConfigError(f"total_steps must be given for the {self.name} schedule, got none; say how long the run is")
        if self.total_steps is not None and self.warmup_steps > self.total_steps:
            raise ConfigError(f"warmup_steps must be at most total_steps, {self.total_steps}, got {self.warmup_steps}")

    def factor(self, step: int) -> float:
        """Share of the peak learning rate for one update, in [0, 1].

        With ``t`` updates since the warm-up, ``p = min(1, t / (T - W))``, ``f`` the final fraction and ``g`` gamma: ``constant: 1``;
        ``linear: f + (1 - f) (1 - p)``; ``quadratic: f + (1 - f) (1 - p^2)``; ``cosine: f + (1 - f) (1 + cos(pi p)) / 2``;
        ``exponential: g^e`` with ``e`` the whole epochs in ``t``. So the last update of ``linear`` still moves.

        Args:
            step: Optimiser steps already taken, >= 0: 0 for the first update.

        Reference:
            Vasilyev et al. 2024 (``a0 (1 - t/T)``, ``a0 (1 - (t/T)^2)``, ``a0 g^t``); Loshchilov and Hutter 2017 (cosine).
        """
        if step < 0:
            raise ValueError(f"step must be 0 or more, got {step}; the first update has step 0")
        if step < self.warmup_steps:
            # From 1/W and not from 0: an update that moves nothing would be a batch lost.
            return (step + 1) / self.warmup_steps
        since = step - self.warmup_steps
        if self.name == "exponential":
            return float(self.gamma ** (since // self.steps_per_epoch))
        share = min(since / max(1, self.total_steps - self.warmup_steps), 1.0) if self.total_steps else 0.0
        if self.name == "linear":
            curve = 1.0 - share
        elif self.name == "quadratic":
            curve = 1.0 - share**2
        elif self.name == "cosine":
            curve = (1.0 + math.cos(math.pi * share)) / 2
        else:
            return 1.0
        return self.final_fraction + (1.0 - self.final_fraction) * curve


def schedule_from(choice: ScheduleChoice, *, total_steps: int | None, steps_per_epoch: int, warmup_steps: int) -> Schedule:
    """The schedule that settings choose, with the lengths of a run."""
    shape = choice.model_dump()
    return Schedule(name=shape.pop("kind"), total_steps=total_steps, steps_per_epoch=steps_per_epoch, warmup_steps=warmup_steps, **shape)


def warmup_steps_of(fraction: float, *, total_steps: int) -> int:
    """Steps of a warm-up that takes a share of the run, rounded up."""
    # The small subtraction keeps 0.1 * 30 = 3.0000000000000004 from becoming 4.
    return math.ceil(fraction * total_steps - 1e-9)


def scaled_learning_rate(rate: float, *, batch_size: int, reference_batch_size: int, rule: ScalingRule) -> float:
    """Learning rate for a batch size, from a pair of batch size and rate known to be good.

    ``none: a``; ``linear: a B / B0``; ``sqrt: a sqrt(B / B0)``.

    Args:
        rate: ``a``, the rate that goes with the reference batch size, > 0.
        batch_size: ``B``, queries per optimiser step, >= 1.
        reference_batch_size: ``B0``, >= 1.
        rule: How the rate follows the batch size.

    Reference:
        Goyal et al. 2017 (linear); Krizhevsky 2014 (square root); Vasilyev et al. 2024.
    """
    ratio = batch_size / reference_batch_size
    return rate * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]
