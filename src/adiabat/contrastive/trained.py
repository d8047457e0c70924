"""Texts of pairs that are trained or validated on, for the record of the run."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
from jaxtyping import Int

from adiabat.data.pairs import PairSet, TextColumn
from adiabat.data.trained import TrainedTexts
from adiabat.jobs.trained import stored_documents
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store

_BLOCK = 4_096
"""Texts that are read together."""


def trained_pairs(pairs: PairSet, store: Store | None = None) -> TrainedTexts:
    """Texts of the queries and answers of pairs.

    Args:
        pairs: Trained or validated on.
        store: Holds their documents, which are then given by id or text; None where they are texts.

    Returns:
        Their hashes.
    """
    queries, answers = _texts(pairs.texts.queries, pairs.asked), np.unique(pairs.positive)
    if store is None:
        return TrainedTexts.of(queries, documents=_texts(pairs.texts.documents, answers))
    rows = rows_of_entries(pairs.texts.documents.take(answers), store)
    return TrainedTexts.of(queries, **stored_documents(store, rows))


def _texts(column: TextColumn, rows: Int[np.ndarray, " n"]) -> Iterator[str]:
    return chain.from_iterable(column.take(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK))
