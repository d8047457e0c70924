"""Uncertainty of a fitted law: intervals of predictions and of coefficients, and coefficients that the runs do not determine.

Reference: Ziarko et al. 2024.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from adiabat.scaling_laws.fitting import Fitted, refits
from adiabat.scaling_laws.laws import Points

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
                yield f"{name} decides less of the loss than noise does ({self.effects[name]:.1%} of it)"
            elif high - low > WIDEST * abs(coefficient.value) if name in signed else high > WIDEST * max(low, 0):
                yield f"{name} lies anywhere between {low:.3g} and {high:.3g}"
