"""Which law is fitted to runs: the one with the smallest held-out error. Rank correlation of losses and task scores."""

import math
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from jaxtyping import Bool, Float

from adiabat.scaling_laws.fitting import Fitted, fit, missing
from adiabat.scaling_laws.law_intervals import Estimate, estimate
from adiabat.scaling_laws.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Column, Law, Points

LAWS = (SIZE_AND_TOKENS, ONE_SHARE, SHARE)
"""The one that the fewest runs suffice for comes first."""

REACH = 4.0
"""How many times the asked budget a law must give losses up to: one that is about to fall below 0 says nothing about which option is best,
for the options that fall first seem to be."""

Chosen = Bool[np.ndarray, " p"]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """A law that was fitted without some runs.

    Attributes:
        fitted: To the others.
        distance: Mean of ``|ln(predicted / loss)|`` over those runs; infinite where a prediction is no loss.
    """

    fitted: Fitted
    distance: float

    @property
    def error(self) -> float:
        """The same as a part of the loss."""
        return math.expm1(self.distance)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenLaw:
    """The law that was chosen for a kind.

    Attributes:
        law: Its form.
        without_model: Fitted without the largest model; None where too few runs are left for that.
        without_budget: Fitted without the largest budget; None likewise. Both are the best of the laws that were tried, and so a little
            too good.
        passed_over: Laws that come closer, and fall below 0 where they are asked.
    """

    law: Law
    without_model: HeldOut | None
    without_budget: HeldOut | None
    passed_over: tuple[Law, ...] = ()

    @property
    def distance(self) -> float:
        """How far it is from runs that it has not seen: the mean of both kinds; 0 where it could not be tried."""
        return fmean([one.distance for one in (self.without_model, self.without_budget) if one is not None] or [0.0])


def choose_law(points: Points, budgets: Float[np.ndarray, " p"], asked: Points | None = None) -> ChosenLaw | None:
    """The law that comes closest to the losses of the largest model, and of the largest budget, when it is fitted without them.

    The source holds out the largest model alone. But a plan is asked for sizes that there are, at a budget that there is not, and a law
    that serves for the one may reach losses below 0 at the other. Such a law is not taken, whatever it says of single options: the
    simplest one is above 0 everywhere.

    Args:
        points: Runs of one kind.
        budgets: Of each, in FLOP.
        asked: Where the law must give losses; None asks nothing.

    Returns:
        The law; where too few runs are left without either, the simplest. None if there are too few for any law at all.

    Reference:
        Ziarko et al. 2024, appendix F.
    """
    possible = [law for law in LAWS if not any(missing(law, points))]
    if not possible:
        return None
    parts = tuple(_if_enough(possible[0], points, out) for out in (points.size == points.size.max(), budgets == budgets.max()))
    known = [out for out in parts if out is not None]
    tried = [law for law in possible if all(_if_enough(law, points, out) is not None for out in known)]
    found = sorted((_chosen(law, points, parts[0], parts[1]) for law in tried), key=lambda one: one.distance)
    place = next(place for place, one in enumerate(found) if asked is None or _holds(one.law, points, asked))
    return replace(found[place], passed_over=tuple(one.law for one in found[:place]))


def _chosen(law: Law, points: Points, model: Chosen | None, budget: Chosen | None) -> ChosenLaw:
    return ChosenLaw(law, _held_out(law, points, model), _held_out(law, points, budget))


def _holds(law: Law, points: Points, asked: Points) -> bool:
    """Whether losses are what the law gives: weights of some laws may have any sign."""
    return all(law.positive) or bool((fit(law, points).predict(asked) > 0).all())


def _if_enough(law: Law, points: Points, out: Chosen) -> Chosen | None:
    """The runs to be held out; None where too few are left without them."""
    return None if any(missing(law, points.taken(~out))) else out


def _held_out(law: Law, points: Points, out: Chosen | None) -> HeldOut | None:
    if out is None:
        return None
    fitted, runs = fit(law, points.taken(~out)), points.taken(out)
    return HeldOut(fitted, _distance(fitted.predict(runs), runs.loss))


def _distance(predicted: Column, loss: Column) -> float:
    with np.errstate(divide="ignore"):
        return float(np.abs(np.log(np.maximum(predicted, 0) / loss)).mean())


LEAST = 4
"""Runs without which a rank correlation says nothing."""


def rank_correlation(
    loss: Float[np.ndarray, " p"], score: Float[np.ndarray, " p"], *, resamples: int = 1_000, seed: int = 0
) -> Estimate | None:
    """Spearman's correlation of losses and scores, with the interval of runs drawn again.

    Args:
        loss: Of each run.
        score: Of each run.
        resamples: How often runs are drawn again; draws in which all losses or all scores are alike are drawn again.
        seed: Of the draws.

    Returns:
        In [-1, 1]: below 0 where a lower loss goes with a higher score; None of fewer than `LEAST` different losses or scores.

    Reference:
        Ziarko et al. 2024, appendix C.
    """
    if min(len(np.unique(loss)), len(np.unique(score))) < LEAST:
        return None
    # Imported here: scipy.stats takes a second to load, and only measured tasks need it.
    from scipy.stats import spearmanr

    generator = np.random.default_rng(seed)
    draws: list[float] = []
    while len(draws) < resamples:
        rows = generator.integers(0, len(loss), len(loss))
        if len(np.unique(loss[rows])) > 1 and len(np.unique(score[rows])) > 1:
            draws.append(_correlation(loss[rows], score[rows]))
    return estimate(float(spearmanr(loss, score).statistic), np.array(draws))


def _correlation(loss: Float[np.ndarray, " p"], score: Float[np.ndarray, " p"]) -> float:
    from scipy.stats import rankdata

    return float(np.corrcoef(rankdata(loss), rankdata(score))[0, 1])
