"""The page of an analysis of embedding spaces, and its table as CSV, Markdown and terminal text."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from adiabat.core.text import counted, integer, share
from adiabat.report.captions import glossary
from adiabat.report.charts import NARROW, WIDE, Chart, Spread, histogram, scatter
from adiabat.report.format import bounds, score, signed_pair
from adiabat.report.pages import Files, Group, Page, Terms, figure, group
from adiabat.report.tables import LEVEL, PAIRED, Cell, Column, Table, csv_of, pair_cell, value_cell
from adiabat.results.space_result import (
    QUANTILES,
    Distribution,
    Histogram,
    SpaceMap,
    SpaceNumber,
    SpaceResult,
    Whose,
)

_SEPARATION, _RATIO = "tower separation, AUC", "ratio, median"
_MEDIAN = QUANTILES.index(0.5)
_NEAR = (0.9, 1.1)
"""Distance from 1 within which ratios count as near 1."""

_GROUPS: dict[Whose, str] = {
    "both": "Queries beside documents",
    "queries": "Queries among themselves",
    "documents": "Documents among themselves",
}


def page(result: SpaceResult) -> Page:
    """The page of an analysis."""
    facts = [
        ("queries", f"{integer(result.looked_at)} of {integer(result.queries)}"),
        ("documents", f"{integer(result.sampled)} of {integer(result.documents)}"),
        ("random pairs of queries", integer(result.pairs)),
        ("resamples", integer(result.resamples)),
    ]
    if result.map is not None:
        facts.append(("perplexity of the map", f"{result.map.perplexity:g}"))
    drawn = [_numbers(result), _nearness(result), _ratio(result.distribution("ratio")), _map(result.map)]
    reading = Group(id="reading", title="Reading", sections=[Terms(terms=glossary("space"))])
    return Page(
        record=result,
        name="space",
        headline=headline(result),
        reservations=reservations(result),
        about=[("after", result.model), ("before", result.baseline or "")],
        sections=[*drawn, reading],
        facts=facts,
    )


def exports(result: SpaceResult) -> Files:
    """The tables beside the page."""
    return {"table.csv": partial(_csv, result), "table.md": partial(_markdown, result)}


def _csv(result: SpaceResult) -> str:
    """The unrounded numbers for other programs."""
    rows = []
    for number in result.numbers:
        row: dict[str, object] = {"name": number.name, "of": number.of}
        for side in ("after", "before", "difference"):
            low, high = getattr(number, f"{side}_interval") or (None, None)
            row |= {side: getattr(number, side), f"{side}_low": low, f"{side}_high": high}
        rows.append(row | {"formula": number.formula, "source": number.source})
    return csv_of(rows)


def _markdown(result: SpaceResult) -> str:
    """The table of the terminal as Markdown, with its caption."""
    (table,) = terminal(result)
    return table.to_markdown() + "".join(f"\n{sentence}\n" for sentence in table.caption)


def terminal(result: SpaceResult) -> list[Table]:
    """The numbers for the terminal and for notes; the caption explains those with a scale of their own."""
    caption = [headline(result), *_ratio_sentence(result)]
    table = Table(
        title=result.title, columns=_columns(result, () if result.baseline else LEVEL), caption=caption
    )
    for number in result.numbers:
        name = number.name if number.of == "both" else f"{number.of}: {number.name}"
        cells = _cells(result, number)
        if result.baseline:
            # Three intervals do not fit into a terminal: that of the difference stays.
            cells[:2] = [replace(cell, sub=()) for cell in cells[:2]]
        table.add(name, *cells, style="" if number.changed or not result.baseline else "muted")
    return [table]


def headline(result: SpaceResult) -> str:
    """What the numbers say about the towers, and whether they moved."""
    separation = result.number(_SEPARATION)
    assert separation.after is not None
    assert separation.after_interval is not None
    found = "lie apart: a linear classifier tells them apart"
    # An AUC of 0.5 is chance, and an interval that reaches it proves no difference.
    if separation.after_interval[0] <= 0.5:
        found = "lie among each other: a linear classifier does not tell them apart for certain"
    level = (
        f"AUC {score(separation.after)} {bounds(separation.after_interval)}, "
        "where 0.5 is chance and 1 is perfect"
    )
    sentence = f"Queries and their positives {found} ({level})."
    if separation.difference is None or separation.before is None:
        return sentence
    moved = "whether the towers came together or moved apart is undecided"
    if separation.changed and separation.difference:
        moved = "the towers moved apart" if separation.difference > 0 else "the towers came together"
    return f"{sentence} The AUC of the baseline is {score(separation.before)}: {moved}."


def reservations(result: SpaceResult) -> list[str]:
    """Reservations beside the headline."""
    queries = f"{integer(result.looked_at)} of {counted(result.queries, 'query')}"
    documents = f"{integer(result.sampled)} of {counted(result.documents, 'document')}"
    sample = f"Analysed: {queries} and {documents}."
    if result.looked_at < result.queries or result.sampled < result.documents:
        drawn = f"{queries}, each with one positive, and {documents}"
        sample = f"Drawn at random: {drawn}; nearest documents are from the whole store."
    sentences = [*_ratio_sentence(result), sample]
    if result.distinct < result.looked_at:
        positives = f"{integer(result.distinct)} different positives"
        sentences.append(
            f"{integer(result.looked_at)} queries have {positives}; queries that share one are drawn "
            "together."
        )
    nothing = (
        "These numbers do not measure how well queries find their documents; use adiabat evaluate for that."
    )
    return [*sentences, *result.notes, nothing]


def _ratio_sentence(result: SpaceResult) -> list[str]:
    """The median ratio in a sentence; empty if no ratio is defined."""
    ratio = result.number(_RATIO)
    if ratio.after is None:
        return []
    before = "" if ratio.before is None else f", before {score(ratio.before)}"
    level = f"{score(ratio.after)}{before} (median; 1: other queries are as near as their positives)"
    return [
        f"Similarity of a query to another query, divided by its similarity to the other's positive: {level}."
    ]


def _columns(result: SpaceResult, level: Sequence[str] = LEVEL) -> list[Column]:
    """The number, its values, and their difference."""
    name = Column("number", "name")
    if not result.baseline:
        return [name, Column("value", "number", level)]
    return [
        name,
        Column("before", "number", level),
        Column("after", "number", level),
        Column("difference", "number", PAIRED),
    ]


def _cells(result: SpaceResult, number: SpaceNumber) -> list[Cell]:
    """The values of a number with their intervals, and their difference."""
    text, least, most = score, 4, 6
    if number.name == "effective rank":
        # The only number that counts dimensions: dozens or hundreds.
        text, least, most = "{:.1f}".format, 1, 3
    after = value_cell(number.after, number.after_interval, text)
    if not result.baseline:
        return [after]
    before = value_cell(number.before, number.before_interval, text)
    moved = signed_pair(number.difference, number.difference_interval, least=least, most=most)
    return [before, after, pair_cell(moved, bold=number.changed)]


def _numbers(result: SpaceResult) -> Group:
    """All numbers, those of both towers first."""
    tables = {of: Table(title=title, columns=_columns(result), look="stack") for of, title in _GROUPS.items()}
    for number in result.numbers:
        about = Cell(number.name, [number.formula, number.source], bold=True)
        tables[number.of].add(about, *_cells(result, number))
    name = "compared" if result.baseline else "alone"
    return replace(group("space", name, *tables.values()), id="numbers")


def _histogram(
    distribution: Distribution,
    *,
    label: str,
    name: str,
    width: float = NARROW,
    band: tuple[float, float] | None = None,
) -> Chart:
    """The shares of values in each bin, with the medians."""
    spreads = []
    for model, side in ((distribution.after, "after"), (distribution.before, "before")):
        # Without a defined value there are no shares.
        if model and model.total:
            shares = [count / model.total for count in model.counts]
            side_label = side if distribution.before else ""
            spreads.append(Spread(side_label, shares, model.quantiles[_MEDIAN], filled=side == "after"))
    return histogram(name, distribution.edges, spreads, label=label, width=width, band=band)


def _nearness(result: SpaceResult) -> Group:
    """Histograms of the cosine of queries to the nearest document and to the positive."""
    figures = []
    for name, label in (("nearest", "cosine to nearest document"), ("positive", "cosine to positive")):
        chart = _histogram(result.distribution(name), label=label, name=name)
        figures.append(figure("space", name, chart, wide=False))
    return replace(group("space", "nearness", *figures), side_by_side=True)


def _ratio(ratio: Distribution) -> Group | None:
    """Histogram of the ratio; None if no ratio is defined."""
    if not any(spread.total for spread in (ratio.after, ratio.before) if spread):
        return None
    label = "cos(query, other query) / cos(query, other's positive)"
    wide = _histogram(ratio, label=label, name="ratio", width=WIDE, band=_NEAR)
    narrow = _histogram(ratio, label=label, name="ratio-narrow", band=_NEAR)
    drawn = figure("space", "ratio", wide, narrow=narrow, outside=outside(ratio))
    return replace(group("space", "beside", drawn), id="ratio")


def outside(distribution: Distribution) -> str:
    """Shares of the values outside a histogram."""
    shares = []
    for name, spread in (("after", distribution.after), ("before", distribution.before)):
        if spread and (outliers := _outside(spread)):
            shares.append(f"{name} {', '.join(outliers)}")
    return f"Not drawn: {'; '.join(shares)}." if shares else ""


def _outside(spread: Histogram) -> list[str]:
    """Shares of values that the bins do not hold, with the reason."""
    total = spread.total + spread.left_out
    counts = {"farther out": spread.below + spread.above, "with a denominator too near 0": spread.left_out}
    return [f"{share(count / total)} {position}" for position, count in counts.items() if count]


def _map(space_map: SpaceMap | None) -> Group | None:
    """The map of both towers, beside that of the baseline; None unless it was asked for."""
    if space_map is None:
        return None
    panels = {"": space_map.after}
    if space_map.before:
        panels = {"before": space_map.before, "after": space_map.after}
    drawn = []
    for title, panel in panels.items():
        drawn.append((title, [("their positives", panel.documents), ("queries", panel.queries)]))
    count = len(space_map.after.queries)
    return group("space", "map", figure("space", "scatter", scatter("map", drawn), count=count))
