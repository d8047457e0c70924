"""What stands beside the tables and figures of a sweep, so that they can be read alone."""

from dataclasses import dataclass

from adiabat.core.text import DASH, NO_BREAK, counted
from adiabat.report.format import VERDICT_MARKS, cut_name, listed, number, signed
from adiabat.report.sweep_cases import Overview, comparisons_of
from adiabat.report.sweep_curves import DRIFTS, Kind, Series
from adiabat.report.sweep_gain_tradeoff import MOST_WAYS, Cost, EqualGain, ways_of

LABEL_LENGTH = 200
"""Characters of a combination of settings that a sentence shows."""

CAPTIONS: dict[Kind, str] = {
    "improvement": (
        "Main measure of each task beside the untuned tower. A marker is a run, the line goes through means over seeds; thin bars are "
        f"paired 95{NO_BREAK}% intervals, where a setting is one run. Open: the paired verdict is no evidence."
    ),
    "pairs": (
        "Language pairs that got better and worse. Solid: by the paired test, corrected over all pairs; dashed: by the source's z-test, "
        "which takes pairs of texts for independent."
    ),
    "drift": (
        "How far what probes find has moved; 0 is the untuned tower, more is farther. "
        f"Bars: 95{NO_BREAK}% over probes, where a setting is one run."
    ),
    "trade": (
        "A marker is a setting, by the means over its runs; the untuned tower is at 0. Right is more gain; up is less harm, and in the "
        "panel of drift farther away. A line joins settings that differ by one number. Bars: paired "
        f"95{NO_BREAK}% intervals, where a setting is one run. Open: no run has evidence of a change."
    ),
    "validation": "Optimiser steps until the run stopped, and the epoch whose weights were kept; 0 is the start.",
}
"""What the figures of a sweep show."""


def key(view: Overview) -> list[str]:
    """What the marks in a table of settings mean."""
    verdicts = ", ".join(f"{sign} {found}" for found, sign in VERDICT_MARKS.items())
    counts = [len(case.done) for case in view.cases]
    marks = [f"{verdicts}, by the paired test"]
    if 1 in counts:
        marks.append(f"in brackets the paired 95{NO_BREAK}% interval of one run")
    if max(counts, default=0) > 1:
        marks.append("a to b: the lowest and the highest of several runs, whose mean stands above; behind marks how many runs bear them")
    if comparisons_of(view.done, view.result.tasks):
        marks.append("language pairs: better/worse by the paired test, then z by the source's test")
    return marks


def no_figures(view: Overview) -> str:
    """Why there is no figure."""
    if not any(setting.numeric and len(setting.values) > 1 for setting in view.settings):
        return "No setting that is a number varies, so nothing is drawn."
    return "No two settings differ in one number alone, so no curve joins them; the table has them all."


def about_series(series: Series) -> str:
    """What stands beside each other in the figures of a setting, and what is left out of them."""
    shown = len(series.combinations)
    said = []
    if series.of > shown:
        kept = cut_name(series.combinations[0].label, limit=LABEL_LENGTH)
        said.append(f"Of {series.of} combinations of the other settings, which are more than can be told apart, only one is drawn: {kept}.")
    elif shown > 1:
        said.append(f"Each of the {shown} combinations of the other settings is drawn by itself.")
    elif series.combinations[0].label:
        said.append(f"Drawn for {cut_name(series.combinations[0].label, limit=LABEL_LENGTH)}.")
    if series.tied:
        said.append(f"With it goes: {listed(list(series.tied))}.")
    if series.alone:
        share = "shares" if series.alone == 1 else "share"
        said.append(f"{counted(series.alone, 'setting')} {share} the rest with no other: in the table alone.")
    return " ".join(said)


def caption(kind: Kind, series: Series | None) -> str:
    """What a figure shows.

    Args:
        series: Setting that it is drawn against; None is the gain.
    """
    failed = series is not None and any(one.failed for one in series.combinations)
    return CAPTIONS[kind] + (" A cross at the lower edge: a run failed there." if failed else "")


def undrawn(view: Overview) -> str:
    """What is said of settings that the figure of costs does not show."""
    ways = ways_of(view)
    without = len(view.cases) - sum(len(way.cases) for way in ways)
    said = f" Of {len(ways)} ways the {MOST_WAYS} with most settings are drawn." if len(ways) > MOST_WAYS else ""
    return said + (f" {counted(without, 'setting')} left no model, or no gain that is known." if without else "")


@dataclass(frozen=True, slots=True)
class GainTable:
    """Ways beside each other at one gain, in words.

    Attributes:
        lead: What is compared, and how.
        head: Of its columns.
        rows: A cell for each column, the first of words.
    """

    lead: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def equal_gain(view: Overview, equal: EqualGain) -> GainTable:
    """What ways to tune lose at one gain."""
    lead = (
        f"What ways change where the targets gain {_percent(equal.gain)}: at a setting that does, or (≈) between two neighbours in "
        "proportion, which tells too much harm where harm grows faster than gain; where a way comes to it more than once, at the least "
        "drift. No interval is known. Beside it the largest gain of a setting that makes nothing measurably worse."
    )
    if equal.without:
        lead += f" Left out, for no two neighbours lie around this gain: {listed([cut_name(way, limit=60) for way in equal.without])}."
    head = ("way", *view.others, f"drift, {DRIFTS[0]}", "largest gain with nothing worse")
    rows = (
        (
            cost.way or "all runs",
            *(_about(cost, _percent(cost.changes[task])) for task in view.others),
            DASH if cost.drift is None else _about(cost, number(cost.drift)),
            "none" if cost.harmless is None else _percent(cost.harmless),
        )
        for cost in equal.costs
    )
    return GainTable(lead, head, tuple(rows))


def _about(cost: Cost, told: str) -> str:
    return f"≈{NO_BREAK}{told}" if cost.between and told != DASH else told


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{signed(value, decimals=2)}{NO_BREAK}%"
