"""Retrieval systems: a model with the stored vectors that its queries search, or BM25 with its index."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64

from adiabat.config.section import DropSameId
from adiabat.core.errors import StoreError
from adiabat.core.ragged import Ragged
from adiabat.core.text import IN_WORDS, WITH_BM25
from adiabat.core.wording import call_of, option, positional, written
from adiabat.data.records import Document, Fingerprint, is_own_document, text_id
from adiabat.evaluation.evaluate_checks import STORES
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.stats.unit_arrays import Rows
from adiabat.store.bm25 import BM25Index
from adiabat.store.fusion import FusedCandidates, Fusion
from adiabat.store.scoring import SIMILARITIES, QueryArray
from adiabat.store.search import Excluded, Hits, search
from adiabat.store.vector_store import Store

Role = Literal["target", "retain"]
UNIT_LENGTH = "vectors have unit length: dot product and Euclidean distance rank as cosine does"
"""Note on measuring only by cosine."""


def similarities_of(*models: DualEncoder) -> tuple[Similarity, ...]:
    """Similarities to rank by: only cosine if all vectors have unit length, because all similarities then
    rank alike.
    """
    if all(model.unit for model in models):
        return ("cosine",)
    # The main one first: it decides verdicts.
    main = models[0].similarity
    return (main, *(other for other in SIMILARITIES if other != main))


def ranking_notes(model: DualEncoder, chosen: Sequence[Similarity]) -> list[str]:
    """A note on the similarity, unless it is plain cosine."""
    if model.unit and len(chosen) == 1:
        return [UNIT_LENGTH]
    used, stated = IN_WORDS[chosen[0]], IN_WORDS[model.similarity]
    if used == stated == "cosine":
        return []
    return [f"the main measure compares by {used}; the similarity that {model.name} states is {stated}"]


@dataclass(frozen=True, slots=True)
class System:
    """A model with the document vectors that it searches, perhaps fused with BM25.

    Attributes:
        nearest: Search by vectors, exact unless a server asks for less.
    """

    model: DualEncoder
    store: Store
    fusion: Fusion | None = None
    nearest: Callable[..., Hits] = search

    @property
    def name(self) -> str:
        """The model's, with what it is fused with."""
        return self.model.name if self.fusion is None else f"{self.model.name} {WITH_BM25}"

    @property
    def device(self) -> torch.device:
        """Where documents are scored: on the device that embeds the queries."""
        return self.model.query.device

    @property
    def documents(self) -> Store:
        """Documents by id and text."""
        return self.store

    def search(
        self,
        texts: Sequence[str],
        vectors: QueryArray,
        k: int,
        *,
        similarity: Similarity,
        excluded: Excluded | None = None,
        removed: Rows | None = None,
    ) -> Hits:
        """The first documents of each query, as `adiabat.store.search` has them or those of the fusion."""
        options: dict[str, Any] = {"similarity": similarity, "excluded": excluded, "removed": removed}
        if self.fusion is None:
            return self.nearest(self.store, vectors, k, device=self.device, **options)
        index, weight = self.fusion.index, self.fusion.weight
        candidates = FusedCandidates.of(
            self.store, index, vectors, texts, device=self.device, nearest=self.nearest, **options
        )
        return candidates.hits(k, weight)


@dataclass(frozen=True)
class BM25System:
    """BM25 over a corpus, with its documents by id and by text as in a store.

    `text_ids` are empty if documents are named by id alone. `read` reads the corpus again, because the index
    keeps no texts.
    """

    index: BM25Index
    doc_ids: Sequence[str]
    text_ids: Sequence[str] = ()
    read: Callable[[], Iterator[Document]] | None = None

    def __post_init__(self) -> None:
        if len(self.doc_ids) != self.index.count:
            raise StoreError(
                "a BM25 index must be of as many documents as there are ids, got "
                f"{self.index.count:,} and {len(self.doc_ids):,}; "
                "build the index again"
            )

    @property
    def documents(self) -> "BM25System":
        """Documents by id and text."""
        return self

    @property
    def path(self) -> Path:
        """Name for messages."""
        return self.index.path

    @property
    def count(self) -> int:
        """Number of documents."""
        return self.index.count

    @property
    def has_texts(self) -> bool:
        """Whether texts of documents are known."""
        return self.read is not None

    def texts(self, rows: Int64[np.ndarray, " n"]) -> list[str]:
        """Texts of documents by row, in one pass over the corpus."""
        assert self.read is not None
        # The index keeps no texts: the corpus is read once for all rows.
        rows_wanted = dict.fromkeys(rows.tolist())
        text_of = {row: document.text for row, document in enumerate(self.read()) if row in rows_wanted}
        return [text_of[row] for row in rows.tolist()]

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {doc_id: row for row, doc_id in enumerate(self.doc_ids)}

    @cached_property
    def _row_of_text(self) -> dict[str, int]:
        # The first of documents with equal texts.
        return {known_id: row for row, known_id in reversed(list(enumerate(self.text_ids)))}

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Rows of documents by id; -1 for an unknown id."""
        return np.array([self._row_of.get(doc_id, -1) for doc_id in doc_ids], dtype=np.int64)

    def rows_of_texts(self, texts: Collection[str]) -> dict[str, int]:
        """Rows of documents by text."""
        rows = {text: self._row_of_text.get(text_id(text)) for text in texts}
        return {text: row for text, row in rows.items() if row is not None}


def refuse_unused_stores(stores: Sequence[Store], used: Sequence[Store], *, argument: str = STORES) -> None:
    """Refuse baseline stores that no data set needs."""
    for store in stores:
        if not any(store is used_store for used_store in used):
            raise StoreError(
                f"{option(argument)} {store.path} must serve a data set, got none that needs it; leave it out"
            )


def store_inputs(store: Store, before: System | None) -> dict[str, str]:
    """Paths and checksums of the stores, for a result."""
    stores = {"store": store}
    if before is not None and before.store is not store:
        stores["baseline_store"] = before.store
    inputs = {name: str(opened.path) for name, opened in stores.items()}
    for name, opened in stores.items():
        inputs[f"{name}_sha256"] = opened.manifest.sha256
    return inputs


def baseline_system(
    baseline: DualEncoder,
    fingerprint: Fingerprint,
    store: Store,
    others: Sequence[Store],
    *,
    argument: str = STORES,
) -> System:
    """The baseline with its documents: the same store if its document tower built it, otherwise the same
    documents in another store.
    """
    differences = store.differences(fingerprint)
    if not differences:
        return System(baseline, store)
    faults = []
    for other in others:
        if other.differences(fingerprint):
            faults.append(f"{other.path} of another encoder")
        elif other.same_documents(store):
            return System(baseline, other)
        else:
            faults.append(f"{other.path} with other documents, or in another order")
    embedding = call_of("embed", written(baseline.name), positional("corpus"), out="DIR")
    needed: object = ["DIR"] if argument == STORES else "DIR"
    raise StoreError(
        f"the documents of {store.path} must be stored by the baseline {baseline.name} too, whose document "
        f"tower is another ({'; '.join(differences)}), got {'; '.join(faults) or 'none of its stores'}; "
        f"embed the same corpus by {embedding} and add {option(argument, needed)}"
    )


@dataclass(frozen=True, slots=True)
class IdenticalDocuments:
    """Documents that are queries themselves, at most one row per query; they are left out of that query's
    ranking.
    """

    rows: Ragged
    notes: list[str]


def identical_documents(
    documents: Store | BM25System,
    query_ids: Sequence[str],
    queries: Sequence[str],
    positives: Ragged | Int64[np.ndarray, "q p"],
    *,
    drop: DropSameId,
) -> IdenticalDocuments:
    """Find documents that are queries themselves, by id and text (`is_own_document`), or only by id with
    ``drop = true``.
    """
    # Rows of documents that go by the id of their query and are not its answers.
    shared = np.full(len(queries), -1, dtype=np.int64)
    if drop is not False:
        for query, row in enumerate(documents.rows(query_ids).tolist()):
            if row >= 0 and row not in positives[query]:
                shared[query] = row
    rows = shared if drop is True else _of_equal_text(documents, queries, shared)
    left_out, others = int((rows >= 0).sum()), int(((shared >= 0) & (rows < 0)).sum())
    notes = []
    if left_out:
        by = "id" if drop is True else "id and text"
        notes.append(f"{_documents(left_out)} left out of the ranking of the query that has the same {by}")
    if others:
        text = "another text" if documents.has_texts else "a text that the store does not keep"
        notes.append(
            f"{_documents(others)} with the id of a query and {text}, ranked like all others; "
            "drop_same_id = true leaves documents out by their id alone"
        )
    return IdenticalDocuments(Ragged.of([row] if row >= 0 else [] for row in rows.tolist()), notes)


def _of_equal_text(
    documents: Store | BM25System, queries: Sequence[str], rows: Int64[np.ndarray, " q"]
) -> Int64[np.ndarray, " q"]:
    """Rows of documents whose text equals their query, with or without a title; -1 elsewhere."""
    identical = np.full(len(rows), -1, dtype=np.int64)
    candidates = np.flatnonzero(rows >= 0)
    if not documents.has_texts or not len(candidates):
        return identical
    for query, text in zip(candidates.tolist(), documents.texts(rows[candidates]), strict=True):
        if is_own_document(queries[query], text):
            identical[query] = rows[query]
    return identical


def _documents(count: int) -> str:
    """So many documents, in words."""
    return "1 document" if count == 1 else f"{count:,} documents"
