"""Non-inferiority: how large a loss the data still allow, and whether it is below a margin.

A set "did not get worse" only where the data exclude a loss of the margin. With a margin that is a share m of
the baseline, the loss is excluded where the one-sided 95 % lower end of ``s (after - before) + m before``
lies above 0 (s is -1 where lower values are better): both models vary together from resample to resample, and
so does the margin. The end is the lower of a BCa and a t end.

Resamples repeat the losses that the units happen to have: if none of 50 queries lost, up to 6 % of all
queries may still lose. Where fewer than `FEW_LOSSES` units lost much, more than `MUCH` of the most that a
unit can lose, the Stringer bound of these losses counts too, which
allows for largest losses that the units do not show. What a unit has does not count: the queries that fail
may be those with most to lose, and half of nearly nothing is no large loss. In simulations with a true loss
of exactly the margin (`scripts/calibrate_statistics.py`), the end alone excludes it in up to 60 % of trials
if losses are rare, and this rule in at most 5 %. Elsewhere it is at most 6 %, but 7 % where one cluster holds
a third of all units.

Reference:
    Blackwelder 1982 (one-sided test against a margin); Clopper and Pearson 1934; Stringer 1963 and Bickel
    1992 (bound of rare losses of any size); Zou and Donner 2008 (sum of two intervals); Kish 1965 (effective
    number of units); Efron and Tibshirani 1993, chapter 14.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from adiabat.core.margin import FEWEST_UNITS, Margin
from adiabat.stats.quantity import POWER, Quantity
from adiabat.stats.resampling import (
    CONFIDENCE,
    equal_units,
    jackknife,
    jackknife_error,
    jackknife_groups,
    student_quantile,
    unequal_weights,
)
from adiabat.stats.samples import Bounds, Sample
from adiabat.stats.statistics import PairedMeasure, members_of, value_of

FEW_LOSSES = 6
"""With fewer units that lost much, the share of losing units is bounded exactly."""

MUCH = 0.3
"""Share of the most that a unit can lose from which a loss is large: smaller ones, of many units, say nothing
about rare large ones.

A loss of the margin that consists of smaller losses hits so many units that resamples see it."""

LIKELY_LOSSES = 8.0
"""Of so many expected losses at least `FEW_LOSSES` are seen four times in five (Poisson)."""

NOTICED = 0.1
"""Share of the largest change from which a pseudo-value counts as changed: one changed unit moves those of
all others a little."""

MOST_LOSSES = 1_000
"""Large losses beyond these do not matter to the bound of more units."""

MOST_UNITS = 1_000_000
"""A larger number of units is not an answer to how many are needed."""


@dataclass(frozen=True, slots=True)
class Group:
    """Units whose values are averaged.

    Attributes:
        count: Number of units of equal weight that are worth as much as these (`equal_units`).
        losses: What each unit lost that lost much, as a share of `room`, the largest first.
        room: The most that a unit can lose; None for all of the measure.
    """

    count: float
    losses: tuple[float, ...]
    room: float | None = None

    @classmethod
    def of(cls, weights: Float[np.ndarray, " n"], losses: Iterable[float], room: float | None) -> "Group":
        """The group of units with these weights, not all of them 0."""
        return cls(equal_units(weights), tuple(sorted(losses, reverse=True)), room)

    def most(self) -> float:
        """Upper end of the mean share that units lose, one-sided 95 %: the Stringer bound of the large
        losses.

        ``p(0) + sum_j (p(j) - p(j - 1)) z_j`` with the Clopper-Pearson upper ends p(j) of j losing units and
        the j-th largest loss z_j: a loss that was not seen may be total. It is the Clopper-Pearson end itself
        where all losses are total, or there are none.
        """
        ends = _upper_shares(self.count, len(self.losses))
        return float(ends[0] + np.diff(ends) @ np.asarray(self.losses, dtype=np.float64))

    def times(self, factor: float) -> "Group":
        """So many times as many units with the same losses; as few as would not be enough, unless enough are
        likely.
        """
        expected = len(self.losses) * factor
        places = (
            np.arange(min(round(expected), MOST_LOSSES if expected >= LIKELY_LOSSES else FEW_LOSSES - 1))
            / factor
        )
        return Group(self.count * factor, tuple(self.losses[int(place)] for place in places), self.room)


@dataclass(frozen=True, slots=True)
class Units:
    """The units behind a change.

    Attributes:
        lower_is_better: Whether a loss is a rise.
        bounds: Of the measure; None if it has none.
        count: Number of units with weight, > 0.
        groups: Groups whose values are averaged; all units as one group otherwise.
        small_changes: What units without a large loss add to the mean loss, and the one-sided 95 % half width
            of that; None if units have no values of their own.
    """

    lower_is_better: bool
    bounds: Bounds | None
    count: int
    groups: tuple[Group, ...]
    small_changes: tuple[float, float] | None = None

    @property
    def lost(self) -> int:
        """The fewest large losses of a group."""
        return min(len(group.losses) for group in self.groups)

    def worst(self, before: float) -> float:
        """Mean loss if every unit fell to the worst value of the measure."""
        if self.bounds is None:
            return math.inf
        low, high = self.bounds
        return high - before if self.lower_is_better else before - low

    def unseen(self, before: float, *, loss: float | None = None) -> float:
        """The loss that the units allow if each could lose the most that one of them can.

        The bound of the large losses and the t interval of the other units are combined by their distances
        from the estimate, in squares.

        Args:
            before: Value of the baseline.
            loss: The mean loss that counts as observed; None takes the real one.

        Returns:
            In the unit of the measure; minus infinity if every group has enough large losses, and infinite if
            nothing bounds the measure.

        Reference:
            Stringer 1963; Zou and Donner 2008 (MOVER).
        """
        if self.lost >= FEW_LOSSES:
            return -math.inf
        rooms = [self.worst(before) if group.room is None else group.room for group in self.groups]
        upper = sum(group.most() * room for group, room in zip(self.groups, rooms, strict=True)) / len(rooms)
        if self.small_changes is None or math.isinf(upper):
            return upper
        seen = sum(
            sum(group.losses) / group.count * room for group, room in zip(self.groups, rooms, strict=True)
        ) / len(rooms)
        small, half = self.small_changes
        return (seen + small if loss is None else loss) + math.hypot(max(0.0, upper - seen), half)

    def times(self, factor: float) -> "Units":
        """So many times as many units that are like these."""
        small = (
            None
            if self.small_changes is None
            else (self.small_changes[0], self.small_changes[1] / math.sqrt(factor))
        )
        return replace(self, groups=tuple(group.times(factor) for group in self.groups), small_changes=small)


def units_of(measure: PairedMeasure, changed: int, *, of_runs: float = 0.0) -> Units:
    """The units of a paired measure, of which `changed` differ between the models; `of_runs` is the standard
    error over runs.
    """
    first, difference = measure.first, measure.difference
    if difference is None:
        alone = Group(float(first.values.size), (1.0,) * changed)
        return Units(first.lower_is_better, first.bounds, first.values.size, (alone,))
    weights, room = difference.weights, None if difference.pseudo_values else room_of(measure.before)
    losses = difference.values if difference.lower_is_better else -difference.values
    noticed = (
        NOTICED * float(np.abs(losses).max(initial=0.0))
        if difference.pseudo_values
        else MUCH * weights * (room or 0.0)
    )
    large = (losses > noticed) & (losses > 0)
    shares = (
        np.minimum(np.divide(losses, weights * room, out=np.ones_like(losses), where=large), 1.0)
        if room
        else np.ones_like(losses)
    )
    members = [members for members in members_of(difference.groups, losses.size) if weights[members].any()]
    groups = tuple(Group.of(weights[units], shares[units][large[units]].tolist(), room) for units in members)
    small = (
        None
        if room is None
        else _small_changes(replace(difference, values=np.where(large, 0.0, losses)), of_runs)
    )
    return Units(first.lower_is_better, first.bounds, int((weights > 0).sum()), groups, small)


def _small_changes(losses: Sample, of_runs: float) -> tuple[float, float]:
    """Mean of losses, and the half width of its one-sided interval, with the standard error over runs."""
    weighty = losses.take(np.flatnonzero(losses.weights > 0))
    error, freedom = jackknife_error(jackknife(weighty), jackknife_groups(weighty), unequal_weights(weighty))
    half = student_quantile(CONFIDENCE, freedom) * error if freedom else 0.0
    return float(value_of(losses)[0]), math.hypot(half, NormalDist().inv_cdf(CONFIDENCE) * of_runs)


def room_of(before: Sequence[Sample]) -> float | None:
    """The most that a unit of weight 1 can lose of a mean over the runs of the baseline; None if nothing
    bounds the measure.
    """
    first = before[0]
    if first.bounds is None:
        return None
    weighty, (low, high) = first.weights > 0, first.bounds
    values = (
        np.mean([sample.values[weighty] for sample in before], axis=0, dtype=np.float64)
        / first.weights[weighty]
    )
    return float((high - values if first.lower_is_better else values - low).max(initial=0.0))


def margin_in_unit(margin: Margin, before: float) -> float | None:
    """The margin as a difference of the measure; None for a share of a baseline that is not above 0."""
    if margin.unit:
        return margin.value
    return margin.value * before if before > 0 else None


def loss_bound(difference: Quantity, before: Quantity, units: Units, margin: Margin) -> float:
    """The largest loss that the data allow at one-sided 95 %.

    Args:
        difference: ``after - before`` with its resamples.
        before: The baseline, on the same resamples.
        units: The units that were measured.
        margin: Of the measure; a share moves with the baseline of each resample.

    Returns:
        The loss in the measure's unit, of either sign; infinite with fewer than `FEWEST_UNITS` units. It is
        below the margin exactly where the data exclude a loss of the margin.
    """
    if units.count < FEWEST_UNITS:
        return math.inf
    shifted = difference.combined(-1.0 if units.lower_is_better else 1.0, before, margin.share)
    return max(margin.share * before.value - shifted.lower_end(), units.unseen(before.value))


def units_needed(difference: Quantity, before: float, units: Units, margin: float) -> int | None:
    """Number of units that would decide the change four times in five, if the observed one is the true one.

    Either a change of c is shown, ``n ((t_97.5 + t_80) SE / c)^2``, or a loss of the margin is excluded,
    ``n ((t_95 + t_80) SE / (margin - l))^2`` with l the loss, 0 for a gain, and enough that the exact bound
    of few losses does not stand in the way; whichever needs fewer. The part of SE that comes from runs does
    not shrink with the units.

    Args:
        difference: ``after - before`` with its resamples.
        before: Value of the baseline.
        units: The units that were measured.
        margin: In the measure's unit, > 0.

    Returns:
        More than there are; None if no number up to `MOST_UNITS` would do, or there are fewer than two units.
    """
    of_units, of_runs, freedom = difference.errors()
    change = -difference.value if units.lower_is_better else difference.value
    return units_for(of_units, freedom, before, units, margin, change=change, of_runs=of_runs)


def units_for(
    of_units: float,
    freedom: float,
    before: float,
    units: Units,
    margin: float,
    *,
    change: float = 0.0,
    of_runs: float = 0.0,
) -> int | None:
    """`units_needed` from the standard errors of units and of runs, their degrees of freedom, and the true
    change, below 0 for a loss.
    """
    if freedom == 0:
        return None
    loss = max(0.0, -change)

    def least(gap: float, level: float) -> int:
        variance = (
            gap / (student_quantile(level, freedom) + student_quantile(POWER, freedom))
        ) ** 2 - of_runs**2
        # A variance of units below the least float counts as none.
        needed = of_units**2 / variance * units.count if gap > 0 and variance > 1e-300 else math.inf
        return max(math.ceil(min(max(needed, FEWEST_UNITS), MOST_UNITS + 1)), units.count + 1)

    def allowed(number: int) -> bool:
        factor = number / units.count
        return units.lost * factor >= LIKELY_LOSSES or units.times(factor).unseen(before, loss=loss) < margin

    shown, excluded = least(abs(change), (1 + CONFIDENCE) / 2), least(margin - loss, CONFIDENCE)
    numbers = range(excluded, MOST_UNITS + 1)
    # More units allow a smaller loss, or show enough of the large ones.
    place = 0 if not numbers or allowed(excluded) else bisect_left(numbers, True, key=allowed)
    needed = min(shown, excluded + place)
    return needed if needed <= MOST_UNITS else None


def _upper_shares(count: float, most: int) -> Float[np.ndarray, " k"]:
    """Clopper-Pearson upper ends, one-sided 95 %, of the share of losing units, for 0 to so many of them."""
    from scipy.special import betaincinv

    lost = np.arange(most + 1.0)
    return np.where(lost < count, betaincinv(lost + 1, np.maximum(count - lost, 1e-9), CONFIDENCE), 1.0)
