"""Non-inferiority: how large a loss the data still allow, and whether it is below a margin.

A set "did not get worse" only where the data exclude a loss of the margin. With a margin that is a share m of the baseline, the loss is
excluded where the one-sided 95 % lower end of ``s (after - before) + m before`` lies above 0 (s is -1 where lower values are better): both
models vary together from resample to resample, and so does the margin. The end is the lower of a BCa and a t end.

Resamples repeat the losses that the units happen to have: if none of 50 queries lost, up to 6 % of all queries may still lose. Where fewer
than `FEW_LOSSES` units lost, the loss may therefore be as large as the Clopper-Pearson upper end of their share, times what a unit can
lose at most. In simulations with a true loss of exactly the margin (`scripts/calibrate_statistics.py`), the end alone excludes it in up to
60 % of trials if losses are rare, and this rule in at most 5 %. Of other shapes it is 2 to 7 % with 100 units, and 3 to 6 % with more.

Reference:
    Blackwelder 1982 (one-sided test against a margin); Clopper and Pearson 1934; Kish 1965 (effective number of units); Efron and
    Tibshirani 1993, chapter 14.
"""

import math
from dataclasses import dataclass

import numpy as np

from adiabat.core.margin import FEWEST_UNITS, Margin
from adiabat.stats.quantity import POWER, Quantity
from adiabat.stats.resampling import CONFIDENCE, student_quantile
from adiabat.stats.samples import Bounds
from adiabat.stats.statistics import PairedMeasure, members_of

FEW_LOSSES = 6
"""With fewer units that lost, the share of losing units is bounded exactly."""

LIKELY_LOSSES = 8.0
"""Of so many expected losses at least `FEW_LOSSES` are seen four times in five (Poisson)."""

NOTICED = 0.1
"""Share of the largest change from which a pseudo-value counts as changed: one changed unit moves those of all others a little."""

MOST_UNITS = 1_000_000
"""A larger number of units is not an answer to how many are needed."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units behind a change.

    Attributes:
        lower_is_better: Whether a loss is a rise.
        bounds: Of the measure; None if it has none.
        count: Number of units with weight, > 0.
        groups: For each group whose values are averaged, or for all units as one group: the number of units of equal weight that are worth
            as much as its units (Kish 1965), and the number that the model under test does worse on (that differ, if units have no values
            of their own).
    """

    lower_is_better: bool
    bounds: Bounds | None
    count: int
    groups: tuple[tuple[float, int], ...]

    @property
    def lost(self) -> int:
        """The fewest losses of a group."""
        return min(lost for _, lost in self.groups)

    def worst(self, before: float) -> float:
        """Mean loss if every unit fell to the worst value of the measure."""
        if self.bounds is None:
            return math.inf
        low, high = self.bounds
        return high - before if self.lower_is_better else before - low

    def unseen(self, before: float) -> float:
        """The loss if as many units of each group lose all they have as its losses allow; 0 if every group has enough losses."""
        if self.lost >= FEW_LOSSES:
            return 0.0
        return sum(_upper_share(count, lost) for count, lost in self.groups) / len(self.groups) * self.worst(before)


def units_of(measure: PairedMeasure, changed: int) -> Units:
    """The units of a paired measure, of which `changed` differ between the models."""
    first, difference = measure.first, measure.difference
    if difference is None:
        return Units(first.lower_is_better, first.bounds, first.values.size, ((float(first.values.size), changed),))
    weights = difference.weights
    losses = difference.values if difference.lower_is_better else -difference.values
    noticed = NOTICED * float(np.abs(losses).max(initial=0.0)) if difference.pseudo_values else 0.0
    groups = tuple(
        (float(weights[members].sum() ** 2 / (weights[members] ** 2).sum()), int((losses[members] > noticed).sum()))
        for members in members_of(difference.groups, losses.size)
        if weights[members].any()
    )
    return Units(first.lower_is_better, first.bounds, int((weights > 0).sum()), groups)


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
        The loss in the measure's unit, of either sign; infinite with fewer than `FEWEST_UNITS` units. It is below the margin exactly where
        the data exclude a loss of the margin.
    """
    if units.count < FEWEST_UNITS:
        return math.inf
    shifted = difference.combined(-1.0 if units.lower_is_better else 1.0, before, margin.share)
    return max(margin.share * before.value - shifted.lower_end(), units.unseen(before.value) or -math.inf)


def units_needed(difference: Quantity, before: float, units: Units, margin: float) -> int | None:
    """Number of units that would decide the change four times in five, if the observed loss is the true one (a gain counts as none).

    With a loss of l, either a loss of the margin is excluded, ``n ((t_95 + t_80) SE / (margin - l))^2``, or a loss is shown,
    ``n ((t_97.5 + t_80) SE / l)^2``, whichever needs fewer; and enough that the exact bound of few losses does not stand in the way. The
    part of SE that comes from runs does not shrink with the units.

    Args:
        difference: ``after - before`` with its resamples.
        before: Value of the baseline.
        units: The units that were measured.
        margin: In the measure's unit, > 0.

    Returns:
        More than there are; None if no number up to `MOST_UNITS` would do, or there are fewer than two units.
    """
    of_units, of_runs, freedom = difference.errors()
    loss = max(0.0, difference.value if units.lower_is_better else -difference.value)
    return units_for(of_units, freedom, before, units, margin, loss=loss, of_runs=of_runs)


def units_for(
    of_units: float, freedom: float, before: float, units: Units, margin: float, *, loss: float = 0.0, of_runs: float = 0.0
) -> int | None:
    """`units_needed` from the standard errors of units and of runs, their degrees of freedom, and the true loss, at least 0."""
    if freedom == 0:
        return None
    power = student_quantile(POWER, freedom)
    ways = [(margin - loss, student_quantile(CONFIDENCE, freedom) + power), (loss, student_quantile((1 + CONFIDENCE) / 2, freedom) + power)]
    variances = [(gap / factor) ** 2 - of_runs**2 for gap, factor in ways if gap > 0]
    # A variance of units below the least float counts as none.
    possible = [of_units**2 / variance for variance in variances if variance > 1e-300]
    if not possible:
        return None
    times = max(min(possible), FEWEST_UNITS / units.count)
    times = max(times, *(_times_for_losses(count, lost, margin, units.worst(before)) for count, lost in units.groups))
    return max(math.ceil(times * units.count), units.count + 1) if times * units.count <= MOST_UNITS else None


def _times_for_losses(count: float, lost: int, margin: float, worst: float) -> float:
    """How many times as many units keep the exact bound of a group's losses below the margin; 0 if it never stands in the way."""
    if lost >= FEW_LOSSES or margin >= worst:
        return 0.0
    if lost > 0:
        return LIKELY_LOSSES / lost
    return math.inf if math.isinf(worst) else math.log(1 - CONFIDENCE) / math.log1p(-margin / worst) / count


def _upper_share(count: float, lost: int) -> float:
    """Clopper-Pearson upper end, one-sided 95 %, of the share of losing units."""
    from scipy.special import betaincinv

    return float(betaincinv(lost + 1, count - lost, CONFIDENCE)) if lost < count else 1.0
