"""The page of a search for the largest safe learning rate, with its figures, CSV and terminal table."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter

from adiabat.core.text import DASH, counted, duration, integer
from adiabat.report import rate_search_headline as words
from adiabat.report.captions import glossary, text_of
from adiabat.report.chart_style import INK, shade
from adiabat.report.charts import Chart, Line, Panel, curves
from adiabat.report.format import cut_name, number, setting, whole
from adiabat.report.measure_terms import DRIFTS, in_order
from adiabat.report.pages import Figure, Group, Page, Terms
from adiabat.report.tables import Cell, Column, Content, Table, csv_of
from adiabat.results.rate_search_result import RateTrial, SafeRate

_Mark = tuple[str, tuple[float, float], str]
"""How a run ended, the point, and the colour of the run."""


def page(result: SafeRate) -> Page:
    """The page of a search."""
    lowest, highest = setting(min(result.rates)), setting(max(result.rates))
    span = lowest if lowest == highest else f"{lowest} to {highest}"
    figures = []
    for chart, title, caption in _charts(result):
        label = f"{title}; the table of runs holds the numbers"
        figures.append(Figure(charts=[chart], title=title, caption=caption, label=label))
    devices = dict.fromkeys(trial.device for trial in result.trials if trial.device)
    lead = text_of("rate-search", "page")
    return Page(
        record=result,
        name="safe-rate",
        headline=words.headline(result),
        tone=words.tone(result),
        reservations=words.reservations(result),
        about=[
            ("tuned from", result.model),
            ("rates", f"{counted(len(result.rates), 'rate')}, {span}"),
            ("probes", counted(result.probes, "text")),
        ],
        sections=[
            Group(id="figures", title="How far the answers moved", lead=lead, sections=figures),
            _runs(result),
            _measures(result),
        ],
        facts=[
            ("largest safe rate", "none" if result.rate is None else repr(result.rate)),
            ("limited measure", result.measure),
            ("limit", repr(result.limit)),
            ("steps wanted", integer(result.steps)),
            ("devices", ", ".join(devices)),
        ],
        seed="first seed",
        time="time of all runs",
    )


def exports(result: SafeRate) -> dict[str, Callable[[], str]]:
    """The table and the figures beside the page."""
    figures = {f"figures/{chart.name}.svg": chart.file for chart, _, _ in _charts(result)}
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
        rows.append(row | {"seconds": trial.seconds, "device": trial.device, "reason": trial.reason})
    return csv_of(rows)


def terminal(result: SafeRate) -> list[Table]:
    """The runs, and their results."""
    made = "derived from noise" if result.noise else "as given"
    limit = f"drift by {cut_name(result.measure, limit=40)}; the limit is {words.limit(result)}, {made}"
    columns = [
        Column("rate"),
        Column("seed", "number"),
        Column("steps", "number"),
        Column("drift", "number"),
        Column("limit"),
        Column("time", "number"),
    ]
    caption = [limit, words.headline(result)]
    if words.pace(result):
        caption.append(words.pace(result))
    table = Table(title=result.title, columns=columns, caption=caption)
    for trial in _ordered(result):
        steps = integer(trial.steps[-1]) if trial.steps else None
        style = "bad" if words.ended(trial) == "diverged" else _shaded(result, trial)
        drift = _drift(words.last(trial, result.measure))
        table.add(
            setting(trial.rate),
            trial.seed,
            steps,
            drift,
            words.ending(trial),
            duration(trial.seconds),
            style=style,
        )
    return [table]


def _shaded(result: SafeRate, trial: RateTrial) -> str:
    """CSS class of the rows of the largest safe rate."""
    return "safe" if trial.rate == result.rate else ""


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


def _drift(value: float | None) -> str:
    return DASH if value is None else words.drift_value(value)


def _runs(result: SafeRate) -> Group:
    measures = _measures_of(result)
    drifts = [Column(cut_name(name, limit=40), "number") for name in measures]
    ends = [Column("limit"), Column("time", "number")]
    table = Table(
        columns=[
            Column("rate", "number"),
            Column("seed", "number"),
            Column("steps", "number"),
            *drifts,
            *ends,
        ]
    )
    for trial in _ordered(result):
        steps = "no check"
        if trial.steps:
            steps = f"{integer(trial.steps[-1])}, {counted(len(trial.steps), 'check')}"
        drift = [_drift(words.last(trial, name)) for name in measures]
        ending = Cell(words.ending(trial))
        if words.ended(trial) == "diverged":
            ending = Cell(words.ending(trial), [trial.reason], tone="bad")
        cells: list[Content] = [
            setting(trial.rate),
            trial.seed,
            steps,
            *drift,
            ending,
            duration(trial.seconds),
        ]
        table.add(*cells, style=_shaded(result, trial))
    shaded = "" if result.rate is None else " Shaded: the largest safe rate."
    rule = f"Drift is from the last check; a run ends where {result.measure} exceeds the limit."
    lead = f"The highest rate first. {rule}{shaded}"
    return Group(id="runs", title="Runs", lead=lead, sections=[table, _seeds(result)])


def _seeds(result: SafeRate) -> Table | None:
    """Rates with several runs; None if there are none."""
    columns = [
        Column("rate"),
        Column("each run"),
        Column("lowest to highest", "number"),
        Column("stay within", "number"),
    ]
    lead = f"Drift at the end, {result.measure}."
    table = Table(id="seeds", title="Rates with several seeds", lead=lead, columns=columns)
    for rate, group in groupby(_ordered(result), key=attrgetter("rate")):
        runs = list(group)
        if len(runs) > 1:
            each = [f"{_drift(words.last(trial, result.measure))} (seed {trial.seed})" for trial in runs]
            within = sum(trial.left_at is None for trial in runs)
            drift = words.drift_range(runs, result.measure)
            table.add(setting(rate), ", ".join(each), drift, f"{within} of {len(runs)}")
    return table if table.rows else None


def _measures(result: SafeRate) -> Group:
    lead = text_of("rate-search", "measures")
    if result.noise:
        lead += (
            " Noise is the untuned tower’s own drift when only the final punctuation of the probes changes."
        )
    columns = [
        Column("measure", "name"),
        Column("noise", "number"),
        Column("largest safe rate, at the end", "number"),
    ]
    table = Table(columns=columns)
    for measure in _measures_of(result):
        tag = "limited" if measure == result.measure else ""
        name = Cell(cut_name(measure, limit=40), [DRIFTS.get(measure, "")], bold=True, tag=tag)
        table.add(
            name, _drift(result.noise.get(measure)), words.drift_range(words.safe_runs(result), measure)
        )
    sections = [table.without_empty_columns(), Terms(terms=glossary("rate-search"))]
    return Group(id="measures", title="Measures of drift", lead=lead, sections=sections)


def _charts(result: SafeRate) -> list[tuple[Chart, str, str]]:
    """Each chart with title and caption."""
    drift = text_of("rate-search", "charts-drift")
    leave = text_of("rate-search", "charts-leave")
    return [
        (curves("drift", [_drift_panel(result)], height=4.6), "Drift against steps", drift),
        (curves("steps", [_steps_panel(result)], height=3.6), "Steps within the limit against rate", leave),
    ]


def _drift_panel(result: SafeRate) -> Panel:
    """Drift by the limited measure: 0 is at the lower edge, the end of a diverged run at the upper one."""
    drifts = [result.limit]
    for trial in result.trials:
        drifts += [value for value in trial.drift[result.measure] if value > 0]
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
                marks.append(("drift 0", points[-1], colour))
        if ending == "diverged":
            points.append((max(float(trial.left_at or 0), 1.0), high))
        if ending != "inside" or points[-1][1] > low:
            marks.append((_ENDINGS[ending], points[-1], colour))
        width = 2.6 if trial.rate == result.rate else 1.4
        lines.append(Line(points, _label(result, trial), colour, ".", width=width))
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
        counts += [step for step in (*trial.steps, trial.left_at or 0) if step > 0]
    low = min(counts) / 2
    colours = _colours(result)
    lines: list[Line] = []
    marks: list[_Mark] = []
    for trial in _ordered(result):
        colour, left_at = colours[trial.rate], trial.left_at
        top = float(trial.steps[-1]) if left_at is None else max(float(left_at), low)
        marks.append((_ENDINGS[words.ended(trial)], (trial.rate, top), colour))
        if left_at is not None:
            inside = max((step for step in trial.steps if step < left_at), default=0)
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


_ENDINGS: dict[words.Ended, str] = {
    "inside": "within to the end",
    "left": "exceeded the limit",
    "diverged": "diverged",
}
_SIGNS = {
    "within to the end": ("^", False),
    "exceeded the limit": ("o", True),
    "diverged": ("x", False),
    "drift 0": ("v", True),
}
"""How a run ended to its marker, and whether it is hollow."""


def _marks(marks: Sequence[_Mark]) -> list[Line]:
    """Marks at the ends of runs in the colours of their curves; the legend shows the first in ink."""
    lines, labelled = [], set()
    for name, point, colour in marks:
        marker, hollow = _SIGNS[name]
        if name not in labelled:
            lines.append(Line([point], name, INK, marker, "", hollow=hollow))
            labelled.add(name)
        lines.append(Line([point], "", colour, marker, "", hollow=hollow))
    return lines


def _label(result: SafeRate, trial: RateTrial) -> str:
    rates = [other.rate for other in result.trials]
    seed = f", seed {trial.seed}" if rates.count(trial.rate) > 1 else ""
    return setting(trial.rate) + seed


def _colours(result: SafeRate) -> dict[float, str]:
    """A colour for each rate: equal ratios of rates are equally far apart."""
    rates = sorted({*result.rates, *(trial.rate for trial in result.trials)})
    span = math.log(rates[-1] / rates[0]) or 1.0
    return {rate: shade(math.log(rate / rates[0]) / span) for rate in rates}


def _ticks(result: SafeRate) -> list[float]:
    """Rates whose labels do not overlap, preferring the largest safe one, then both ends."""
    rates = sorted({trial.rate for trial in result.trials})
    room = math.log(rates[-1] / rates[0] * 1.6**2) / 9
    labelled: list[float] = []
    for rate in [result.rate or rates[0], rates[0], rates[-1], *rates]:
        if all(abs(math.log(rate / other)) >= room for other in labelled):
            labelled.append(rate)
    return sorted(labelled)
