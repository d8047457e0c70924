"""Analysis of the runs of a sweep: means over seeds, harm, costs of gains, and drift limits beside labelled
damage.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from statistics import fmean

from adiabat.adiabatic.drift import OVERLAP_LOSS, ROTATION_SHARE
from adiabat.results.evaluation_result import Change
from adiabat.results.rate_search_result import limits_of
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
    names = [*result.varied, *([VARIANT] if any(run.variant for run in result.runs) else [])]
    values = [
        [run.variant if name == VARIANT else run.varied.get(name) for name in names] for run in result.runs
    ]
    settings = [
        Setting(name, _label(name, names), _distinct([row[index] for row in values]))
        for index, name in enumerate(names)
    ]
    positions: dict[tuple[object, ...], list[int]] = {}
    for position, row in enumerate(values):
        positions.setdefault(tuple(map(key_of, row)), []).append(position)
    cases = [_case(result, values[runs[0]], runs) for runs in positions.values()]
    view = SweepAnalysis(settings, cases)
    fair = [
        position
        for position, case in enumerate(cases)
        if case.gain is not None and (case.harmless if result.others else not case.failed)
    ]
    view = replace(
        view,
        best=max(fair, key=lambda position: cases[position].gain or 0.0, default=None),
        methods=_methods(result, view),
        drift_limits=_drift_limits(result, view),
    )
    return replace(result, variation=replace(view, equal_gain=_at_equal_gain(result, view)))


def _distinct(values: Sequence[Value]) -> list[Value]:
    distinct = {key_of(value): value for value in values}.values()
    numbers, none = (
        [value for value in distinct if is_number(value)],
        [value for value in distinct if value is None],
    )
    return [*sorted(numbers), *none] if len(numbers) + len(none) == len(distinct) else list(distinct)


def _label(name: str, names: Sequence[str]) -> str:
    """Short label of a dotted setting: its last word, with its table unless that is ``tune``; the whole name
    if labels would collide.
    """
    table, _, last = name.rpartition(".")
    unique = sum(other.rpartition(".")[2] == last for other in names) == 1
    label = name if not unique else last if table in ("", "tune") else f"{table} {last}"
    return label.replace("_", " ")


def _case(result: SweepResult, values: list[Value], positions: list[int]) -> Case:
    runs = [result.runs[position] for position in positions]
    done = [run for run in runs if run.status == "done"]
    changes = [change for task in result.task_names for change in _changes(done, task)]
    mains = {change.task: change for change in reversed(changes)}
    gains = [mains[task].improvement if task in mains else None for task in result.targets]
    known = [gain for gain in gains if gain is not None]
    worse = [task for task in result.others if task in mains and mains[task].verdicts.get("worse")]
    measures = dict.fromkeys(name for run in done if run.drift is not None for name in run.drift.means)
    return Case(
        values,
        positions,
        len(runs) - len(done),
        changes,
        pairs=[counts for task in result.task_names for counts in _pairs(done, task)],
        drift={
            name: mean_of([run.drift.means[name] for run in done if run.drift and name in run.drift.means])
            or 0.0
            for name in measures
        },
        layers={
            name: tensors
            for name, measure in LAYER_MEASURES.items()
            if (tensors := _most_changed(done, measure))
        },
        gain=fmean(known) if known and len(known) == len(gains) else None,
        worse=worse,
        harmless=len(done) == len(runs)
        and not worse
        and all(_is_judged(mains.get(task), len(runs)) for task in result.others),
    )


def _is_judged(change: CaseChange | None, runs: int) -> bool:
    """Whether every run of a case has a verdict on a task."""
    return change is not None and sum(change.verdicts.values()) == runs


def _changes(runs: Sequence[SweepRun], task: str) -> Iterator[CaseChange]:
    """Change by measure, starting with the main measure of the runs."""
    outcomes = [outcome for run in runs if (outcome := run.task(task)) is not None]
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in (change for outcome in outcomes for change in outcome.changes):
        groups.setdefault((change.measure, change.similarity), []).append(change)
    for (measure, similarity), changes in groups.items():
        yield change_of(task, measure, similarity, changes)


def change_of(task: str, measure: str, similarity: str, changes: Sequence[Change]) -> CaseChange:
    """Combine the changes of the runs of a case, at least one."""
    percent = all(change.improvement is not None for change in changes)
    values = [
        value
        for change in changes
        if (value := change.improvement if percent else change.difference) is not None
    ]
    if len(changes) > 1:
        interval = (min(values), max(values)) if values else None
    else:
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
    grids = [grid for run in runs if (outcome := run.task(task)) is not None for grid in outcome.grids]
    for comparison, similarity in dict.fromkeys((grid.comparison, grid.similarity) for grid in grids):
        alike = [grid for grid in grids if (grid.comparison, grid.similarity) == (comparison, similarity)]
        counts = [
            [getattr(grid, name) for grid in alike]
            for name in ("improved", "worsened", "improved_z", "worsened_z")
        ]
        means = [None if None in column else fmean(column) for column in counts]
        yield PairCounts(task, comparison, similarity, sum(map(len, alike[0].after)), *means)


LAYER_MEASURES: Mapping[str, Callable[[LayerChange], float | None]] = {
    "largest weight": lambda layer: layer.largest_after,
    "change of the largest weight": lambda layer: abs(layer.largest_change),
    "relative change": lambda layer: layer.relative,
}
"""Measures of changed tensors (Vasilyev et al. 2024, tables 14 and 15)."""


def _most_changed(
    runs: Sequence[SweepRun], measure: Callable[[LayerChange], float | None]
) -> list[tuple[str, float]]:
    """The tensors with the largest mean change over runs, with values."""
    values: dict[str, list[float]] = {}
    for layer in (layer for run in runs for layer in run.layers if is_moved(layer)):
        if (value := measure(layer)) is not None:
            values.setdefault(layer.name, []).append(value)
    means = {name: fmean(several) for name, several in values.items()}
    # Equal values keep the order of the model.
    return sorted(means.items(), key=lambda item: -item[1])[:MOST_TENSORS]


def is_moved(layer: LayerChange) -> bool:
    """Whether tuning moved a tensor."""
    return layer.largest_after > 0 if layer.relative is None else layer.relative > 0


# --- Costs of gains ---


def _methods(result: SweepResult, view: SweepAnalysis) -> list[Method]:
    """Cases with a gain, grouped by their non-numeric settings."""
    if not result.others:
        return []
    categorical = [index for index, setting in enumerate(view.settings) if not setting.numeric]
    groups = view.grouped([case for case in view.cases if case.gain is not None], categorical)
    variants = [result.runs[cases[0].runs[0]].variant for cases in groups]
    unique = all(variants) and len(set(variants)) == len(variants)
    labelled = [index for index in categorical if view.settings[index].name == VARIANT or not unique]
    return [
        _method(view, cases, [index for index in labelled if len(view.settings[index].values) > 1])
        for cases in groups
    ]


def _method(view: SweepAnalysis, cases: Sequence[Case], labelled: Sequence[int]) -> Method:
    by_variant = [view.settings[index].name for index in labelled] == [VARIANT]
    label = str(cases[0].values[labelled[0]]) if by_variant else view.described(cases[0], labelled)
    numeric = [index for index, setting in enumerate(view.settings) if setting.numeric]
    # None, for no limit, is above every limit.
    amounts = [
        [float(value) if is_number(value := case.values[index]) else math.inf for index in numeric]
        for case in cases
    ]
    ordered = [
        view.cases.index(case)
        for _, case in sorted(zip(amounts, cases, strict=True), key=lambda pair: pair[0])
    ]
    return Method(label, ordered, sum(len(set(column)) > 1 for column in zip(*amounts, strict=True)) == 1)


def _at_equal_gain(result: SweepResult, view: SweepAnalysis) -> EqualGain | None:
    """Losses of the methods at the gain that most of them reach; of several such gains, at the largest.

    Values between neighbouring cases are interpolated linearly; only gains of cases are considered. None if
    no two methods reach the same gain above 0.
    """
    lines = [
        (method.label, [view.cases[position] for position in method.cases])
        for method in view.methods
        if method.line
    ]
    gains = {case.gain for _, cases in lines for case in cases if case.gain is not None and case.gain > 0}
    reached = {
        gain: {label: costs for label, cases in lines if (costs := _costs(result.others, label, cases, gain))}
        for gain in gains
    }
    gain = max(reached, key=lambda gain: (len(reached[gain]), gain), default=None)
    if gain is None or len(reached[gain]) < 2:
        return None
    # A method may reach a gain more than once: take the lowest drift, otherwise the first.
    costs = [
        min(several, key=lambda cost: (cost.drift is None, cost.drift or 0.0))
        for several in reached[gain].values()
    ]
    ordered = sorted(costs, key=lambda cost: (cost.drift is None, cost.drift or 0.0, cost.method))
    return EqualGain(
        gain, ordered, [method.label for method in view.methods if method.label not in reached[gain]]
    )


def _costs(others: Sequence[str], label: str, cases: Sequence[Case], gain: float) -> list[Cost]:
    """Losses of a method wherever it reaches a gain."""
    harmless = max(
        (case.gain for case in cases if case.harmless and (case.gain or 0.0) > 0),
        key=lambda gain: gain or 0.0,
        default=None,
    )
    costs = []
    for left, right in pairwise(cases):
        low, high = left.gain or 0.0, right.gain or 0.0
        if min(low, high) <= gain <= max(low, high):
            share = (gain - low) / (high - low) if high != low else 0.0
            changes = {
                task: _interpolated(_improvement(left, task), _improvement(right, task), share)
                for task in others
            }
            drift = _interpolated(left.drift.get(OVERLAP_LOSS), right.drift.get(OVERLAP_LOSS), share)
            costs.append(Cost(label, changes, drift, 0 < share < 1, harmless))
    return costs


def _improvement(case: Case, task: str) -> float | None:
    return None if (change := case.change(task)) is None else change.improvement


def _interpolated(left: float | None, right: float | None, share: float) -> float | None:
    return None if left is None or right is None else left + share * (right - left)


# --- Limits on drift ---


def _drift_limits(result: SweepResult, view: SweepAnalysis) -> list[DriftLimit]:
    """Compare limits from noise with labelled damage, for each series of rates and measure of drift."""
    if view.rate is None or not result.others:
        return []
    # The rotation share does not grow with the movement.
    limits = {
        measure: limit
        for measure, limit in limits_of(result.noise).items()
        if limit > 0 and measure != ROTATION_SHARE
    }
    index = view.settings.index(view.rate)
    series = list(_rate_series(result, view, index))
    return [
        judge(
            [_step(result, case, index, measure) for case in cases],
            limit,
            series=label if len(series) > 1 else "",
            measure=measure,
        )
        for label, cases in series
        if cases
        for measure, limit in limits.items()
    ]


def _rate_series(result: SweepResult, view: SweepAnalysis, rate: int) -> Iterator[tuple[str, list[Case]]]:
    """Cases that differ only in their rate, up to the first with unknown harm; a failed run counts as
    harm.
    """
    others = [index for index in range(len(view.settings)) if index != rate]
    measured = [case for case in view.cases if case.failed or case.drift]
    groups = view.grouped([case for case in measured if is_number(case.values[rate])], others)
    series = [cases for cases in groups if len(cases) >= LEAST_RATES]
    varied = [index for index in others if len(view.settings[index].values) > 1]

    def is_known(case: Case) -> bool:
        return case.failed > 0 or all(_is_judged(case.change(task), len(case.runs)) for task in result.others)

    for label, cases in zip(view.line_labels(varied, series), series, strict=True):
        yield label, list(takewhile(is_known, sorted(cases, key=lambda case: float(str(case.values[rate])))))


@dataclass(frozen=True, slots=True)
class Step:
    """Results of one rate: drift of the probes, and labelled tasks that are measurably worse."""

    rate: float
    drift: float
    harmed: tuple[str, ...]


def _step(result: SweepResult, case: Case, rate: int, measure: str) -> Step:
    value = float(str(case.values[rate]))
    drifts = [run.drift.means[measure] for run in result.runs_of(case) if run.drift is not None]
    if case.failed or not drifts:
        # A run without a model counts as drift above every limit.
        return Step(value, math.inf, (*case.worse, "no model"))
    # Every seed must stay inside the limit.
    return Step(value, max(drifts), tuple(case.worse))


def judge(steps: Sequence[Step], limit: float, *, series: str = "", measure: str = "") -> DriftLimit:
    """Compare a drift limit with labelled damage.

    Args:
        steps: At least one, in any order, each rate once. If drift does not rise with the rate, the bracket
            may be empty, with its second limit not above its first.
    """
    ascending = sorted(steps, key=lambda step: step.rate)
    if not ascending or len({step.rate for step in ascending}) < len(ascending):
        raise ValueError(
            "steps must be one for each rate, and at least one, got rates "
            f"{[step.rate for step in ascending]}"
        )
    within = list(takewhile(lambda step: step.drift <= limit, ascending))
    unharmed = list(takewhile(lambda step: not step.harmed, ascending))
    safe, harmless = (some[-1].rate if some else None for some in (within, unharmed))
    beyond = ascending[len(unharmed)] if len(unharmed) < len(ascending) else None
    if safe == harmless:
        agreement = "untested" if safe is None or beyond is None else "hit"
    else:
        agreement = "early" if (safe or 0.0) < (harmless or 0.0) else "late"
    # A failed run does not end a bracket.
    end = None if beyond is None or math.isinf(beyond.drift) else beyond.drift
    return DriftLimit(
        *(series, measure, limit, safe, harmless),
        harmed=list(beyond.harmed) if beyond else [],
        bracket=(max((step.drift for step in unharmed), default=0.0), end),
        agreement=agreement,  # type: ignore[arg-type]
    )
