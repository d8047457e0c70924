"""Fitting a law of the loss to runs, and to resampled runs for the intervals of its predictions (Ziarko et al. 2024)."""

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
"""Residuals of the logarithm above this count linearly instead of quadratically (Ziarko et al. 2024, appendix F)."""

LEAST_RATIO = 1.05
"""Ratio from which two shares of trained parameters count as distinct."""

LEAST_SPREAD = 1.5
"""Minimum ratio of the most to the fewest tokens of a size that separates sizes from tokens; whole steps of one budget scatter tokens by a
few percent."""

# Wider ones first: with the last one alone the loss is nearly a sum of absolute values, on whose kinks a quasi-Newton method stalls.
_DELTAS = (3e-2, 5e-3, HUBER_DELTA)
_REFIT_DELTAS = (1e-2, HUBER_DELTA)
_STARTS = 6
_EXPONENT_STARTS: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "beta": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "b_s": (0.5, 1.0, 2.0, 4.0),
}
_EXPONENT_BOUNDS = (0.01, 5.0)
# Below this share of the least loss the logarithm of a prediction continues as a straight line, defined for negative predictions too.
_FLOOR = 1e-3
# A positive weight may fall to this share of the least loss, which is to say vanish.
_LEAST = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """A law with coefficients.

    Attributes:
        exponents: In the order of `Law.exponents`.
        weights: In the order of `Law.weights`, for centred logarithms.
    """

    law: Law
    exponents: Exponents
    weights: Weights
    centre: Centre
    objective: float

    @property
    def coefficients(self) -> Mapping[str, float]:
        """Coefficients as the source writes them."""
        return self.law.printed(self.exponents, self.weights, self.centre)

    def predict(self, points: Points) -> Column:
        """Losses of runs in nats, negative if the law does not hold; the runs' own losses are not used."""
        return np.asarray(self._terms(points).sum(axis=1))

    def effects(self, points: Points) -> Mapping[str, float]:
        """Share of the loss that each coefficient decides: the root mean square over the runs of ``d ln L / d ln coefficient``."""
        terms, (_, powers) = self._terms(points), self.law.basis(points, self.centre)
        shares = terms / terms.sum(axis=1, keepdims=True)
        slopes = [*(self.exponents[:, None] * np.einsum("epw,pw->ep", powers, shares)), *shares.T]
        names = (*self.law.exponents, *self.law.weights)
        return {name: float(np.sqrt(np.mean(slope**2))) for name, slope in zip(names, slopes, strict=True)}

    def _terms(self, points: Points) -> Base:
        """Terms of the loss of each run, a column for each weight."""
        return np.asarray(columns_of(*self.law.basis(points, self.centre), self.exponents) * self.weights)


def fit(law: Law, points: Points) -> Fitted:
    """Fit a law: least Huber loss of the residuals of logarithms, by L-BFGS from the best of a grid of starts.

    A start is a set of exponents with their weights of least squares. Positive numbers are searched by their logarithms. A DataError lists
    all that is missing where there are too few runs, sizes, amounts of tokens or shares to tell the coefficients apart.

    References: Hoffmann et al. 2022, section 3.3; Ziarko et al. 2024, appendix F.
    """
    if faults := list(missing(law, points)):
        raise DataError(f"runs to fit {law.formula} to must have {' and '.join(faults)}")
    centre = Centre.of(points)
    problem = _Problem(law, *law.basis(points, centre), points.loss)
    with _one_thread():
        return min((_minimised(problem, start, centre) for start in problem.starts()), key=lambda fitted: fitted.objective)


def missing(law: Law, points: Points) -> Iterator[str]:
    """Phrases for what is missing to fit a law to runs."""
    if len(points) <= law.coefficients:
        yield f"at least {law.coefficients + 1} runs, got {len(points)}"
    yield from _too_similar(law, points)


def _too_similar(law: Law, points: Points) -> Iterator[str]:
    """Phrases for too few distinct values, however many runs."""
    columns = {"sizes": points.size, "amounts of tokens": points.tokens}
    few = [f"at least 3 {name}, got {count}" for name, values in columns.items() if (count := len(np.unique(values))) < 3]
    if "b_s" in law.exponents and (shares := _shares_at_a_size(points)) < 3:
        few.append(f"at least 3 shares of trained parameters at one size, got {shares}")
    yield from few
    if not few and _spread_beside_sizes(points) < np.log(LEAST_SPREAD):
        yield "several budgets, got sizes and tokens that determine each other"


def _spread_beside_sizes(points: Points) -> float:
    """Range of the logarithms of tokens about their line by size: small for one budget, whose whole steps scatter them."""
    sizes, tokens = np.log(points.size), np.log(points.tokens)
    line = np.polynomial.Polynomial.fit(sizes, tokens, 1)
    return float(np.ptp(tokens - line(sizes)))


def _shares_at_a_size(points: Points) -> int:
    """The most distinct shares of any size: a share that only varies with the size says nothing."""
    of_sizes = (np.sort(points.share[points.size == size]) for size in np.unique(points.size))
    return max(1 + int((np.diff(np.log(shares)) > np.log(LEAST_RATIO)).sum()) for shares in of_sizes)


def refits(fitted: Fitted, points: Points, *, count: int, seed: int, note: Callable[[int], None] | None = None) -> list[Fitted]:
    """Fit a law to runs that are resampled with replacement: its spread over other runs of the same kind.

    Each search starts from `fitted`. Resamples with too few sizes or tokens are drawn again. Resampling residuals instead gives intervals
    that cover too seldom: residuals of a fit by absolute values are too small.
    """
    generator = np.random.default_rng(seed)
    base, powers = fitted.law.basis(points, fitted.centre)
    positive = np.array(fitted.law.positive)
    weights = np.where(positive, np.log(np.where(positive, fitted.weights, 1.0)), fitted.weights)
    start = np.concatenate([np.log(fitted.exponents), weights])
    results: list[Fitted] = []
    with _one_thread():
        while len(results) < count:
            rows = generator.integers(0, len(points), len(points))
            resample = points.taken(rows)
            if not any(_too_similar(fitted.law, resample)):
                problem = _Problem(fitted.law, base[rows], powers[:, rows], resample.loss)
                results.append(_minimised(problem, start, fitted.centre, deltas=_REFIT_DELTAS))
                if note:
                    note(len(results))
    return results


def _one_thread() -> threadpool_limits:
    """On such small matrices, threads halve the speed, and more on busy cores."""
    return threadpool_limits(limits=1)


class _Problem:
    """The objective as a function of a vector: logarithms of exponents, then weights, positive ones as logarithms."""

    def __init__(self, law: Law, base: Base, powers: Powers, loss: Column) -> None:
        self.law, self.base, self.powers = law, base, powers
        self.flat = powers.reshape(len(powers), -1)
        self.loss, self.target = loss, np.log(loss)
        self.floor = _FLOOR * float(loss.min())
        self.positive = np.array(law.positive)

    def split(self, vector: Float[np.ndarray, " c"]) -> tuple[Exponents, Weights]:
        """Exponents and weights."""
        weights = vector[len(self.powers) :]
        return np.exp(vector[: len(self.powers)]), np.where(self.positive, np.exp(np.where(self.positive, weights, 0.0)), weights)

    def objective(self, vector: Float[np.ndarray, " c"], delta: float) -> tuple[float, Float[np.ndarray, " c"]]:
        """Mean Huber loss over `delta`, and its gradient."""
        exponents, weights = self.split(vector)
        columns = columns_of(self.base, self.powers, exponents)
        logs, slopes = self._logs(columns @ weights)
        residuals = logs - self.target
        sizes = np.abs(residuals)
        value = np.where(sizes <= delta, residuals**2 / (2 * delta), sizes - delta / 2).mean()
        pulls = np.clip(residuals / delta, -1, 1) * slopes / len(residuals)
        weight_gradient = pulls @ columns * np.where(self.positive, weights, 1.0)
        exponent_gradient = self.flat @ (pulls[:, None] * columns * weights).ravel() * exponents
        return float(value), np.concatenate([exponent_gradient, weight_gradient])

    def _logs(self, predicted: Column) -> tuple[Column, Column]:
        """Logarithms of predictions and their slopes; a straight line below the floor."""
        above = np.maximum(predicted, self.floor)
        return np.log(above) + np.minimum(predicted - self.floor, 0) / self.floor, 1 / above

    def starts(self) -> list[Float[np.ndarray, " c"]]:
        """The best of a grid of exponents, each with the weights of least squares."""
        candidates = []
        for exponents in product(*(_EXPONENT_STARTS[name] for name in self.law.exponents)):
            weights, norm = self._least_squares(np.array(exponents))
            searched = np.where(self.positive, np.log(np.maximum(weights, 10 * _LEAST * self.loss.min())), weights)
            candidates.append((norm, np.concatenate([np.log(exponents), searched])))
        candidates.sort(key=lambda candidate: candidate[0])
        return [start for _, start in candidates[:_STARTS]]

    def _least_squares(self, exponents: Exponents) -> tuple[Weights, float]:
        """Weights of least relative residuals, positive where they must be, and the norm of the residuals."""
        relative = columns_of(self.base, self.powers, exponents) / self.loss[:, None]
        # A weight of any sign is the difference of two that are not negative.
        signed = ~self.positive
        # Imported here: scipy.optimize takes a second to load, and a plan without runs fits nothing.
        from scipy.optimize import nnls

        split, norm = nnls(np.concatenate([relative, -relative[:, signed]], axis=1), np.ones(len(relative)))
        weights = split[: len(signed)]
        weights[signed] -= split[len(signed) :]
        return weights, float(norm)

    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of the vector."""
        low, high = np.log(_EXPONENT_BOUNDS)
        least = float(np.log(_LEAST * self.loss.min()))
        weights = [(least, least + 50) if positive else (-np.inf, np.inf) for positive in self.positive]
        return [(low, high)] * len(self.powers) + weights


def _minimised(problem: _Problem, start: np.ndarray, centre: Centre, *, deltas: tuple[float, ...] = _DELTAS) -> Fitted:
    from scipy.optimize import minimize

    result: Any = None
    for delta in deltas:
        result = minimize(
            problem.objective,
            start if result is None else result.x,
            args=(delta,),
            jac=True,
            method="L-BFGS-B",
            bounds=problem.bounds(),
            options={"maxiter": 1000, "maxcor": 20, "ftol": 1e-13, "gtol": 1e-9},
        )
    exponents, weights = problem.split(result.x)
    return Fitted(problem.law, exponents, weights, centre, float(result.fun) * deltas[-1])


CONFIDENCE = 0.95

WIDEST = 10.0
"""Largest ratio of the ends of a determined coefficient's interval; for one that may be negative, of the interval's width to its value."""

Draws = Float[np.ndarray, "draws p"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number from all runs, with an interval from resampled runs."""

    value: float
    low: float
    high: float

    def holds(self, number: float) -> bool:
        """Whether a number lies within the interval, its ends included."""
        return self.low <= number <= self.high


def estimate(value: float, draws: Float[np.ndarray, " draws"], confidence: float = CONFIDENCE) -> Estimate:
    """A number with its percentile interval."""
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(value), float(low), float(high))


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """A law fitted to runs, and to resamples of the same runs.

    Attributes:
        again: Fits to the resamples.
        residuals: Residuals of the logarithms about `fitted`, widened to those of unseen runs.
        effects: Effect of each coefficient, as in `Fitted.effects`.
    """

    fitted: Fitted
    again: list[Fitted]
    residuals: Float[np.ndarray, " p"]
    effects: Mapping[str, float]

    @classmethod
    def of(
        cls, fitted: Fitted, points: Points, *, resamples: int = 1_000, seed: int = 0, note: Callable[[int], None] | None = None
    ) -> "Ensemble":
        """Resample the runs of a fit, and fit again; `note` receives the number of finished resamples."""
        residuals = np.log(points.loss) - np.log(np.maximum(fitted.predict(points), points.loss.min() * 1e-3))
        # A fit with as many coefficients as runs has no residuals, whatever their noise.
        widening = len(points) / max(1, len(points) - fitted.law.coefficients)
        unseen = (residuals - residuals.mean()) * np.sqrt(widening)
        return cls(fitted, refits(fitted, points, count=resamples, seed=seed, note=note), unseen, fitted.effects(points))

    def draws(self, points: Points) -> Draws:
        """Losses in nats that each resampled fit predicts, a row for each fit."""
        return np.stack([refit.predict(points) for refit in self.again])

    def predict(self, points: Points, *, of_a_run: bool = False, seed: int = 0) -> list[Estimate]:
        """The loss of runs, with intervals of the law, or of one more run, which has noise of its own (`of_a_run`)."""
        draws = self.draws(points)
        return self.estimates(points, self.noisy(draws, seed) if of_a_run else draws)

    def noisy(self, draws: Draws, seed: int) -> Draws:
        """Losses of single runs: draws of the law, each with a random residual."""
        return np.asarray(draws * np.exp(np.random.default_rng(seed).choice(self.residuals, draws.shape)))

    def estimates(self, points: Points, draws: Draws) -> list[Estimate]:
        """Predictions with the intervals of some draws."""
        return [estimate(value, column) for value, column in zip(self.fitted.predict(points), draws.T, strict=True)]

    def coefficients(self) -> Mapping[str, Estimate]:
        """Coefficients as the source writes them, with intervals."""
        refitted = [refit.coefficients for refit in self.again]
        values = self.fitted.coefficients
        return {name: estimate(value, np.array([float(draw[name]) for draw in refitted])) for name, value in values.items()}

    def left_open(self) -> Iterator[str]:
        """Coefficients that the runs do not determine, with the reason; predictions near the runs may be sure all the same."""
        law, noise = self.fitted.law, float(self.residuals.std())
        signed = {name for name, positive in zip(law.weights, law.positive, strict=True) if not positive}
        for name, coefficient in self.coefficients().items():
            low, high = coefficient.low, coefficient.high
            if self.effects[name] < noise:
                yield f"{name} explains less of the loss than noise does ({self.effects[name]:.1%} of it)"
            elif high - low > WIDEST * abs(coefficient.value) if name in signed else high > WIDEST * max(low, 0):
                yield f"{name} lies anywhere between {low:.3g} and {high:.3g}"
