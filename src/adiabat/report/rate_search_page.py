"""The page of a search for the largest safe learning rate, with its figures, CSV and terminal table."""

import math
from collections.abc import Callable
from itertools import chain
from operator import itemgetter
from typing import Any

from adiabat.core.text import DASH, counted, duration, integer
from adiabat.report import rate_search_headline as words
from adiabat.report.chart_style import INK, shade
from adiabat.report.charts import Chart, Line, Panel, curves
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import cut_name, number, setting
from adiabat.report.measure_terms import DRIFTS, in_order
from adiabat.report.pages import Figure, Group, Page, Terms
from adiabat.report.tables import Cell
from adiabat.results.rate_search_result import RateTrial, SafeRate

_Mark = tuple[tuple[float, float], str]
"""A point, and the colour of its run."""

_TERMS = [
    (
        "Search",
        "Rates are tried from the highest down. A run ends at the first check (measurement "
        "of drift) beyond the limit. The first rate that "
        "stays within it to the last step with every seed is the answer; lower rates are assumed safe.",
    ),
    (
        "Limit",
        "Drift grows smoothly with rate and steps, so the limit is a choice. "
        "A limit derived from noise lets drift add a small share to that noise.",
    ),
    (
        "Scope",
        "The answer holds for these settings, data and steps. Search again for another "
        "batch size, optimizer or set of trained weights.",
    ),
]


def page(result: SafeRate) -> Page:
    """The page of a search."""
    span = " to ".join(setting(rate) for rate in dict.fromkeys([min(result.rates), max(result.rates)]))
    figures = [
        Figure(
            charts=[chart],
            title=title,
            caption=caption,
            label=f"{title}; the table of runs holds the numbers",
        )
        for chart, title, caption in _charts(result)
    ]
    devices = dict.fromkeys(trial.device for trial in result.trials if trial.device)
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
            Group(
                id="figures",
                title="How far the answers moved",
                lead="Drift of unlabelled probe texts, measured during tuning at each "
                "rate. All axes are logarithmic.",
                sections=figures,
            ),
            _runs(result),
            _measures(result),
        ],
        facts=[
            ("largest safe rate", "none" if result.rate is None else repr(result.rate)),
            *(
                ("limited measure", result.measure),
                ("limit", repr(result.limit)),
                ("steps wanted", integer(result.steps)),
            ),
            ("devices", ", ".join(devices)),
        ],
        seed="first seed",
        time="time of all runs",
    )


def exports(result: SafeRate) -> dict[str, Callable[[], str]]:
    """The table and the figures beside the page."""
    return {
        "table.csv": _long(result).to_csv,
        **{f"figures/{chart.name}.svg": chart.file for chart, _, _ in _charts(result)},
    }


def terminal(result: SafeRate) -> list[Table]:
    """The runs, and their results."""
    made = "derived from noise" if result.noise else "as given"
    limit = f"drift by {cut_name(result.measure, limit=40)}; the limit is {words.limit(result)}, {made}"

    def style(trial: RateTrial) -> str:
        return (
            "bad" if words.ended(result, trial) == "diverged" else "safe" if trial.rate == result.rate else ""
        )

    columns = [
        Column("rate", lambda trial: setting(trial.rate)),
        Column("seed", lambda trial: trial.seed, "number"),
        Column("steps", lambda trial: integer(trial.steps[-1]) if trial.steps else DASH, "number"),
        Column("drift", lambda trial: _drift(words.last(trial, result.measure)), "number"),
        Column("limit", lambda trial: words.ending(result, trial)),
        Column("time", lambda trial: duration(trial.seconds), "number"),
    ]
    caption = [limit, words.headline(result), *filter(None, [words.pace(result)])]
    return [
        Table(title=result.title, columns=columns, rows=_ordered(result), caption=caption, row_class=style)
    ]


def _ordered(result: SafeRate) -> list[RateTrial]:
    return sorted(result.trials, key=lambda trial: (-trial.rate, trial.seed))


def _measures_of(result: SafeRate) -> list[str]:
    """The limited measure of drift, then the others that any run has."""
    others = in_order(chain.from_iterable(trial.drift for trial in result.trials))
    return list(dict.fromkeys([result.measure, *others]))


def _drift(value: float | None) -> str:
    return DASH if value is None else words.drift_value(value)


def _runs(result: SafeRate) -> Group:
    def steps(trial: RateTrial) -> str:
        return (
            f"{integer(trial.steps[-1])}, {counted(len(trial.steps), 'check')}" if trial.steps else "no check"
        )

    def limit(trial: RateTrial) -> Cell:
        diverged = words.ended(result, trial) == "diverged"
        return Cell(
            words.ending(result, trial), [trial.reason] if diverged else [], tone="bad" if diverged else ""
        )

    def drift(name: str) -> Column:
        return Column(cut_name(name, limit=40), lambda trial: _drift(words.last(trial, name)), "number")

    columns = [
        Column("rate", lambda trial: setting(trial.rate), "number"),
        Column("seed", lambda trial: trial.seed, "number"),
    ]
    columns += [Column("steps", steps, "number"), *map(drift, _measures_of(result))]
    columns += [Column("limit", limit), Column("time", lambda trial: duration(trial.seconds), "number")]
    table = Table(
        columns=columns,
        rows=_ordered(result),
        row_class=lambda trial: "safe" if trial.rate == result.rate else "",
    )
    shaded = "" if result.rate is None else " Shaded: the largest safe rate."
    return Group(
        id="runs",
        title="Runs",
        lead="The highest rate first. Drift is from the last check; a run ends where "
        f"{result.measure} exceeds the limit.{shaded}",
        sections=[table, _seeds(result)],
    )


def _seeds(result: SafeRate) -> Table | None:
    """Rates with several runs; None if there are none."""
    runs: dict[float, list[RateTrial]] = {}
    for trial in _ordered(result):
        runs.setdefault(trial.rate, []).append(trial)
    several = [(rate, group) for rate, group in runs.items() if len(group) > 1]

    def each(row: tuple[float, list[RateTrial]]) -> str:
        return ", ".join(
            f"{_drift(words.last(trial, result.measure))} (seed {trial.seed})" for trial in row[1]
        )

    def spread(row: tuple[float, list[RateTrial]]) -> str:
        return words.drift_range(
            [value for trial in row[1] if (value := words.last(trial, result.measure)) is not None]
        )

    columns = [
        Column("rate", lambda row: setting(row[0])),
        Column("each run", each),
        Column("lowest to highest", spread, "number"),
        Column(
            "stay within",
            lambda row: f"{sum(trial.left_at is None for trial in row[1])} of {len(row[1])}",
            "number",
        ),
    ]
    lead = f"Drift at the end, {result.measure}."
    return (
        Table(id="seeds", title="Rates with several seeds", lead=lead, columns=columns, rows=several)
        if several
        else None
    )


def _measures(result: SafeRate) -> Group:
    def safe(name: str) -> str:
        return words.drift_range(
            [value for trial in words.safe_runs(result) if (value := words.last(trial, name)) is not None]
        )

    def name(measure: str) -> Cell:
        tag = "limited" if measure == result.measure else ""
        return Cell(cut_name(measure, limit=40), [DRIFTS.get(measure, "")], bold=True, tag=tag)

    columns = [Column("measure", name, "name")]
    columns += (
        [Column("noise", lambda measure: _drift(result.noise.get(measure)), "number")] if result.noise else []
    )
    columns += [Column("largest safe rate, at the end", safe, "number")] if result.rate is not None else []
    noise = (
        " Noise is the untuned tower’s own drift when only the final punctuation of the probes changes."
        if result.noise
        else ""
    )
    return Group(
        id="measures",
        title="Measures of drift",
        lead=f"Means over the probes; each is 0 if the tuned tower finds the same as the untuned one.{noise}",
        sections=[Table(columns=columns, rows=_measures_of(result)), Terms(terms=_TERMS)],
    )


def _charts(result: SafeRate) -> list[tuple[Chart, str, str]]:
    """Each chart with title and caption."""
    drift = (
        "Each curve is a run, from blue (lowest rate) to red (highest). A run ends at "
        "the first check beyond the limit (dashed). Bold: "
        "the largest safe rate."
    )
    leave = (
        "Steps after which each run was found beyond the limit; the bar below reaches "
        "down to the previous check, still within it. "
        "A triangle is a run that stayed within it: its height is a lower bound."
    )
    return [
        (curves("drift", [_drift_panel(result)], height=4.6), "Drift against steps", drift),
        (curves("steps", [_steps_panel(result)], height=3.6), "Steps within the limit against rate", leave),
    ]


def _drift_panel(result: SafeRate) -> Panel:
    """Drift by the limited measure, run by run; drift 0 is at the lower edge, a diverged run's end at the
    upper one.
    """
    every = [
        value
        for trial in result.trials
        for value in [*trial.drift[result.measure], result.limit]
        if value > 0
    ]
    low, high = min(every, default=result.limit) / 1.7, max(every, default=result.limit) * 1.7
    lines, marks = [], dict[str, list[_Mark]]()
    for trial in _ordered(result):
        drift = trial.drift[result.measure]
        points = [(float(step), value or low) for step, value in zip(trial.steps, drift, strict=True)]
        ending = words.ended(result, trial)
        if ending == "diverged":
            points.append((max(float(trial.left_at or 0), 1.0), high))
        width = 2.6 if trial.rate == result.rate else 1.4
        colour = _colour(result, trial)
        lines.append(Line(points, _label(result, trial), colour, ".", width=width))
        marks.setdefault("drift 0" if ending == "inside" and drift[-1] == 0 else _ENDINGS[ending], []).append(
            (points[-1], colour)
        )
        marks.setdefault("drift 0", []).extend(
            (point, colour) for point, value in zip(points, drift, strict=False) if value == 0
        )
    limit = (result.limit, f"limit {words.limit(result)}", INK)
    lines += _marks(marks)
    y = f"drift, {cut_name(result.measure, limit=40)}"
    return Panel(
        lines,
        "optimiser steps",
        y,
        log="xy",
        across=[limit],
        x_tick=_count,
        y_tick=lambda value: number(value, digits=1),
    )


def _steps_panel(result: SafeRate) -> Panel:
    """Steps until each run exceeded the limit, by its rate."""
    every = [
        float(step) for trial in result.trials for step in (*trial.steps, trial.left_at or 0) if step > 0
    ]
    low = min([*every, result.steps / 2]) / 2
    lines, marks = [], dict[str, list[_Mark]]()
    for trial in _ordered(result):
        top = float(trial.steps[-1]) if trial.left_at is None else max(float(trial.left_at), low)
        marks.setdefault(_ENDINGS[words.ended(result, trial)], []).append(
            ((trial.rate, top), _colour(result, trial))
        )
        if trial.left_at is not None:
            inside = max((step for step in trial.steps if step < trial.left_at), default=0)
            lines.append(
                Line(
                    [(trial.rate, max(inside, low)), (trial.rate, top)],
                    "",
                    _colour(result, trial),
                    "",
                    width=1.2,
                )
            )
    wanted = (float(result.steps), f"wanted {integer(result.steps)}", INK)
    lines += _marks(marks)
    return Panel(
        lines,
        "learning rate",
        "optimiser steps",
        log="xy",
        across=[wanted],
        x_tick=setting,
        y_tick=_count,
        ticks=_ticks(result),
    )


_ENDINGS: dict[words.Ended, str] = {
    "inside": "within to the end",
    "left": "exceeded the limit",
    "diverged": "diverged",
}
_SIGNS = {"within to the end": "^", "exceeded the limit": "o", "diverged": "x", "drift 0": "v"}


def _marks(marks: dict[str, list[_Mark]]) -> list[Line]:
    """Marks at the ends of runs in the colours of their curves, hollow for runs that exceeded the limit; the
    legend shows them in ink.
    """
    hollow = {"exceeded the limit", "drift 0"}
    lines = []
    for name, ends in marks.items():
        for label, (point, colour) in [
            *((name, (point, INK)) for point, _ in ends[:1]),
            *(("", end) for end in ends),
        ]:
            lines.append(Line([point], label, colour, _SIGNS[name], "", hollow=name in hollow))
    return lines


def _label(result: SafeRate, trial: RateTrial) -> str:
    several = sum(other.rate == trial.rate for other in result.trials) > 1
    return setting(trial.rate) + f", seed {trial.seed}" * several


def _colour(result: SafeRate, trial: RateTrial) -> str:
    rates = [other.rate for other in result.trials] + result.rates
    span = math.log(max(rates) / min(rates))
    return shade(math.log(trial.rate / min(rates)) / span if span else 0.0)


def _ticks(result: SafeRate) -> list[float]:
    """Rates whose labels do not overlap, preferring the largest safe one, then both ends."""
    rates = sorted({trial.rate for trial in result.trials})
    room = math.log(rates[-1] / rates[0] * 1.6**2) / 9
    labelled: list[float] = []
    for rate in [result.rate or rates[0], rates[0], rates[-1], *rates]:
        if all(abs(math.log(rate / other)) >= room for other in labelled):
            labelled.append(rate)
    return sorted(labelled)


def _count(value: float) -> str:
    return integer(round(value))


def _long(result: SafeRate) -> Table:
    """One line for each run: number of measurements, the end, and the last drift by each measure,
    unrounded.
    """

    def figures(trial: RateTrial) -> dict[str, Any]:
        row: dict[str, Any] = {
            "rate": trial.rate,
            "seed": trial.seed,
            "checks": len(trial.steps),
            "last_check": max(trial.steps, default=None),
        }
        row |= {"ended": words.ended(result, trial), "left_at": trial.left_at}
        row |= {f"drift: {name}": words.last(trial, name) for name in _measures_of(result)}
        return row | {"seconds": trial.seconds, "device": trial.device, "reason": trial.reason}

    rows = [figures(trial) for trial in _ordered(result)]
    return Table(columns=[Column(name, itemgetter(name)) for name in (rows[0] if rows else {})], rows=rows)
