"""Samples of a measure of a model and of its baseline, on the same units, and their values on resamples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.stats.samples import Sample
from adiabat.stats.statistics import members_of, value_of


@dataclass(frozen=True, slots=True)
class Replicates:
    """Values of both models, of each run: as they are, on resamples, or without single units.

    `before` has no column, and `difference` of the means over runs is 0, where there is no other model.
    """

    after: Float[np.ndarray, "r s"]
    before: Float[np.ndarray, "r t"]
    difference: Float[np.ndarray, " r"]

    def means(self) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """Means over runs: after, before (0 without a baseline), and their difference."""
        before = self.before.mean(axis=1) if self.before.size else np.zeros(len(self.after))
        return self.after.mean(axis=1), before, self.difference


@dataclass(frozen=True, slots=True)
class PairedMeasure:
    """One measure of a model and of its baseline on the same units, one sample for each run; `before` is empty without a baseline."""

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
        """Differences of units, whose mean is the difference of the values; None for statistics other than the mean."""
        if not self.before or self.first.statistic != "mean":
            return None
        after, before = (np.stack([sample.values for sample in side]).mean(axis=0, dtype=np.float64) for side in (self.after, self.before))
        return replace(self.first, values=_less(after, before))

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
        difference = _less(after.mean(axis=1), before.mean(axis=1)) if self.before else np.zeros(len(after))
        return Replicates(after, before, difference)


def shares_of(sample: Sample) -> Float[np.ndarray, " n"]:
    """What each unit adds to a mean; the shares add up to the value of the sample."""
    weights = sample.weights
    members = members_of(sample.groups, sample.values.size)
    shares = np.empty(sample.values.shape)
    for units in members:
        shares[units] = sample.values[units] / (weights[units].sum() * len(members))
    return shares


def require_comparable(measures: Sequence[PairedMeasure]) -> None:
    """Refuse, with a `ValueError`, measures with missing values, and pairs that differ in more than their scores."""
    for measure in measures:
        if measure.runs != measures[0].runs:
            raise ValueError(f"{measure.first.measure} must have as many runs as the first measure, {measures[0].runs}, got {measure.runs}")
        for sample in (*measure.after, *measure.before):
            _require_value(sample, units=measures[0].first.values.size)
            _require_same(sample, measure.first)


def _require_value(sample: Sample, *, units: int) -> None:
    name, weights = sample.measure, sample.reference
    if not units:
        raise ValueError(f"{name} must be measured on at least one unit, got none")
    if sample.values.size != units:
        raise ValueError(f"{name} must be of the same {units} units as the first measure, got {sample.values.size}")
    for column, values in (("values", sample.values), ("reference", weights)):
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{name} {column} must be finite, got {values[~np.isfinite(values)][0]}")
    if weights is None and sample.statistic != "mean":
        raise ValueError(f"{name} must have a reference to take its {sample.statistic} with, got None")
    if weights is not None and sample.statistic in ("mean", "average precision") and (weights < 0).any():
        raise ValueError(f"{name} reference must be at least 0, got {weights.min()}")
    if not math.isfinite(float(value_of(sample)[0])):
        raise ValueError(f"{name} must have a {sample.statistic}, got none: in a group its reference is 0 throughout, or nothing differs")


def _require_same(sample: Sample, first: Sample) -> None:
    """All models and runs share the definition, weights and groups of a measure."""
    for name in ("measure", "similarity", "statistic", "lower_is_better", "proportion"):
        if getattr(sample, name) != getattr(first, name):
            raise ValueError(f"{name} must be {getattr(first, name)!r} for both models, got {getattr(sample, name)!r}")
    for name, values, first_values in (("reference", sample.reference, first.reference), ("groups", sample.groups, first.groups)):
        same = values is first_values or (values is not None and first_values is not None and np.array_equal(values, first_values))
        if not same:
            raise ValueError(f"{first.measure} {name} must be the same for both models, got different ones; measure both on the same data")


def _less(after: Float[np.ndarray, " n"], before: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Differences; 0 where two values differ by rounding alone."""
    difference = after - before
    return np.where(np.abs(difference) <= 1e-12 * np.maximum(np.abs(after), np.abs(before)), 0.0, difference)
