"""The frontier of least loss by budget, a straight line of logarithms, and the size at which it is reached
(Ziarko et al. 2024).
"""

import math
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from jaxtyping import Float

from adiabat.scaling_laws.fitting import CONFIDENCE

NEAR = 4.0
"""Factor beyond the largest budget of the runs, or below the smallest, up to which their lines are
extrapolated."""

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
            log = (other.intercept - self.intercept) / (self.slope - other.slope)
            return float(np.exp(log))


def line_through(x: Column, y: Column) -> Line:
    """The line of least squares through logarithms of positive numbers; at least two of `x` must differ."""
    return _lines(x, y[None])[0]


def _lines(x: Column, y: Float[np.ndarray, "n p"]) -> list[Line]:
    """The line of each row of `y`."""
    positions = np.log(x)
    values = np.log(y)
    apart = positions - positions.mean()
    slopes = values @ apart / (apart @ apart)
    intercepts = values.mean(axis=1) - slopes * positions.mean()
    return [Line(*line) for line in zip(slopes.tolist(), intercepts.tolist(), strict=True)]


def _parabolas(x: Column, y: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n 3"]:
    """Coefficients of ``ln y`` by ``ln x`` of each row of `y`, by least squares, the constant first."""
    positions = np.log(x)
    # Logarithms of budgets lie near 40: their squares would drown a slight curve in rounding.
    middle = positions.mean()
    width = positions.std()
    design = np.vander((positions - middle) / width, 3, increasing=True)
    solution, *_ = np.linalg.lstsq(design, np.log(y).T, rcond=None)
    constant, linear, quadratic = solution
    # Back from standardised positions.
    steep = linear / width
    curved = quadratic / width**2
    at_zero = constant - steep * middle + curved * middle**2
    return np.stack([at_zero, steep - 2 * curved * middle, curved], axis=1)


def least_of_each(kind: Column, loss: Float[np.ndarray, "*n p"]) -> tuple[Best, Float[np.ndarray, "*n b"]]:
    """Distinct budgets, or sizes, ascending, and the least loss of each."""
    # Sorted, equal budgets lie side by side; `reduceat` takes the least of each such stretch.
    order = np.argsort(kind, kind="stable")
    kinds, starts = np.unique(kind[order], return_index=True)
    return kinds, np.minimum.reduceat(loss[..., order], starts, axis=-1)


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


def noisy_losses(
    loss: Column, residuals: Column | None, *, resamples: int = 1_000, seed: int = 0
) -> Float[np.ndarray, "n p"]:
    """Losses with resampled noise, a row for each draw; no row where the noise is unknown.

    `residuals` are those of logarithms of losses about a law. Resampled runs would lack the best of a budget
    in one draw of three, as if its size had not been tried.
    """
    if residuals is None:
        return np.empty((0, len(loss)))
    drawn = np.random.default_rng(seed).choice(residuals, (resamples, len(loss)))
    return np.asarray(loss * np.exp(drawn))


def frontier(budget: Column, loss: Column, noisy: Float[np.ndarray, "n p"]) -> Trend | None:
    """The line of least loss by budget, of one family and method; None for a single budget.

    Budgets are in FLOP, losses > 0, and `noisy` losses are from `noisy_losses`.

    Reference: Ziarko et al. 2024, section 4.4 and figure 1.
    """
    budgets, least = least_of_each(budget, loss)
    if len(budgets) < 2:
        return None
    return Trend(line_through(budgets, least), _lines(*least_of_each(budget, noisy)), budgets, least)


@dataclass(frozen=True, slots=True)
class Crossing:
    """The budget at which two frontiers cross.

    Attributes:
        budget: In FLOP; infinite if they never cross.
        interval: 95 % interval from resampled noise; None if the noise of one is unknown, an end of None if
            it is infinite.
        agree: Share of the resamples in which the same one is ahead at smaller budgets; None likewise.
    """

    budget: float
    interval: tuple[float | None, float | None] | None
    agree: float | None


def crossing(before: Trend, after: Trend) -> Crossing:
    """The budget at which one method overtakes another, as LoRA does full training in Ziarko et al. 2024,
    section 4.4.

    The loss of `before` falls slower with the budget, so that it is ahead at smaller ones.
    """
    budget = before.line.meets(after.line)
    if not (before.again and after.again):
        return Crossing(budget, None, None)
    pairs = list(zip(before.again, after.again, strict=True))
    crossings = [line.meets(other) for line, other in pairs]
    agree = fmean(line.slope > other.slope for line, other in pairs)
    # Infinite crossings rank among the others, but do not interpolate.
    low, high = np.quantile(crossings, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return Crossing(budget, (_finite(low), _finite(high)), agree)


def _finite(end: float) -> float | None:
    return float(end) if math.isfinite(end) else None


@dataclass(frozen=True, slots=True)
class Profile:
    """Losses at one budget by size, and the parabola through their logarithms.

    Attributes:
        coefficients: Of ``ln loss`` by ``ln N``: constant, linear, quadratic.
        optimum: Size at the minimum of the parabola; None if it has no minimum, or if it lies outside the
            sizes.
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
    return [_profile(value, size[rows], loss[rows]) for value, rows in _groups(budget, size)]


def _groups(budget: Column, size: Column) -> list[tuple[float, np.ndarray]]:
    """Budgets with at least three sizes, ascending, each with its runs."""
    groups = [(float(value), budget == value) for value in np.unique(budget)]
    return [(value, rows) for value, rows in groups if len(np.unique(size[rows])) >= 3]


def _profile(budget: float, size: Column, loss: Column) -> Profile:
    sizes, losses = least_of_each(size, loss)
    coefficients = _parabolas(sizes, losses[None])
    optimum = float(_optima(sizes, coefficients)[0])
    constant, linear, quadratic = coefficients[0].tolist()
    return Profile(
        budget,
        tuple(sizes.tolist()),
        tuple(losses.tolist()),
        (constant, linear, quadratic),
        _finite(optimum),
    )


def _optima(sizes: Column, coefficients: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, " n"]:
    """Sizes at the minima of parabolas; NaN for one without a minimum among the sizes."""
    _, linear, quadratic = coefficients.T
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        lowest = np.where(quadratic > 0, -linear / (2 * quadratic), np.nan)
        # The minimum of a nearly straight line overflows, so its logarithm is compared.
        within = (np.log(sizes[0]) <= lowest) & (lowest <= np.log(sizes[-1]))
        return np.asarray(np.where(within, np.exp(lowest), np.nan))


def optimal_sizes(
    budget: Column, size: Column, loss: Column, noisy: Float[np.ndarray, "n p"]
) -> Trend | None:
    """The line through the sizes at which profiles are least (Ziarko et al. 2024, section 4.4), with `noisy`
    losses as in `frontier`.

    None if fewer than two profiles have an optimum.
    """
    groups = _groups(budget, size)
    budgets = np.array([value for value, _ in groups])
    best = _optima_of(groups, size, loss[None])[0]
    found = np.isfinite(best)
    if found.sum() < 2:
        return None
    again = []
    for draw in _optima_of(groups, size, noisy):
        rows = np.isfinite(draw)
        if rows.sum() > 1:
            again.append(line_through(budgets[rows], draw[rows]))
    # Noise that takes the optima away leaves lines of the rest, which would look too sure.
    if len(again) < CONFIDENCE * len(noisy):
        again = []
    return Trend(line_through(budgets[found], best[found]), again, budgets[found], best[found])


def _optima_of(
    groups: list[tuple[float, np.ndarray]], size: Column, losses: Float[np.ndarray, "n p"]
) -> Float[np.ndarray, "n g"]:
    """Best size of each group of runs, a row for each row of losses; NaN where there is none."""
    optima = np.empty((len(losses), len(groups)))
    for number, (_, rows) in enumerate(groups):
        sizes, least = least_of_each(size[rows], losses[:, rows])
        optima[:, number] = _optima(sizes, _parabolas(sizes, least))
    return optima
