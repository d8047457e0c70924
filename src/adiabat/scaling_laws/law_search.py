"""Searching the coefficients of a law, for one set of runs or for many resamples of it at once."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from adiabat.scaling_laws.laws import Base, Column, Exponents, Law, Powers, Weights, columns_of

HUBER_DELTA = 1e-3
"""Residuals of the logarithm above this count linearly instead of quadratically (Ziarko et al. 2024, appendix
F)."""

# Wider ones first: with the last one alone the loss is nearly a sum of absolute values, on whose kinks a
# quasi-Newton method stalls.
DELTAS = (3e-2, 5e-3, HUBER_DELTA)
REFIT_DELTAS = (1e-2, HUBER_DELTA)
_STARTS = 4
_STARTS_KEPT = 2
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


class Problems:
    """Objectives over vectors: logarithms of exponents, then weights, positive ones as logarithms.

    Each problem weighs the runs by the number of times that it holds them, so that resamples share the
    columns of the runs.
    """

    def __init__(
        self, law: Law, base: Base, powers: Powers, loss: Column, counts: Float[np.ndarray, "n p"]
    ) -> None:
        self.law, self.base, self.powers, self.loss = law, base, powers, loss
        # Columns lie in rows here, so that runs, of which there are more, are beside each other in memory.
        self.rows, self.flat = base.T.copy(), powers.transpose(0, 2, 1).reshape(len(powers), -1)
        self.target = np.log(loss)
        self.shares = counts / counts.sum(axis=1, keepdims=True)
        self.least = np.where(counts > 0, loss, np.inf).min(axis=1)
        self.positive = np.array(law.positive)
        self.searched_by_log = np.concatenate([np.ones(len(powers), dtype=bool), self.positive])

    def split(self, vectors: Vectors) -> tuple[Float[np.ndarray, "n e"], Float[np.ndarray, "n w"]]:
        """Exponents and weights."""
        coefficients = np.exp(vectors, where=self.searched_by_log, out=vectors.copy())
        return coefficients[:, : len(self.powers)], coefficients[:, len(self.powers) :]

    def start_at(self, exponents: Exponents, weights: Weights) -> Float[np.ndarray, " c"]:
        """The vector of coefficients, with positive weights of at least `REVIVED`."""
        least = np.maximum(weights, REVIVED * self.loss.min())
        return np.concatenate([np.log(exponents), np.where(self.positive, np.log(least), weights)])

    def objective(self, vectors: Vectors, problems: Numbers, delta: float) -> tuple[Values, Vectors]:
        """Mean Huber loss over `delta` of some problems, and its gradient."""
        exponents, weights = self.split(vectors)
        columns = (exponents @ self.flat).reshape(len(vectors), *self.rows.shape)
        np.exp(columns, out=columns)
        columns *= self.rows
        terms = columns * weights[:, :, None]
        logs, slopes = self._logs(terms.sum(axis=1), _FLOOR * self.least[problems, None])
        residuals = logs - self.target
        clipped = np.minimum(np.maximum(residuals, -delta), delta)
        pulled = self.shares[problems] * clipped / delta
        values = (pulled * (residuals - clipped / 2)).sum(axis=1)
        pulled *= slopes
        terms *= pulled[:, None, :]
        exponent_gradient = terms.reshape(len(vectors), -1) @ self.flat.T * exponents
        weight_gradient = (columns @ pulled[:, :, None])[:, :, 0] * np.where(self.positive, weights, 1.0)
        return values, np.concatenate([exponent_gradient, weight_gradient], axis=1)

    def _logs(
        self, predicted: Float[np.ndarray, "n p"], floor: Float[np.ndarray, "n 1"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of predictions and their slopes; a straight line below the floor."""
        above = np.maximum(predicted, floor)
        return np.log(above) + np.minimum(predicted - floor, 0) / floor, 1 / above

    def starts(self) -> list[Float[np.ndarray, " c"]]:
        """The best of a grid of exponents, each with the weights of least squares over all runs."""
        candidates = []
        for exponents in product(*(_EXPONENT_STARTS[name] for name in self.law.exponents)):
            weights, norm = self._least_squares(np.array(exponents))
            candidates.append((norm, self.start_at(np.array(exponents), weights)))
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

    def bounds(self) -> tuple[Vectors, Vectors]:
        """Lower and upper bounds of the vector of each problem."""
        low, high = np.log(_EXPONENT_BOUNDS)
        exponents = np.ones((len(self.least), len(self.powers)))
        least = np.log(_LEAST * self.least)[:, None]
        lows, highs = np.where(self.positive, least, -np.inf), np.where(self.positive, least + 50, np.inf)
        return np.concatenate([low * exponents, lows], axis=1), np.concatenate(
            [high * exponents, highs], axis=1
        )

    def search_one(
        self, problem: int, starts: Sequence[Float[np.ndarray, " c"]], deltas: tuple[float, ...]
    ) -> tuple[Float[np.ndarray, " c"], float]:
        """Coefficients of least objective of one problem from the best of some starts, by L-BFGS-B, with that
        objective.
        """
        found = [(start, math.inf) for start in starts]
        for delta in deltas:
            found = _distinct([self._searched(problem, start, delta) for start, _ in found])[:_STARTS_KEPT]
        vector, value = found[0]
        return vector, value * deltas[-1]

    def _searched(
        self, problem: int, start: Float[np.ndarray, " c"], delta: float
    ) -> tuple[Float[np.ndarray, " c"], float]:
        from scipy.optimize import minimize

        number, bounds = (
            np.array([problem]),
            list(zip(*(ends[problem] for ends in self.bounds()), strict=True)),
        )

        def objective(vector: Float[np.ndarray, " c"]) -> tuple[float, Float[np.ndarray, " c"]]:
            values, gradients = self.objective(vector[None], number, delta)
            return float(values[0]), gradients[0]

        options = {"maxiter": 1000, "maxcor": 20, "ftol": FALL_TOLERANCE, "gtol": SLOPE_TOLERANCE}
        result: Any = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return result.x, float(result.fun)

    def search_all(
        self,
        start: Float[np.ndarray, " c"],
        deltas: tuple[float, ...],
        note: Callable[[int], None] | None = None,
    ) -> tuple[Vectors, Values]:
        """Coefficients of least objective of every problem, each from the same start, with these objectives.

        All problems take their steps together. `search_one` ends those that take more than `MOST_VALUES`.
        """
        count = len(self.shares)
        vectors, values, ended = np.tile(start, (count, 1)), np.zeros(count), np.ones(count, dtype=bool)
        for delta in deltas:
            vectors, values, ended = descend(partial(self.objective, delta=delta), vectors, *self.bounds())
        values *= deltas[-1]
        slow = np.flatnonzero(~ended).tolist()
        if note:
            note(count - len(slow))
        for number, problem in enumerate(slow, start=1):
            vectors[problem], values[problem] = self.search_one(problem, [vectors[problem]], deltas[-1:])
            if note:
                note(count - len(slow) + number)
        return vectors, values


def _distinct(
    found: Sequence[tuple[Float[np.ndarray, " c"], float]],
) -> list[tuple[Float[np.ndarray, " c"], float]]:
    """Vectors with their values, least first, without those that equal one before."""
    distinct: list[tuple[Float[np.ndarray, " c"], float]] = []
    for vector, value in sorted(found, key=itemgetter(1)):
        if not any(np.allclose(vector, other, rtol=0, atol=SAME) for other, _ in distinct):
            distinct.append((vector, value))
    return distinct


def descend(
    objective: Objective, start: Vectors, low: Vectors, high: Vectors
) -> tuple[Vectors, Values, np.ndarray]:
    """Minimise many small problems together: BFGS with a step's length from bisection (Lewis and Overton
    2013), within bounds.

    Bisection to the weak Wolfe conditions suits objectives with kinks. Components at a bound that the slope
    pushes against stay there. The inverse Hessian starts again from the unit matrix where a step stalls; a
    problem ends where that stalls too. Beside vectors and values stands whether each search ended within
    `MOST_VALUES`.
    """
    at, live = np.clip(start, low, high), np.arange(len(start))
    searches = _Searches(at, *objective(at, live), low, high)
    searches.aim(live)
    for _ in range(MOST_VALUES):
        if not len(live):
            break
        tried = np.clip(
            searches.at[live] + searches.length[live, None] * searches.direction[live], low[live], high[live]
        )
        over = np.flatnonzero(searches.judge(live, tried, *objective(tried, live)))
        ended = searches.step(live[over])
        searches.aim(live[over[~ended]])
        live = np.delete(live, over[ended])
    unfinished = np.zeros(len(at), dtype=bool)
    unfinished[live] = True
    return searches.at, searches.values, ~unfinished


class _Searches:
    """The state of many searches, each with its step and the best try of it so far; none waits for the tries
    of another.
    """

    def __init__(self, at: Vectors, values: Values, slopes: Vectors, low: Vectors, high: Vectors) -> None:
        count, width = at.shape
        self.at, self.values, self.slopes, self.low, self.high = at, values, slopes, low, high
        self.one = np.eye(width)
        self.inverse, self.fresh = np.tile(self.one, (count, 1, 1)), np.ones(count, dtype=bool)
        self.stalled, self.tries = np.zeros(count, dtype=bool), np.zeros(count, dtype=int)
        self.direction, self.length, self.short, self.long = (
            np.zeros_like(at),
            np.ones(count),
            np.zeros(count),
            np.full(count, np.inf),
        )
        self.moved, self.fell, self.new = at.copy(), values.copy(), slopes.copy()

    def aim(self, rows: Numbers) -> None:
        """Set the direction and the first length of the next step."""
        free = _free(self.at[rows], self.slopes[rows], self.low[rows], self.high[rows])
        direction = np.where(free == 0, 0.0, -(self.inverse[rows] @ free[:, :, None])[:, :, 0])
        uphill = (direction * free).sum(axis=1) >= 0
        self.inverse[rows[uphill]], self.fresh[rows[uphill]] = self.one, True
        direction[uphill] = -free[uphill]
        self.direction[rows] = direction
        self.length[rows] = np.where(
            self.fresh[rows], np.minimum(1, 1 / np.maximum(np.abs(free).sum(axis=1), 1e-300)), 1.0
        )
        self.short[rows], self.long[rows], self.tries[rows] = 0.0, np.inf, 0

    def judge(self, rows: Numbers, tried: Vectors, there: Values, steep: Vectors) -> np.ndarray:
        """Keep tries that are better, choose the next lengths, and return which steps are over."""
        values, length = self.values[rows], self.length[rows]
        step = tried - self.at[rows]
        slope = (self.slopes[rows] * step).sum(axis=1)
        low_enough = there <= values + ENOUGH_FALL * slope
        flat_enough = (steep * step).sum(axis=1) >= ENOUGH_SLOPE * slope
        better = low_enough & (there <= self.fell[rows])
        self.moved[rows[better]], self.fell[rows[better]], self.new[rows[better]] = (
            tried[better],
            there[better],
            steep[better],
        )
        short, long = (
            np.where(low_enough, length, self.short[rows]),
            np.where(low_enough, self.long[rows], length),
        )
        self.short[rows], self.long[rows] = short, long
        self.length[rows] = np.where(np.isinf(long), 2 * length, (short + long) / 2)
        self.tries[rows] += 1
        return np.asarray((low_enough & flat_enough) | (self.tries[rows] == MOST_TRIES))

    def step(self, rows: Numbers) -> np.ndarray:
        """Take the best tries, and return which searches end there."""
        moved, fell, new = self.moved[rows], self.fell[rows], self.new[rows]
        _update(self.inverse, self.fresh, rows, moved - self.at[rows], new - self.slopes[rows])
        still = self.values[rows] - fell <= STALL * self.values[rows]
        self.at[rows], self.values[rows], self.slopes[rows] = moved, fell, new
        settled = np.abs(_free(moved, new, self.low[rows], self.high[rows])).max(axis=1) < SLOPE_TOLERANCE
        ended = settled | (still & self.stalled[rows])
        again = rows[still & ~ended]
        self.inverse[again], self.fresh[again], self.stalled[rows] = self.one, True, still
        return np.asarray(ended)


def _free(at: Vectors, slopes: Vectors, low: Vectors, high: Vectors) -> Vectors:
    """Slopes without those that push against a bound."""
    return np.where(((at <= low) & (slopes > 0)) | ((at >= high) & (slopes < 0)), 0.0, slopes)


def _update(
    inverse: Float[np.ndarray, "n c c"], fresh: np.ndarray, live: Numbers, step: Vectors, turn: Vectors
) -> None:
    """The inverse Hessians by BFGS, where the slope rose along the step."""
    rise = (step * turn).sum(axis=1)
    rising = rise > 1e-10 * np.sqrt((step**2).sum(axis=1) * (turn**2).sum(axis=1))
    rows, step, turn, rise = live[rising], step[rising], turn[rising], rise[rising]
    one, held = np.eye(inverse.shape[1]), inverse[rows]
    first = fresh[rows]
    held[first] = one * (rise / (turn**2).sum(axis=1))[first, None, None]
    left = one - step[:, :, None] * turn[:, None, :] / rise[:, None, None]
    inverse[rows] = (
        left @ held @ left.transpose(0, 2, 1) + step[:, :, None] * step[:, None, :] / rise[:, None, None]
    )
    fresh[rows] = False
