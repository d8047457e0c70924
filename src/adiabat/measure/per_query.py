"""What one model scores on each query of a data set: rank measures that a comparison of several models is made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from adiabat.config import MeasureSection
from adiabat.errors import DataError
from adiabat.measure.tasks import _per_query, _planned
from adiabat.model.towers import DualEncoder
from adiabat.store.addressing import AddressedSet
from adiabat.store.embeddings import Store
from adiabat.watch import Watch


@dataclass(frozen=True, slots=True)
class QueryScores:
    """Rank measures of one model on one data set, query by query.

    Attributes:
        kind: ``ranking`` of the whole store, or ``pairs``: listed candidates.
        documents: How many the store holds.
        values: Measure to one value for each query that is measured, in the order of the data, by cosine; the main one first.
        notes: What was left out.
    """

    kind: Literal["ranking", "pairs"]
    documents: int
    values: Mapping[str, Float[np.ndarray, " q"]]
    notes: tuple[str, ...]


def query_scores(model: DualEncoder, store: Store, examples: AddressedSet, *, settings: MeasureSection, watch: Watch) -> QueryScores:
    """Measure a model query by query, as `adiabat.measure.tasks.measure_examples` does before it takes means.

    Args:
        model: Whose query tower is asked.
        store: Documents of its document tower.
        examples: Queries and rows.
        settings: Measures, depth, which negatives.
        watch: Told how far it is.

    Returns:
        The scores.

    Raises:
        DataError: If the store holds nothing to compare positives with.
        StoreError: If the store was not made by the model's document tower.
    """
    store.require_encoder(model.fingerprint("document"))
    plan = _planned(store, examples, settings)
    queries = model.encode(plan.examples.queries, side="query", precision="fp32")
    scored = plan.score(store, queries, "cosine", watch)
    if not scored.counts.pairs.any():
        raise DataError(
            f"{examples.name}: the corpus must hold documents beside the positives of a query, got {store.count} in all; name a larger one"
        )
    measured = _per_query(plan.examples, [scored], "cosine", settings)
    values = {one.measure: one.after for one in measured if one.measure in settings.measures}
    return QueryScores("pairs" if plan.listed else "ranking", store.count, values, (*plan.examples.notes, *plan.notes))
