"""Texts of pairs that are trained or validated on, for the record of the run."""

import numpy as np

from adiabat.data.pairs import PairSet
from adiabat.data.trained import TrainedTexts, in_blocks
from adiabat.jobs.trained import stored_documents
from adiabat.store.addressing import rows_of_entries
from adiabat.store.embeddings import Store


def trained_pairs(pairs: PairSet, store: Store | None = None) -> TrainedTexts:
    """Texts of the queries and answers of pairs.

    Args:
        store: Holds their documents, which are then given by id or text; None where they are texts.
    """
    queries, answers = in_blocks(pairs.texts.queries.take, pairs.asked), np.unique(pairs.positive)
    if store is None:
        return TrainedTexts.of(queries, documents=in_blocks(pairs.texts.documents.take, answers))
    rows = rows_of_entries(pairs.texts.documents.take(answers), store)
    return TrainedTexts.of(queries, **stored_documents(store, rows))
