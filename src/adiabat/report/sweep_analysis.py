"""What a sweep shows beside its rows: costs at equal gain, drift limits beside labelled damage, and the most changed tensors."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import fmean
from typing import Literal

from adiabat.report.sweep_cases import (
    VARIANT,
    Case,
    Overview,
    Setting,
    combination_label,
    grouped,
    is_number,
    key_of,
    line_labels,
    outcome,
    rate_setting,
)
from adiabat.results.drift_judgement import Judgement, Step, judge, limits_of
from adiabat.results.evaluation_result import LayerChange

DRIFTS = ("overlap loss", "margins", "turn")
"""Measures of drift that come first."""

LEAST_RATES = 3
"""Learning rates that a series needs, so that damage can begin inside of it."""

UNLIMITED = "rotation share"
"""A share of the movement, which does not grow with it."""

MOST_TENSORS = 2
"""Tensors that are named for each setting."""


MOST_COMBINATIONS = 6
"""Combinations of the other settings up to which each has its own curve."""

_LOG_FROM = 20
"""Ratio of the largest to the least positive value from which an axis is logarithmic."""

Scale = Literal["log", "symlog", "linear"]


@dataclass(frozen=True, slots=True)
class Method:
    """Cases that differ by their numeric settings alone.

    Attributes:
        label: Their common values of the other settings.
        cases: With a gain, in the order of their numbers.
        line: Whether they differ by one number, so that values between neighbours can be interpolated.
    """

    label: str
    cases: tuple[Case, ...]
    line: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """Losses of one method at a gain that others reach too.

    Attributes:
        method: The label.
        changes: Other task to its improvement in percent; None where it has none.
        drift: Of the probes; None without a measurement.
        interpolated: Whether the gain lies between two cases.
        harmless: The largest gain above 0 of a harmless case; None without one.
    """

    method: str
    changes: dict[str, float | None]
    drift: float | None
    interpolated: bool
    harmless: float | None


@dataclass(frozen=True, slots=True)
class EqualGain:
    """Methods beside each other at one gain.

    Attributes:
        gain: In percent.
        costs: Of the methods that reach it, the least drift first.
        without: Labels of the methods that do not.
    """

    gain: float
    costs: tuple[Cost, ...]
    without: tuple[str, ...]


def methods_of(view: Overview) -> list[Method]:
    """Cases with a gain, by the settings that are no numbers."""
    if not view.others:
        return []
    categorical = [index for index, setting in enumerate(view.settings) if not setting.numeric]
    groups = grouped([case for case in view.cases if view.gain(case) is not None], categorical)
    variants = [cases[0].runs[0].variant for cases in groups]
    unique = all(variants) and len(set(variants)) == len(variants)
    labelled = [index for index in categorical if (view.settings[index].name == VARIANT or not unique)]
    return [_method(view, cases, [index for index in labelled if len(view.settings[index].values) > 1]) for cases in groups]


def _method(view: Overview, cases: Sequence[Case], labelled: Sequence[int]) -> Method:
    settings, values = [view.settings[index] for index in labelled], [cases[0].values[index] for index in labelled]
    label = str(values[0]) if [setting.name for setting in settings] == [VARIANT] else combination_label(settings, values)
    numeric = [index for index, setting in enumerate(view.settings) if setting.numeric]
    # None, no limit, is beyond every limit.
    amounts = [[float(value) if is_number(value := case.values[index]) else math.inf for index in numeric] for case in cases]
    ordered = [case for _, case in sorted(zip(amounts, cases, strict=True), key=lambda pair: pair[0])]
    return Method(label, tuple(ordered), sum(len(set(column)) > 1 for column in zip(*amounts, strict=True)) == 1)


def gain_of(view: Overview, case: Case) -> float:
    """The gain of a case of a method."""
    gain = view.gain(case)
    assert gain is not None
    return gain


def change_of(case: Case, task: str) -> float | None:
    """Mean improvement of a task in percent."""
    changed = outcome(case, task)
    return changed.mean if changed is not None and changed.percent else None


def drift_of(case: Case, measure: str = DRIFTS[0]) -> float | None:
    """Mean drift of the runs of a case."""
    drifts = [run.drift.means[measure] for run in case.done if run.drift is not None and measure in run.drift.means]
    return fmean(drifts) if drifts else None


def at_equal_gain(view: Overview) -> EqualGain | None:
    """Losses of the methods at the gain that most of them reach; of several such gains at the largest.

    Between neighbouring cases everything is interpolated linearly; candidates are gains of cases. None where no two methods reach the same
    gain above 0.
    """
    methods = methods_of(view)
    lines = [method for method in methods if method.line]
    gains = {gain for method in lines for case in method.cases if (gain := gain_of(view, case)) > 0}
    reached = {gain: [method for method in lines if _costs(view, method, gain)] for gain in gains}
    best = max(reached, key=lambda gain: (len(reached[gain]), gain), default=None)
    if best is None or len(reached[best]) < 2:
        return None
    # A method may reach a gain more than once: at its least drift, or else first.
    costs = [min(_costs(view, method, best), key=lambda cost: (cost.drift is None, cost.drift or 0.0)) for method in reached[best]]
    ordered = sorted(costs, key=lambda cost: (cost.drift is None, cost.drift, cost.method))
    return EqualGain(best, tuple(ordered), tuple(method.label for method in methods if method not in reached[best]))


def _costs(view: Overview, method: Method, gain: float) -> list[Cost]:
    """Losses of a method wherever it reaches a gain."""
    harmless = max((gain_of(view, case) for case in method.cases if view.harmless(case) and gain_of(view, case) > 0), default=None)
    costs = []
    for left, right in zip(method.cases, method.cases[1:], strict=False):
        low, high = gain_of(view, left), gain_of(view, right)
        if min(low, high) <= gain <= max(low, high):
            share = (gain - low) / (high - low) if high != low else 0.0
            changes = {task: _interpolated(change_of(left, task), change_of(right, task), share) for task in view.others}
            costs.append(Cost(method.label, changes, _interpolated(drift_of(left), drift_of(right), share), 0 < share < 1, harmless))
    return costs


def _interpolated(left: float | None, right: float | None, share: float) -> float | None:
    return None if left is None or right is None else left + share * (right - left)


@dataclass(frozen=True, slots=True)
class DriftLimit:
    """One drift limit beside the labels; `series` has the other settings of its runs, "" without others."""

    series: str
    measure: str
    judgement: Judgement


def drift_limits(view: Overview) -> list[DriftLimit]:
    """Compare limits from noise with labelled damage, for each series of rates and measure of drift."""
    setting = rate_setting(view)
    if setting is None or not view.others:
        return []
    index = view.settings.index(setting)
    limits = {measure: limit for measure, limit in limits_of(view.result.noise).items() if limit > 0 and measure != UNLIMITED}
    series = list(_rate_series(view, index))
    return [
        DriftLimit(label if len(series) > 1 else "", measure, judge([_step(view, case, index, measure) for case in cases], limit))
        for label, cases in series
        if cases
        for measure, limit in limits.items()
    ]


def _rate_series(view: Overview, rate: int) -> Iterator[tuple[str, list[Case]]]:
    """Cases that differ by their rate alone, up to the first whose harm is unknown; a failed run counts as harm."""
    others = [index for index in range(len(view.settings)) if index != rate]
    measured = [case for case in view.cases if case.failed or any(run.drift is not None for run in case.done)]
    groups = grouped([case for case in measured if is_number(case.values[rate])], others)
    series = [cases for cases in groups if len(cases) >= LEAST_RATES]
    varied = [index for index in others if len(view.settings[index].values) > 1]
    for label, cases in zip(line_labels(view, varied, series), series, strict=True):
        ascending = sorted(cases, key=lambda case: case.values[rate])  # type: ignore[arg-type,return-value]
        known = takewhile(lambda case: case.failed or all(view.judged(case, task) for task in view.others), ascending)
        yield label, list(known)


def _step(view: Overview, case: Case, rate: int, measure: str) -> Step:
    value = case.values[rate]
    assert is_number(value)
    drifts = [run.drift.means[measure] for run in case.done if run.drift is not None]
    if case.failed or not drifts:
        # A run without a model has drifted beyond every limit.
        return Step(value, math.inf, (*view.worse(case), "no model"))
    # Every seed must stay inside the limit.
    return Step(value, max(drifts), tuple(view.worse(case)))


@dataclass(frozen=True, slots=True)
class LayerTable:
    """The most changed tensors of each case by one measure (Vasilyev et al. 2024, tables 14 and 15).

    Attributes:
        title: Of the measure.
        formula: Of one run.
        rows: Cases with names and means over runs, the largest first, at most `MOST_TENSORS`.
    """

    title: str
    formula: str
    rows: tuple[tuple[Case, tuple[tuple[str, float], ...]], ...] = ()


LAYER_MEASURES: tuple[tuple[LayerTable, Callable[[LayerChange], float | None]], ...] = (
    (LayerTable("Largest weight", "largest |weight| after tuning, of tensors that changed"), lambda layer: layer.largest_after),
    (
        LayerTable("Change of the largest weight", "|(Wt - Wo) / (Wt + Wo)| of the largest |weights|"),
        lambda layer: abs(layer.largest_change),
    ),
    (LayerTable("Relative change", "||after - before|| / ||before||, Frobenius norm"), lambda layer: layer.relative),
)


def most_changed(view: Overview) -> tuple[list[LayerTable], str]:
    """The most changed tensors by each measure, and the prefix that is removed from their names."""
    tables = []
    for table, measure in LAYER_MEASURES:
        rows = tuple((case, tensors) for case in view.cases if (tensors := _largest(case, measure)))
        tables += [replace(table, rows=rows)] if rows else []
    prefix = block_prefix([name for table in tables for _, tensors in table.rows for name, _ in tensors])

    def shortened(table: LayerTable) -> LayerTable:
        rows = ((case, tuple((name.removeprefix(prefix), value) for name, value in tensors)) for case, tensors in table.rows)
        return replace(table, rows=tuple(rows))

    return list(map(shortened, tables)), prefix


def _largest(case: Case, measure: Callable[[LayerChange], float | None]) -> tuple[tuple[str, float], ...]:
    values: dict[str, list[float]] = {}
    for layer in (layer for run in case.done for layer in run.layers if changed(layer)):
        if (value := measure(layer)) is not None:
            values.setdefault(layer.name, []).append(value)
    means = {name: fmean(runs) for name, runs in values.items()}
    # Equal values keep the order of the model.
    return tuple(sorted(means.items(), key=lambda item: -item[1])[:MOST_TENSORS])


def changed(layer: LayerChange) -> bool:
    """Whether tuning moved a tensor."""
    return layer.largest_after > 0 if layer.relative is None else layer.relative > 0


def block_prefix(names: Sequence[str]) -> str:
    """The commonest prefix before the number of a block."""
    prefixes: Counter[str] = Counter()
    for name in dict.fromkeys(names):
        words = name.split(".")
        index = next((index for index, word in enumerate(words) if word.isdecimal()), 0)
        if index:
            prefixes[".".join(words[:index]) + "."] += 1
    return prefixes.most_common(1)[0][0] if prefixes else ""


@dataclass(frozen=True, slots=True)
class Combination:
    """Values of the other settings, with their cases from left to right, each after its position on the axis."""

    label: str
    cases: tuple[tuple[float, Case], ...]

    @property
    def failed(self) -> tuple[float, ...]:
        """Positions at which a run failed."""
        return tuple(x for x, case in self.cases if case.failed)


@dataclass(frozen=True, slots=True)
class Series:
    """A numeric setting that figures are drawn against.

    Attributes:
        combinations: Of the other settings; at most `MOST_COMBINATIONS`.
        of: How many combinations there are.
        tied: Labels of settings that vary with it, so that they make no curves of their own.
        alone: How many cases are on no curve, for no other has the same other settings.
    """

    setting: Setting
    scale: Scale
    combinations: tuple[Combination, ...]
    of: int
    tied: tuple[str, ...] = ()
    alone: int = 0


def series_of(view: Overview) -> list[Series]:
    """Settings that figures are drawn against."""
    series = (_series(view, index) for index, setting in enumerate(view.settings) if setting.numeric and len(setting.numbers) > 1)
    return [drawable for drawable in series if drawable is not None]


def _series(view: Overview, index: int) -> Series | None:
    others = [other for other in range(len(view.settings)) if other != index and len(view.settings[other].values) > 1]
    tied = [other for other in others if _is_tied(view.cases, other, index)]
    apart = [other for other in others if other not in tied]
    numbered = [case for case in view.cases if is_number(case.values[index])]
    lines = [cases for cases in grouped(numbered, apart) if len({key_of(case.values[index]) for case in cases}) > 1]
    if not lines:
        return None
    shown = lines if len(lines) <= MOST_COMBINATIONS else [max(lines, key=lambda cases: sum(len(case.runs) for case in cases))]
    combinations = []
    for label, cases in zip(line_labels(view, apart, lines), lines, strict=True):
        if cases in shown:
            positions = [(float(value), case) for case in cases if is_number(value := case.values[index])]
            combinations.append(Combination(label, tuple(sorted(positions, key=lambda pair: pair[0]))))
    setting, alone = view.settings[index], len(numbered) - sum(map(len, lines))
    return Series(setting, scale_of(setting), tuple(combinations), len(lines), tuple(view.settings[other].label for other in tied), alone)


def _is_tied(cases: Sequence[Case], first: int, second: int) -> bool:
    """Whether two settings map one to one, as a learning rate and the batch size that it is scaled with."""
    pairs = {(key_of(case.values[first]), key_of(case.values[second])) for case in cases}
    return len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})


def scale_of(setting: Setting) -> Scale:
    """``log`` for learning rates and positive values that span more than an order of magnitude; ``symlog`` with a 0 among them."""
    values = setting.numbers
    positive = [value for value in values if value > 0]
    if not positive or min(values) < 0:
        return "linear"
    wide = max(positive) / min(positive) >= _LOG_FROM or setting.name.endswith("learning_rate")
    return "linear" if not wide else "log" if len(positive) == len(values) else "symlog"
