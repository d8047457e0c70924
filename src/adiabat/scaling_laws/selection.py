"""Selection of a law by its held-out error, and the rank correlation of losses and task scores."""

import math
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

import numpy as np
from jaxtyping import Bool, Float

from adiabat.scaling_laws.fitting import Estimate, Fitted, estimate, fit, missing
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Column, Law, Points

LAWS = (SIZE_AND_TOKENS, ONE_SHARE, SHARE)
"""Laws to choose from; the first needs the fewest runs."""

REACH = 4.0
"""Multiple of the budget up to which a law must predict positive losses: options whose losses turn negative
first would seem the best."""

SAME_BUDGET = 1.01
"""Largest factor between budgets that count as one: counted operations of one planned budget differ by the
last step of a run."""

MIN_RUNS = 4
"""Minimum number of distinct losses and scores for a rank correlation."""

HeldOutRuns = Bool[np.ndarray, " p"]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """A law fitted without some runs, and its mean ``|ln(predicted / loss)|`` over those runs; infinite if a
    prediction is negative.
    """

    fitted: Fitted
    distance: float

    @property
    def error(self) -> float:
        """The distance as a share of the loss."""
        return math.expm1(self.distance)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenLaw:
    """The law of a kind.

    Attributes:
        without_model: Fitted without the largest model; None if too few runs remain.
        without_budget: Fitted without the largest budget; None likewise. Both errors are slightly optimistic,
            as the best of several laws.
        passed_over: Laws with smaller errors that predict negative losses for the options.
    """

    law: Law
    without_model: HeldOut | None
    without_budget: HeldOut | None
    passed_over: tuple[Law, ...] = ()

    @property
    def distance(self) -> float:
        """Mean distance from held-out runs of both kinds; 0 if none could be held out."""
        both = (self.without_model, self.without_budget)
        distances = [held_out.distance for held_out in both if held_out is not None]
        return fmean(distances) if distances else 0.0


def choose_law(
    points: Points, budgets: Float[np.ndarray, " p"], asked: Points | None = None
) -> ChosenLaw | None:
    """The law that best predicts the losses of the largest model and of the largest budget when fitted
    without them.

    Ziarko et al. 2024 (appendix F) hold out only the largest model. A plan, however, extrapolates known sizes
    to an unknown budget, and a
    law that fits one well may predict negative losses for the other. Such a law is rejected: losses must be
    positive at the options `asked`. The simplest law is positive everywhere; it is also used if too few runs
    remain without either. None if there are too few runs for any law.
    """
    possible = [law for law in LAWS if not any(missing(law, points))]
    if not possible:
        return None
    largest_model = points.size == points.size.max()
    largest_budget = SAME_BUDGET * budgets >= budgets.max()
    splits = [mask for mask in (largest_model, largest_budget) if _is_enough(possible[0], points, mask)]
    ranked = []
    for law in possible:
        # Laws are only compared over the same held-out runs.
        if all(_is_enough(law, points, mask) for mask in splits):
            model = _held_out(law, points, largest_model)
            ranked.append(ChosenLaw(law, model, _held_out(law, points, largest_budget)))
    ranked.sort(key=attrgetter("distance"))
    rank = next(rank for rank, choice in enumerate(ranked) if _is_positive(choice.law, points, asked))
    return replace(ranked[rank], passed_over=tuple(choice.law for choice in ranked[:rank]))


def _is_positive(law: Law, points: Points, asked: Points | None) -> bool:
    """Whether the law of some runs predicts positive losses; weights of some laws may have any sign."""
    return asked is None or all(law.positive) or bool((fit(law, points).predict(asked) > 0).all())


def _is_enough(law: Law, points: Points, held_out: HeldOutRuns) -> bool:
    return not any(missing(law, points.taken(~held_out)))


def _held_out(law: Law, points: Points, mask: HeldOutRuns) -> HeldOut | None:
    """The law without some runs; None if the others do not suffice for it."""
    if not _is_enough(law, points, mask):
        return None
    fitted = fit(law, points.taken(~mask))
    runs = points.taken(mask)
    return HeldOut(fitted, _distance(fitted.predict(runs), runs.loss))


def _distance(predicted: Column, loss: Column) -> float:
    # A prediction of 0 or less counts as infinitely far.
    with np.errstate(divide="ignore"):
        return float(np.abs(np.log(np.maximum(predicted, 0) / loss)).mean())


def rank_correlation(
    loss: Float[np.ndarray, " p"], score: Float[np.ndarray, " p"], *, resamples: int = 1_000, seed: int = 0
) -> Estimate | None:
    """Spearman's correlation of losses and scores, with the interval of resampled runs (Ziarko et al. 2024,
    appendix C).

    It is negative if lower losses go with higher scores, and None for fewer than `MIN_RUNS` distinct losses
    or scores. Resamples with a single loss or score are redrawn.
    """
    if min(len(np.unique(loss)), len(np.unique(score))) < MIN_RUNS:
        return None
    # Imported here: scipy.stats takes a second to load, and only measured tasks need it.
    from scipy.stats import rankdata, spearmanr

    generator = np.random.default_rng(seed)
    draws: list[float] = []
    while len(draws) < resamples:
        rows = generator.integers(0, len(loss), len(loss))
        if len(np.unique(loss[rows])) > 1 and len(np.unique(score[rows])) > 1:
            draws.append(float(np.corrcoef(rankdata(loss[rows]), rankdata(score[rows]))[0, 1]))
    return estimate(float(spearmanr(loss, score).statistic), np.array(draws))
