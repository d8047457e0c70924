"""Which candidates cannot be trusted to be negatives, and why: functions of scores and places alone.

A candidate is dropped for the first reason that holds, in the order of `REASONS`; so each is counted once.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, UInt8, UInt64

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


SHINGLE = 5
"""Characters, as is usual for passages: long enough that unrelated texts share few, short enough to forgive single letters."""
ENOUGH = 32
"""Shingles from which on a text counts as a copy of the longer one that contains it. What is shorter may stand in any text by chance,
as the answer "Paris" does: there each must contain the other."""

_FACTOR, _MIXER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def normalised(text: str) -> str:
    """A text without what readers hardly see: compatibility forms, case, and white space but for single blanks."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())


def shingles(texts: Sequence[str]) -> list[UInt64[np.ndarray, " s"]]:
    """Every run of five characters of each text, as 64 bits; of a shorter text the whole, and none of an empty one.

    Returns:
        One array per text, a run as often as it occurs. Different runs have equal bits once in 2^64.
    """
    # A text shorter than a run is filled up with what no normalised text holds.
    padded = [text.ljust(SHINGLE, "\n") if text else "" for text in texts]
    joined = "".join(padded).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(joined, dtype="<u4").astype(np.uint64)
    if not len(codes):
        return [np.empty(0, dtype=np.uint64) for _ in texts]
    hashes = np.zeros(max(0, len(codes) - SHINGLE + 1), dtype=np.uint64)
    for place in range(SHINGLE):
        hashes = (hashes ^ codes[place : place + len(hashes)]) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    hashes = hashes * _MIXER
    hashes ^= hashes >> np.uint64(32)
    ends = np.cumsum([len(text) for text in padded])
    return [hashes[end - len(text) : max(end - SHINGLE + 1, end - len(text))] for text, end in zip(padded, ends.tolist(), strict=True)]


def overlaps(positive: UInt64[np.ndarray, " p"], candidates: Sequence[UInt64[np.ndarray, " _"]]) -> Float64[np.ndarray, " c"]:
    """How far candidates are copies of one text, of a part of it, or hold it as a part.

    For each pair it is the larger of two shares: that of the candidate's shingles that the positive holds, and that of the positive's that
    the candidate holds; a share of fewer than `ENOUGH` shingles counts no more than the other one.
    """
    sizes = np.array([len(one) for one in candidates], dtype=np.int64)
    if not len(positive) or not sizes.sum():
        return np.zeros(len(candidates))
    owner = np.repeat(np.arange(len(candidates)), sizes)
    flat = np.concatenate(candidates)
    distinct, repeats = np.unique(positive, return_counts=True)
    found = np.flatnonzero(_may_hold(distinct, flat))
    place = np.minimum(np.searchsorted(distinct, flat[found]), len(distinct) - 1)
    same = distinct[place] == flat[found]
    owner, place = owner[found[same]], place[same]
    of_candidate = np.bincount(owner, minlength=len(candidates)) / np.maximum(sizes, 1)
    held = np.zeros((len(candidates), len(distinct)), dtype=bool)
    held[owner, place] = True
    of_positive = held @ repeats.astype(np.float64) / len(positive)
    return _larger(of_candidate, of_positive, sizes, len(positive))


def _may_hold(distinct: UInt64[np.ndarray, " d"], asked: UInt64[np.ndarray, " a"]) -> Bool[np.ndarray, " a"]:
    """Whether a value's low bits are among those of `distinct`: a table look-up that spares most of the binary searches."""
    table = np.zeros(1 << 16, dtype=bool)
    table[distinct.astype(np.uint16)] = True
    held: Bool[np.ndarray, " a"] = table[asked.astype(np.uint16)]
    return held


def _larger(
    of_candidate: Float64[np.ndarray, " c"], of_positive: Float64[np.ndarray, " c"], sizes: Int64[np.ndarray, " c"], size: int
) -> Float64[np.ndarray, " c"]:
    both = np.minimum(of_candidate, of_positive)
    within = np.where(sizes >= ENOUGH, of_candidate, both)
    around = of_positive if size >= ENOUGH else both
    larger: Float64[np.ndarray, " c"] = np.maximum(within, around)
    return larger
