"""The figures of a scaling experiment or a plan."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Literal

import numpy as np

from adiabat.core.text import cut_middle, integer
from adiabat.report.chart_style import MUTED, shade
from adiabat.report.charts import Chart, Line, Panel, curves
from adiabat.report.format import number
from adiabat.results.scaling_result import KindRecord, LineRecord, ScalingResult, ScalingRun
from adiabat.scaling_laws.frontier import Profile, line_through
from adiabat.scaling_laws.laws import Method

Points = tuple[tuple[float, float], ...]
Look = Literal["marked", "line", "dashed", "hollow", "point"]
"""Markers joined by a line, a line alone, a dashed line, or markers alone, hollow or large."""

PARABOLA_POINTS = 25

MOST_TICKS, APART = 6, 1.4
"""Maximum number of ticks at drawn values, and the minimum ratio of neighbouring ticks."""

METHODS: tuple[Method, ...] = ("full", "freezing", "bias", "lora")
"""Methods in the order of their colours."""


_HUES = (("#1f6fb4", "o"), ("#a67c00", "s"), ("#c2568f", "^"), ("#1b8a5a", "D"))
"""Mid-tones, visible on light and dark pages; markers distinguish methods without colour."""


SIZE, TOKENS, BUDGET = "size, parameters", "tokens", "budget, FLOP"


def panels_of(result: ScalingResult) -> list[tuple[str, str, str, list[Panel]]]:
    """Name, title, caption and panels of each non-empty figure."""
    up = f"{result.loss} loss"
    figures = (
        ("isoflop", "Loss by size at each budget", _ISOFLOP, _isoflop(result, up)),
        ("optimal", "Best size and tokens by budget", _OPTIMAL, _optimal(result)),
        ("frontier", "Least loss by budget", _FRONTIER, _frontiers(result, up)),
        ("ranks", "Loss by LoRA rank", _RANKS, _by_detail(result, up, "lora")),
        ("frozen", "Loss by share of trained parameters", _FROZEN, _by_detail(result, up, "freezing")),
        ("predicted", "Predicted and actual loss", _PREDICTED, _predicted(result, up)),
        ("downstream", "Task scores by loss", _DOWNSTREAM, _downstream(result, up)),
    )
    return [
        (name, title, caption, nonempty)
        for name, title, caption, panels in figures
        if (nonempty := list(panels))
    ]


def figures(result: ScalingResult) -> list[tuple[Chart, str, str]]:
    """Each chart with title and caption."""
    return [(curves(name, panels), title, caption) for name, title, caption, panels in panels_of(result)]


def _curve(
    label: str, points: Sequence[tuple[float, float]], hue: int | float, look: Look = "marked"
) -> Line:
    """A line in the colour of its method, by number, or of its budget, by a share from light to dark."""
    colour, marker = _HUES[hue] if isinstance(hue, int) else (shade(hue), "D" if look == "point" else "o")
    style = {"marked": "-", "line": "-", "dashed": "--", "hollow": "", "point": ""}[look]
    return Line(
        points,
        label,
        colour,
        "" if look in ("line", "dashed") else marker,
        style,
        width=1.3,
        hollow=look == "hollow",
    )


def _panel(
    title: str, across: str, up: str, lines: Sequence[Line], *, log: str = "xy", diagonal: bool = False
) -> Panel:
    """Logarithmic axes, with ticks at the points of marked curves if these are few."""
    if diagonal:
        values = [value for line in lines for point in line.points for value in point if value is not None]
        lines = [
            *lines,
            Line([(end, end) for end in (min(values), max(values))], "", MUTED, "", ":", width=1.0),
        ]
    positions = sorted({x for line in lines if line.style == "-" and line.marker for x, _ in line.points})
    few = len(positions) <= MOST_TICKS and all(low * APART <= high for low, high in pairwise(positions))
    return Panel(
        lines,
        across,
        up,
        title=cut_middle(title, limit=44),
        log=log,
        x_tick=_tick,
        y_tick=_tick,
        ticks=positions if few else (),
    )


def _tick(value: float) -> str:
    if value >= 1e12:
        return f"{value:.2g}".replace("e+", "e")
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit and value >= 1e4:
            return f"{value / limit:.3g}{unit}"
    return integer(round(value)) if value.is_integer() else number(value, digits=2)


_ISOFLOP = (
    "Each curve is a budget, from blue (smallest) to red (largest). Sizes exclude the "
    "token embeddings; each size shows the least loss "
    "of its runs. Dashed: the parabola through the logarithms. A large marker is "
    "its lowest point, if it lies within the sizes."
)
_OPTIMAL = (
    "Lowest points of the parabolas, and the tokens that the budget affords there. "
    "Lines are least-squares fits to the logarithms."
)
_FRONTIER = "The best run of each budget, and the least-squares line through the logarithms."
_RANKS = "Each curve is a budget, from blue (smallest) to red (largest)."
_FROZEN = (
    "Each curve is a budget, blue (smallest) to red (largest). Fewer trained parameters "
    "mean more frozen blocks; at 1, none is frozen."
)
_PREDICTED = (
    "Hollow markers: runs of the largest model, predicted by the law fitted without "
    "them. Filled: all others, by the same law. If too "
    "few remain without the largest, all are filled and predicted by the law fitted to all."
)
_DOWNSTREAM = "Each marker is a run."


def _isoflop(result: ScalingResult, up: str) -> Iterator[Panel]:
    shades = _shades(profile.budget for record in result.kinds for profile in record.profiles)
    for record in result.kinds:
        if record.profiles:
            lines = [
                line for profile in record.profiles for line in _profile(profile, shades[profile.budget])
            ]
            yield _panel(str(record.kind), SIZE, up, lines)


def _profile(profile: Profile, hue: float) -> Iterator[Line]:
    yield _curve(f"{profile.budget:.2g} FLOP", tuple(zip(profile.sizes, profile.losses, strict=True)), hue)
    low, high = math.log(profile.sizes[0]), math.log(profile.sizes[-1])
    positions = [low + (high - low) * step / (PARABOLA_POINTS - 1) for step in range(PARABOLA_POINTS)]
    yield _curve("", tuple((math.exp(x), _parabola(profile, x)) for x in positions), hue, "dashed")
    if profile.optimum is not None:
        yield _curve("", ((profile.optimum, _parabola(profile, math.log(profile.optimum))),), hue, "point")


def _parabola(profile: Profile, log_size: float) -> float:
    constant, linear, quadratic = profile.coefficients
    return math.exp(constant + linear * log_size + quadratic * log_size**2)


def _shades(budgets: Iterable[float]) -> dict[float, float]:
    """Colours from light to dark in the order of the budgets, the same in all panels of a figure."""
    rising = sorted(set(budgets))
    return {budget: index / max(1, len(rising) - 1) for index, budget in enumerate(rising)}


def _families(result: ScalingResult) -> list[tuple[str, list[KindRecord]]]:
    ordered = sorted(result.kinds, key=lambda record: (record.kind.family, METHODS.index(record.kind.method)))
    return [(family, list(of)) for family, of in groupby(ordered, key=lambda record: record.kind.family)]


def _optimal(result: ScalingResult) -> Iterator[Panel]:
    for family, kinds in _families(result):
        sizes = [curve for record in kinds if record.sizes for curve in _line(record, record.sizes)]
        tokens = [
            curve
            for record in kinds
            if record.sizes
            for curve in _line(record, _tokens(result, record, record.sizes))
        ]
        if sizes:
            yield _panel(family, BUDGET, SIZE, sizes)
            yield _panel(family, BUDGET, TOKENS, tokens)


def _tokens(result: ScalingResult, record: KindRecord, sizes: LineRecord) -> LineRecord:
    """The tokens that each budget pays for at its best size, from the cost per token of the runs in the
    profile.
    """
    tokens = [
        budget / _each(result, record, budget, size)
        for budget, size in zip(sizes.at, sizes.values, strict=True)
    ]
    line = line_through(np.array(sizes.at), np.array(tokens))
    return LineRecord(line.slope, line.intercept, None, None, sizes.at, tokens)


def _each(result: ScalingResult, record: KindRecord, budget: float, size: float) -> float:
    """FLOP per token at a size of a profile, interpolated linearly between logarithms."""
    least: dict[int, tuple[float, float]] = {}
    for row, loss in result.counted:
        if row.way.kind == record.kind and row.budget == budget:
            own = (loss, row.option.flops_per_token)
            least[row.option.size] = min(own, least.get(row.option.size, own))
    known = np.log(np.array(sorted((float(own), each) for own, (_, each) in least.items())))
    return math.exp(float(np.interp(math.log(size), known[:, 0], known[:, 1])))


def _line(record: KindRecord, line: LineRecord) -> Iterator[Line]:
    hue, ends = METHODS.index(record.kind.method), (line.at[0], line.at[-1])
    yield _curve(record.kind.method, tuple(zip(line.at, line.values, strict=True)), hue, "hollow")
    yield _curve(
        "", tuple((x, math.exp(line.intercept + line.slope * math.log(x))) for x in ends), hue, "line"
    )


def _frontiers(result: ScalingResult, up: str) -> Iterator[Panel]:
    for family, kinds in _families(result):
        lines = [curve for record in kinds if record.frontier for curve in _line(record, record.frontier)]
        if lines:
            yield _panel(family, BUDGET, up, lines)


def _by_detail(result: ScalingResult, up: str, method: Method) -> Iterator[Panel]:
    """Loss by rank, or by trained share, of each model that was trained with several."""
    across = "rank" if method == "lora" else "trained share of the parameters"
    rows = [(row, loss) for row, loss in result.counted if _shown_with(row, method)]
    shades = _shades(row.budget for row, _ in rows)
    for model in dict.fromkeys(row.way.sized_name for row, _ in rows):
        of_model = [(row, loss) for row, loss in rows if row.way.sized_name == model]
        lines = [
            _curve(f"{budget:.2g} FLOP", points, hue)
            for budget, hue in shades.items()
            if len(points := _means([(_detail(row), loss) for row, loss in of_model if row.budget == budget]))
            > 1
        ]
        if lines:
            yield _panel(model, across, up, lines)


def _shown_with(row: ScalingRun, method: Method) -> bool:
    return row.way.method == method or (method == "freezing" and row.way.method == "full")


def _detail(row: ScalingRun) -> float:
    return float(row.way.rank) if row.way.rank else row.option.share


def _means(points: Sequence[tuple[float, float]]) -> Points:
    """Means over seeds, by x."""
    positions = sorted({x for x, _ in points})
    return tuple(
        (x, sum(values) / len(values))
        for x in positions
        if (values := [y for other, y in points if other == x])
    )


def _predicted(result: ScalingResult, up: str) -> Iterator[Panel]:
    for family, kinds in _families(result):
        lines = [curve for record in kinds for curve in _beside(record)]
        if lines:
            yield _panel(family, f"actual {up}", "predicted", lines, diagonal=True)


def _beside(record: KindRecord) -> Iterator[Line]:
    if record.law is None:
        return
    hue, method = METHODS.index(record.kind.method), record.kind.method
    held_out = any(run.held_out is not None for run in record.law.predicted)
    looks: tuple[tuple[bool, Look], ...] = ((False, "point"), (True, "hollow" if held_out else "point"))
    for largest, look in looks:
        points = [
            (run.loss, run.fitted if run.held_out is None else run.held_out)
            for run in record.law.predicted
            if run.largest == largest
        ]
        if sound := tuple(sorted(point for point in points if point[1] > 0)):
            yield _curve("" if largest else method, sound, hue, look)


def _downstream(result: ScalingResult, up: str) -> Iterator[Panel]:
    rows = result.counted
    for task in (
        correlation.task
        for correlation in result.downstream
        if correlation.family is None and any(correlation.task in row.scores for row, _ in rows)
    ):
        lines = [
            _curve(method, points, METHODS.index(method), "point")
            for method in METHODS
            if (
                points := tuple(
                    (loss, row.scores[task])
                    for row, loss in rows
                    if row.way.method == method and task in row.scores
                )
            )
        ]
        yield _panel(task, up, "score", lines, log="x")
