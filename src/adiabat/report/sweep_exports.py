"""A sweep as tables for other programs and for papers, a row for each setting: CSV unrounded, Markdown and LaTeX as the page has it."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from adiabat.core.text import cut
from adiabat.report.format import cut_name
from adiabat.report.sweep_captions import key
from adiabat.report.sweep_cases import Case, Compared, Outcome, Overview, comparisons_of, measures_of, outcome, pair_counts
from adiabat.report.sweep_columns import columns_of
from adiabat.report.sweep_layers import MOST, most_changed
from adiabat.report.sweep_values import case_cell, case_head, rate, setting_value
from adiabat.report.sweep_wording import headline, reservations
from adiabat.report.tables import NAME_LENGTH, Cell, Column, Table, latex, markdown

SENTENCE_LENGTH = 1000
"""Characters of a sentence beside a table."""


def sweep_csv(view: Overview) -> str:
    """One line for each setting."""
    rows = [dict(_csv_row(view, case)) for case in view.cases]
    names = dict.fromkeys(name for row in rows for name in row)
    return Table(columns=[_value_of(name) for name in names], rows=rows).to_csv()


def _value_of(name: str) -> Column:
    return Column(name, lambda row: row.get(name))


def _csv_row(view: Overview, case: Case) -> Iterator[tuple[str, Any]]:
    for setting, value in zip(view.settings, case.values, strict=True):
        plain = value if isinstance(value, int | float | bool) or value is None else setting_value(value)
        yield setting.name, plain
    yield from (("runs", len(case.runs)), ("failed", len(case.failed)), ("seeds", " ".join(str(run.seed) for run in case.runs)))
    yield "learning_rate taken", _mean([run.learning_rate for run in case.runs])
    for task in view.ordered:
        for measured in measures_of(view.result, task):
            yield from _csv_outcome(f"{task}: {' '.join(filter(None, measured))}", outcome(case, task, measured))
    for compared in comparisons_of(view.done, view.result.tasks):
        yield from _csv_pairs(case, compared)
    for name in ("steps", "epochs", "best_epoch", "seconds", "trainable"):
        yield name, _mean([getattr(run, name) for run in case.done])
    for name in dict.fromkeys(name for run in view.done if run.drift is not None for name in run.drift.means):
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


def sweep_markdown(view: Overview) -> str:
    """One row for each setting, for a note or an issue, and the most changed tensors."""
    table = Table(columns=columns_of(view), rows=view.cases).to_markdown().rstrip("\n")
    notes = "\n".join(f"- {markdown(cut(sentence, limit=SENTENCE_LENGTH))}" for sentence in reservations(view))
    parts = [
        markdown(cut(view.result.title, limit=NAME_LENGTH)),
        markdown(headline(view)),
        table,
        f"{markdown('; '.join(key(view)))}.",
        notes,
    ]
    for layers in _layer_tables(view):
        parts += [f"{markdown(layers.title)}:", layers.to_markdown().rstrip("\n")]
    return "\n\n".join(parts) + "\n"


def sweep_latex(view: Overview) -> str:
    """One row for each setting, for a paper: a plain ``tabular`` that needs no package."""
    comments = [view.result.title, headline(view), *key(view), *reservations(view)]
    lines = "".join(f"% {latex(cut(comment, limit=SENTENCE_LENGTH))}\n" for comment in comments)
    return lines + Table(columns=columns_of(view), rows=view.cases).to_latex()


def _layer_tables(view: Overview) -> Iterator[Table]:
    """The most changed tensors by each measure."""
    tables, prefix = most_changed(view)
    left_out = f'; "{prefix}" is left out of names' if prefix else ""
    for table in tables:
        rows = [[case_cell(view, row.case), *(f"{name} {rate(value)}" for name, value in row.tensors)] for row in table.rows]
        heads = [case_head(view), "most", "next"]
        filled = [[cut_name(text, limit=NAME_LENGTH) for text in [*row, *[""] * (1 + MOST - len(row))]] for row in rows]
        columns = [_text_of(position, head) for position, head in enumerate(heads)]
        yield Table(title=f"{table.measure.title}, {table.measure.formula}{left_out}", columns=columns, rows=filled)


def _text_of(position: int, head: str) -> Column:
    return Column(head, lambda row: Cell(row[position]))
