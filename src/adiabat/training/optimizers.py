"""Optimisers by name, and which weights they decay (missions A4, C4)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import nn

from adiabat.config.section import OptimizerName, ScalingRule, ScheduleName
from adiabat.core.errors import ConfigError, several

_FUSED_DEVICES = frozenset({"cpu", "cuda"})
"""Where the fused AdamW kernel is used; on a CPU it is also deterministic, and twice as fast as the plain loop."""

ROUNDED_AWAY = 2.0**-25
"""A change of a float32 weight by less than this share of it is always rounded away: half an ulp is 2^-25 to 2^-24 of the weight."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that decay alike.

    Attributes:
        parameters: Any number.
        decays: Whether the weight decay applies to them.
    """

    parameters: tuple[nn.Parameter, ...]
    decays: bool


def decay_groups(module: nn.Module) -> list[Group]:
    """Split trainable parameters into those that decay, and those that do not.

    What has two or more dimensions decays: matrices, embedding tables (of positions too), and adapters. Biases and the gains of norms
    do not, nor does a single number, such as `LearnedTemperature` has: decay would pull them to 0 whatever they multiply or shift.

    Returns:
        The two groups that `make_optimizer` takes, matrices first; a group may be empty.

    Reference:
        BERT's own code leaves out biases and norms (Devlin et al. 2019), CLIP all gains and biases (Radford et al. 2021, section 2.5).
    """
    trainable = [weights for weights in module.parameters() if weights.requires_grad]
    matrices = tuple(weights for weights in trainable if weights.dim() >= 2)
    return [Group(matrices, decays=True), Group(tuple(weights for weights in trainable if weights.dim() < 2), decays=False)]


def make_optimizer(
    name: OptimizerName, parameters: Iterable[nn.Parameter] | Iterable[Group], *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """An optimiser over the given parameters, with torch's own defaults where nothing is said here.

    - ``adamw``: Adam with betas 0.9 and 0.999; the decay is apart from the gradient, ``w -= a k w``.
    - ``adamax``: the same with the infinity norm, ``w -= a m / (1 - 0.9^t) / u``, ``u = max(0.999 u, |g| + eps)``.
    - ``adamax-no-momentum``: both betas 0, so ``w -= a g / (|g| + eps)``: the sign of the gradient, except that a component not far
      above ``eps`` = 1e-8 moves less, and one of exactly 0 does not move.
    - ``adadelta``: rho 0.9, eps 1e-6; its steps carry a unit of their own, so usable rates are near 1.
    - ``adafactor``: steps relative to each tensor's own size, ``w -= max(0.001, rms(w)) min(a, 1 / sqrt(t)) u / max(1, rms(u))`` with
      ``u = g / sqrt(V)``, so usable rates are near 0.001; see below.
    - ``sgd``: no momentum, ``w -= a g``.

    In ``adamw`` and ``adafactor`` the decay is ``w -= a k w`` before the step; in the others it is added to the gradient, ``g + k w``, as
    torch does. Given as parameters, biases and norms decay like all others, for source 000, which tuning follows, says nothing about
    leaving them out. `decay_groups` leaves them out.

    ``adafactor`` keeps one number per row and per column of a matrix instead of one per weight: ``V_ij = R_i C_j / max(mean(R), e)``,
    never below ``e^2``. ``R`` and ``C`` are running means of the squared gradient along rows and columns, ``R = (1 - s) R + s
    mean_j(g_ij^2)`` with ``s = t^-0.8``; of vectors and single numbers ``V`` is kept whole. There is no momentum. ``e`` is the dtype's
    epsilon, 1.2e-7. It differs from the source in two ways: there the relative step is ``min(0.01, 1 / sqrt(t))`` and no rate is given,
    while here the rate takes the place of 0.01 (``1 / sqrt(t)`` is below a rate of 0.001 only after a million steps); and there ``e`` is
    1e-30, added to the squared gradient. In a matrix whose gradient's rms is below about 6e-6 the floor of ``V`` is reached: its update
    then follows the plain gradient, cut to an rms of 1, and fades where that is below 1.2e-7.

    Weights are float32, and an update below half an ulp, about ``6e-8 |w|``, is rounded away, however often it is repeated. At the
    regime's rate of 5e-8, where an ``adamw`` update is about as large, a weight near 1 does not follow: one of 0.9 moves in steps of
    6e-8, and a norm's gain of 1.1 (ulp 1.2e-7) does not move at all. Weights of 0.05, as most are, move as they should. The decay
    ``a k |w|`` of ``adamw`` has no effect on any weight unless ``a k`` is above `ROUNDED_AWAY`: at 5e-8 and the default of 0.01 it is
    sixty times below.
    """
    groups = _torch_groups(parameters, weight_decay)
    _check(name, groups, learning_rate, weight_decay)
    if name == "adamw":
        fused = all(weights.device.type in _FUSED_DEVICES for group in groups for weights in group["params"])
        return torch.optim.AdamW(groups, lr=learning_rate, fused=fused)
    if name == "adamax":
        return torch.optim.Adamax(groups, lr=learning_rate)
    if name == "adamax-no-momentum":
        return torch.optim.Adamax(groups, lr=learning_rate, betas=(0.0, 0.0))
    if name == "adadelta":
        return torch.optim.Adadelta(groups, lr=learning_rate)
    if name == "adafactor":
        return torch.optim.Adafactor(groups, lr=learning_rate)
    return torch.optim.SGD(groups, lr=learning_rate)


def _torch_groups(parameters: Iterable[nn.Parameter] | Iterable[Group], weight_decay: float) -> list[dict[str, Any]]:
    """What torch's optimisers take: each group with its own decay, frozen parameters and empty groups left out."""
    given = list(parameters)
    alike = Group(tuple(item for item in given if isinstance(item, nn.Parameter)), decays=True)
    found = []
    for group in (alike, *(item for item in given if isinstance(item, Group))):
        if trainable := [weights for weights in group.parameters if weights.requires_grad]:
            found.append({"params": trainable, "weight_decay": weight_decay if group.decays else 0.0})
    return found


def _check(name: str, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float) -> None:
    """Raise ConfigError with everything that is wrong."""
    faults = []
    if name not in get_args(OptimizerName):
        faults.append(f'optimizer must be one of {", ".join(get_args(OptimizerName))}, got "{name}"')
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        faults.append(f"learning_rate must be above 0, got {learning_rate}")
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        faults.append(f"weight_decay must be 0 or more, got {weight_decay}")
    if not groups:
        faults.append("freeze must leave something to train, got no trainable parameter; remove a pattern")
    if faults:
        raise ConfigError(several(faults))


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
        Source 000 (``a0 (1 - t/T)``, ``a0 (1 - (t/T)^2)``, ``a0 g^t``); Loshchilov and Hutter 2017 (cosine); mission A4.
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
            return (step + 1) / self.warmup_steps
        taken = step - self.warmup_steps
        return rate_factor(
            self.name,
            progress=taken / max(1, self.total_steps - self.warmup_steps) if self.total_steps else 0.0,
            epochs_finished=taken // self.steps_per_epoch,
            gamma=self.gamma,
            final_fraction=self.final_fraction,
        )


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
        Goyal et al. 2017 (linear); Krizhevsky 2014 (square root); source 000; mission A4.
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
