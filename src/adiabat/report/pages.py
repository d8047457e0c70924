"""The files that are made from a record: its page, tables and figures."""

from collections.abc import Callable, Mapping
from importlib import import_module

from adiabat.results.record import Record

_MODULES = {
    **dict.fromkeys(("training", "evaluation"), "evaluation_page"),
    "suite": "suite_files",
    "sweep": "sweep_files",
    "rate-search": "rate_search_files",
    **dict.fromkeys(("scaling", "plan"), "scaling_files"),
    "space": "space_page",
    "comparison": "comparison_page",
}
"""Kind of a record to the module whose function `files` makes its files."""


def files(record: Record) -> Mapping[str, Callable[[], str]]:
    """Path of each file inside of the folder of ``result.json``, with what renders it."""
    made: Mapping[str, Callable[[], str]] = import_module(f"adiabat.report.{_MODULES[record.kind]}").files(record)
    return made
