"""The model, tokens and method for a budget, from the laws of each family and method (Ziarko et al. 2024).

The law of each kind predicts the loss of every known option at the tokens that the budget pays for. The
lowest prediction is the recommendation; laws fitted to resampled runs show how certain it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from adiabat.core.errors import ConfigError, DataError
from adiabat.scaling_laws.fitting import Draws, Ensemble, Estimate, fit, missing
from adiabat.scaling_laws.frontier import Trend, frontier, optimal_sizes
from adiabat.scaling_laws.held_out import Prediction, largest_budget, line_at, predictions, widths
from adiabat.scaling_laws.laws import SIZE_AND_TOKENS, Kind, Option, Points, Run, points_of, usable
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
    with_loss = usable(runs)
    if not with_loss:
        raise DataError(
            f"runs must have at least one with a loss above 0, got {len(runs)} "
            "runs without; check why they failed"
        )
    kinds = list(dict.fromkeys(run.option.way.kind for run in with_loss))
    fits = []
    for number, kind in enumerate(kinds):
        budgets = [
            (option, factor * budget)
            for option, budget in (asked or {}).items()
            if option.way.kind == kind
            for factor in (1.0, REACH)
        ]
        reach = points_at(budgets, data_tokens) if budgets else None
        kind_runs = [run for run in with_loss if run.option.way.kind == kind]
        fits.append(_fit_kind(kind, kind_runs, reach, resamples, seed + number, note))
    return fits


def _fit_kind(
    kind: Kind,
    runs: list[Run],
    asked: Points | None,
    resamples: int,
    seed: int,
    note: Callable[[Kind, int], None],
) -> KindFit:
    points, budgets = points_of(runs), np.array([run.budget for run in runs])
    choice = choose_law(points, budgets, asked)
    if choice is None:
        return KindFit(kind, runs, None, None, *_lines(budgets, points, None, resamples, seed), _lack(points))
    held_out = predictions(runs, resamples=resamples, seed=seed, note=lambda: note(kind, 0))
    ensemble = Ensemble.of(
        fit(choice.law, points), points, resamples=resamples, seed=seed, note=lambda done: note(kind, done)
    )
    return KindFit(
        kind,
        runs,
        ensemble,
        choice,
        *_lines(budgets, points, ensemble.residuals, resamples, seed),
        "",
        held_out,
    )


def _lack(points: Points) -> str:
    """What runs lack for the law with the fewest coefficients; "" if nothing."""
    return " and ".join(missing(SIZE_AND_TOKENS, points))


def lacking(runs: Sequence[Run]) -> dict[Kind, str]:
    """What each family and method lacks for a law, for those that lack something; told without fitting any.

    A DataError says so where none has a law.
    """
    by_kind: dict[Kind, list[Run]] = {}
    for run in usable(runs):
        by_kind.setdefault(run.option.way.kind, []).append(run)
    lacks = {kind: _lack(points_of(kind_runs)) for kind, kind_runs in by_kind.items()}
    if lacks and all(lacks.values()):
        raise _no_law(lacks)
    return {kind: lack for kind, lack in lacks.items() if lack}


def _no_law(lacks: Mapping[Kind, str]) -> DataError:
    told = "; ".join(f"{kind} lacks {lack}" for kind, lack in lacks.items())
    return DataError(
        f"runs must suffice for the law of a method, got none: {told}; add runs to the scaling experiment"
    )


def _lines(
    budgets: Float[np.ndarray, " p"],
    points: Points,
    residuals: Float[np.ndarray, " p"] | None,
    resamples: int,
    seed: int,
) -> tuple[Trend | None, Trend | None]:
    """Lines of the least loss and of the best size, where there are two budgets."""
    if len(np.unique(budgets)) < 2:
        return None, None
    least = frontier(budgets, points.loss, residuals=residuals, resamples=resamples, seed=seed)
    return least, optimal_sizes(
        budgets, points.size, points.loss, residuals=residuals, resamples=resamples, seed=seed
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
    laws = laws_of(fits)
    options = {kind: [option for option in budgets if option.way.kind == kind] for kind in laws}
    if not any(options.values()):
        raise ConfigError(
            "options must hold one of a method that has a law, got none; allow "
            "more memory, or name other models"
        )
    candidates: list[Candidate] = []
    draws: dict[Kind, Draws] = {}
    unsound: dict[Kind, float] = {}
    for kind in (kind for kind in laws if options[kind]):
        points = points_at([(option, budgets[option]) for option in options[kind]], data_tokens)
        if (least := float(laws[kind].fitted.predict(points).min())) <= 0:
            raise DataError(
                f"laws must give losses above 0 at the budget, got {least:.3g}; fit them for it (asked)"
            )
        draws[kind], lost = _sound(laws[kind].draws(points))
        if lost:
            unsound[kind] = lost
        candidates += _candidates(options[kind], points, laws[kind], draws[kind], seed)
    candidates = list(_beside_held_out(candidates, fits))
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
    count = min(len(kind_draws) for kind_draws in draws.values())
    draws = {kind: kind_draws[:count] for kind, kind_draws in draws.items()}
    losses = np.concatenate(list(draws.values()), axis=1)
    wins = np.bincount(losses.argmin(axis=1), minlength=len(candidates)) / len(losses)
    candidates = [
        replace(candidate, wins=float(share)) for candidate, share in zip(candidates, wins, strict=True)
    ]
    candidates.sort(key=lambda candidate: candidate.law.value)
    best = candidates[0]
    others = [candidate for candidate in candidates if candidate.option.way.kind != best.option.way.kind]
    return Recommendation(
        budget=budgets[best.option],
        best=best,
        runner_up=others[0] if others else None,
        sure=_sure(
            best.option.way.kind, {kind: kind_draws.min(axis=1) for kind, kind_draws in draws.items()}
        ),
        candidates=candidates,
        unsound=unsound,
    )


def points_at(budgets: Sequence[tuple[Option, float]], data_tokens: float | None = None) -> Points:
    """Options at the tokens that their budgets pay for."""
    sizes = np.array([float(option.size) for option, _ in budgets])
    tokens = np.minimum(
        np.array([budget / option.flops_per_token for option, budget in budgets]), data_tokens or np.inf
    )
    return Points(sizes, tokens, np.array([option.share for option, _ in budgets]), np.ones(len(budgets)))


def _candidates(
    options: Sequence[Option], points: Points, ensemble: Ensemble, draws: Draws, seed: int
) -> Iterator[Candidate]:
    estimates = zip(
        ensemble.estimates(points, draws),
        ensemble.estimates(points, ensemble.noisy(draws, seed)),
        strict=True,
    )
    for option, tokens, (law, run) in zip(options, points.tokens.tolist(), estimates, strict=True):
        yield Candidate(option, tokens, tokens * option.flops_per_token, law, run)


def _beside_held_out(candidates: Sequence[Candidate], fits: Sequence[KindFit]) -> Iterator[Candidate]:
    """Candidates with straight lines, and with intervals as wide as held-out losses require."""
    runs, predicted = (
        [run for one in fits for run in one.runs],
        [one for each in fits for one in each.held_out],
    )
    largest = {one.kind: max(run.budget for run in one.runs) for one in fits}
    for candidate in candidates:
        # Held-out losses were predicted from budgets of their own method, and by lines from those of their
        # own option.
        kind = candidate.option.way.kind
        of_option = largest_budget(candidate.option, runs, default=largest[kind])
        wide = widths(predicted, kind.family, candidate.flops / largest[kind], candidate.flops / of_option)
        line = line_at(candidate.option, candidate.flops, runs)
        yield replace(
            candidate,
            held_out=None if wide.law is None else wide.law.around(candidate.law.low, candidate.law.high),
            line=line,
            line_held_out=None if wide.line is None or line is None else wide.line.around(line, line),
        )


def _sure(best: Kind, least: Mapping[Kind, Float[np.ndarray, " d"]]) -> float:
    """How often the best option of a kind stays ahead of those of all others; a tie counts half."""
    others = [losses for kind, losses in least.items() if kind != best]
    if not others:
        return 1.0
    return float(np.mean((1 + np.sign(np.min(others, axis=0) - least[best])) / 2))


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
    pair = (found.best, found.runner_up)
    kinds = {candidate.option.way.kind for candidate in pair}
    runs = [(option, budget) for option, budget in possible if option.way.kind in kinds]
    if not runs:
        return []
    pair_draws = [
        _draws(laws[candidate.option.way.kind], candidate.option, candidate.flops, None) for candidate in pair
    ]
    run_draws = [_draws(laws[option.way.kind], option, budget, data_tokens) for option, budget in runs]
    draws = np.stack([*pair_draws, *run_draws])
    # A resampled law that predicts a negative loss is not used for the others either.
    sound = draws[:, (draws > 0).all(axis=0)]
    if sound.shape[1] < LEAST_SOUND * draws.shape[1]:
        return []
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
    covariance, count = np.cov(draws), draws.shape[1]
    total, chosen, free = covariance[0, 0], list[tuple[int, float]](), np.ones(len(noise), dtype=bool)
    if total <= SETTLED:
        return []
    for _ in range(most):
        variances = np.maximum(np.diagonal(covariance)[1:] + noise, SETTLED)
        # Independent draws have a squared correlation of 1 / (count - 1) on average.
        shares = np.where(free, covariance[0, 1:] ** 2 / (variances * total) - 1 / (count - 1), 0.0)
        best = int(np.argmax(shares / budgets))
        if shares[best] <= 0:
            break
        chosen.append((best, float(shares[best])))
        free[best] = False
        row = covariance[best + 1]
        covariance = covariance - np.outer(row, row) / variances[best]
    return chosen


def _draws(law: Ensemble, option: Option, budget: float, tokens: float | None) -> Float[np.ndarray, " d"]:
    """Losses that each resampled law predicts for an option."""
    return np.asarray(law.draws(points_at([(option, budget)], tokens))[:, 0])
