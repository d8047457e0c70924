"""The page of a suite, and its tables as CSV, Markdown, LaTeX and terminal text."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from adiabat.core.text import DASH, NO_BREAK, counted, cut, integer
from adiabat.report import format as texts
from adiabat.report import suite_headline as words
from adiabat.report.charts import short
from adiabat.report.evaluation_headline import RANKINGS
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import Group, Notes, Page, Terms, gathered, notes_section
from adiabat.report.suite_headline import Overview
from adiabat.report.suite_tasks import direction, first_click, task_section
from adiabat.report.tables import (
    Cell,
    Column,
    Content,
    Section,
    Table,
    csv_of,
    markdown,
    pair_cell,
    value_cell,
    verdict_cell,
)
from adiabat.results.suite_result import Fact, Score, SuiteModel, SuiteResult, SuiteTask, by_kind
from adiabat.results.verdict import WORDS

MOST_ROWS = 80
"""Maximum number of models for which the terminal shows every model on every task; beyond it, only the best
and those not measurably worse."""


_INTERVALS = (
    "Intervals",
    "t intervals over units (queries, pairs, texts), and over seeds where a model has several "
    "runs; bootstrap intervals (BCa) of Spearman, average "
    "precision and V-measure. Intervals of differences are paired; intervals "
    "of values may overlap even where models differ.",
)
_COMPARED = [
    (
        "p and verdict",
        "p tests the paired difference by sign flips of the units, by the bootstrap "
        "tails if units have no scores, or by a t test if a model has "
        "several seeds. A verdict requires an interval that excludes zero and a p that "
        "passes Benjamini–Hochberg over the main measures "
        "of all tasks and models. Against the best of a task, p is first corrected for "
        "all its pairs. Not worse: no such change, and the "
        "one-sided 95\N{NO-BREAK SPACE}% bound excludes a loss of the margin.",
    ),
    (
        "Best, and not measurably worse",
        "The best of a task was picked by the values shown, which overstates its lead. "
        "A model that is not measurably worse may be better.",
    ),
    (
        "Effect",
        "dz: mean over standard deviation of the units’ differences. Gained and lost "
        "count units on which the model does better and worse.",
    ),
    ("Detectable", f"The smallest true difference that these units would detect with 80{NO_BREAK}% power."),
    (
        "Mean rank",
        "1 is the best of a task; equal values share their ranks. The mean is "
        "over all tasks run by several models.",
    ),
]


def page(result: SuiteResult) -> Page:
    """The page of a suite."""
    return Page(
        record=result,
        name="suite",
        headline=words.headline(Overview(result)),
        tone=words.tone(result),
        reservations=words.reservations(result),
        sections=comparison(result),
        facts=[("compared with", _against(result)), ("resamples", integer(result.resamples))],
        time="time for encoding and measuring",
        settings=_settings(result.settings),
    )


def comparison(result: SuiteResult) -> list[Section | None]:
    """Models by tasks, over all tasks, and task by task; empty if nothing was measured."""
    if not result.tasks or not result.models:
        return []
    view = Overview(result)
    main = {task.measure for task in result.tasks}
    others = explained(score.measure for score in result.scores if score.measure not in main)
    tasks: list[Section | None] = [
        notes_section(
            "Notes on tasks", [(task.name, task.notes) for task in result.tasks], everyone="all tasks"
        )
    ]
    tasks += [task_section(view, task, position) for position, task in enumerate(result.tasks)]
    tasks.append(Terms(terms=[_INTERVALS, *(_COMPARED if result.pairings else []), *others]))
    return [_matrix_section(view), _over_all(view), Group(id="tasks", title="Task by task", sections=tasks)]


def exports(result: SuiteResult) -> dict[str, Callable[[], str]]:
    """The tables beside the page."""
    view = Overview(result)
    return {
        "table.csv": partial(_long, view),
        "table.md": partial(_markdown, view),
        "table.tex": partial(_latex, view),
    }


def terminal(result: SuiteResult) -> list[Table]:
    """Models on every task, then over all tasks."""
    view = Overview(result)
    two = ""
    if result.mixed:
        others = counted(len(result.beside_best), "task")
        two = (
            f"{words.references(result)} Better, not worse, undecided and worse: against "
            f"{texts.named(result.baseline or '')}; even: "
            f"against the best, on the other {others}."
        )
    caption = " ".join(filter(None, [words.headline(view), two, words.about_ranks(result)]))
    return [_by_task(view), replace(_standings(view, page=False), caption=[caption])]


def notes(result: SuiteResult) -> list[str]:
    """The notes below the tables of the terminal."""
    view, ranked = Overview(result), dict[str, None]()
    for task in result.tasks:
        for score in view.on(task.name):
            if score.similarity in RANKINGS:
                ranked[f"{score.model} was compared by {RANKINGS[score.similarity]}"] = None
    return [*ranked, *result.notes]


def _by_task(view: Overview) -> Table:
    """A row for each task, and below it one for each model."""
    columns = [Column("task, model", "name"), Column("value [95 %]", "number")]
    columns += [Column("difference [95 %]", "number"), Column("verdict")]
    table = Table(title=view.result.title, columns=columns)
    for task in view.result.tasks:
        scores = all_scores = view.on(task.name)
        ranking = view.rankings[task.name]
        if len(view.scores) > MOST_ROWS and ranking.against in ranking.best:
            scores = [score for score in all_scores if score.model in ranking.even]
        details = task.measure
        if task.lower_is_better:
            details += ", lower is better"
        if task.kind == "triplets":
            details += ", listed candidates"
        beside = Cell(short(words.beside(view, task.name)), tone="muted")
        table.add(Cell(task.name, bold=True), Cell(details, tone="muted"), beside, Cell(""))
        for score in scores:
            best = score.model in ranking.best
            cells = (Cell(f"  {score.model}", bold=best), Cell(words.level(score), bold=best))
            table.add(*cells, *_compared_in_terminal(view, score))
        if len(scores) < len(all_scores):
            table.add(f"  and {len(all_scores) - len(scores)} more", Cell(""), Cell(""), Cell(""))
    return table


def _compared_in_terminal(view: Overview, score: Score) -> tuple[Cell, Cell]:
    """Difference to the reference model, and the verdict."""
    ranking = view.rankings[score.task]
    pairing = view.pairings.get((score.task, score.model))
    if pairing is not None:
        return pair_cell(texts.difference(pairing.change, least=3)), verdict_cell(pairing.verdict)
    if not score.is_proof:
        return Cell(DASH), Cell("trained on it", tone="muted", badge=True)
    if ranking.against != score.model:
        return Cell(""), Cell("")
    if score.model == view.result.baseline:
        return Cell(DASH), Cell("baseline")
    return Cell(DASH), Cell("clearly best" if ranking.clear else "best")


def _matrix(view: Overview, *, on_page: bool) -> Table:
    """Models by tasks; on paper with their mean ranks."""
    result, columns = view.result, [Column("model", "name")]
    tasks = [task for _, of_kind in by_kind(result.tasks) for task in of_kind]
    for task in tasks:
        below = [words.measure(view, task), direction(task.lower_is_better), words.beside(view, task.name)]
        if not on_page:
            below = [", ".join(filter(None, below[:2])), *filter(None, below[2:])]
        head = texts.cut_name(task.name, limit=32 if on_page else 200)
        first, kind = first_click(task.lower_is_better), words.KINDS[task.kind]
        columns.append(Column(head, "number", below, first, full=task.name, group=kind))
    if not on_page:
        columns.append(Column("mean rank", "number"))
    table = Table(columns=columns, sortable=True, look="matrix")
    ranks = {standing.model: standing.mean_rank for standing in result.analysis.models}
    for model in result.models:
        runs, below = words.runs_of(model), list[str]()
        if on_page and model.name == result.baseline:
            below.append("baseline")
        if on_page and runs > 1:
            below.append(f"mean of {counted(runs, 'run')}")
        cells = [Cell(cut(model.name, limit=80), below), *(_value(view, task, model) for task in tasks)]
        if not on_page:
            cells.append(_rank_cell(ranks[model.name]))
        table.add(*cells)
    return table


def _rank_cell(rank: float | None) -> Cell:
    return value_cell(rank, text="{:.1f}".format)


def _value(view: Overview, task: SuiteTask, model: SuiteModel) -> Cell:
    score = view.scores.get((task.name, model.name))
    if score is None:
        return Cell(DASH, tone="muted")
    mark = view.mark(task.name, model.name)
    tone = "even" if mark.even else ""
    if mark.best:
        tone = "best"
    # On paper, many columns leave no room for an interval on a single line.
    bounds = texts.bounds(score.interval, texts.value).replace(NO_BREAK, " ")
    return Cell(
        texts.value(score.value),
        [bounds],
        value=score.value,
        tone=tone,
        bold=mark.best,
        sign=mark.sign,
        sign_tone=(mark.verdict or "").replace(" ", "-"),
    )


def _matrix_section(view: Overview) -> Group:
    return Group(
        id="models-by-tasks",
        title="Models by tasks",
        lead=f"The main measure of each task with its 95{NO_BREAK}% interval. "
        f"{words.references(view.result)}",
        sections=[
            _matrix(view, on_page=True),
            Notes(title="", notes=[("marks", "; ".join([*words.key(view.result), "– not measured"]))]),
            measures_section(task.measure for task in view.result.tasks),
        ],
    )


def _over_all(view: Overview) -> Group:
    result = view.result
    lead = (
        "Tasks have different measures and scales, so scores are not averaged over all of them. Ranks can be "
        "averaged, but do not show how far apart two models are, and they depend on the other models "
        "measured."
    )
    if result.analysis.means:
        lead += (
            " Kinds whose tasks share one measure also have plain means, with tasks weighted equally. Tasks "
            "are not a random sample, so these means have no interval."
        )
    notes = [(model.name, model.notes) for model in result.models]
    about = notes_section("Notes on models", notes, everyone="all models")
    sections: list[Section | None] = [_models(result), about]
    if not result.pairings:
        return Group(id="over-all", title="Models", sections=sections)
    standings = _standings(view, page=True)
    return Group(id="over-all", title="Over all tasks", lead=lead, sections=[standings, *sections])


def _models(result: SuiteResult) -> Table:
    """Where the models come from, and how large they are."""
    columns = [Column("model", "name"), Column("loaded from", "code"), Column("parameters", "number")]
    columns += [Column("width", "number"), Column("query prompt", "code"), Column("document prompt", "code")]
    table = Table(columns=columns)
    for model in result.models:
        others = [f"and {', '.join(model.runs)}"] if model.runs else []
        table.add(
            cut(model.name, limit=80),
            Cell(cut(model.model, limit=200), others),
            None if model.parameters is None else texts.millions(model.parameters),
            None if model.width is None else integer(model.width),
            repr(model.query_prompt) if model.query_prompt else DASH,
            repr(model.document_prompt) if model.document_prompt else DASH,
        )
    return table


def _standings(view: Overview, *, page: bool) -> Table:
    """Counts of each model; the page adds means by kind."""
    result = view.result
    table = Table(columns=_standing_heads(view, page=page), sortable=page)
    for standing in result.analysis.models:
        cells: list[Content] = [Cell(cut(standing.model, limit=80), bold=page), standing.tasks, standing.best]
        if result.baseline is None:
            cells.append(standing.clear)
        else:
            counts = standing.verdicts or {}
            cells += [counts.get(verdict) for verdict in WORDS]
        if result.beside_best or result.baseline is None:
            cells.append(standing.even)
        cells.append(_rank_cell(standing.mean_rank))
        for mean in result.analysis.means if page else ():
            cells.append(value_cell(mean.values[standing.model], text=texts.value))
        table.add(*cells)
    return table


def _standing_heads(view: Overview, *, page: bool) -> list[Column]:
    """Columns of the standings, most of which show the largest first at a click."""
    result, first = view.result, "descending"
    columns = [
        Column("model", "name"),
        Column("tasks", "number", first=first),
        Column("best", "number", first=first),
    ]
    if result.baseline is None:
        columns.append(Column("clearly best" if page else "clearly", "number", first=first))
    else:
        than = [f"than {texts.named(result.baseline)}"] if result.mixed and page else []
        for verdict in WORDS:
            below = [] if verdict == "undecided" else than
            columns.append(Column(verdict, "number", below, "" if verdict == "worse" else first))
    others = len(result.beside_best)
    if others or result.baseline is None:
        below = [f"of {counted(others, 'other task')}"] if result.baseline is not None and page else []
        head = "not measurably worse than the best" if page else "even"
        columns.append(Column(head, "number", below, first))
    columns.append(Column("mean rank", "number", first="ascending"))
    if page:
        for mean in result.analysis.means:
            below = [f"{mean.measure}, {mean.tasks} tasks", direction(mean.lower_is_better)]
            first = first_click(mean.lower_is_better)
            columns.append(Column(words.KINDS[mean.kind], "number", below, first))
    return columns


def _against(result: SuiteResult) -> str:
    best = "the best of each task" if result.beside_best else ""
    return f"{result.baseline}; {best} that it did not run" if result.mixed else best or result.baseline or ""


_REPORTED = frozenset(("report", "measures"))
"""The setting of the reported measures, and its name in earlier results."""


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that no task uses."""
    tasks, unused = [], True
    for task in settings.get("tasks", ()):
        tasks.append({key: value for key, value in task.items() if value not in ({}, [])})
        if task.get("kind") in ("retrieval", "triplets") and _REPORTED.isdisjoint(tasks[-1]):
            unused = False
    if not tasks:
        return dict(settings)
    shown = {**settings, "tasks": tasks}
    if unused:
        measure = settings.get("measure", {})
        shown["measure"] = {key: value for key, value in measure.items() if key not in _REPORTED}
    return shown


_CSV = [
    "task",
    "kind",
    "model",
    "measure",
    "similarity",
    "main",
    "value",
    "low",
    "high",
    "lower_is_better",
    "unit",
    "units",
    "runs",
    "best",
    "even",
    "against",
    "difference",
    "difference_low",
    "difference_high",
    "p",
    "test",
    "significant",
    "verdict",
    "effect",
    "gained",
    "lost",
    "detectable",
]
"""Heads of the CSV."""


def _long(view: Overview) -> str:
    """A line for each measure of each model on each task, then one for each fact: a measure without interval
    and direction.
    """
    rows = [_about(view, score) | _figures(view, score) for score in view.result.scores]
    for fact in view.result.facts:
        rows.append(_about(view, fact) | {"measure": fact.name, "main": False, "value": fact.value})
    lines = []
    for row in rows:
        lines.append({name: row.get(name) for name in _CSV})
    return csv_of(lines)


def _about(view: Overview, row: Score | Fact) -> dict[str, Any]:
    """The task and the model of a row."""
    result = view.result
    task = next(task for task in result.tasks if task.name == row.task)
    model = next(model for model in result.models if model.name == row.model)
    return {
        "task": task.name,
        "kind": task.kind,
        "model": row.model,
        "unit": task.unit,
        "units": task.units,
        "runs": words.runs_of(model),
    }


def _figures(view: Overview, score: Score) -> dict[str, Any]:
    """The cells of a score, and of its comparison for the main measure."""
    main = view.scores.get((score.task, score.model)) is score
    row = {**asdict(score), "main": main, **_ends("", score.interval)}
    if not main:
        return row
    ranking = view.rankings[score.task]
    best = score.model in ranking.best
    row["best"] = best
    pairing = view.pairings.get((score.task, score.model))
    if pairing is None:
        return {**row, "even": True if best else None}
    change = pairing.change
    row = {
        **asdict(change),
        **row,
        "against": pairing.against,
        "significant": pairing.significant,
        "verdict": pairing.verdict,
    }
    row |= _ends("difference_", change.difference_interval)
    return {**row, "even": score.model in ranking.even if ranking.against in ranking.best or best else None}


def _ends(prefix: str, interval: tuple[float, float] | None) -> dict[str, float]:
    return {} if interval is None else {f"{prefix}low": interval[0], f"{prefix}high": interval[1]}


def _lines(view: Overview) -> tuple[list[str], list[str]]:
    """Sentences around an exported table: the meaning of its marks, reservations, and all notes."""
    result = view.result
    notes = gathered([(model.name, model.notes) for model in result.models], everyone="all models")
    notes += gathered([(task.name, task.notes) for task in result.tasks], everyone="all tasks")
    marks = [*words.key(result), "95 % intervals in brackets"]
    return marks, [
        *words.reservations(result),
        *(f"{texts.cut_name(names, limit=200)}: {note}" for names, note in notes),
    ]


def _markdown(view: Overview) -> str:
    """Models by tasks, in Markdown."""
    marks, notes = _lines(view)
    table = _matrix(view, on_page=False).to_markdown().rstrip("\n")
    sentences = [markdown(words.references(view.result)), f"{markdown('; '.join(marks))}."]
    items = "\n".join(f"- {markdown(cut(note, limit=1000))}" for note in notes)
    return (
        "\n\n".join(
            [
                markdown(cut(view.result.title, limit=200)),
                markdown(words.headline(view)),
                table,
                *sentences,
                items,
            ]
        )
        + "\n"
    )


def _latex(view: Overview) -> str:
    """Models by tasks, in LaTeX."""
    marks, notes = _lines(view)
    comments = [view.result.title, words.headline(view), words.references(view.result), *marks, *notes]
    return (
        "".join(f"% {cut(comment, limit=1000)}\n" for comment in comments)
        + _matrix(view, on_page=False).to_latex()
    )
