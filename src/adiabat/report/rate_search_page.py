"""The page of a search for the largest safe learning rate, with its figures, CSV and terminal table."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter

from adiabat.core.text import DASH, counted, duration, integer
from adiabat.report import rate_search_headline as words
from adiabat.report.captions import glossary, texts_of
from adiabat.report.chart_style import INK, shade
from adiabat.report.charts import Chart, Line, Panel, curves
from adiabat.report.format import cut_name, if_known, number, setting, whole
from adiabat.report.measure_terms import DRIFTS, in_order
from adiabat.report.pages import Files, Group, Page, Terms, figure, group
from adiabat.report.tables import Cell, Contents, Table, csv_of
from adiabat.results.rate_search_result import RateTrial, SafeRate

_Mark = tuple[str, tuple[float, float], str]
"""How a run ended, the point, and the colour of the run."""


def page(result: SafeRate) -> Page:
    """The page of a search."""
    rates = [setting(rate) for rate in sorted(result.rates)]
    count = counted(len(rates), "rate")
    about = [("tuned from", result.model)]
    about.append(("rates", f"{count}, {rates[0]} to {rates[-1]}"))
    about.append(("probes", counted(result.probes, "text")))
    devices = dict.fromkeys(trial.device for trial in result.trials if trial.device)
    # The rate and the limit are exact here: they are what another program needs.
    safe = "none" if result.rate is None else repr(result.rate)
    facts = [
        ("largest safe rate", safe),
        ("limited measure", result.measure),
        ("limit", repr(result.limit)),
        ("steps wanted", integer(result.steps)),
        ("devices", ", ".join(devices)),
    ]
    drawn = [figure("rate-search", chart.name, chart) for chart in _charts(result)]
    tables = [_runs(result, _measures_of(result)), _seeds(result)]
    runs = group("rate-search", "runs", *tables, measure=result.measure)
    return Page(
        record=result,
        name="safe-rate",
        headline=words.headline(result),
        tone=words.tone(result),
        reservations=words.reservations(result),
        about=about,
        sections=[group("rate-search", "figures", *drawn), runs, _measures(result)],
        facts=facts,
        seed="first seed",
        time="time of all runs",
    )


def exports(result: SafeRate) -> Files:
    """The table and the figures beside the page."""
    figures = {f"figures/{chart.name}.svg": chart.file for chart in _charts(result)}
    return {"table.csv": partial(_csv, result), **figures}


def _csv(result: SafeRate) -> str:
    """One line for each run: number of checks, the end, and the last drift by each measure, unrounded."""
    rows = []
    for trial in _ordered(result):
        row: dict[str, object] = {
            "rate": trial.rate,
            "seed": trial.seed,
            "checks": len(trial.steps),
            "last_check": max(trial.steps, default=None),
            "ended": words.ended(trial),
            "left_at": trial.left_at,
        }
        for name in _measures_of(result):
            row[f"drift: {name}"] = words.last(trial, name)
        row |= {"seconds": trial.seconds, "device": trial.device, "reason": trial.reason}
        rows.append(row)
    return csv_of(rows)


def terminal(result: SafeRate) -> list[Table]:
    """The runs with the limited drift, and their results."""
    made = "derived from noise" if result.noise else "as given"
    measure = cut_name(result.measure, limit=40)
    limit = f"drift by {measure}; the limit is {words.limit(result)}, {made}"
    caption = [limit, words.headline(result), *words.pace(result)]
    # A terminal has room for one measure of drift: that which decides.
    runs = _runs(result, [result.measure])
    return [replace(runs, title=result.title, caption=caption)]


def _ordered(result: SafeRate) -> list[RateTrial]:
    """The highest rate first, its seeds in order."""
    by_seed = sorted(result.trials, key=attrgetter("seed"))
    return sorted(by_seed, key=attrgetter("rate"), reverse=True)


def _measures_of(result: SafeRate) -> list[str]:
    """The limited measure of drift, then the others that any run has."""
    others: list[str] = []
    for trial in result.trials:
        others += trial.drift
    return list(dict.fromkeys([result.measure, *in_order(others)]))


def _runs(result: SafeRate, measures: Sequence[str]) -> Table:
    """A row for each run with its last drift; those of the largest safe rate are shaded."""
    rows, styles = [], []
    for trial in _ordered(result):
        row: Contents = {"rate": setting(trial.rate), "seed": trial.seed, "steps": None}
        # A run may diverge before its first check.
        if trial.steps:
            row["steps"] = integer(trial.steps[-1])
        row["checks"] = len(trial.steps)
        for name in measures:
            row[cut_name(name, limit=40)] = if_known(words.last(trial, name), words.drift_value)
        tone = "bad" if words.ended(trial) == "diverged" else ""
        row["limit"] = Cell(words.ending(trial), tone=tone)
        row["time"] = duration(trial.seconds)
        rows.append(row)
        styles.append("safe" if trial.rate == result.rate else "")
    return Table.of(rows, {"limit": "text"}, styles)


def _seeds(result: SafeRate) -> Table | None:
    """Rates with several runs; None if there are none."""
    rows = []
    for rate, trials in groupby(_ordered(result), key=attrgetter("rate")):
        runs = list(trials)
        if len(runs) < 2:
            continue
        each = []
        for trial in runs:
            drift = words.drift_range([trial], result.measure) or DASH
            each.append(f"{drift} (seed {trial.seed})")
        within = sum(trial.left_at is None for trial in runs)
        row = {
            "rate": setting(rate),
            "each run": ", ".join(each),
            "lowest to highest": words.drift_range(runs, result.measure),
            "stay within": f"{within} of {len(runs)}",
        }
        rows.append(row)
    if not rows:
        return None
    texts = texts_of("rate-search", "seeds", measure=result.measure)
    return Table.of(rows, {"each run": "text"}, id="seeds", **texts)


def _measures(result: SafeRate) -> Group:
    """Each measure of drift with its noise and its value at the largest safe rate."""
    rows = []
    for measure in _measures_of(result):
        tag = "limited" if measure == result.measure else ""
        name, formula = cut_name(measure, limit=40), DRIFTS.get(measure, "")
        row: Contents = {
            "measure": Cell(name, [formula], bold=True, tag=tag),
            "noise": if_known(result.noise.get(measure), words.drift_value),
            "largest safe rate, at the end": words.drift_range(words.safe_runs(result), measure),
        }
        rows.append(row)
    return group("rate-search", "measures", Table.of(rows), Terms(terms=glossary("rate-search")))


def _charts(result: SafeRate) -> list[Chart]:
    """Drift against steps, and steps against rate."""
    drift, steps = _drift_panel(result), _steps_panel(result)
    # Inches: curves need more room than marks.
    return [curves("drift", [drift], height=4.6), curves("steps", [steps], height=3.6)]


def _drift_panel(result: SafeRate) -> Panel:
    """Drift by the limited measure: 0 is at the lower edge, the end of a diverged run at the upper one."""
    drifts = [result.limit]
    for trial in result.trials:
        drifts += [value for value in trial.drift[result.measure] if value > 0]
    # Room for marks at both edges, by a factor since the axis is logarithmic.
    low, high = min(drifts) / 1.7, max(drifts) * 1.7
    colours = _colours(result)
    lines: list[Line] = []
    marks: list[_Mark] = []
    for trial in _ordered(result):
        colour, ending = colours[trial.rate], words.ended(trial)
        points = []
        for step, value in zip(trial.steps, trial.drift[result.measure], strict=True):
            # A logarithmic axis has no place for 0.
            points.append((float(step), value or low))
            if value == 0:
                marks.append(("still", points[-1], colour))
        if ending == "diverged":
            # A diverged run has no drift any more: its curve leaves at the upper edge.
            step_of_end = max(float(trial.left_at or 0), 1.0)
            points.append((step_of_end, high))
        # A run that ends within the limit without drift has its mark already.
        if ending != "inside" or points[-1][1] > low:
            marks.append((ending, points[-1], colour))
        width = 2.6 if trial.rate == result.rate else 1.4
        label = _label(result, trial)
        lines.append(Line(points, label, colour, ".", width=width))
    limit = (result.limit, f"limit {words.limit(result)}", INK)
    y = f"drift, {cut_name(result.measure, limit=40)}"
    one_digit = partial(number, digits=1)
    return Panel(
        [*lines, *_marks(marks)],
        "optimiser steps",
        y,
        log="xy",
        across=[limit],
        x_tick=whole,
        y_tick=one_digit,
    )


def _steps_panel(result: SafeRate) -> Panel:
    """Steps until each run exceeded the limit, by its rate."""
    counts = [result.steps / 2]
    for trial in result.trials:
        steps = [*trial.steps, trial.left_at or 0]
        counts += [step for step in steps if step > 0]
    low = min(counts) / 2
    colours = _colours(result)
    lines: list[Line] = []
    marks: list[_Mark] = []
    for trial in _ordered(result):
        colour, left_at = colours[trial.rate], trial.left_at
        # A logarithmic axis has no place for a run that left at step 0.
        top = float(trial.steps[-1]) if left_at is None else max(float(left_at), low)
        marks.append((words.ended(trial), (trial.rate, top), colour))
        if left_at is not None:
            before = [step for step in trial.steps if step < left_at]
            inside = max(before, default=0)
            # Between its last check within the limit and the first beyond it, a run left at an unknown step.
            bar = [(trial.rate, max(inside, low)), (trial.rate, top)]
            lines.append(Line(bar, "", colour, "", width=1.2))
    wanted = (float(result.steps), f"wanted {integer(result.steps)}", INK)
    lines += _marks(marks)
    return Panel(
        lines,
        "learning rate",
        "optimiser steps",
        log="xy",
        across=[wanted],
        x_tick=setting,
        y_tick=whole,
        ticks=_ticks(result),
    )


_SIGNS: dict[str, tuple[str, str, bool]] = {
    "inside": ("within to the end", "^", False),
    "left": ("exceeded the limit", "o", True),
    "diverged": ("diverged", "x", False),
    "still": ("drift 0", "v", True),
}
"""Name, marker, and whether the marker is hollow: of each end of a run, and of a check without drift."""


def _marks(marks: Sequence[_Mark]) -> list[Line]:
    """Marks at the ends of runs in the colours of their curves; the legend shows the first in ink."""
    lines, labelled = [], set()
    for sign, point, colour in marks:
        name, marker, hollow = _SIGNS[sign]
        if name not in labelled:
            lines.append(Line([point], name, INK, marker, "", hollow=hollow))
            labelled.add(name)
        lines.append(Line([point], "", colour, marker, "", hollow=hollow))
    return lines


def _label(result: SafeRate, trial: RateTrial) -> str:
    """The rate of a curve, with its seed if the rate has several."""
    rates = [other.rate for other in result.trials]
    label = setting(trial.rate)
    if rates.count(trial.rate) > 1:
        label += f", seed {trial.seed}"
    return label


def _colours(result: SafeRate) -> dict[float, str]:
    """A colour for each rate: equal ratios of rates are equally far apart."""
    rates = sorted({*result.rates, *(trial.rate for trial in result.trials)})
    # A single rate has no span.
    lowest = rates[0]
    span = math.log(rates[-1] / lowest) or 1.0
    return {rate: shade(math.log(rate / lowest) / span) for rate in rates}


def _ticks(result: SafeRate) -> list[float]:
    """Rates whose labels do not overlap, preferring the largest safe one, then both ends."""
    rates = sorted({trial.rate for trial in result.trials})
    # Nine labels fit on the axis, which reaches beyond its ends by a factor of 1.6.
    lowest, highest = rates[0], rates[-1]
    room = math.log(highest / lowest * 1.6**2) / 9
    labelled: list[float] = []
    for rate in [result.rate or lowest, lowest, highest, *rates]:
        if all(abs(math.log(rate / other)) >= room for other in labelled):
            labelled.append(rate)
    return sorted(labelled)
