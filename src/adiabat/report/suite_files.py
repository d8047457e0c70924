"""A suite on disk: the page and tables that are made from the record alone."""

from collections.abc import Callable
from functools import partial

from adiabat.report.suite_analysis import overview_of
from adiabat.report.suite_exports import suite_csv, suite_latex, suite_markdown
from adiabat.report.suite_page import render_suite
from adiabat.results.suite_result import SuiteResult


def files(result: SuiteResult) -> dict[str, Callable[[], str]]:
    """The page and its tables."""
    seen = overview_of(result)
    texts = {"report.html": render_suite, "table.csv": suite_csv, "table.md": suite_markdown, "table.tex": suite_latex}
    return {name: partial(render, seen) for name, render in texts.items()}
