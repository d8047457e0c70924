"""The document that is a query's own text, which its ranking leaves out (as in ArguAna and Quora, where queries are documents)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from adiabat.config.section import DropSameId
from adiabat.data.ragged import Ragged
from adiabat.data.records import is_own_document
from adiabat.tasks.systems import LexicalSystem, System


@dataclass(frozen=True, slots=True)
class OwnDocuments:
    """What the rankings of some queries leave out.

    Attributes:
        rows: Of each query, at most one.
        notes: How many, and how many share an id with a query and nothing else.
    """

    rows: Ragged
    notes: list[str]


def own_documents(
    system: System | LexicalSystem,
    query_ids: Sequence[str],
    queries: Sequence[str],
    positives: Ragged | Int64[np.ndarray, "q p"],
    *,
    drop: DropSameId,
) -> OwnDocuments:
    """Find the documents that are queries themselves: by id and text (`is_own_document`), unless the user says that ids are enough."""
    ids = system.rows(query_ids) if drop is not False else np.full(len(queries), -1, dtype=np.int64)
    shared = np.array([row if row >= 0 and row not in positives[query] else -1 for query, row in enumerate(ids.tolist())], dtype=np.int64)
    rows = shared if drop is True else _of_equal_text(system, queries, shared)
    left_out, others = int((rows >= 0).sum()), int(((shared >= 0) & (rows < 0)).sum())
    notes = []
    if left_out:
        by = "id" if drop is True else "id and text"
        notes.append(f"{_documents(left_out)} left out of the ranking of the query that has the same {by}")
    if others:
        why = "another text" if system.has_texts else "a text that is not known, since the store keeps none"
        advice = "drop_same_id = true leaves documents out by their id alone"
        notes.append(f"{_documents(others)} with the id of a query and {why}, ranked like all others; {advice}")
    return OwnDocuments(Ragged.of([row] if row >= 0 else [] for row in rows.tolist()), notes)


def _of_equal_text(system: System | LexicalSystem, queries: Sequence[str], rows: Int64[np.ndarray, " q"]) -> Int64[np.ndarray, " q"]:
    """Rows of documents that read as their queries do, with a title or without; -1 elsewhere."""
    found = np.full(len(rows), -1, dtype=np.int64)
    asked = np.flatnonzero(rows >= 0)
    if not system.has_texts or not len(asked):
        return found
    for query, text in zip(asked.tolist(), system.texts(rows[asked]), strict=True):
        if is_own_document(queries[query], text):
            found[query] = rows[query]
    return found


def _documents(count: int) -> str:
    return "1 document" if count == 1 else f"{count:,} documents"
