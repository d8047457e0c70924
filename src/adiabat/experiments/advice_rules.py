"""Rules of ``adiabat advise``: from measured figures to one recommendation, in words for whoever decides."""

import math
from dataclasses import dataclass, replace

from adiabat.core.text import MINUS, counted, integer, two_digits
from adiabat.results.advice_result import AdvisedSet, Choice
from adiabat.results.evaluation_result import Change

FEWEST_QUERIES = 10
"""Fewest queries to measure with at all."""

FEW_QUERIES = 50
"""Below this number of queries, neither tuning nor a test of it can succeed."""

WORTH = 1.0
"""Smallest gain in percent that is worth a change."""

WORTH_BM25 = 2.0
"""Smallest gain in percent that is worth running a second index beside the store."""

SHARP = 2.0
"""A set that would show this gain in percent, and excludes it, says that there is little to gain."""

LOST = 0.25
"""Share of queries without an answer among the first 100 from which the stored vectors are to blame, if no
map of the queries helps."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What to do, and why."""

    choice: Choice
    reason: str


def recommend(
    target: AdvisedSet, detectable: float | None, fusion_detectable: float | None
) -> Recommendation:
    """The first rule that applies.

    1. "get more data": there are fewer than 50 queries.
    2. "re-embed with a better model": BM25 is better than the model by 2 % or more, and than the fusion
       by 1 % or more.
    3. "fuse with BM25": fusion gains 2 % or more, and no less than the linear map.
    4. "tune the query tower": the linear map gains 1 % or more on documents that it was not fitted on.
    5. "re-embed with a better model": a quarter of the queries or more have no answer among the first
       100 documents.
    6. "get more data": neither BM25 nor the map could be measured.
    7. "get more data": the interval of fusion or the map reaches above 2 %, or the set would not show a
       gain of 2 % by tuning.
    8. "leave it": neither reaches its threshold, and both intervals exclude a gain of 2 %.

    A gain counts if the paired comparison finds it better.

    Args:
        target: The figures of the target.
        detectable: The gain in percent by tuning that all of its queries would show with 80 % probability;
            None if nothing varies.
        fusion_detectable: The same for the differences of fusion.
    """
    if target.queries < FEW_QUERIES:
        unseen = ", which the model was not trained on," if target.left_out else ""
        return Recommendation(
            "get more data",
            f"{counted(target.queries, 'query')}{unseen} are too few to tune "
            "with, and to show what tuning did.",
        )
    over_fused = target.bm25_over_fused
    if _gain(target.bm25) >= WORTH_BM25 and (over_fused is None or _gain(over_fused) >= WORTH):
        fusion = (
            "; the fusion of both was not measured"
            if over_fused is None
            else f" and the fusion of both by {_percent(over_fused)}"
        )
        return Recommendation(
            "re-embed with a better model",
            f"BM25, which needs no model, outperforms the model by {_percent(target.bm25)}{fusion}.",
        )
    chosen = _without_new_vectors(target, detectable, fusion_detectable)
    return replace(chosen, reason=chosen.reason + _bm25_alone(target))


def _without_new_vectors(
    target: AdvisedSet, detectable: float | None, fusion_detectable: float | None
) -> Recommendation:
    fused, mapped = _gain(target.fused), _gain(target.mapped)
    if fused >= max(WORTH_BM25, mapped):
        also = (
            f" A linear map of the query vectors gains {_percent(target.mapped)}: tuning may add to it."
            if mapped >= WORTH
            else ""
        )
        return Recommendation(
            "fuse with BM25", f"Fusion with BM25 gains {_percent(target.fused)} without any training.{also}"
        )
    if mapped >= WORTH:
        also = f" Fusion with BM25 gains {_percent(target.fused)}." if fused >= WORTH else ""
        return Recommendation(
            "tune the query tower",
            f"A linear map of the query vectors gains {_percent(target.mapped)} on "
            f"documents that it was not fitted on.{also}",
        )
    return _nothing_gains(target, detectable, fusion_detectable)


def _bm25_alone(target: AdvisedSet) -> str:
    """A sentence on BM25 where it is better than the model, and not shown to be better than the fusion by
    enough.
    """
    if _gain(target.bm25) < WORTH_BM25:
        return ""
    return (
        f" BM25 alone gains {_percent(target.bm25)}; its difference from the "
        f"fusion is {_percent(target.bm25_over_fused)}."
    )


def _nothing_gains(
    target: AdvisedSet, detectable: float | None, fusion_detectable: float | None
) -> Recommendation:
    room = target.headroom
    candidates = (
        ("fusion with BM25", WORTH_BM25, target.fused, fusion_detectable),
        ("a linear map of the query vectors", WORTH, target.mapped, detectable),
    )
    names = " or ".join(
        f"{worth:.0f} % from {name}" for name, worth, change, _ in candidates if change is not None
    )
    tried = (
        f"No comparison shows a gain of {names}"
        if names
        else "Neither BM25 nor a linear map could be measured"
    )
    if room.beyond >= LOST * room.total:
        return Recommendation(
            "re-embed with a better model",
            f"{tried}, and {100 * room.beyond / room.total:.0f} % of the queries have "
            "no answer among the first 100 documents.",
        )
    if not names:
        return Recommendation(
            "get more data",
            f"{tried}, so that nothing is known of what would help: add texts to the store, or queries.",
        )
    if possible := [
        _possible(target, name, change, gain) for name, _, change, gain in candidates if _may_gain(change)
    ]:
        return Recommendation("get more data", " ".join([f"{tried}.", *possible]))
    if detectable is None or detectable > SHARP:
        shown = "" if detectable is None else f" {_would_show(target.queries, detectable)}."
        return Recommendation("get more data", f"{tried}.{shown}")
    shown = (
        f"{counted(target.queries, 'query')} would have shown a gain of {detectable:.1f} % or more by tuning"
    )
    return Recommendation("leave it", f"{tried}: no interval reaches above {SHARP:.0f} %, and {shown}.")


def _may_gain(change: Change | None) -> bool:
    """Whether a gain of `SHARP` is not excluded."""
    return (
        change is not None
        and change.improvement_interval is not None
        and change.improvement_interval[1] > SHARP
    )


def _possible(target: AdvisedSet, name: str, change: Change | None, detectable: float | None) -> str:
    """A sentence on a candidate whose gain of `SHARP` is not excluded, and on the queries that would tell."""
    if detectable is not None and detectable > SHARP:
        more = _would_show(target.queries, detectable)
    elif target.measured < target.queries:
        more = (
            f"measure more than {integer(target.measured)} of "
            f"{counted(target.queries, 'query')} with advise.queries"
        )
    else:
        more = "four times as many queries would halve this interval"
    return f"{name[0].upper()}{name[1:]} may gain {SHARP:.0f} % ({_percent(change)}): {more}."


def _would_show(queries: int, detectable: float) -> str:
    needed = counted(_needed(queries, detectable), "query")
    return (
        f"{counted(queries, 'query')} would show a gain of {detectable:.1f} % or "
        f"more; about {needed} would show {SHARP:.0f} %"
    )


def _needed(queries: int, detectable: float) -> int:
    """Queries that show a gain of `SHARP`, to two digits."""
    return two_digits(queries * (detectable / SHARP) ** 2)


def _gain(change: Change | None) -> float:
    """The gain in percent if the comparison finds it better, infinite over a baseline of 0; else 0."""
    if change is None or change.verdict != "better":
        return 0.0
    return math.inf if change.improvement is None else change.improvement


def _percent(change: Change | None) -> str:
    assert change is not None
    assert change.difference is not None
    if change.improvement is None:
        return f"{100 * change.difference:+.1f} points".replace("-", MINUS)
    ends = change.improvement_interval
    return (
        f"{change.improvement:+.1f} %" + ("" if ends is None else f" [{ends[0]:+.1f}, {ends[1]:+.1f}]")
    ).replace("-", MINUS)
