"""A sweep as tables for other programs and for papers, a row for each setting: CSV unrounded, Markdown and LaTeX as the page has it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from adiabat.core.text import cut
from adiabat.report.csv_tables import cell, csv_of
from adiabat.report.format import cut_name
from adiabat.report.markup import NAME_LENGTH, latex, markdown, markdown_row
from adiabat.report.sweep_captions import key
from adiabat.report.sweep_cases import Case, Compared, Outcome, Overview, comparisons_of, measures_of, outcome, pair_counts
from adiabat.report.sweep_columns import Cell, Column, columns_of
from adiabat.report.sweep_layers import MOST, most_changed
from adiabat.report.sweep_values import case_cell, case_head, rate, setting_value
from adiabat.report.sweep_wording import headline, reservations

SENTENCE_LENGTH = 1000
"""Characters of a sentence beside a table."""


def sweep_csv(seen: Overview) -> str:
    """One line for each setting."""
    rows = [dict(_csv_row(seen, case)) for case in seen.cases]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return csv_of([cell(column) for column in columns], ([row.get(column) for column in columns] for row in rows))


def _csv_row(seen: Overview, case: Case) -> Iterator[tuple[str, Any]]:
    for setting, value in zip(seen.settings, case.values, strict=True):
        plain = value if isinstance(value, int | float | bool) or value is None else setting_value(value)
        yield setting.name, plain
    yield from (("runs", len(case.runs)), ("failed", len(case.failed)), ("seeds", " ".join(str(run.seed) for run in case.runs)))
    yield "learning_rate taken", _mean([run.learning_rate for run in case.runs])
    for task in seen.ordered:
        for measured in measures_of(seen.result, task):
            yield from _csv_outcome(f"{task}: {' '.join(filter(None, measured))}", outcome(case, task, measured))
    for compared in comparisons_of(seen.done, seen.result.tasks):
        yield from _csv_pairs(case, compared)
    for name in ("steps", "epochs", "best_epoch", "seconds", "trainable"):
        yield name, _mean([getattr(run, name) for run in case.done])
    for name in dict.fromkeys(name for run in seen.done if run.drift is not None for name in run.drift.means):
        yield f"drift: {name}", _mean([run.drift.means[name] for run in case.done if run.drift is not None and name in run.drift.means])
    yield "reason", "; ".join(dict.fromkeys(run.reason for run in case.failed))


def _mean(values: Sequence[int | float]) -> int | float | None:
    """Of equal values the value itself, with no digit that summing brings."""
    return fmean(values) if len(set(values)) > 1 else next(iter(values), None)


def _csv_outcome(name: str, found: Outcome | None) -> Iterator[tuple[str, Any]]:
    """Always the same columns; those of percent stay empty where there is none."""
    cells: dict[str, Any] = dict.fromkeys(("improvement %", "low %", "high %", "difference", "verdict", "runs better", "runs worse"))
    if found is not None:
        cells["difference"] = _mean([change.difference for change in found.changes if change.difference is not None])
        cells["verdict"] = found.verdict or ("mixed" if found.verdicts else None)
        cells |= {f"runs {verdict}": found.verdicts[verdict] for verdict in ("better", "worse")}
    if found is not None and found.percent:
        cells["improvement %"] = found.mean
        cells["low %"], cells["high %"] = found.bounds or (None, None)
    yield from ((f"{name}, {column}", value) for column, value in cells.items())


def _csv_pairs(case: Case, compared: Compared) -> Iterator[tuple[str, Any]]:
    counts = pair_counts(case.done, compared)
    task, comparison, similarity = compared
    for name in ("improved", "worsened", "improved_z", "worsened_z"):
        yield f"{task}: {comparison} {similarity}, {name}", None if counts is None else getattr(counts, name)


def sweep_markdown(seen: Overview) -> str:
    """One row for each setting, for a note or an issue, and the most changed tensors."""
    columns = columns_of(seen)
    lines = [markdown(cut(seen.result.title, limit=NAME_LENGTH)), "", markdown(headline(seen)), ""]
    lines.append(markdown_row(["<br>".join(map(markdown, _head(column))) for column in columns]))
    lines.append(markdown_row(["---:" if column.number else "---" for column in columns]))
    lines += [markdown_row([_shown(column.cell(case), markdown, "<br>") for column in columns]) for case in seen.cases]
    lines += ["", f"{markdown('; '.join(key(seen)))}."]
    lines += ["", *(f"- {markdown(cut(sentence, limit=SENTENCE_LENGTH))}" for sentence in reservations(seen))]
    for title, heads, rows in _layer_tables(seen):
        lines += ["", f"{markdown(title)}:", "", markdown_row(list(map(markdown, heads))), markdown_row(["---"] * len(heads))]
        lines += [markdown_row(list(map(markdown, row))) for row in rows]
    return "\n".join(lines) + "\n"


def sweep_latex(seen: Overview) -> str:
    """One row for each setting, for a paper: a plain ``tabular`` that needs no package."""
    columns = columns_of(seen)
    comments = [seen.result.title, headline(seen), *key(seen), *reservations(seen)]
    heads = [_head(column) for column in columns]
    lines = [f"% {latex(cut(comment, limit=SENTENCE_LENGTH))}" for comment in comments]
    lines += [rf"\begin{{tabular}}{{{''.join('r' if column.number else 'l' for column in columns)}}}", r"\hline"]
    groups = [(group, len(list(of))) for group, of in groupby(columns, key=lambda column: column.group)]
    lines.append(_line([rf"\multicolumn{{{size}}}{{c}}{{{latex(group)}}}" for group, size in groups]))
    lines += [_line([latex(name) for name, *_ in heads]), _line([latex(" ".join(below)) for _, *below in heads]), r"\hline"]
    lines += [_line([_shown(column.cell(case), latex, " ") for column in columns]) for case in seen.cases]
    lines += [r"\hline", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _head(column: Column) -> list[str]:
    """Lines over a column."""
    return [cut_name(line, limit=NAME_LENGTH) for line in (column.name, column.below) if line]


def _shown(one: Cell, escape: Callable[[str], str], separator: str) -> str:
    text = " ".join(filter(None, [one.text, one.sign]))
    return separator.join(escape(part) for part in (text, one.below) if part)


def _layer_tables(seen: Overview) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Title, heads and rows of each table of tensors."""
    tables, prefix = most_changed(seen)
    for table in tables:
        left_out = f'; "{prefix}" is left out of names' if prefix else ""
        rows = [[case_cell(seen, row.case), *(f"{name} {rate(value)}" for name, value in row.tensors)] for row in table.rows]
        filled = [[cut_name(text, limit=NAME_LENGTH) for text in [*row, *[""] * (1 + MOST - len(row))]] for row in rows]
        yield f"{table.measure.title}, {table.measure.formula}{left_out}", [case_head(seen), "most", "next"], filled
