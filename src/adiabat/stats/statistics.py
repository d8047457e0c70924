"""Draws of samples, on the data and on thousands of resamples.

A resample is a row of counts of drawn units. A unit drawn twice is two units that tie, so every value is
exactly that of the data written out in full, for a rank correlation as for a mean. Where a value is undefined
on a resample (all ranks tie, no pair belongs together) it is NaN, and callers skip that resample.

Letters in shapes: r resamples, n units, k samples, m distinct values.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float

from adiabat.stats.clusters import Clusters
from adiabat.stats.samples import Sample, Statistic
from adiabat.stats.unit_arrays import Counts, Draws, Numbers, Rows, Values

# Counts per block of a rank statistic: 2 MB as 64-bit floats, so that the block and its few copies stay in
# the cache.
_BLOCK_CELLS = 2**18


def value_of(sample: Sample, counts: Counts | None = None) -> Draws:
    """A sample's value on each resample; see `values_of`."""
    return values_of([sample], counts)[:, 0]


def values_of(samples: Sequence[Sample], counts: Counts | None = None) -> Float[np.ndarray, "r k"]:
    """Draws of several samples of the same units on the same resamples.

    With c the counts of a resample:

    - ``mean``: ``sum(c v) / sum(c w)``, w the reference.
    - ``spearman``: correlation of the ranks of values and reference; units that tie share the mean of
      their ranks.
    - ``average precision``: ``sum_t (R_t - R_(t-1)) P_t`` over the distinct values t from the highest, P
      and R precision and recall there.
    - ``v-measure``: ``2 h c / (h + c)`` of homogeneity ``h = I / H(labels)`` and completeness
      ``c = I / H(clusters)``.

    Args:
        samples: At least one; all of the same units in the same order.
        counts: As for `value_of`.

    Returns:
        One column per sample; NaN if its value is not defined.

    Raises:
        ValueError: If there is no sample, or not all are of equally many units.

    Reference:
        Spearman 1904; Rosenberg and Hirschberg 2007 (V-measure).
    """
    if not samples:
        raise ValueError("samples must be at least one, got none")
    draws = np.ones((1, samples[0].values.size)) if counts is None else counts
    for sample in samples:
        _check(sample, draws.shape[1])
    return np.stack([_in_blocks(sample, draws) for sample in samples], axis=1)


def ranks_of(values: Values) -> Values:
    """Ranks from 1, lowest value first; tied units share the mean of their ranks."""
    return np.asarray(_ranks(values, np.ones((1, values.size)))[0])


def members_of(groups: Numbers | None, units: int) -> list[Rows]:
    """Indices of the units of each group (numbered from 0); all units as one group where `groups` is None."""
    if groups is None:
        return [np.arange(units)]
    return np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])


def _in_blocks(sample: Sample, counts: Counts) -> Draws:
    """The mean over groups, few enough resamples at a time to stay in the cache."""
    statistic, reference = _STATISTICS[sample.statistic], sample.weights
    rows = max(1, _BLOCK_CELLS // counts.shape[1])
    values = np.zeros(counts.shape[0])
    members = members_of(sample.groups, sample.values.size)
    for start in range(0, counts.shape[0], rows):
        block = slice(start, start + rows)
        for units in members:
            draws = counts[block] if sample.groups is None else counts[block][:, units]
            values[block] += statistic(sample.values[units], reference[units], draws) / len(members)
    return values


def _mean(values: Values, reference: Values, counts: Counts) -> Draws:
    """``sum(c v) / sum(c w)``."""
    return _ratio(counts @ values, counts @ reference)


def _spearman(values: Values, reference: Values, counts: Counts) -> Draws:
    """Pearson correlation of the mid-ranks, every unit as often as it was drawn."""
    # The mean of mid-ranks is (n + 1) / 2, whatever ties.
    middle = (counts.sum(axis=1, keepdims=True) + 1) / 2
    value_ranks = _ranks(values, counts) - middle
    reference_ranks = _ranks(reference, counts) - middle
    weighted = counts * value_ranks
    covariance = np.einsum("rn,rn->r", weighted, reference_ranks)
    variance = np.einsum("rn,rn->r", weighted, value_ranks)
    reference_variance = np.einsum("rn,rn,rn->r", counts, reference_ranks, reference_ranks)
    return _ratio(covariance, np.sqrt(variance * reference_variance))


def _ranks(values: Values, counts: Counts) -> Counts:
    """Mid-rank of each unit among all that were drawn, every one as often as it was."""
    _, tied = np.unique(values, return_inverse=True)
    draws = _summed(tied, counts)
    # The mean of the last d ranks up to the cumulated count, for d units that tie.
    ranks = np.cumsum(draws, axis=1) - (draws - 1) / 2
    return np.asarray(ranks[:, tied])


def _average_precision(values: Values, reference: Values, counts: Counts) -> Draws:
    """``sum_t (R_t - R_(t-1)) P_t`` from the highest value down; units that tie enter together."""
    _, tied = np.unique(-values, return_inverse=True)
    draws, relevant = _summed(tied, counts), _summed(tied, counts * reference)
    relevant_so_far = np.cumsum(relevant, axis=1)
    drawn_so_far = np.cumsum(draws, axis=1)
    # Precision is 0 if nothing has been drawn yet.
    precision = np.divide(relevant_so_far, drawn_so_far, out=np.zeros(draws.shape), where=drawn_so_far > 0)
    return _ratio(np.einsum("rm,rm->r", relevant, precision), relevant_so_far[:, -1])


def _v_measure(values: Values, reference: Values, counts: Counts) -> Draws:
    """Harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007)."""
    _, cluster = np.unique(values, return_inverse=True)
    _, label = np.unique(reference, return_inverse=True)
    _, both = np.unique(label * (cluster.max() + 1) + cluster, return_inverse=True)
    clusters, labels = _entropy(_summed(cluster, counts)), _entropy(_summed(label, counts))
    # The mutual information; rounding may take it below 0.
    shared = np.maximum(clusters + labels - _entropy(_summed(both, counts)), 0)
    # Labels or clusters that do not vary are all of one kind.
    homogeneity = np.divide(shared, labels, out=np.ones(labels.shape), where=labels > 0)
    completeness = np.divide(shared, clusters, out=np.ones(clusters.shape), where=clusters > 0)
    total = homogeneity + completeness
    product = 2 * homogeneity * completeness
    return np.asarray(np.divide(product, total, out=np.zeros(total.shape), where=total > 0))


def _entropy(draws: Float[np.ndarray, "r m"]) -> Draws:
    """``- sum p ln p`` over the shares p of the draws."""
    shares = draws / draws.sum(axis=1, keepdims=True)
    logarithms = np.log(shares, out=np.zeros(shares.shape), where=shares > 0)
    return np.asarray(-np.einsum("rm,rm->r", shares, logarithms))


def _summed(numbers: Numbers, counts: Counts) -> Float[np.ndarray, "r m"]:
    """Sums over the units that have the same number, for each number from 0."""
    # Sorted by number, the units of a number are one slice, which `reduceat` sums.
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    ordered = counts[:, order]
    # Without ties, each unit is its own sum.
    return ordered if starts.size == order.size else np.add.reduceat(ordered, starts, axis=1)


def _ratio(
    above: Float[np.ndarray, "*shape"], below: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """Quotients; NaN where the divisor is not above 0."""
    return np.asarray(np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0))


def _check(sample: Sample, units: int) -> None:
    """Refuse columns of another length than the counts."""
    columns = {"values": sample.values, "reference": sample.reference, "groups": sample.groups}
    for name, column in columns.items():
        if column is not None and column.size != units:
            raise ValueError(f"{sample.measure} {name} must be of {units} units, got {column.size}")


_STATISTICS: dict[Statistic, Callable[[Values, Values, Counts], Draws]] = {
    "mean": _mean,
    "spearman": _spearman,
    "average precision": _average_precision,
    "v-measure": _v_measure,
}


@dataclass(frozen=True, slots=True)
class Replicates:
    """Draws of both models, of each run: as they are, on resamples, or without single units.

    `before` has no column, and `difference` of the means over runs is 0, where there is no other model.
    """

    after: Float[np.ndarray, "r s"]
    before: Float[np.ndarray, "r t"]
    difference: Draws

    def means(self) -> Float[np.ndarray, "r 3"]:
        """Means over runs: after, before (0 without a baseline), and their difference."""
        before = self.before.mean(axis=1) if self.before.size else np.zeros(len(self.after))
        return np.stack([self.after.mean(axis=1), before, self.difference], axis=1)


@dataclass(frozen=True, slots=True)
class PairedMeasure:
    """One measure of a model and of its baseline on the same units, one sample for each run; `before` is
    empty without a baseline.
    """

    after: tuple[Sample, ...]
    before: tuple[Sample, ...]

    @property
    def first(self) -> Sample:
        """The first run under test: name, direction, weights and groups are the same in all samples."""
        return self.after[0]

    @property
    def runs(self) -> tuple[int, int]:
        """Numbers of runs: of the model under test, and of the baseline."""
        return len(self.after), len(self.before)

    @property
    def difference(self) -> Sample | None:
        """Differences of units, whose mean is the difference of the values; None for statistics other than
        the mean.
        """
        if not self.before or self.first.statistic != "mean":
            return None
        return replace(self.first, values=_less(_mean_of_runs(self.after), _mean_of_runs(self.before)))

    @property
    def changed_units(self) -> int:
        """Units that differ between the models: in the mean over runs, or between the two runs that differ
        most.
        """
        difference = self.difference
        if difference is not None:
            return int(np.count_nonzero(difference.values[difference.weights > 0]))
        return max(_units_apart(*pair) for pair in product(self.after, self.before))

    @property
    def connected(self) -> Clusters | None:
        """Clusters of the first run that has any."""
        for sample in (*self.after, *self.before):
            if sample.clusters is not None:
                return sample.clusters
        return None

    @property
    def clusters(self) -> Clusters | None:
        """The clusters, if they are drawn whole."""
        clusters = self.connected
        return clusters if clusters is not None and clusters.drawn else None

    @property
    def drawn(self) -> "PairedMeasure":
        """The same with whole clusters as units, where they are drawn."""
        clusters = self.clusters
        if clusters is None:
            return self
        after = tuple(sample.summed_over(clusters) for sample in self.after)
        before = tuple(sample.summed_over(clusters) for sample in self.before)
        return PairedMeasure(after, before)

    @property
    def samples(self) -> list[Sample]:
        """All samples that a resample evaluates."""
        difference = self.difference
        return [*self.after, *self.before, *([] if difference is None else [difference])]

    def replicates(self, columns: Float[np.ndarray, "r c"]) -> Replicates:
        """Name the columns of values, one for each of `samples`."""
        after, before, differences = np.split(columns, np.cumsum(self.runs), axis=1)
        if differences.size:
            return Replicates(after, before, differences[:, 0])
        if not self.before:
            return Replicates(after, before, np.zeros(len(after)))
        return Replicates(after, before, _less(after.mean(axis=1), before.mean(axis=1)))


def _mean_of_runs(samples: Sequence[Sample]) -> Values:
    """Mean over runs of each unit."""
    return np.asarray(np.stack([sample.values for sample in samples]).mean(axis=0, dtype=np.float64))


def _units_apart(first: Sample, second: Sample) -> int:
    """Units whose values differ; of clusters, the fewest that must move to make both clusterings equal,
    whatever their numbers.
    """
    if first.statistic != "v-measure":
        return int((first.values != second.values).sum())
    from scipy.optimize import linear_sum_assignment

    names, row = np.unique(first.values, return_inverse=True)
    others, column = np.unique(second.values, return_inverse=True)
    # Units that each pair of clusters has in common; the best pairing keeps the most of them.
    shared = np.zeros((names.size, others.size), dtype=np.int64)
    np.add.at(shared, (row, column), 1)
    kept = shared[linear_sum_assignment(shared, maximize=True)]
    return first.values.size - int(kept.sum())


def shares_of(sample: Sample) -> Values:
    """What each unit adds to a mean; the shares add up to the value of the sample."""
    weights = sample.weights
    members = members_of(sample.groups, sample.values.size)
    shares = np.empty(sample.values.shape)
    for units in members:
        shares[units] = sample.values[units] / (weights[units].sum() * len(members))
    return shares


def require_comparable(measures: Sequence[PairedMeasure]) -> None:
    """Refuse, with a `ValueError`, measures with missing values, and pairs that differ in more than their
    scores.
    """
    for measure in measures:
        if measure.runs != measures[0].runs:
            raise ValueError(
                f"{measure.first.measure} must have as many runs as the first measure, "
                f"{measures[0].runs}, got {measure.runs}"
            )
        for sample in (*measure.after, *measure.before):
            _require_value(sample, units=measures[0].first.values.size)
            _require_same(sample, measure.first)


def _require_value(sample: Sample, *, units: int) -> None:
    """Refuse units or values without which the statistic is not defined."""
    name, weights = sample.measure, sample.reference
    if not units:
        raise ValueError(f"{name} must be measured on at least one unit, got none")
    if sample.values.size != units:
        raise ValueError(
            f"{name} must be of the same {units} units as the first measure, got {sample.values.size}"
        )
    for column, values in (("values", sample.values), ("reference", sample.weights)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} {column} must be finite, got {values[~np.isfinite(values)][0]}")
    if weights is None and sample.statistic != "mean":
        raise ValueError(f"{name} must have a reference to take its {sample.statistic} with, got None")
    if weights is not None and sample.statistic in ("mean", "average precision") and (weights < 0).any():
        raise ValueError(f"{name} reference must be at least 0, got {weights.min()}")
    if not math.isfinite(float(value_of(sample)[0])):
        raise ValueError(
            f"{name} must have a {sample.statistic}, got none: in a group its "
            "reference is 0 throughout, or nothing differs"
        )


def _require_same(sample: Sample, first: Sample) -> None:
    """All models and runs share the definition, weights and groups of a measure."""
    for name in ("measure", "similarity", "statistic", "lower_is_better", "proportion"):
        if getattr(sample, name) != getattr(first, name):
            raise ValueError(
                f"{name} must be {getattr(first, name)!r} for both models, got {getattr(sample, name)!r}"
            )
    if not sample.judges_like(first):
        raise ValueError(
            f"{first.measure} reference and groups must be the same for both models, got different "
            "ones; measure both on the same data"
        )


def _less(after: Values, before: Values) -> Values:
    """Differences; 0 if two values differ by rounding alone."""
    difference = after - before
    return np.where(np.abs(difference) <= 1e-12 * np.maximum(np.abs(after), np.abs(before)), 0.0, difference)
