"""Models that give the vectors a test wants."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.data.records import Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision
from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store
from tests.imported import import_vectors


def give(
    monkeypatch: pytest.MonkeyPatch, vectors: Mapping[str, Sequence[float]]
) -> list[tuple[Side, Precision, list[str]]]:
    """Every model gives these vectors from now on; what it was asked for is noted in the list that comes
    back.
    """
    asked: list[tuple[Side, Precision, list[str]]] = []

    def encode(
        self: DualEncoder,
        texts: Sequence[str],
        *,
        side: Side,
        precision: Precision = "auto",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Float[np.ndarray, "n e"]:
        asked.append((side, precision, list(texts)))
        if on_progress:
            on_progress(Progress(len(texts), len(texts), 0))
        return np.array([vectors[text] for text in texts], dtype=np.float32)

    monkeypatch.setattr(DualEncoder, "encode", encode)
    return asked


def sentences(count: int, *, seed: int) -> list[str]:
    """Different made-up sentences."""
    generator = np.random.default_rng(seed)
    words = ["river", "stone", "green", "walks", "über", "река", "seven", "cold", "lamp", "why"]
    made = [" ".join(generator.choice(words, size=generator.integers(2, 7))) for _ in range(count)]
    return [f"{sentence} {number}" for number, sentence in enumerate(made)]


def imported_store(folder: Path, vectors: Float[np.ndarray, "n e"]) -> Store:
    """A store of these vectors, whose documents are called d0, d1 and so on."""
    np.save(folder / "vectors.npy", vectors.astype(np.float32))
    ids = [f"d{row}" for row in range(len(vectors))]
    return import_vectors(folder / "vectors.npy", folder / "store", ids=ids, dtype="float32")
