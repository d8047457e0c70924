"""The page of a suite, and its tables as CSV, Markdown, LaTeX and terminal text."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from adiabat.core.text import DASH, NO_BREAK, cut, integer
from adiabat.report import format as texts
from adiabat.report import suite_headline as words
from adiabat.report.captions import glossary, text_of
from adiabat.report.charts import short
from adiabat.report.evaluation_headline import RANKINGS
from adiabat.report.measure_terms import explained, measures_section
from adiabat.report.pages import Files, Group, Notes, Page, Sections, Terms, gathered, notes_section
from adiabat.report.suite_headline import Overview
from adiabat.report.suite_tasks import direction, first_click, task_section
from adiabat.report.tables import (
    Cell,
    Column,
    Content,
    Table,
    csv_of,
    markdown,
    pair_cell,
    value_cell,
    verdict_cell,
)
from adiabat.results.record import Ends
from adiabat.results.suite_result import Fact, Score, SuiteModel, SuiteResult, SuiteTask, by_kind
from adiabat.results.verdict import WORDS

MOST_ROWS = 80
"""Maximum number of models for which the terminal shows every model on every task; beyond it, only the best
and those not measurably worse."""

NOTE_LENGTH = 1000
"""Maximum characters of a sentence beside an exported table."""


def page(result: SuiteResult) -> Page:
    """The page of a suite."""
    return Page(
        record=result,
        name="suite",
        headline=words.headline(Overview(result)),
        tone=words.tone(result),
        reservations=words.reservations(result),
        sections=comparison(result),
        facts=[
            ("compared with", result.baseline or "the best of each task"),
            ("resamples", integer(result.resamples)),
        ],
        time="time for encoding and measuring",
    )


def comparison(result: SuiteResult) -> Sections:
    """Models by tasks, over all tasks, and task by task; empty if nothing was measured."""
    if not result.tasks or not result.models:
        return []
    view = Overview(result)
    main = {task.measure for task in result.tasks}
    others = explained(score.measure for score in result.scores if score.measure not in main)
    notes = [(task.name, task.notes) for task in result.tasks]
    tasks: Sections = [notes_section("Notes on tasks", notes, everyone="all tasks")]
    tasks += [task_section(view, task, position) for position, task in enumerate(result.tasks)]
    terms = [*glossary("suite")]
    # Terms of comparisons would puzzle readers of a page that has none.
    if result.pairings:
        terms += glossary("suite-compared")
    tasks.append(Terms(terms=[*terms, *others]))
    return [_matrix_section(view), _over_all(view), Group(id="tasks", title="Task by task", sections=tasks)]


def exports(result: SuiteResult) -> Files:
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
    caption = [words.headline(view)]
    if result.mixed:
        caption.append(words.references(result))
    return [_by_task(view), replace(_standings(result), caption=[" ".join(caption)])]


def notes(result: SuiteResult) -> list[str]:
    """The notes below the tables of the terminal."""
    view, ranked = Overview(result), dict[str, None]()
    for task in result.tasks:
        for score in view.on(task.name):
            ranking = RANKINGS.get(score.similarity)
            if ranking is not None:
                ranked[f"{score.model} was compared by {ranking}"] = None
    return [*ranked, *result.notes]


def _by_task(view: Overview) -> Table:
    """A row for each task, and below it one for each model."""
    columns = [Column("task, model", "name"), Column("value [95 %]", "number")]
    columns += [Column("difference [95 %]", "number"), Column("verdict")]
    table = Table(title=view.result.title, columns=columns)
    for task in view.result.tasks:
        ranking, scores = view.rankings[task.name], view.on(task.name)
        shown = scores
        # Where the baseline is the reference, no model is known to be even with the best.
        if len(view.scores) > MOST_ROWS and ranking.against in ranking.best:
            shown = [score for score in scores if score.model in ranking.even]
        measure = ", ".join(filter(None, [task.measure, direction(task.lower_is_better)]))
        beside = Cell(short(words.beside(view, task.name)), tone="muted")
        table.add(Cell(task.name, bold=True), Cell(measure, tone="muted"), beside, Cell(""))
        for score in shown:
            best = score.model in ranking.best
            name, level = Cell(f"  {score.model}", bold=best), Cell(words.level(score), bold=best)
            table.add(name, level, *_compared_in_terminal(view, score))
        if len(shown) < len(scores):
            table.add(f"  and {len(scores) - len(shown)} more", Cell(""), Cell(""), Cell(""))
    return table


def _compared_in_terminal(view: Overview, score: Score) -> tuple[Cell, Cell]:
    """Difference to the reference model, and the verdict."""
    ranking = view.rankings[score.task]
    pairing = view.pairings.get((score.task, score.model))
    if pairing is not None:
        return pair_cell(texts.difference(pairing.change, least=3)), verdict_cell(pairing.verdict)
    # A model without a comparison trained on the task, is the reference, or was not compared.
    if not score.is_proof:
        return Cell(DASH), Cell("trained on it", tone="muted", badge=True)
    if ranking.against != score.model:
        return Cell(""), Cell("")
    if score.model == view.result.baseline:
        return Cell(DASH), Cell("baseline")
    return Cell(DASH), Cell("clearly best" if ranking.clear else "best")


def _matrix(view: Overview) -> Table:
    """Models by tasks, with their mean ranks."""
    result, columns = view.result, [Column("model", "name")]
    tasks = []
    for kind, of_kind in by_kind(result.tasks):
        for task in of_kind:
            below = [
                words.measure(view, task),
                direction(task.lower_is_better),
                words.beside(view, task.name),
            ]
            head, first = texts.cut_name(task.name, limit=32), first_click(task.lower_is_better)
            group, sub = words.KINDS[kind], [line for line in below if line]
            columns.append(Column(head, "number", sub, first, full=task.name, group=group))
            tasks.append(task)
    columns.append(Column("mean rank", "number", first="ascending"))
    table = Table(columns=columns, sortable=True, look="matrix")
    ranks = {standing.model: standing.mean_rank for standing in result.analysis.models}
    for model in result.models:
        about = "baseline" if model.name == result.baseline else ""
        name = Cell(cut(model.name, limit=80), [about])
        values = [_value(view, task, model) for task in tasks]
        table.add(name, *values, _rank_cell(ranks[model.name]))
    return table


def _rank_cell(rank: float | None) -> Cell:
    """A mean rank; a dash for a model without a task that ranks it."""
    return value_cell(rank, text="{:.1f}".format)


def _value(view: Overview, task: SuiteTask, model: SuiteModel) -> Cell:
    """The main measure of a model on a task, with its interval and mark."""
    score = view.scores.get((task.name, model.name))
    if score is None:
        return Cell(DASH, tone="muted")
    mark = view.mark(task.name, model.name)
    tone = ""
    if mark.best:
        tone = "best"
    elif mark.even:
        tone = "even"
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
    """Models by tasks, with the meaning of marks and measures."""
    lead = f"The main measure of each task with its 95{NO_BREAK}% interval. {words.references(view.result)}"
    marks = Notes(title="", notes=[("marks", words.key())])
    measures = measures_section(task.measure for task in view.result.tasks)
    sections = [_matrix(view), marks, measures]
    return Group(id="models-by-tasks", title="Models by tasks", lead=lead, sections=sections)


def _over_all(view: Overview) -> Group:
    """Standings over all tasks where models are compared, then the models themselves."""
    result = view.result
    notes = [(model.name, model.notes) for model in result.models]
    about = notes_section("Notes on models", notes, everyone="all models")
    sections: Sections = [_models(result), about]
    if not result.pairings:
        return Group(id="over-all", title="Models", sections=sections)
    standings = _standings(result)
    lead = text_of("suite", "over-all")
    return Group(id="over-all", title="Over all tasks", lead=lead, sections=[standings, *sections])


def _models(result: SuiteResult) -> Table:
    """Where the models come from, and how large they are."""
    columns = [Column("model", "name"), Column("loaded from", "code"), Column("parameters", "number")]
    columns += [Column("width", "number"), Column("query prompt", "code"), Column("document prompt", "code")]
    table = Table(columns=columns)
    for model in result.models:
        others = [f"and {', '.join(model.runs)}"] if model.runs else []
        parameters = width = None
        # BM25 has neither.
        if model.parameters is not None:
            parameters = texts.millions(model.parameters)
        if model.width is not None:
            width = integer(model.width)
        source = Cell(cut(model.model, limit=200), others)
        prompts = _prompt(model.query_prompt), _prompt(model.document_prompt)
        table.add(cut(model.name, limit=80), source, parameters, width, *prompts)
    return table


def _prompt(prompt: str) -> str:
    """A prompt in quotes, which show white space at its ends; a dash for none."""
    return repr(prompt) if prompt else DASH


def _standings(result: SuiteResult) -> Table:
    """Counts of each model, its mean rank, and its means by kind."""
    standings, most_first = result.analysis.models, "descending"
    names: list[Content] = [Cell(cut(standing.model, limit=80), bold=True) for standing in standings]
    columns: list[tuple[Column, list[Content]]] = [(Column("model", "name"), names)]
    counts = {"tasks": "tasks", "best": "best", "even": "even with the best"}
    if result.baseline is None:
        counts["clear"] = "clearly best"
    for name, head in counts.items():
        of_models: list[Content] = [getattr(standing, name) for standing in standings]
        columns.append((Column(head, "number", first=most_first), of_models))
    for verdict in WORDS:
        judged: list[Content] = [(standing.verdicts or {}).get(verdict) for standing in standings]
        columns.append((Column(verdict, "number", first=most_first), judged))
    ranks: list[Content] = [_rank_cell(standing.mean_rank) for standing in standings]
    columns.append((Column("mean rank", "number", first="ascending"), ranks))
    for mean in result.analysis.means:
        below = [f"{mean.measure}, {mean.tasks} tasks", direction(mean.lower_is_better)]
        first = first_click(mean.lower_is_better)
        means: list[Content] = []
        for standing in standings:
            means.append(value_cell(mean.values[standing.model], text=texts.value))
        columns.append((Column(words.KINDS[mean.kind], "number", below, first), means))
    heads, filled = [], []
    for head_of_column, contents in columns:
        # A suite without a baseline has no verdicts, for example.
        if any(content is not None for content in contents):
            heads.append(head_of_column)
            filled.append(contents)
    table = Table(columns=heads, sortable=True)
    for row in zip(*filled, strict=True):
        table.add(*row)
    return table


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
    row["even"] = True if best else None
    if pairing is None:
        return row
    change = pairing.change
    # The change has fields of the same names, for which those of the score stand.
    row = asdict(change) | row
    row |= {"against": pairing.against, "significant": pairing.significant, "verdict": pairing.verdict}
    row |= _ends("difference_", change.difference_interval)
    if best or ranking.against in ranking.best:
        row["even"] = score.model in ranking.even
    return row


def _ends(prefix: str, interval: Ends | None) -> dict[str, float]:
    """The ends of an interval by the heads of their columns."""
    if interval is None:
        return {}
    low, high = interval
    return {f"{prefix}low": low, f"{prefix}high": high}


def _marks(view: Overview) -> list[str]:
    """What stands below an exported table: its reference, and the meaning of its marks."""
    return [words.references(view.result), words.key()]


def _notes(result: SuiteResult) -> list[str]:
    """Reservations, and the notes on models and tasks."""
    notes = gathered([(model.name, model.notes) for model in result.models], everyone="all models")
    notes += gathered([(task.name, task.notes) for task in result.tasks], everyone="all tasks")
    said = [f"{texts.cut_name(names, limit=200)}: {note}" for names, note in notes]
    return [*words.reservations(result), *said]


def _markdown(view: Overview) -> str:
    """Models by tasks, in Markdown."""
    result, tables = view.result, [_matrix(view)]
    return markdown_file(result.title, words.headline(view), tables, _marks(view), _notes(result))


def _latex(view: Overview) -> str:
    """Models by tasks, in LaTeX."""
    comments = [view.result.title, words.headline(view), *_marks(view), *_notes(view.result)]
    return latex_file(comments, _matrix(view))


def markdown_file(
    title: str, headline: str, tables: Sequence[Table], marks: Sequence[str], notes: Sequence[str]
) -> str:
    """Tables with their headline above, and the meaning of their marks and notes below."""
    blocks = [markdown(cut(title, limit=200)), markdown(headline)]
    blocks += [table.to_markdown().rstrip("\n") for table in tables if table.columns]
    blocks += [markdown(sentence) for sentence in marks]
    blocks.append("\n".join(f"- {markdown(cut(note, limit=NOTE_LENGTH))}" for note in notes))
    return "\n\n".join(blocks) + "\n"


def latex_file(comments: Sequence[str], table: Table) -> str:
    """A table behind what people should know of it, in comments."""
    lines = [f"% {cut(comment, limit=NOTE_LENGTH)}\n" for comment in comments]
    return "".join(lines) + table.to_latex()
