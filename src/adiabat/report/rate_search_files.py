"""A search for the largest safe rate on disk: its record, and the page, table and figures that are made from the record alone."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from adiabat.report.rate_search_page import render_safe_rate
from adiabat.report.rate_search_plots import pictures
from adiabat.report.rate_search_table import safe_rate_csv
from adiabat.report.svg import write_figures
from adiabat.results.rate_search_result import SAFE_RATE_FORMAT, Rung, SafeRate
from adiabat.results.record import read_record, write_record


def write_safe_rate(result: SafeRate, folder: Path) -> None:
    """Write ``result.json``, ``report.html`` and ``table.csv``, all or none, then the figures, each whole."""
    texts = {"report.html": render_safe_rate, "table.csv": safe_rate_csv}
    write_record(result.to_json(), folder / "result.json", beside={name: partial(render, result) for name, render in texts.items()})
    write_figures(folder, {picture.name: partial(picture.draw, result) for picture in pictures()})


def read_safe_rate(path: Path) -> SafeRate:
    """Read the record that `write_safe_rate` wrote."""
    return read_record(path, SafeRate, version=SAFE_RATE_FORMAT, misfits=_misfits, command="safe-rate")


def _misfits(result: SafeRate) -> Iterator[str]:
    if not result.rates or not result.rungs:
        yield f"there must be a rate and a run of it, got {len(result.rates)} rates and {len(result.rungs)} runs"
    for name, number in (
        ("limit", result.limit),
        ("steps", result.steps),
        *((f"rates[{at}]", rate) for at, rate in enumerate(result.rates)),
    ):
        if number <= 0:
            yield f"{name} must be above 0, got {number}"
    if result.noise and not result.noise.get(result.measure, 0) > 0:
        yield f"noise must be above 0 by {result.measure}, which is limited, got {result.noise.get(result.measure)}"
    if result.rate is not None and result.rate not in (rung.rate for rung in result.rungs):
        yield f"rate must be one that a run was made of, got {result.rate:g}"
    for place, rung in enumerate(result.rungs):
        yield from (f"rungs[{place}]: {fault}" for fault in _faults(rung, result.measure))


def _faults(rung: Rung, measure: str) -> Iterator[str]:
    if rung.rate <= 0:
        yield f"rate must be above 0, got {rung.rate}"
    if any(before >= after for before, after in pairwise([0, *rung.steps])):
        yield "steps must be above 0 and ascend"
    if measure not in rung.drift:
        yield f"there must be the drift by {measure}, got {', '.join(rung.drift) or 'none'}"
    lengths = {name: len(values) for name, values in rung.drift.items() if len(values) != len(rung.steps)}
    yield from (f"there must be {len(rung.steps)} values of {name}, one for each look, got {found}" for name, found in lengths.items())
    if rung.left_at is None and not rung.steps:
        yield "a run that stayed inside must have been looked at"
    if rung.left_at is not None and rung.left_at < max(rung.steps, default=0):
        yield f"left_at must not be before the last look at step {rung.steps[-1]}, got {rung.left_at}"
