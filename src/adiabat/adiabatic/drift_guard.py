"""A watch over drift while a query tower is tuned: what probe texts find now, beside what they found at the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
import torch
from jaxtyping import Float32

from adiabat.adiabatic.drift import MEASURES, Reading, drift_of
from adiabat.adiabatic.probes import ProbeSet
from adiabat.config.tuning import GuardSection
from adiabat.core.errors import ConfigError, DivergedError
from adiabat.core.progress import SILENT, Watch
from adiabat.models.bulk import TokenTable, embed_all
from adiabat.models.embedding_head import Similarity
from adiabat.models.encoder import Encoder
from adiabat.models.towers import DualEncoder
from adiabat.results.drift_judgement import limits_of
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


PROBE_TOKENS = 4_096
"""Tokens per forward pass of a look."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    Attributes:
        measures: Of drift, over all probes.
        outside: Why the tower must not be the result, in words; None where it may.
    """

    measures: Mapping[str, float] = field(default_factory=dict)
    outside: str | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Looks at the drift of a tower.

    Attributes:
        section: Which measure may go how far.
        tokens: Of the probes.
        store: Where they are looked for.
        start: What the untuned tower found.
        similarity: What documents are ranked by.
        most: Drift that is not beyond the limit; None only watches.
        noise: Measure to the drift of the untuned tower on probes that are written otherwise; empty where the limit is not made of it.
        digests: SHA-256 of texts and store, by the names that the description of a job has for them.
    """

    section: GuardSection
    tokens: TokenTable
    store: Store
    start: Reading
    similarity: Similarity = "cosine"
    most: float | None = None
    noise: Mapping[str, float] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, section: GuardSection, probes: ProbeSet, model: DualEncoder, store: Store) -> Self:
        """Look at the untuned tower."""
        tokens = TokenTable.of(model.query, probes.texts, side="query")
        read = partial(_read, model.query, store=store, depth=section.depth, similarity=model.ranks_by)
        start = read(tokens)
        digests = {"probes": probes.sha256, "probed_vectors": store.manifest.sha256}
        if section.most != "noise":
            return cls(section, tokens, store, start, model.ranks_by, section.most, digests=digests)
        otherwise = TokenTable.of(model.query, probes.otherwise().texts, side="query")
        noise = noise_of(start, read(otherwise, start=start))
        return cls(section, tokens, store, start, model.ranks_by, _limit(noise, section.measure), noise, digests)

    @property
    def probes(self) -> int:
        """How many texts."""
        return len(self.tokens)

    def look(self, tower: Encoder) -> Look:
        """How far a tower has drifted."""
        now = _read(tower, self.tokens, store=self.store, depth=self.section.depth, similarity=self.similarity, start=self.start)
        measures = drift_of(self.start, now).means
        name, limit = self.section.measure, self.most
        if limit is None or measures[name] <= limit:
            return Look(measures)
        bound = "what stays within noise," if self.noise else "guard.most ="
        return Look(measures, f"the drift of the probes ({name}) is {measures[name]:.3g}, beyond {bound} {limit:.3g}")


def _limit(noise: Mapping[str, float], measure: str) -> float:
    limit = limits_of(noise)[measure]
    if not limit > 0:
        raise ConfigError(
            f"guard.most must be a number where {measure} stays when probes end otherwise, got noise, which is 0 then: the model does not "
            "see how a text ends, or the store is too small for an order to change; look at the drift of a first run without a limit, and "
            "give one"
        )
    return limit


def _read(tower: Encoder, tokens: TokenTable, *, store: Store, depth: int, similarity: Similarity, start: Reading | None = None) -> Reading:
    # Not by `Encoder.encode`, whose threads would change the last digits of the training that goes on around them.
    with torch.no_grad():
        vectors = embed_all(tower, tokens, token_budget=PROBE_TOKENS).cpu().numpy()
    if not np.isfinite(vectors).all():
        raise DivergedError("the vectors of the probes must be finite numbers, got NaN or infinity", "lower the learning rate")
    return reading_of(vectors, store, depth=depth, similarity=similarity, start=start)
