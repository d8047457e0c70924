"""Which runs to add: those that would tell most about which of two kinds is ahead at a budget, for what they cost (mission B8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from adiabat.plan.intervals import Draws, Ensemble
from adiabat.plan.recipe import KindFit, Recommendation, laws_of, points_at
from adiabat.plan.runs import Option


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run that has not been made.

    Attributes:
        option: Model and method.
        budget: In FLOP.
        gain: By how much of itself the variance of the difference between the best and the runner-up is expected to fall.
    """

    option: Option
    budget: float
    gain: float


def narrowing(
    fits: Sequence[KindFit], found: Recommendation, options: Sequence[Option], budgets: Sequence[float], *, most: int = 3
) -> list[NextRun]:
    """The runs that narrow the answer most per operation.

    To first order, a run whose loss the laws of drawn runs do not agree on, and whose loss goes with the difference in question, takes
    ``cov(difference, loss)^2 / (var(loss) + noise^2)`` off the difference's variance; all of them logarithms.

    Args:
        fits: Of the kinds.
        found: What they recommend.
        options: That could be run.
        budgets: That they could be run at, in FLOP.
        most: How many.

    Returns:
        The best first; none where there is no runner-up.
    """
    if found.runner_up is None:
        return []
    laws = laws_of(fits)
    pair = [(one.option, laws[one.option.way.kind], one.tokens) for one in (found.best, found.runner_up)]
    first, second = (_logs(law, [option], found.budget, tokens)[:, 0] for option, law, tokens in pair)
    difference = first - second
    spread = float(np.var(difference))
    rated = []
    for option, budget in product((one for one in options if one.way.kind in laws), budgets):
        law = laws[option.way.kind]
        loss = _logs(law, [option], budget, None)[:, 0]
        shared = float(np.mean((difference - difference.mean()) * (loss - loss.mean())))
        gain = shared**2 / (float(np.var(loss)) + float(np.var(law.residuals))) / spread if spread else 0.0
        rated.append(NextRun(option, budget, gain))
    rated.sort(key=lambda one: -one.gain / one.budget)
    return rated[:most]


def _logs(law: Ensemble, options: Sequence[Option], budget: float, tokens: float | None) -> Draws:
    """Logarithms of the losses that each law of drawn runs predicts."""
    losses = law.draws(points_at(options, budget, tokens))
    # A law may say less than nothing where it does not hold.
    logs: Draws = np.log(np.maximum(losses, np.finfo(np.float64).tiny))
    return logs
