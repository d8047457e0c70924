"""An encoder without a model: the hash of a text seeds its vector, so that equal texts have equal vectors;
and stores of such vectors.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.data.records import Document, Fingerprint, Side
from adiabat.store.build import BuildResult, build_store


@dataclass
class FakeEncoder:
    """Attributes: `faults` gives texts another vector; `calls` counts texts per call; the call of number
    `stop_at` is interrupted.
    """

    width: int = 8
    prompt: str = ""
    faults: dict[str, float] = field(default_factory=dict)
    calls: list[int] = field(default_factory=list)
    stop_at: int | None = None

    def fingerprint(self, side: Side) -> Fingerprint:
        return Fingerprint("fake", "0" * 64, "1" * 64, "mean", True, self.prompt, 512, self.width)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        if len(self.calls) == self.stop_at:
            raise KeyboardInterrupt
        self.calls.append(len(texts))
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> Float[np.ndarray, " e"]:
        if text in self.faults:
            return np.full(self.width, self.faults[text], dtype=np.float32)
        seed = int.from_bytes(hashlib.sha256((self.prompt + text).encode()).digest()[:8], "little")
        vector = np.random.default_rng(seed).standard_normal(self.width)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def fake_store(
    out: Path | str, documents: Sequence[Document], encoder: FakeEncoder | None = None, **options: Any
) -> BuildResult:
    """Build a store in chunks of four documents."""
    named = {"chunk_size": 4, "source": "corpus", "encoder_name": "fake", **options}
    return build_store(encoder or FakeEncoder(), lambda: iter(documents), out, **named)


def files_of_store(folder: Path) -> dict[str, bytes]:
    """Content of the files of a store, its manifest excepted, which has a date."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and path.name[0] not in "m."
    }
