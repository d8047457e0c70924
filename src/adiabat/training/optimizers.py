"""Optimisers by name, which weights they decay, and the learning rate at each step (Vasilyev et al. 2024;
Moiseev et al. 2023).

Schedules are pure functions of the step. A factor multiplies the peak learning rate. Step 0 is the first
update. Every schedule may begin with a linear warm-up, and its own curve starts where the warm-up ends.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn

from adiabat.config.section import OptimizerName, ScalingRule, ScheduleName
from adiabat.config.training_choices import ENDING
from adiabat.config.training_choices import Schedule as ScheduleChoice
from adiabat.core.errors import ConfigError

_FUSED_DEVICES = frozenset({"cpu", "cuda"})
"""Device types with the fused AdamW kernel; on a CPU it is also deterministic, and twice as fast as the plain
loop."""

ROUNDED_AWAY = 2.0**-25
"""A relative change of a float32 weight below this share is always rounded away: half an ulp is 2^-25 to
2^-24 of the weight."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters with the same weight decay.

    Attributes:
        parameters: Any number.
        decays: Whether the weight decay applies to them.
    """

    parameters: tuple[nn.Parameter, ...]
    decays: bool


def decay_groups(module: nn.Module) -> list[Group]:
    """Split trainable parameters into those that decay, and those that do not.

    Parameters with two or more dimensions decay: matrices, embedding tables (including positions), and
    adapters. Biases and norm gains do
    not, nor do scalars such as that of `LearnedTemperature`: decay would pull them to 0, whatever they scale
    or shift.

    Returns:
        The two groups that `make_optimizer` takes, matrices first; a group may be empty.

    Reference:
        BERT's own code leaves out biases and norms (Devlin et al. 2019), CLIP all gains and biases (Radford
        et al. 2021, section 2.5).
    """
    # Decide by dimensions, not names, because families name their norms differently.
    trainable = [weights for weights in module.parameters() if weights.requires_grad]
    matrices = tuple(weights for weights in trainable if weights.dim() >= 2)
    return [
        Group(matrices, decays=True),
        Group(tuple(weights for weights in trainable if weights.dim() < 2), decays=False),
    ]


def make_optimizer(
    name: OptimizerName,
    parameters: Iterable[nn.Parameter] | Iterable[Group],
    *,
    learning_rate: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """An optimiser over the given parameters, with torch's defaults except as stated here.

    - ``adamw``: Adam with betas 0.9 and 0.999; the decay is apart from the gradient, ``w -= a k w``.
    - ``adamax``: the same with the infinity norm, ``w -= a m / (1 - 0.9^t) / u``, ``u = max(0.999 u, |g| +
      eps)``.
    - ``adamax-no-momentum``: both betas 0, so ``w -= a g / (|g| + eps)``: the sign of the gradient, except
      that a component not far above ``eps`` = 1e-8 moves less, and one of exactly 0 does not move.
    - ``adadelta``: rho 0.9, eps 1e-6; its steps carry a unit of their own, so usable rates are near 1.
    - ``adafactor``: steps relative to each tensor's own size, ``w -= max(0.001, rms(w)) min(a, 1 / sqrt(t)) u
      / max(1, rms(u))`` with ``u = g / sqrt(V)``, so usable rates are near 0.001; see below.
    - ``sgd``: no momentum, ``w -= a g``.

    In ``adamw`` and ``adafactor`` the decay is ``w -= a k w`` before the step; in the others it is added to
    the gradient, ``g + k w``, as torch does. Given as parameters, biases and norms decay like all others, for
    Vasilyev et al. 2024, which tuning follows, says nothing about leaving them out. `decay_groups` leaves
    them out.

    ``adafactor`` keeps one number per row and per column of a matrix instead of one per weight: ``V_ij = R_i
    C_j / max(mean(R), e)``, never below ``e^2``. ``R`` and ``C`` are running means of the squared gradient
    along rows and columns, ``R = (1 - s) R + s mean_j(g_ij^2)`` with ``s = t^-0.8``; of vectors and single
    numbers ``V`` is kept whole. There is no momentum. ``e`` is the dtype's epsilon, 1.2e-7. It differs from
    the source in two ways: there the relative step is ``min(0.01, 1 / sqrt(t))`` and no rate is given, while
    here the rate takes the place of 0.01 (``1 / sqrt(t)`` is below a rate of 0.001 only after a million
    steps); and there ``e`` is 1e-30, added to the squared gradient. In a matrix whose gradient's rms is below
    about 6e-6 the floor of ``V`` is reached: its update then follows the plain gradient, cut to an rms of 1,
    and fades where that is below 1.2e-7.

    Weights are float32, and an update below half an ulp, about ``6e-8 |w|``, is rounded away, however often
    it is repeated. At the regime's rate of 5e-8, where an ``adamw`` update is about as large, a weight near 1
    does not follow: one of 0.9 moves in steps of 6e-8, and a norm's gain of 1.1 (ulp 1.2e-7) does not move at
    all. Weights of 0.05, as most are, move as they should. The decay ``a k |w|`` of ``adamw`` has no effect
    on any weight unless ``a k`` is above `ROUNDED_AWAY`: at 5e-8 and the default of 0.01 it is sixty times
    below.
    """
    groups = _torch_groups(parameters, weight_decay)
    if not groups:
        raise ConfigError(
            "freeze must leave something to train, got no trainable parameter; remove a pattern"
        )
    if name == "adamw":
        weights = chain.from_iterable(group["params"] for group in groups)
        fused = all(each.device.type in _FUSED_DEVICES for each in weights)
        return torch.optim.AdamW(groups, lr=learning_rate, fused=fused)
    return _OTHERS[name](groups, lr=learning_rate)


_OTHERS: Mapping[OptimizerName, Callable[..., torch.optim.Optimizer]] = {
    "adamax": torch.optim.Adamax,
    "adamax-no-momentum": partial(torch.optim.Adamax, betas=(0.0, 0.0)),
    "adadelta": torch.optim.Adadelta,
    "adafactor": torch.optim.Adafactor,
    "sgd": torch.optim.SGD,
}
"""Optimisers whose kernels torch chooses itself."""


def _torch_groups(
    parameters: Iterable[nn.Parameter] | Iterable[Group], weight_decay: float
) -> list[dict[str, Any]]:
    """Parameter groups for torch: each with its own decay, without frozen parameters and empty groups."""
    listed = list(parameters)
    ungrouped = Group(tuple(item for item in listed if isinstance(item, nn.Parameter)), decays=True)
    groups = []
    for group in (ungrouped, *(item for item in listed if isinstance(item, Group))):
        if trainable := [weights for weights in group.parameters if weights.requires_grad]:
            groups.append({"params": trainable, "weight_decay": weight_decay if group.decays else 0.0})
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule with its lengths; the settings check the ranges of its numbers.

    Attributes:
        name: Shape of the curve; see `factor`.
        total_steps: Optimiser steps of the whole run, including warm-up; None if the end is unknown, which
            ``linear``, ``quadratic`` and ``cosine`` do not allow. Later steps keep the last factor.
        steps_per_epoch: Optimiser steps of an epoch, >= 1. Read by ``exponential``.
        gamma: Factor per epoch, in (0, 1]. Read by ``exponential``.
        warmup_steps: The first ``W`` updates get the factors ``1/W, 2/W, ... 1``; 0 for none. See
            `warmup_steps_of`.
        final_fraction: Share of the peak at the end, in [0, 1]. Read by ``linear``, ``quadratic`` and
            ``cosine``.
    """

    name: ScheduleName = "constant"
    total_steps: int | None = None
    steps_per_epoch: int = 1000
    gamma: float = 0.95
    warmup_steps: int = 0
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.total_steps is None and self.name in ENDING:
            raise ConfigError(
                f"total_steps must be given for the {self.name} schedule, got none; say how long the run is"
            )
        if self.total_steps is not None and self.warmup_steps > self.total_steps:
            raise ConfigError(
                f"warmup_steps must be at most total_steps, {self.total_steps}, got {self.warmup_steps}"
            )

    def factor(self, step: int) -> float:
        """Share of the peak learning rate for one update, in [0, 1].

        With ``t`` updates since the warm-up, ``p = min(1, t / (T - W))``, ``f`` the final fraction and ``g``
        gamma: ``constant: 1``;
        ``linear: f + (1 - f) (1 - p)``; ``quadratic: f + (1 - f) (1 - p^2)``; ``cosine: f + (1 - f) (1 +
        cos(pi p)) / 2``;
        ``exponential: g^e`` with ``e`` the whole epochs in ``t``. So the last update of ``linear`` still
        moves.

        Args:
            step: Optimiser steps already taken, >= 0: 0 for the first update.

        Reference:
            Vasilyev et al. 2024 (``a0 (1 - t/T)``, ``a0 (1 - (t/T)^2)``, ``a0 g^t``); Loshchilov and Hutter
            2017 (cosine).
        """
        if step < self.warmup_steps:
            # Start at 1/W, not 0: an update without effect would waste a batch.
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


def schedule_from(
    choice: ScheduleChoice, *, total_steps: int | None, steps_per_epoch: int, warmup_steps: int
) -> Schedule:
    """The schedule of the settings, with the lengths of a run."""
    shape = choice.model_dump()
    return Schedule(
        name=shape.pop("kind"),
        total_steps=total_steps,
        steps_per_epoch=steps_per_epoch,
        warmup_steps=warmup_steps,
        **shape,
    )


def warmup_steps_of(fraction: float, *, total_steps: int) -> int:
    """Steps of a warm-up over a share of the run, rounded up."""
    # The small subtraction keeps 0.1 * 30 = 3.0000000000000004 from becoming 4.
    return math.ceil(fraction * total_steps - 1e-9)


def scaled_learning_rate(
    rate: float, *, batch_size: int, reference_batch_size: int, rule: ScalingRule
) -> float:
    """Learning rate for a batch size, scaled from a reference pair of batch size and rate.

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
