"""What is measured: towers with the stored documents that their queries are compared with, or BM25 with its index."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int64

from adiabat.errors import StoreError
from adiabat.model.fingerprint import Fingerprint
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.store.lexical import LexicalIndex

Role = Literal["target", "retain"]
Similarity = Literal["cosine", "distance"]


@dataclass(frozen=True, slots=True)
class System:
    """A model with the vectors of its document tower.

    Attributes:
        model: Its query tower is asked.
        store: Its documents.
    """

    model: DualEncoder
    store: Store

    @property
    def count(self) -> int:
        """Documents."""
        return self.store.count

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Rows of documents.

        Args:
            doc_ids: Any ids.

        Returns:
            One row per id, -1 for an unknown one.
        """
        return self.store.rows(doc_ids)


@dataclass(frozen=True)
class LexicalSystem:
    """BM25 over a corpus.

    Attributes:
        index: Of the corpus.
        doc_ids: Of its documents, by row.
    """

    index: LexicalIndex
    doc_ids: Sequence[str]

    def __post_init__(self) -> None:
        if len(self.doc_ids) != self.index.count:
            raise StoreError(
                f"a BM25 index must be of as many documents as there are ids, got {self.index.count:,} and {len(self.doc_ids):,}; "
                "build the index again"
            )

    @property
    def count(self) -> int:
        """Documents."""
        return self.index.count

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {doc_id: row for row, doc_id in enumerate(self.doc_ids)}

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Rows of documents.

        Args:
            doc_ids: Any ids.

        Returns:
            One row per id, -1 for an unknown one.
        """
        return np.array([self._row_of.get(doc_id, -1) for doc_id in doc_ids], dtype=np.int64)


def similarities_of(*models: DualEncoder) -> tuple[Similarity, ...]:
    """What is worth ranking by: on unit vectors Euclidean distance ranks as cosine does.

    Args:
        *models: Whose vectors are compared.

    Returns:
        Cosine, and distance where a tower's vectors have other lengths.
    """
    unit = all(tower.settings.normalize for model in models for tower in (model.query, model.document))
    return ("cosine",) if unit else ("cosine", "distance")


def baseline_of(baseline: DualEncoder, fingerprint: Fingerprint, store: Store, others: Sequence[Store]) -> System:
    """The baseline with documents of its own: those of the model under test where one tower made both, else the same in another store.

    Args:
        baseline: What a model is compared with.
        fingerprint: Of its document tower: taking it reads all weights.
        store: Documents of the model under test.
        others: Stores that the baseline's document tower may have made.

    Returns:
        The baseline and its store, in which a row is the same document as in `store`.

    Raises:
        StoreError: If no store holds these documents as the baseline's tower embeds them.
    """
    differences = store.differences(fingerprint)
    if not differences:
        return System(baseline, store)
    fitting = [other for other in others if not other.differences(fingerprint)]
    for other in fitting:
        if other.same_documents(store):
            return System(baseline, other)
    wanted = f"the documents of {store.path} must be stored by the baseline {baseline.name} too, whose document tower is another"
    if not others:
        raise StoreError(
            f"{wanted} ({'; '.join(differences)}), got no --baseline-store; "
            f"embed the same corpus by adiabat embed {baseline.name} CORPUS --out DIR and add --baseline-store DIR"
        )
    faults = [_misfit(other, store, other in fitting, baseline) for other in others]
    raise StoreError(f"{wanted}, got {'; '.join(faults)}; embed the same corpus by adiabat embed {baseline.name} CORPUS --out DIR")


def _misfit(other: Store, store: Store, fits: bool, baseline: DualEncoder) -> str:
    if not fits:
        return f"{other.path} of another encoder than {baseline.name}"
    if other.count != store.count:
        return f"{other.path} with {other.count:,} documents, not {store.count:,}"
    return f"{other.path} with other documents, or in another order"
