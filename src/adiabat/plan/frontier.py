"""The least loss by budget: a straight line of logarithms, and the size at which it is reached (missions B7, B8, B10)."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from adiabat.errors import DataError
from adiabat.plan.intervals import Estimate, estimate

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
            ``x``; infinite for lines that run beside each other.
        """
        if self.slope == other.slope:
            return math.inf
        return math.exp((other.intercept - self.intercept) / (self.slope - other.slope))


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
class Frontier:
    """The line through the best run of each budget, and the same with noise drawn anew.

    Attributes:
        line: From all runs.
        again: With noise drawn anew; none where the noise is not known.
        budgets: That it runs through, rising, in FLOP.
        best: Least loss of each.
    """

    line: Line
    again: list[Line]
    budgets: Best
    best: Best

    def at(self, budget: float) -> Estimate:
        """The least loss of a budget.

        Args:
            budget: In FLOP, > 0.

        Returns:
            In nats, with the interval that noise gives; there must be draws.
        """
        return estimate(self.line.at(budget), np.array([one.at(budget) for one in self.again]))


def frontier(budget: Column, loss: Column, *, residuals: Column | None = None, resamples: int = 1_000, seed: int = 0) -> Frontier:
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
        Source 001, section 4.4 and figure 1; mission B7.
    """
    if (there := len(np.unique(budget))) < 2:
        raise DataError(f"runs of a frontier must have at least 2 budgets, got {there}; sweep over more")
    generator = np.random.default_rng(seed)
    noise = generator.choice(residuals, (resamples, len(loss))) if residuals is not None else np.empty((0, len(loss)))
    again = [line_through(*least_of_each(budget, loss * np.exp(one))) for one in noise]
    budgets, best = least_of_each(budget, loss)
    return Frontier(line_through(budgets, best), again, budgets, best)


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
        Hoffmann et al. 2022, section 3.2; source 001, figures 2 and 4; mission B10.
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


def optimal_sizes(found: list[Profile]) -> Line | None:
    """How the best size grows with the budget.

    Args:
        found: Profiles.

    Returns:
        The line; None where fewer than two profiles have an optimum.
    """
    known = [(one.budget, optimum) for one in found if (optimum := one.optimum) is not None]
    return line_through(*map(np.array, zip(*known, strict=True))) if len(known) > 1 else None
