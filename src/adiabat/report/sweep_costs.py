"""The cost of each setting of a sweep, and the quality of several models against their encoding speed."""

from adiabat.core.text import DASH, NO_BREAK, cut
from adiabat.report import format as texts
from adiabat.report.captions import text_of
from adiabat.report.charts import SERIES, Line, Panel, curves, short
from adiabat.report.pages import Figure, Group, group
from adiabat.report.sweep_tables import CaseColumn, case_column, count, mean_column, table_of
from adiabat.report.tables import Cell, Column, Table
from adiabat.results.suite_result import Score, SuiteTask
from adiabat.results.sweep_result import Case, Speed, SweepResult


def costs_section(result: SweepResult) -> Group | None:
    """The cost of each setting; None without a run that left a model."""
    if not result.runs_of():
        return None
    figure = _quality_and_speed(result) if result.speed else None
    return group("sweep", "costs", figure, cost_table(result))


def cost_table(result: SweepResult) -> Table:
    """Data, steps and time of each setting; size and speed of its model if they were measured."""
    columns = [case_column(result)]
    if result.speed:
        columns += [mean_column(result, "", "parameters", _parameters), _speed_column(result)]
    columns += [
        mean_column(result, "", "trained_share", _percent, "trained share"),
        mean_column(result, "", "pairs", count),
        mean_column(result, "", "steps", count),
        mean_column(result, "", "passes", "{:.2g}".format),
        mean_column(result, "", "step_seconds", step_time, "time per step"),
    ]
    return table_of(columns)


def _parameters(mean: float) -> str:
    return texts.millions(round(mean))


def _percent(value: float) -> str:
    return f"{value:.3g}{NO_BREAK}%"


def step_time(seconds: float) -> str:
    """Time of an optimiser step, to three digits."""
    if seconds >= 0.995:
        return f"{seconds:.2f}{NO_BREAK}s"
    milliseconds = 1000 * seconds
    return f"{milliseconds:.3g}{NO_BREAK}ms"


def _speed_column(result: SweepResult) -> CaseColumn:
    column = CaseColumn(Column("documents per second", "number"))
    for case in result.variation.cases:
        speed, cell = speed_of(result, case), Cell(DASH)
        if speed is not None:
            ends = f"{_rate(speed.slowest)}{DASH}{_rate(speed.fastest)}"
            cell = Cell(_rate(speed.texts_per_second), [ends], value=speed.texts_per_second)
        column.add(cell, {})
    return column


def speed_of(result: SweepResult, case: Case) -> Speed | None:
    """Encoding speed of the model that a case starts from."""
    return result.speed.get(result.runs[case.runs[0]].start)


def _rate(texts_per_second: float) -> str:
    """A speed; slow models have a decimal."""
    if texts_per_second < 10:
        return f"{texts_per_second:.1f}"
    return f"{texts_per_second:,.0f}"


def _quality_and_speed(result: SweepResult) -> Figure:
    """The main measure of each task against the speed of encoding, a panel for each task."""
    speed = next(iter(result.speed.values()))
    panels = [_speed_panel(result, task) for task in result.tasks]
    return Figure(
        charts=[curves("speed", panels, height=3.8 if len(panels) == 1 else 2.8)],
        label="Quality against speed of encoding; the table below holds the numbers",
        caption=text_of("sweep", "speed", rounds=speed.rounds, texts=speed.texts),
    )


def _speed_panel(result: SweepResult, task: SuiteTask) -> Panel:
    points: list[tuple[str, Score, Speed]] = []
    for case in result.variation.cases:
        name = result.runs[case.runs[0]].case
        score, speed = result.main_score(task.name, name), speed_of(result, case)
        if score is not None and speed is not None:
            points.append((name, score, speed))
    lines = []
    for position, (name, score, speed) in enumerate(points):
        colour = SERIES[position % len(SERIES)]
        beaten = any(_is_above(other, score) and _is_faster(theirs, speed) for _, other, theirs in points)
        middle = [(speed.texts_per_second, score.value)]
        ends = [(speed.slowest, score.value), (speed.fastest, score.value)]
        lines.append(Line(middle, short(name), colour, "o", "", [score.interval], hollow=beaten))
        lines.append(Line(ends, "", colour, ""))
    title, up = cut(task.name, limit=40), f"{task.measure}, 95 % interval"
    return Panel(lines, "documents encoded per second", up, title=title, log="x", x_tick=_rate)


def _is_above(score: Score, other: Score) -> bool:
    """Whether one score is better than the other, in the direction of their measure."""
    if score.lower_is_better:
        return score.value < other.value
    return score.value > other.value


def _is_faster(speed: Speed, other: Speed) -> bool:
    return speed.texts_per_second > other.texts_per_second
