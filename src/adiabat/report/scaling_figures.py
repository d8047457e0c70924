"""The figures of a scaling experiment or a plan."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.polynomial.polynomial import polyval

from adiabat.core.text import cut_middle, integer
from adiabat.report.chart_style import MUTED, shade
from adiabat.report.charts import Chart, Line, Panel, Points, curves
from adiabat.report.format import number
from adiabat.results.scaling_result import KindRecord, LineRecord, ScalingResult, ScalingRun
from adiabat.scaling_laws.frontier import Profile, line_through
from adiabat.scaling_laws.laws import Method

Hue = tuple[str, str]
"""A colour and a marker."""
Look = Literal["marked", "line", "dashed", "hollow", "point"]
"""Markers joined by a line, a line alone, a dashed line, or markers alone, hollow or large."""

PARABOLA_POINTS = 25

MOST_TICKS, APART = 6, 1.4
"""Maximum number of ticks at drawn values, and the minimum ratio of neighbouring ticks."""

HUES: dict[Method, Hue] = {
    "full": ("#1f6fb4", "o"),
    "freezing": ("#a67c00", "s"),
    "bias": ("#c2568f", "^"),
    "lora": ("#1b8a5a", "D"),
}
"""Methods in order, in mid-tones visible on light and dark pages; markers distinguish them without colour."""


SIZE, TOKENS, BUDGET = "size, parameters", "tokens", "budget, FLOP"


def panels_of(result: ScalingResult) -> dict[str, list[Panel]]:
    """The panels of each figure that has any, by the name of its texts in ``captions.toml``."""
    up = f"{result.loss} loss"
    figures = {
        "isoflop": _isoflop(result, up),
        "optimal": _optimal(result),
        "frontier": _frontiers(result, up),
        "ranks": _by_detail(result, up, "lora"),
        "frozen": _by_detail(result, up, "freezing"),
        "predicted": _predicted(result, up),
        "downstream": _downstream(result, up),
    }
    return {name: panels for name, panels in figures.items() if panels}


def charts(result: ScalingResult) -> list[Chart]:
    """The chart of each figure."""
    return [curves(name, panels) for name, panels in panels_of(result).items()]


def _curve(label: str, points: Points, hue: Hue, look: Look = "marked") -> Line:
    """A line in the colour, and with the marker, of its method or budget."""
    colour, marker = hue
    style = _STYLES[look]
    if look in ("line", "dashed"):
        marker = ""
    return Line(points, label, colour, marker, style, width=1.3, hollow=look == "hollow")


_STYLES: dict[Look, str] = {"marked": "-", "line": "-", "dashed": "--", "hollow": "", "point": ""}


def _panel(title: str, across: str, up: str, lines: Sequence[Line], *, log: str = "xy") -> Panel:
    """Logarithmic axes, with ticks at the points of marked curves if these are few."""
    marked = set()
    for line in lines:
        if line.style == "-" and line.marker:
            marked |= {x for x, _ in line.points}
    # Labels of many or of close points would overlap.
    ticks = sorted(marked)
    if len(ticks) > MOST_TICKS or any(high < low * APART for low, high in pairwise(ticks)):
        ticks = []
    title = cut_middle(title, limit=44)
    return Panel(lines, across, up, title=title, log=log, x_tick=_tick, y_tick=_tick, ticks=ticks)


def _tick(value: float) -> str:
    """A count with a unit of thousands; other numbers with two digits."""
    if value >= 1e12:
        # As 2e15, not 2e+15: ticks are narrow.
        return f"{value:.2g}".replace("e+", "e")
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit and value >= 1e4:
            return f"{value / limit:.3g}{unit}"
    return integer(round(value)) if value.is_integer() else number(value, digits=2)


def _isoflop(result: ScalingResult, up: str) -> list[Panel]:
    """Losses by size at each budget, a panel for each family and method."""
    profiles = {str(record.kind): record.profiles for record in result.kinds if record.profiles}
    budgets: list[float] = []
    for of_kind in profiles.values():
        budgets += [profile.budget for profile in of_kind]
    colours = _colours(budgets)
    panels = []
    for kind, of_kind in profiles.items():
        lines: list[Line] = []
        for profile in of_kind:
            lines += _profile(profile, colours[profile.budget])
        panels.append(_panel(kind, SIZE, up, lines))
    return panels


def _profile(profile: Profile, colour: str) -> Iterator[Line]:
    """The least losses of a budget, the parabola through their logarithms, and its lowest point."""
    yield _curve(f"{profile.budget:.2g} FLOP", _pairs(profile.sizes, profile.losses), (colour, "o"))
    sizes = np.geomspace(profile.sizes[0], profile.sizes[-1], PARABOLA_POINTS).tolist()
    yield _curve("", _parabola(profile, sizes), (colour, ""), "dashed")
    if profile.optimum is not None:
        yield _curve("", _parabola(profile, [profile.optimum]), (colour, "D"), "point")


def _pairs(across: Sequence[float], up: Sequence[float]) -> Points:
    """Points of these coordinates."""
    return list(zip(across, up, strict=True))


def _parabola(profile: Profile, sizes: Sequence[float]) -> Points:
    """Losses at sizes: ``ln loss = a + b ln size + c (ln size)^2``."""
    losses = np.exp(polyval(np.log(sizes), profile.coefficients))
    return _pairs(sizes, losses.tolist())


def _colours(budgets: Iterable[float]) -> dict[float, str]:
    """Colours from blue to red in the order of the budgets, the same in all panels of a figure."""
    rising = sorted(set(budgets))
    last = max(1, len(rising) - 1)
    return {budget: shade(place / last) for place, budget in enumerate(rising)}


def _by_family(
    result: ScalingResult, lines_of: Callable[[KindRecord], Iterable[Line]]
) -> list[tuple[str, list[Line]]]:
    """Families in the order of their names, each with the lines of its laws in the order of methods."""
    families: dict[str, list[Line]] = {}
    for record in sorted(result.kinds, key=_place):
        families.setdefault(record.kind.family, []).extend(lines_of(record))
    return [(family, lines) for family, lines in families.items() if lines]


def _place(record: KindRecord) -> tuple[str, int]:
    """Where the lines of a law stand: by family, then in the order of methods."""
    return record.kind.family, list(HUES).index(record.kind.method)


def _optimal(result: ScalingResult) -> list[Panel]:
    """Two panels for each family: the best size by budget, and the tokens that it leaves."""
    sizes = _by_family(result, partial(_straight, part="sizes"))
    tokens = dict(_by_family(result, partial(_tokens, result)))
    panels = []
    for family, lines in sizes:
        panels += [_panel(family, BUDGET, SIZE, lines), _panel(family, BUDGET, TOKENS, tokens[family])]
    return panels


def _tokens(result: ScalingResult, record: KindRecord) -> list[Line]:
    """Tokens that each budget pays for at its best size, by the cost per token of the runs in the profile."""
    sizes = record.sizes
    if sizes is None:
        return []
    tokens = []
    for budget, size in zip(sizes.at, sizes.values, strict=True):
        tokens.append(budget / _each(result, record, budget, size))
    line = line_through(np.array(sizes.at), np.array(tokens))
    return _lines(record, LineRecord(line.slope, line.intercept, None, None, sizes.at, tokens))


def _each(result: ScalingResult, record: KindRecord, budget: float, size: float) -> float:
    """FLOP per token at a size of a profile, interpolated linearly between logarithms."""
    # The run with the least loss stands for its size.
    least: dict[int, tuple[float, float]] = {}
    for row, loss in result.counted:
        if row.way.kind == record.kind and row.budget == budget:
            own = (loss, row.option.flops_per_token)
            least[row.option.size] = min(own, least.get(row.option.size, own))
    sizes = sorted(least)
    costs = [least[own][1] for own in sizes]
    # Nothing beyond the smallest and the largest size: np.interp keeps their costs.
    return math.exp(float(np.interp(math.log(size), np.log(sizes), np.log(costs))))


def _straight(record: KindRecord, part: str) -> list[Line]:
    """The points and the line of one of a law's lines, its sizes or its frontier."""
    line: LineRecord | None = getattr(record, part)
    return [] if line is None else _lines(record, line)


def _lines(record: KindRecord, line: LineRecord) -> list[Line]:
    """The points of a line, and the line between the first and the last budget."""
    hue = HUES[record.kind.method]
    ends = []
    for budget in (line.at[0], line.at[-1]):
        ends.append((budget, math.exp(line.intercept + line.slope * math.log(budget))))
    return [
        _curve(record.kind.method, _pairs(line.at, line.values), hue, "hollow"),
        _curve("", ends, hue, "line"),
    ]


def _frontiers(result: ScalingResult, up: str) -> list[Panel]:
    """The least loss by budget, a panel for each family."""
    families = _by_family(result, partial(_straight, part="frontier"))
    return [_panel(family, BUDGET, up, lines) for family, lines in families]


def _by_detail(result: ScalingResult, up: str, method: Method) -> list[Panel]:
    """Loss by rank, or by trained share, of each model that was trained with several."""
    across = "rank" if method == "lora" else "trained share of the parameters"
    # Means over seeds of each model, budget and detail.
    losses: dict[str, dict[float, dict[float, list[float]]]] = {}
    for row, loss in result.counted:
        if _shown_with(row, method):
            by_budget = losses.setdefault(row.way.sized_name, {})
            by_budget.setdefault(row.budget, {}).setdefault(_detail(row), []).append(loss)
    colours = _colours(row.budget for row, _ in result.counted if _shown_with(row, method))
    panels = []
    for model, by_budget in losses.items():
        lines = []
        for budget in sorted(by_budget):
            points = [(detail, fmean(values)) for detail, values in sorted(by_budget[budget].items())]
            if len(points) > 1:
                lines.append(_curve(f"{budget:.2g} FLOP", points, (colours[budget], "o")))
        if lines:
            panels.append(_panel(model, across, up, lines))
    return panels


def _shown_with(row: ScalingRun, method: Method) -> bool:
    """Whether a run belongs among those of a method; full training is freezing of nothing."""
    return row.way.method == method or (method == "freezing" and row.way.method == "full")


def _detail(row: ScalingRun) -> float:
    """The rank of an adapter, or the share of the parameters that was trained."""
    return float(row.way.rank) if row.way.rank else row.option.share


def _predicted(result: ScalingResult, up: str) -> list[Panel]:
    """Predicted beside actual losses; the diagonal is a perfect prediction."""
    panels = []
    for family, lines in _by_family(result, _beside):
        values: list[float] = []
        for line in lines:
            for actual, predicted in line.points:
                values += [actual, predicted or actual]
        ends = [(end, end) for end in (min(values), max(values))]
        diagonal = Line(ends, "", MUTED, "", ":", width=1.0)
        panels.append(_panel(family, f"actual {up}", "predicted", [*lines, diagonal]))
    return panels


def _beside(record: KindRecord) -> Iterator[Line]:
    """Losses beside those that the law predicts, for the largest model without its own where possible."""
    law = record.law
    if law is None:
        return
    hue, method = HUES[record.kind.method], record.kind.method
    held_out = any(run.held_out is not None for run in law.predicted)
    for largest in (False, True):
        points = []
        for run in law.predicted:
            predicted = run.fitted if run.held_out is None else run.held_out
            # A law that predicts a loss below 0 has no place on a logarithmic axis.
            if run.largest == largest and predicted > 0:
                points.append((run.loss, predicted))
        if points:
            look: Look = "hollow" if largest and held_out else "point"
            yield _curve("" if largest else method, sorted(points), hue, look)


def _downstream(result: ScalingResult, up: str) -> list[Panel]:
    """Scores of each task by the loss of the run."""
    panels = []
    for correlation in result.downstream:
        task = correlation.task
        points: dict[Method, list[tuple[float, float]]] = {method: [] for method in HUES}
        for row, loss in result.counted:
            if task in row.scores:
                points[row.way.method].append((loss, row.scores[task]))
        lines = [_curve(method, those, HUES[method], "point") for method, those in points.items() if those]
        # Correlations within families have no panels of their own.
        if lines and correlation.family is None:
            panels.append(_panel(task, up, "score", lines, log="x"))
    return panels
