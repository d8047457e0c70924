"""Where drift leaves the band beside where labelled damage begins, for each series of rates and measure of drift."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from adiabat.report import format as wording
from adiabat.report.sweep_cases import Case, Overview, is_number, key_of
from adiabat.report.sweep_values import line_labels, rate
from adiabat.report.sweep_wording import rate_of
from adiabat.results.drift_judgement import Judgement, Step, judge, limits_of

LEAST_RATES = 3
"""Of a series: with fewer, where damage begins is no more than which of two rates is worse."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One limit beside the labels.

    Attributes:
        series: The other settings of its runs, in words; "" where they are the only ones.
        measure: Of drift.
        found: The judgement.
    """

    series: str
    measure: str
    found: Judgement

    def cells(self) -> list[str]:
        """For a table with the columns of `HEAD`."""
        found = self.found
        low, high = found.bracket
        # A run without a model has no drift to be told.
        ends = high is not None and math.isfinite(high)
        bracket = f"{wording.number(low)} to {wording.number(high)}" if high is not None and ends else f"from {wording.number(low)}"
        return [
            *([self.series] if self.series else []),
            self.measure,
            wording.number(found.limit),
            _rate(found.safe),
            _rate(found.harmless),
            ", ".join(found.harmed) or "nothing",
            found.agreement,
            bracket if high is None or low < high else "none",
        ]


HEAD = ("drift by", "limit", "safe by drift up to", "harmless by labels up to", "then worse", "drift is", "limits that hit")
"""Columns of the table, behind that of the series where there are several."""


def judged(view: Overview) -> list[Judged]:
    """Hold the limits that are made of noise against what labels say."""
    setting = rate_of(view)
    if setting is None or not view.others:
        return []
    place = [one.name for one in view.settings].index(setting.name)
    limits = {measure: limit for measure, limit in limits_of(view.result.noise).items() if limit > 0 and measure != UNLIMITED}
    series = list(_rate_series(view, place))
    return [
        Judged(label if len(series) > 1 else "", measure, judge([_step(view, case, place, measure) for case in cases], limit))
        for label, cases in series
        if cases
        for measure, limit in limits.items()
    ]


UNLIMITED = "rotation share"
"""A share of the movement, which does not grow with it."""


def _rate_series(view: Overview, place: int) -> Iterator[tuple[str, list[Case]]]:
    """Cases that differ by their rate alone, and whose drift is known."""
    alike: dict[tuple[object, ...], list[Case]] = {}
    for case in view.cases:
        if is_number(case.values[place]) and (case.failed or any(run.drift is not None for run in case.done)):
            alike.setdefault(tuple(key_of(value) for number, value in enumerate(case.values) if number != place), []).append(case)
    series = [cases for cases in alike.values() if len(cases) >= LEAST_RATES]
    others = [number for number, one in enumerate(view.settings) if number != place and len(one.values) > 1]
    yield from zip(line_labels(view, others, series), map(partial(_known, view, place), series), strict=True)


def _known(view: Overview, place: int, cases: list[Case]) -> list[Case]:
    """Up to the first rate whose harm is not known of every task and run; one without a model is known to be beyond everything."""
    series = sorted(cases, key=lambda case: case.values[place])  # type: ignore[arg-type,return-value]
    return list(takewhile(lambda case: case.failed or all(view.judged(case, task) for task in view.others), series))


def _step(view: Overview, case: Case, place: int, measure: str) -> Step:
    """A run that left no model has drifted beyond everything."""
    value = case.values[place]
    assert is_number(value)
    found = [run.drift.means[measure] for run in case.done if run.drift is not None]
    if case.failed or not found:
        return Step(value, math.inf, (*view.worse(case), "no model"))
    # As a series has it: every seed must stay inside.
    return Step(value, max(found), tuple(view.worse(case)))


def _rate(value: float | None) -> str:
    return "no rate" if value is None else rate(value)
