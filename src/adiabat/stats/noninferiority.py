"""Non-inferiority: how large a loss the data still allow, and whether it is below a margin.

A set "did not get worse" only where the data exclude a loss of the margin. With a margin that is a share m of
the baseline, the loss is excluded where the one-sided 95 % lower end of ``s (after - before) + m before``
lies above 0 (s is -1 where lower values are better): the margin varies with the baseline, and both models
vary together. The end is that of a t interval, or of BCa for statistics that are no mean.

That end sees the losses that the units happen to have: if none of 50 queries lost, up to 6 % of all queries
may still lose. Where fewer than `FEW_LOSSES` units lost much, more than `MUCH` of the most that a unit can
lose, the Stringer bound of these losses counts too, which allows for largest losses that the units do not
show. What a unit has does not count: the queries that fail may be those with most to lose, and half of nearly
nothing is no large loss. Queries that nobody judged bound what such a loss may come to
(`Group.largest_unseen`; `docs/decisions/036-unlabelled-queries.md`). In simulations with a true loss of
exactly the margin (`scripts/calibrate_statistics.py`), the end alone excludes it in up to 60 % of trials if
losses are rare, and this rule in at most 5 %. Elsewhere it is at most 6 %, but 7 % where one cluster holds a
third of all units.

Reference:
    Blackwelder 1982 (one-sided test against a margin); Clopper and Pearson 1934; Stringer 1963 and Bickel
    1992 (bound of rare losses of any size); Rockafellar and Uryasev 2000 (mean of the largest losses); Zou
    and Donner 2008 (sum of two intervals); Kish 1965 (effective number of units); Efron and Tibshirani 1993,
    chapter 11.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from adiabat.core.margin import FEWEST_UNITS, Margin
from adiabat.stats.calibrated import FEW_LOSSES, LIKELY_LOSSES, MUCH, NOTICED
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.quantity import Estimates, Quantity
from adiabat.stats.samples import Bounds, Sample
from adiabat.stats.statistics import PairedMeasure, members_of, value_of
from adiabat.stats.student_t import CONFIDENCE, POWER, equal_units, student_quantile
from adiabat.stats.unit_arrays import Values

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
        possible: The most that each of further units can lose under any judgement, as a share of `room`, the
            largest first; None if nothing is known of them.
    """

    count: float
    losses: tuple[float, ...]
    room: float | None = None
    possible: Values | None = None

    @classmethod
    def of(
        cls,
        weights: Values,
        losses: Iterable[float],
        room: float | None,
        possible: Values | None = None,
    ) -> "Group":
        """The group of units with these weights, not all of them 0."""
        return cls(equal_units(weights), tuple(sorted(losses, reverse=True)), room, possible)

    def most(self) -> float:
        """Upper end of the mean share that units lose, one-sided 95 %: the Stringer bound of the large
        losses.

        ``p(0) + sum_j (p(j) - p(j - 1)) z_j`` with the Clopper-Pearson upper ends p(j) of j losing units and
        the j-th largest loss z_j: a loss that was not seen may be total, or `largest_unseen` in place of the
        first p(0). It is the Clopper-Pearson end itself where all losses are total, or there are none.
        """
        return _stringer(self.count, self.losses, self.largest_unseen())

    def largest_unseen(self) -> float:
        """Upper end of the mean loss, as a share, over the share p(0) of units whose losses none of these may
        show: total, or what further units can lose.

        The mean of the largest L over a share p is ``t + E[max(0, L - t)] / p`` for the t that p of all L
        exceed, and no smaller for any other t. E has a Stringer bound too: a further unit that was not seen
        may have lost all. Both ends are one-sided 95 %, and the whole errs in 5 % of samples: it fails only
        where the units show no loss and, independently, the further units are too good.

        Reference:
            Rockafellar and Uryasev 2000, theorem 1.
        """
        possible, unseen = self.possible, float(_upper_shares(self.count, 0)[0])
        if possible is None:
            return 1.0
        exceeding = int(unseen * possible.size)
        threshold = float(possible[exceeding])
        excess = _stringer(possible.size, possible[:exceeding] - threshold, 1 - threshold)
        # A loss that was seen stays possible, whatever the further units allow.
        return min(1.0, max(threshold + excess / unseen, *self.losses[:1], 0.0))

    def times(self, factor: float) -> "Group":
        """So many times as many units with the same losses; as few as would not be enough, unless enough are
        likely.
        """
        expected = len(self.losses) * factor
        most = MOST_LOSSES if expected >= LIKELY_LOSSES else FEW_LOSSES - 1
        # Each seen loss is repeated `factor` times, the largest first.
        places = np.arange(min(round(expected), most)) / factor
        losses = tuple(self.losses[int(place)] for place in places)
        return replace(self, count=self.count * factor, losses=losses)


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

        The loss has two parts: U of the large losses, observed as u and at most as large as their Stringer
        bound; and V of all other changes, observed as v with a t interval. Their sum is at most ``u + v +
        sqrt((U's end - u)^2 + (V's end - v)^2)``.

        Args:
            before: Value of the baseline.
            loss: The mean loss that counts as observed; None takes the real one, u + v.

        Returns:
            In the unit of the measure; minus infinity if every group has enough large losses, and infinite if
            nothing bounds the measure.

        Reference:
            Stringer 1963; Zou and Donner 2008 (MOVER).
        """
        if self.lost >= FEW_LOSSES:
            return -math.inf
        ends, observed = [], []
        for group in self.groups:
            room = self.worst(before) if group.room is None else group.room
            ends.append(group.most() * room)
            observed.append(sum(group.losses) / group.count * room)
        end = sum(ends) / len(ends)
        if self.small_changes is None or math.isinf(end):
            return end
        large = sum(observed) / len(observed)
        small, half_width = self.small_changes
        estimate = large + small if loss is None else loss
        return estimate + math.hypot(max(0.0, end - large), half_width)

    def times(self, factor: float) -> "Units":
        """So many times as many units that are like these."""
        groups = tuple(group.times(factor) for group in self.groups)
        if self.small_changes is None:
            return replace(self, groups=groups)
        small, half_width = self.small_changes
        return replace(self, groups=groups, small_changes=(small, half_width / math.sqrt(factor)))


def units_of(measure: PairedMeasure, changed: int, *, of_runs: float = 0.0) -> Units:
    """The units of a paired measure, and which of them lost much.

    A unit's loss is its difference towards the worse, times its weight. It is large above `MUCH` times the
    weight times `room_of`, the most that a unit can lose. Pseudo-values have no such room: there a loss is
    large above `NOTICED` times the largest change.

    Args:
        measure: Both models on the units that are drawn.
        changed: Number of units that differ; each may have lost all where units have no values of their own.
        of_runs: Standard error of the difference over runs.

    Returns:
        The units in their groups.
    """
    first, difference = measure.first, measure.difference
    if difference is None:
        alone = Group(float(first.values.size), (1.0,) * changed)
        return Units(first.lower_is_better, first.bounds, first.values.size, (alone,))
    weights = difference.weights
    losses = difference.values if difference.lower_is_better else -difference.values
    room = None if difference.pseudo_values else room_of(measure.before)
    if difference.pseudo_values:
        threshold = NOTICED * np.abs(losses).max(initial=0.0)
    else:
        # Without bounds nothing says which losses are large, so that all are.
        threshold = MUCH * weights * (room or 0.0)
    large = losses > threshold
    shares, possible = np.ones_like(losses), None
    if room:
        np.divide(losses, weights * room, out=shares, where=large)
        shares = np.minimum(shares, 1.0)
        possible = _possible_shares(measure, room)
    groups = []
    for members in members_of(difference.groups, losses.size):
        if weights[members].any():
            losing = members[large[members]]
            groups.append(Group.of(weights[members], shares[losing].tolist(), room, possible))
    small = None
    if room is not None:
        small = _small_changes(replace(difference, values=np.where(large, 0.0, losses)), of_runs)
    return Units(first.lower_is_better, first.bounds, int((weights > 0).sum()), tuple(groups), small)


def _possible_shares(measure: PairedMeasure, room: float) -> Values | None:
    """What further units can lose on average over the runs, as shares of the most that a unit has, the
    largest first; None if it is not known of each run.
    """
    of_runs = [sample.possible_losses for sample in measure.after if sample.possible_losses is not None]
    if len(of_runs) < len(measure.after):
        return None
    return np.sort(np.minimum(np.mean(of_runs, axis=0) / room, 1.0))[::-1]


def _small_changes(losses: Sample, of_runs: float) -> tuple[float, float]:
    """Mean of losses, and the half width of its one-sided interval, with the standard error over runs."""
    error, freedom = Jackknife.of(losses).error()
    half_width = student_quantile(CONFIDENCE, freedom) * error if freedom else 0.0
    return float(value_of(losses)[0]), math.hypot(half_width, NormalDist().inv_cdf(CONFIDENCE) * of_runs)


def room_of(before: Sequence[Sample]) -> float | None:
    """The most that a unit of weight 1 can lose of a mean over the runs of the baseline; None if nothing
    bounds the measure.
    """
    first = before[0]
    if first.bounds is None:
        return None
    low, high = first.bounds
    weighty = first.weights > 0
    values = (
        np.mean([sample.values[weighty] for sample in before], axis=0, dtype=np.float64)
        / first.weights[weighty]
    )
    rooms = high - values if first.lower_is_better else values - low
    return float(rooms.max(initial=0.0))


def loss_bounds(estimates: Estimates, units: Units, margin: Margin) -> tuple[float, float]:
    """The largest loss that the data allow at one-sided 95 %: the larger of two bounds, and the first of
    them.

    The first is ``m before - E``, with E the lower end of ``s (after - before) + m before``, m the margin as
    a share of the baseline (0 if it is a difference), and s = -1 where lower is better. It is below ``m
    before`` exactly where E lies above 0. The second allows for large losses that the units do not show
    (`Units.unseen`).

    Args:
        estimates: After and before.
        units: The units that were measured.
        margin: Of the measure.

    Returns:
        Losses in the measure's unit, of either sign; infinite with fewer than `FEWEST_UNITS` units. The
        larger one is below the margin exactly where the data exclude a loss of the margin.
    """
    if units.count < FEWEST_UNITS:
        return math.inf, math.inf
    sign = -1.0 if units.lower_is_better else 1.0
    before = estimates.combined(before=1).value
    # A moving margin varies with the baseline: the end is that of the sum of both.
    shifted = estimates.combined(difference=sign, before=margin.moving)
    # The skewness of a few large losses says less than their exact bound.
    end = shifted.lower_end(skewed=units.lost >= FEW_LOSSES)
    by_spread = margin.moving * before - end
    return max(by_spread, units.unseen(before)), by_spread


def units_needed(difference: Quantity, before: float, units: Units, margin: float) -> int | None:
    """Number of units that would decide the change four times in five, if the observed one is the true one.

    Either a change of c is shown, ``n ((t_97.5 + t_80) SE / c)^2``, or a loss of the margin is excluded, ``n
    ((t_95 + t_80) SE / (margin - l))^2`` with l the loss, 0 for a gain, and enough that the exact bound of
    few losses does not stand in the way; whichever needs fewer. The part of SE that comes from runs does not
    shrink with the units.

    Args:
        difference: ``after - before``.
        before: Value of the baseline.
        units: The units that were measured.
        margin: In the measure's unit, > 0.

    Returns:
        More than there are; None if no number up to `MOST_UNITS` would do, or there are fewer than two units.
    """
    if difference.freedom == 0:
        return None
    change = -difference.value if units.lower_is_better else difference.value
    loss = max(0.0, -change)

    def excludes(number: int) -> bool:
        factor = number / units.count
        return units.lost * factor >= LIKELY_LOSSES or units.times(factor).unseen(before, loss=loss) < margin

    shown = _fewest_units(abs(change), (1 + CONFIDENCE) / 2, difference, units.count)
    excluded = _fewest_units(margin - loss, CONFIDENCE, difference, units.count)
    if excluded <= MOST_UNITS and not excludes(excluded):
        # More units allow a smaller loss, or show enough of the large ones.
        excluded += bisect_left(range(excluded, MOST_UNITS + 1), True, key=excludes)
    needed = min(shown, excluded)
    return needed if needed <= MOST_UNITS else None


def _fewest_units(gap: float, level: float, difference: Quantity, count: int) -> int:
    """More units than `count` that show a gap at a one-sided level four times in five; beyond `MOST_UNITS` if
    none do.

    The standard error must be at most ``gap / (t_level + t_80)``, and its part of units shrinks with their
    number.
    """
    quantiles = student_quantile(level, difference.freedom) + student_quantile(POWER, difference.freedom)
    # More units do not reduce what runs vary by.
    variance = (gap / quantiles) ** 2 - difference.of_runs**2
    # A variance of units below the least float counts as none.
    if gap <= 0 or variance <= 1e-300:
        return MOST_UNITS + 1
    needed = difference.of_units**2 / variance * count
    return max(math.ceil(min(max(needed, FEWEST_UNITS), MOST_UNITS + 1)), count + 1)


def _stringer(count: float, losses: Sequence[float] | Values, unseen: float) -> float:
    """Upper end of the mean of losses z, the largest first, of `count` units: ``p(0) unseen + sum_j (p(j) -
    p(j - 1)) z_j``, where a loss that none of them shows is at most `unseen`.
    """
    ends = _upper_shares(count, len(losses))
    return float(ends[0] * unseen + np.diff(ends) @ np.asarray(losses, dtype=np.float64))


def _upper_shares(count: float, most: int) -> Float[np.ndarray, " k"]:
    """Clopper-Pearson upper ends, one-sided 95 %, of the share of losing units, for 0 to so many of them."""
    from scipy.special import betaincinv

    lost = np.arange(most + 1.0)
    return np.where(lost < count, betaincinv(lost + 1, np.maximum(count - lost, 1e-9), CONFIDENCE), 1.0)
