"""Analysis of the rows of a sweep: means over seeds, harm, costs of gains, and drift limits beside labels."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from operator import attrgetter, itemgetter
from statistics import fmean
from typing import Literal

import numpy as np

from adiabat.adiabatic.drift import OVERLAP_LOSS, ROTATION_SHARE, limits_of
from adiabat.results.evaluation_result import Change, GridComparison
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import (
    VARIANT,
    Case,
    CaseChange,
    Cost,
    DriftLimit,
    EqualGain,
    Method,
    PairCounts,
    Setting,
    SweepAnalysis,
    SweepResult,
    SweepRun,
    Value,
    grouped,
    is_number,
    key_of,
    mean_of,
)
from adiabat.results.training_record import LayerChange

LEAST_RATES = 3
"""Minimum learning rates in a series, so that damage can begin inside it."""

MOST_TENSORS = 2
"""Number of tensors named for each case and measure of change."""


def with_variation(result: SweepResult) -> SweepResult:
    """The result with the analysis of its rows; runs that differ only in their seed form one case."""
    names = list(result.varied)
    if any(run.variant for run in result.runs):
        names.append(VARIANT)
    rows = [_values(run, names) for run in result.runs]
    settings = []
    for index, name in enumerate(names):
        settings.append(Setting(name, _distinct([row[index] for row in rows])))
    positions: dict[tuple[object, ...], list[int]] = {}
    for position, row in enumerate(rows):
        positions.setdefault(tuple(map(key_of, row)), []).append(position)
    cases = [_case(result, rows[runs[0]], runs) for runs in positions.values()]
    view = SweepAnalysis(settings, cases, best=_best(result, cases))
    if result.others:
        # Without tasks beside the targets, gains have no known cost, and harm has no labels.
        view = replace(view, methods=_methods(view))
        view = replace(view, equal_gain=_at_equal_gain(result.others, view))
        view = replace(view, drift_limits=list(_drift_limits(result, view)))
    return replace(result, variation=view)


def _values(run: SweepRun, names: Sequence[str]) -> list[Value]:
    """What a run has of each setting; None where its variant does not vary it."""
    return [run.variant if name == VARIANT else run.varied.get(name) for name in names]


def _distinct(values: Sequence[Value]) -> list[Value]:
    """Distinct values; numbers ascending, then None; others in their order."""
    distinct = list({key_of(value): value for value in values}.values())
    numbers = [value for value in distinct if is_number(value)]
    none = [value for value in distinct if value is None]
    if len(numbers) + len(none) < len(distinct):
        return distinct
    return [*sorted(numbers), *none]


def _best(result: SweepResult, cases: Sequence[Case]) -> int | None:
    """Position of the case with the largest gain, of those without harm; without other tasks, of those
    without a failed run.
    """
    best, largest = None, -math.inf
    for position, case in enumerate(cases):
        fair = case.harmless if result.others else not case.failed
        if fair and case.gain is not None and case.gain > largest:
            best, largest = position, case.gain
    return best


def _case(result: SweepResult, values: list[Value], positions: list[int]) -> Case:
    runs = [result.runs[position] for position in positions]
    done = [run for run in runs if run.status == "done"]
    changes, pairs = list[CaseChange](), list[PairCounts]()
    for task in result.task_names:
        changes += _changes(done, task)
        pairs += _pairs(done, task)
    # The first change of a task is that of its main measure.
    mains = {change.task: change for change in reversed(changes)}
    worse = [task for task in result.others if task in mains and mains[task].verdicts.get("worse")]
    judged = all(_is_judged(mains.get(task), len(runs)) for task in result.others)
    layers = {name: _most_changed(done, measure) for name, measure in LAYER_MEASURES.items()}
    return Case(
        values,
        positions,
        len(runs) - len(done),
        changes,
        pairs,
        drift=_mean_drift(done),
        layers={name: tensors for name, tensors in layers.items() if tensors},
        gain=_gain(mains, result.targets),
        worse=worse,
        harmless=len(done) == len(runs) and not worse and judged,
    )


def _gain(mains: Mapping[str, CaseChange], targets: Sequence[str]) -> float | None:
    """Mean improvement of the targets in percent; None if one has none."""
    gains = []
    for task in targets:
        if task not in mains or (improvement := mains[task].improvement) is None:
            return None
        gains.append(improvement)
    return fmean(gains) if gains else None


def _mean_drift(runs: Sequence[SweepRun]) -> dict[str, float]:
    """Measure of drift to its mean over the runs that have it."""
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, mean in run.drift.means.items() if run.drift is not None else ():
            values.setdefault(name, []).append(mean)
    return {name: mean_of(of_runs) or 0.0 for name, of_runs in values.items()}


def _is_judged(change: CaseChange | None, runs: int) -> bool:
    """Whether every run of a case has a verdict on a task."""
    return change is not None and sum(change.verdicts.values()) == runs


def _changes(runs: Sequence[SweepRun], task: str) -> Iterator[CaseChange]:
    """Change by measure, starting with the main measure of the runs."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for run in runs:
        outcome = run.task(task)
        for change in outcome.changes if outcome is not None else ():
            groups.setdefault((change.measure, change.similarity), []).append(change)
    for (measure, similarity), changes in groups.items():
        yield change_of(task, measure, similarity, changes)


def change_of(task: str, measure: str, similarity: str, changes: Sequence[Change]) -> CaseChange:
    """Combine the changes of the runs of a case, at least one."""
    percent = all(change.improvement is not None for change in changes)
    of_run = attrgetter("improvement" if percent else "difference")
    values = [value for change in changes if (value := of_run(change)) is not None]
    interval = (min(values), max(values)) if values else None
    if len(changes) == 1:
        interval = changes[0].improvement_interval if percent else changes[0].difference_interval
    return CaseChange(
        task,
        measure,
        similarity,
        percent,
        values,
        mean=fmean(values) if values else None,
        interval=interval,
        difference=mean_of([change.difference for change in changes if change.difference is not None]),
        verdicts=dict(Counter(change.verdict for change in changes if change.verdict is not None)),
        runs=len(changes),
    )


def _pairs(runs: Sequence[SweepRun], task: str) -> Iterator[PairCounts]:
    """Counts of language pairs by comparison, as means over the runs."""
    groups: dict[tuple[str, str], list[GridComparison]] = {}
    for run in runs:
        outcome = run.task(task)
        for grid in outcome.grids if outcome is not None else ():
            groups.setdefault((grid.comparison, grid.similarity), []).append(grid)
    for (comparison, similarity), grids in groups.items():
        means = []
        for side in ("improved", "worsened", "improved_z", "worsened_z"):
            counts = [getattr(grid, side) for grid in grids]
            means.append(None if None in counts else fmean(counts))
        yield PairCounts(task, comparison, similarity, np.size(grids[0].after), *means)


def _change_of_largest(layer: LayerChange) -> float:
    return abs(layer.largest_change)


LAYER_MEASURES: Mapping[str, Callable[[LayerChange], float | None]] = {
    "largest weight": attrgetter("largest_after"),
    "change of the largest weight": _change_of_largest,
    "relative change": attrgetter("relative"),
}
"""Measures of changed tensors (Vasilyev et al. 2024, tables 14 and 15)."""


def _most_changed(
    runs: Sequence[SweepRun], measure: Callable[[LayerChange], float | None]
) -> list[tuple[str, float]]:
    """The tensors with the largest mean change over runs, with values."""
    values: dict[str, list[float]] = {}
    for run in runs:
        for layer in filter(is_moved, run.layers):
            if (value := measure(layer)) is not None:
                values.setdefault(layer.name, []).append(value)
    means = {name: fmean(several) for name, several in values.items()}
    # Equal values keep the order of the model.
    return sorted(means.items(), key=itemgetter(1), reverse=True)[:MOST_TENSORS]


def is_moved(layer: LayerChange) -> bool:
    """Whether tuning moved a tensor."""
    # A tensor of zeros has no relative change.
    return layer.largest_after > 0 if layer.relative is None else layer.relative > 0


# --- Costs of gains ---


def _methods(view: SweepAnalysis) -> list[Method]:
    """Cases with a gain, grouped by their non-numeric settings."""
    numeric = [index for index, setting in enumerate(view.settings) if setting.numeric]
    others = [index for index in range(len(view.settings)) if index not in numeric]
    methods = []
    for cases in grouped([case for case in view.cases if case.gain is not None], others):
        amounts = {}
        for case in cases:
            amounts[view.cases.index(case)] = [_amount(case.values[index]) for index in numeric]
        differing = sum(len(set(column)) > 1 for column in zip(*amounts.values(), strict=True))
        methods.append(Method(sorted(amounts, key=amounts.__getitem__), differing == 1))
    return methods


def _amount(value: Value) -> float:
    """A number; None, for no limit, is above every limit."""
    return float(value) if is_number(value) else math.inf


def _at_equal_gain(others: Sequence[str], view: SweepAnalysis) -> EqualGain | None:
    """Losses of the methods at the gain that most of them reach; of several such gains, at the largest.

    Only gains above 0 of cases are considered. None if no two methods reach the same one.
    """
    lines = {}
    for number, method in enumerate(view.methods):
        if method.line:
            lines[number] = [view.cases[case] for case in method.cases]
    gains = set[float]()
    for cases in lines.values():
        gains.update(case.gain for case in cases if case.gain is not None and case.gain > 0)
    most = None
    for gain in sorted(gains):
        costs = []
        for number, cases in lines.items():
            # A method may reach a gain more than once: take the lowest drift, otherwise the first.
            if several := list(_costs(others, number, cases, gain)):
                costs.append(min(several, key=_by_drift))
        fewest = 2 if most is None else len(most.costs)
        if len(costs) >= fewest:
            most = EqualGain(gain, sorted(costs, key=_by_drift))
    return most


def _by_drift(cost: Cost) -> tuple[bool, float]:
    """Lowest drift first, then those whose drift was not measured."""
    return cost.drift is None, cost.drift or 0.0


def _costs(others: Sequence[str], method: int, cases: Sequence[Case], gain: float) -> Iterator[Cost]:
    """Losses of a method wherever it reaches a gain, linear between neighbouring cases."""
    harmless = [case.gain for case in cases if case.harmless and case.gain is not None and case.gain > 0]
    for left, right in pairwise(cases):
        low, high = left.gain or 0.0, right.gain or 0.0
        if min(low, high) <= gain <= max(low, high):
            share = (gain - low) / (high - low) if high != low else 0.0
            changes = {}
            for task in others:
                changes[task] = _between(_improvement(left, task), _improvement(right, task), share)
            drift = _between(left.drift.get(OVERLAP_LOSS), right.drift.get(OVERLAP_LOSS), share)
            yield Cost(method, changes, drift, 0 < share < 1, max(harmless, default=None))


def _improvement(case: Case, task: str) -> float | None:
    change = case.change(task)
    return None if change is None else change.improvement


def _between(left: float | None, right: float | None, share: float) -> float | None:
    return None if left is None or right is None else left + share * (right - left)


# --- Limits on drift ---


def _drift_limits(result: SweepResult, view: SweepAnalysis) -> Iterator[DriftLimit]:
    """Compare limits from noise with labelled damage, for each series of rates and measure of drift."""
    rate = view.rate
    if rate is None:
        return
    for cases in _rate_series(result, view, rate):
        for measure, limit in limits_of(result.noise).items():
            # Runs of an earlier version that knew fewer measures lack this one.
            is_measured = all(measure in drift.means for drift in _drifts(result, cases))
            # The rotation share does not grow with the movement.
            if limit > 0 and measure != ROTATION_SHARE and is_measured:
                steps = [_step(result, case, rate, measure) for case in cases]
                positions = [view.cases.index(case) for case in cases]
                yield limit_beside_labels(steps, limit, cases=positions, measure=measure)


def _rate_series(result: SweepResult, view: SweepAnalysis, rate: int) -> Iterator[list[Case]]:
    """Cases that differ only in their rate, up to the first with unknown harm; a failed run is harm."""
    others = [index for index in range(len(view.settings)) if index != rate]
    measured = []
    for case in view.cases:
        if is_number(case.values[rate]) and (case.failed or case.drift):
            measured.append(case)
    for cases in grouped(measured, others):
        known = []
        for case in sorted(cases, key=lambda case: _amount(case.values[rate])):
            judged = all(_is_judged(case.change(task), len(case.runs)) for task in result.others)
            if not case.failed and not judged:
                break
            known.append(case)
        if known and len(cases) >= LEAST_RATES:
            yield known


@dataclass(frozen=True, slots=True)
class Step:
    """Results of one rate: drift of the probes, and labelled tasks that are measurably worse."""

    rate: float
    drift: float
    harmed: tuple[str, ...]


def _drifts(result: SweepResult, cases: Iterable[Case]) -> list[Drift]:
    """The drift of each run of some cases, where it was measured."""
    found = []
    for case in cases:
        found += [run.drift for run in result.runs_of(case) if run.drift is not None]
    return found


def _step(result: SweepResult, case: Case, rate: int, measure: str) -> Step:
    value = _amount(case.values[rate])
    drifts = [drift.means[measure] for drift in _drifts(result, [case])]
    if case.failed or not drifts:
        # A run without a model counts as drift above every limit.
        return Step(value, math.inf, (*case.worse, "no model"))
    # Every seed must stay inside the limit.
    return Step(value, max(drifts), tuple(case.worse))


def limit_beside_labels(
    steps: Sequence[Step], limit: float, *, cases: Sequence[int] = (), measure: str = ""
) -> DriftLimit:
    """Compare a drift limit with labelled damage.

    Args:
        steps: At least one, lowest rate first. If drift does not rise with the rate, the bracket may be
            empty, with its second limit not above its first.
    """
    within = list(takewhile(lambda step: step.drift <= limit, steps))
    unharmed = list(takewhile(lambda step: not step.harmed, steps))
    # Damage begins at the first step after those without harm.
    beyond = steps[len(unharmed)] if len(unharmed) < len(steps) else None
    # A failed run does not end a bracket.
    end = None if beyond is None or math.isinf(beyond.drift) else beyond.drift
    return DriftLimit(
        list(cases),
        measure,
        limit,
        safe=within[-1].rate if within else None,
        harmless=unharmed[-1].rate if unharmed else None,
        harmed=list(beyond.harmed) if beyond else [],
        bracket=(max((step.drift for step in unharmed), default=0.0), end),
        agreement=_agreement(len(within), len(unharmed), len(steps)),
    )


def _agreement(within: int, unharmed: int, steps: int) -> Literal["hit", "early", "late", "untested"]:
    """How the number of steps within the limit goes with the number of steps without harm."""
    if within < unharmed:
        return "early"
    if within > unharmed:
        return "late"
    # Both begin at the lowest rate, or neither does by the highest.
    return "untested" if within in (0, steps) else "hit"
