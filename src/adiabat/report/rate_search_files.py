"""A search for the largest safe rate on disk: the page, table and figures that are made from the record alone."""

from collections.abc import Callable
from functools import partial

from adiabat.report.rate_search_page import render_safe_rate
from adiabat.report.rate_search_plots import pictures
from adiabat.report.rate_search_table import safe_rate_csv
from adiabat.report.svg import figure_files
from adiabat.results.rate_search_result import SafeRate


def files(result: SafeRate) -> dict[str, Callable[[], str]]:
    """The page, table and figures."""
    figures = figure_files({picture.name: partial(picture.draw, result) for picture in pictures()})
    return {"report.html": partial(render_safe_rate, result), "table.csv": partial(safe_rate_csv, result), **figures}
