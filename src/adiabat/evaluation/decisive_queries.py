"""The queries that a verdict rests on, where a job of the models trained on texts of the data set.

1. Queries whose text was trained or validated on are left out.
2. The others are new if none of their relevant documents answered such a query, and seen otherwise. Both are
   measured.
3. The verdict rests on the new ones if there are at least `FEWEST_DECISIVE`.
4. Otherwise it rests on the residual collection: the documents that answered training queries are taken out
   of ranking and judgements, for both models, and queries without another relevant document drop out.
   Evaluations of relevance feedback do the same.
5. If that leaves too few queries too, or less than half of the documents, it rests on all that are left, with
   a warning.

A job without a record of its texts splits nothing, and neither does one whose documents cannot be recognised.

Reference:
    Salton and Buckley 1990 (residual collection).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from adiabat.core.margin import FEWEST_UNITS
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.retrieval import query_overlap
from adiabat.results.evaluation_result import PartName
from adiabat.stats.samples import MAX_TRAINED_SHARE, TaskScores
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store

FEWEST_DECISIVE = 50
"""Fewest queries that a verdict rests on alone."""

_ROWS = 65_536
"""Documents whose texts are looked up at a time."""


@dataclass(frozen=True, slots=True)
class ScoredPart:
    """Scores of some queries: of the model under test, and of the baseline if there is one.

    A residual collection comes with its queries, and the rows of the documents that are taken out.
    """

    name: PartName
    scores: Sequence[TaskScores]
    queries: AddressedSet | None = None
    removed: Int[np.ndarray, " r"] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Queries by their use for the verdict.

    Attributes:
        parts: The first one decides; all queries as one part where nothing was trained on.
        left_out: Number of queries that were trained on and are in no part.
        is_proof: Whether a verdict may rest on the first part: False if too few queries were not trained on.
    """

    parts: Sequence[ScoredPart]
    left_out: int
    is_proof: bool


def decide(
    scores: Sequence[TaskScores], residual: Callable[[Int[np.ndarray, " k"]], ScoredPart | None]
) -> Decision:
    """Choose the queries of a verdict.

    Args:
        scores: Of the model under test, and of the baseline if there is one, on all queries.
        residual: Scores all on the residual collection of some queries (given by row); None if it has too few
            queries.
    """
    overlaps = [task_scores.trained for task_scores in scores if task_scores.trained is not None]
    trained = np.any(
        [np.zeros(len(scores[0].units), dtype=np.bool_), *(overlap.queries for overlap in overlaps)], axis=0
    )
    rest = np.flatnonzero(~trained)
    if rest.size < min(FEWEST_UNITS, (1 - MAX_TRAINED_SHARE) * trained.size):
        return Decision([ScoredPart("all queries", scores)], 0, is_proof=False)
    left_out = int(trained.sum())
    remaining = (
        ScoredPart("other queries", _taken(scores, rest)) if left_out else ScoredPart("all queries", scores)
    )
    answered = [
        overlap.documents for overlap in overlaps if not overlap.unknown and overlap.documents is not None
    ]
    if len(answered) < len(overlaps) or not overlaps:
        return Decision([remaining], left_out, is_proof=True)
    seen = rest[np.any([counts[rest] > 0 for counts in answered], axis=0)]
    if not seen.size:
        return Decision([remaining], left_out, is_proof=True)
    new = np.setdiff1d(rest, seen)
    names: list[tuple[PartName, Int[np.ndarray, " _"]]] = [("new documents", new), ("seen documents", seen)]
    parts = [ScoredPart(name, _taken(scores, rows)) for name, rows in names if rows.size]
    if new.size >= FEWEST_DECISIVE:
        return Decision(parts, left_out, is_proof=True)
    if others := residual(rest):
        return Decision([others, *parts], left_out, is_proof=True)
    return Decision([remaining, *parts], left_out, is_proof=True)


def untrained_queries(
    examples: AddressedSet, store: Store, record: TrainedTexts | None, model: str
) -> tuple[AddressedSet, list[str]]:
    """The queries that a job did not train on, only those with new documents if there are `FEWEST_DECISIVE`,
    and notes on the others.
    """
    overlap = query_overlap(record, examples, store)
    if overlap is None:
        return examples, []
    rest, counts, notes = np.flatnonzero(~overlap.queries), overlap.documents, list[str]()
    if overlap.unknown:
        notes.append(
            f"{examples.name}: whether {model} was trained on more of these "
            f"queries is unknown: {overlap.unknown}"
        )
    if rest.size < len(examples):
        left_out = len(examples) - rest.size
        notes.append(
            f"{examples.name}: {left_out:,} of {len(examples):,} queries are left out, "
            f"since {model} was trained or validated on them"
        )
    seen = rest[:0] if counts is None else rest[counts[rest] > 0]
    if not seen.size:
        return examples.take(rest), notes
    shared = (
        f"{examples.name}: {seen.size:,} of {rest.size:,} queries have relevant "
        f"documents that answered training queries of {model}"
    )
    if rest.size - seen.size >= FEWEST_DECISIVE and not overlap.unknown:
        return examples.take(np.setdiff1d(rest, seen)), [*notes, f"{shared}, and are left out"]
    return examples.take(rest), [*notes, f"{shared}: the figures of the model as it is are too good there"]


def _taken(scores: Sequence[TaskScores], rows: Int[np.ndarray, " n"]) -> list[TaskScores]:
    return [task_scores.take(rows) for task_scores in scores]


def residual_collection(
    examples: AddressedSet,
    queries: Int[np.ndarray, " k"],
    store: Store,
    records: Sequence[TrainedTexts | None],
) -> tuple[AddressedSet, Int[np.ndarray, " r"]] | None:
    """Some queries without the documents that answered a training query, and the rows of these documents.

    None if fewer than `FEWEST_DECISIVE` queries keep a relevant document, more than half of the documents
    would be taken out (what is left is too easy), or the store cannot tell which ones.
    """
    answered = np.zeros(store.count, dtype=np.bool_)
    for record in filter(None, records):
        for start in range(0, store.count, _ROWS):
            rows = np.arange(start, min(start + _ROWS, store.count))
            known = record.holds_documents(
                store.texts(rows) if store.has_texts else store.doc_ids(rows), are_texts=store.has_texts
            )
            if known is None:
                return None
            answered[rows] |= known
    remaining = without_documents(examples.take(queries), answered)
    removed = np.flatnonzero(answered)
    if len(remaining) < FEWEST_DECISIVE or not 0 < removed.size <= store.count // 2:
        return None
    return remaining, removed


def without_documents(examples: AddressedSet, removed: Bool[np.ndarray, " documents"]) -> AddressedSet:
    """The queries that keep a positive where documents are taken out, with the judgements of the other
    documents.
    """
    keep = ~removed[examples.positives.values]
    others = replace(
        examples,
        positives=examples.positives.where(keep),
        grades=examples.grades.where(keep),
        negatives=examples.negatives.where(~removed[examples.negatives.values]),
        negative_columns=None,
    )
    return others.take(np.flatnonzero(others.positives.lengths > 0))
