"""The page of an analysis of embedding spaces, and its table as CSV, Markdown and terminal text."""

from collections.abc import Callable, Sequence

from adiabat.core.text import NO_BREAK, counted, integer, share
from adiabat.report.charts import NARROW, WIDE, Chart, Spread, histogram, scatter
from adiabat.report.computed_tables import Column, Table
from adiabat.report.format import bounds, score, signed_pair
from adiabat.report.pages import Figure, Group, Page, Terms
from adiabat.report.tables import LEVEL, PAIRED, Cell, pair_cell, value_cell
from adiabat.results.space_result import (
    QUANTILES,
    Distribution,
    Histogram,
    MapPanel,
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

_TERMS = [
    (
        "Vectors",
        "All have unit length. “Queries beside documents” are pairs of a query and "
        "one positive, the first of the highest grade; "
        "“documents among themselves” are drawn from the whole store.",
    ),
    (
        "Intervals",
        f"The middle 95{NO_BREAK}% over resamples of queries (those sharing a positive "
        "together) or documents, the same before and "
        "after. They are not corrected: one in a dozen may exclude zero by chance. Numbers "
        "without an interval depend on the sample size.",
    ),
    (
        "Tower separation",
        "AUC of a logistic regression that tells query vectors from document vectors, "
        "on held-out pairs: 0.5 is chance, 1 is "
        "perfect separation. The interval is over queries, not over regressions.",
    ),
    (
        "Ratio",
        "Pairs whose denominator is below 0.01 in absolute value are excluded and counted. "
        "If similarities scatter around zero, read the "
        "difference instead.",
    ),
    (
        "Uniformity and alignment",
        "As in Wang and Isola: lower alignment means queries nearer to their positives; "
        "lower uniformity means vectors spread more "
        "evenly over the sphere. A good space is low in both.",
    ),
    (
        "Anisotropy",
        "The mean cosine of random pairs: 0 for evenly spread directions, 1 if all vectors are equal.",
    ),
]


def page(result: SpaceResult) -> Page:
    """The page of an analysis."""
    about = [("after", result.model), *([("before", result.baseline)] if result.baseline else [])]
    reading = Group(id="reading", title="Reading", sections=[Terms(terms=_TERMS)])
    return Page(
        record=result,
        name="space",
        headline=headline(result),
        reservations=reservations(result),
        about=about,
        sections=[
            _numbers(result),
            _nearness(result),
            _ratio(result),
            _map(result.map) if result.map else None,
            reading,
        ],
        facts=[
            ("queries", f"{integer(result.looked_at)} of {integer(result.queries)}"),
            ("documents", f"{integer(result.sampled)} of {integer(result.documents)}"),
            *(("random pairs of queries", integer(result.pairs)), ("resamples", integer(result.resamples))),
            ("perplexity of the map", "" if result.map is None else f"{result.map.perplexity:g}"),
        ],
    )


def exports(result: SpaceResult) -> dict[str, Callable[[], str]]:
    """The tables beside the page."""
    lines = "".join(f"\n{sentence}\n" for sentence in _scales(result))
    return {"table.csv": _long(result).to_csv, "table.md": lambda: terminal(result)[0].to_markdown() + lines}


def terminal(result: SpaceResult) -> list[Table]:
    """The numbers without formulas, for the terminal and for notes."""
    head = Column(
        "number", lambda number: number.name if number.of == "both" else f"{number.of}: {number.name}", "name"
    )
    dim = "muted" if result.baseline else ""
    return [
        Table(
            title=result.title,
            columns=[head, *_columns(result, bare=result.baseline is not None)],
            rows=result.numbers,
            caption=_scales(result),
            row_class=lambda number: "" if number.changed else dim,
        )
    ]


def headline(result: SpaceResult) -> str:
    """What the numbers say about the towers, and whether they moved."""
    separation = result.number(_SEPARATION)
    assert separation.after is not None
    assert separation.after_interval is not None
    found = "lie apart: a linear classifier tells them apart"
    if separation.after_interval[0] <= 0.5:
        found = "lie among each other: a linear classifier does not tell them apart for certain"
    level = (
        f"AUC {score(separation.after)} {bounds(separation.after_interval)}, "
        "where 0.5 is chance and 1 is perfect"
    )
    sentence = f"Queries and their positives {found} ({level})."
    if separation.difference is None or separation.before is None:
        return sentence
    moved = "no evidence that the towers came together or moved apart"
    if separation.changed and separation.difference:
        moved = "the towers moved apart" if separation.difference > 0 else "the towers came together"
    return f"{sentence} The AUC of the baseline is {score(separation.before)}: {moved}."


def reservations(result: SpaceResult) -> list[str]:
    """Reservations beside the headline."""
    queries = f"{integer(result.looked_at)} of {counted(result.queries, 'query')}"
    documents = f"{integer(result.sampled)} of {counted(result.documents, 'document')}"
    sample = (
        f"Drawn at random: {queries}, each with one positive, and {documents}; "
        "nearest documents are from the whole store."
        if result.looked_at < result.queries or result.sampled < result.documents
        else f"Analysed: {queries} and {documents}."
    )
    positives = f"{integer(result.distinct)} different positives"
    shared = (
        f"{integer(result.looked_at)} queries have {positives}; queries that share one are drawn together."
    )
    return [
        *_ratio_sentence(result),
        sample,
        *([shared] if result.distinct < result.looked_at else []),
        *result.notes,
        "These numbers do not measure how well queries find their documents; use adiabat evaluate for that.",
    ]


def _scales(result: SpaceResult) -> list[str]:
    """Interpretation of numbers with a scale of their own, for a table without formulas."""
    return [headline(result), *_ratio_sentence(result)]


def _ratio_sentence(result: SpaceResult) -> list[str]:
    ratio = result.number(_RATIO)
    if ratio.after is None:
        return []
    before = "" if ratio.before is None else f", before {score(ratio.before)}"
    level = f"{score(ratio.after)}{before} (median; 1: other queries are as near as their positives)"
    return [
        f"Similarity of a query to another query, divided by its similarity to the other's positive: {level}."
    ]


def _columns(result: SpaceResult, *, bare: bool = False) -> list[Column]:
    """Values with their intervals, and their difference; `bare` omits the intervals of values, which do not
    fit into a terminal.
    """

    def is_rank(number: SpaceNumber) -> bool:
        return number.name == "effective rank"

    def level(head: str, field: str) -> Column:
        def cell(number: SpaceNumber) -> Cell:
            text = "{:.1f}".format if is_rank(number) else score
            return value_cell(
                getattr(number, field), None if bare else getattr(number, f"{field}_interval"), text
            )

        return Column(head, cell, "number", [] if bare else LEVEL)

    def difference(number: SpaceNumber) -> Cell:
        least, largest = (1, 3) if is_rank(number) else (4, 6)
        pair = signed_pair(number.difference, number.difference_interval, least=least, most=largest)
        return pair_cell(pair, bold=number.changed)

    if not result.baseline:
        return [level("value", "after")]
    return [
        level("before", "before"),
        level("after", "after"),
        Column("difference", difference, "number", PAIRED),
    ]


def _numbers(result: SpaceResult) -> Group:
    if result.baseline:
        lead = (
            "Before and after use the same queries, documents, pairs and resamples. "
            f"Intervals are 95{NO_BREAK}% bootstrap intervals; "
            "those of differences are paired. Bold: the interval excludes zero."
        )
    else:
        lead = f"Intervals are 95{NO_BREAK}% bootstrap intervals. There is no baseline."
    columns = [
        Column(
            "number", lambda number: Cell(number.name, [number.formula, number.source], bold=True), "name"
        ),
        *_columns(result),
    ]
    tables = [
        Table(
            title=title,
            columns=columns,
            rows=[number for number in result.numbers if number.of == of],
            look="stack",
        )
        for of, title in _GROUPS.items()
    ]
    return Group(id="numbers", title="Numbers", lead=lead, sections=tables)


def _histogram(
    distribution: Distribution,
    *,
    label: str,
    name: str,
    width: float = NARROW,
    band: tuple[float, float] | None = None,
) -> Chart:
    models = [
        (distribution.after, "after" if distribution.before else "", True),
        (distribution.before, "before", False),
    ]
    spreads = [
        Spread(
            label, [100 * count / spread.total for count in spread.counts], spread.quantiles[_MEDIAN], filled
        )
        for spread, label, filled in models
        if spread and spread.total
    ]
    return histogram(name, distribution.edges, spreads, label=label, width=width, band=band)


def _nearness(result: SpaceResult) -> Group:
    def figure(name: str, of: str, caption: str) -> Figure:
        return Figure(
            charts=[_histogram(result.distribution(name), label=f"cosine to {of}", name=name)],
            wide=False,
            label=f"Histogram of the cosine of queries to their {of}; the table above holds the means",
            caption=caption,
        )

    return Group(
        id="nearness",
        title="How near documents are",
        lead="Cosine of each query to its nearest document in the whole store, and to its "
        "own positive. If the two differ much, other "
        "documents are nearer than the right one.",
        sections=[
            figure("nearest", "nearest document", "Nearest document. Marks at the foot: medians."),
            figure("positive", "positive", "Positive, in the same bins."),
        ],
        side_by_side=True,
    )


def _ratio(result: SpaceResult) -> Group | None:
    """Histogram of the ratio; None if no ratio is defined."""
    ratio = result.distribution("ratio")
    if not any(spread.total for spread in (ratio.after, ratio.before) if spread):
        return None
    label = "cos(query, other query) / cos(query, other's positive)"
    return Group(
        id="ratio",
        title="Queries beside documents",
        lead="For two random queries: their similarity, divided by the similarity of the "
        "first to the other’s positive. Near 1, a query "
        "and its positive look alike to other queries; far from 1, the towers are separate.",
        sections=[
            Figure(
                charts=[_histogram(ratio, label=label, name="ratio", width=WIDE, band=_NEAR)],
                narrow=_histogram(ratio, label=label, name="ratio-narrow", band=_NEAR),
                label="Histogram of the ratio of query to query and query to document "
                "similarities; the table above holds median and "
                "share near 1",
                caption=f"Shaded: within 0.1 of 1. Marks at the foot: medians. {outside(ratio)}",
            )
        ],
    )


def outside(distribution: Distribution) -> str:
    """Shares of the values outside a histogram."""
    models = [
        ("after", distribution.after),
        *([("before", distribution.before)] if distribution.before else []),
    ]
    shares = [f"{name} {', '.join(outliers)}" for name, spread in models if (outliers := _outside(spread))]
    return f"Not drawn: {'; '.join(shares)}." if shares else ""


def _outside(spread: Histogram) -> list[str]:
    total = spread.total + spread.left_out
    counts = {"farther out": spread.below + spread.above, "with a denominator too near 0": spread.left_out}
    return [f"{share(count / total)} {position}" for position, count in counts.items() if count]


def _map(space_map: SpaceMap) -> Group:
    def groups(panel: MapPanel) -> list[tuple[str, Sequence[tuple[float, float]]]]:
        return [("their positives", panel.documents), ("queries", panel.queries)]

    panels = [("before", groups(space_map.before))] if space_map.before else []
    panels.append(("after" if space_map.before else "", groups(space_map.after)))
    turned = (
        " Both panels start from the same layout, the first two principal components "
        "of “before”; they may still rotate or mirror."
    )
    return Group(
        id="map",
        title="Map of both towers",
        lead="The same queries and their positives, placed by t-SNE: neighbours on the "
        "sphere stay neighbours in the plane. Distances "
        "between far groups, and their sizes, mean little.",
        sections=[
            Figure(
                charts=[scatter("map", panels)],
                label="Map of query and document vectors; tower separation in the table above quantifies it",
                caption=f"{len(space_map.after.queries)} queries, each with its "
                f"positive.{turned * bool(space_map.before)}",
            )
        ],
    )


def _long(result: SpaceResult) -> Table:
    """The unrounded numbers for other programs."""

    def three(head: str) -> list[Column]:
        """A value and the ends of its interval."""
        return [
            Column(head, lambda number: getattr(number, head)),
            Column(f"{head}_low", lambda number: (getattr(number, f"{head}_interval") or (None, None))[0]),
            Column(f"{head}_high", lambda number: (getattr(number, f"{head}_interval") or (None, None))[1]),
        ]

    columns = [Column("name", lambda number: number.name), Column("of", lambda number: number.of)]
    columns += [*three("after"), *three("before"), *three("difference")]
    columns += [
        Column("formula", lambda number: number.formula),
        Column("source", lambda number: number.source),
    ]
    return Table(columns=columns, rows=result.numbers)
