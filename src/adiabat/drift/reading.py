"""What a query tower finds for probe texts in a store."""

import numpy as np
from jaxtyping import Float32

from adiabat.drift.probes import ProbeSet
from adiabat.measure.drift import Reading
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.store.search import score_rows, search
from adiabat.tasks.texts import embed_texts
from adiabat.watch import SILENT, Watch


def read_tower(
    model: DualEncoder, probes: ProbeSet, store: Store, *, depth: int, start: Reading | None = None, watch: Watch = SILENT
) -> Reading:
    """Embed the probes, and look for them.

    Args:
        model: Whose query tower.
        probes: Unlabelled texts.
        store: Where they are looked for; made by the document tower of the model.
        depth: Documents wanted for each, > 1; a smaller store gives all it has.
        start: Of the untuned tower, whose documents are scored; None where this is the untuned tower.
        watch: Told how far it is.

    Returns:
        Vectors, the nearest documents, and the cosine with those that the untuned tower found.

    Raises:
        DataError: If a vector is not finite.

    Reference:
        Mission A12.
    """
    vectors = embed_texts(model, probes.texts, side="query", name=f"probes ({probes.name})", watch=watch)
    return reading_of(vectors, store, depth=depth, start=start)


def reading_of(vectors: Float32[np.ndarray, "n e"], store: Store, *, depth: int, start: Reading | None = None) -> Reading:
    """Look for probes that are embedded already.

    Args:
        vectors: Of the probes.
        store: As for `read_tower`.
        depth: Likewise.
        start: Likewise.

    Returns:
        As `read_tower`.
    """
    hits = search(store, vectors, min(depth, store.count))
    rows = hits.rows.astype(np.int64)
    scores = hits.scores if start is None else score_rows(store, vectors, start.rows)
    return Reading(vectors=vectors, rows=rows, scores=scores.astype(np.float32))
