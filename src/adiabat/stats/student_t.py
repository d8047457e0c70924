"""Student's t: quantiles, degrees of freedom of sums, and the interval of a mean between two bounds."""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

CONFIDENCE = 0.95
"""Confidence of all intervals."""

POWER = 0.80
"""Probability with which a detectable difference is found, and a number of units that a margin needs is
enough.
"""

NORMAL = 1000
"""Degrees of freedom from which the noncentral t counts as normal."""

Interval = tuple[float, float]


def student_quantile(level: float, freedom: float) -> float:
    """Quantile of Student's t distribution; `freedom` may be fractional, or infinite for the normal
    distribution.
    """
    if math.isinf(freedom):
        return NormalDist().inv_cdf(level)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, level))


def skewed_quantile(level: float, freedom: float, acceleration: float) -> float:
    """Quantile of ``T = (value - truth) / error`` where units are skewed.

    For many units it is nearly ``z - a (2 z^2 + 1)``, with z the normal quantile and a the acceleration, a
    sixth of the skewness of the mean (Johnson 1978). That of t grows or shrinks by as much, in proportion.
    """
    z = NormalDist().inv_cdf(level)
    return student_quantile(level, freedom) * (1 - acceleration * (2 * z**2 + 1) / z)


def student_p_value(value: float, error: float, freedom: float) -> float:
    """Two-sided p-value of ``value = 0``: ``2 P(T > |value| / error)``; 1 if both are 0, or without degrees
    of freedom.
    """
    if freedom == 0 or value == 0:
        return 1.0
    if error == 0:
        return 0.0
    from scipy.special import stdtr

    return 2 * float(stdtr(freedom, -abs(value) / error))


def freedom_of_sum(variances: Float[np.ndarray, " n"], freedoms: Float[np.ndarray, " n"]) -> float:
    """Degrees of freedom of a sum of independent variances: ``(sum v)^2 / sum(v^2 / f)`` (Satterthwaite
    1946).
    """
    return float(variances.sum() ** 2 / (variances**2 / freedoms).sum())


def equal_units(weights: Float[np.ndarray, " n"]) -> float:
    """Number of units of equal weight that are worth as much: ``(sum w)^2 / sum w^2`` (Kish 1965)."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def noncentrality(critical: float, freedom: float, power: float = POWER) -> float:
    """The true value, in standard errors, whose t statistic exceeds a critical value with a probability of
    `power`.
    """
    if freedom > NORMAL:
        return critical + student_quantile(power, math.inf)
    from scipy.special import nctdtrinc

    return float(nctdtrinc(freedom, 1 - power, critical))


def bias_of_deviation(freedom: float) -> float:
    """Expected standard deviation of a normal sample as a share of the true one: ``sqrt(2 / f) Gamma((f + 1)
    / 2) / Gamma(f / 2)``.
    """
    # Beyond this the bias is below 0.03 %.
    if freedom >= NORMAL:
        return 1.0
    gammas = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)
    return math.sqrt(2 / freedom) * math.exp(gammas)


def score_interval(value: float, error: float, freedom: float, bounds: Interval) -> Interval:
    """T interval of a mean whose units lie between two bounds; it stays between them.

    Near a bound a mean varies less, so an interval of equal halves is too short on the other side: with 50
    queries and a P@1 of 0.9 it misses in 12 of 100 trials, this one in 3. On the scale of 0 to 1, a true mean
    p belongs to the interval if

        |value - p| <= t sqrt(p (1 - p) / n),   n = value (1 - value) / error^2

    n is the number of units, all 0 or 1, that would have this error. At a bound, where nothing varies, it is
    the degrees of freedom.

    Args:
        value: The mean.
        error: Its standard error, >= 0.
        freedom: Degrees of freedom of the error, > 0.
        bounds: The lowest and the highest possible value of a unit.

    Returns:
        Lower and upper end, at 95 %.

    Reference:
        Wilson 1927; Korn and Graubard 1998 (n from the standard error).
    """
    low, high = bounds
    mean = min(max((value - low) / (high - low), 0.0), 1.0)
    most_variance = mean * (1 - mean)
    units = freedom
    if most_variance > 0:
        units = most_variance / (error / (high - low)) ** 2 if error > 0 else math.inf
    # The inequality is quadratic in p; its solutions lie around a centre that is pulled to the middle.
    pull = student_quantile((1 + CONFIDENCE) / 2, freedom) ** 2 / units
    centre = (mean + pull / 2) / (1 + pull)
    half = math.sqrt(pull * most_variance + pull**2 / 4) / (1 + pull)
    return low + (high - low) * max(centre - half, 0.0), low + (high - low) * min(centre + half, 1.0)
