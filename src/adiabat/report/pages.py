"""What is made of a record: its page with the files beside it, and its text for the terminal."""

import io
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rich.console import Console, RenderableType

from adiabat.results.record import Record

WIDTH = 100
"""Columns of a summary."""

_MODULES = {
    **dict.fromkeys(("training", "evaluation"), "evaluation_page"),
    "suite": "suite_page",
    "sweep": "sweep_page",
    "rate-search": "rate_search_page",
    **dict.fromkeys(("scaling", "plan"), "scaling_page"),
    "space": "space_page",
}
"""Kind of a record to the module that has its `page`, its tables for the `terminal` and, where there are any, its `exports` and `notes`."""


def files(record: Record) -> Mapping[str, Callable[[], str]]:
    """Path of each file inside of the folder of ``result.json``, with what renders it."""
    module = _module(record)
    exports: Mapping[str, Callable[[], str]] = module.exports(record) if hasattr(module, "exports") else {}
    return {"report.html": lambda: module.page(record).to_html(), **exports}


def terminal_tables(record: Record) -> list[RenderableType]:
    """The tables of a record, with the headline below them."""
    tables = [table.to_terminal() for table in _module(record).terminal(record)] if record.kind in _MODULES else []
    return tables or [record.title]


def notes(record: Record) -> list[str]:
    """Sentences that limit what the table proves."""
    sentences: list[str] = getattr(_module(record), "notes", lambda _: [])(record) if record.kind in _MODULES else []
    return sentences


def summary(record: Record) -> str:
    """Table, headline and notes as plain text."""
    text = io.StringIO()
    Console(file=text, width=WIDTH, highlight=False, color_system=None).print(*terminal_tables(record))
    lines = [*text.getvalue().splitlines(), *(f"note: {sentence}" for sentence in notes(record))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _module(record: Record) -> Any:
    return import_module(f"adiabat.report.{_MODULES[record.kind]}")
