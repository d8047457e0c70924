"""Which candidates cannot be trusted to be negatives, and why: functions of scores and places alone.

A candidate is dropped for the first reason that holds, in the order of `REASONS`; so each is counted once.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

Reason = Literal[
    "known_positive", "query_itself", "listed", "duplicate", "near_duplicate", "repeated", "rank", "margin", "relative_margin", "judge"
]
REASONS: tuple[Reason, ...] = (
    "known_positive",
    "query_itself",
    "listed",
    "duplicate",
    "near_duplicate",
    "repeated",
    "rank",
    "margin",
    "relative_margin",
    "judge",
)
MEANING: Mapping[Reason, str] = {
    "known_positive": "the data has it as an answer to this query",
    "query_itself": "it is the query itself, with a title or without",
    "listed": "the data lists it as a negative already",
    "duplicate": "its text equals an answer's but for case and white space",
    "near_duplicate": "its text is nearly an answer's, or part of one, or holds one",
    "repeated": "a better-ranked candidate has the same text",
    "rank": "it is among the first ranks, which are passed over",
    "margin": "it scores too near to the positive, or above",
    "relative_margin": "it scores too near to the positive, as a share of the positive's score",
    "judge": "the judge scores it too near to the positive, or above",
}
KEPT = 0
"""Code of a candidate that passes; a reason's code is its number in `REASONS`, from 1."""

Codes = UInt8[np.ndarray, " c"]


def code_of(reason: Reason) -> int:
    """The code of a reason."""
    return REASONS.index(reason) + 1


def too_near(
    scores: Float32[np.ndarray, " c"], positives: Float32[np.ndarray, " p"], margin: float, *, relative: bool = False
) -> Bool[np.ndarray, " c"]:
    """Candidates whose score is at least that of the lowest positive, less a margin.

    ``score >= positive - margin``, or, relative, ``positive - margin |positive|``; with a margin of 0 a tie with the positive is too near.
    """
    lowest = float(positives.min())
    return np.asarray(scores.astype(np.float64) >= lowest - margin * (abs(lowest) if relative else 1.0))


def first_ranks(others: Bool[np.ndarray, " c"], skipped: int) -> Bool[np.ndarray, " c"]:
    """The best-ranked of some candidates."""
    return others & (np.cumsum(others) <= skipped)


def nearly_equal(overlap: Float64[np.ndarray, "p c"], threshold: float) -> Bool[np.ndarray, " c"]:
    """Candidates that overlap with any of several texts."""
    return np.asarray((overlap >= threshold).any(axis=0))


def coded(count: int, masks: Mapping[Reason, Bool[np.ndarray, " c"]]) -> Codes:
    """The first reason that holds for each candidate."""
    codes: Codes = np.full(count, KEPT, dtype=np.uint8)
    for reason in reversed(REASONS):
        if reason in masks:
            codes[masks[reason]] = code_of(reason)
    return codes


def fused_ranks(*rankings: Int64[np.ndarray, " _"], depth: int, constant: float = 60.0) -> Int64[np.ndarray, " f"]:
    """Several rankings as one, by reciprocal rank.

    ``score(d) = sum over rankings that hold d of 1 / (constant + rank of d)``, ranks from 1.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking[ranking >= 0].tolist(), start=1):
            scores[row] = scores.get(row, 0.0) + 1.0 / (constant + rank)
    return np.array(sorted(scores, key=lambda row: (-scores[row], row))[:depth], dtype=np.int64)
