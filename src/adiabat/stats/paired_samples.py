"""One measure of a model and of what it is compared with, on the same units: what is drawn again to learn how sure a value is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.stats.samples import Sample
from adiabat.stats.statistics import members_of, value_of


@dataclass(frozen=True, slots=True)
class Replicates:
    """Values of both models: as they are, on resamples, or without single units.

    Attributes:
        after: Of each run of the model under test.
        before: Of each run of the other; without a column where there is no other.
        difference: Mean of the runs after, less that of the runs before; 0 where there is no other.
    """

    after: Float[np.ndarray, "r s"]
    before: Float[np.ndarray, "r t"]
    difference: Float[np.ndarray, " r"]

    def means(self) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """Over runs.

        Returns:
            After, before (0 where there is no other) and difference.
        """
        before = self.before.mean(axis=1) if self.before.size else np.zeros(len(self.after))
        return self.after.mean(axis=1), before, self.difference


@dataclass(frozen=True, slots=True)
class PairedMeasure:
    """One measure of a model, and of what it is compared with.

    Attributes:
        after: Of the model under test, in each of its runs.
        before: Of the other, in each of its runs; empty where there is no other.
    """

    after: tuple[Sample, ...]
    before: tuple[Sample, ...]

    @property
    def first(self) -> Sample:
        """What is said of the measure itself is the same in all of them."""
        return self.after[0]

    @property
    def runs(self) -> tuple[int, int]:
        """How many runs either has."""
        return len(self.after), len(self.before)

    @property
    def difference(self) -> Sample | None:
        """Differences of units, of which the value is the difference of the values; None for statistics that have no such thing."""
        if not self.before or self.first.statistic != "mean":
            return None
        after, before = (np.stack([sample.values for sample in side]).mean(axis=0, dtype=np.float64) for side in (self.after, self.before))
        return replace(self.first, values=_less(after, before))

    @property
    def samples(self) -> list[Sample]:
        """What is drawn again."""
        difference = self.difference
        return [*self.after, *self.before, *([] if difference is None else [difference])]

    def replicates(self, columns: Float[np.ndarray, "r c"]) -> Replicates:
        """Put values into their places.

        Args:
            columns: One for each of `samples`.

        Returns:
            The same by name.
        """
        after, before, differences = np.split(columns, np.cumsum(self.runs), axis=1)
        if differences.size:
            return Replicates(after, before, differences[:, 0])
        difference = _less(after.mean(axis=1), before.mean(axis=1)) if self.before else np.zeros(len(after))
        return Replicates(after, before, difference)


def weights_of(sample: Sample) -> Float[np.ndarray, " n"]:
    """Its reference, 1 for each unit where it has none.

    Args:
        sample: Any.

    Returns:
        One for each unit.
    """
    return np.ones(sample.values.shape) if sample.reference is None else sample.reference


def shares_of(sample: Sample) -> Float[np.ndarray, " n"]:
    """What each unit adds to a mean.

    Args:
        sample: Whose statistic is the mean.

    Returns:
        One for each unit; their sum is the value of the sample.
    """
    weights = weights_of(sample)
    members = members_of(sample.groups, sample.values.size)
    shares = np.empty(sample.values.shape)
    for units in members:
        shares[units] = sample.values[units] / (weights[units].sum() * len(members))
    return shares


def require_comparable(measures: Sequence[PairedMeasure]) -> None:
    """Refuse what would end as NaN in a report, or compare what cannot be.

    Args:
        measures: All of the same units.

    Raises:
        ValueError: At the first fault, naming measure and value.
    """
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
    """What a measure is, and what it is taken with, is one for all models and runs."""
    for name in ("measure", "similarity", "statistic", "lower_is_better", "proportion"):
        if getattr(sample, name) != getattr(first, name):
            raise ValueError(f"{name} must be {getattr(first, name)!r} for both models, got {getattr(sample, name)!r}")
    for name, values, first_values in (("reference", sample.reference, first.reference), ("groups", sample.groups, first.groups)):
        same = values is first_values or (values is not None and first_values is not None and np.array_equal(values, first_values))
        if not same:
            raise ValueError(f"{first.measure} {name} must be the same for both models, got different ones; measure both on the same data")


def _less(after: Float[np.ndarray, " n"], before: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Differences, 0 where two values differ in their last digits alone: rounding is no change for the better."""
    difference = after - before
    return np.where(np.abs(difference) <= 1e-12 * np.maximum(np.abs(after), np.abs(before)), 0.0, difference)
