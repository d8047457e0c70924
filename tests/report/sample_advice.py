"""Advice records for the tests of the report room and of the rules."""

from dataclasses import replace
from typing import Any

from adiabat.results.advice_result import Advice, AdvisedSet, Headroom
from adiabat.results.evaluation_result import Change
from tests.report.sample_results import make_change


def make_gain(percent: float, *, half_width: float = 1.0, before: float = 0.5) -> Change:
    """A change of so many percent, whose interval reaches `half_width` percent to either side."""
    return make_change(before, before * (1 + percent / 100), half_width=before * half_width / 100)


def make_advised(
    *,
    bm25: float | None = -5.0,
    fused: float | Change | None = 0.0,
    mapped: float | Change | None = 0.0,
    queries: int = 800,
    headroom: tuple[int, int, int] = (600, 150, 50),
    **more: Any,
) -> AdvisedSet:
    """A target whose rankings gain so many percent."""
    gains = {"bm25": bm25, "fused": fused, "mapped": mapped}
    changes = {name: make_gain(gain) if isinstance(gain, float) else gain for name, gain in gains.items()}
    if isinstance(bm25, float) and isinstance(fused, float):
        gain, level = 100 * (bm25 - fused) / (100 + fused), 0.5 * (1 + fused / 100)
        changes["bm25_over_fused"] = make_gain(gain, before=level)
    sizes, own = (queries, queries, 5183), make_change(None, 0.5)
    return replace(AdvisedSet("cs", "target", *sizes, Headroom(*headroom), own, **changes), **more)


def make_advice(**more: Any) -> Advice:
    retained = replace(make_advised(bm25=None, fused=None, mapped=-3.0), name="law", role="retain")
    values: dict[str, Any] = {
        "title": "advice on small for cs",
        "command": "adiabat advise small store cs.jsonl",
        "created": "2026-11-26T10:00:00+00:00",
        "seconds": 31.0,
        "seed": 0,
        "versions": {"adiabat": "0.2"},
        "settings": {"advise": {"queries": 1000}},
        "inputs": {"target": {"data": "cs.jsonl", "store": "store"}},
        "notes": ["a note"],
        "model": "small",
        "datasets": [make_advised(queries=2400, measured=1000, mapped=4.0), retained],
        "choice": "tune the query tower",
        "reason": "A linear map of the query vectors gains +4.0 %.",
        "detectable": 1.5,
        "spread": "the linear map",
        "clusters": 470,
        "pull": 0.3,
        "tuning": "expected time: 9 min",
    }
    return Advice(**(values | more))
