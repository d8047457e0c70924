"""The model, tokens and method for a budget, from the laws of each family and method (Ziarko et al. 2024).

The law of each kind predicts the loss of every known option at the tokens that the budget pays for. The
lowest prediction is the recommendation; laws fitted to resampled runs show how certain it is.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from jaxtyping import Float

from adiabat.core.errors import ConfigError, DataError
from adiabat.scaling_laws.fitting import Draws, Ensemble, Estimate, fit, missing
from adiabat.scaling_laws.frontier import Trend, frontier, noisy_losses, optimal_sizes
from adiabat.scaling_laws.held_out import Prediction, largest_budget, line_at, predictions, widths
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS, Kind, Option, Points, Run, points_of
from adiabat.scaling_laws.selection import REACH, ChosenLaw, choose_law

LEAST_SOUND = 0.5
"""Share of the resampled laws that must predict positive losses for `narrowing` to use them."""

SETTLED = 1e-18
"""Variance of the logarithm of a loss, or of the difference of two, that is rounding error alone."""


@dataclass(frozen=True, slots=True, eq=False)
class KindFit:
    """The law and the frontier of one family and method.

    Attributes:
        law: None if there are too few runs for any.
        choice: Selection of that law; None likewise.
        frontier: Line of the least loss by budget; None of one budget.
        growth: Line of the best size by budget; None if fewer than two budgets have one.
        why_not: What is missing for a law; "" if there is one.
        held_out: Its budgets, each predicted from smaller ones.
    """

    kind: Kind
    runs: list[Run]
    law: Ensemble | None
    choice: ChosenLaw | None
    frontier: Trend | None
    growth: Trend | None
    why_not: str
    held_out: list[Prediction] = field(default_factory=list)


def fit_kinds(
    runs: Sequence[Run],
    *,
    asked: Mapping[Option, float] | None = None,
    data_tokens: float | None = None,
    resamples: int = 1_000,
    seed: int = 0,
    note: Callable[[Kind, int], None] = lambda kind, done: None,
) -> list[KindFit]:
    """Fit the law and frontier of each family and method that has runs with a loss, in the order of their
    first run.

    A DataError tells that none has one. At the `asked` options with budgets in FLOP, and up to `REACH` times
    these, laws must predict positive losses. No law is used beyond `data_tokens`, the tokens of the training
    data; None sets no limit. `note` receives the kind and the number of its finished resamples.
    """
    by_kind = _by_kind(runs)
    if not by_kind:
        raise DataError(
            f"runs must have at least one with a loss above 0, got {len(runs)} "
            "runs without; check why they failed"
        )
    fits = []
    for number, (kind, kind_runs) in enumerate(by_kind.items()):
        budgets = []
        for option, budget in (asked or {}).items():
            if option.way.kind == kind:
                budgets += [(option, budget), (option, REACH * budget)]
        # Kinds have seeds of their own, so that their resamples are independent.
        reach = points_at(budgets, data_tokens) if budgets else None
        fits.append(_fit_kind(kind, kind_runs, reach, resamples, seed + number, partial(note, kind)))
    return fits


def _by_kind(runs: Sequence[Run]) -> dict[Kind, list[Run]]:
    """The runs of each family and method whose loss a law can be fitted to."""
    by_kind: dict[Kind, list[Run]] = {}
    for run in runs:
        if math.isfinite(run.loss) and run.loss > 0:
            by_kind.setdefault(run.option.way.kind, []).append(run)
    return by_kind


def _fit_kind(
    kind: Kind,
    runs: list[Run],
    asked: Points | None,
    resamples: int,
    seed: int,
    note: Callable[[int], None],
) -> KindFit:
    points = points_of(runs)
    budgets = np.array([run.budget for run in runs])
    choice = choose_law(points, budgets, asked)
    law, residuals, held_out = None, None, []
    if choice is not None:
        held_out = predictions(runs, resamples=resamples, seed=seed, note=partial(note, 0))
        fitted = fit(choice.law, points)
        law = Ensemble.of(fitted, points, resamples=resamples, seed=seed, note=note)
        residuals = law.residuals
    noisy = noisy_losses(points.loss, residuals, resamples=resamples, seed=seed)
    least = frontier(budgets, points.loss, noisy)
    growth = optimal_sizes(budgets, points.size, points.loss, noisy)
    return KindFit(kind, runs, law, choice, least, growth, _lack(points), held_out)


def _lack(points: Points) -> str:
    """What runs lack for the law with the fewest coefficients; "" if nothing."""
    return " and ".join(missing(SIZE_AND_TOKENS, points))


def lacking(runs: Sequence[Run]) -> dict[Kind, str]:
    """What each family and method lacks for a law, for those that lack something; told without fitting any.

    A DataError says so where none has a law.
    """
    lacks = {kind: _lack(points_of(kind_runs)) for kind, kind_runs in _by_kind(runs).items()}
    if lacks and all(lacks.values()):
        raise _no_law(lacks)
    return {kind: lack for kind, lack in lacks.items() if lack}


def _no_law(lacks: Mapping[Kind, str]) -> DataError:
    told = "; ".join(f"{kind} lacks {lack}" for kind, lack in lacks.items())
    return DataError(
        f"runs must suffice for the law of a method, got none: {told}; add runs to the scaling experiment"
    )


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option at a budget.

    Attributes:
        tokens: Tokens that the budget pays for, or that the data have.
        law: Predicted loss, with the interval of the law.
        run: The same, with the interval of one run by the noise about the law.
        held_out: Interval of one run that is wide enough for held-out losses; None where no budget could be
            held out.
        line: Loss by the straight line through the logarithms of the option's own losses; None for an option
            with one budget.
        line_held_out: Its interval, likewise.
        wins: Share of the resampled laws by which it is the best of all.
    """

    option: Option
    tokens: float
    flops: float
    law: Estimate
    run: Estimate
    held_out: tuple[float, float] | None = None
    line: float | None = None
    line_held_out: tuple[float, float] | None = None
    wins: float = 0.0


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommendation.

    Attributes:
        runner_up: The best of another kind; None if only one has a law.
        sure: Share of the resampled laws by which `best`'s kind stays ahead of all others.
        candidates: All predicted options, the least predicted loss first.
        unsound: Kind to the share of its resampled laws that predict a negative loss for a candidate, and are
            not used.
    """

    budget: float
    best: Candidate
    runner_up: Candidate | None
    sure: float
    candidates: list[Candidate]
    unsound: Mapping[Kind, float]


def laws_of(fits: Sequence[KindFit]) -> dict[Kind, Ensemble]:
    """The laws of the kinds that have one; raises a DataError that says what each kind lacks if none has."""
    laws = {kind_fit.kind: kind_fit.law for kind_fit in fits if kind_fit.law is not None}
    if not laws:
        raise _no_law({kind_fit.kind: kind_fit.why_not for kind_fit in fits})
    return laws


def recommend(
    fits: Sequence[KindFit],
    budgets: Mapping[Option, float],
    *,
    data_tokens: float | None = None,
    seed: int = 0,
) -> Recommendation:
    """The option with the least predicted loss at its budget.

    `fits` are the laws of each family and method, fitted for `budgets` with `fit_kinds(asked=...)`. A budget
    is the cost of an option in
    FLOP: equal for all options, or for a time limit what each can spend. `data_tokens` limits the tokens of
    every option. A DataError says that no kind has a law, or that a law, or all resampled ones, predict a
    negative loss at these budgets; a ConfigError says that no option belongs to a kind with a law.
    """
    laws_of(fits)
    candidates: list[Candidate] = []
    draws: dict[Kind, Draws] = {}
    unsound: dict[Kind, float] = {}
    for kind_fit in fits:
        options = [option for option in budgets if option.way.kind == kind_fit.kind]
        if kind_fit.law is None or not options:
            continue
        points = points_at([(option, budgets[option]) for option in options], data_tokens)
        least = float(kind_fit.law.fitted.predict(points).min())
        if least <= 0:
            raise DataError(
                f"laws must give losses above 0 at the budget, got {least:.3g}; fit them for it (asked)"
            )
        sound, lost = _sound(kind_fit.law.draws(points))
        draws[kind_fit.kind] = sound
        if lost:
            unsound[kind_fit.kind] = lost
        predicted = [one for each in fits for one in each.held_out]
        candidates += _candidates(options, points, kind_fit.runs, kind_fit.law, sound, predicted, seed)
    if not candidates:
        raise ConfigError(
            "options must hold one of a method that has a law, got none; allow "
            "more memory, or name other models"
        )
    return _recommendation(budgets, candidates, draws, unsound)


def _sound(draws: Draws) -> tuple[Float[np.ndarray, "sound p"], float]:
    """Draws that are positive for all options, and the share of the others: a law that predicts a negative
    loss would always win.
    """
    sound = draws[(draws > 0).all(axis=1)]
    if not len(sound):
        raise DataError(
            "laws fitted to resampled runs must give losses above 0 at the budget, "
            "got none; add runs, or lower the budget"
        )
    return sound, 1 - len(sound) / len(draws)


def _recommendation(
    budgets: Mapping[Option, float],
    candidates: list[Candidate],
    draws: Mapping[Kind, Draws],
    unsound: Mapping[Kind, float],
) -> Recommendation:
    # Kinds are resampled independently, so that any draws of them can be paired.
    count = min(map(len, draws.values()))
    losses = np.concatenate([kind_draws[:count] for kind_draws in draws.values()], axis=1)
    wins = np.bincount(losses.argmin(axis=1), minlength=len(candidates)) / count
    candidates = [replace(one, wins=share) for one, share in zip(candidates, wins.tolist(), strict=True)]
    candidates.sort(key=lambda candidate: candidate.law.value)
    best = candidates[0]
    kind = best.option.way.kind
    others = [candidate for candidate in candidates if candidate.option.way.kind != kind]
    least = {name: kind_draws[:count].min(axis=1) for name, kind_draws in draws.items()}
    return Recommendation(
        budget=budgets[best.option],
        best=best,
        runner_up=others[0] if others else None,
        sure=_sure(kind, least),
        candidates=candidates,
        unsound=unsound,
    )


def tokens_at(option: Option, budget: float, data_tokens: float | None = None) -> float:
    """Tokens that a budget in FLOP pays for, at most those of the data."""
    return min(budget / option.flops_per_token, data_tokens or math.inf)


def points_at(budgets: Sequence[tuple[Option, float]], data_tokens: float | None = None) -> Points:
    """Options at the tokens that their budgets pay for."""
    return Points(
        np.array([float(option.size) for option, _ in budgets]),
        np.array([tokens_at(option, budget, data_tokens) for option, budget in budgets]),
        np.array([option.share for option, _ in budgets]),
        np.ones(len(budgets)),
    )


def _candidates(
    options: Sequence[Option],
    points: Points,
    runs: Sequence[Run],
    law: Ensemble,
    draws: Draws,
    predicted: Sequence[Prediction],
    seed: int,
) -> Iterator[Candidate]:
    """Options of a kind with their predictions, and with intervals as wide as held-out losses require.

    Held-out losses were predicted from budgets of their own method, and by lines from those of their own
    option, so the widths grow with the factors beyond these.
    """
    largest = max(run.budget for run in runs)
    laws = law.estimates(points, draws)
    of_runs = law.estimates(points, law.noisy(draws, seed))
    for option, tokens, of_law, of_run in zip(options, points.tokens.tolist(), laws, of_runs, strict=True):
        flops = tokens * option.flops_per_token
        line_reach = flops / largest_budget(option, runs, default=largest)
        wide = widths(predicted, option.way.family, flops / largest, line_reach)
        line = line_at(option, flops, runs)
        of_law_held_out = None
        of_line_held_out = None
        if wide.law is not None:
            of_law_held_out = wide.law.around(of_law.low, of_law.high)
        if wide.line is not None and line is not None:
            of_line_held_out = wide.line.around(line, line)
        yield Candidate(option, tokens, flops, of_law, of_run, of_law_held_out, line, of_line_held_out)


def _sure(best: Kind, least: Mapping[Kind, Float[np.ndarray, " d"]]) -> float:
    """How often the best option of a kind stays ahead of those of all others; a tie counts half."""
    others = [losses for kind, losses in least.items() if kind != best]
    if not others:
        return 1.0
    # A tie has a sign of 0, and so counts half.
    ahead = np.sign(np.min(others, axis=0) - least[best])
    return float(np.mean((1 + ahead) / 2))


@dataclass(frozen=True, slots=True)
class NextRun:
    """A run that would make the recommendation more certain.

    Attributes:
        gain: Expected relative fall of the variance of the difference between the best and the runner-up,
            beside the runs before it.
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
    """The runs that reduce the uncertainty of the recommendation most per operation, one after the other.

    To first order a run lowers the variance of the difference in question by ``cov(difference, loss)^2 /
    (var(loss) + noise^2)``, and that of every other loss by its covariance likewise; all are logarithms, over
    the resampled laws. The correlation that so few draws show by chance is subtracted.

    Among the `possible` options with budgets in FLOP, only those of the best's and the runner-up's kinds are
    used; others carry no information. The result is empty if there is no runner-up, if no run helps beyond
    chance, or if few resampled laws predict positive losses.
    """
    if found.runner_up is None:
        return []
    laws = laws_of(fits)
    pair = [(one.option, one.flops) for one in (found.best, found.runner_up)]
    kinds = {option.way.kind for option, _ in pair}
    runs = [(option, budget) for option, budget in possible if option.way.kind in kinds]
    if not runs:
        return []
    draws = []
    for option, budget in (*pair, *runs):
        law = laws[option.way.kind]
        draws.append(law.draws(points_at([(option, budget)], data_tokens))[:, 0])
    # A resampled law that predicts a negative loss is not used for the others either.
    sound = np.stack(draws)
    sound = sound[:, (sound > 0).all(axis=0)]
    if sound.shape[1] < LEAST_SOUND * len(draws[0]):
        return []
    # The difference of logarithms is the logarithm of the ratio of both losses.
    first, second, *losses = np.log(sound)
    noise = np.array([float(np.var(laws[option.way.kind].residuals)) for option, _ in runs])
    budgets = np.array([budget for _, budget in runs])
    gains = _greedy_gains(np.stack([first - second, *losses]), noise, budgets, most)
    return [NextRun(*runs[number], gain) for number, gain in gains]


def _greedy_gains(
    draws: Float[np.ndarray, "r d"],
    noise: Float[np.ndarray, " r1"],
    budgets: Float[np.ndarray, " r1"],
    most: int,
) -> list[tuple[int, float]]:
    """Numbers of the chosen runs with their gains; the first row of draws is the difference, the others are
    runs.
    """
    covariance = np.cov(draws)
    # Independent draws have a squared correlation of 1 / (count - 1) on average.
    chance = 1 / (draws.shape[1] - 1)
    total = covariance[0, 0]
    free = np.ones(len(noise), dtype=bool)
    chosen: list[tuple[int, float]] = []
    if total <= SETTLED:
        return []
    for _ in range(most):
        variances = np.maximum(np.diagonal(covariance)[1:] + noise, SETTLED)
        explained = covariance[0, 1:] ** 2 / (variances * total)
        shares = np.where(free, explained - chance, 0.0)
        best = int(np.argmax(shares / budgets))
        if shares[best] <= 0:
            break
        chosen.append((best, float(shares[best])))
        free[best] = False
        # What the run tells is taken from every variance and covariance.
        row = covariance[best + 1]
        covariance = covariance - np.outer(row, row) / variances[best]
    return chosen
