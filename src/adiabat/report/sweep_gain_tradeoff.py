"""What a gain costs: each way to tune, from little to much, and what the ways lose where they gain the same."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from adiabat.report.sweep_cases import VARIANT, Case, Outcome, Overview, is_number, key_of, outcome
from adiabat.report.sweep_curves import DRIFTS, Curve, Panel, Point
from adiabat.report.sweep_values import combination_label

MOST_WAYS = 8
"""That can be told apart in one figure."""


@dataclass(frozen=True, slots=True)
class Way:
    """Cases that differ by nothing but how much: by settings that are numbers.

    Attributes:
        label: What they have in common, of what differs in the sweep.
        cases: With a gain, in the order of their numbers.
        line: Whether they differ by one number, so that between two of them lies what a number between theirs would give.
    """

    label: str
    cases: tuple[Case, ...]
    line: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way loses at a gain that others have too.

    Attributes:
        way: The label.
        changes: Task that tuning is not for to its improvement in percent; None where it has none.
        drift: Of the probes; None where it was not measured.
        between: Whether it is read between two cases, and not at one.
        harmless: The largest gain, above 0, of a case that makes nothing worse; None where there is none.
    """

    way: str
    changes: dict[str, float | None]
    drift: float | None
    between: bool
    harmless: float | None


@dataclass(frozen=True, slots=True)
class EqualGain:
    """Ways beside each other at one gain.

    Attributes:
        gain: In percent.
        costs: Of the ways that come to it, the least drift first.
        without: Ways of which no two neighbours lie around it.
    """

    gain: float
    costs: tuple[Cost, ...]
    without: tuple[str, ...]


def ways_of(view: Overview) -> list[Way]:
    """Sort the cases of a sweep."""
    if not view.others:
        return []
    worded = [index for index, one in enumerate(view.settings) if not one.numeric]
    alike: dict[tuple[object, ...], list[Case]] = {}
    for case in view.cases:
        if view.gain(case) is not None:
            alike.setdefault(tuple(key_of(case.values[index]) for index in worded), []).append(case)
    variants = [cases[0].runs[0].variant for cases in alike.values()]
    alone = all(variants) and len(set(variants)) == len(variants)
    named = [index for index in worded if (view.settings[index].name == VARIANT or not alone) and len(view.settings[index].values) > 1]
    return [_way(view, cases, named) for cases in alike.values()]


def _way(view: Overview, cases: Sequence[Case], named: Sequence[int]) -> Way:
    labels, values = [view.settings[index].label for index in named], [cases[0].values[index] for index in named]
    label = str(values[0]) if labels == [VARIANT] else combination_label(labels, values)
    # No limit is beyond every limit.
    numeric = [index for index, one in enumerate(view.settings) if one.numeric]
    amounts = [[float(value) if is_number(value := case.values[index]) else math.inf for index in numeric] for case in cases]
    ordered = [case for _, case in sorted(zip(amounts, cases, strict=True), key=lambda one: one[0])]
    return Way(label, tuple(ordered), sum(len(set(column)) > 1 for column in zip(*amounts, strict=True)) == 1)


def trades(view: Overview) -> list[Panel]:
    """The change of every other task, and the drift, against the gain of the targets."""
    ways = sorted(ways_of(view), key=lambda way: -len(way.cases))[:MOST_WAYS]
    if sum(len(way.cases) for way in ways) < 2:
        return []
    tasks = [task for task in view.others if any(_change(case, task) is not None for way in ways for case in way.cases)]
    panels = [Panel(task, tuple(_curve(view, way, task) for way in ways), percent=True) for task in tasks]
    measured = next((name for name in DRIFTS if any(_drift(case, name) is not None for way in ways for case in way.cases)), None)
    return [*panels, *([] if measured is None else [Panel(f"drift: {measured}", tuple(_drifting(view, way, measured) for way in ways))])]


def _curve(view: Overview, way: Way, task: str) -> Curve:
    found = [(case, own) for case in way.cases if (own := outcome(case, task)) is not None and own.percent]
    return _joined(way, [_point(view, case, own, own.mean) for case, own in found if own.mean is not None])


def _point(view: Overview, case: Case, own: Outcome, change: float) -> Point:
    alone, evidence = len(own.changes) == 1, own.verdicts["better"] + own.verdicts["worse"]
    return Point(_gain(view, case), change, case.runs[0].seed, not evidence, own.bounds if alone else None)


def _drifting(view: Overview, way: Way, measure: str) -> Curve:
    found = [(case, drift) for case in way.cases if (drift := _drift(case, measure)) is not None]
    return _joined(way, [Point(_gain(view, case), drift, case.runs[0].seed) for case, drift in found])


def _joined(way: Way, points: Sequence[Point]) -> Curve:
    means = tuple((point.x, point.y) for point in points) if way.line else ()
    return Curve(way.label, "combination", tuple(points), means)


def _gain(view: Overview, case: Case) -> float:
    gain = view.gain(case)
    assert gain is not None
    return gain


def _change(case: Case, task: str) -> float | None:
    own = outcome(case, task)
    return own.mean if own is not None and own.percent else None


def _drift(case: Case, measure: str = DRIFTS[0]) -> float | None:
    found = [run.drift.means[measure] for run in case.done if run.drift is not None and measure in run.drift.means]
    return fmean(found) if found else None


def at_equal_gain(view: Overview) -> EqualGain | None:
    """What the ways lose at the gain that most of them come to; of several such gains at the largest.

    Between two neighbours on a way everything is taken to change in proportion. Only gains that a case has are looked at.

    Returns:
        The comparison; None where no two ways come to the same gain above 0.
    """
    every = ways_of(view)
    ways = [way for way in every if way.line]
    gains = {gain for way in ways for case in way.cases if (gain := _gain(view, case)) > 0}
    reached = {gain: [way for way in ways if next(_crossings(view, way, gain), None) is not None] for gain in gains}
    best = max(reached, key=lambda gain: (len(reached[gain]), gain), default=None)
    if best is None or len(reached[best]) < 2:
        return None
    costs = sorted((_cost(view, way, best) for way in reached[best]), key=lambda cost: (cost.drift is None, cost.drift, cost.way))
    return EqualGain(best, tuple(costs), tuple(way.label for way in every if way not in reached[best]))


def _crossings(view: Overview, way: Way, gain: float) -> Iterator[tuple[Case, Case, float]]:
    """Neighbours on a way between whose gains one lies, and how far from the first to the second it is."""
    for one, other in zip(way.cases, way.cases[1:], strict=False):
        low, high = _gain(view, one), _gain(view, other)
        if min(low, high) <= gain <= max(low, high):
            yield one, other, (gain - low) / (high - low) if high != low else 0.0


def _cost(view: Overview, way: Way, gain: float) -> Cost:
    """Where a way comes to a gain more than once, the place with the least drift, or else the first."""
    found = [_between(view, *crossing) for crossing in _crossings(view, way, gain)]
    best = min(found, key=lambda one: (one["drift"] is None, one["drift"] or 0.0))
    sound = [own for case in way.cases if view.harmless(case) and (own := _gain(view, case)) > 0]
    return Cost(way.label, harmless=max(sound, default=None), **best)


def _between(view: Overview, one: Case, other: Case, share: float) -> dict[str, Any]:
    changes = {task: _mixed(_change(one, task), _change(other, task), share) for task in view.others}
    return {"changes": changes, "drift": _mixed(_drift(one), _drift(other), share), "between": 0 < share < 1}


def _mixed(one: float | None, other: float | None, share: float) -> float | None:
    return None if one is None or other is None else one + share * (other - one)
