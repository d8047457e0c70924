"""Sentences and numbers of an analysis of spaces, as people read them."""

from adiabat.core.text import DASH, NO_BREAK, counted, integer, share
from adiabat.report.wording import decimals_for, interval, score, signed
from adiabat.results.space_result import Distribution, Histogram, SpaceNumber, SpaceResult, Whose

SEPARATION, RATIO = "tower separation, AUC", "ratio, median"

GROUPS: dict[Whose, str] = {
    "both": "Queries beside documents",
    "queries": "Queries among themselves",
    "documents": "Documents among themselves",
}
"""Title of each part of the table."""


def headline(result: SpaceResult) -> str:
    """What the numbers say about the towers, in a sentence."""
    found = result.number(SEPARATION)
    assert found.after is not None
    assert found.after_interval is not None
    told = "tells" if found.after_interval[0] > 0.5 else "cannot tell"
    before = "" if found.before is None else f", before {score(found.before)}"
    level = f"AUC {score(found.after)} {bounds(found.after_interval)}{before} (0.5: the towers lie together, 1: apart)"
    change = f"; {_separation_change(found)}" if found.difference is not None else ""
    return f"A straight line {told} queries from their positives: {level}{change}."


def _separation_change(found: SpaceNumber) -> str:
    if not found.changed or not found.difference:
        return "no evidence that the towers came together or moved apart"
    return "the towers moved apart" if found.difference > 0 else "the towers came together"


def reservations(result: SpaceResult) -> list[str]:
    """What should be known beside the head line."""
    looked = f"{integer(result.looked_at)} of {counted(result.queries, 'query')}"
    sampled = f"{integer(result.sampled)} of {counted(result.documents, 'document')}"
    drawn = f"Looked at: {looked}, each with one positive, and {sampled}, drawn at random; the nearest document is that of the whole store."
    shared = (
        f"{integer(result.looked_at)} queries have {integer(result.distinct)} different positives; those that share one are drawn together."
    )
    return [
        *_ratio_sentence(result),
        drawn if result.looked_at < result.queries or result.sampled < result.documents else f"Looked at: {looked} and {sampled}.",
        *([shared] if result.distinct < result.looked_at else []),
        *result.notes,
        "None of this says how well queries find their documents: that is for adiabat evaluate.",
    ]


def scales(result: SpaceResult) -> list[str]:
    """What the numbers that bear a scale of their own say, for a table without formulas."""
    return [headline(result), *_ratio_sentence(result)]


def _ratio_sentence(result: SpaceResult) -> list[str]:
    found = result.number(RATIO)
    if found.after is None:
        return []
    before = "" if found.before is None else f", before {score(found.before)}"
    level = f"{score(found.after)}{before} (median; 1: other queries are as near as their positives)"
    return [f"A query is as similar to another query as to the other's positive in the ratio {level}."]


def bounds(ends: tuple[float, float] | None) -> str:
    """An interval of values that bear no sign of their own."""
    return "" if ends is None else f"[{score(ends[0])},{NO_BREAK}{score(ends[1])}]"


def value(number: SpaceNumber, what: float | None) -> str:
    """A value as the table shows it."""
    if what is None:
        return DASH
    return f"{what:.1f}" if number.name == "effective rank" else score(what)


def difference(number: SpaceNumber, *, with_interval: bool = True) -> str:
    """The difference after minus before."""
    if number.difference is None:
        return DASH
    text = signed(number.difference, decimals=_decimals(number))
    return f"{text} {difference_bounds(number)}" if with_interval and number.difference_interval else text


def difference_bounds(number: SpaceNumber) -> str:
    """The paired interval of the difference, rounded as `difference` rounds."""
    return "" if number.difference_interval is None else interval(number.difference_interval, decimals=_decimals(number))


def _decimals(number: SpaceNumber) -> int:
    least, most = (1, 3) if number.name == "effective rank" else (4, 6)
    return decimals_for([number.difference or 0.0, *(number.difference_interval or ())], least=least, most=most)


def outside(found: Distribution) -> str:
    """What a histogram does not show."""
    models = [("after", found.after), *([("before", found.before)] if found.before else [])]
    parts = [f"{name} {part}" for name, one in models if (part := _outside(one))]
    return f"Not drawn: {'; '.join(parts)}." if parts else ""


def _outside(one: Histogram) -> str:
    beyond = one.below + one.above
    every = one.total + one.left_out
    parts = [f"{share(beyond / every)} farther out"] if beyond else []
    parts += [f"{share(one.left_out / every)} with a denominator too near 0"] if one.left_out else []
    return ", ".join(parts)
