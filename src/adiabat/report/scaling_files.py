"""A scaling experiment, or a plan, on disk: the page and figures that are made from the record alone."""

from collections.abc import Callable
from functools import partial

import tomli_w

from adiabat.core.text import printable
from adiabat.report.chart_style import figure_files
from adiabat.report.scaling_curves import pictures
from adiabat.report.scaling_page import render_scaling
from adiabat.report.scaling_plots import figure_of
from adiabat.report.scaling_wording import toml_head
from adiabat.results.scaling_result import Advice, ScalingResult

RUN = "train.toml"
"""Of a plan: what carries it out."""


def files(result: ScalingResult) -> dict[str, Callable[[], str]]:
    """The page and figures, and of a plan ``train.toml``."""
    texts: dict[str, Callable[[], str]] = {"report.html": partial(render_scaling, result)}
    if result.advice is not None and result.advice.settings:
        texts[RUN] = partial(run_toml, result.advice)
    return {**texts, **figure_files({picture.name: partial(figure_of, picture) for picture in pictures(result)})}


def run_toml(advice: Advice) -> str:
    """The training run that carries advice out."""
    lines = "".join(f"# {' '.join(printable(line).split())}\n" for line in toml_head(advice))
    return lines + "\n" + tomli_w.dumps(advice.settings)
