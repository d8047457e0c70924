"""What a query tower finds for probe texts in a store."""

import numpy as np
from jaxtyping import Float32

from adiabat.adiabatic.drift import MEASURES, Reading, drift_of
from adiabat.adiabatic.probes import ProbeSet
from adiabat.core.progress import SILENT, Watch
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.store.search import score_rows, search
from adiabat.store.text_vectors import embed_texts
from adiabat.store.vector_store import Store

STAYS = 1e-5
"""Largest difference between vectors of unit length that is no more than rounding."""


def noise_of(start: Reading, otherwise: Reading) -> dict[str, float]:
    """Drift of the untuned tower where nothing but the writing of the probes changes.

    A probe whose vector stays says nothing of it, as one whose end lies past the token limit: it is left out.

    Returns:
        Measure to its mean over the probes that moved; 0 where none did.
    """
    units = [reading.vectors / np.linalg.norm(reading.vectors, axis=1, keepdims=True).clip(1e-12) for reading in (start, otherwise)]
    moved = (np.abs(units[0] - units[1]) > STAYS).any(axis=1)
    return drift_of(start.of(moved), otherwise.of(moved)).means if moved.any() else dict.fromkeys(MEASURES, 0.0)


def read_tower(
    model: DualEncoder, probes: ProbeSet, store: Store, *, depth: int, start: Reading | None = None, watch: Watch = SILENT
) -> Reading:
    """Embed the probes, and look for them.

    Args:
        start: Of the untuned tower, whose documents are scored; None where this is the untuned tower.
    """
    vectors = embed_texts(model, probes.texts, side="query", name=f"probes ({probes.name})", watch=watch)
    return reading_of(vectors, store, depth=depth, similarity=model.ranks_by, start=start)


def reading_of(
    vectors: Float32[np.ndarray, "n e"], store: Store, *, depth: int, similarity: Similarity, start: Reading | None = None
) -> Reading:
    """Look for probes that are embedded already."""
    hits = search(store, vectors, min(depth, store.count), similarity=similarity)
    rows = hits.rows.astype(np.int64)
    scores = hits.scores if start is None else score_rows(store, vectors, start.rows, similarity=similarity)
    return Reading(vectors=vectors, rows=rows, scores=scores.astype(np.float32))
