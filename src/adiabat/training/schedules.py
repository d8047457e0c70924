"""Learning-rate schedules as pure functions of the optimizer step (Vasilyev et al. 2024).

A factor multiplies the peak learning rate. Step 0 is the first update. Every schedule may begin with a linear warm-up, and its own curve
starts where the warm-up ends.
"""

import math
from dataclasses import dataclass
from typing import get_args

from adiabat.config.section import ScalingRule, ScheduleName
from adiabat.config.training_choices import Schedule as ScheduleChoice
from adiabat.core.errors import ConfigError, several

ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that come down to a final fraction at a last step, which they must therefore know."""


def rate_factor(
    name: ScheduleName, *, progress: float = 0.0, epochs_finished: int = 0, gamma: float = 0.95, final_fraction: float = 0.0
) -> float:
    """Share of the peak learning rate at one point of a schedule's curve.

    ``constant: 1``; ``linear: f + (1 - f) (1 - p)``; ``quadratic: f + (1 - f) (1 - p^2)``;
    ``cosine: f + (1 - f) (1 + cos(pi p)) / 2``; ``exponential: g^t``.

    Args:
        name: Which curve.
        progress: ``p``, the share of the curve's optimiser steps already taken; beyond 1 counts as 1. Read by ``linear``, ``quadratic``
            and ``cosine``.
        epochs_finished: ``t``, whole epochs finished, >= 0. Read by ``exponential``.
        gamma: ``g``, the factor per epoch. Read by ``exponential``.
        final_fraction: ``f``, where the curve ends, as a share of the peak. Read by ``linear``, ``quadratic`` and ``cosine``.

    Returns:
        The factor, in [0, 1].

    Raises:
        ConfigError: If `name` is unknown.

    Reference:
        Vasilyev et al. 2024 (``a0 (1 - t/T)``, ``a0 (1 - (t/T)^2)``, ``a0 g^t``); Loshchilov and Hutter 2017 (cosine).
    """
    share = min(progress, 1.0)
    if name == "constant":
        return 1.0
    if name == "exponential":
        return float(gamma**epochs_finished)
    if name == "linear":
        curve = 1.0 - share
    elif name == "quadratic":
        curve = 1.0 - share**2
    elif name == "cosine":
        curve = (1.0 + math.cos(math.pi * share)) / 2
    else:
        raise ConfigError(_name_fault(name))
    return final_fraction + (1.0 - final_fraction) * curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule with its lengths, checked when made.

    Attributes:
        name: Which curve; see `rate_factor`.
        total_steps: Optimiser steps of the whole run, warm-up included; None where the run's end is not known, which ``linear``,
            ``quadratic`` and ``cosine`` do not allow. Later steps get the last factor.
        steps_per_epoch: Optimiser steps of an epoch, >= 1. Read by ``exponential``.
        gamma: Factor per epoch, in (0, 1]. Read by ``exponential``.
        warmup_steps: The first ``W`` updates get the factors ``1/W, 2/W, ... 1``; 0 for none. See `warmup_steps_of`.
        final_fraction: Share of the peak at the end, in [0, 1]. Read by ``linear``, ``quadratic`` and ``cosine``, refused elsewhere.
    """

    name: ScheduleName = "constant"
    total_steps: int | None = None
    steps_per_epoch: int = 1000
    gamma: float = 0.95
    warmup_steps: int = 0
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise ConfigError(several(faults))

    def factor(self, step: int) -> float:
        """Share of the peak learning rate for one update.

        Args:
            step: Optimiser steps already taken, >= 0: 0 for the first update.

        Returns:
            The factor, in [0, 1]. With ``T`` steps after the warm-up, ``linear`` gives ``1 - t/T`` with ``t`` updates already taken
            since then, so the last update still moves; ``exponential`` drops after every whole epoch since then.

        Raises:
            ValueError: If `step` is negative.
        """
        if step < 0:
            raise ValueError(f"step must be 0 or more, got {step}; the first update has step 0")
        if step < self.warmup_steps:
            # From 1/W and not from 0: an update that moves nothing would be a batch lost.
            return (step + 1) / self.warmup_steps
        after_warmup = step - self.warmup_steps
        return rate_factor(
            self.name,
            progress=after_warmup / max(1, self.total_steps - self.warmup_steps) if self.total_steps else 0.0,
            epochs_finished=after_warmup // self.steps_per_epoch,
            gamma=self.gamma,
            final_fraction=self.final_fraction,
        )


def schedule_from(choice: ScheduleChoice, *, total_steps: int | None, steps_per_epoch: int, warmup_steps: int) -> Schedule:
    """The schedule that settings choose, with the lengths of a run."""
    shape = choice.model_dump()
    return Schedule(name=shape.pop("kind"), total_steps=total_steps, steps_per_epoch=steps_per_epoch, warmup_steps=warmup_steps, **shape)


def _faults(schedule: Schedule) -> list[str]:
    """Every setting of a schedule that is out of range, as phrases."""
    faults = []
    ends = schedule.name in ENDING
    if schedule.name not in get_args(ScheduleName):
        faults.append(_name_fault(schedule.name))
    if schedule.total_steps is None and ends:
        faults.append(f"total_steps must be given for the {schedule.name} schedule, got none; say how long the run is")
    if schedule.total_steps is not None and schedule.total_steps < 1:
        faults.append(f"total_steps must be at least 1, got {schedule.total_steps}")
    if schedule.steps_per_epoch < 1:
        faults.append(f"steps_per_epoch must be at least 1, got {schedule.steps_per_epoch}")
    if not 0 < schedule.gamma <= 1:
        faults.append(f"gamma must be in (0, 1], got {schedule.gamma}")
    if schedule.warmup_steps < 0:
        faults.append(f"warmup_steps must be 0 or more, got {schedule.warmup_steps}")
    elif schedule.total_steps is not None and schedule.warmup_steps > max(schedule.total_steps, 0):
        faults.append(f"warmup_steps must be at most total_steps, {schedule.total_steps}, got {schedule.warmup_steps}")
    if not 0 <= schedule.final_fraction <= 1:
        faults.append(f"final_fraction must be in [0, 1], got {schedule.final_fraction}")
    elif schedule.final_fraction and not ends:
        faults.append(f"final_fraction must be 0 for the {schedule.name} schedule, got {schedule.final_fraction}; remove it")
    return faults


def _name_fault(name: str) -> str:
    """Message for a schedule that is none of the known ones."""
    return f'schedule must be one of {", ".join(get_args(ScheduleName))}, got "{name}"'


def warmup_steps_of(fraction: float, *, total_steps: int) -> int:
    """Length of a warm-up given as a share of the run.

    Args:
        fraction: Share of the run, in [0, 1].
        total_steps: Optimiser steps of the whole run.

    Returns:
        Steps, rounded up; `Schedule.warmup_steps` takes them.

    Raises:
        ConfigError: If `fraction` is out of range.
    """
    if not 0 <= fraction <= 1:
        raise ConfigError(f"warmup_fraction must be in [0, 1], got {fraction}")
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

    Returns:
        The rate for `batch_size`.

    Raises:
        ConfigError: If a number is out of range or the rule is unknown.

    Reference:
        Goyal et al. 2017 (linear); Krizhevsky 2014 (square root); Vasilyev et al. 2024.
    """
    faults = [
        f"{name} must be above 0, got {value}"
        for name, value in (("learning_rate", rate), ("batch_size", batch_size), ("reference_batch_size", reference_batch_size))
        if not (value > 0 and math.isfinite(value))
    ]
    if rule not in get_args(ScalingRule):
        faults.append(f'batch_scaling must be one of {", ".join(get_args(ScalingRule))}, got "{rule}"')
    if faults:
        raise ConfigError(several(faults))
    ratio = batch_size / reference_batch_size
    return rate * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]
