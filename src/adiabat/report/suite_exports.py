"""A suite as tables for other programs and for papers: long as CSV, models by tasks as Markdown and LaTeX."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from adiabat.measure.suite_results import Pairing, Score, SuiteTask
from adiabat.report import suite_wording as words
from adiabat.report.suite_overview import Mark, Overview, by_kind, finding, mark_of, tallies
from adiabat.report.wording import DASH, MINUS, NO_BREAK, VERDICT_MARKS, cut

NAME_LENGTH = 200
"""Characters of a name that a table holds."""

CSV_COLUMNS = (
    *("task", "kind", "model", "measure", "similarity", "main", "value", "low", "high", "lower_is_better", "unit", "units", "runs"),
    *("best", "not_worse", "against", "difference", "difference_low", "difference_high", "p", "test", "significant", "verdict"),
    *("effect", "gained", "lost", "detectable"),
)

# What a spreadsheet takes for the start of a formula.
_FORMULA = re.compile(r"^[=+\-@\t\r\n|%]")

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}"},
    # At the start of a row these would be read as an option of the line end before it.
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
    **{MINUS: "$-$", NO_BREAK: "~", DASH: "--", words.EVEN: r"$\approx$", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
    **dict(zip(VERDICT_MARKS.values(), (r"$\uparrow$", r"$\downarrow$", r"$\circ$"), strict=True)),
}


def suite_csv(seen: Overview) -> str:
    """One line for each measure of each model on each task.

    Args:
        seen: The result of a suite.

    Returns:
        CSV with a head line; numbers unrounded, nothing where there is nothing to say, and texts that a spreadsheet would compute
        behind an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    tasks = {task.name: task for task in seen.result.tasks}
    for score in seen.result.scores:
        row = _long_row(seen, tasks[score.task], score)
        writer.writerow([_plain(row.get(column, "")) for column in CSV_COLUMNS])
    return text.getvalue()


def _long_row(seen: Overview, task: SuiteTask, score: Score) -> dict[str, Any]:
    main = seen.scores.get((score.task, score.model)) is score
    row: dict[str, Any] = {
        **{"task": task.name, "kind": task.kind, "model": score.model, "measure": score.measure, "similarity": score.similarity},
        **{"main": main, "value": score.value, "low": score.interval[0], "high": score.interval[1]},
        **{"lower_is_better": score.lower_is_better, "unit": task.unit, "units": task.units},
        "runs": next(words.runs_of(model) for model in seen.result.models if model.name == score.model),
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


def _plain(value: Any) -> str:
    """A cell of CSV: names are text whatever they begin with, numbers have all their digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        shown = cut(value, limit=1000)
        return f"'{shown}" if _FORMULA.match(shown) else shown
    return repr(value)


def suite_markdown(seen: Overview) -> str:
    """Models by tasks, for a note or an issue.

    Args:
        seen: The result of a suite.

    Returns:
        Markdown: the head line, the table, and what its marks mean.
    """
    tasks = _ordered(seen)
    heads = [
        "model",
        *(f"{_markdown(cut(task.name, limit=NAME_LENGTH))}<br>{_markdown(_measure(seen, task))}" for task in tasks),
        "mean rank",
    ]
    lines = [_markdown(cut(seen.result.title, limit=NAME_LENGTH)), "", _markdown(words.headline(seen)), ""]
    lines += [_row(heads), _row(["---", *["---:"] * (len(heads) - 1)])]
    for name, cells, rank in _rows(seen, tasks, bold=lambda text: f"**{text}**", escape=_markdown, separator="<br>"):
        lines.append(_row([name, *cells, rank]))
    lines += ["", f"{_markdown('; '.join([*words.key(seen), '95 % intervals in brackets']))}."]
    lines += ["", *(f"- {_markdown(cut(sentence, limit=1000))}" for sentence in words.reservations(seen))]
    return "\n".join(lines) + "\n"


def suite_latex(seen: Overview) -> str:
    """Models by tasks, for a paper: a plain ``tabular`` that needs no package.

    Args:
        seen: The result of a suite.

    Returns:
        LaTeX; comments before the table say what its marks mean.
    """
    tasks = _ordered(seen)
    comments = [seen.result.title, words.headline(seen), *words.key(seen), "95 % intervals in brackets", *words.reservations(seen)]
    groups = [rf"\multicolumn{{{len(group)}}}{{c}}{{{_latex(words.KINDS[kind])}}}" for kind, group in by_kind(seen.result.tasks)]
    lines = [
        *(f"% {_latex(cut(comment, limit=1000))}" for comment in comments),
        rf"\begin{{tabular}}{{l{'r' * (len(tasks) + 1)}}}",
        r"\hline",
    ]
    lines.append(" & ".join(["", *groups, ""]) + r" \\")
    lines.append(" & ".join(["model", *(_latex(cut(task.name, limit=NAME_LENGTH)) for task in tasks), "mean rank"]) + r" \\")
    lines += [" & ".join(["", *(_latex(_measure(seen, task)) for task in tasks), ""]) + r" \\", r"\hline"]
    for name, cells, rank in _rows(seen, tasks, bold=lambda text: rf"\textbf{{{text}}}", escape=_latex, separator=" "):
        lines.append(" & ".join([name, *cells, rank]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _ordered(seen: Overview) -> list[SuiteTask]:
    return [task for _, group in by_kind(seen.result.tasks) for task in group]


def _measure(seen: Overview, task: SuiteTask) -> str:
    return cut(f"{words.measure(seen, task)}{', lower is better' * task.lower_is_better}", limit=NAME_LENGTH)


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
            cells.append(f"{shown}{escape(sign)}{separator}{escape(bounds)}")
        rows.append((escape(cut(tally.name, limit=NAME_LENGTH)), cells, escape(words.rank(tally))))
    return rows


def _cell(score: Score, mark: Mark) -> tuple[str, str, str]:
    sign = words.sign_of(mark)
    return words.value(score.value), words.bounds(score), f"{NO_BREAK}{sign}" if sign else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(text: str) -> str:
    """Text of one line that Markdown shows as it is."""
    flat = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", flat)


def _latex(text: str) -> str:
    """Text of one line that LaTeX sets as it is."""
    return "".join(_LATEX.get(letter, letter) for letter in text)
