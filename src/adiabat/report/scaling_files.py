"""A scaling experiment, or a plan, on disk: its record, and the page and figures that are made from the record alone."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tomli_w

from adiabat.core.text import printable
from adiabat.report.scaling_curves import pictures
from adiabat.report.scaling_page import render_scaling
from adiabat.report.scaling_plots import figure_of
from adiabat.report.scaling_wording import toml_head
from adiabat.report.svg import write_figures
from adiabat.results.record import read_record, write_record
from adiabat.results.scaling_result import SCALING_FORMAT, Advice, ScalingResult

RUN = "train.toml"
"""Of a plan: what carries it out."""


def write_scaling(result: ScalingResult, folder: Path) -> None:
    """Write ``result.json`` and ``report.html``, and of a plan ``train.toml``, all or none, then the figures, each whole."""
    texts = {"report.html": partial(render_scaling, result)}
    if result.advice is not None and result.advice.settings:
        texts[RUN] = partial(run_toml, result.advice)
    write_record(result.to_json(), folder / "result.json", beside=texts)
    write_figures(folder, {picture.name: partial(figure_of, picture) for picture in pictures(result)})


def run_toml(advice: Advice) -> str:
    """The training run that carries advice out."""
    lines = "".join(f"# {' '.join(printable(line).split())}\n" for line in toml_head(advice))
    return lines + "\n" + tomli_w.dumps(advice.settings)


def read_scaling(path: Path) -> ScalingResult:
    """Read the record that `write_scaling` wrote."""
    return read_record(path, ScalingResult, version=SCALING_FORMAT, misfits=_misfits, command="scaling")


def _misfits(result: ScalingResult) -> Iterator[str]:
    names = Counter(row.name for row in result.runs)
    yield from (f"run {name} must be there once, got {count}" for name, count in names.items() if count > 1)
    yield from (f"left_out must name runs, got {name}" for name in result.left_out if name not in names)
    for row in result.runs:
        if row.name not in result.left_out and not (row.loss_of(result.loss) or 0) > 0:
            yield f"run {row.name} must have a {result.loss} loss above 0, or be left out"
    for one in result.kinds:
        yield from (f"{one.kind}: a profile must have a loss for each size" for own in one.profiles if len(own.sizes) != len(own.losses))
        for line in (one.frontier, one.sizes):
            if line is not None and len(line.at) != len(line.values):
                yield f"{one.kind}: a line must have a value at each place"
