"""A record as text: its table, with the headline below, and the notes of its page."""

import io

from rich.console import Console, RenderableType

from adiabat.report.evaluation_headline import RANKINGS, caveats
from adiabat.report.pages import terminal
from adiabat.results.evaluation_result import Result
from adiabat.results.record import Record
from adiabat.results.suite_result import SuiteResult

WIDTH = 100
"""Columns of a summary."""


def summary(record: Record) -> str:
    """Table, headline and notes as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=WIDTH, highlight=False, color_system=None)
    console.print(*terminal_tables(record))
    lines = [*text.getvalue().splitlines(), *(f"note: {sentence}" for sentence in notes(record))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def terminal_tables(record: Record) -> list[RenderableType]:
    """The tables of a record, with the headline below them."""
    return [table.to_terminal() for table in terminal(record)] or [record.title]


def notes(record: Record) -> list[str]:
    """Sentences that limit what the table proves."""
    if isinstance(record, SuiteResult):
        mains = [record.main_score(task.name, model.name) for task in record.tasks for model in record.models]
        ranked = dict.fromkeys((main.model, main.similarity) for main in mains if main is not None and main.similarity in RANKINGS)
        return [*(f"{model} was compared by {RANKINGS[by]}" for model, by in ranked), *record.notes]
    if isinstance(record, Result):
        # Those of a training run were printed hours ago.
        trained = record.training.notes if record.training is not None and not record.datasets else ()
        return [*caveats(record), *trained]
    return []
