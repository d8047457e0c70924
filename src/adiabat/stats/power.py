"""Power of a paired comparison: the improvement that a set could show, and the loss that it could exclude,
four times in five.

With the standard error SE of the mean difference, a true improvement of ``(t_97.5 + t_80) SE`` is found
better, and without any true change a loss of ``(t_95 + t_80) SE`` is excluded, with a probability of 80 %.
Where fewer than `FEW_LOSSES` losing units are likely, the Stringer bound of large losses may be larger
(`adiabat.stats.noninferiority`).

Before a model is tuned there are no differences. Their standard error is then that of the baseline's scores
times `SPREAD`, and the share
of queries that lose much is `LOSING`: both as seen in earlier tunings (LOG.md, 2026-11-26). A cluster of n
queries has one of these with a probability of ``1 - (1 - LOSING)^n``. Scores that correlate by r before and
after differ by ``sqrt(2 - 2 r)`` times their spread.

Reference:
    Cohen 1988, chapter 2 (paired differences); Card et al. 2020 (power in NLP).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin
from adiabat.results.power_record import Power
from adiabat.stats.noninferiority import (
    FEW_LOSSES,
    LIKELY_LOSSES,
    Group,
    Units,
    margin_in_unit,
    room_of,
    units_for,
    units_of,
)
from adiabat.stats.quantity import POWER
from adiabat.stats.resampling import (
    CONFIDENCE,
    Groups,
    jackknife,
    jackknife_error,
    jackknife_groups,
    student_quantile,
    unequal_weights,
)
from adiabat.stats.samples import Sample
from adiabat.stats.statistics import PairedMeasure, members_of, require_comparable, value_of

SPREAD = 0.4
"""Standard deviation of the paired differences, as a multiple of that of the scores."""

SPREAD_RANGE = (0.25, 0.65)
"""The lowest and the highest multiple in earlier tunings."""

LOSING = 0.012
"""Share of queries that lose much (`adiabat.stats.noninferiority.MUCH`)."""

LARGE_LOSS = 0.5
"""Share of what it has that a query loses that loses much."""


@dataclass(frozen=True, slots=True)
class _Error:
    """Standard error of a difference, its degrees of freedom, and the units behind it."""

    size: float
    freedom: float
    units: Units
    before: float

    @property
    def varies(self) -> bool:
        """Whether the units differ by more than rounding."""
        return self.freedom == 0 or self.size > 1e-12 * max(1.0, abs(self.before))

    def detectable(self) -> float | None:
        if self.freedom == 0 or not self.varies:
            return None
        return self.size * (
            student_quantile((1 + CONFIDENCE) / 2, self.freedom) + student_quantile(POWER, self.freedom)
        )

    def excludable(self) -> float | None:
        if self.freedom == 0 or not self.varies or self.units.count < FEWEST_UNITS:
            return None
        by_error = self.size * (
            student_quantile(CONFIDENCE, self.freedom) + student_quantile(POWER, self.freedom)
        )
        units = replace(
            self.units, small_changes=None if self.units.small_changes is None else (0.0, by_error)
        )
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
    if before.clusters is not None and before.clusters.drawn:
        clusters, queries = before.clusters, before.values.size
        sizes = np.bincount(clusters.positions, weights=before.weights > 0)
        summed = _power(
            before.summed_over(clusters),
            after and after.summed_over(clusters),
            unit,
            margin,
            1 - (1 - LOSING) ** sizes,
        )
        needed = None if summed.needed is None else clusters.units_in(summed.needed)
        return replace(summed, units=queries, needed=needed)
    return _power(before, after, unit, margin, np.full(before.values.size, LOSING))


def _power(
    before: Sample, after: Sample | None, unit: str, margin: Margin, losing: Float[np.ndarray, " n"]
) -> Power:
    """Of units that are drawn one by one, each with its probability to lose."""
    if after is None:
        if before.statistic != "mean" or before.pseudo_values:
            raise ValueError(
                f"the power of {before.measure} can be predicted only where units have scores of their own"
            )
        typical, *ends = (_predicted(before, spread, losing) for spread in (SPREAD, *SPREAD_RANGE))
    else:
        typical, ends = _observed(before, after), []
    value = typical.before
    limit = margin_in_unit(margin.of(before.measure), value)
    excludable = typical.excludable()
    enough = limit is None or not typical.varies or (excludable is not None and excludable <= limit)
    return Power(
        measure=before.measure,
        before=value,
        units=typical.units.count if before.statistic == "mean" else before.values.size,
        unit=unit,
        detectable=typical.detectable(),
        excludable=excludable,
        room=_room(before, value),
        losable=None if math.isinf(typical.units.worst(value)) else typical.units.worst(value),
        varies=typical.varies,
        margin=limit,
        margin_text=str(margin.of(before.measure)),
        needed=None
        if enough or limit is None
        else units_for(typical.size, typical.freedom, value, typical.units, limit),
        spread=SPREAD if ends else None,
        spread_range=SPREAD_RANGE if ends else None,
        detectable_range=_range([error.detectable() for error in ends]),
        excludable_range=_range([error.excludable() for error in ends]),
    )


def _range(ends: list[float | None]) -> tuple[float, float] | None:
    known = [end for end in ends if end is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _room(sample: Sample, value: float) -> float | None:
    if sample.bounds is None:
        return None
    low, high = sample.bounds
    return value - low if sample.lower_is_better else high - value


def _predicted(before: Sample, spread: float, losing: Float[np.ndarray, " n"]) -> _Error:
    error, freedom = jackknife_error(*_jackknife(before), unequal_weights(before))
    weights = before.weights
    groups, room = [], room_of([before])
    for members in members_of(before.groups, weights.size):
        if weights[members].any():
            group = Group.of(weights[members], (), room)
            lost = round(group.count * float(losing[members][weights[members] > 0].mean()), 9)
            # With so many expected losses, enough of them are likely to be seen.
            seen = FEW_LOSSES if lost >= LIKELY_LOSSES else min(FEW_LOSSES - 1, int(lost))
            groups.append(replace(group, losses=(LARGE_LOSS,) * seen))
    half = student_quantile(CONFIDENCE, freedom) * spread * error if freedom else 0.0
    units = Units(before.lower_is_better, before.bounds, int((weights > 0).sum()), tuple(groups), (0.0, half))
    return _Error(spread * error, freedom, units, float(value_of(before)[0]))


def _observed(before: Sample, after: Sample) -> _Error:
    measure = PairedMeasure((after,), (before,))
    require_comparable([measure])
    difference = measure.difference
    if difference is None:
        without, groups = jackknife(after) - jackknife(before), jackknife_groups(before)
    else:
        without, groups = _jackknife(difference)
    units = units_of(measure, int(np.count_nonzero(after.values != before.values)))
    return _Error(
        *jackknife_error(without, groups, unequal_weights(before)), units, float(value_of(before)[0])
    )


def _jackknife(sample: Sample) -> tuple[Float[np.ndarray, " m"], Groups | None]:
    """Of the units with weight."""
    weighty = sample.take(np.flatnonzero(sample.weights > 0))
    return jackknife(weighty), jackknife_groups(weighty)
