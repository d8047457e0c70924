"""The ranking of a sweep's variants: sections of its page, and tables for the terminal."""

from collections.abc import Sequence

import numpy as np

from adiabat.core.text import DASH, NO_BREAK, counted, cut, integer, share
from adiabat.report import format as texts
from adiabat.report import ranking_headline as words
from adiabat.report.charts import SERIES, ForestRow, Line, Panel, curves, forest, short
from adiabat.report.page import Figure, Group, HeatMap, Notes, Terms
from adiabat.report.tables import Cell, Column, Table
from adiabat.results.ranking_result import Contrast, Level, RankedTask, Ranking, Standing, Start

_SIMULTANEOUS = [f"[simultaneous 95{NO_BREAK}%]"]

_TERMS = [
    ("Score", "The mean over the queries of a task, then over tasks, which count equally, and over the runs of a variant."),
    (
        "Intervals",
        f"The middle 95{NO_BREAK}% over resamples of queries, the same for all variants, and of runs. The deviations of all runs from the "
        "mean of their variant are one pool, widened as a t distribution; that takes runs of all variants to differ alike.",
    ),
    (
        "Simultaneous intervals",
        "Those of differences hold for all pairs at once: in 19 sweeps of 20 none misses its true difference. One wholly below zero says "
        "worse. Otherwise: no evidence, which is not proof of equality. Fewer than six queries that differ are no evidence.",
    ),
    ("Share of resamples best", "In how many resamples no other variant is higher: roughly the probability of being the best of these."),
]


def ranking_groups(ranking: Ranking) -> list[Group]:
    """The ranking, its tasks, and what each variant took."""
    return [_ranking(ranking), _tasks(ranking), _costs(ranking)]


def ranking_tables(ranking: Ranking, title: str) -> list[Table]:
    """The ranking, and what each variant took, for the terminal."""

    def level(row: Standing | Start) -> Cell:
        return Cell(words.level(row.overall))

    columns = [
        Column("variant", _name, "name"),
        Column(f"{ranking.measure} [95 %]", level, "number"),
        Column("to the first [95 %]", lambda row: Cell(words.contrast(row.to_best)) if isinstance(row, Standing) else Cell(""), "number"),
        Column("verdict", lambda row: _verdict(row, ranking)),
    ]
    rows = [*ranking.standings, *ranking.starts]
    ranked = Table(title=title, columns=columns, rows=rows, caption=[words.headline(ranking)], row_class=_muted)
    taken = [
        Column("variant", _name, "name"),
        Column("P(best)", lambda row: share(row.best_share), "number"),
        Column("gain on untrained [95 %]", lambda row: words.contrast(row.gain), "number"),
    ]
    if ranking.compares_models:
        taken += [
            Column("parameters", lambda row: texts.millions(row.parameters), "number"),
            Column("texts/s", lambda row: words.rate(row.speed), "number"),
        ]
    else:
        taken += [Column("pairs", lambda row: integer(row.pairs), "number"), Column("passes", lambda row: f"{row.passes:.2g}", "number")]
    taken.append(Column("step", lambda row: words.step_time(row.step_seconds), "number"))
    return [ranked, Table(columns=taken, rows=ranking.standings)]


def _muted(row: Standing | Start) -> str:
    return "" if isinstance(row, Standing) else "muted"


def _name(row: Standing | Start) -> str:
    return row.name if isinstance(row, Standing) else words.start_name(row)


def _verdict(row: Standing | Start, ranking: Ranking) -> Cell:
    if isinstance(row, Start):
        return Cell("")
    tone = "better" if row.to_best is None else row.to_best.verdict.replace(" ", "-")
    return Cell(words.verdict(row, ranking), tone=tone, badge=True)


def _level(level: Level) -> Cell:
    return Cell(texts.score(level.score), [words.level_interval(level, decimals=4)])


def _contrast(contrast: Contrast | None) -> Cell:
    value, _, interval = words.contrast(contrast, decimals=4).partition(" ")
    return Cell(value, [interval])


def _ranking(ranking: Ranking) -> Group:
    def name(row: Standing | Start) -> Cell:
        if isinstance(row, Start):
            return Cell(words.start_name(row), [cut(row.model, limit=200)], tone="muted")
        runs = [f"runs {', '.join(f'{value:.4f}' for value in row.runs)}"] if len(row.runs) > 1 else []
        about = row.model if ranking.compares_models else row.trained_on
        position = ranking.standings.index(row) + 1
        return Cell(f"{position}. {cut(row.name, limit=120)}", [cut(about, limit=200), *runs], bold=True)

    columns = [
        Column("variant", name, "name"),
        Column(ranking.measure, lambda row: _level(row.overall), "number", [f"[95{NO_BREAK}%]"]),
        Column("to the first", lambda row: _contrast(row.to_best) if isinstance(row, Standing) else Cell(""), "number", _SIMULTANEOUS),
        Column("share of resamples best", lambda row: share(row.best_share) if isinstance(row, Standing) else Cell(""), "number"),
        Column("gain on untrained", lambda row: _contrast(row.gain) if isinstance(row, Standing) else Cell(""), "number", _SIMULTANEOUS),
        Column("verdict", lambda row: _verdict(row, ranking)),
    ]
    return Group(
        id="ranking",
        title="Ranking",
        lead=f"{ranking.measure}, mean over seeds and tasks. Every run was measured on the same queries.",
        sections=[_figure(ranking), Table(columns=columns, rows=[*ranking.standings, *ranking.starts], look="stack")],
    )


def _figure(ranking: Ranking) -> Figure:
    """Scores on the left, differences to the first on the right."""
    levels = [ForestRow(short(row.name), row.overall.score, row.overall.interval, "better", runs=row.runs) for row in ranking.standings]
    levels += [ForestRow(words.start_name(row), row.overall.score, row.overall.interval, None) for row in ranking.starts]
    differences = [
        ForestRow(short(row.name), 0.0, (0.0, 0.0), "better", main=True)
        if row.to_best is None
        else ForestRow(short(row.name), row.to_best.difference, row.to_best.interval, row.to_best.verdict)
        for row in ranking.standings
    ]
    scores = forest("ranking-scores", levels, label=f"{ranking.measure}, 95 % interval", tick=_tick, narrow=True, zero=False)
    return Figure(
        charts=[scores, forest("ranking-differences", differences, label="difference to the first, simultaneous 95 %", narrow=True)],
        wide=False,
        label="Scores of the variants with intervals, and their differences to the first; the table below holds the numbers",
        caption="Left: dot and line are the mean and its interval, ticks below are single runs; the interval also holds what all "
        "variants share, such as hard queries. Right: the same queries for both, so this is where to see who differs. Filled: measurably "
        "lower than the first. Open: no evidence of a difference.",
    )


def _tick(value: float) -> str:
    return texts.number(value, digits=3)


def _tasks(ranking: Ranking) -> Group:
    def of_task(position: int, task: RankedTask) -> Column:
        return Column(cut(task.name, limit=40), lambda row: _level(row.tasks[position]), "number")

    def about(task: RankedTask) -> str:
        ranked = "whole corpus ranked" if task.kind == "ranking" else "listed candidates ranked"
        return "; ".join([f"{counted(task.queries, 'query')}, {counted(task.documents, 'document')}, {ranked}", *task.notes])

    columns = [Column("variant", lambda row: cut(_name(row), limit=80), "name")]
    columns += [of_task(position, task) for position, task in enumerate(ranking.tasks)]
    return Group(
        id="ranked-tasks",
        title="Task by task",
        sections=[
            _heat_map(ranking) if len(ranking.tasks) > 1 else None,
            Table(columns=columns, rows=[*ranking.standings, *ranking.starts]),
            Notes(title="Tasks", notes=[(task.name, about(task)) for task in ranking.tasks]),
        ],
    )


def _heat_map(ranking: Ranking) -> HeatMap:
    """Scores of variants and untrained models on each task, coloured by their distance to the best variant."""
    rows: list[Standing | Start] = [*ranking.standings, *ranking.starts]
    scores = np.array([[level.score for level in row.tasks] for row in rows])
    gaps = 100 * (scores - scores[: len(ranking.standings)].max(axis=0))
    return HeatMap(
        title=ranking.measure,
        rows=list(map(_name, rows)),
        columns=[task.name for task in ranking.tasks],
        shades=gaps,
        texts=[[f"{score:.3f}" for score in row] for row in scores.tolist()],
        compared=True,
        longest=24,
        caption="Colour: the distance to the best variant of the task; orange lies below it, blue is an untrained model above it.",
    )


def _costs(ranking: Ranking) -> Group:
    columns = [Column("variant", lambda row: cut(row.name, limit=80), "name")]
    if ranking.compares_models:
        columns += [
            Column("parameters", lambda row: texts.millions(row.parameters), "number"),
            Column("of them trained", _trained, "number"),
            Column("documents per second", lambda row: Cell(words.rate(row.speed), [words.rate_range(row.speed)]), "number"),
        ]
    columns += [
        Column("pairs", lambda row: integer(row.pairs), "number"),
        Column("steps", lambda row: integer(row.steps), "number"),
        Column("passes", lambda row: f"{row.passes:.2g}", "number"),
        Column("time of a step", lambda row: words.step_time(row.step_seconds), "number"),
    ]
    measures = [Column("variant", lambda row: cut(_name(row), limit=80), "name")]
    measures += [_measure(name) for name in ranking.standings[0].measures]
    return Group(
        id="costs",
        title="Speed and size" if ranking.compares_models else "Data and time",
        sections=[
            _speed(ranking.standings, ranking.measure),
            Table(columns=columns, rows=ranking.standings),
            Table(
                id="ranked-measures",
                title="All measures",
                lead="Means over seeds and tasks, without intervals.",
                columns=measures,
                rows=[*ranking.standings, *ranking.starts],
                folded=True,
            ),
            Terms(id="how-to-read-ranks", title="How to read the ranking", terms=_TERMS),
        ],
    )


def _measure(name: str) -> Column:
    return Column(name, lambda row: texts.score(row.measures[name]), "number")


def _trained(standing: Standing) -> str:
    return f"{100 * standing.trained / standing.parameters:.3g}{NO_BREAK}%" if standing.parameters else DASH


def _speed(standings: Sequence[Standing], measure: str) -> Figure | None:
    """Quality against the speed of encoding; None where no speed was measured."""
    timed = [(standing, standing.speed) for standing in standings if standing.speed is not None]
    if not timed:
        return None
    lines = []
    for position, (standing, speed) in enumerate(timed):
        score, colour = standing.overall.score, SERIES[position % len(SERIES)]
        beaten = any(other.overall.score > score and theirs.texts_per_second > speed.texts_per_second for other, theirs in timed)
        point = [(speed.texts_per_second, score)]
        lines.append(Line(point, short(standing.name), colour, "o", "", [standing.overall.interval], hollow=beaten))
        lines.append(Line([(speed.slowest, score), (speed.fastest, score)], "", colour, ""))
    panel = Panel(
        lines, "documents encoded per second (right is faster)", f"{measure}, 95 % interval", log="x", x_tick=lambda value: f"{value:,.3g}"
    )
    rounds = f"Speed: median of {timed[0][1].rounds} rounds of {counted(timed[0][1].texts, 'document')}, untrained model."
    return Figure(
        charts=[curves("speed", [panel], height=3.8)],
        label="Quality against speed of encoding; the table below holds the numbers",
        caption=f"Across: median, slowest and fastest round; the models took turns. {rounds} Filled: no other model is both faster and "
        f"higher by its mean.",
    )
