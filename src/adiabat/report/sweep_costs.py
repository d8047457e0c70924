"""The cost of each setting of a sweep, and the quality of several models against their encoding speed."""

from statistics import fmean, median

from adiabat.core.text import DASH, NO_BREAK, counted, cut, integer
from adiabat.report import format as texts
from adiabat.report.charts import SERIES, Line, Panel, curves, short
from adiabat.report.pages import Figure, Group
from adiabat.report.sweep_headline import case_cell, case_head
from adiabat.report.tables import Cell, Column, Content, Table
from adiabat.results.suite_result import Score, SuiteTask
from adiabat.results.sweep_result import Case, Speed, SweepResult


def costs_section(result: SweepResult) -> Group | None:
    """The cost of each setting; None without a run that left a model."""
    if not result.runs_of():
        return None
    figure = _quality_and_speed(result) if result.speed else None
    return Group(
        id="costs",
        title="Cost of training",
        lead="Means over seeds; time per step is a median.",
        sections=[figure, cost_table(result)],
    )


def cost_table(result: SweepResult) -> Table:
    """Data, steps and time of each setting; size and speed of its model if they were measured."""
    view = result.variation
    of_models = bool(result.speed)
    heads = ["parameters", "documents per second"] if of_models else []
    heads += ["trained share", "pairs", "steps", "passes", "time per step"]
    table = Table(columns=[Column(case_head(view), "name"), *(Column(head, "number") for head in heads)])
    for case in view.cases:
        if result.runs_of(case):
            models = _of_model(result, case) if of_models else []
            table.add(cut(case_cell(view, case), limit=80), *models, *_of_training(result, case))
    return table


def _of_model(result: SweepResult, case: Case) -> list[Content]:
    """Parameters, and speed of encoding."""
    parameters = result.runs_of(case)[0].parameters
    speed = speed_of(result, case)
    if speed is None:
        return [texts.millions(parameters), None]
    ends = f"{_rate(speed.slowest)}{DASH}{_rate(speed.fastest)}"
    return [
        texts.millions(parameters),
        Cell(_rate(speed.texts_per_second), [ends], value=speed.texts_per_second),
    ]


def _of_training(result: SweepResult, case: Case) -> list[Content]:
    runs = result.runs_of(case)
    shares = [100 * run.trainable / run.parameters for run in runs if run.parameters]
    return [
        f"{fmean(shares):.3g}{NO_BREAK}%" if shares else None,
        integer(round(fmean(run.pairs for run in runs))),
        integer(round(fmean(run.steps for run in runs))),
        f"{fmean(run.passes for run in runs):.2g}",
        step_time([run.step_seconds for run in runs if run.step_seconds is not None]),
    ]


def step_time(seconds: list[float]) -> str:
    """Median time of an optimiser step; a dash if all runs were too short to measure it."""
    if not seconds:
        return DASH
    typical = median(seconds)
    return f"{typical:.2f}{NO_BREAK}s" if typical >= 0.995 else f"{1000 * typical:.3g}{NO_BREAK}ms"


def speed_of(result: SweepResult, case: Case) -> Speed | None:
    """Encoding speed of the model that a case starts from."""
    return result.speed.get(result.runs[case.runs[0]].start)


def _rate(texts_per_second: float) -> str:
    return f"{texts_per_second:,.0f}" if texts_per_second >= 10 else f"{texts_per_second:.1f}"


def _quality_and_speed(result: SweepResult) -> Figure:
    """The main measure of each task against the speed of encoding, a panel for each task."""
    speed = next(iter(result.speed.values()))
    panels = [_speed_panel(result, task) for task in result.tasks]
    rounds = f"{speed.rounds} rounds of {counted(speed.texts, 'document')}"
    return Figure(
        charts=[curves("speed", panels, height=3.8 if len(panels) == 1 else 2.8)],
        label="Quality against speed of encoding; the table below holds the numbers",
        caption=f"Horizontal: median, slowest and fastest of {rounds}, untrained; models took turns. "
        "Filled: no other setting is both faster and better.",
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
    return score.value < other.value if score.lower_is_better else score.value > other.value


def _is_faster(speed: Speed, other: Speed) -> bool:
    return speed.texts_per_second > other.texts_per_second
