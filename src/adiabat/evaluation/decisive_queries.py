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
from jaxtyping import Bool

from adiabat.core.margin import FEWEST_UNITS
from adiabat.core.text import counted
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.retrieval import query_overlap
from adiabat.results.evaluation_result import PartName
from adiabat.results.verdict import Reason
from adiabat.stats.samples import MAX_TRAINED_SHARE, TaskScores, TrainingOverlap
from adiabat.stats.unit_arrays import Numbers, Rows
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store

FEWEST_DECISIVE = 50
"""Fewest queries that a verdict rests on alone."""

OF_QUERIES = ("retrieval", "triplets")
"""Kinds of tasks whose units are queries with relevant documents."""

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
    removed: Rows | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Queries by their use for the verdict.

    Attributes:
        parts: The first one decides; all queries as one part where nothing was trained on.
        left_out: Number of queries that were trained on and are in no part.
        known: What the verdict must say of the training data.
    """

    parts: Sequence[ScoredPart]
    left_out: int
    known: tuple[Reason, ...] = ()

    def notes(self) -> list[str]:
        """The units that decide, where they are not all."""
        first, *others = self.parts
        notes = []
        if self.left_out:
            notes.append(f"left out {counted(self.left_out, 'query')} that a model was trained on")
        if others and first.name == "new documents":
            new, seen = len(first.scores[0].units), len(others[0].scores[0].units)
            which = "queries with relevant documents that answered training queries"
            notes.append(f"compared on {new:,} queries with new documents, not on {seen:,} {which}")
        elif others:
            memory = "part of the change may be memory of documents that answered training queries"
            notes.append(f"{memory}; run evaluate")
        return notes


@dataclass(frozen=True, slots=True)
class ByTraining:
    """Queries by what the jobs of some models trained on.

    Attributes:
        rest: Rows of the queries that no job trained on.
        seen: Rows of those among them of which a relevant document answered a training query.
        new: Rows of the others; all of the rest where nobody can tell.
        known: `TRAINED_ON` if too few queries are left for a verdict, `TRAINING_UNKNOWN` if there may be more
            training data.
    """

    rest: Rows
    seen: Rows
    new: Numbers
    known: tuple[Reason, ...]

    @classmethod
    def of(cls, overlaps: Sequence[TrainingOverlap], queries: int) -> "ByTraining":
        """Sort so many queries by the training data of every job of a comparison."""
        trained, seen = np.zeros(queries, dtype=np.bool_), np.zeros(queries, dtype=np.bool_)
        is_known = True
        for overlap in overlaps:
            trained |= overlap.queries
            # Without documents, or with gaps in the record, "new" queries may be seen ones.
            if overlap.unknown or overlap.documents is None:
                is_known = False
            else:
                seen |= overlap.documents > 0
        rest = np.flatnonzero(~trained)
        known = [] if is_known else [Reason.TRAINING_UNKNOWN]
        if rest.size < min(FEWEST_UNITS, (1 - MAX_TRAINED_SHARE) * queries):
            known.append(Reason.TRAINED_ON)
        # Where one job cannot tell, no query counts as seen: all of the rest decide, with a reason.
        seen &= is_known
        return cls(rest, rest[seen[rest]], rest[~seen[rest]], tuple(known))


def no_residual(_: Rows) -> ScoredPart | None:
    """For scores that were read from files: rankings without some documents would have to be made anew."""
    return None


def decide(
    scores: Sequence[TaskScores], residual: Callable[[Rows], ScoredPart | None] = no_residual
) -> Decision:
    """Choose the units of a verdict: of a task other than queries with documents always all, whose values
    depend on one another.

    Args:
        scores: Of all models that are compared, on all units.
        residual: Scores all on the residual collection of some queries (given by row); None if it has too few
            queries.
    """
    overlaps = [task_scores.trained for task_scores in scores if task_scores.trained is not None]
    if scores[0].kind not in OF_QUERIES:
        known = [Reason.TRAINED_ON] if not all(overlap.is_proof for overlap in overlaps) else []
        known += [Reason.TRAINING_UNKNOWN] if any(overlap.unknown for overlap in overlaps) else []
        return Decision([ScoredPart("all queries", scores)], 0, tuple(known))
    queries = ByTraining.of(overlaps, len(scores[0].units))
    # Too few queries are left: all are compared, and `judge` gives no verdict on them.
    if Reason.TRAINED_ON in queries.known:
        return Decision([ScoredPart("all queries", scores)], 0, queries.known)
    left_out = len(scores[0].units) - queries.rest.size
    name: PartName = "other queries" if left_out else "all queries"
    remaining = ScoredPart(name, _taken(scores, queries.rest) if left_out else scores)
    if not queries.seen.size:
        return Decision([remaining], left_out, (*queries.known, *_near_duplicates(remaining)))
    parts = [ScoredPart("seen documents", _taken(scores, queries.seen))]
    if queries.new.size:
        parts.insert(0, ScoredPart("new documents", _taken(scores, queries.new)))
    if queries.new.size >= FEWEST_DECISIVE:
        return Decision(parts, left_out, _near_duplicates(parts[0]))
    # Too few new queries for a verdict: rank the others without what answered training queries.
    if others := residual(queries.rest):
        return Decision([others, *parts], left_out)
    return Decision([remaining, *parts], left_out, (Reason.SEEN_DOCUMENTS, *_near_duplicates(remaining)))


def _near_duplicates(part: ScoredPart) -> tuple[Reason, ...]:
    """Whether more than a few of the queries nearly equal one of training."""
    for scores in part.scores:
        near = None if scores.trained is None else scores.trained.near
        if near is not None and np.count_nonzero(near) > MAX_TRAINED_SHARE * near.size:
            return (Reason.NEAR_DUPLICATES,)
    return ()


@dataclass(frozen=True, slots=True)
class Untrained:
    """Queries that decide before anything is scored, with what is known of them, and notes on the others."""

    examples: AddressedSet
    left_out: int = 0
    known: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()


def untrained_queries(
    examples: AddressedSet, store: Store, record: TrainedTexts | None, model: str
) -> Untrained:
    """The queries of `decide` that can be told before anything is scored, without a residual collection."""
    overlap = query_overlap(record, examples, store)
    if overlap is None:
        return Untrained(examples)
    queries, name, count = ByTraining.of([overlap], len(examples)), examples.name, len(examples)
    notes, known, rows = [], list(queries.known), queries.rest
    if overlap.unknown:
        notes.append(
            f"{name}: whether {model} was trained on more of these queries is unknown: {overlap.unknown}"
        )
    if rows.size < count:
        notes.append(
            f"{name}: {count - rows.size:,} of {count:,} queries are left out, "
            f"since {model} was trained or validated on them"
        )
    if queries.seen.size:
        of_seen = (
            f"{queries.seen.size:,} of {rows.size:,} queries have relevant documents "
            f"that answered training queries of {model}"
        )
        if queries.new.size >= FEWEST_DECISIVE:
            rows = queries.new
            notes.append(f"{name}: {of_seen}, and are left out")
        else:
            known.append(Reason.SEEN_DOCUMENTS)
            notes.append(f"{name}: {of_seen}: the figures of the model as it is are too good there")
    return Untrained(examples.take(rows), count - rows.size, tuple(known), tuple(notes))


def _taken(scores: Sequence[TaskScores], rows: Numbers) -> list[TaskScores]:
    """The scores of every model on some units."""
    return [task_scores.take(rows) for task_scores in scores]


def residual_collection(
    examples: AddressedSet,
    queries: Rows,
    store: Store,
    records: Sequence[TrainedTexts | None],
) -> tuple[AddressedSet, Rows] | None:
    """Some queries without the documents that answered a training query, and the rows of these documents.

    None if fewer than `FEWEST_DECISIVE` queries keep a relevant document, more than half of the documents
    would be taken out (what is left is too easy), or the store cannot tell which ones.
    """
    answered = np.zeros(store.count, dtype=np.bool_)
    for record in filter(None, records):
        for start in range(0, store.count, _ROWS):
            rows = np.arange(start, min(start + _ROWS, store.count))
            # Records hold hashes of texts; a store without texts is asked by its ids.
            known = record.holds_documents(
                store.texts(rows) if store.has_texts else store.doc_ids(rows), are_texts=store.has_texts
            )
            if known is None:
                return None
            answered[rows] |= known
    remaining = without_documents(examples.take(queries), answered)
    removed = np.flatnonzero(answered)
    # With nothing removed, the residual collection is the whole one.
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
