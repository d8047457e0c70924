"""The least loss by budget: a straight line of logarithms, and the size at which it is reached (Ziarko et al. 2024)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from jaxtyping import Bool, Float

from adiabat.core.errors import DataError
from adiabat.scaling_laws.law_intervals import CONFIDENCE

NEAR = 4.0
"""How many times the largest budget of its runs, or less than the smallest, a place may be that their lines are asked for."""

Column = Float[np.ndarray, " p"]
Best = Float[np.ndarray, " b"]


@dataclass(frozen=True, slots=True)
class Line:
    """``ln y = slope * ln x + intercept``."""

    slope: float
    intercept: float

    def at(self, x: float) -> float:
        """The value of the line.

        Args:
            x: Not its logarithm, > 0.

        Returns:
            ``y``, not its logarithm.
        """
        return math.exp(self.slope * math.log(x) + self.intercept)

    def meets(self, other: "Line") -> float:
        """Where two lines cross.

        Args:
            other: Of another slope.

        Returns:
            ``x``; infinite for lines that run beside each other, or all but so.
        """
        if self.slope == other.slope:
            return math.inf
        with np.errstate(over="ignore"):
            return float(np.exp((other.intercept - self.intercept) / (self.slope - other.slope)))


def line_through(x: Column, y: Column) -> Line:
    """The line of least squares through logarithms.

    Args:
        x: > 0, at least two that differ.
        y: > 0.

    Returns:
        The line.
    """
    intercept, slope = _polynomial(x, y, 1)
    return Line(slope, intercept)


def _polynomial(x: Column, y: Column, degree: int) -> tuple[float, ...]:
    """Coefficients of ``ln y`` by ``ln x``, the constant first."""
    found = np.polynomial.Polynomial.fit(np.log(x), np.log(y), degree).convert().coef
    # Zeros at the end are left out by numpy.
    return tuple(map(float, np.pad(found, (0, degree + 1 - len(found)))))


def least_of_each(kind: Column, loss: Column) -> tuple[Best, Best]:
    """The least loss of each budget, or size.

    Args:
        kind: Budget or size of each run.
        loss: Of each run.

    Returns:
        Budgets or sizes, rising, and the least loss of each.
    """
    kinds, places = np.unique(kind, return_inverse=True)
    best = np.full(len(kinds), np.inf)
    np.minimum.at(best, places, loss)
    return kinds, best


@dataclass(frozen=True, slots=True, eq=False)
class Trend:
    """A line over budgets, and the same with noise drawn anew.

    Attributes:
        line: From all runs.
        again: With noise drawn anew; none where the noise is not known, or where too few draws have a line.
        budgets: That it runs through, rising, in FLOP.
        values: At each: the least loss of a frontier, the best size of its growth.
    """

    line: Line
    again: list[Line]
    budgets: Best
    values: Best


def frontier(budget: Column, loss: Column, *, residuals: Column | None = None, resamples: int = 1_000, seed: int = 0) -> Trend:
    """The line of least loss by budget, of one family and method.

    Args:
        budget: Of each run, in FLOP.
        loss: Of each run, > 0.
        residuals: Of the logarithms of losses about a law: what noise there is. None draws nothing again. (Runs drawn again would lack
            the best of a budget in one draw of three, as if nobody had thought of that size.)
        resamples: How often noise is drawn.
        seed: Of the draws.

    Returns:
        The line.

    Raises:
        DataError: If there are fewer than two budgets.

    Reference:
        Ziarko et al. 2024, section 4.4 and figure 1.
    """
    if (there := len(np.unique(budget))) < 2:
        raise DataError(f"runs of a frontier must have at least 2 budgets, got {there}; sweep over more")
    again = [line_through(*least_of_each(budget, one)) for one in _again(loss, residuals, resamples, seed)]
    budgets, best = least_of_each(budget, loss)
    return Trend(line_through(budgets, best), again, budgets, best)


def _again(loss: Column, residuals: Column | None, resamples: int, seed: int) -> Iterator[Column]:
    """Losses with noise drawn anew."""
    if residuals is not None:
        for noise in np.random.default_rng(seed).choice(residuals, (resamples, len(loss))):
            yield loss * np.exp(noise)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Where two frontiers change places.

    Attributes:
        budget: In FLOP; infinite where they never do.
        interval: Of noise drawn anew, 95 %; None where the noise of one of them is not known, an end of None where no number is so large.
        agree: Share of these draws in which the same one is ahead at smaller budgets; None likewise.
    """

    budget: float
    interval: tuple[float | None, float | None] | None
    agree: float | None


def crossing(before: Trend, after: Trend) -> Crossing:
    """The budget at which one method overtakes another.

    Args:
        before: The one whose losses fall slower with the budget, so that it is ahead at smaller ones.
        after: The other.

    Returns:
        Where their lines meet.

    Reference:
        Ziarko et al. 2024, section 4.4: where LoRA overtakes full training.
    """
    budget = before.line.meets(after.line)
    if not (before.again and after.again):
        return Crossing(budget, None, None)
    pairs = list(zip(before.again, after.again, strict=True))
    # One that is infinite has a place among the others, but no number lies between it and the next.
    low, high = np.quantile([one.meets(other) for one, other in pairs], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return Crossing(budget, (_finite(low), _finite(high)), fmean(one.slope > other.slope for one, other in pairs))


def _finite(end: float) -> float | None:
    return float(end) if math.isfinite(end) else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Losses at one budget by size, and the parabola through their logarithms.

    Attributes:
        budget: In FLOP.
        sizes: Rising.
        losses: The least of each size.
        coefficients: Of ``ln loss`` by ``ln N``: constant, linear, quadratic.
        optimum: Size at which the parabola is least; None where it has no least value, or has it outside of the sizes.
    """

    budget: float
    sizes: tuple[float, ...]
    losses: tuple[float, ...]
    coefficients: tuple[float, float, float]
    optimum: float | None


def profiles(budget: Column, size: Column, loss: Column) -> list[Profile]:
    """The profile of each budget that has at least three sizes.

    Args:
        budget: Of each run, in FLOP.
        size: ``N`` of each run.
        loss: Of each run, > 0.

    Returns:
        One for each such budget, rising.

    Reference:
        Hoffmann et al. 2022, section 3.2; Ziarko et al. 2024, figures 2 and 4.
    """
    return [_profile(float(each), size[rows], loss[rows]) for each in np.unique(budget) if _enough(size, rows := budget == each)]


def _enough(size: Column, rows: Bool[np.ndarray, " p"]) -> bool:
    return len(np.unique(size[rows])) >= 3


def _profile(budget: float, size: Column, loss: Column) -> Profile:
    sizes, losses = least_of_each(size, loss)
    constant, linear, quadratic = _polynomial(sizes, losses, 2)
    # Of an all but straight line it lies beyond every number, so that its logarithm is looked at.
    lowest = -linear / (2 * quadratic) if quadratic > 0 else math.nan
    optimum = math.exp(lowest) if math.log(sizes[0]) <= lowest <= math.log(sizes[-1]) else None
    return Profile(budget, tuple(map(float, sizes)), tuple(map(float, losses)), (constant, linear, quadratic), optimum)


def optimal_sizes(
    budget: Column, size: Column, loss: Column, *, residuals: Column | None = None, resamples: int = 1_000, seed: int = 0
) -> Trend | None:
    """The line through the sizes at which profiles are least.

    Args:
        budget: Of each run, in FLOP.
        size: ``N`` of each run.
        loss: Of each run, > 0.
        residuals: As of `frontier`.
        resamples: How often noise is drawn.
        seed: Of the draws.

    Returns:
        The line; None where fewer than two profiles have an optimum.

    Reference:
        Ziarko et al. 2024, section 4.4.
    """
    known = _optima(profiles(budget, size, loss))
    if len(known[0]) < 2:
        return None
    drawn = [_optima(profiles(budget, size, one)) for one in _again(loss, residuals, resamples, seed)]
    again = [line_through(*one) for one in drawn if len(one[0]) > 1]
    return Trend(line_through(*known), again if len(again) >= CONFIDENCE * len(drawn) else [], *known)


def _optima(found: list[Profile]) -> tuple[Best, Best]:
    """Budgets and sizes of the profiles that have an optimum."""
    known = [(one.budget, optimum) for one in found if (optimum := one.optimum) is not None]
    return np.array([budget for budget, _ in known]), np.array([size for _, size in known])
