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
from adiabat.scaling_laws.law_search import DELTAS, REFIT_DELTAS, Problems
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
        terms, (_, powers) = self._terms(points), self.law.basis(points, self.centre)
        shares = terms / terms.sum(axis=1, keepdims=True)
        slopes = [*(self.exponents[:, None] * np.einsum("epw,pw->ep", powers, shares)), *shares.T]
        names = (*self.law.exponents, *self.law.weights)
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
    return _fitted(
        law, *(column.tobytes() for column in (points.size, points.tokens, points.share, points.loss))
    )


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
    columns = {"sizes": points.size, "amounts of tokens": points.tokens}
    few = [
        f"at least 3 {name}, got {count}"
        for name, values in columns.items()
        if (count := len(np.unique(values))) < 3
    ]
    if "b_s" in law.exponents and (shares := _shares_at_a_size(points)) < 3:
        few.append(f"at least 3 shares of trained parameters at one size, got {shares}")
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
    of_sizes = (np.sort(points.share[points.size == size]) for size in np.unique(points.size))
    return max(1 + int((np.diff(np.log(shares)) > np.log(LEAST_RATIO)).sum()) for shares in of_sizes)


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
            counts.append(np.bincount(rows, minlength=len(points)).astype(float))
    problems = Problems(fitted.law, *fitted.law.basis(points, fitted.centre), points.loss, np.stack(counts))
    with _one_thread():
        vectors, objectives = problems.search_all(
            problems.start_at(fitted.exponents, fitted.weights), REFIT_DELTAS, note
        )
    coefficients = zip(*problems.split(vectors), objectives.tolist(), strict=True)
    return [
        Fitted(fitted.law, exponents, weights, fitted.centre, objective)
        for exponents, weights, objective in coefficients
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
        residuals = np.log(points.loss) - np.log(np.maximum(fitted.predict(points), points.loss.min() * 1e-3))
        # A fit with as many coefficients as runs has no residuals, whatever their noise.
        widening = len(points) / max(1, len(points) - fitted.law.coefficients)
        unseen = (residuals - residuals.mean()) * np.sqrt(widening)
        return cls(
            fitted,
            refits(fitted, points, count=resamples, seed=seed, note=note),
            unseen,
            fitted.effects(points),
        )

    def draws(self, points: Points) -> Draws:
        """Losses in nats that each resampled fit predicts, a row for each fit."""
        base, powers = self.fitted.law.basis(points, self.fitted.centre)
        exponents, weights = (
            np.stack([getattr(refit, name) for refit in self.again]) for name in ("exponents", "weights")
        )
        return np.asarray((columns_of(base, powers, exponents) @ weights[:, :, None])[:, :, 0])

    def predict(self, points: Points, *, of_a_run: bool = False, seed: int = 0) -> list[Estimate]:
        """The loss of runs, with intervals of the law, or of one more run, which has noise of its own
        (`of_a_run`).
        """
        draws = self.draws(points)
        return self.estimates(points, self.noisy(draws, seed) if of_a_run else draws)

    def noisy(self, draws: Draws, seed: int) -> Draws:
        """Losses of single runs: draws of the law, each with a random residual."""
        return np.asarray(draws * np.exp(np.random.default_rng(seed).choice(self.residuals, draws.shape)))

    def estimates(self, points: Points, draws: Draws) -> list[Estimate]:
        """Predictions with the intervals of some draws."""
        return [
            estimate(value, column)
            for value, column in zip(self.fitted.predict(points), draws.T, strict=True)
        ]

    def coefficients(self) -> Mapping[str, Estimate]:
        """Coefficients as the source writes them, with intervals."""
        refitted = [refit.coefficients for refit in self.again]
        values = self.fitted.coefficients
        return {
            name: estimate(value, np.array([float(draw[name]) for draw in refitted]))
            for name, value in values.items()
        }

    def left_open(self) -> Iterator[str]:
        """Coefficients that the runs do not determine, with the reason; predictions near the runs may be sure
        all the same.
        """
        law, noise = self.fitted.law, float(self.residuals.std())
        signed = {name for name, positive in zip(law.weights, law.positive, strict=True) if not positive}
        for name, coefficient in self.coefficients().items():
            low, high = coefficient.low, coefficient.high
            if self.effects[name] < noise:
                yield f"{name} explains less of the loss than noise does ({self.effects[name]:.1%} of it)"
            elif (
                high - low > WIDEST * abs(coefficient.value)
                if name in signed
                else high > WIDEST * max(low, 0)
            ):
                yield f"{name} lies anywhere between {low:.3g} and {high:.3g}"
