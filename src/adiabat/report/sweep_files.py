"""A sweep on disk: the page, tables and figures that are made from the record alone."""

from collections.abc import Callable
from functools import partial

from adiabat.report.chart_style import figure_files
from adiabat.report.sweep_cases import overview_of
from adiabat.report.sweep_exports import sweep_csv, sweep_latex, sweep_markdown
from adiabat.report.sweep_page import render_page
from adiabat.report.sweep_plots import figure_of, pictures
from adiabat.results.sweep_result import SweepResult


def files(result: SweepResult) -> dict[str, Callable[[], str]]:
    """The page, tables and figures."""
    seen = overview_of(result)
    texts = {"report.html": render_page, "table.csv": sweep_csv, "table.md": sweep_markdown, "table.tex": sweep_latex}
    figures = figure_files({picture.name: partial(figure_of, picture) for picture in pictures(seen)})
    return {**{name: partial(render, seen) for name, render in texts.items()}, **figures}
