"""Models that give the vectors a test wants."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.data.records import Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision
from adiabat.models.towers import DualEncoder


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
    return [
        f"{' '.join(generator.choice(words, size=generator.integers(2, 7)))} {number}"
        for number in range(count)
    ]
