"""Searching the coefficients of a law, for one set of runs or for many resamples of it at once."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.scaling_laws.laws import Base, Column, Exponents, Law, Powers, Weights, columns_of

HUBER_DELTA = 1e-3
"""Residuals of the logarithm above this count linearly instead of quadratically (Ziarko et al. 2024, appendix
F)."""

# Wider ones first: with the last one alone the loss is nearly a sum of absolute values, on whose kinks a
# quasi-Newton method stalls.
DELTAS = (3e-2, 5e-3, HUBER_DELTA)
REFIT_DELTAS = (1e-2, HUBER_DELTA)
# Starts of the first search, and minima that the search over the next delta starts from.
_STARTS = 4
_STARTS_KEPT = 2
# Exponents of sizes and tokens are about 0.3 in Hoffmann et al. 2022, table 2; the grid surrounds them.
_EXPONENT_STARTS: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "beta": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "b_s": (0.5, 1.0, 2.0, 4.0),
}
_EXPONENT_BOUNDS = (0.01, 5.0)
# Below this share of the least loss the logarithm of a prediction continues as a straight line, defined for
# negative predictions too.
_FLOOR = 1e-3
# A positive weight may fall to this share of the least loss, which is to say vanish.
_LEAST = 1e-7

MOST_VALUES = 400
"""Objectives that each of many problems searched together may take; one in forty needs more, and up to ten
times as many."""

STALL = 1e-9
"""Relative fall of the objective below which a step of many problems counts as stalled."""

SAME = 1e-4
"""Logarithms of coefficients that differ by less are of one minimum."""

REVIVED = 0.3
"""Share of the least loss at which positive weights start that are smaller: by its logarithm, a weight near 0
has no slope to return by."""

MOST_TRIES = 25
"""Tries of a step's length."""

ENOUGH_FALL, ENOUGH_SLOPE = 1e-4, 0.9
"""Weak Wolfe conditions: the least fall, as a share of that along the slope, and the greatest slope that may
remain."""

FALL_TOLERANCE, SLOPE_TOLERANCE = 1e-13, 1e-9
"""A search ends where the objective falls by less than the one, or its slopes are below the other."""

Vectors = Float[np.ndarray, "n c"]
Values = Float[np.ndarray, " n"]
Numbers = Int[np.ndarray, " n"]
Objective = Callable[[Vectors, Numbers], tuple[Values, Vectors]]
Minimum = tuple[Float[np.ndarray, " c"], float]
"""Coefficients, and the objective there."""


class Problems:
    """Objectives over vectors: logarithms of exponents, then weights, positive ones as logarithms.

    Each problem weighs the runs by the number of times that it holds them, so that resamples share the
    columns of the runs.
    """

    def __init__(
        self, law: Law, base: Base, powers: Powers, loss: Column, counts: Float[np.ndarray, "n p"]
    ) -> None:
        self.law = law
        self.base = base
        self.powers = powers
        self.loss = loss
        # Columns lie in rows here, so that runs, of which there are more, are beside each other in memory.
        self.rows = base.T.copy()
        self.flat = powers.transpose(0, 2, 1).reshape(len(powers), -1)
        self.target = np.log(loss)
        # Weights of the runs in the mean; a run that a resample lacks has none.
        self.shares = counts / counts.sum(axis=1, keepdims=True)
        self.least = np.where(counts > 0, loss, np.inf).min(axis=1)
        self.positive = np.array(law.positive)
        self.searched_by_log = np.concatenate([np.ones(len(powers), dtype=bool), self.positive])
        self.low, self.high = self._bounds()

    def _bounds(self) -> tuple[Vectors, Vectors]:
        """Lower and upper bounds of the vector of each problem."""
        # A positive weight may grow to e^50 = 5e21 times its least value, more than any loss needs.
        least = np.log(_LEAST * self.least)[:, None]
        lows = np.where(self.positive, least, -np.inf)
        highs = np.where(self.positive, least + 50, np.inf)
        low, high = (np.full((len(least), len(self.powers)), np.log(bound)) for bound in _EXPONENT_BOUNDS)
        return np.concatenate([low, lows], axis=1), np.concatenate([high, highs], axis=1)

    def split(self, vectors: Vectors) -> tuple[Float[np.ndarray, "n e"], Float[np.ndarray, "n w"]]:
        """Exponents and weights."""
        coefficients = np.exp(vectors, where=self.searched_by_log, out=vectors.copy())
        return coefficients[:, : len(self.powers)], coefficients[:, len(self.powers) :]

    def start_at(self, exponents: Exponents, weights: Weights) -> Float[np.ndarray, " c"]:
        """The vector of coefficients, with positive weights of at least `REVIVED`."""
        least = np.maximum(weights, REVIVED * self.loss.min())
        return np.concatenate([np.log(exponents), np.where(self.positive, np.log(least), weights)])

    def objective(self, vectors: Vectors, problems: Numbers, delta: float) -> tuple[Values, Vectors]:
        """Mean Huber loss over `delta` of some problems, and its gradient.

        With residuals ``r = ln(predicted) - ln(loss)``, clipped to ``c`` in ``[-delta, delta]``, the Huber
        loss is ``c (r - c / 2)``, and its slope by ``r`` is ``c``. Both are divided by `delta`.
        """
        exponents, weights = self.split(vectors)
        columns = (exponents @ self.flat).reshape(len(vectors), *self.rows.shape)
        np.exp(columns, out=columns)
        columns *= self.rows
        terms = columns * weights[:, :, None]
        logs, slopes = _logs(terms.sum(axis=1), _FLOOR * self.least[problems, None])
        residuals = logs - self.target
        clipped = np.minimum(np.maximum(residuals, -delta), delta)
        pulled = self.shares[problems] * clipped / delta
        values = (pulled * (residuals - clipped / 2)).sum(axis=1)
        # The slope by the prediction of each run, and from there by its terms.
        pulled *= slopes
        terms *= pulled[:, None, :]
        exponent_gradient = terms.reshape(len(vectors), -1) @ self.flat.T * exponents
        by_weight = (columns @ pulled[:, :, None])[:, :, 0]
        weight_gradient = by_weight * np.where(self.positive, weights, 1.0)
        return values, np.concatenate([exponent_gradient, weight_gradient], axis=1)

    def starts(self) -> list[Float[np.ndarray, " c"]]:
        """The best of a grid of exponents, each with the weights of least squares over all runs."""
        candidates = []
        for choice in product(*(_EXPONENT_STARTS[name] for name in self.law.exponents)):
            exponents = np.array(choice)
            weights, norm = self._least_squares(exponents)
            candidates.append((self.start_at(exponents, weights), norm))
        return [start for start, _ in sorted(candidates, key=itemgetter(1))[:_STARTS]]

    def _least_squares(self, exponents: Exponents) -> tuple[Weights, float]:
        """Weights of least relative residuals, positive where they must be, and the norm of the residuals."""
        # Imported here: scipy.optimize takes a second to load, and a plan without runs fits nothing.
        from scipy.optimize import nnls

        relative = columns_of(self.base, self.powers, exponents) / self.loss[:, None]
        # A weight of any sign is the difference of two that are not negative.
        signed = ~self.positive
        split, norm = nnls(np.concatenate([relative, -relative[:, signed]], axis=1), np.ones(len(relative)))
        weights = split[: len(signed)]
        weights[signed] -= split[len(signed) :]
        return weights, float(norm)

    def search_one(
        self, problem: int, starts: Sequence[Float[np.ndarray, " c"]], deltas: tuple[float, ...]
    ) -> Minimum:
        """The least minimum of one problem from some starts, by L-BFGS-B over one `delta` after another."""
        for delta in deltas:
            found = _distinct([self._searched(problem, start, delta) for start in starts])[:_STARTS_KEPT]
            starts = [vector for vector, _ in found]
        vector, value = found[0]
        return vector, value * deltas[-1]

    def _searched(self, problem: int, start: Float[np.ndarray, " c"], delta: float) -> Minimum:
        from scipy.optimize import minimize

        def objective(vector: Float[np.ndarray, " c"]) -> tuple[float, Float[np.ndarray, " c"]]:
            values, gradients = self.objective(vector[None], np.array([problem]), delta)
            return float(values[0]), gradients[0]

        bounds = np.stack([self.low[problem], self.high[problem]], axis=1)
        options = {"maxiter": 1000, "maxcor": 20, "ftol": FALL_TOLERANCE, "gtol": SLOPE_TOLERANCE}
        result: Any = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return result.x, float(result.fun)

    def search_all(
        self, start: Float[np.ndarray, " c"], note: Callable[[int], None] | None = None
    ) -> tuple[Vectors, Values]:
        """Minima of every problem over `REFIT_DELTAS`, each from the same start.

        All problems take their steps together. `search_one` ends those that take more than `MOST_VALUES`.
        """
        count = len(self.shares)
        vectors = np.tile(start, (count, 1))
        for delta in REFIT_DELTAS:
            objective = partial(self.objective, delta=delta)
            vectors, values, ended = descend(objective, vectors, self.low, self.high)
        values *= REFIT_DELTAS[-1]
        slow = np.flatnonzero(~ended).tolist()
        if note:
            note(count - len(slow))
        for number, problem in enumerate(slow, start=1):
            vectors[problem], values[problem] = self.search_one(
                problem, [vectors[problem]], REFIT_DELTAS[-1:]
            )
            if note:
                note(count - len(slow) + number)
        return vectors, values


def _logs(
    predicted: Float[np.ndarray, "n p"], floor: Float[np.ndarray, "n 1"]
) -> tuple[Float[np.ndarray, "n p"], Float[np.ndarray, "n p"]]:
    """Logarithms of predictions and their slopes; a straight line below the floor."""
    above = np.maximum(predicted, floor)
    below = np.minimum(predicted - floor, 0) / floor
    return np.log(above) + below, 1 / above


def _distinct(found: Sequence[Minimum]) -> list[Minimum]:
    """Minima, least first, without those whose vector equals one before."""
    distinct: list[Minimum] = []
    for vector, value in sorted(found, key=itemgetter(1)):
        if not any(np.allclose(vector, other, rtol=0, atol=SAME) for other, _ in distinct):
            distinct.append((vector, value))
    return distinct


def descend(
    objective: Objective, start: Vectors, low: Vectors, high: Vectors
) -> tuple[Vectors, Values, Bool[np.ndarray, " n"]]:
    """Minimise many small problems together: BFGS with a step's length from bisection (Lewis and Overton
    2013), within bounds.

    Bisection to the weak Wolfe conditions suits objectives with kinks. Components at a bound that the slope
    pushes against stay there. The inverse Hessian starts again from the unit matrix where a step stalls; a
    problem ends where that stalls too. Beside vectors and values stands whether each search ended within
    `MOST_VALUES`.
    """
    live = np.arange(len(start))
    at = np.clip(start, low, high)
    searches = _Searches(at, *objective(at, live), low, high)
    searches.aim(live)
    for _ in range(MOST_VALUES):
        if not len(live):
            break
        step = searches.length[live, None] * searches.direction[live]
        tried = np.clip(searches.at[live] + step, low[live], high[live])
        over = np.flatnonzero(searches.judge(live, tried, *objective(tried, live)))
        ended = searches.step(live[over])
        searches.aim(live[over[~ended]])
        live = np.delete(live, over[ended])
    return searches.at, searches.values, ~np.isin(np.arange(len(at)), live)


class _Searches:
    """The state of many searches, a row for each; none waits for the tries of another.

    Attributes:
        at: Where each search is, with its value and slopes there.
        inverse: Inverse Hessian; `fresh` where it is the unit matrix.
        stalled: Whether the step before this one fell by too little.
        direction: Direction of the step; `length` is its next length to try, `tries` their number.
        short: Longest length that falls enough; `long` is the shortest that does not.
        moved: The best try of the step, with its value and slopes there.
    """

    def __init__(self, at: Vectors, values: Values, slopes: Vectors, low: Vectors, high: Vectors) -> None:
        """Begin each search at a point whose value and slopes are known.

        Args:
            at: Start of each search, one row for each.
            values: Value of the objective there.
            slopes: Its derivative there.
            low: Lower bound of each coordinate.
            high: Upper bound of each coordinate.
        """
        count, width = at.shape
        self.at = at
        self.values = values
        self.slopes = slopes
        self.low = low
        self.high = high
        self.one = np.eye(width)
        self.inverse = np.tile(self.one, (count, 1, 1))
        self.fresh = np.ones(count, dtype=bool)
        self.stalled = np.zeros(count, dtype=bool)
        self.direction = np.zeros_like(at)
        self.length = np.ones(count)
        self.tries = np.zeros(count, dtype=int)
        self.short = np.zeros(count)
        self.long = np.full(count, np.inf)
        self.moved = at.copy()
        self.moved_values = values.copy()
        self.moved_slopes = slopes.copy()

    def _free(self, rows: Numbers) -> Vectors:
        """Slopes without those that push against a bound."""
        at = self.at[rows]
        slopes = self.slopes[rows]
        held_low = (at <= self.low[rows]) & (slopes > 0)
        held_high = (at >= self.high[rows]) & (slopes < 0)
        return np.where(held_low | held_high, 0.0, slopes)

    def aim(self, rows: Numbers) -> None:
        """Set the direction and the first length of the next step."""
        free = self._free(rows)
        newton = -(self.inverse[rows] @ free[:, :, None])[:, :, 0]
        direction = np.where(free == 0, 0.0, newton)
        uphill = (direction * free).sum(axis=1) >= 0
        self.inverse[rows[uphill]] = self.one
        self.fresh[rows[uphill]] = True
        direction[uphill] = -free[uphill]
        self.direction[rows] = direction
        # Of the unit matrix the scale is unknown: a first step moves by 1 in all at most.
        steepness = np.abs(free).sum(axis=1)
        moderate = np.minimum(1, 1 / np.maximum(steepness, 1e-300))
        self.length[rows] = np.where(self.fresh[rows], moderate, 1.0)
        self.tries[rows] = 0
        self.short[rows] = 0.0
        self.long[rows] = np.inf

    def judge(self, rows: Numbers, tried: Vectors, values: Values, slopes: Vectors) -> Bool[np.ndarray, " n"]:
        """Keep tries that are better, choose the next lengths, and return which steps are over."""
        length = self.length[rows]
        step = tried - self.at[rows]
        slope = (self.slopes[rows] * step).sum(axis=1)
        low_enough = values <= self.values[rows] + ENOUGH_FALL * slope
        flat_enough = (slopes * step).sum(axis=1) >= ENOUGH_SLOPE * slope
        better = low_enough & (values <= self.moved_values[rows])
        self.moved[rows[better]] = tried[better]
        self.moved_values[rows[better]] = values[better]
        self.moved_slopes[rows[better]] = slopes[better]
        self.short[rows[low_enough]] = length[low_enough]
        self.long[rows[~low_enough]] = length[~low_enough]
        # Doubled until a length is too long, then halfway between the two.
        halfway = (self.short[rows] + self.long[rows]) / 2
        self.length[rows] = np.where(np.isinf(self.long[rows]), 2 * length, halfway)
        self.tries[rows] += 1
        return np.asarray((low_enough & flat_enough) | (self.tries[rows] == MOST_TRIES))

    def step(self, rows: Numbers) -> Bool[np.ndarray, " n"]:
        """Take the best tries, and return which searches end there."""
        self._update(rows, self.moved[rows] - self.at[rows], self.moved_slopes[rows] - self.slopes[rows])
        still = self.values[rows] - self.moved_values[rows] <= STALL * self.values[rows]
        self.at[rows] = self.moved[rows]
        self.values[rows] = self.moved_values[rows]
        self.slopes[rows] = self.moved_slopes[rows]
        settled = np.abs(self._free(rows)).max(axis=1) < SLOPE_TOLERANCE
        ended = settled | (still & self.stalled[rows])
        again = rows[still & ~ended]
        self.inverse[again] = self.one
        self.fresh[again] = True
        self.stalled[rows] = still
        return np.asarray(ended)

    def _update(self, rows: Numbers, step: Vectors, turn: Vectors) -> None:
        """The inverse Hessians by BFGS, where the slope rose along the step.

        For a step ``s`` and a change of slopes ``y``: ``H' = (I - s y^T / s.y) H (I - y s^T / s.y) + s s^T /
        s.y``. The first H is ``I s.y / y.y`` (Nocedal and Wright 2006, equations 6.17 and 6.20).
        """
        rise = (step * turn).sum(axis=1)
        rising = rise > 1e-10 * np.sqrt((step**2).sum(axis=1) * (turn**2).sum(axis=1))
        rows = rows[rising]
        step = step[rising]
        turn = turn[rising]
        rise = rise[rising]
        before = self.inverse[rows]
        first = self.fresh[rows]
        scale = rise / (turn**2).sum(axis=1)
        before[first] = self.one * scale[first, None, None]
        left = self.one - step[:, :, None] * turn[:, None, :] / rise[:, None, None]
        along = step[:, :, None] * step[:, None, :] / rise[:, None, None]
        self.inverse[rows] = left @ before @ left.transpose(0, 2, 1) + along
        self.fresh[rows] = False
