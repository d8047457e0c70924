"""The frontier of least loss by budget, a straight line of logarithms, and the size at which it is reached (Ziarko et al. 2024)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from jaxtyping import Float

from adiabat.core.errors import DataError
from adiabat.scaling_laws.fitting import CONFIDENCE

NEAR = 4.0
"""Factor beyond the largest budget of the runs, or below the smallest, up to which their lines are extrapolated."""

Column = Float[np.ndarray, " p"]
Best = Float[np.ndarray, " b"]


@dataclass(frozen=True, slots=True)
class Line:
    """``ln y = slope * ln x + intercept``."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """``y`` at ``x``, neither a logarithm."""
        return math.exp(self.slope * math.log(x) + self.intercept)

    def meets(self, other: "Line") -> float:
        """``x`` at which two lines cross; infinite for lines that are parallel, or nearly so."""
        if self.slope == other.slope:
            return math.inf
        with np.errstate(over="ignore"):
            return float(np.exp((other.intercept - self.intercept) / (self.slope - other.slope)))


def line_through(x: Column, y: Column) -> Line:
    """The line of least squares through logarithms of positive numbers; at least two of `x` must differ."""
    intercept, slope = _polynomial(x, y, 1)
    return Line(slope, intercept)


def _polynomial(x: Column, y: Column, degree: int) -> tuple[float, ...]:
    """Coefficients of ``ln y`` by ``ln x``, the constant first."""
    coefficients = np.polynomial.Polynomial.fit(np.log(x), np.log(y), degree).convert().coef
    # numpy omits trailing zeros.
    return tuple(map(float, np.pad(coefficients, (0, degree + 1 - len(coefficients)))))


def least_of_each(kind: Column, loss: Column) -> tuple[Best, Best]:
    """Distinct budgets, or sizes, ascending, and the least loss of each."""
    kinds, numbers = np.unique(kind, return_inverse=True)
    least = np.full(len(kinds), np.inf)
    np.minimum.at(least, numbers, loss)
    return kinds, least


@dataclass(frozen=True, slots=True, eq=False)
class Trend:
    """A line over budgets, and the same with resampled noise.

    Attributes:
        again: Lines with resampled noise; none where the noise is unknown, or too few resamples have a line.
        budgets: Budgets of the line, ascending, in FLOP.
        values: At each budget: the least loss of a frontier, or the best size.
    """

    line: Line
    again: list[Line]
    budgets: Best
    values: Best


def frontier(budget: Column, loss: Column, *, residuals: Column | None = None, resamples: int = 1_000, seed: int = 0) -> Trend:
    """The line of least loss by budget, of one family and method (Ziarko et al. 2024, section 4.4 and figure 1).

    Budgets are in FLOP, losses > 0, and `residuals` those of logarithms of losses about a law: the noise to resample, or None. Resampled
    runs would lack the best of a budget in one draw of three, as if its size had not been tried. Fewer than two budgets raise a DataError.
    """
    if (count := len(np.unique(budget))) < 2:
        raise DataError(f"runs of a frontier must have at least 2 budgets, got {count}; run the scaling experiment with more")
    again = [line_through(*least_of_each(budget, noisy)) for noisy in _noisy_losses(loss, residuals, resamples, seed)]
    budgets, least = least_of_each(budget, loss)
    return Trend(line_through(budgets, least), again, budgets, least)


def _noisy_losses(loss: Column, residuals: Column | None, resamples: int, seed: int) -> Iterator[Column]:
    """Losses with resampled noise."""
    if residuals is not None:
        for noise in np.random.default_rng(seed).choice(residuals, (resamples, len(loss))):
            yield loss * np.exp(noise)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The budget at which two frontiers cross.

    Attributes:
        budget: In FLOP; infinite if they never cross.
        interval: 95 % interval from resampled noise; None if the noise of one is unknown, an end of None if it is infinite.
        agree: Share of the resamples in which the same one is ahead at smaller budgets; None likewise.
    """

    budget: float
    interval: tuple[float | None, float | None] | None
    agree: float | None


def crossing(before: Trend, after: Trend) -> Crossing:
    """The budget at which one method overtakes another, as LoRA does full training in Ziarko et al. 2024, section 4.4.

    The loss of `before` falls slower with the budget, so that it is ahead at smaller ones.
    """
    budget = before.line.meets(after.line)
    if not (before.again and after.again):
        return Crossing(budget, None, None)
    pairs = list(zip(before.again, after.again, strict=True))
    # Infinite crossings rank among the others, but do not interpolate.
    crossings = [line.meets(other) for line, other in pairs]
    low, high = np.quantile(crossings, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return Crossing(budget, (_finite(low), _finite(high)), fmean(line.slope > other.slope for line, other in pairs))


def _finite(end: float) -> float | None:
    return float(end) if math.isfinite(end) else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Losses at one budget by size, and the parabola through their logarithms.

    Attributes:
        coefficients: Of ``ln loss`` by ``ln N``: constant, linear, quadratic.
        optimum: Size at the minimum of the parabola; None if it has no minimum, or if it lies outside the sizes.
    """

    budget: float
    sizes: tuple[float, ...]
    losses: tuple[float, ...]
    coefficients: tuple[float, float, float]
    optimum: float | None


def profiles(budget: Column, size: Column, loss: Column) -> list[Profile]:
    """The profile of each budget (FLOP) that has at least three sizes (``N``), by ascending budget.

    References: Hoffmann et al. 2022, section 3.2; Ziarko et al. 2024, figures 2 and 4.
    """
    groups = ((float(value), budget == value) for value in np.unique(budget))
    return [_profile(value, size[rows], loss[rows]) for value, rows in groups if len(np.unique(size[rows])) >= 3]


def _profile(budget: float, size: Column, loss: Column) -> Profile:
    sizes, losses = least_of_each(size, loss)
    constant, linear, quadratic = _polynomial(sizes, losses, 2)
    # The minimum of a nearly straight line overflows, so its logarithm is compared.
    lowest = -linear / (2 * quadratic) if quadratic > 0 else math.nan
    optimum = math.exp(lowest) if math.log(sizes[0]) <= lowest <= math.log(sizes[-1]) else None
    return Profile(budget, tuple(map(float, sizes)), tuple(map(float, losses)), (constant, linear, quadratic), optimum)


def optimal_sizes(
    budget: Column, size: Column, loss: Column, *, residuals: Column | None = None, resamples: int = 1_000, seed: int = 0
) -> Trend | None:
    """The line through the sizes at which profiles are least (Ziarko et al. 2024, section 4.4), with `residuals` as in `frontier`.

    None if fewer than two profiles have an optimum.
    """
    budgets, sizes = _optima(profiles(budget, size, loss))
    if len(budgets) < 2:
        return None
    draws = [_optima(profiles(budget, size, noisy)) for noisy in _noisy_losses(loss, residuals, resamples, seed)]
    again = [line_through(*optima) for optima in draws if len(optima[0]) > 1]
    return Trend(line_through(budgets, sizes), again if len(again) >= CONFIDENCE * len(draws) else [], budgets, sizes)


def _optima(candidates: list[Profile]) -> tuple[Best, Best]:
    """Budgets and sizes of the profiles that have an optimum."""
    optima = [(profile.budget, optimum) for profile in candidates if (optimum := profile.optimum) is not None]
    return np.array([budget for budget, _ in optima]), np.array([size for _, size in optima])
