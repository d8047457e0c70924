"""Value, standard error and interval of a measure: of one model, of two, and of what separates them.

Every number here is a weighted sum of a measure's values after and before (`Estimates.combined`): the
difference has the weights 1 and -1, and the test against a margin that is a share m of the baseline has 1 and
m - 1. Its standard error comes from the jackknife over units, so that a mean needs no resamples; its interval
is that of t, corrected for skewness. Statistics that are no mean (Spearman, average precision, V-measure)
have BCa intervals from resamples of the units, where either model has one run.

*Runs* of several seeds are a second source of error (Davison and Hinkley 1997, section 3.8). Runs of one
length on one scale differ alike, so their deviations from the mean of their model form one pool for all
models:

    s^2 = sum (value of a run - mean of its model)^2 / sum (S - 1),   S runs of a model

A sum with the weights a and b has the variance ``s^2 (a^2 / S_after + b^2 / S_before)`` from runs; a model of
one run adds nothing. Runs differ in part because each is better on other units. The jackknife over units
contains that part as well; it is known well, from many units, so it is taken off the variance of units, and
the deviation of runs stays whole.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.stats.jackknife import Jackknife
from adiabat.stats.resampling import bca_interval
from adiabat.stats.student_t import (
    CONFIDENCE,
    Interval,
    bias_of_deviation,
    noncentrality,
    skewed_quantile,
    student_p_value,
    student_quantile,
)
from adiabat.stats.unit_arrays import Draws


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with its standard error.

    Attributes:
        value: On the data.
        of_units: Standard error over units.
        of_runs: Standard error over runs.
        freedom: Degrees of freedom of both together; 0 if there are no two units.
        acceleration: How fast the standard error changes with the value (`Jackknife.acceleration`).
        draws: The number on resamples of the units, for a statistic that is no mean; None for a t interval.
    """

    value: float
    of_units: float
    of_runs: float
    freedom: float
    acceleration: float = 0.0
    draws: Draws | None = None

    @property
    def error(self) -> float:
        """Standard error over units and runs."""
        return math.hypot(self.of_units, self.of_runs)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the t test against 0."""
        return student_p_value(self.value, self.error, self.freedom)

    def interval(self, confidence: float = CONFIDENCE, *, skewed: bool = True) -> Interval | None:
        """Interval of t; None if there are no two units.

        With `skewed`, an end lies further out where the skewness of the units asks for it, as BCa says with
        resamples and `skewed_quantile` without. It never lies nearer: where few units changed, their skewness
        is mostly chance.
        """
        if self.freedom == 0:
            return None
        level = (1 + confidence) / 2
        half = student_quantile(level, self.freedom) * self.error
        low, high = self.value - half, self.value + half
        if not skewed or self.error == 0:
            return low, high
        if self.draws is not None:
            further_low, further_high = self.bca_interval(self.draws, confidence)
        else:
            further_low = self.value - self.error * skewed_quantile(level, self.freedom, self.acceleration)
            further_high = self.value + self.error * skewed_quantile(level, self.freedom, -self.acceleration)
        return min(low, further_low), max(high, further_high)

    def bca_interval(self, draws: Draws, confidence: float = CONFIDENCE) -> Interval:
        """BCa interval from resamples of the units."""
        return bca_interval(self.value, draws, acceleration=self.acceleration, confidence=confidence)

    def lower_end(self, *, skewed: bool = True) -> float:
        """One-sided 95 % lower end; minus infinity if there are no two units."""
        interval = self.interval(confidence=2 * CONFIDENCE - 1, skewed=skewed)
        return -math.inf if interval is None else interval[0]

    def detectable(self) -> float | None:
        """A true value whose interval lies beside zero four times in five; None if nothing varies.

        The critical value is half the width of the interval in standard errors, 1.96 for many units.
        """
        interval = self.interval()
        if interval is None or self.error == 0:
            return None
        # The standard deviation of few units is too low on average: hence the division.
        critical = (interval[1] - interval[0]) / 2 / self.error
        return self.error / bias_of_deviation(self.freedom) * noncentrality(critical, self.freedom)


@dataclass(frozen=True, slots=True)
class RunSpread:
    """How runs of one seed differ from those of another.

    Attributes:
        counts: Numbers of runs: of the model under test, and of the baseline (0 without one).
        variance: Variance of a single run.
        over_units: The part of the variance over units of a single run by which it differs from the others.
    """

    counts: tuple[int, int]
    variance: float
    over_units: float

    @classmethod
    def of(
        cls,
        values: tuple[Float[np.ndarray, "1 s"], Float[np.ndarray, "1 t"]],
        without: tuple[Float[np.ndarray, "m s"], Float[np.ndarray, "m t"]],
        jackknife: Jackknife,
    ) -> "RunSpread":
        """The spread of both models' runs, from the value of each run and its jackknife columns."""
        counts = (values[0].shape[1], values[1].shape[1])
        freedom = sum(max(count - 1, 0) for count in counts)
        if not freedom:
            return cls(counts, 0.0, 0.0)
        squares = sum(float((_deviations(side) ** 2).sum()) for side in values)
        columns = np.concatenate([_deviations(side) for side in without], axis=1)
        variances = [replace(jackknife, values=column).error()[0] ** 2 for column in columns.T]
        return cls(counts, squares / freedom, sum(variances) / freedom)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variance."""
        return sum(max(count - 1, 0) for count in self.counts)

    def share(self, *weights: float) -> float:
        """Share of a run's variance in a sum of the two models' means with these weights."""
        return sum(weight**2 / count for weight, count in zip(weights, self.counts, strict=True) if count > 1)

    def freedom_with(self, units: float, of_units: float, of_runs: float) -> float:
        """Degrees of freedom of the standard errors of units and of runs together (Satterthwaite 1946).

        ``1 / ((1 - r)^2 / f_units + r^2 / f_runs)``, r the share of runs in the variance. Two runs beside one
        say hardly how runs vary (f_runs = 1): r counts in place of its square, and intervals miss in 5 of 100
        trials, and in 7 with the square.
        """
        # Both standard errors are independent, so that variances are added.
        of_variance = of_runs**2 / (of_units**2 + of_runs**2)
        uncertain = of_variance if self.freedom == 1 else of_variance**2 / self.freedom
        return 1 / ((1 - of_variance) ** 2 / units + uncertain)


@dataclass(frozen=True, slots=True)
class Estimates:
    """A measure after, before, and their difference.

    Attributes:
        values: The three on the data; before and difference are 0 without a baseline.
        without: The three without each unit.
        jackknife: Groups and weights of these units.
        runs: The spread of runs.
        draws: The three on resamples of the units; None for a mean, and over several runs.
    """

    values: Float[np.ndarray, " 3"]
    without: Float[np.ndarray, "m 3"]
    jackknife: Jackknife
    runs: RunSpread
    draws: Float[np.ndarray, "r 3"] | None = None

    def combined(self, *, after: float = 0.0, before: float = 0.0, difference: float = 0.0) -> Quantity:
        """The sum of the three with these weights."""
        every = np.array([after, before, difference])
        # A value that does not count may be undefined on a resample.
        counted = np.flatnonzero(every)
        weights = every[counted]
        left_out = replace(self.jackknife, values=self.without[:, counted] @ weights)
        of_units, freedom = left_out.error()
        value, acceleration = float(self.values[counted] @ weights), left_out.acceleration()
        if self.draws is not None:
            return Quantity(value, of_units, 0.0, freedom, acceleration, self.draws[:, counted] @ weights)
        # A difference adds its weight to after and takes it from before.
        share = self.runs.share(after + difference, before - difference)
        of_runs = math.sqrt(share * self.runs.variance)
        if of_runs > 0 and freedom > 0:
            of_units = math.sqrt(max(0.0, of_units**2 - share * self.runs.over_units))
            freedom = self.runs.freedom_with(freedom, of_units, of_runs)
            # Runs move the sum up as often as down: the third moment stays that of the units, but the spread
            # grows.
            acceleration *= (of_units / math.hypot(of_units, of_runs)) ** 3
        return Quantity(value, of_units, of_runs, freedom, acceleration)


def _deviations(values: Float[np.ndarray, "r s"]) -> Float[np.ndarray, "r s"]:
    """Deviations from the mean over runs; 0 if they are rounding alone, or of a single run."""
    if values.shape[1] < 2:
        return np.zeros(values.shape)
    deviations = values - values.mean(axis=1, keepdims=True)
    return np.where(np.abs(deviations) <= 1e-12 * np.abs(values), 0.0, deviations)
