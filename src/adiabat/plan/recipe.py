"""Which model, how many tokens, which method for a budget: read off the laws of each method (mission B8).

Every option that runs know is asked what its method's law predicts for it at the tokens that the budget pays for; the least prediction
is the recommendation. How sure it is follows from the same question put to laws fitted to runs drawn again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from adiabat.errors import ConfigError, DataError
from adiabat.plan.fitting import fit, missing
from adiabat.plan.frontier import Frontier, frontier
from adiabat.plan.intervals import Draws, Ensemble, Estimate
from adiabat.plan.laws import ONE_SHARE, SHARE, SIZE_AND_TOKENS, Law, Points
from adiabat.plan.runs import Method, Option, Run, points_of, usable


@dataclass(frozen=True, slots=True, eq=False)
class MethodFit:
    """What the runs of one method say.

    Attributes:
        method: Its name.
        runs: Those with a loss.
        law: Fitted; None where there are too few runs for any.
        error: Median relative error of that law on the largest model, fitted without it; None where too few runs are left for that.
        frontier: Line of the least loss by budget; None of one budget.
        why_not: What is missing for a law; "" where there is one.
    """

    method: Method
    runs: list[Run]
    law: Ensemble | None
    error: float | None
    frontier: Frontier | None
    why_not: str


def fit_methods(
    runs: Sequence[Run], *, resamples: int = 1_000, seed: int = 0, note: Callable[[str, int], None] = lambda method, done: None
) -> list[MethodFit]:
    """Fit each method's law and frontier.

    Args:
        runs: Of any methods.
        resamples: How often runs are drawn again.
        seed: Of the draws.
        note: Told the method, and how many of its draws are done.

    Returns:
        One for each method that has runs with a loss, in the order of their first run.

    Raises:
        DataError: If no run has a loss.
    """
    kept = usable(runs)
    if not kept:
        raise DataError(f"runs must have at least one with a loss above 0, got {len(runs)} runs without; look at why they failed")
    methods = list(dict.fromkeys(run.option.way.method for run in kept))
    return [_fit_method(method, [run for run in kept if run.option.way.method == method], resamples, seed, note) for method in methods]


def _fit_method(method: Method, runs: list[Run], resamples: int, seed: int, note: Callable[[str, int], None]) -> MethodFit:
    points = points_of(runs)
    budgets = np.array([run.budget for run in runs])
    line = frontier(budgets, points.loss, resamples=resamples, seed=seed) if len(np.unique(budgets)) > 1 else None
    chosen = choose_law(points)
    if chosen is None:
        return MethodFit(method, runs, None, None, line, " and ".join(missing(SIZE_AND_TOKENS, points)))
    law, error = chosen
    ensemble = Ensemble.of(fit(law, points), points, resamples=resamples, seed=seed, note=lambda done: note(method, done))
    return MethodFit(method, runs, ensemble, error, line, "")


def choose_law(points: Points) -> tuple[Law, float | None] | None:
    """The law that predicts the largest model best from the others.

    Args:
        points: Runs of one method.

    Returns:
        The law, and its median relative error there, None if too few runs are left without that model to try any; None if there are too
        few for any law at all.

    Reference:
        Source 001, appendix F; mission B7.
    """
    possible = [law for law in (SIZE_AND_TOKENS, ONE_SHARE, SHARE) if not any(missing(law, points))]
    if not possible:
        return None
    largest = points.size == points.size.max()
    rest, kept_out = points.taken(~largest), points.taken(largest)
    errors = {law: _error(law, rest, kept_out) for law in possible if not any(missing(law, rest))}
    if not errors:
        return possible[0], None
    best = min(errors, key=lambda law: errors[law])
    return best, errors[best]


def _error(law: Law, rest: Points, kept_out: Points) -> float:
    return float(np.median(np.abs(fit(law, rest).predict(kept_out) / kept_out.loss - 1)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """An option at a budget.

    Attributes:
        option: Model and method.
        tokens: That the budget pays for, or that there are.
        flops: That these take.
        law: Predicted loss, with the interval of the law.
        run: The same, with the interval of one run.
    """

    option: Option
    tokens: float
    flops: float
    law: Estimate
    run: Estimate


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to train.

    Attributes:
        budget: In FLOP.
        best: Of all candidates.
        runner_up: The best of another method; None where only one has a law.
        sure: Share of laws fitted to runs drawn again by which `best`'s method stays ahead of all others.
        candidates: All, the least predicted loss first.
    """

    budget: float
    best: Candidate
    runner_up: Candidate | None
    sure: float
    candidates: list[Candidate]


def recommend(
    fits: Sequence[MethodFit], options: Sequence[Option], budget: float, *, data_tokens: float | None = None, seed: int = 0
) -> Recommendation:
    """The option with the least predicted loss at a budget.

    Args:
        fits: Of the methods.
        options: To choose from: those that memory allows.
        budget: In FLOP, > 0.
        data_tokens: That there are to train on; where the budget pays for more, the rest of it is left. None sets no limit.
        seed: Of the noise of single runs.

    Returns:
        The choice.

    Raises:
        ConfigError: If no option is left.
        DataError: If no method has a law.

    Reference:
        Source 001, algorithm 1; mission B8.
    """
    laws = {one.method: one.law for one in fits if one.law is not None}
    if not laws:
        raise DataError(f"runs must suffice for the law of a method, got none: {'; '.join(_why_not(fits))}; add runs to the sweep")
    asked = [option for option in options if option.way.method in laws]
    if not asked:
        raise ConfigError("options must hold one of a method that has a law, got none; allow more memory, or name other models")
    found: list[Candidate] = []
    draws: dict[Method, Float[np.ndarray, " d"]] = {}
    for method, ensemble in laws.items():
        own = [option for option in asked if option.way.method == method]
        if own:
            points = _at(own, budget, data_tokens)
            of_law = ensemble.draws(points)
            found += _candidates(own, points, ensemble, of_law, seed)
            draws[method] = of_law.min(axis=1)
    found.sort(key=lambda one: one.law.value)
    best = found[0]
    others = [one for one in found if one.option.way.method != best.option.way.method]
    return Recommendation(budget, best, others[0] if others else None, _sure(best.option.way.method, draws), found)


def _why_not(fits: Sequence[MethodFit]) -> Iterator[str]:
    for one in fits:
        yield f"{one.method} lacks {one.why_not}"


def _at(options: Sequence[Option], budget: float, data_tokens: float | None) -> Points:
    """Options at the tokens that a budget pays for."""
    tokens = np.array([min(budget / option.flops_per_token, data_tokens or np.inf) for option in options])
    sizes = np.array([float(option.parameters.forward) for option in options])
    return Points(sizes, tokens, np.array([option.share for option in options]), np.ones(len(options)))


def _candidates(options: Sequence[Option], points: Points, ensemble: Ensemble, draws: Draws, seed: int) -> Iterator[Candidate]:
    estimates = zip(ensemble.estimates(points, draws), ensemble.estimates(points, ensemble.noisy(draws, seed)), strict=True)
    for option, tokens, (law, run) in zip(options, points.tokens.tolist(), estimates, strict=True):
        yield Candidate(option, tokens, tokens * option.flops_per_token, law, run)


def _sure(method: Method, draws: dict[Method, Float[np.ndarray, " d"]]) -> float:
    others = [least for other, least in draws.items() if other != method]
    return float(np.mean(draws[method] < np.min(others, axis=0))) if others else 1.0
