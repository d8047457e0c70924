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
"""Residuals of the logarithm above this count linearly instead of quadratically (Ziarko et al. 2024, appendix F)."""

# Wider ones first: with the last one alone the loss is nearly a sum of absolute values, on whose kinks a quasi-Newton method stalls.
DELTAS = (3e-2, 5e-3, HUBER_DELTA)
REFIT_DELTAS = (1e-2, HUBER_DELTA)
_STARTS = 6
_STARTS_KEPT = 2
_EXPONENT_STARTS: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "beta": (0.1, 0.2, 0.3, 0.45, 0.65, 0.9, 1.3),
    "b_s": (0.5, 1.0, 2.0, 4.0),
}
_EXPONENT_BOUNDS = (0.01, 5.0)
# Below this share of the least loss the logarithm of a prediction continues as a straight line, defined for negative predictions too.
_FLOOR = 1e-3
# A positive weight may fall to this share of the least loss, which is to say vanish.
_LEAST = 1e-7

MOST_STEPS = 300
"""Steps of a search of many problems at once; the few that need more are searched one by one."""

STALL = 1e-9
"""Relative fall of the objective below which a step of many problems counts as stalled."""

SAME = 1e-4
"""Logarithms of coefficients that differ by less are of one minimum."""

DOUBTFUL = 0.05
"""Share of the problems with the largest objectives, which may have ended in a minimum that is not the least, and are searched again."""

MOST_TRIES = 25
"""Tries of a step's length."""

ENOUGH_FALL, ENOUGH_SLOPE = 1e-4, 0.9
"""Weak Wolfe conditions: the least fall, as a share of that along the slope, and the greatest slope that may remain."""

FALL_TOLERANCE, SLOPE_TOLERANCE = 1e-13, 1e-9
"""A search ends where the objective falls by less than the one, or its slopes are below the other."""

Vectors = Float[np.ndarray, "n c"]
Values = Float[np.ndarray, " n"]
Numbers = Int[np.ndarray, " n"]
Objective = Callable[[Vectors, Numbers], tuple[Values, Vectors]]


class Problems:
    """Objectives over vectors: logarithms of exponents, then weights, positive ones as logarithms.

    Each problem weighs the runs by the number of times that it holds them, so that resamples share the columns of the runs.
    """

    def __init__(self, law: Law, base: Base, powers: Powers, loss: Column, counts: Float[np.ndarray, "n p"]) -> None:
        self.law, self.base, self.powers, self.loss = law, base, powers, loss
        self.flat = powers.reshape(len(powers), -1)
        self.target = np.log(loss)
        self.shares = counts / counts.sum(axis=1, keepdims=True)
        self.least = np.where(counts > 0, loss, np.inf).min(axis=1)
        self.positive = np.array(law.positive)

    def split(self, vectors: Vectors) -> tuple[Float[np.ndarray, "n e"], Float[np.ndarray, "n w"]]:
        """Exponents and weights."""
        weights = vectors[:, len(self.powers) :]
        return np.exp(vectors[:, : len(self.powers)]), np.where(self.positive, np.exp(np.where(self.positive, weights, 0.0)), weights)

    def joined(self, exponents: Exponents, weights: Weights) -> Float[np.ndarray, " c"]:
        """The vector of coefficients."""
        searched = np.where(self.positive, np.log(np.where(self.positive, weights, 1.0)), weights)
        return np.concatenate([np.log(exponents), searched])

    def objective(self, vectors: Vectors, problems: Numbers, delta: float) -> tuple[Values, Vectors]:
        """Mean Huber loss over `delta` of some problems, and its gradient."""
        exponents, weights = self.split(vectors)
        columns = self.base * np.exp(exponents @ self.flat).reshape(len(vectors), *self.base.shape)
        logs, slopes = self._logs((columns @ weights[:, :, None])[:, :, 0], _FLOOR * self.least[problems, None])
        residuals, shares = logs - self.target, self.shares[problems]
        sizes = np.abs(residuals)
        within = np.minimum(sizes, delta)
        values = (shares * within * (sizes - within / 2)).sum(axis=1) / delta
        pulled = (shares * np.clip(residuals / delta, -1, 1) * slopes)[:, :, None] * columns
        weight_gradient = pulled.sum(axis=1) * np.where(self.positive, weights, 1.0)
        exponent_gradient = (pulled * weights[:, None, :]).reshape(len(vectors), self.flat.shape[1]) @ self.flat.T * exponents
        return values, np.concatenate([exponent_gradient, weight_gradient], axis=1)

    def _objective_of(self, within: Numbers, delta: float, vectors: Vectors, rows: Numbers) -> tuple[Values, Vectors]:
        """The objective of rows of some problems."""
        return self.objective(vectors, within[rows], delta)

    def _logs(self, predicted: Float[np.ndarray, "n p"], floor: Float[np.ndarray, "n 1"]) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of predictions and their slopes; a straight line below the floor."""
        above = np.maximum(predicted, floor)
        return np.log(above) + np.minimum(predicted - floor, 0) / floor, 1 / above

    def starts(self) -> list[Float[np.ndarray, " c"]]:
        """The best of a grid of exponents, each with the weights of least squares over all runs."""
        candidates = []
        for exponents in product(*(_EXPONENT_STARTS[name] for name in self.law.exponents)):
            weights, norm = self._least_squares(np.array(exponents))
            least = np.where(self.positive, np.maximum(weights, 10 * _LEAST * self.loss.min()), weights)
            candidates.append((norm, self.joined(np.array(exponents), least)))
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
        return np.concatenate([low * exponents, lows], axis=1), np.concatenate([high * exponents, highs], axis=1)

    def search_one(
        self, problem: int, starts: Sequence[Float[np.ndarray, " c"]], deltas: tuple[float, ...]
    ) -> tuple[Float[np.ndarray, " c"], float]:
        """Coefficients of least objective of one problem from the best of some starts, by L-BFGS-B, with that objective."""
        found = [(start, math.inf) for start in starts]
        for delta in deltas:
            found = _distinct([self._searched(problem, start, delta) for start, _ in found])[:_STARTS_KEPT]
        vector, value = found[0]
        return vector, value * deltas[-1]

    def _searched(self, problem: int, start: Float[np.ndarray, " c"], delta: float) -> tuple[Float[np.ndarray, " c"], float]:
        from scipy.optimize import minimize

        number, bounds = np.array([problem]), list(zip(*(ends[problem] for ends in self.bounds()), strict=True))

        def objective(vector: Float[np.ndarray, " c"]) -> tuple[float, Float[np.ndarray, " c"]]:
            values, gradients = self.objective(vector[None], number, delta)
            return float(values[0]), gradients[0]

        options = {"maxiter": 1000, "maxcor": 20, "ftol": FALL_TOLERANCE, "gtol": SLOPE_TOLERANCE}
        result: Any = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return result.x, float(result.fun)

    def search_all(
        self, start: Float[np.ndarray, " c"], deltas: tuple[float, ...], note: Callable[[int], None] | None = None
    ) -> tuple[Vectors, Values]:
        """Coefficients of least objective of every problem, each from the same start, with these objectives.

        All problems take their steps together. Those that take more than `MOST_STEPS`, and the `DOUBTFUL`, are searched again by
        `search_one`; of the latter the better result is kept.
        """
        count = len(self.shares)
        vectors, values, slow = np.tile(start, (count, 1)), np.zeros(count), np.zeros(count, dtype=bool)
        for delta in deltas:
            within = np.flatnonzero(~slow)
            found, fell, ended = descend(
                partial(self._objective_of, within, delta), vectors[within], *(ends[within] for ends in self.bounds())
            )
            vectors[within], values[within], slow[within] = found, fell * deltas[-1], ~ended
        doubtful = np.flatnonzero(slow | (values >= np.quantile(values, 1 - DOUBTFUL)))
        if note:
            note(count - len(doubtful))
        for number, problem in enumerate(doubtful.tolist()):
            vector, value = self.search_one(problem, [start], deltas)
            if slow[problem] or value < values[problem]:
                vectors[problem], values[problem] = vector, value
            if note:
                note(count - len(doubtful) + number + 1)
        return vectors, values


def _distinct(found: Sequence[tuple[Float[np.ndarray, " c"], float]]) -> list[tuple[Float[np.ndarray, " c"], float]]:
    """Vectors with their values, least first, without those that equal one before."""
    distinct: list[tuple[Float[np.ndarray, " c"], float]] = []
    for vector, value in sorted(found, key=itemgetter(1)):
        if not any(np.allclose(vector, other, rtol=0, atol=SAME) for other, _ in distinct):
            distinct.append((vector, value))
    return distinct


def descend(objective: Objective, start: Vectors, low: Vectors, high: Vectors) -> tuple[Vectors, Values, np.ndarray]:
    """Minimise many small problems together: BFGS with a step's length from bisection (Lewis and Overton 2013), within bounds.

    Bisection to the weak Wolfe conditions suits objectives with kinks. Components at a bound that the slope pushes against stay there. The
    inverse Hessian starts again from the unit matrix where a step stalls; a problem ends where that stalls too. Beside vectors and values
    stands whether each search ended within `MOST_STEPS`.
    """
    at = np.clip(start, low, high)
    count, width = at.shape
    values, slopes = objective(at, np.arange(count))
    inverse, fresh = np.tile(np.eye(width), (count, 1, 1)), np.ones(count, dtype=bool)
    stalled, live = np.zeros(count, dtype=bool), np.arange(count)
    for _ in range(MOST_STEPS):
        if not len(live):
            break
        free = _free(at[live], slopes[live], low[live], high[live])
        direction = np.where(free == 0, 0.0, -(inverse[live] @ free[:, :, None])[:, :, 0])
        uphill = (direction * free).sum(axis=1) >= 0
        inverse[live[uphill]], fresh[live[uphill]] = np.eye(width), True
        direction[uphill] = -free[uphill]
        length = np.where(fresh[live], np.minimum(1, 1 / np.maximum(np.abs(free).sum(axis=1), 1e-300)), 1.0)
        moved, fell, new = _step(objective, live, (at, values, slopes), direction, length, (low, high))
        step, turn = moved - at[live], new - slopes[live]
        _update(inverse, fresh, live, step, turn)
        still = values[live] - fell <= STALL * values[live]
        at[live], values[live], slopes[live] = moved, fell, new
        settled = np.abs(_free(moved, new, low[live], high[live])).max(axis=1) < SLOPE_TOLERANCE
        ended = settled | (still & stalled[live])
        again = live[still & ~ended]
        inverse[again], fresh[again], stalled[live] = np.eye(width), True, still
        live = live[~ended]
    ended_all = np.ones(count, dtype=bool)
    ended_all[live] = False
    return at, values, ended_all


def _free(at: Vectors, slopes: Vectors, low: Vectors, high: Vectors) -> Vectors:
    """Slopes without those that push against a bound."""
    return np.where(((at <= low) & (slopes > 0)) | ((at >= high) & (slopes < 0)), 0.0, slopes)


def _step(
    objective: Objective,
    live: Numbers,
    before: tuple[Vectors, Values, Vectors],
    direction: Vectors,
    length: Values,
    bounds: tuple[Vectors, Vectors],
) -> tuple[Vectors, Values, Vectors]:
    """The vectors, values and slopes of problems after a step that meets the weak Wolfe conditions, or the best one tried."""
    at, values, slopes = (of[live] for of in before)
    low, high = (ends[live] for ends in bounds)
    moved, fell, new = at.copy(), values.copy(), slopes.copy()
    short, long, open_ = np.zeros(len(live)), np.full(len(live), np.inf), np.arange(len(live))
    for _ in range(MOST_TRIES):
        tried = np.clip(at[open_] + length[open_, None] * direction[open_], low[open_], high[open_])
        there, steep = objective(tried, live[open_])
        step = tried - at[open_]
        slope = (slopes[open_] * step).sum(axis=1)
        low_enough = there <= values[open_] + ENOUGH_FALL * slope
        flat_enough = (steep * step).sum(axis=1) >= ENOUGH_SLOPE * slope
        better = low_enough & (there <= fell[open_])
        rows = open_[better]
        moved[rows], fell[rows], new[rows] = tried[better], there[better], steep[better]
        short[open_], long[open_] = np.where(low_enough, length[open_], short[open_]), np.where(low_enough, long[open_], length[open_])
        open_ = open_[~(low_enough & flat_enough)]
        if not len(open_):
            break
        length[open_] = np.where(np.isinf(long[open_]), 2 * length[open_], (short[open_] + long[open_]) / 2)
    return moved, fell, new


def _update(inverse: Float[np.ndarray, "n c c"], fresh: np.ndarray, live: Numbers, step: Vectors, turn: Vectors) -> None:
    """The inverse Hessians by BFGS, where the slope rose along the step."""
    rise = (step * turn).sum(axis=1)
    rising = rise > 1e-10 * np.sqrt((step**2).sum(axis=1) * (turn**2).sum(axis=1))
    rows, step, turn, rise = live[rising], step[rising], turn[rising], rise[rising]
    one, held = np.eye(inverse.shape[1]), inverse[rows]
    first = fresh[rows]
    held[first] = one * (rise / (turn**2).sum(axis=1))[first, None, None]
    left = one - step[:, :, None] * turn[:, None, :] / rise[:, None, None]
    inverse[rows] = left @ held @ left.transpose(0, 2, 1) + step[:, :, None] * step[:, None, :] / rise[:, None, None]
    fresh[rows] = False
