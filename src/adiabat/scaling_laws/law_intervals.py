"""How sure a fitted law is: intervals of predictions and of coefficients, and which coefficients the runs leave open.

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
"""How many times its lower end the upper end of a coefficient's interval may be, or how many times its value the interval of one that may
be below 0 may be wide; beyond it the runs are said to leave the coefficient open."""

Draws = Float[np.ndarray, "draws p"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its interval.

    Attributes:
        value: Of the fit to all runs.
        low: Of runs drawn again, as many are below it as above `high`.
        high: The other end.
    """

    value: float
    low: float
    high: float

    def holds(self, number: float) -> bool:
        """Whether a number lies within the interval.

        Args:
            number: To be looked for.

        Returns:
            True at the ends too.
        """
        return self.low <= number <= self.high


def estimate(value: float, draws: Float[np.ndarray, " draws"], confidence: float = CONFIDENCE) -> Estimate:
    """A number with its percentile interval.

    Args:
        value: From all runs.
        draws: The same from runs drawn again.
        confidence: Share of the draws within the interval, in (0, 1).

    Returns:
        Both.
    """
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(float(value), float(low), float(high))


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """A law fitted to runs, and to the same runs drawn again.

    Attributes:
        fitted: To all of them.
        again: To each draw.
        residuals: Of the logarithms about `fitted`, made as wide as those of runs that it has not seen.
        effects: Of each coefficient, as in `Fitted.effects`.
    """

    fitted: Fitted
    again: list[Fitted]
    residuals: Float[np.ndarray, " p"]
    effects: Mapping[str, float]

    @classmethod
    def of(
        cls, fitted: Fitted, points: Points, *, resamples: int = 1_000, seed: int = 0, note: Callable[[int], None] | None = None
    ) -> "Ensemble":
        """Draw the runs again and fit.

        Args:
            fitted: To all of them.
            points: All of them.
            resamples: How often, > 0.
            seed: Of the draws.
            note: Told how many are done.

        Returns:
            All fits.
        """
        residuals = np.log(points.loss) - np.log(np.maximum(fitted.predict(points), points.loss.min() * 1e-3))
        # A fit with as many coefficients as runs has no residuals, whatever their noise.
        seen = len(points) / max(1, len(points) - fitted.law.coefficients)
        wide = (residuals - residuals.mean()) * np.sqrt(seen)
        return cls(fitted, refits(fitted, points, count=resamples, seed=seed, note=note), wide, fitted.effects(points))

    def draws(self, points: Points) -> Draws:
        """What each fit to runs drawn again predicts.

        Args:
            points: Sizes, tokens and shares.

        Returns:
            Losses in nats, a row for each fit.
        """
        return np.stack([one.predict(points) for one in self.again])

    def predict(self, points: Points, *, of_a_run: bool = False, seed: int = 0) -> list[Estimate]:
        """The loss of runs, with intervals.

        Args:
            points: Sizes, tokens and shares.
            of_a_run: Whether the interval is for the loss that one more run will have, which has noise of its own, or for the law alone.
            seed: Of the noise.

        Returns:
            One for each run.
        """
        draws = self.draws(points)
        return self.estimates(points, self.noisy(draws, seed) if of_a_run else draws)

    def noisy(self, draws: Draws, seed: int) -> Draws:
        """Losses of single runs.

        Args:
            draws: Of the law, from `draws`.
            seed: Of the noise.

        Returns:
            The same with a residual each.
        """
        found: Draws = draws * np.exp(np.random.default_rng(seed).choice(self.residuals, draws.shape))
        return found

    def estimates(self, points: Points, draws: Draws) -> list[Estimate]:
        """Predictions with the intervals that draws give.

        Args:
            points: Sizes, tokens and shares.
            draws: A row for each fit.

        Returns:
            One for each run.
        """
        return [estimate(value, column) for value, column in zip(self.fitted.predict(points), draws.T, strict=True)]

    def coefficients(self) -> Mapping[str, Estimate]:
        """As the source writes them, with intervals."""
        printed = [one.coefficients for one in self.again]
        return {name: estimate(value, np.array([float(one[name]) for one in printed])) for name, value in self.fitted.coefficients.items()}

    def left_open(self) -> Iterator[str]:
        """Coefficients that the runs do not determine; predictions near the runs may be sure all the same.

        Yields:
            The name of each, and why.
        """
        law, noise = self.fitted.law, float(self.residuals.std())
        free = {name for name, positive in zip(law.weights, law.positive, strict=True) if not positive}
        for name, one in self.coefficients().items():
            if self.effects[name] < noise:
                yield f"{name} decides less of the loss than noise does ({self.effects[name]:.1%} of it)"
            elif one.high - one.low > WIDEST * abs(one.value) if name in free else one.high > WIDEST * max(one.low, 0):
                yield f"{name} lies anywhere between {one.low:.3g} and {one.high:.3g}"
