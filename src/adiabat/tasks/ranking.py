"""Where the relevant documents of each query stand, among a whole corpus or among listed candidates, every tie lost.

No ranking is written out for it. A document's place is the number of documents before it: those that score as high and are no positives of
the query, which are counted, and the positives before it, of which there are few. Counts are exact, and so are places, to any depth.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64

from adiabat.data.ragged import Ragged
from adiabat.measure.metrics import PairCounts
from adiabat.store.addressing import AddressedSet
from adiabat.tasks.rankers import Ranker
from adiabat.watch import Watch

QUERIES_AT_A_TIME = 4096
"""Queries counted in one pass over the documents: bounds the scores in memory."""


@dataclass(frozen=True, slots=True)
class Standings:
    """How the positives of each query come off.

    Attributes:
        counts: Pairs of a positive and another document, and those in which the positive is not strictly closer.
        places: Of each positive, from 0, in step with the positives.
        found: Documents in each query's ranking; a place from there on is in none.
    """

    counts: PairCounts
    places: Ragged
    found: Int64[np.ndarray, " q"]


def stand_in_store(ranker: Ranker, examples: AddressedSet, left_out: Ragged, watch: Watch) -> Standings:
    """Rank the positives of each query against every document that is neither a positive nor left out."""
    label, every = f"ranking {examples.name}", len(examples)
    lost, found = np.zeros(len(examples.positives.values), dtype=np.int64), ranker.count - left_out.lengths
    scores = np.zeros(len(lost), dtype=np.float32)
    for start in range(0, every, QUERIES_AT_A_TIME):
        part = slice(start, min(start + QUERIES_AT_A_TIME, every))
        entries = slice(examples.positives.offsets[part.start], examples.positives.offsets[part.stop])

        def told(share: float, part: slice = part) -> None:
            watch.progress(label, part.start + int(share * (part.stop - part.start)), every)

        near, inside = _padded(examples.positives, part)
        levels = np.where(inside, ranker.scores(part, near), np.inf).astype(np.float32)
        asked = levels if ranker.least == -np.inf else np.pad(levels, ((0, 0), (0, 1)), constant_values=ranker.least)
        counted = ranker.count_at_least(part, asked, _joined(examples.positives, left_out, part), told)
        lost[entries], scores[entries] = counted[:, : levels.shape[1]][inside], levels[inside]
        if asked is not levels:
            found[part] = counted[:, -1] + ((levels >= ranker.least) & inside).sum(axis=1)
    others = ranker.count - examples.positives.lengths - left_out.lengths
    return _standings(examples, lost, scores, others, found)


def stand_in_lists(ranker: Ranker, examples: AddressedSet, watch: Watch) -> Standings:
    """Rank the positives of each query against its listed negatives; all of them are found, whatever they score."""
    every = len(examples)
    lost, scores = np.zeros(len(examples.positives.values), dtype=np.int64), np.zeros(len(examples.positives.values), dtype=np.float32)
    for start in range(0, every, QUERIES_AT_A_TIME):
        part = slice(start, min(start + QUERIES_AT_A_TIME, every))
        entries = slice(examples.positives.offsets[part.start], examples.positives.offsets[part.stop])
        (near, inside), (far, _) = (_padded(lists, part) for lists in (examples.positives, examples.negatives))
        table = ranker.scores(part, np.concatenate([near, far], axis=1))
        levels, others = table[:, : near.shape[1]], table[:, near.shape[1] :]
        at_least = np.stack([(others >= level[:, None]).sum(axis=1) for level in levels.T], axis=1)
        lost[entries], scores[entries] = at_least[inside], levels[inside]
        watch.progress(f"scoring {examples.name}", part.stop, every)
    lengths = examples.negatives.lengths
    return _standings(examples, lost, scores, lengths, examples.positives.lengths + lengths)


def errors_by_negative(ranker: Ranker, examples: AddressedSet) -> Bool[np.ndarray, "q d"]:
    """Find for each query the numbers of the listed negatives that its positive is not strictly closer than.

    Returns:
        True where it is an error; a tie is one. Column 0 is the negative that is listed first.
    """
    assert examples.ladder is not None
    errors = np.empty(examples.ladder.shape, dtype=np.bool_)
    for start in range(0, len(examples), QUERIES_AT_A_TIME):
        part = slice(start, start + QUERIES_AT_A_TIME)
        rows = np.concatenate([examples.positives.values[part, None], examples.ladder[part]], axis=1)
        scores = ranker.scores(part, rows)
        errors[part] = scores[:, 1:] >= scores[:, :1]
    return errors


def _standings(
    examples: AddressedSet,
    lost: Int64[np.ndarray, " entries"],
    scores: Float32[np.ndarray, " entries"],
    others: Int[np.ndarray, " q"],
    found: Int[np.ndarray, " q"],
) -> Standings:
    """From the documents that each positive loses to, its score, and the documents that it is compared with."""
    counts = PairCounts.zeros(len(examples))
    owners = np.repeat(np.arange(len(examples)), examples.positives.lengths)
    counts.add(owners, lost, np.asarray(others[owners], dtype=np.int64))
    places = Ragged(lost + _positives_before(examples, scores), examples.positives.offsets)
    return Standings(counts, places, np.asarray(found, dtype=np.int64))


def _positives_before(examples: AddressedSet, scores: Float32[np.ndarray, " entries"]) -> Int64[np.ndarray, " entries"]:
    """How many of its query's other positives stand before each: those of higher scores, and of equal ones those of lower grades."""
    owners = np.repeat(np.arange(len(examples)), examples.positives.lengths)
    order = np.lexsort((examples.grades.values, -scores, owners))
    before = np.empty(len(order), dtype=np.int64)
    # Sorting is within queries, so entry i of the order stands in the stretch of the query that owns it.
    before[order] = np.arange(len(order)) - examples.positives.offsets[owners]
    return before


def _joined(one: Ragged, other: Ragged, part: slice) -> Ragged:
    """Some lists, each with those of another."""
    lengths = np.stack([one.lengths[part], other.lengths[part]])
    owners = np.concatenate([np.repeat(np.arange(lengths.shape[1]), each) for each in lengths])
    values = np.concatenate([lists.values[lists.offsets[part.start] : lists.offsets[part.stop]] for lists in (one, other)])
    return Ragged(values[np.argsort(owners, kind="stable")], np.concatenate([[0], np.cumsum(lengths.sum(axis=0))]))


def _padded(lists: Ragged, part: slice) -> tuple[Int64[np.ndarray, "q p"], Bool[np.ndarray, "q p"]]:
    """Some lists as a rectangle filled up with -1, and where it is filled in earnest."""
    lengths = lists.lengths[part]
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.full(inside.shape, -1, dtype=np.int64)
    rows[inside] = lists.values[lists.offsets[part.start] : lists.offsets[part.stop]]
    return rows, inside
