"""Optimisers by name, and which weights they decay (Vasilyev et al. 2024; Moiseev et al. 2023)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from adiabat.config.section import OptimizerName
from adiabat.core.errors import ConfigError

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
    # Dimensions and not names: families name their norms differently.
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
    torch does. Given as parameters, biases and norms decay like all others, for Vasilyev et al. 2024, which tuning follows, says nothing
    about leaving them out. `decay_groups` leaves them out.

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
    if not groups:
        raise ConfigError("freeze must leave something to train, got no trainable parameter; remove a pattern")
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
    listed = list(parameters)
    ungrouped = Group(tuple(item for item in listed if isinstance(item, nn.Parameter)), decays=True)
    groups = []
    for group in (ungrouped, *(item for item in listed if isinstance(item, Group))):
        if trainable := [weights for weights in group.parameters if weights.requires_grad]:
            groups.append({"params": trainable, "weight_decay": weight_decay if group.decays else 0.0})
    return groups
