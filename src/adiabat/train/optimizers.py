"""Optimisers by name (mission A4)."""

import math
from collections.abc import Iterable
from typing import get_args

import torch
from torch import nn

from adiabat.config import OptimizerName
from adiabat.errors import ConfigError, several

_FUSED_DEVICES = frozenset({"cpu", "cuda"})
"""Where the fused AdamW kernel is used; on a CPU it is also deterministic, and twice as fast as the plain loop."""

ROUNDED_AWAY = 2.0**-25
"""A change of a float32 weight by less than this share of it is always rounded away: half an ulp is 2^-25 to 2^-24 of the weight."""


def make_optimizer(
    name: OptimizerName, parameters: Iterable[nn.Parameter], *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """An optimiser over the given parameters, with torch's own defaults where nothing is said here.

    - ``adamw``: Adam with betas 0.9 and 0.999; the decay is apart from the gradient, ``w -= a k w``.
    - ``adamax``: the same with the infinity norm, ``w -= a m / (1 - 0.9^t) / u``, ``u = max(0.999 u, |g| + eps)``.
    - ``adamax-no-momentum``: both betas 0, so ``w -= a g / (|g| + eps)``: the sign of the gradient, except that a component not far
      above ``eps`` = 1e-8 moves less, and one of exactly 0 does not move.
    - ``adadelta``: rho 0.9, eps 1e-6; its steps carry a unit of their own, so usable rates are near 1.
    - ``sgd``: no momentum, ``w -= a g``.

    In all but ``adamw`` the decay is added to the gradient, ``g + k w``, as torch does. Biases and norms decay like all other
    parameters: the source says nothing about leaving them out.

    Weights are float32, and an update below half an ulp, about ``6e-8 |w|``, is rounded away, however often it is repeated. At the
    regime's rate of 5e-8, where an ``adamw`` update is about as large, a weight near 1 does not follow: one of 0.9 moves in steps of
    6e-8, and a norm's gain of 1.1 (ulp 1.2e-7) does not move at all. Weights of 0.05, as most are, move as they should. The decay
    ``a k |w|`` of ``adamw`` has no effect on any weight unless ``a k`` is above `ROUNDED_AWAY`: at 5e-8 and the default of 0.01 it is
    sixty times below.

    Args:
        name: Which optimiser.
        parameters: What it updates; frozen ones (``requires_grad`` False) are left out, so that no decay and no state touches them.
        learning_rate: ``a``, > 0: the peak, which a schedule's factor multiplies.
        weight_decay: ``k``, >= 0.

    Returns:
        The optimiser, with one parameter group.

    Raises:
        ConfigError: If the name is unknown, a number is out of range, or no parameter is trainable.

    Reference:
        Loshchilov and Hutter 2019 (AdamW); Kingma and Ba 2015 (Adamax); Zeiler 2012 (Adadelta); source 000; mission A4.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    _check(name, trainable, learning_rate, weight_decay)
    if name == "adamw":
        fused = all(parameter.device.type in _FUSED_DEVICES for parameter in trainable)
        return torch.optim.AdamW(trainable, lr=learning_rate, weight_decay=weight_decay, fused=fused)
    if name == "adamax":
        return torch.optim.Adamax(trainable, lr=learning_rate, weight_decay=weight_decay)
    if name == "adamax-no-momentum":
        return torch.optim.Adamax(trainable, lr=learning_rate, betas=(0.0, 0.0), weight_decay=weight_decay)
    if name == "adadelta":
        return torch.optim.Adadelta(trainable, lr=learning_rate, weight_decay=weight_decay)
    return torch.optim.SGD(trainable, lr=learning_rate, weight_decay=weight_decay)


def _check(name: str, trainable: list[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
    """Raise ConfigError with everything that is wrong."""
    faults = []
    if name not in get_args(OptimizerName):
        faults.append(f'tune.optimizer must be one of {", ".join(get_args(OptimizerName))}, got "{name}"')
    if not (learning_rate > 0 and math.isfinite(learning_rate)):
        faults.append(f"tune.learning_rate must be above 0, got {learning_rate}")
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        faults.append(f"tune.weight_decay must be 0 or more, got {weight_decay}")
    if not trainable:
        faults.append("freeze must leave something to train, got no trainable parameter; remove a pattern")
    if faults:
        raise ConfigError(several(faults))
