"""The jackknife: values of a sample without each of its units, and what they say of its standard error.

With m values v_i, each without one unit (Efron and Tibshirani 1993, equation 11.5),

    SE = sqrt((m - 1) / m  sum_i (v_i - mean of v)^2)

which is the standard deviation over ``sqrt(m)`` if the sample's value is a plain mean. It has m - 1 degrees
of freedom. Units of unequal weight are worth fewer equal ones (Kish 1965): where one cluster holds most
queries, its own mean decides, and the other clusters say little about the spread of that. Variances of groups
are added, and so are their degrees of freedom (Welch 1938; Satterthwaite 1946).
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from adiabat.stats.samples import Sample
from adiabat.stats.statistics import members_of, value_of
from adiabat.stats.student_t import CONFIDENCE, equal_units, freedom_of_sum, student_quantile
from adiabat.stats.unit_arrays import Numbers, Rows, Values

MOST_VALUES = 2000
"""With more units, several of a group are left out at a time: the third and second moments of independent
influences add up.
"""

# Counts per block: 8 MB as 64-bit floats.
_BLOCK_CELLS = 2**20


@dataclass(frozen=True, slots=True)
class Jackknife:
    """Values without each unit.

    Attributes:
        values: One for each unit that is left out; NaN if the rest has no value.
        groups: Group of each of these units; None if all are one group.
        weights: Weights of these units, above 0; None if they weigh the same.
    """

    values: Float[np.ndarray, " m"]
    groups: Int[np.ndarray, " m"] | None = None
    weights: Float[np.ndarray, " m"] | None = None

    @classmethod
    def of(cls, sample: Sample) -> Self:
        """The jackknife of a sample; units of a mean that weigh nothing are passed over."""
        if sample.statistic == "mean":
            weighty = sample.take(np.flatnonzero(sample.weights > 0))
            return cls(_means_without(weighty), weighty.groups, weighty.weights)
        parts = _parts(sample)
        values = np.empty(parts.max() + 1)
        rows = max(1, _BLOCK_CELLS // parts.size)
        for start in range(0, values.size, rows):
            numbers = np.arange(start, min(start + rows, values.size))
            kept = parts != numbers[:, None]
            values[numbers] = value_of(sample, kept.astype(np.float64))
        _, first_units = np.unique(parts, return_index=True)
        return cls(values, None if sample.groups is None else sample.groups[first_units])

    def error(self) -> tuple[float, float]:
        """Standard error, and its degrees of freedom: 0 if no group has two units, or their weights are worth
        fewer.
        """
        variances, freedoms = [], []
        for units in self._members():
            values = self.values[units]
            # Values that differ by rounding do not vary.
            rounding = 1e-12 * float(np.abs(values).max())
            variances.append(float(values.var()) * (units.size - 1) if np.ptp(values) > rounding else 0.0)
            freedoms.append((units.size if self.weights is None else equal_units(self.weights[units])) - 1)
        if not any(variances):
            return 0.0, sum(freedoms)
        freedom = freedom_of_sum(np.array(variances), np.array(freedoms))
        # One cluster may outweigh all others: then they estimate nothing.
        return math.sqrt(sum(variances)), freedom if freedom > 1 - 1e-9 else 0.0

    def acceleration(self) -> float:
        """How fast the standard error changes with the value, for BCa intervals; 0 if no unit has any
        influence.

        ``a = sum u^3 / (6 (sum u^2)^(3/2))``, with the influences ``u = (m - 1) / m (mean - v)`` of the m
        values of each group (Efron and Tibshirani 1993, equation 14.15; Davison and Hinkley 1997, section
        5.3, for several groups).
        """
        influences = [
            (self.values[units].mean() - self.values[units]) * (units.size - 1) / units.size
            for units in self._members()
        ]
        squares = sum(float((influence**2).sum()) for influence in influences)
        cubes = sum(float((influence**3).sum()) for influence in influences)
        return cubes / (6 * squares**1.5) if squares > 0 else 0.0

    def _members(self) -> list[Rows]:
        """Indices of the finite values of each group that has two."""
        finite = [
            units[np.isfinite(self.values[units])] for units in members_of(self.groups, self.values.size)
        ]
        return [units for units in finite if units.size > 1]


def lower_end(sample: Sample, confidence: float = CONFIDENCE) -> float:
    """One-sided lower end of a mean, ``value - t SE``, whose clusters are drawn whole.

    Args:
        sample: Values of a mean without groups, at least one.
        confidence: Of the end, in (0.5, 1).

    Returns:
        In the unit of the values; minus infinity where units are too few for a standard error.
    """
    drawn = sample if sample.clusters is None else sample.summed_over(sample.clusters)
    error, freedom = Jackknife.of(drawn).error()
    if not freedom:
        return -math.inf
    return float(value_of(drawn)[0]) - student_quantile(confidence, freedom) * error


def _means_without(sample: Sample) -> Values:
    """Mean over groups of ``sum v / sum w``, where the group of the unit that is left out lacks its value and
    weight.
    """
    members = members_of(sample.groups, sample.values.size)
    means = [sample.values[units].sum() / sample.weights[units].sum() for units in members]
    without = np.empty(sample.values.shape)
    for units, mean in zip(members, means, strict=True):
        values, weights = sample.values[units], sample.weights[units]
        remaining = weights.sum() - weights
        # Without a unit that has all the weight, only rounding is left.
        enough = remaining > 1e-9 * weights.sum()
        changed = np.divide(
            values.sum() - values, remaining, out=np.full(remaining.shape, np.nan), where=enough
        )
        without[units] = (sum(means) - mean + changed) / len(members)
    return without


def _parts(sample: Sample) -> Numbers:
    """Number of the part that each unit is left out with: its own, or one of about `MOST_VALUES`, each within
    one group.
    """
    parts = np.empty(sample.values.size, dtype=np.int64)
    used = 0
    for units in members_of(sample.groups, sample.values.size):
        count = math.ceil(units.size * min(1, MOST_VALUES / sample.values.size))
        parts[units] = used + np.arange(units.size) % count
        used += count
    return parts
