"""The page of a suite, and its tables as CSV, Markdown, LaTeX and terminal text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter, itemgetter, methodcaller
from typing import Any

from adiabat.core.text import DASH, NO_BREAK, counted, cut, integer
from adiabat.report import format as texts
from adiabat.report import suite_headline as words
from adiabat.report.charts import short
from adiabat.report.computed_tables import Column, Table
from adiabat.report.evaluation_headline import RANKINGS
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import Group, Notes, Page, Terms, gathered, notes_section
from adiabat.report.suite_headline import Overview
from adiabat.report.suite_tasks import direction, first_click, task_section
from adiabat.report.tables import (
    Cell,
    ColumnKind,
    Section,
    markdown,
    pair_cell,
    value_cell,
    verdict_cell,
)
from adiabat.results.evaluation_result import Verdict
from adiabat.results.suite_result import Fact, KindMean, Score, SuiteModel, SuiteResult, SuiteTask, by_kind

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
        "table.csv": lambda: _long(view).to_csv(),
        "table.md": lambda: _markdown(view),
        "table.tex": lambda: _latex(view),
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
    return [
        _by_task(view),
        Table(columns=_standing_columns(view, page=False), rows=result.analysis.models, caption=[caption]),
    ]


def notes(result: SuiteResult) -> list[str]:
    """The notes below the tables of the terminal."""
    view = Overview(result)
    scores = [score for task in result.tasks for score in view.on(task.name)]
    ranked = dict.fromkeys(
        (score.model, score.similarity) for score in scores if score.similarity in RANKINGS
    )
    return [*(f"{model} was compared by {RANKINGS[by]}" for model, by in ranked), *result.notes]


def _by_task(view: Overview) -> Table:
    """A row for each task, and below it one for each model."""
    rows: list[tuple[Cell, ...]] = []
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
        beside = short(words.beside(view, task.name))
        rows.append(
            (Cell(task.name, bold=True), Cell(details, tone="muted"), Cell(beside, tone="muted"), Cell(""))
        )
        rows += [_in_terminal(view, score) for score in scores]
        if len(scores) < len(all_scores):
            rows.append((Cell(f"  and {len(all_scores) - len(scores)} more"), Cell(""), Cell(""), Cell("")))
    heads: list[tuple[str, ColumnKind]] = [
        *(
            ("task, model", "name"),
            ("value [95 %]", "number"),
            ("difference [95 %]", "number"),
            ("verdict", "text"),
        )
    ]
    columns = [Column(head, itemgetter(at), kind) for at, (head, kind) in enumerate(heads)]
    return Table(title=view.result.title, columns=columns, rows=rows)


def _in_terminal(view: Overview, score: Score) -> tuple[Cell, ...]:
    ranking = view.rankings[score.task]
    best = score.model in ranking.best
    cells = (Cell(f"  {score.model}", bold=best), Cell(words.level(score), bold=best))
    pairing = view.pairings.get((score.task, score.model))
    if pairing is not None:
        return (*cells, pair_cell(texts.difference(pairing.change, least=3)), verdict_cell(pairing.verdict))
    if not score.is_proof:
        return (*cells, Cell(DASH), Cell("trained on it", tone="muted", badge=True))
    if ranking.against != score.model:
        return (*cells, Cell(""), Cell(""))
    return (
        *cells,
        Cell(DASH),
        Cell(
            "baseline" if score.model == view.result.baseline else "clearly best" if ranking.clear else "best"
        ),
    )


def _matrix(view: Overview, *, with_rank: bool) -> Table:
    """Models by tasks."""
    result = view.result
    groups = by_kind(result.tasks)

    def name(model: SuiteModel) -> Cell:
        runs = words.runs_of(model)
        below = ["baseline" * (model.name == result.baseline), f"mean of {counted(runs, 'run')}" * (runs > 1)]
        return Cell(cut(model.name, limit=80), [] if with_rank else below)

    def column(task: SuiteTask) -> Column:
        below = [words.measure(view, task), direction(task.lower_is_better), words.beside(view, task.name)]
        if with_rank:
            below = [", ".join(filter(None, below[:2])), *filter(None, below[2:])]
        head = texts.cut_name(task.name, limit=200 if with_rank else 32)
        first = first_click(task.lower_is_better)
        return Column(
            head,
            lambda model: _value(view, task, model),
            "number",
            below,
            first,
            full=task.name,
            group=words.KINDS[task.kind],
        )

    ranks = {standing.model: standing.mean_rank for standing in result.analysis.models}
    columns = [Column("model", name, "name"), *(column(task) for _, tasks in groups for task in tasks)]
    if with_rank:
        columns.append(
            Column("mean rank", lambda model: value_cell(ranks[model.name], text="{:.1f}".format), "number")
        )
    return Table(columns=columns, rows=result.models, sortable=True, look="matrix")


def _value(view: Overview, task: SuiteTask, model: SuiteModel) -> Cell:
    score = view.scores.get((task.name, model.name))
    if score is None:
        return Cell(DASH, tone="muted")
    mark = view.mark(task.name, model.name)
    # On paper, many columns leave no room for an interval on a single line.
    bounds = texts.bounds(score.interval, texts.value).replace(NO_BREAK, " ")
    return Cell(
        texts.value(score.value),
        [bounds],
        value=score.value,
        tone="best" if mark.best else "even" if mark.even else "",
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
            _matrix(view, with_rank=False),
            Notes(title="", notes=[("marks", "; ".join([*words.key(view.result), "– not measured"]))]),
            measures_section(task.measure for task in view.result.tasks),
        ],
    )


def _over_all(view: Overview) -> Group:
    result = view.result
    means = (
        " Kinds whose tasks share one measure also have plain means, with tasks weighted "
        "equally. Tasks are not a random sample, so "
        "these means have no interval."
    )
    lead = (
        "Tasks have different measures and scales, so scores are not averaged over all "
        "of them. Ranks can be averaged, but do not show "
        "how far apart two models are, and they depend on the other models "
        f"measured.{means * bool(result.analysis.means)}"
    )
    columns = [
        Column("model", lambda model: cut(model.name, limit=80), "name"),
        Column(
            "loaded from",
            lambda model: Cell(
                cut(model.model, limit=200), [f"and {', '.join(model.runs)}"] if model.runs else []
            ),
            "code",
        ),
        Column(
            "parameters",
            lambda model: None if model.parameters is None else texts.millions(model.parameters),
            "number",
        ),
        Column("width", lambda model: None if model.width is None else integer(model.width), "number"),
        Column(
            "query prompt", lambda model: repr(model.query_prompt) if model.query_prompt else DASH, "code"
        ),
        Column(
            "document prompt",
            lambda model: repr(model.document_prompt) if model.document_prompt else DASH,
            "code",
        ),
    ]
    standings = Table(columns=_standing_columns(view, page=True), rows=result.analysis.models, sortable=True)
    return Group(
        id="over-all",
        title="Over all tasks" if result.pairings else "Models",
        lead=lead if result.pairings else "",
        sections=[
            standings if result.pairings else None,
            Table(columns=columns, rows=result.models),
            notes_section(
                "Notes on models",
                [(model.name, model.notes) for model in result.models],
                everyone="all models",
            ),
        ],
    )


def _standing_columns(view: Overview, *, page: bool) -> list[Column]:
    """Counts of each model; the page adds means by kind."""
    result = view.result
    than = [f"than {texts.named(result.baseline or '')}"] if result.mixed and page else []
    others = len(result.beside_best)

    def count(head: str, field: str, below: Sequence[str] = (), first: str = "descending") -> Column:
        return Column(head, attrgetter(field), "number", below, first)

    def verdicts(verdict: Verdict, below: Sequence[str] = (), first: str = "descending") -> Column:
        return Column(
            verdict, lambda standing: (standing.verdicts or {}).get(verdict), "number", below, first
        )

    def mean_column(mean: KindMean) -> Column:
        below = [f"{mean.measure}, {mean.tasks} tasks", direction(mean.lower_is_better)]
        first = first_click(mean.lower_is_better)
        return Column(
            words.KINDS[mean.kind],
            lambda row: value_cell(mean.values[row.model], text=texts.value),
            "number",
            below,
            first,
        )

    columns = [Column("model", lambda standing: Cell(cut(standing.model, limit=80), bold=page), "name")]
    columns += [count("tasks", "tasks"), count("best", "best")]
    if result.baseline is None:
        columns.append(count("clearly best" if page else "clearly", "clear"))
    else:
        columns += [
            verdicts("better", than),
            verdicts("not worse", than),
            verdicts("undecided"),
            verdicts("worse", than, ""),
        ]
    if others or result.baseline is None:
        below = [f"of {counted(others, 'other task')}"] if result.baseline is not None and page else []
        columns.append(count("not measurably worse than the best" if page else "even", "even", below))
    rank = Column(
        "mean rank",
        lambda standing: value_cell(standing.mean_rank, text="{:.1f}".format),
        "number",
        (),
        "ascending",
    )
    return [*columns, rank, *(mean_column(mean) for mean in result.analysis.means if page)]


def _against(result: SuiteResult) -> str:
    best = "the best of each task" if result.beside_best else ""
    return f"{result.baseline}; {best} that it did not run" if result.mixed else best or result.baseline or ""


_REPORTED = frozenset(("report", "measures"))
"""The setting of the reported measures, and its name in earlier results."""


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that no task uses."""
    tasks = [
        {key: value for key, value in task.items() if value not in ({}, [])}
        for task in settings.get("tasks", ())
    ]
    if not tasks:
        return dict(settings)
    ranked = [task for task in tasks if task.get("kind") in ("retrieval", "triplets")]
    measure = {key: value for key, value in settings.get("measure", {}).items() if key not in _REPORTED}
    return {
        **settings,
        "tasks": tasks,
        **({"measure": measure} if all(not _REPORTED.isdisjoint(task) for task in ranked) else {}),
    }


_CSV = (
    *(
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
    ),
    *(
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
    ),
    *("effect", "gained", "lost", "detectable"),
)


def _long(view: Overview) -> Table:
    """A line for each measure of each model on each task, then one for each fact: a measure without interval
    and direction.
    """
    tasks = {task.name: task for task in view.result.tasks}
    runs = {model.name: words.runs_of(model) for model in view.result.models}

    def about(row: Score | Fact) -> dict[str, Any]:
        task = tasks[row.task]
        return {
            "task": task.name,
            "kind": task.kind,
            "model": row.model,
            "unit": task.unit,
            "units": task.units,
            "runs": runs[row.model],
        }

    rows = [about(score) | _figures(view, score) for score in view.result.scores]
    rows += [
        about(fact) | {"measure": fact.name, "main": False, "value": fact.value} for fact in view.result.facts
    ]
    return Table(columns=[Column(name, methodcaller("get", name)) for name in _CSV], rows=rows)


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
    table = _matrix(view, with_rank=True).to_markdown().rstrip("\n")
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
        + _matrix(view, with_rank=True).to_latex()
    )
