"""Fitting a law of the loss to runs, and to resampled runs for the intervals of its predictions (Ziarko et
al. 2024).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from adiabat.core.errors import DataError
from adiabat.scaling_laws.law_search import DELTAS, Problems
from adiabat.scaling_laws.laws import Base, Centre, Column, Exponents, Law, Points, Weights, columns_of

LEAST_RATIO = 1.05
"""Ratio from which two shares of trained parameters count as distinct."""

LEAST_SPREAD = 1.5
"""Minimum ratio of the most to the fewest tokens of a size that separates sizes from tokens; whole steps of
one budget scatter tokens by a few percent."""


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
        """Share of the loss that each coefficient decides: the root mean square over the runs of ``d ln L / d
        ln coefficient``.
        """
        terms = self._terms(points)
        shares = terms / terms.sum(axis=1, keepdims=True)
        _, powers = self.law.basis(points, self.centre)
        # A weight changes ``ln L`` as the share of its term does, an exponent as the shares times powers do.
        of_exponents = self.exponents[:, None] * np.einsum("epw,pw->ep", powers, shares)
        names = (*self.law.exponents, *self.law.weights)
        slopes = (*of_exponents, *shares.T)
        return {name: float(np.sqrt(np.mean(slope**2))) for name, slope in zip(names, slopes, strict=True)}

    def _terms(self, points: Points) -> Base:
        """Terms of the loss of each run, a column for each weight."""
        return np.asarray(columns_of(*self.law.basis(points, self.centre), self.exponents) * self.weights)


def fit(law: Law, points: Points) -> Fitted:
    """Fit a law: least Huber loss of the residuals of logarithms, by L-BFGS from the best of a grid of
    starts.

    A start is a set of exponents with their weights of least squares. Positive numbers are searched by their
    logarithms. A DataError lists all that is missing where there are too few runs, sizes, amounts of tokens
    or shares to tell the coefficients apart.

    References: Hoffmann et al. 2022, section 3.3; Ziarko et al. 2024, appendix F.
    """
    if faults := list(missing(law, points)):
        raise DataError(f"runs to fit {law.formula} to must have {' and '.join(faults)}")
    # Arrays have no hash for the cache; their bytes do.
    columns = (points.size, points.tokens, points.share, points.loss)
    return _fitted(law, *(column.tobytes() for column in columns))


@lru_cache(maxsize=512)
def _fitted(law: Law, *columns: bytes) -> Fitted:
    """The fit to columns of float64; choosing a law and holding budgets out ask for the same fits again."""
    points = Points(*map(np.frombuffer, columns))
    centre = Centre.of(points)
    problem = Problems(law, *law.basis(points, centre), points.loss, np.ones((1, len(points))))
    with _one_thread():
        vector, objective = problem.search_one(0, problem.starts(), DELTAS)
    exponents, weights = problem.split(vector[None])
    return Fitted(law, exponents[0], weights[0], centre, objective)


def missing(law: Law, points: Points) -> Iterator[str]:
    """Phrases for what is missing to fit a law to runs."""
    if len(points) <= law.coefficients:
        yield f"at least {law.coefficients + 1} runs, got {len(points)}"
    yield from _too_similar(law, points)


def _too_similar(law: Law, points: Points) -> Iterator[str]:
    """Phrases for too few distinct values, however many runs."""
    counts = {"sizes": len(np.unique(points.size)), "amounts of tokens": len(np.unique(points.tokens))}
    if "b_s" in law.exponents:
        counts["shares of trained parameters at one size"] = _shares_at_a_size(points)
    # A power law with a constant has three numbers for each variable.
    few = [f"at least 3 {name}, got {count}" for name, count in counts.items() if count < 3]
    yield from few
    if not few and _spread_beside_sizes(points) < np.log(LEAST_SPREAD):
        yield "several budgets, got sizes and tokens that determine each other"


def _spread_beside_sizes(points: Points) -> float:
    """Range of the logarithms of tokens about their line by size: small for one budget, whose whole steps
    scatter them.
    """
    sizes, tokens = np.log(points.size), np.log(points.tokens)
    line = np.polynomial.Polynomial.fit(sizes, tokens, 1)
    return float(np.ptp(tokens - line(sizes)))


def _shares_at_a_size(points: Points) -> int:
    """The most distinct shares of any size: a share that only varies with the size says nothing."""
    counts = []
    for size in np.unique(points.size):
        shares = np.sort(points.share[points.size == size])
        counts.append(1 + int((np.diff(np.log(shares)) > np.log(LEAST_RATIO)).sum()))
    return max(counts)


def refits(
    fitted: Fitted, points: Points, *, count: int, seed: int, note: Callable[[int], None] | None = None
) -> list[Fitted]:
    """Fit a law to runs that are resampled with replacement: its spread over other runs of the same kind.

    Each search starts from `fitted`, with weights that vanish there revived (`Problems.start_at`). Resamples
    with too few sizes or tokens
    are drawn again. Resampling residuals instead gives intervals that cover too seldom: residuals of such
    fits are too small.
    """
    generator = np.random.default_rng(seed)
    counts: list[Float[np.ndarray, " p"]] = []
    while len(counts) < count:
        rows = generator.integers(0, len(points), len(points))
        if not any(_too_similar(fitted.law, points.taken(rows))):
            # How often the resample holds each run.
            counts.append(np.bincount(rows, minlength=len(points)).astype(float))
    problems = Problems(fitted.law, *fitted.law.basis(points, fitted.centre), points.loss, np.stack(counts))
    with _one_thread():
        start = problems.start_at(fitted.exponents, fitted.weights)
        vectors, objectives = problems.search_all(start, note)
    exponents, weights = problems.split(vectors)
    return [
        Fitted(fitted.law, exponents[draw], weights[draw], fitted.centre, objective)
        for draw, objective in enumerate(objectives.tolist())
    ]


def _one_thread() -> threadpool_limits:
    """On such small matrices, threads halve the speed, and more on busy cores."""
    return threadpool_limits(limits=1)


CONFIDENCE = 0.95

WIDEST = 10.0
"""Largest ratio of the ends of a determined coefficient's interval; for one that may be negative, of the
interval's width to its value."""

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
    # As many draws lie below the interval as above.
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
        cls,
        fitted: Fitted,
        points: Points,
        *,
        resamples: int = 1_000,
        seed: int = 0,
        note: Callable[[int], None] | None = None,
    ) -> "Ensemble":
        """Resample the runs of a fit, and fit again; `note` receives the number of finished resamples."""
        # The floor keeps the logarithm of a prediction near 0, or below it, finite.
        predicted = np.maximum(fitted.predict(points), points.loss.min() * 1e-3)
        residuals = np.log(points.loss) - np.log(predicted)
        # A fit with as many coefficients as runs has no residuals, whatever their noise.
        widening = len(points) / max(1, len(points) - fitted.law.coefficients)
        unseen = (residuals - residuals.mean()) * np.sqrt(widening)
        again = refits(fitted, points, count=resamples, seed=seed, note=note)
        return cls(fitted, again, unseen, fitted.effects(points))

    def draws(self, points: Points) -> Draws:
        """Losses in nats that each resampled fit predicts, a row for each fit."""
        base, powers = self.fitted.law.basis(points, self.fitted.centre)
        exponents = np.stack([refit.exponents for refit in self.again])
        weights = np.stack([refit.weights for refit in self.again])
        columns = columns_of(base, powers, exponents)
        return np.asarray((columns @ weights[:, :, None])[:, :, 0])

    def noisy(self, draws: Draws, seed: int) -> Draws:
        """Losses of single runs: draws of the law, each with a random residual."""
        noise = np.random.default_rng(seed).choice(self.residuals, draws.shape)
        return np.asarray(draws * np.exp(noise))

    def estimates(self, points: Points, draws: Draws) -> list[Estimate]:
        """Predictions with the intervals of some draws."""
        return list(map(estimate, self.fitted.predict(points), draws.T))

    def coefficients(self) -> Mapping[str, Estimate]:
        """Coefficients as the source writes them, with intervals."""
        values = self.fitted.coefficients
        draws = np.array([list(refit.coefficients.values()) for refit in self.again])
        return dict(zip(values, map(estimate, values.values(), draws.T), strict=True))

    def left_open(self) -> Iterator[str]:
        """Coefficients that the runs do not determine, with the reason; predictions near the runs may be sure
        all the same.
        """
        noise = float(self.residuals.std())
        signed = {term.weight for term in self.fitted.law.terms if not term.positive}
        for name, coefficient in self.coefficients().items():
            low = coefficient.low
            high = coefficient.high
            is_wide = high > WIDEST * max(low, 0)
            if name in signed:
                is_wide = high - low > WIDEST * abs(coefficient.value)
            if self.effects[name] < noise:
                yield f"{name} explains less of the loss than noise does ({self.effects[name]:.1%} of it)"
            elif is_wide:
                yield f"{name} lies anywhere between {low:.3g} and {high:.3g}"
