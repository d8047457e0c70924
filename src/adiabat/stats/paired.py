"""Paired comparison of two models on the same units: difference, interval, p-value, verdict, and the smallest
detectable difference.

Resamples draw units with the scores of both models and take the difference again, so the interval (BCa) is
that of the difference. The p-value comes from exchanging the two scores of a unit. A verdict needs both: the
interval measures the change better, and the exchange stays valid with few changed units.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.results.evaluation_result import Change, Test
from adiabat.stats.noninferiority import Units, loss_bound, margin_in_unit, units_needed, units_of
from adiabat.stats.quantity import Quantity, deviation
from adiabat.stats.ranking_measures import improvement
from adiabat.stats.resampling import (
    RESAMPLES,
    Interval,
    RunEffect,
    RunResamples,
    jackknife,
    jackknife_groups,
    resampling_counts,
    unequal_weights,
)
from adiabat.stats.samples import Bounds, Sample
from adiabat.stats.significance import (
    bootstrap_p_value,
    rank_exchange_p_value,
    sign_flip_p_values,
    two_proportion_z,
    verdict_of,
)
from adiabat.stats.statistics import PairedMeasure, Replicates, require_comparable, shares_of, values_of

Runs = Sequence[Sample]
"""One measure of a model in each of its runs."""


def paired_changes(
    after: Sequence[Sample],
    before: Sequence[Sample] | None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    margin: Margin = DEFAULT_MARGIN,
) -> list[Change]:
    """Compare two models on measures of the same units.

    Measures share their resamples and exchanges, so the result of one does not depend on the others.

    Args:
        after: Measures of the model under test.
        before: The same of its baseline, on the same units; None gives only values and their intervals.
        seed: Seed of the draws.
        resamples: Number of resamples, and of exchanges, > 0.
        margin: The loss below which a measure is "not worse".

    Returns:
        One change per measure, in order.

    Raises:
        ValueError: If measures differ in their units, before and after differ in measures or references, a
            measure has no value, or `resamples` is not above 0.

    Reference:
        Efron and Tibshirani 1993, chapter 14; Smucker et al. 2007.
    """
    return changes_over_runs(
        [[sample] for sample in after],
        None if before is None else [[sample] for sample in before],
        seed=seed,
        resamples=resamples,
        margin=margin,
    )


def changes_over_runs(
    after: Sequence[Runs],
    before: Sequence[Runs] | None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    margin: Margin = DEFAULT_MARGIN,
) -> list[Change]:
    """Compare the means of two models over their runs of several seeds.

    Intervals are over units and seeds: see `adiabat.stats.resampling`. Exchanges of unit scores ignore seeds,
    so where a model has several runs the p-value is that of the bootstrap.

    Args:
        after: For each measure, the model under test in each of its runs; equally many runs for every
            measure.
        before: The same of the baseline, in as many runs as it has; None as for `paired_changes`.
        seed: Of the draws.
        resamples: Number of resamples, > 0.
        margin: The loss below which a measure is "not worse".

    Returns:
        One change per measure, in order; with one run of either model, that of `paired_changes`.

    Raises:
        ValueError: As for `paired_changes`, or if measures differ in their runs.

    Reference:
        Davison and Hinkley 1997, section 3.8.
    """
    measures = _counterparts(after, before)
    if not measures:
        return []
    runs = RunResamples.draw(
        measures[0].runs, resamples=resamples, generator=np.random.default_rng([seed, 2])
    )
    drawn = [measure.drawn for measure in measures]
    p_values = _p_values(drawn, seed=seed, flips=resamples)
    changes: dict[int, Change] = {}
    for indices in _drawn_alike(drawn):
        group = [drawn[i] for i in indices]
        counts = resampling_counts(
            group[0].first.values.size, resamples=resamples, seed=seed, groups=group[0].first.groups
        )
        values, draws = _values(group, None), _values(group, counts)
        for i, value, replicates in zip(indices, values, draws, strict=True):
            changes[i] = _change(measures[i], drawn[i], value, replicates, runs, p_values.get(i), margin)
    return [changes[i] for i in range(len(measures))]


def _counterparts(after: Sequence[Runs], before: Sequence[Runs] | None) -> list[PairedMeasure]:
    baselines: Sequence[Runs] = [()] * len(after) if before is None else before
    if len(baselines) != len(after):
        raise ValueError(f"before must be of the same {len(after)} measures as after, got {len(baselines)}")
    if any(not runs for runs in (*after, *(before or ()))):
        raise ValueError("every measure must have at least one run, got none")
    measures = [
        PairedMeasure(tuple(runs), tuple(baseline_runs))
        for runs, baseline_runs in zip(after, baselines, strict=True)
    ]
    require_comparable(measures)
    return measures


def _drawn_alike(measures: Sequence[PairedMeasure]) -> list[list[int]]:
    """Indices of the measures that share their resamples: those with the same groups, and as many units or
    clusters.
    """
    alike: dict[tuple[bytes | None, int], list[int]] = {}
    for i, measure in enumerate(measures):
        groups = measure.first.groups
        key = None if groups is None else groups.astype(np.int64).tobytes()
        alike.setdefault((key, measure.first.values.size), []).append(i)
    return list(alike.values())


def _values(
    measures: Sequence[PairedMeasure], counts: Iterable[Float[np.ndarray, "b n"]] | None
) -> list[Replicates]:
    """Values of all measures on each resample, or on the data itself where `counts` is None."""
    samples = [measure.samples for measure in measures]
    all_samples = [sample for group in samples for sample in group]
    columns = (
        values_of(all_samples)
        if counts is None
        else np.concatenate([values_of(all_samples, block) for block in counts])
    )
    ends = np.cumsum([len(group) for group in samples])[:-1]
    return [
        measure.replicates(part)
        for measure, part in zip(measures, np.split(columns, ends, axis=1), strict=True)
    ]


def _p_values(measures: Sequence[PairedMeasure], *, seed: int, flips: int) -> dict[int, float]:
    """p-values by exchanging scores, for every measure with one run of either model that allows it."""
    exchanged = {i: measure for i, measure in enumerate(measures) if measure.runs == (1, 1)}
    differences = {
        i: shares_of(difference)
        for i, measure in exchanged.items()
        if (difference := measure.difference) is not None
    }
    p_values: dict[int, float] = {}
    for units in dict.fromkeys(shares.size for shares in differences.values()):
        columns = {i: shares for i, shares in differences.items() if shares.size == units}
        flipped = sign_flip_p_values(np.stack(list(columns.values()), axis=1), seed=seed, flips=flips)
        p_values.update(zip(columns, flipped.tolist(), strict=True))
    for i, measure in exchanged.items():
        if measure.first.statistic == "spearman":
            scores = (measure.first.values, measure.before[0].values, measure.first.weights)
            p_values[i] = rank_exchange_p_value(*scores, groups=measure.first.groups, seed=seed, flips=flips)
    return p_values


def _clipped(interval: Interval | None, bounds: Bounds | None) -> Interval | None:
    """The part of an interval within the bounds of the measure."""
    if interval is None or bounds is None:
        return interval
    low, high = np.clip(interval, *bounds).tolist()
    return low, high


def _change(
    measure: PairedMeasure,
    drawn: PairedMeasure,
    values: Replicates,
    draws: Replicates,
    runs: RunResamples,
    p: float | None,
    margin: Margin,
) -> Change:
    """The record of one measure; `drawn` are its clusters, or itself."""
    first = measure.first
    after, before, difference = _quantities(drawn, values, draws, runs)
    level = _clipped(after.interval(), first.bounds)
    change = Change(
        first.measure, first.similarity, first.lower_is_better, after=after.value, after_interval=level
    )
    if not measure.before:
        return change
    interval = _clipped(difference.wide_interval(), _bounds_of_difference(first))
    test: Test = "bootstrap" if p is None else "sign flips"
    changed = _changed(drawn)
    p = _bootstrap_p(difference.draws, changed) if p is None else p
    effect, gained, lost = _of_units(measure)
    compared = replace(
        change,
        before=before.value,
        improvement=improvement(before.value, after.value, lower_is_better=first.lower_is_better),
        difference=difference.value,
        difference_interval=interval,
        improvement_interval=_clipped(
            _in_percent(interval, before.value, first), _bounds_of_improvement(first)
        ),
        p=p,
        z=_z(measure),
        test=test,
        effect=effect,
        gained=gained,
        lost=lost,
        detectable=difference.detectable(),
    )
    decided = _with_verdict(
        compared,
        difference,
        before,
        units_of(drawn, changed, of_runs=difference.errors()[1]),
        margin.of(first.measure),
    )
    if measure.clusters is None or decided.needed is None:
        return decided
    return replace(decided, needed=measure.clusters.units_in(decided.needed))


def _with_verdict(
    change: Change, difference: Quantity, before: Quantity, units: Units, margin: Margin
) -> Change:
    """The change with its verdict, and the figures of non-inferiority."""
    limit, bound = margin_in_unit(margin, before.value), loss_bound(difference, before, units, margin)
    within = limit is not None and bound < limit
    p = 1.0 if change.p is None else change.p
    verdict = verdict_of(
        change.difference_interval, p_value=p, lower_is_better=change.lower_is_better, within=within
    )
    needed = (
        units_needed(difference, before.value, units, limit)
        if verdict == "undecided" and limit is not None
        else None
    )
    return replace(
        change,
        verdict=verdict,
        margin=limit,
        loss_bound=bound if math.isfinite(bound) else None,
        needed=needed,
    )


def _quantities(
    measure: PairedMeasure, values: Replicates, draws: Replicates, runs: RunResamples
) -> tuple[Quantity, Quantity, Quantity]:
    """After, before and difference; the last two are 0 if there is no other model."""
    without = measure.replicates(np.stack([jackknife(sample) for sample in measure.samples], axis=1))
    after, before = runs.effects([values.after, values.before], [draws.after, draws.before])
    groups, weighty = jackknife_groups(measure.first), _weighty(measure.first)
    quantities = zip(
        values.means(), draws.means(), (after, before, after.minus(before)), without.means(), strict=True
    )
    weighted_groups, weights = groups if groups is None else groups[weighty], unequal_weights(measure.first)
    first, second, third = (
        replace(
            _quantity(float(value[0]), units, effect, left_out[weighty], runs, weighted_groups),
            weights=weights,
        )
        for value, units, effect, left_out in quantities
    )
    return first, second, third


def _weighty(sample: Sample) -> Bool[np.ndarray, " _"] | slice:
    """Jackknife values whose left-out unit has any weight."""
    return sample.weights > 0 if sample.statistic == "mean" else slice(None)


def _quantity(
    value: float,
    units: Float[np.ndarray, " r"],
    effect: RunEffect,
    without: Float[np.ndarray, " m"],
    runs: RunResamples,
    groups: Int[np.ndarray, " m"] | None,
) -> Quantity:
    """Draws of units and runs together; the variance that both contain is taken off the units."""
    of_runs = deviation(effect.shift) ** 2
    if not of_runs:
        return Quantity(value, units, units, units, without, groups, runs.freedom)
    variance = deviation(units) ** 2
    share = max(0.0, 1 - effect.variance / variance) if variance > 0 else 0.0
    units = value + (units - value) * math.sqrt(share)
    both = units + effect.shift
    draws = value + runs.widening(of_runs / (of_runs + share * variance)) * (both - value)
    return Quantity(value, units, both, draws, without, groups, runs.freedom)


def _bounds_of_difference(sample: Sample) -> Bounds | None:
    if sample.bounds is None:
        return None
    low, high = sample.bounds
    return low - high, high - low


def _bounds_of_improvement(sample: Sample) -> Bounds | None:
    """In percent; a value falls by all of itself at most."""
    if sample.bounds is None or sample.bounds[0] < 0:
        return None
    return (-math.inf, 100.0) if sample.lower_is_better else (-100.0, math.inf)


def _in_percent(interval: Interval | None, before: float, sample: Sample) -> Interval | None:
    """Interval of a difference in percent of the baseline as measured, so that it excludes 0 exactly where
    that of the difference does.
    """
    if interval is None or before <= 0:
        return None
    low, high = sorted(100 * end / before * (-1 if sample.lower_is_better else 1) for end in interval)
    return low, high


def _bootstrap_p(draws: Float[np.ndarray, " r"], changed: int) -> float:
    defined = draws[~np.isnan(draws)]
    if not defined.size:
        return 1.0
    return bootstrap_p_value(
        int((defined <= 0).sum()), int((defined >= 0).sum()), resamples=defined.size, changed=changed
    )


def _changed(measure: PairedMeasure) -> int:
    """Units that differ between the models: in the mean over runs, or between the two runs that differ
    most.
    """
    if (difference := measure.difference) is not None:
        return int(np.count_nonzero(difference.values[difference.weights > 0]))
    return max(_units_apart(after, before) for after in measure.after for before in measure.before)


def _units_apart(first: Sample, second: Sample) -> int:
    """Units whose values differ; of clusters, the fewest that must move to make both clusterings equal,
    whatever their numbers.
    """
    if first.statistic != "v-measure":
        return int((first.values != second.values).sum())
    from scipy.optimize import linear_sum_assignment

    (names, row), (others, column) = (
        np.unique(sample.values, return_inverse=True) for sample in (first, second)
    )
    shared = np.zeros((names.size, others.size), dtype=np.int64)
    np.add.at(shared, (row, column), 1)
    return first.values.size - int(shared[linear_sum_assignment(shared, maximize=True)].sum())


def _z(measure: PairedMeasure) -> float | None:
    """Two-proportion z of one run against one."""
    if not measure.first.proportion or measure.runs != (1, 1):
        return None
    before, after, total = (
        round(float(total_of.sum()))
        for total_of in (measure.before[0].values, measure.first.values, measure.first.weights)
    )
    return two_proportion_z(before, after, total)


def _of_units(measure: PairedMeasure) -> tuple[float | None, int | None, int | None]:
    """Effect size, units gained, units lost; the counts only where units have values of their own."""
    difference = measure.difference
    if difference is None:
        return None, None, None
    shares = shares_of(difference)[difference.weights > 0]
    spread, mean = float(shares.std(ddof=1)) if shares.size > 1 else 0.0, float(shares.mean())
    effect = mean / spread if spread > 1e-12 * abs(mean) else None
    if difference.pseudo_values:
        return effect, None, None
    risen, fallen = int((shares > 0).sum()), int((shares < 0).sum())
    return (effect, fallen, risen) if difference.lower_is_better else (effect, risen, fallen)
