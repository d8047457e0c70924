"""A suite as tables for other programs and for papers: long as CSV, models by tasks as Markdown and LaTeX."""

from collections.abc import Callable, Sequence
from typing import Any

from adiabat.core.text import DASH, NO_BREAK, cut
from adiabat.report import suite_values as figures
from adiabat.report import suite_wording as words
from adiabat.report.csv_tables import csv_of
from adiabat.report.markup import NAME_LENGTH, latex, markdown, markdown_row
from adiabat.report.page_templates import gathered
from adiabat.report.suite_analysis import Mark, Overview, by_kind, finding, mark_of, tallies
from adiabat.report.suite_headline import headline
from adiabat.report.wording import cut_name
from adiabat.results.suite_result import Fact, Pairing, Score, SuiteTask

CSV_COLUMNS = (
    *("task", "kind", "model", "measure", "similarity", "main", "value", "low", "high", "lower_is_better", "unit", "units", "runs"),
    *("best", "not_worse", "against", "difference", "difference_low", "difference_high", "p", "test", "significant", "verdict"),
    *("effect", "gained", "lost", "detectable"),
)


def suite_csv(seen: Overview) -> str:
    """One line for each measure of each model on each task, then one for each fact: a measure without interval and direction."""
    tasks = {task.name: task for task in seen.result.tasks}
    rows = [_long_row(seen, tasks[score.task], score) for score in seen.result.scores]
    rows += [_about(seen, tasks[fact.task], fact.model) | _figure(fact) for fact in seen.result.facts]
    return csv_of(CSV_COLUMNS, ([row.get(column) for column in CSV_COLUMNS] for row in rows))


def _about(seen: Overview, task: SuiteTask, model: str) -> dict[str, Any]:
    runs = next(words.runs_of(one) for one in seen.result.models if one.name == model)
    return {"task": task.name, "kind": task.kind, "model": model, "unit": task.unit, "units": task.units, "runs": runs}


def _figure(fact: Fact) -> dict[str, Any]:
    return {"measure": fact.name, "main": False, "value": fact.value}


def _long_row(seen: Overview, task: SuiteTask, score: Score) -> dict[str, Any]:
    main = seen.scores.get((score.task, score.model)) is score
    low, high = score.interval or (None, None)
    row = _about(seen, task, score.model) | {
        **{"measure": score.measure, "similarity": score.similarity, "main": main, "lower_is_better": score.lower_is_better},
        **{"value": score.value, "low": low, "high": high},
    }
    if not main:
        return row
    row["best"] = score.model in seen.best.get(task.name, ())
    row["not_worse"] = seen.even(task.name, score.model)
    pairing = seen.pairings.get((task.name, score.model))
    return row if pairing is None else row | _compared(pairing)


def _compared(pairing: Pairing) -> dict[str, Any]:
    change = pairing.change
    low, high = change.difference_interval or (None, None)
    return {
        **{"against": pairing.against, "difference": change.difference, "difference_low": low, "difference_high": high},
        **{"p": change.p, "test": change.test, "significant": pairing.significant, "verdict": finding(pairing)},
        **{"effect": change.effect, "gained": change.gained, "lost": change.lost, "detectable": change.detectable},
    }


def suite_markdown(seen: Overview) -> str:
    """Models by tasks, for a note or an issue."""
    tasks = _ordered(seen)
    heads = ["model", *("<br>".join(map(markdown, _head(seen, task))) for task in tasks), "mean rank"]
    lines = [markdown(cut(seen.result.title, limit=NAME_LENGTH)), "", markdown(headline(seen)), ""]
    lines += [markdown_row(heads), markdown_row(["---", *["---:"] * (len(heads) - 1)])]
    for name, cells, rank in _rows(seen, tasks, bold=lambda text: f"**{text}**", escape=markdown, separator="<br>"):
        lines.append(markdown_row([name, *cells, rank]))
    lines += ["", markdown(words.references(seen)), "", f"{markdown('; '.join([*words.key(seen), '95 % intervals in brackets']))}."]
    lines += ["", *(f"- {markdown(cut(sentence, limit=1000))}" for sentence in [*words.reservations(seen), *_notes(seen)])]
    return "\n".join(lines) + "\n"


def suite_latex(seen: Overview) -> str:
    """Models by tasks, for a paper: a plain ``tabular`` that needs no package."""
    tasks = _ordered(seen)
    comments = [seen.result.title, headline(seen), words.references(seen), *words.key(seen), "95 % intervals in brackets"]
    comments += [*words.reservations(seen), *_notes(seen)]
    groups = [rf"\multicolumn{{{len(group)}}}{{c}}{{{latex(words.KINDS[kind])}}}" for kind, group in by_kind(seen.result.tasks)]
    lines = [
        *(f"% {latex(cut(comment, limit=1000))}" for comment in comments),
        rf"\begin{{tabular}}{{l{'r' * (len(tasks) + 1)}}}",
        r"\hline",
    ]
    lines.append(" & ".join(["", *groups, ""]) + r" \\")
    names, *below = zip(*(_head(seen, task) for task in tasks), strict=True) if tasks else [()]
    lines.append(" & ".join(["model", *map(latex, names), "mean rank"]) + r" \\")
    lines += [*(" & ".join(["", *map(latex, row), ""]) + r" \\" for row in below), r"\hline"]
    for name, cells, rank in _rows(seen, tasks, bold=lambda text: rf"\textbf{{{text}}}", escape=latex, separator=" "):
        lines.append(" & ".join([name, *cells, rank]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _notes(seen: Overview) -> list[str]:
    """What is noted of models and of tasks, each once behind their names."""
    result = seen.result
    notes = gathered([(model.name, model.notes) for model in result.models], every="all models")
    notes += gathered([(task.name, task.notes) for task in result.tasks], every="all tasks")
    return [f"{cut_name(names, limit=NAME_LENGTH)}: {note}" for names, note in notes]


def _ordered(seen: Overview) -> list[SuiteTask]:
    return [task for _, group in by_kind(seen.result.tasks) for task in group]


def _head(seen: Overview, task: SuiteTask) -> list[str]:
    """Lines over a column: name, measure, and in a suite that has two kinds of comparisons whom it compares with."""
    measure = f"{words.measure(seen, task)}{', lower is better' * task.lower_is_better}"
    beside = words.beside(seen, task.name)
    return [cut_name(line, limit=NAME_LENGTH) for line in (task.name, measure, *([beside] if beside else []))]


def _rows(
    seen: Overview, tasks: Sequence[SuiteTask], *, bold: Callable[[str], str], escape: Callable[[str], str], separator: str
) -> list[tuple[str, list[str], str]]:
    """For each model its name, a cell for each task, and its mean rank."""
    rows = []
    for tally in tallies(seen):
        cells = []
        for task in tasks:
            score = seen.scores.get((task.name, tally.name))
            if score is None:
                cells.append(escape(DASH))
                continue
            number, bounds, sign = _cell(score, mark := mark_of(seen, task.name, tally.name))
            shown = bold(escape(number)) if mark.best else escape(number)
            cells.append(separator.join(filter(None, [f"{shown}{escape(sign)}", escape(bounds)])))
        rows.append((escape(cut_name(tally.name, limit=NAME_LENGTH)), cells, escape(words.rank(tally))))
    return rows


def _cell(score: Score, mark: Mark) -> tuple[str, str, str]:
    sign = words.sign_of(mark)
    return figures.value(score.value), figures.bounds(score), f"{NO_BREAK}{sign}" if sign else ""
