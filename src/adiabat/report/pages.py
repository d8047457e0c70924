"""Pages, tables and files by the kind of record."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from adiabat.report.tables import Table
from adiabat.results.record import Record

_MODULES = {
    **dict.fromkeys(("training", "evaluation"), "evaluation_page"),
    "suite": "suite_page",
    "sweep": "sweep_page",
    "rate-search": "rate_search_page",
    **dict.fromkeys(("scaling", "plan"), "scaling_page"),
    "space": "space_page",
}
"""Kind of a record to the module that has its `page`, its tables for the `terminal` and, where there are any, its `exports`."""


def files(record: Record) -> Mapping[str, Callable[[], str]]:
    """Path of each file inside of the folder of ``result.json``, with what renders it."""
    module = _module(record)
    if hasattr(module, "files"):
        made: Mapping[str, Callable[[], str]] = module.files(record)
        return made
    exports: Mapping[str, Callable[[], str]] = module.exports(record) if hasattr(module, "exports") else {}
    return {"report.html": lambda: module.page(record).to_html(), **exports}


def terminal(record: Record) -> list[Table]:
    """Tables for the terminal."""
    tables: list[Table] = _module(record).terminal(record) if record.kind in _MODULES else []
    return tables


def _module(record: Record) -> Any:
    return import_module(f"adiabat.report.{_MODULES[record.kind]}")
