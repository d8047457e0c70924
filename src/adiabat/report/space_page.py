"""The page of an analysis of spaces, made from its record alone, and its files; see `templates` for what a page may hold."""

from collections.abc import Callable
from functools import partial
from typing import Any

from adiabat.report import space_plots as plots
from adiabat.report import space_wording as words
from adiabat.report import wording
from adiabat.report.page_templates import given, picture, template
from adiabat.report.space_table import csv_table, markdown_table
from adiabat.results.space_result import SpaceNumber, SpaceResult


def files(result: SpaceResult) -> dict[str, Callable[[], str]]:
    """The page and its tables."""
    texts = {"report.html": render_space, "table.csv": csv_table, "table.md": markdown_table}
    return {name: partial(render, result) for name, render in texts.items()}


def render_space(result: SpaceResult) -> str:
    """The page of an analysis."""
    ratio = result.distribution("ratio")
    return template("space_page.html.j2").render(
        result=result,
        command=result.command,
        headline=words.headline(result),
        reservations=words.reservations(result),
        compared=result.baseline is not None,
        groups=[_group(title, [one for one in result.numbers if one.of == of]) for of, title in words.GROUPS.items()],
        nearest=picture(plots.cosines(result.distribution("nearest"), label="cosine to nearest document", name="nearest")),
        positive=picture(plots.cosines(result.distribution("positive"), label="cosine to positive", name="positive")),
        ratio=picture(plots.ratio(ratio)),
        ratio_outside=words.outside(ratio),
        map=None if result.map is None else picture(plots.towers(result.map)),
        facts=_facts(result),
        given=given(("inputs", "Inputs", result.inputs), ("settings", "Settings", result.settings)),
        versions=sorted(result.versions.items()),
    )


def _group(title: str, numbers: list[SpaceNumber]) -> dict[str, Any]:
    return {"title": title, "rows": [_row(one) for one in numbers]}


def _row(one: SpaceNumber) -> dict[str, Any]:
    return {
        "name": one.name,
        "formula": one.formula,
        "source": one.source,
        "after": words.value(one, one.after),
        "after_interval": words.bounds(one.after_interval),
        "before": words.value(one, one.before),
        "before_interval": words.bounds(one.before_interval),
        "difference": words.difference(one, with_interval=False),
        "difference_interval": words.difference_bounds(one),
        "changed": one.changed,
    }


def _facts(result: SpaceResult) -> list[tuple[str, str]]:
    facts = [
        ("made", result.created),
        ("queries", f"{wording.integer(result.looked_at)} of {wording.integer(result.queries)}"),
        ("documents", f"{wording.integer(result.sampled)} of {wording.integer(result.documents)}"),
        ("random pairs of queries", wording.integer(result.pairs)),
        ("resamples", wording.integer(result.resamples)),
        ("seed", str(result.seed)),
        ("time", wording.duration(result.seconds)),
    ]
    return facts if result.map is None else [*facts, ("perplexity of the map", f"{result.map.perplexity:g}")]
