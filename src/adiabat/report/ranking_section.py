"""The ranking of a sweep's variants: sentences within its intervals, page sections, and terminal tables."""

from collections.abc import Sequence

import numpy as np

from adiabat.core.text import DASH, MINUS, NO_BREAK, counted, cut, integer, share
from adiabat.report import format as texts
from adiabat.report.charts import SERIES, ForestRow, Line, Panel, curves, forest, short
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import bounds, decimals_for, joined, listed, marked, named, signed_pair
from adiabat.report.pages import Figure, Group, HeatMap, Notes, Terms, Tone
from adiabat.report.tables import Cell
from adiabat.results.ranking_result import Contrast, Level, RankedTask, Ranking, Speed, Standing, Start

_SIMULTANEOUS = [f"[simultaneous 95{NO_BREAK}%]"]

_TERMS = [
    (
        "Score",
        "The mean over the queries of a task, then over tasks with equal "
        "weight, and over the runs of a variant.",
    ),
    (
        "Intervals",
        f"The middle 95{NO_BREAK}% over resamples of runs and of queries; all variants "
        "share the query resamples. The runs' deviations "
        "from their variant's mean are pooled and widened to a t distribution, which "
        "assumes that runs of all variants vary equally.",
    ),
    (
        "Simultaneous intervals",
        "Intervals of differences hold for all pairs at once: in 19 of 20 sweeps, "
        "all contain their true differences. An interval "
        "wholly below zero means worse. Otherwise the comparison is undecided, which "
        "is no proof of equality; so it is with fewer "
        "than six differing queries.",
    ),
    (
        "Share of resamples best",
        "The share of resamples in which no other variant is higher: roughly "
        "the probability of being the best of these.",
    ),
]


def ranking_groups(ranking: Ranking) -> list[Group]:
    """The ranking, its tasks, and the cost of each variant."""
    return [_ranking(ranking), _tasks(ranking), _costs(ranking)]


def ranking_tables(ranking: Ranking, title: str) -> list[Table]:
    """The ranking, and the cost of each variant, for the terminal."""
    columns = [
        Column("variant", _name, "name"),
        Column(f"{ranking.measure} [95 %]", lambda row: level(row.overall), "number"),
        Column(
            "vs. first [95 %]",
            lambda row: Cell(contrast(row.to_best)) if isinstance(row, Standing) else Cell(""),
            "number",
        ),
        Column("verdict", lambda row: _verdict(row, ranking)),
    ]
    rows = [*ranking.standings, *ranking.starts]
    ranked = Table(title=title, columns=columns, rows=rows, caption=[headline(ranking)], row_class=_muted)
    taken = [
        Column("variant", _name, "name"),
        Column("P(best)", lambda row: share(row.best_share), "number"),
        Column("training gain [95 %]", lambda row: contrast(row.gain), "number"),
    ]
    if ranking.compares_models:
        taken += [
            Column("parameters", lambda row: texts.millions(row.parameters), "number"),
            Column("texts/s", lambda row: rate(row.speed), "number"),
        ]
    else:
        taken += [
            Column("pairs", lambda row: integer(row.pairs), "number"),
            Column("passes", lambda row: f"{row.passes:.2g}", "number"),
        ]
    taken.append(Column("step", lambda row: step_time(row.step_seconds), "number"))
    return [ranked, Table(columns=taken, rows=ranking.standings)]


def _muted(row: Standing | Start) -> str:
    return "" if isinstance(row, Standing) else "muted"


def _name(row: Standing | Start) -> str:
    return row.name if isinstance(row, Standing) else start_name(row)


def _verdict(row: Standing | Start, ranking: Ranking) -> Cell:
    if isinstance(row, Start):
        return Cell("")
    tone = "better" if row.to_best is None else row.to_best.verdict.replace(" ", "-")
    return Cell(verdict(row, ranking), tone=tone, badge=True)


def _level(score: Level) -> Cell:
    return Cell(texts.score(score.score), [level_interval(score, decimals=4)])


def _contrast(difference: Contrast | None) -> Cell:
    value, _, interval = contrast(difference, decimals=4).partition(" ")
    return Cell(value, [interval])


def _ranking(ranking: Ranking) -> Group:
    def name(row: Standing | Start) -> Cell:
        if isinstance(row, Start):
            return Cell(start_name(row), [cut(row.model, limit=200)], tone="muted")
        runs = [f"runs {', '.join(f'{value:.4f}' for value in row.runs)}"] if len(row.runs) > 1 else []
        about = row.model if ranking.compares_models else row.trained_on
        position = ranking.standings.index(row) + 1
        return Cell(f"{position}. {cut(row.name, limit=120)}", [cut(about, limit=200), *runs], bold=True)

    columns = [
        Column("variant", name, "name"),
        Column(ranking.measure, lambda row: _level(row.overall), "number", [f"[95{NO_BREAK}%]"]),
        Column(
            "vs. first",
            lambda row: _contrast(row.to_best) if isinstance(row, Standing) else Cell(""),
            "number",
            _SIMULTANEOUS,
        ),
        Column(
            "share of resamples best",
            lambda row: share(row.best_share) if isinstance(row, Standing) else Cell(""),
            "number",
        ),
        Column(
            "gain over untrained",
            lambda row: _contrast(row.gain) if isinstance(row, Standing) else Cell(""),
            "number",
            _SIMULTANEOUS,
        ),
        Column("verdict", lambda row: _verdict(row, ranking)),
    ]
    return Group(
        id="ranking",
        title="Ranking",
        lead=f"{ranking.measure}, mean over seeds and tasks. Every run was measured on the same queries.",
        sections=[
            _figure(ranking),
            Table(columns=columns, rows=[*ranking.standings, *ranking.starts], look="stack"),
        ],
    )


def _figure(ranking: Ranking) -> Figure:
    """Scores on the left, differences to the first on the right."""
    levels = [
        ForestRow(short(row.name), row.overall.score, row.overall.interval, "better", runs=row.runs)
        for row in ranking.standings
    ]
    levels += [
        ForestRow(start_name(row), row.overall.score, row.overall.interval, None) for row in ranking.starts
    ]
    differences = [
        ForestRow(short(row.name), 0.0, (0.0, 0.0), "better", main=True)
        if row.to_best is None
        else ForestRow(short(row.name), row.to_best.difference, row.to_best.interval, row.to_best.verdict)
        for row in ranking.standings
    ]
    scores = forest(
        "ranking-scores",
        levels,
        label=f"{ranking.measure}, 95 % interval",
        tick=_tick,
        narrow=True,
        zero=False,
    )
    return Figure(
        charts=[
            scores,
            forest(
                "ranking-differences",
                differences,
                label="difference from the first, simultaneous 95 %",
                narrow=True,
            ),
        ],
        wide=False,
        label="Scores of the variants with intervals, and their differences from the "
        "first; the table below holds the numbers",
        caption="Left: dot and line are the mean and its interval; ticks below are single "
        "runs. The interval includes variation that all "
        "variants share, such as hard queries. Right: differences on the same queries; "
        "compare variants here. Filled: measurably "
        "lower than the first. Open: undecided.",
    )


def _tick(value: float) -> str:
    return texts.number(value, digits=3)


def _tasks(ranking: Ranking) -> Group:
    def of_task(position: int, task: RankedTask) -> Column:
        return Column(cut(task.name, limit=40), lambda row: _level(row.tasks[position]), "number")

    def about(task: RankedTask) -> str:
        ranked = "whole corpus ranked" if task.kind == "ranking" else "listed candidates ranked"
        return "; ".join(
            [
                f"{counted(task.queries, 'query')}, {counted(task.documents, 'document')}, {ranked}",
                *task.notes,
            ]
        )

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
    """Scores of variants and untrained models on each task, coloured by their distance to the best
    variant.
    """
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
        caption="Colour: distance from the best variant of the task; orange is below "
        "it, blue is an untrained model above it.",
    )


def _costs(ranking: Ranking) -> Group:
    columns = [Column("variant", lambda row: cut(row.name, limit=80), "name")]
    if ranking.compares_models:
        columns += [
            Column("parameters", lambda row: texts.millions(row.parameters), "number"),
            Column("trained share", _trained, "number"),
            Column(
                "documents per second", lambda row: Cell(rate(row.speed), [rate_range(row.speed)]), "number"
            ),
        ]
    columns += [
        Column("pairs", lambda row: integer(row.pairs), "number"),
        Column("steps", lambda row: integer(row.steps), "number"),
        Column("passes", lambda row: f"{row.passes:.2g}", "number"),
        Column("time per step", lambda row: step_time(row.step_seconds), "number"),
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
    """Quality against the speed of encoding; None if no speed was measured."""
    timed = [(standing, standing.speed) for standing in standings if standing.speed is not None]
    if not timed:
        return None
    lines = []
    for position, (standing, speed) in enumerate(timed):
        score, colour = standing.overall.score, SERIES[position % len(SERIES)]
        beaten = any(
            other.overall.score > score and theirs.texts_per_second > speed.texts_per_second
            for other, theirs in timed
        )
        point = [(speed.texts_per_second, score)]
        lines.append(
            Line(point, short(standing.name), colour, "o", "", [standing.overall.interval], hollow=beaten)
        )
        lines.append(Line([(speed.slowest, score), (speed.fastest, score)], "", colour, ""))
    panel = Panel(
        lines,
        "documents encoded per second (right is faster)",
        f"{measure}, 95 % interval",
        log="x",
        x_tick=lambda value: f"{value:,.3g}",
    )
    rounds = (
        f"Speed: median of {timed[0][1].rounds} rounds of "
        f"{counted(timed[0][1].texts, 'document')}, untrained model."
    )
    return Figure(
        charts=[curves("speed", [panel], height=3.8)],
        label="Quality against speed of encoding; the table below holds the numbers",
        caption=f"Horizontal: median, slowest and fastest round; models took turns. {rounds} "
        "Filled: no other model is both faster and "
        "higher in mean score.",
    )


def headline(ranking: Ranking) -> str:
    """The leading variant, and the variants that it measurably leads."""
    first, *others = ranking.standings
    worse = [
        standing.name
        for standing in others
        if standing.to_best is not None and standing.to_best.verdict == "worse"
    ]
    even = [standing.name for standing in others if standing.name not in worse]
    seeds = f"mean of {counted(len(ranking.seeds), 'seed')}" if len(ranking.seeds) > 1 else "one seed"
    on = f"on {counted(len(ranking.tasks), 'task')}"
    head = (
        f"{named(first.name)} is {'best' if not even else 'ahead'}: {ranking.measure} "
        f"{level(first.overall)}, {seeds} {on}"
    )
    clauses = [head]
    if worse:
        clauses.append(
            f"measurably above {'all others' if not even and worse[1:] else listed([*map(named, worse)])}"
        )
    if even:
        clauses.append(f"undecided against {listed([*map(named, even)])}")
    return "; ".join(clauses) + "."


def tone(ranking: Ranking) -> Tone:
    """Whether one variant is above all others."""
    alone = all(
        standing.to_best is None or standing.to_best.verdict == "worse" for standing in ranking.standings
    )
    return (
        "good"
        if alone and len(ranking.seeds) > 1 and ranking.standings[0].gain.verdict == "better"
        else "plain"
    )


def reservations(ranking: Ranking) -> list[str]:
    """Reservations that an honest reader should know."""
    return [
        sentence
        for sentence in (_about_starts(ranking), _about_runs(ranking), _about_tasks(ranking), *ranking.notes)
        if sentence
    ]


def _about_starts(ranking: Ranking) -> str:
    """Variants that training made worse are no good choice, whatever their rank."""
    below = [standing.name for standing in ranking.standings if standing.gain.verdict == "worse"]
    above = [standing.name for standing in ranking.standings if standing.gain.verdict == "better"]
    if below:
        return f"Training made {listed([*map(named, below)])} worse than the untrained start."
    if not above:
        return "No variant is measurably better than its untrained start."
    return ""


def _about_runs(ranking: Ranking) -> str:
    if ranking.run_deviation is None:
        return (
            "Every variant was trained once, so intervals cover variation between queries, not between runs: "
            "other seeds may change the order. List several in sweep.seeds."
        )
    return (
        f"Runs of one variant differ by {difference_size(ranking.run_deviation)} in "
        "standard deviation, pooled over all variants; "
        "every interval includes this."
    )


def _about_tasks(ranking: Ranking) -> str:
    if len(ranking.tasks) == 1:
        return (
            f"This ranking covers one task, {named(ranking.tasks[0].name)}; other tasks may rank differently."
        )
    return (
        f"This ranking covers these {len(ranking.tasks)} tasks, weighted "
        "equally; others may rank differently."
    )


def level(score: Level, *, decimals: int = 3) -> str:
    """A score with its interval."""
    return f"{score.score:.{decimals}f} {level_interval(score, decimals=decimals)}".replace("-", MINUS)


def level_interval(score: Level, *, decimals: int = 3) -> str:
    """The interval of a score."""
    return bounds(score.interval, f"{{:.{decimals}f}}".format).replace("-", MINUS)


def contrast(difference: Contrast | None, *, decimals: int = 3) -> str:
    """A difference with its interval, with enough digits that no end looks like zero; a dash for the best."""
    return (
        DASH
        if difference is None
        else joined(*signed_pair(difference.difference, difference.interval, least=decimals, most=6))
    )


def difference_size(value: float) -> str:
    """A distance between scores."""
    return f"{value:.{decimals_for([value], least=3, most=6)}f}"


def verdict(standing: Standing, ranking: Ranking) -> str:
    """The verdict of a variant against the first."""
    if standing.to_best is None:
        return (
            "best"
            if all(other.to_best is None or other.to_best.verdict == "worse" for other in ranking.standings)
            else "ahead"
        )
    return marked(standing.to_best.verdict)


def start_name(start: Start) -> str:
    """Name of an untrained model beside the variants."""
    return f"{named(start.case or start.model)}, untrained"


def rate(speed: Speed | None) -> str:
    """Texts encoded per second, such as ``1,204``."""
    return DASH if speed is None else _per_second(speed.texts_per_second)


def rate_range(speed: Speed | None) -> str:
    """Texts per second in the slowest and the fastest round."""
    return "" if speed is None else f"{_per_second(speed.slowest)}{DASH}{_per_second(speed.fastest)}"


def _per_second(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def step_time(seconds: float | None) -> str:
    """Time of an optimiser step."""
    if seconds is None:
        return DASH
    return f"{seconds:.2f}{NO_BREAK}s" if seconds >= 0.995 else f"{1000 * seconds:.3g}{NO_BREAK}ms"
