"""Power of a paired comparison: the improvement that a set could show, and the loss that it could exclude,
four times in five.

With the standard error SE of the mean difference, a true improvement of ``(t_97.5 + t_80) SE`` is found
better, and without any true change a loss of ``(t_95 + t_80) SE`` is excluded, with a probability of 80 %.
Where fewer than `FEW_LOSSES` losing units are likely, the Stringer bound of large losses may be larger
(`adiabat.stats.noninferiority`).

Before a model is tuned there are no differences. Their standard error is then that of the baseline's scores
times `SPREAD`, and the share of queries that lose much is `LOSING`: both as seen in earlier tunings (LOG.md,
2026-11-26). A cluster of n queries has one of these with a probability of ``1 - (1 - LOSING)^n``. Scores that
correlate by r before and after differ by ``sqrt(2 - 2 r)`` times their spread.

Reference:
    Cohen 1988, chapter 2 (paired differences); Card et al. 2020 (power in NLP).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin
from adiabat.results.power_record import Power
from adiabat.stats.calibrated import FEW_LOSSES, LARGE_LOSS, LIKELY_LOSSES, LOSING, SPREAD, SPREAD_RANGE
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.noninferiority import Group, Units, room_of, units_needed, units_of
from adiabat.stats.quantity import Quantity
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import PairedMeasure, members_of, require_comparable, value_of
from adiabat.stats.student_t import CONFIDENCE, POWER, student_quantile
from adiabat.stats.unit_arrays import Values


@dataclass(frozen=True, slots=True)
class _Prospect:
    """A difference of 0 with the standard error that it would have, the units behind it, and the value of the
    baseline.
    """

    difference: Quantity
    units: Units
    before: float

    @property
    def varies(self) -> bool:
        """Whether the units differ by more than rounding."""
        return self.difference.freedom == 0 or self.difference.error > 1e-12 * max(1.0, abs(self.before))

    @property
    def is_known(self) -> bool:
        """Whether the standard error is known."""
        return self.difference.freedom > 0 and self.varies

    def shown(self, level: float) -> float:
        """What a test at this one-sided level would show four times in five, ``(t_level + t_80) SE``."""
        freedom = self.difference.freedom
        return self.difference.error * (student_quantile(level, freedom) + student_quantile(POWER, freedom))

    def detectable(self) -> float | None:
        """The smallest true change that is shown four times in five; None if the error is unknown."""
        return self.shown((1 + CONFIDENCE) / 2) if self.is_known else None

    def excludable(self) -> float | None:
        """The loss that is excluded four times in five if nothing changes; None if that is unknown."""
        if not self.is_known or self.units.count < FEWEST_UNITS:
            return None
        by_error, units = self.shown(CONFIDENCE), self.units
        if units.small_changes is not None:
            units = replace(units, small_changes=(0.0, by_error))
        return max(by_error, units.unseen(self.before, loss=0.0))


def power_of(
    before: Sample, after: Sample | None = None, *, unit: str = "query", margin: Margin = DEFAULT_MARGIN
) -> Power:
    """What a paired comparison on these units could show.

    Args:
        before: One measure of the baseline, or of the model that is to be tuned.
        after: The same of a tuned model: the spread of the differences is the observed one. None predicts it.
        unit: Name of a unit in the singular.
        margin: The loss that would matter.

    Returns:
        Detectable improvement and excludable loss; predicted ones with their range in earlier tunings.

    Raises:
        ValueError: If the samples are not of the same units, or without `after` the measure is not a mean of
            units.
    """
    if before.clusters is None or not before.clusters.drawn:
        return _power(before, after, unit, margin, np.full(before.values.size, LOSING))
    clusters = before.clusters
    sizes = np.bincount(clusters.positions, weights=before.weights > 0)
    summed_after = None if after is None else after.summed_over(clusters)
    # Of n queries, one loses much with probability 1 - (1 - LOSING)^n.
    summed = _power(before.summed_over(clusters), summed_after, unit, margin, 1 - (1 - LOSING) ** sizes)
    needed = None if summed.needed is None else clusters.units_in(summed.needed)
    return replace(summed, units=before.values.size, needed=needed)


def _power(before: Sample, after: Sample | None, unit: str, margin: Margin, losing: Values) -> Power:
    """Of units that are drawn one by one, each with its probability to lose."""
    ends: list[_Prospect] = []
    if after is not None:
        typical = _observed(before, after)
    elif before.statistic == "mean" and not before.pseudo_values:
        typical, *ends = (_predicted(before, spread, losing) for spread in (SPREAD, *SPREAD_RANGE))
    else:
        raise ValueError(
            f"the power of {before.measure} can be predicted only where units have scores of their own"
        )
    value, excludable = typical.before, typical.excludable()
    limit = margin.in_unit(value)
    # No loss can be larger than this.
    worst = typical.units.worst(value)
    needed = None
    if limit is not None and typical.varies and (excludable is None or excludable > limit):
        needed = units_needed(typical.difference, value, typical.units, limit)
    return Power(
        measure=before.measure,
        before=value,
        units=typical.units.count if before.statistic == "mean" else before.values.size,
        unit=unit,
        detectable=typical.detectable(),
        excludable=excludable,
        room=_room(before, value),
        losable=None if math.isinf(worst) else worst,
        varies=typical.varies,
        margin=limit,
        margin_text=str(margin),
        needed=needed,
        spread=SPREAD if ends else None,
        spread_range=SPREAD_RANGE if ends else None,
        detectable_range=_range([end.detectable() for end in ends]),
        excludable_range=_range([end.excludable() for end in ends]),
    )


def _range(ends: list[float | None]) -> tuple[float, float] | None:
    """Both ends, if both are known."""
    known = [end for end in ends if end is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _room(sample: Sample, value: float) -> float | None:
    """The most that the measure can gain."""
    if sample.bounds is None:
        return None
    low, high = sample.bounds
    return value - low if sample.lower_is_better else high - value


def _predicted(before: Sample, spread: float, losing: Values) -> _Prospect:
    """Differences that vary by `spread` times what the scores do, where each unit loses much with its
    probability in `losing`.
    """
    weights, room = before.weights, room_of([before])
    groups = []
    for members in members_of(before.groups, weights.size):
        weighty = members[weights[members] > 0]
        if not weighty.size:
            continue
        group = Group.of(weights[members], (), room)
        expected = round(group.count * float(losing[weighty].mean()), 9)
        # With so many expected losses, enough of them are likely to be seen.
        seen = FEW_LOSSES if expected >= LIKELY_LOSSES else min(FEW_LOSSES - 1, int(expected))
        groups.append(replace(group, losses=(LARGE_LOSS,) * seen))
    of_scores, freedom = Jackknife.of(before).error()
    error = spread * of_scores
    half_width = student_quantile(CONFIDENCE, freedom) * error if freedom else 0.0
    units = Units(
        before.lower_is_better, before.bounds, int((weights > 0).sum()), tuple(groups), (0.0, half_width)
    )
    return _Prospect(Quantity(0.0, error, 0.0, freedom), units, float(value_of(before)[0]))


def _observed(before: Sample, after: Sample) -> _Prospect:
    """The differences of two models."""
    measure = PairedMeasure((after,), (before,))
    require_comparable([measure])
    if measure.difference is None:
        left_out = Jackknife.of(before)
        left_out = replace(left_out, values=Jackknife.of(after).values - left_out.values)
    else:
        left_out = Jackknife.of(measure.difference)
    error, freedom = left_out.error()
    units = units_of(measure, int(np.count_nonzero(after.values != before.values)))
    return _Prospect(Quantity(0.0, error, 0.0, freedom), units, float(value_of(before)[0]))
