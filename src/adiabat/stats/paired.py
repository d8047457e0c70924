"""Paired comparison of two models on the same units: difference, interval, p-value, verdict, and the smallest
detectable difference.

The interval is that of the difference: of means a t interval with the standard error of the jackknife, of
other statistics BCa (`adiabat.stats.quantity`). The p-value comes from exchanging the two scores of a unit. A
verdict needs both: the interval measures the change better, and the exchange stays valid with few changed
units. `adiabat.stats.judgement.judge` makes it.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from adiabat.core.margin import DEFAULT_MARGIN, Margin
from adiabat.results.evaluation_result import Change, Test
from adiabat.results.verdict import Reason
from adiabat.stats.clusters import Clusters
from adiabat.stats.jackknife import Jackknife
from adiabat.stats.judgement import Evidence, judge, shown_by
from adiabat.stats.noninferiority import loss_bounds, units_needed, units_of
from adiabat.stats.quantity import Estimates, Quantity, RunSpread
from adiabat.stats.ranking_measures import improvement
from adiabat.stats.resampling import RESAMPLES, resampling_counts
from adiabat.stats.samples import Bounds, Sample
from adiabat.stats.significance import (
    bootstrap_p_value,
    fewest_p_value,
    rank_exchange_p_value,
    sign_flip_p_values,
    two_proportion_z,
)
from adiabat.stats.statistics import PairedMeasure, require_comparable, shares_of, values_of
from adiabat.stats.student_t import Interval, score_interval

Runs = Sequence[Sample]
"""One measure of a model in each of its runs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A measured change before it is judged: its figures, and what they show; None without a baseline."""

    change: Change
    evidence: Evidence | None

    def judged(
        self, known: Collection[Reason] = (), *, holds: bool = True, is_retained: bool = False
    ) -> Change:
        """The change with its verdict.

        Args:
            known: What is known of units and models beside their values.
            holds: Whether a shown change holds among all comparisons of its family.
            is_retained: Whether nothing may be lost on the units.

        Returns:
            The change with word, reasons, and the number of units that would decide it.
        """
        if self.evidence is None:
            return self.change
        known = {*self.evidence.known, *known}
        verdict = judge(replace(self.evidence, known=known, holds=holds, is_retained=is_retained))
        is_one_model = Reason.ONE_MODEL in verdict.reasons
        # More units would decide only what is open because of them.
        is_open = verdict.word == "undecided" and Reason.LOSS_POSSIBLE in verdict.reasons
        return replace(
            self.change,
            verdict=verdict.word,
            reasons=list(verdict.reasons),
            needed=self.change.needed if is_open else None,
            loss_bound=0.0 if is_one_model else self.change.loss_bound,
            loss_by_spread=0.0 if is_one_model else self.change.loss_by_spread,
        )


def paired_changes(
    after: Sequence[Sample],
    before: Sequence[Sample] | None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    margin: Margin = DEFAULT_MARGIN,
    known: Collection[Reason] = (),
    is_retained: bool = False,
) -> list[Change]:
    """Compare two models on measures of the same units.

    The result of one measure does not depend on the others.

    Args:
        after: Measures of the model under test.
        before: The same of its baseline, on the same units; None gives only values and their intervals.
        seed: Seed of sign flips, and of resamples for statistics that are no mean.
        resamples: Number of sign flips, and of resamples for statistics that are no mean, > 0.
        margin: The loss below which a measure is "not worse".
        known: What is known of units and models beside their values, such as that a model trained on them.
        is_retained: Whether nothing may be lost on the units.

    Returns:
        One change per measure, in order, with its verdict.

    Raises:
        ValueError: If measures differ in their units, before and after differ in measures or references, a
            measure has no value, or `resamples` is not above 0.

    Reference:
        Efron and Tibshirani 1993, chapters 11 and 14; Smucker et al. 2007.
    """
    baseline = None if before is None else [[sample] for sample in before]
    return changes_over_runs(
        [[sample] for sample in after],
        baseline,
        seed=seed,
        resamples=resamples,
        margin=margin,
        known=known,
        is_retained=is_retained,
    )


def changes_over_runs(
    after: Sequence[Runs],
    before: Sequence[Runs] | None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    margin: Margin = DEFAULT_MARGIN,
    known: Collection[Reason] = (),
    is_retained: bool = False,
) -> list[Change]:
    """Compare the means of two models over their runs of several seeds.

    Where a model has several runs, intervals and p-values are those of t, over units and runs
    (`adiabat.stats.quantity`), for every statistic: exchanges of unit scores and resamples of units ignore
    runs.

    Args:
        after: For each measure, the model under test in each of its runs; equally many runs for every
            measure.
        before: The same of the baseline, in as many runs as it has; None as for `paired_changes`.
        seed: As for `paired_changes`; where a model has several runs, nothing is drawn.
        resamples: As for `paired_changes`.
        margin: The loss below which a measure is "not worse".
        known: As for `paired_changes`.
        is_retained: As for `paired_changes`.

    Returns:
        One change per measure, in order; with one run of either model, that of `paired_changes`.

    Raises:
        ValueError: As for `paired_changes`, or if measures differ in their runs.

    Reference:
        Davison and Hinkley 1997, section 3.8; Satterthwaite 1946.
    """
    found = findings(after, before, seed=seed, resamples=resamples, margin=margin)
    return [finding.judged(known, is_retained=is_retained) for finding in found]


def findings(
    after: Sequence[Runs], before: Sequence[Runs] | None, *, seed: int, resamples: int, margin: Margin
) -> list[Finding]:
    """`changes_over_runs` before the verdicts, for comparisons that are judged as a family.

    Args:
        after: As for `changes_over_runs`.
        before: As for `changes_over_runs`.
        seed: As for `changes_over_runs`.
        resamples: As for `changes_over_runs`.
        margin: The loss below which a measure is "not worse".

    Returns:
        One finding per measure, in order.

    Raises:
        ValueError: As for `changes_over_runs`.
    """
    if resamples <= 0:
        raise ValueError(f"resamples must be above 0, got {resamples}")
    measures = _counterparts(after, before)
    # From here on, a cluster that is drawn whole is a unit.
    drawn = [measure.drawn for measure in measures]
    p_values = _exchange_p_values(drawn, seed=seed, flips=resamples)
    found = []
    for place, measure in enumerate(measures):
        estimates = _estimates(drawn[place], seed=seed, resamples=resamples)
        # An absolute margin is in the unit of the measure that decides, which comes first.
        is_deciding = measure.first.measure == measures[0].first.measure
        limit = margin if is_deciding else margin.of_others
        found.append(_finding(measure, drawn[place], estimates, p_values.get(place), limit))
    return found


def _counterparts(after: Sequence[Runs], before: Sequence[Runs] | None) -> list[PairedMeasure]:
    """Every measure with its baseline; models that were not measured alike are a `ValueError`."""
    baselines: Sequence[Runs] = [()] * len(after) if before is None else before
    if len(baselines) != len(after):
        raise ValueError(f"before must be of the same {len(after)} measures as after, got {len(baselines)}")
    if not all(after) or not all(before or ()):
        raise ValueError("every measure must have at least one run, got none")
    measures = [
        PairedMeasure(tuple(runs), tuple(baseline)) for runs, baseline in zip(after, baselines, strict=True)
    ]
    require_comparable(measures)
    return measures


def _exchange_p_values(measures: Sequence[PairedMeasure], *, seed: int, flips: int) -> dict[int, float]:
    """p-values by exchanging scores, for every mean and rank correlation with one run of either model, by
    position.
    """
    shares = {}
    # Several runs are not exchangeable unit by unit: they get the p-value of t.
    p_values = {}
    for place, measure in enumerate(measures):
        if measure.runs != (1, 1):
            continue
        difference = measure.difference
        if difference is not None:
            shares[place] = shares_of(difference)
        elif measure.first.statistic == "spearman":
            after, before = measure.first, measure.before[0]
            p_values[place] = rank_exchange_p_value(
                after.values, before.values, after.weights, groups=after.groups, seed=seed, flips=flips
            )
    # Measures with as many units share their signs, which are drawn once.
    for units in {column.size for column in shares.values()}:
        columns = {place: column for place, column in shares.items() if column.size == units}
        flipped = sign_flip_p_values(np.stack(list(columns.values()), axis=1), seed=seed, flips=flips)
        p_values.update(zip(columns, flipped.tolist(), strict=True))
    return p_values


def _estimates(measure: PairedMeasure, *, seed: int, resamples: int) -> Estimates:
    """Values of a measure on the data, without each unit, and on resamples where its statistic needs them."""
    first, samples = measure.first, measure.samples
    values = measure.replicates(values_of(samples))
    left_out = [Jackknife.of(sample) for sample in samples]
    without = measure.replicates(np.stack([each.values for each in left_out], axis=1))
    draws = None
    if first.statistic != "mean" and max(measure.runs) == 1:
        counts = resampling_counts(first.values.size, resamples=resamples, seed=seed, groups=first.groups)
        draws = measure.replicates(np.concatenate([values_of(samples, block) for block in counts])).means()
    return Estimates(
        values=values.means()[0],
        without=without.means(),
        jackknife=left_out[0],
        runs=RunSpread.of((values.after, values.before), (without.after, without.before), left_out[0]),
        draws=draws,
    )


def _finding(
    measure: PairedMeasure, drawn: PairedMeasure, estimates: Estimates, p: float | None, margin: Margin
) -> Finding:
    """What was found of one measure; `drawn` are its clusters, or itself."""
    first, known = measure.first, _of_clusters(measure.connected)
    # All three quantities share one jackknife, so that they fit together.
    after = estimates.combined(after=1)
    change = Change(
        first.measure,
        first.similarity,
        first.lower_is_better,
        after=after.value,
        after_interval=_level_interval(after, first),
        reasons=known,
    )
    if not measure.before:
        return Finding(change, None)
    before, difference = estimates.combined(before=1), estimates.combined(difference=1)
    interval = _clipped(difference.interval(), _bounds_of_difference(first))
    changed = drawn.changed_units
    test: Test = "sign flips"
    if p is None:
        p, test = _p_value(difference, changed)
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
    units = units_of(drawn, changed, of_runs=difference.of_runs)
    limit = margin.in_unit(before.value)
    # Intervals over units that depend on one another are too narrow, and so would be this bound.
    bound, by_spread = (math.inf, math.inf) if known else loss_bounds(estimates, units, margin)
    shown = shown_by(interval, p_value=p, lower_is_better=first.lower_is_better)
    excluded = None if limit is None else bound < limit
    needed = None
    if limit is not None and not excluded and shown is None:
        needed = units_needed(difference, before.value, units, limit)
    if needed is not None and measure.clusters is not None:
        needed = measure.clusters.units_in(needed)
    measured = replace(
        compared,
        margin=limit,
        loss_bound=bound if math.isfinite(bound) else None,
        loss_by_spread=by_spread if math.isfinite(by_spread) else None,
        needed=needed,
    )
    return Finding(measured, Evidence(shown=shown, loss_excluded=excluded, units=units.count, known=known))


def _of_clusters(clusters: Clusters | None) -> list[Reason]:
    """Whether units that depend on one another are drawn singly."""
    return [Reason.FEW_CLUSTERS] if clusters is not None and clusters.too_few else []


def _p_value(difference: Quantity, changed: int) -> tuple[float, Test]:
    """p-value of a difference whose units cannot be exchanged, and where it comes from."""
    if difference.draws is None:
        return max(difference.p_value, fewest_p_value(changed)), "t test"
    defined = difference.draws[~np.isnan(difference.draws)]
    at_most, at_least = int((defined <= 0).sum()), int((defined >= 0).sum())
    if not defined.size:
        return 1.0, "bootstrap"
    return bootstrap_p_value(at_most, at_least, resamples=defined.size, changed=changed), "bootstrap"


def _level_interval(level: Quantity, sample: Sample) -> Interval | None:
    """Interval of a model's value, within the bounds of the measure."""
    if level.freedom == 0:
        return None
    if level.draws is not None:
        return _clipped(level.bca_interval(level.draws), sample.bounds)
    # What runs differ by does not fall towards the bounds, and pseudo-values may lie beyond them.
    if sample.bounds is None or sample.pseudo_values or level.of_runs > 0 or sample.statistic != "mean":
        return _clipped(level.interval(), sample.bounds)
    return score_interval(level.value, level.error, level.freedom, sample.bounds)


def _clipped(interval: Interval | None, bounds: Bounds | None) -> Interval | None:
    """The part of an interval within the bounds of the measure."""
    if interval is None or bounds is None:
        return interval
    low, high = np.clip(interval, *bounds).tolist()
    return low, high


def _bounds_of_difference(sample: Sample) -> Bounds | None:
    """A difference reaches from one bound of the measure to the other."""
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
    low, high = (100 * end / before for end in interval)
    return (-high, -low) if sample.lower_is_better else (low, high)


def _z(measure: PairedMeasure) -> float | None:
    """Two-proportion z of one run against one."""
    if not measure.first.proportion or measure.runs != (1, 1):
        return None
    totals = (measure.before[0].values, measure.first.values, measure.first.weights)
    before, after, total = (round(float(column.sum())) for column in totals)
    return two_proportion_z(before, after, total)


def _of_units(measure: PairedMeasure) -> tuple[float | None, int | None, int | None]:
    """Effect size, units gained, units lost; the counts only where units have values of their own."""
    difference = measure.difference
    if difference is None:
        return None, None, None
    shares = shares_of(difference)[difference.weights > 0]
    mean = float(shares.mean())
    # The effect is Cohen's d of the differences; rounding alone is no spread.
    spread = float(shares.std(ddof=1)) if shares.size > 1 else 0.0
    effect = mean / spread if spread > 1e-12 * abs(mean) else None
    if difference.pseudo_values:
        return effect, None, None
    risen, fallen = int((shares > 0).sum()), int((shares < 0).sum())
    return (effect, fallen, risen) if difference.lower_is_better else (effect, risen, fallen)
