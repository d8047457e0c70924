"""Which runs to add: those that would tell most about which of two kinds is ahead at a budget, for what they cost (mission B8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from adiabat.plan.intervals import Ensemble
from adiabat.plan.recipe import KindFit, Recommendation, laws_of, points_at
from adiabat.plan.runs import Option

LEAST_SOUND = 0.5
"""Share of the laws of drawn runs that must give losses, for what they say to be looked at."""

SETTLED = 1e-18
"""Variance of the logarithm of a loss, or of the difference of two, that is that of rounding alone."""


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run that could be made.

    Attributes:
        option: Model and method.
        budget: In FLOP.
        gain: By how much of itself the variance of the difference between the best and the runner-up is expected to fall, beside the runs
            that are proposed before this one.
    """

    option: Option
    budget: float
    gain: float


def narrowing(
    fits: Sequence[KindFit],
    found: Recommendation,
    possible: Sequence[tuple[Option, float]],
    *,
    data_tokens: float | None = None,
    most: int = 3,
) -> list[NextRun]:
    """The runs that narrow the answer most per operation, one after the other.

    To first order a run takes ``cov(difference, loss)^2 / (var(loss) + noise^2)`` off the variance of the difference in question, and as
    much as goes with it off every other's; all of them logarithms, over the laws of runs drawn again. What so few draws show by chance is
    taken off first.

    Args:
        fits: Of the kinds.
        found: What they recommend.
        possible: Options with budgets in FLOP; those of other kinds than the best's and the runner-up's tell nothing, and are left out.
        data_tokens: Most tokens of a run; None sets no limit.
        most: How many.

    Returns:
        The best first; none where there is no runner-up, nothing tells more than chance, or laws of drawn runs seldom give losses.
    """
    if found.runner_up is None:
        return []
    laws = laws_of(fits)
    pair = (found.best, found.runner_up)
    asked = [(option, budget) for option, budget in possible if option.way.kind in {one.option.way.kind for one in pair}]
    if not asked:
        return []
    both = [_draws(laws[one.option.way.kind], one.option, one.flops, None) for one in pair]
    drawn = np.stack([*both, *(_draws(laws[option.way.kind], option, budget, data_tokens) for option, budget in asked)])
    # A law of drawn runs may say less than nothing: it says nothing of the others either.
    sound = drawn[:, (drawn > 0).all(axis=0)]
    if sound.shape[1] < LEAST_SOUND * drawn.shape[1]:
        return []
    first, second, *losses = np.log(sound)
    noise = np.array([float(np.var(laws[option.way.kind].residuals)) for option, _ in asked])
    budgets = np.array([budget for _, budget in asked])
    picked = _picked(np.stack([first - second, *losses]), noise, budgets, most)
    return [NextRun(*asked[place], gain) for place, gain in picked]


def _picked(
    draws: Float[np.ndarray, "r d"], noise: Float[np.ndarray, " r1"], budgets: Float[np.ndarray, " r1"], most: int
) -> list[tuple[int, float]]:
    """Numbers of runs with their gains; the first row of draws is the difference, the others are runs."""
    covariance, count = np.cov(draws), draws.shape[1]
    whole, picked, free = covariance[0, 0], list[tuple[int, float]](), np.ones(len(noise), dtype=bool)
    if whole <= SETTLED:
        return []
    for _ in range(most):
        told = np.maximum(np.diagonal(covariance)[1:] + noise, SETTLED)
        # Of draws that have nothing to do with one another, one in so many seems to be explained.
        shares = np.where(free, covariance[0, 1:] ** 2 / (told * whole) - 1 / (count - 1), 0.0)
        best = int(np.argmax(shares / budgets))
        if shares[best] <= 0:
            break
        picked.append((best, float(shares[best])))
        free[best] = False
        row = covariance[best + 1]
        covariance = covariance - np.outer(row, row) / told[best]
    return picked


def _draws(law: Ensemble, option: Option, budget: float, tokens: float | None) -> Float[np.ndarray, " d"]:
    """Losses that each law of drawn runs predicts for an option."""
    losses: Float[np.ndarray, " d"] = law.draws(points_at([(option, budget)], tokens))[:, 0]
    return losses
