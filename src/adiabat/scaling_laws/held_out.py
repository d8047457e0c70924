"""Predictions of held-out budgets, and intervals that are widened until they hold these (split conformal
prediction).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import fmean

import numpy as np

from adiabat.scaling_laws.fitting import CONFIDENCE, Ensemble, Estimate, fit
from adiabat.scaling_laws.frontier import line_through
from adiabat.scaling_laws.laws import Kind, Option, Points, Run, points_of
from adiabat.scaling_laws.selection import REACH, choose_law

MOST_RESAMPLES = 200
"""Resamples of the law of a held-out budget."""

ENOUGH = math.ceil(1 / (1 - CONFIDENCE)) - 1
"""The fewest scores that reach the confidence: 19 for 95 %."""

APART = 1.5
"""Least factor between budgets that count as different: between nearer ones, noise outweighs what a law or a
line predicts."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The loss of a run by its method's runs of smaller budgets.

    Attributes:
        reach: Budget as a multiple of the largest budget that the law was fitted to.
        law: Loss by the law, with the interval of laws fitted to resampled runs.
        line: Loss by the straight line through the logarithms of the option's own losses by budget; None for
            an option with one budget.
        line_reach: Budget as a multiple of the option's largest budget behind the line.
    """

    kind: Kind
    run: Run
    reach: float
    law: Estimate
    line: float | None
    line_reach: float

    @property
    def law_score(self) -> float:
        """How far the logarithm of the loss lies outside of the law's interval; 0 within (Romano et al.
        2019).
        """
        below = math.log(self.law.low / self.run.loss)
        above = math.log(self.run.loss / self.law.high)
        return max(below, above, 0.0)

    @property
    def law_error(self) -> float:
        """``|ln(predicted / loss)|`` of the law."""
        return abs(math.log(self.law.value / self.run.loss))

    @property
    def line_error(self) -> float | None:
        """The same of the line, which is its score."""
        return None if self.line is None else abs(math.log(self.line / self.run.loss))


def predictions(
    runs: Sequence[Run], *, resamples: int, seed: int, note: Callable[[], None] = lambda: None
) -> list[Prediction]:
    """The runs of a kind at each budget, predicted from those of smaller budgets alone; the choice of a law
    included.

    Smaller budgets are those below by a factor of at least `APART`; budgets with the same smaller ones are
    held out together. Budgets whose smaller ones do not suffice for a law are left out. Resampled laws that
    predict a negative loss are not used, as in plans.
    """
    below = {}
    for run in runs:
        # The largest budget that is clearly smaller; 0 where there is none.
        smaller_budgets = [one.budget for one in runs if APART * one.budget <= run.budget]
        below[run.budget] = max(smaller_budgets, default=0.0)
    predicted = []
    for largest in sorted(set(below.values())):
        smaller = [run for run in runs if run.budget <= largest]
        held_out = [run for run in runs if below[run.budget] == largest]
        laws = _by_law(smaller, held_out, min(resamples, MOST_RESAMPLES), seed)
        note()
        for run, law in zip(held_out, laws, strict=False):
            prediction = Prediction(
                kind=run.option.way.kind,
                run=run,
                reach=run.budget / largest,
                law=law,
                line=line_at(run.option, run.budget, smaller),
                line_reach=run.budget / largest_budget(run.option, smaller, default=largest),
            )
            predicted.append(prediction)
    return predicted


def largest_budget(option: Option, runs: Sequence[Run], *, default: float) -> float:
    """The largest budget of an option's runs."""
    return max((run.budget for run in runs if run.option == option), default=default)


def _by_law(smaller: Sequence[Run], held_out: Sequence[Run], resamples: int, seed: int) -> list[Estimate]:
    """Losses by the law of runs of smaller budgets; none where these do not suffice for a law."""
    if not smaller:
        return []
    points = points_of(smaller)
    asked = points_of(held_out)
    tokens = np.concatenate([asked.tokens, REACH * asked.tokens])
    # Also beyond the budget in question, as a plan asks of its law.
    reached = Points(np.tile(asked.size, 2), tokens, np.tile(asked.share, 2), np.tile(asked.loss, 2))
    choice = choose_law(points, np.array([run.budget for run in smaller]), reached)
    if choice is None:
        return []
    ensemble = Ensemble.of(fit(choice.law, points), points, resamples=resamples, seed=seed)
    draws = ensemble.draws(asked)
    sound = draws[(draws > 0).all(axis=1)]
    return ensemble.estimates(asked, sound) if len(sound) else []


def line_at(option: Option, budget: float, runs: Sequence[Run]) -> float | None:
    """An option's loss at a budget, by the least-squares line through the logarithms of its losses and
    budgets; None for one budget.

    Budgets within a factor of `APART` count as one.
    """
    same = [run for run in runs if run.option == option]
    budgets = np.array([run.budget for run in same])
    if not same or budgets.max() < APART * budgets.min():
        return None
    return line_through(budgets, np.array([run.loss for run in same])).at(budget)


@dataclass(frozen=True, slots=True)
class Width:
    """How far an interval reaches beyond what it is centred on, so that it holds held-out losses.

    Attributes:
        size: Logarithm of the factor.
        level: Least probability that the interval holds one more loss, if losses to come are like those that
            were held out.
        scores: Number of held-out losses behind it.
    """

    size: float
    level: float
    scores: int

    def around(self, low: float, high: float) -> tuple[float, float]:
        """An interval, widened at both ends."""
        return low * math.exp(-self.size), high * math.exp(self.size)


def width_of(scores: Sequence[float], confidence: float = CONFIDENCE) -> Width | None:
    """The score that the next one exceeds with a probability of at most ``1 - confidence``; None without
    scores.

    Of ``n`` exchangeable scores it is the ``ceil(confidence (n + 1))``-th smallest (Vovk et al. 2005; Lei et
    al. 2018, section 2.2). With fewer than ``1 / (1 - confidence) - 1`` scores no number has that property:
    the largest score is taken, whose level is ``n / (n + 1)``.
    """
    if not scores:
        return None
    count = len(scores)
    # Rounded first: 0.95 * 20 is a little more than 19 in floating point.
    rank = min(math.ceil(round(confidence * (count + 1), 9)), count)
    level = min(confidence, count / (count + 1))
    return Width(sorted(scores)[rank - 1], level, count)


@dataclass(frozen=True, slots=True)
class Widths:
    """Widths of the intervals of a law and of a straight line; None where no loss was held out."""

    law: Width | None
    line: Width | None


def widths(predicted: Sequence[Prediction], family: str, reach: float, line_reach: float) -> Widths:
    """Widths for a family's options at `reach` times the largest budget of their method, and `line_reach`
    times that of their lines.

    Errors belong to a family, so that its own scores are used where they are enough (`ENOUGH`), those of all
    families otherwise. The largest held-out budgets come first, as laws of fewer budgets err more; smaller
    ones are added, whole, until the scores are enough. Scores grow in proportion to ``ln reach`` beyond that
    of their own prediction, and never shrink.
    """
    laws = [(one, one.law_score * _further(one.reach, reach)) for one in predicted]
    lines = []
    for one in predicted:
        if one.line_error is not None:
            lines.append((one, one.line_error * _further(one.line_reach, line_reach)))
    return Widths(_width(laws, family), _width(lines, family))


def _width(scored: Sequence[tuple[Prediction, float]], family: str) -> Width | None:
    own = [pair for pair in scored if pair[0].kind.family == family]
    chosen: list[float] = []
    pool = own if len(own) >= ENOUGH else scored
    for budget in sorted({one.run.budget for one, _ in pool}, reverse=True):
        if len(chosen) < ENOUGH:
            chosen += [score for one, score in pool if one.run.budget == budget]
    return width_of(chosen)


def _further(tested: float, reach: float) -> float:
    """How much further `reach` extrapolates than a prediction was tested, in logarithms; at least 1."""
    distance = math.log(max(reach, 1.0))
    return max(1.0, distance / math.log(tested))


@dataclass(frozen=True, slots=True)
class Coverage:
    """Predictions of the largest budget from smaller ones, beside its losses.

    Attributes:
        family: None for all families together.
        runs: Number of predicted runs.
        law_error: Mean ``|ln(predicted / loss)|`` of the laws.
        line_error: That of the straight lines; None without any.
        nominal: Number of losses within the 95 % intervals of laws fitted to resampled runs.
        widened: Number within the widened intervals, whose widths come from smaller budgets alone; None if
            none of these was held out.
        line: Number within the intervals of straight lines, likewise.
        lines: Number of runs that have a straight line.
        regret: Loss of the option with the least predicted loss, as a share above the least loss.
    """

    family: str | None
    runs: int
    law_error: float
    line_error: float | None
    nominal: int
    widened: int | None
    line: int | None
    lines: int
    regret: float


def coverages(predicted: Sequence[Prediction]) -> list[Coverage]:
    """Coverage of all families, then of each where there are several; empty where no budget could be held
    out.

    Budgets within a factor of `APART` of the largest count as it.
    """
    if not predicted:
        return []
    largest = max(one.run.budget for one in predicted)
    tested = [one for one in predicted if APART * one.run.budget > largest]
    before = [one for one in predicted if APART * one.run.budget <= largest]
    by_family: dict[str | None, list[Prediction]] = {}
    for one in tested:
        by_family.setdefault(one.kind.family, []).append(one)
    if len(by_family) > 1:
        by_family = {None: tested, **by_family}
    return [_coverage(family, group, before) for family, group in by_family.items()]


def _coverage(family: str | None, tested: Sequence[Prediction], before: Sequence[Prediction]) -> Coverage:
    line_errors = []
    by_law = []
    by_line = []
    for one in tested:
        wide = widths(before, one.kind.family, one.reach, one.line_reach)
        if wide.law is not None:
            by_law.append(one.law_score <= wide.law.size)
        if one.line_error is not None:
            line_errors.append(one.line_error)
            if wide.line is not None:
                by_line.append(one.line_error <= wide.line.size)
    best = min(tested, key=attrgetter("law.value"))
    return Coverage(
        family=family,
        runs=len(tested),
        law_error=fmean(one.law_error for one in tested),
        line_error=fmean(line_errors) if line_errors else None,
        nominal=sum(one.law_score == 0 for one in tested),
        widened=sum(by_law) if by_law else None,
        line=sum(by_line) if by_line else None,
        lines=len(line_errors),
        regret=best.run.loss / min(one.run.loss for one in tested) - 1,
    )
