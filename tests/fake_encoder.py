"""An encoder without a model: each vector is drawn by a generator seeded with its text's hash, so that equal texts have equal vectors."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from adiabat.data.records import Side
from adiabat.models.fingerprint import Fingerprint


@dataclass
class FakeEncoder:
    """Attributes: `faults` gives texts a vector of their own; `calls` counts texts per call."""

    width: int = 8
    prompt: str = ""
    faults: dict[str, float] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)

    def fingerprint(self, side: Side) -> Fingerprint:
        return Fingerprint("fake", "0" * 64, "1" * 64, "mean", True, self.prompt, 512, self.width)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        self.calls.append(len(texts))
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Float[np.ndarray, " e"]:
        if text in self.faults:
            return np.full(self.width, self.faults[text], dtype=np.float32)
        seed = int.from_bytes(hashlib.sha256((self.prompt + text).encode()).digest()[:8], "little")
        vector = np.random.default_rng(seed).standard_normal(self.width)
        return (vector / np.linalg.norm(vector)).astype(np.float32)
