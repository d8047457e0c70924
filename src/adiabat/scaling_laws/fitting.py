"""Fitting a law of the loss to runs, and how far it hangs on which runs there were (Ziarko et al. 2024)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from adiabat.core.errors import DataError
from adiabat.scaling_laws.laws import Base, Centre, Column, Exponents, Law, Points, Powers, Weights, columns_of

HUBER_DELTA = 1e-3
"""Of residuals of the logarithm: beyond it they count by their size, not by its square (Ziarko et al. 2024, appendix F)."""

# Wider ones first: at the last one alone the loss is all but a sum of absolute values, on whose kinks a quasi-Newton method stalls.
_DELTAS = (3e-2, 5e-3, HUBER_DELTA)
LEAST_RATIO = 1.05
"""Of two shares of trained parameters, for them to count as two."""

LEAST_SPREAD = 1.5
"""How many times the fewest tokens of a size the most must be, for sizes and tokens to be told apart: whole steps of one budget scatter
them by a few percent."""

_STARTS = 6
_EXPONENT_STARTS: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "beta": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "b_s": (0.5, 1.0, 2.0, 4.0),
}
_EXPONENT_BOUNDS = (0.01, 5.0)
# Below this part of the least loss a prediction's logarithm goes on as a straight line, so that it is there for numbers below 0 too.
_FLOOR = 1e-3
# A weight that must be positive may fall to this part of the least loss, which is to say away.
_LEAST = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A law with coefficients.

    Attributes:
        law: Its form.
        exponents: In the order of `Law.exponents`.
        weights: In the order of `Law.weights`, of centred logarithms.
        centre: Of the logarithms.
        objective: Mean Huber loss of the residuals.
    """

    law: Law
    exponents: Exponents
    weights: Weights
    centre: Centre
    objective: float

    @property
    def coefficients(self) -> Mapping[str, float]:
        """As the source writes them."""
        return self.law.printed(self.exponents, self.weights, self.centre)

    def predict(self, points: Points) -> Column:
        """The loss of runs.

        Args:
            points: Sizes, tokens and shares; their own losses are not looked at.

        Returns:
            In nats; below 0 where the law does not hold.
        """
        predicted: Column = self._terms(points).sum(axis=1)
        return predicted

    def effects(self, points: Points) -> Mapping[str, float]:
        """How much of the loss each coefficient decides: next to nothing where its term has fallen away.

        Args:
            points: Sizes, tokens and shares.

        Returns:
            By the name of the coefficient, the root mean square over the runs of ``d ln L / d ln coefficient``.
        """
        terms, (_, powers) = self._terms(points), self.law.basis(points, self.centre)
        shares = terms / terms.sum(axis=1, keepdims=True)
        slopes = [*(self.exponents[:, None] * np.einsum("epw,pw->ep", powers, shares)), *shares.T]
        names = (*self.law.exponents, *self.law.weights)
        return {name: float(np.sqrt(np.mean(slope**2))) for name, slope in zip(names, slopes, strict=True)}

    def _terms(self, points: Points) -> Base:
        """The loss of each run in its parts, a column for each weight."""
        terms: Base = columns_of(*self.law.basis(points, self.centre), self.exponents) * self.weights
        return terms


def fit(law: Law, points: Points) -> Fitted:
    """Fit a law: least Huber loss of the residuals of logarithms, by L-BFGS from the best of a grid of starts.

    A start is a set of exponents and the weights that are best for it by least squares; what must be > 0 is the exponential of what is
    searched.

    Args:
        law: Its form.
        points: Runs; those of a law of shares must have several.

    Returns:
        The best that any start led to.

    Raises:
        DataError: If there are too few runs, sizes, amounts of tokens or shares to tell the coefficients apart; all that is missing.

    Reference:
        Hoffmann et al. 2022, section 3.3; Ziarko et al. 2024, appendix F.
    """
    if faults := list(missing(law, points)):
        raise DataError(f"runs to fit {law.formula} to must have {' and '.join(faults)}")
    centre = Centre.of(points)
    problem = _Problem(law, *law.basis(points, centre), points.loss)
    with _one_thread():
        return min((_polished(problem, start, centre) for start in problem.starts()), key=lambda one: one.objective)


def missing(law: Law, points: Points) -> Iterator[str]:
    """What runs lack for a law to be fitted to them.

    Args:
        law: Its form.
        points: Runs.

    Yields:
        Each with what there is.
    """
    if len(points) <= law.coefficients:
        yield f"at least {law.coefficients + 1} runs, got {len(points)}"
    yield from _alike(law, points)


def _alike(law: Law, points: Points) -> Iterator[str]:
    """Of what too few different values are there, however many runs."""
    wanted = {"sizes": points.size, "amounts of tokens": points.tokens}
    few = [f"at least 3 {name}, got {there}" for name, values in wanted.items() if (there := len(np.unique(values))) < 3]
    if "b_s" in law.exponents and (shares := _shares_at_a_size(points)) < 3:
        few.append(f"at least 3 shares of trained parameters at one size, got {shares}")
    yield from few
    if not few and _beside_sizes(points) < np.log(LEAST_SPREAD):
        yield "several budgets, got sizes and tokens that follow from one another"


def _beside_sizes(points: Points) -> float:
    """How far logarithms of tokens lie apart about their line by size: of one budget, as far as whole steps scatter them."""
    sizes, tokens = np.log(points.size), np.log(points.tokens)
    line = np.polynomial.Polynomial.fit(sizes, tokens, 1)
    return float(np.ptp(tokens - line(sizes)))


def _shares_at_a_size(points: Points) -> int:
    """The most shares that a size was tried with: a share that goes with the size alone tells nothing."""
    of_sizes = (np.sort(points.share[points.size == size]) for size in np.unique(points.size))
    return max(1 + int((np.diff(np.log(shares)) > np.log(LEAST_RATIO)).sum()) for shares in of_sizes)


def refits(fitted: Fitted, points: Points, *, count: int, seed: int, note: Callable[[int], None] | None = None) -> list[Fitted]:
    """The law fitted to runs drawn again, with replacement: how it would have come out with other runs of the same kind.

    Each search starts from `fitted`. A draw in which too few sizes or tokens are left is drawn again. Drawing residuals instead covers too
    seldom: those of a fit by absolute values are too small.

    Args:
        fitted: To all of them.
        points: All of them.
        count: Of draws, > 0.
        seed: Of the draws.
        note: Told how many are done.

    Returns:
        One for each draw.
    """
    generator = np.random.default_rng(seed)
    base, powers = fitted.law.basis(points, fitted.centre)
    start = _searched(fitted)
    found: list[Fitted] = []
    with _one_thread():
        while len(found) < count:
            rows = generator.integers(0, len(points), len(points))
            drawn = points.taken(rows)
            if not any(_alike(fitted.law, drawn)):
                problem = _Problem(fitted.law, base[rows], powers[:, rows], drawn.loss)
                found.append(_polished(problem, start, fitted.centre, deltas=(1e-2, HUBER_DELTA)))
                if note:
                    note(len(found))
    return found


def _one_thread() -> threadpool_limits:
    """On matrices this small threads cost more than they give: half of the speed where cores are idle, and more where they are not."""
    return threadpool_limits(limits=1)


class _Problem:
    """What is minimised, as a function of one row of numbers: logarithms of exponents, then weights or, if positive, their logarithms."""

    def __init__(self, law: Law, base: Base, powers: Powers, loss: Column) -> None:
        self.law, self.base, self.powers = law, base, powers
        self.flat = powers.reshape(len(powers), -1)
        self.loss, self.target = loss, np.log(loss)
        self.floor = _FLOOR * float(loss.min())
        self.positive = np.array(law.positive)

    def split(self, searched: Float[np.ndarray, " c"]) -> tuple[Exponents, Weights]:
        """Exponents and weights."""
        own = searched[len(self.powers) :]
        return np.exp(searched[: len(self.powers)]), np.where(self.positive, np.exp(np.where(self.positive, own, 0.0)), own)

    def objective(self, searched: Float[np.ndarray, " c"], delta: float) -> tuple[float, Float[np.ndarray, " c"]]:
        """Mean Huber loss over `delta`, and its gradient."""
        exponents, weights = self.split(searched)
        columns = columns_of(self.base, self.powers, exponents)
        logs, slopes = self._logs(columns @ weights)
        residuals = logs - self.target
        sizes = np.abs(residuals)
        value = np.where(sizes <= delta, residuals**2 / (2 * delta), sizes - delta / 2).mean()
        pulls = np.clip(residuals / delta, -1, 1) * slopes / len(residuals)
        terms = pulls @ columns * np.where(self.positive, weights, 1.0)
        steps = self.flat @ (pulls[:, None] * columns * weights).ravel() * exponents
        return float(value), np.concatenate([steps, terms])

    def _logs(self, predicted: Column) -> tuple[Column, Column]:
        """Logarithms of predictions and their slopes; a straight line below the floor."""
        above = np.maximum(predicted, self.floor)
        return np.log(above) + np.minimum(predicted - self.floor, 0) / self.floor, 1 / above

    def starts(self) -> list[Float[np.ndarray, " c"]]:
        """The best of a grid of exponents, each with the weights of least squares."""
        found = []
        for exponents in product(*(_EXPONENT_STARTS[name] for name in self.law.exponents)):
            weights, left = self._least_squares(np.array(exponents))
            own = np.where(self.positive, np.log(np.maximum(weights, 10 * _LEAST * self.loss.min())), weights)
            found.append((left, np.concatenate([np.log(exponents), own])))
        found.sort(key=lambda one: one[0])
        return [start for _, start in found[:_STARTS]]

    def _least_squares(self, exponents: Exponents) -> tuple[Weights, float]:
        """Weights for which relative residuals are least, none below 0 that must not be, and the norm of the residuals."""
        relative = columns_of(self.base, self.powers, exponents) / self.loss[:, None]
        # Any number is the difference of two that are not below 0.
        free = ~self.positive
        # Imported here: scipy.optimize takes a second to load, and a plan without runs fits nothing.
        from scipy.optimize import nnls

        split, left = nnls(np.concatenate([relative, -relative[:, free]], axis=1), np.ones(len(relative)))
        weights = split[: len(free)]
        weights[free] -= split[len(free) :]
        return weights, float(left)

    def bounds(self) -> list[tuple[float, float]]:
        """Of what is searched."""
        low, high = np.log(_EXPONENT_BOUNDS)
        least = float(np.log(_LEAST * self.loss.min()))
        return [(low, high)] * len(self.powers) + [(least, least + 50) if one else (-np.inf, np.inf) for one in self.positive]


def _polished(problem: _Problem, start: np.ndarray, centre: Centre, *, deltas: tuple[float, ...] = _DELTAS) -> Fitted:
    from scipy.optimize import minimize

    found: Any = None
    for delta in deltas:
        found = minimize(
            problem.objective,
            start if found is None else found.x,
            args=(delta,),
            jac=True,
            method="L-BFGS-B",
            bounds=problem.bounds(),
            options={"maxiter": 1000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-9},
        )
    exponents, weights = problem.split(found.x)
    return Fitted(problem.law, exponents, weights, centre, float(found.fun) * deltas[-1])


def _searched(fitted: Fitted) -> Float[np.ndarray, " c"]:
    positive = np.array(fitted.law.positive)
    own = np.where(positive, np.log(np.where(positive, fitted.weights, 1.0)), fitted.weights)
    return np.concatenate([np.log(fitted.exponents), own])
