"""Resamples of units, and intervals from them, for statistics that are no mean.

Units (queries, pairs, texts) are drawn whole, so that the dependence among the pairs of a unit, and between
two models on the same unit, is kept (Davison and Hinkley 1997, section 3.8).
"""

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from jaxtyping import Int

from adiabat.stats.calibrated import LARGEST_BIAS
from adiabat.stats.statistics import members_of
from adiabat.stats.student_t import CONFIDENCE, Interval
from adiabat.stats.unit_arrays import Counts, Draws, Numbers, Rows

RESAMPLES = 10_000

# Counts per block: 32 MB as 64-bit floats. A product with fewer rows spends its time on loading the other
# factor.
_BLOCK_CELLS = 2**22


def resampling_counts(
    units: int, *, resamples: int, seed: int, groups: Numbers | None = None, block_size: int | None = None
) -> Iterator[Counts]:
    """How often each unit is drawn in each resample: as many draws with replacement as there are units, in
    blocks of resamples.

    The counts depend on units, groups and `seed` alone, so measures of the same queries share their resamples
    even across calls.

    Args:
        units: Queries, or clusters of sentence pairs, > 0.
        resamples: How many in all, > 0.
        seed: Of the draws.
        groups: Number of each unit's group, from 0: each group is drawn from on its own, as often as it has
            units. None: one group.
        block_size: Resamples per block, > 0; None keeps a block within 32 MB. It changes nothing but the
            memory.

    Yields:
        One row per resample; each row sums to `units`.

    Raises:
        ValueError: If `units`, `resamples` or `block_size` is not above 0.
    """
    rows = max(1, _BLOCK_CELLS // max(units, 1)) if block_size is None else block_size
    for name, value in (("units", units), ("resamples", resamples), ("block_size", rows)):
        if value <= 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    generator = np.random.default_rng(seed)
    members = None if groups is None else members_of(groups, units)
    for start in range(0, resamples, rows):
        draws = _draw(generator, min(rows, resamples - start), units, members)
        counts = np.empty(draws.shape)
        for row, units_drawn in enumerate(draws):
            counts[row] = np.bincount(units_drawn, minlength=units)
        yield counts


def _draw(
    generator: np.random.Generator, rows: int, units: int, members: list[Rows] | None
) -> Int[np.ndarray, "r n"]:
    """Drawn units, one row per resample."""
    if members is None:
        return generator.integers(0, units, size=(rows, units), dtype=np.int32)
    sizes = np.array([each.size for each in members])
    starts = np.cumsum(sizes) - sizes
    # Each unit of a group is replaced by a random one of the same group.
    places = generator.integers(0, np.repeat(sizes, sizes), size=(rows, units), dtype=np.int32)
    return np.concatenate(members)[np.repeat(starts, sizes) + places]


def bca_interval(
    value: float, draws: Draws, *, acceleration: float = 0.0, confidence: float = CONFIDENCE
) -> Interval:
    """Bootstrap interval that is corrected for bias and skewness: it lies between two quantiles of the draws.

    The levels are ``Phi(b + (b + z) / (1 - a (b + z)))`` for both z of the confidence, where ``Phi(b)`` is
    the share of draws below the value, half of those that tie with it among them, and a the acceleration.

    Where the levels would run out of the draws, as they do when all draws lie on one side of the value
    (`LARGEST_BIAS`), or when ``a (b + z)`` reaches 1, the interval is the value and 1.96 standard deviations
    of the draws on either side. So it never is NaN, and where all draws are the value it has no width.

    Args:
        value: Of the sample as it is.
        draws: In each resample; those that are NaN are passed over.
        acceleration: a above.
        confidence: Share between the two ends, in (0, 1).

    Returns:
        Lower and upper end.

    Raises:
        ValueError: If `value` is not finite, or `confidence` lies outside (0, 1).

    Reference:
        Efron 1987; Efron and Tibshirani 1993, equations 14.9 to 14.15.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if not math.isfinite(value):
        raise ValueError(f"value must be finite, got {value}")
    defined = draws[~np.isnan(draws)]
    if defined.size == 0:
        return value, value
    normal = NormalDist()
    bias = _bias(value, defined)
    z = normal.inv_cdf((1 + confidence) / 2)
    levels = []
    for moved in (bias - z, bias + z):
        denominator = 1 - acceleration * moved
        if abs(bias) > LARGEST_BIAS or denominator <= 0:
            half = z * float(defined.std())
            return value - half, value + half
        levels.append(normal.cdf(bias + moved / denominator))
    low, high = np.quantile(defined, levels)
    return float(low), float(high)


def _bias(value: float, draws: Draws) -> float:
    """Standard errors from the middle of the draws up to the value."""
    # Sums of the same units differ by rounding, depending on their order.
    same = np.abs(draws - value) <= 1e-12 * max(abs(value), float(np.abs(draws).max()))
    share = float(((draws < value) & ~same).mean() + same.mean() / 2)
    if not 0 < share < 1:
        return math.copysign(math.inf, share - 0.5)
    return NormalDist().inv_cdf(share)


def percentile_interval(draws: Draws, *, confidence: float = CONFIDENCE) -> Interval:
    """Central interval that holds `confidence` of the draws; no draws are a `ValueError`."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
    if draws.size == 0:
        raise ValueError("draws must hold at least one resample, got none")
    low, high = np.quantile(draws, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
