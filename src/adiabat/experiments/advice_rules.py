"""Rules of ``adiabat advise``: from measured figures to one recommendation, in words for whoever decides."""

import math
from dataclasses import dataclass

from adiabat.core.text import MINUS, counted, integer, two_digits
from adiabat.core.wording import call_of
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
    3. "fuse with BM25, then tune": fusion gains 2 % or more, and no less than the linear map, which gains
       1 % or more on documents that it was not fitted on.
    4. "fuse with BM25": fusion gains 2 % or more, and no less than the linear map.
    5. "tune the query tower": the linear map gains 1 % or more on documents that it was not fitted on.
    6. "re-embed with a better model": a quarter of the queries or more have no answer among the first
       100 documents.
    7. "get more data": neither BM25 nor the map could be measured.
    8. "get more data": the interval of fusion or the map reaches above 2 %, or the set would not show a
       gain of 2 % by tuning.
    9. "leave it": neither reaches its threshold, and both intervals exclude a gain of 2 %.

    A gain counts if the paired comparison finds it better.

    Args:
        target: The figures of the target.
        detectable: The gain in percent by tuning that all of its queries would show with 80 % probability;
            None if nothing varies.
        fusion_detectable: The same for the differences of fusion.
    """
    choice, why = _first_rule(target, detectable, fusion_detectable)
    return Recommendation(choice, f"{why} {_figures(target)}")


def _first_rule(
    target: AdvisedSet, detectable: float | None, fusion_detectable: float | None
) -> tuple[Choice, str]:
    queries = counted(target.queries, "query")
    room = target.headroom
    fused, mapped = _gain(target.fused), _gain(target.mapped)
    over_fused = target.bm25_over_fused
    # The order of the rules decides between several that apply.
    if target.queries < FEW_QUERIES:
        few = (
            f"{queries} that the model was not trained on are too few to tune with, and to test what it did."
        )
        return "get more data", few
    if _gain(target.bm25) >= WORTH_BM25 and (over_fused is None or _gain(over_fused) >= WORTH):
        return "re-embed with a better model", "BM25, which needs no model, outperforms the model."
    if fused >= max(WORTH_BM25, mapped):
        gains = "Fusion with BM25 gains without any training"
        if mapped >= WORTH:
            also = "and a linear map of the query vectors on documents that it was not fitted on."
            return "fuse with BM25, then tune", f"{gains}, {also}"
        return "fuse with BM25", f"{gains}. Whether tuning does, {call_of('tune')} tries in its first epoch."
    if mapped >= WORTH:
        gains = "A linear map of the query vectors gains on documents that it was not fitted on."
        return "tune the query tower", gains
    if room.beyond >= LOST * room.total:
        lost = f"{100 * room.beyond / room.total:.0f} % of the queries have no answer among the first 100."
        return "re-embed with a better model", lost
    if target.fused is None and target.mapped is None:
        return "get more data", "Nothing is known of what would help: add texts to the store, or queries."
    possible = []
    if _may_gain(target.fused):
        possible.append(f"Fusion with BM25 may gain {SHARP:.0f} %: {_test(target, fusion_detectable)}.")
    if _may_gain(target.mapped):
        possible.append(f"A linear map may gain {SHARP:.0f} %: {_test(target, detectable)}.")
    if not possible and (detectable is None or detectable > SHARP):
        possible.append(f"Tuning may gain {SHARP:.0f} %: {_test(target, detectable)}.")
    if possible:
        return "get more data", " ".join(possible)
    return "leave it", (
        f"No interval reaches above {SHARP:.0f} %, and {queries} would have shown a gain of "
        f"{detectable:.1f} % or more by tuning."
    )


def _figures(target: AdvisedSet) -> str:
    """What was measured."""
    changes = {
        "BM25": target.bm25,
        "BM25 over its fusion with the model": target.bm25_over_fused,
        "that fusion": target.fused,
        "a linear map of the query vectors": target.mapped,
    }
    gains = [f"{name} {percent_of(change)}" for name, change in changes.items() if change is not None]
    return f"Gains: {'; '.join(gains) or 'neither of BM25 nor of a linear map was any measured'}."


def _may_gain(change: Change | None) -> bool:
    """Whether a gain of `SHARP` is not excluded."""
    if change is None or change.improvement_interval is None:
        return False
    return change.improvement_interval[1] > SHARP


def _test(target: AdvisedSet, detectable: float | None) -> str:
    """The queries that would tell whether a candidate gains `SHARP`."""
    queries = counted(target.queries, "query")
    if detectable is not None and detectable > SHARP:
        # The detectable gain falls with the square root of the number of queries.
        needed = counted(two_digits(target.queries * (detectable / SHARP) ** 2), "query")
        return f"{queries} would show a gain of {detectable:.1f} %, about {needed} one of {SHARP:.0f} %"
    if target.measured < target.queries:
        return f"measure more than {integer(target.measured)} of {queries} with advise.queries"
    return "four times as many queries would halve its interval"


def _gain(change: Change | None) -> float:
    """The gain in percent if the comparison finds it better, infinite over a baseline of 0; else 0."""
    if change is None or change.verdict != "better":
        return 0.0
    return math.inf if change.improvement is None else change.improvement


def percent_of(change: Change) -> str:
    """A change in percent with its interval; in points over a baseline of 0."""
    assert change.difference is not None
    said = f"{100 * change.difference:+.1f} points"
    if change.improvement is not None:
        said = f"{change.improvement:+.1f} %"
    if change.improvement_interval is not None:
        low, high = change.improvement_interval
        said += f" [{low:+.1f}, {high:+.1f}]"
    return said.replace("-", MINUS)
