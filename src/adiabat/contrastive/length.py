"""How many steps a training run takes: by settings and pairs, or by what a budget pays for (mission B5)."""

import math
from collections.abc import Callable

from adiabat.config import TrainSection
from adiabat.errors import BudgetError

MOST_STEPS = 1_000_000
"""That a budget may pay for: the batch of each is drawn before the first, to know what it costs."""


def steps_of(section: TrainSection, pairs: int) -> int:
    """Optimiser steps of a run."""
    return section.steps or max(1, math.ceil(section.epochs * pairs / section.batch_size - 1e-9))


def steps_within(budget: float, cost: Callable[[int], float], *, setting: str = "budget_flops", unit: str = "FLOP") -> int:
    """Steps that a budget pays for."""
    first = cost(0)
    if first > budget:
        raise BudgetError(
            f"train.{setting} must pay for a step, which takes {first:.3g} {unit}, got {budget:.3g}; raise it, or lower train.batch_size"
        )
    if budget > MOST_STEPS * first:
        raise BudgetError(
            f"train.{setting} must pay for about {MOST_STEPS:,} steps of {first:.3g} {unit} at the most, got {budget:.3g}; lower it"
        )
    spent, steps = first, 1
    while (spent := spent + cost(steps)) <= budget:
        steps += 1
    return steps
