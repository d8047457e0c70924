"""Which model, how many tokens, which method for a budget: read off the laws of each family and method (Ziarko et al. 2024).

Every option that runs know is asked what its kind's law predicts for it at the tokens that the budget pays for; the least prediction is
the recommendation. How sure it is follows from the same question put to laws fitted to runs drawn again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.core.errors import ConfigError, DataError
from adiabat.scaling_laws.fitting import fit, missing
from adiabat.scaling_laws.frontier import Trend, frontier, optimal_sizes
from adiabat.scaling_laws.law_intervals import Draws, Ensemble, Estimate
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS, Kind, Option, Points, Run, points_of, usable
from adiabat.scaling_laws.selection import REACH, ChosenLaw, choose_law


@dataclass(frozen=True, slots=True, eq=False)
class KindFit:
    """What the runs of one family and method say.

    Attributes:
        kind: Family and method.
        runs: Those with a loss.
        law: Fitted; None where there are too few runs for any.
        choice: Why that law; None likewise.
        frontier: Line of the least loss by budget; None of one budget.
        growth: Line of the best size by budget; None where fewer than two budgets have one.
        why_not: What is missing for a law; "" where there is one.
    """

    kind: Kind
    runs: list[Run]
    law: Ensemble | None
    choice: ChosenLaw | None
    frontier: Trend | None
    growth: Trend | None
    why_not: str


def fit_kinds(
    runs: Sequence[Run],
    *,
    asked: Mapping[Option, float] | None = None,
    data_tokens: float | None = None,
    resamples: int = 1_000,
    seed: int = 0,
    note: Callable[[Kind, int], None] = lambda kind, done: None,
) -> list[KindFit]:
    """Fit the law and frontier of each family and method.

    Args:
        runs: Of any.
        asked: Options and budgets in FLOP that laws are for: those taken give losses there and up to `REACH` times that. None: nothing.
        data_tokens: That there are to train on, so that no law is asked for more; None sets no limit.
        resamples: How often runs are drawn again.
        seed: Of the draws.
        note: Told the kind, and how many of its draws are done.

    Returns:
        One for each kind that has runs with a loss, in the order of their first run.

    Raises:
        DataError: If no run has a loss.
    """
    kept = usable(runs)
    if not kept:
        raise DataError(f"runs must have at least one with a loss above 0, got {len(runs)} runs without; look at why they failed")
    kinds = list(dict.fromkeys(run.option.way.kind for run in kept))
    reached = {kind: _reached(kind, asked or {}, data_tokens) for kind in kinds}
    return [
        _fit_kind(kind, [run for run in kept if run.option.way.kind == kind], reached[kind], resamples, seed + place, note)
        for place, kind in enumerate(kinds)
    ]


def _reached(kind: Kind, asked: Mapping[Option, float], data_tokens: float | None) -> Points | None:
    """Where the law of a kind is asked."""
    own = [(option, times * budget) for option, budget in asked.items() if option.way.kind == kind for times in (1.0, REACH)]
    return points_at(own, data_tokens) if own else None


def _fit_kind(kind: Kind, runs: list[Run], asked: Points | None, resamples: int, seed: int, note: Callable[[Kind, int], None]) -> KindFit:
    points, budgets = points_of(runs), np.array([run.budget for run in runs])
    choice = choose_law(points, budgets, asked)
    if choice is None:
        why_not = " and ".join(missing(SIZE_AND_TOKENS, points))
        return KindFit(kind, runs, None, None, *_lines(budgets, points, None, resamples, seed), why_not)
    ensemble = Ensemble.of(fit(choice.law, points), points, resamples=resamples, seed=seed, note=lambda done: note(kind, done))
    return KindFit(kind, runs, ensemble, choice, *_lines(budgets, points, ensemble.residuals, resamples, seed), "")


def _lines(
    budgets: Float[np.ndarray, " p"], points: Points, residuals: Float[np.ndarray, " p"] | None, resamples: int, seed: int
) -> tuple[Trend | None, Trend | None]:
    """Of the least loss and of the best size, where there are two budgets."""
    if len(np.unique(budgets)) < 2:
        return None, None
    least = frontier(budgets, points.loss, residuals=residuals, resamples=resamples, seed=seed)
    return least, optimal_sizes(budgets, points.size, points.loss, residuals=residuals, resamples=resamples, seed=seed)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option at a budget.

    Attributes:
        option: Model and method.
        tokens: That the budget pays for, or that there are.
        flops: That these take.
        law: Predicted loss, with the interval of the law.
        run: The same, with the interval of one run.
        wins: Share of laws fitted to runs drawn again by which it is the best of all.
    """

    option: Option
    tokens: float
    flops: float
    law: Estimate
    run: Estimate
    wins: float = 0.0


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to train.

    Attributes:
        budget: That the best option was asked for, in FLOP.
        best: Of all candidates.
        runner_up: The best of another kind; None where only one has a law.
        sure: Share of laws fitted to runs drawn again by which `best`'s kind stays ahead of all others.
        candidates: All that a law predicts, the least predicted loss first.
        unsound: Kinds of which some laws fitted to runs drawn again fall below 0 for a candidate, and so say nothing of any, to the share
            of these laws.
    """

    budget: float
    best: Candidate
    runner_up: Candidate | None
    sure: float
    candidates: list[Candidate]
    unsound: Mapping[Kind, float]


def laws_of(fits: Sequence[KindFit]) -> dict[Kind, Ensemble]:
    """The kinds that have a law.

    Args:
        fits: Of all kinds.

    Returns:
        Their laws.

    Raises:
        DataError: If none has one; says what each lacks.
    """
    laws = {one.kind: one.law for one in fits if one.law is not None}
    if not laws:
        lacks = "; ".join(f"{one.kind} lacks {one.why_not}" for one in fits)
        raise DataError(f"runs must suffice for the law of a method, got none: {lacks}; add runs to the scaling experiment")
    return laws


def recommend(
    fits: Sequence[KindFit], budgets: Mapping[Option, float], *, data_tokens: float | None = None, seed: int = 0
) -> Recommendation:
    """The option with the least predicted loss at its budget.

    Args:
        fits: Of the kinds, for these budgets (`fit_kinds`'s `asked`).
        budgets: Options to choose from, each with its budget in FLOP, > 0: the same, or what each can spend in the same time.
        data_tokens: That there are to train on; where the budget pays for more, the rest of it is left. None sets no limit.
        seed: Of the noise of single runs.

    Returns:
        The choice.

    Raises:
        DataError: If no kind has a law, one was fitted for other budgets and gives no losses at these, or no runs drawn again give any.
        ConfigError: If no option is of a kind that has one.
    """
    laws = laws_of(fits)
    asked = {kind: own for kind in laws if (own := {one: budget for one, budget in budgets.items() if one.way.kind == kind})}
    if not asked:
        raise ConfigError("options must hold one of a method that has a law, got none; allow more memory, or name other models")
    found: list[Candidate] = []
    draws: dict[Kind, Draws] = {}
    unsound: dict[Kind, float] = {}
    for kind, own in asked.items():
        points = points_at(list(own.items()), data_tokens)
        if (least := float(laws[kind].fitted.predict(points).min())) <= 0:
            raise DataError(f"laws must give losses above 0 at the budget, got {least:.3g}; fit them for it (asked)")
        draws[kind], lost = _sound(laws[kind].draws(points))
        if lost:
            unsound[kind] = lost
        found += _candidates(list(own), points, laws[kind], draws[kind], seed)
    return _recommendation(budgets, found, draws, unsound)


def _sound(draws: Draws) -> tuple[Float[np.ndarray, "sound p"], float]:
    """Draws that give losses for all options, and the share of the others: a law below 0 would win whatever else it says."""
    sound = draws[(draws > 0).all(axis=1)]
    if not len(sound):
        raise DataError("laws of runs drawn again must give losses above 0 at the budget, got none that does; add runs, or ask for less")
    return sound, 1 - len(sound) / len(draws)


def _recommendation(
    budgets: Mapping[Option, float], found: list[Candidate], draws: Mapping[Kind, Draws], unsound: Mapping[Kind, float]
) -> Recommendation:
    # Kinds are drawn apart from one another, so that any draws of them make a pair.
    count = min(len(own) for own in draws.values())
    draws = {kind: own[:count] for kind, own in draws.items()}
    every = np.concatenate(list(draws.values()), axis=1)
    wins = np.bincount(every.argmin(axis=1), minlength=len(found)) / len(every)
    found = [replace(one, wins=float(share)) for one, share in zip(found, wins, strict=True)]
    found.sort(key=lambda one: one.law.value)
    best = found[0]
    others = [one for one in found if one.option.way.kind != best.option.way.kind]
    return Recommendation(
        budget=budgets[best.option],
        best=best,
        runner_up=others[0] if others else None,
        sure=_sure(best.option.way.kind, {kind: own.min(axis=1) for kind, own in draws.items()}),
        candidates=found,
        unsound=unsound,
    )


def points_at(budgets: Sequence[tuple[Option, float]], data_tokens: float | None = None) -> Points:
    """Options at the tokens that their budgets pay for.

    Args:
        budgets: At least one option, each with its budget in FLOP, > 0.
        data_tokens: Most tokens; None sets no limit.

    Returns:
        A point for each, with a loss of 1 that nothing looks at.
    """
    sizes = np.array([float(option.size) for option, _ in budgets])
    tokens = np.minimum(np.array([budget / option.flops_per_token for option, budget in budgets]), data_tokens or np.inf)
    return Points(sizes, tokens, np.array([option.share for option, _ in budgets]), np.ones(len(budgets)))


def _candidates(options: Sequence[Option], points: Points, ensemble: Ensemble, draws: Draws, seed: int) -> Iterator[Candidate]:
    estimates = zip(ensemble.estimates(points, draws), ensemble.estimates(points, ensemble.noisy(draws, seed)), strict=True)
    for option, tokens, (law, run) in zip(options, points.tokens.tolist(), estimates, strict=True):
        yield Candidate(option, tokens, tokens * option.flops_per_token, law, run)


def _sure(best: Kind, least: Mapping[Kind, Float[np.ndarray, " d"]]) -> float:
    """How often the best option of a kind stays ahead of those of all others."""
    others = [own for kind, own in least.items() if kind != best]
    if not others:
        return 1.0
    # Where they are equal, neither is ahead.
    return float(np.mean((1 + np.sign(np.min(others, axis=0) - least[best])) / 2))


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
