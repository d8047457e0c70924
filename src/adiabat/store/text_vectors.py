"""Vectors of a task's texts: each distinct text goes through the model once."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Float32

from adiabat.core.errors import DataError, several
from adiabat.core.progress import Watch
from adiabat.core.text import cut
from adiabat.data.records import Side
from adiabat.models.bulk import Progress
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import SHOWN_CHARACTERS

_SHOWN = 5


def embed_texts(model: DualEncoder, texts: Sequence[str], *, side: Side, name: str, watch: Watch) -> Float32[np.ndarray, "n e"]:
    """Embed texts in float32; equal texts share one vector, to the last bit.

    Returns:
        One row per text, in the order given.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}

    def show(progress: Progress) -> None:
        watch.progress(f"encoding {name}", progress.done, progress.total)

    vectors = model.encode(list(row_of), side=side, precision="fp32", on_progress=show)
    broken = ~np.isfinite(vectors).all(axis=1)
    if broken.any():
        raise DataError(
            f"{name}: vectors must be finite, got NaN or infinity for {_told(list(row_of), broken)}; the model's weights are damaged"
        )
    return vectors[[row_of[text] for text in texts]]


def zero_rows(vectors: Float[np.ndarray, "n e"]) -> Bool[np.ndarray, " n"]:
    """Which vectors point nowhere: a cosine with them is not defined.

    Args:
        vectors: One row per text.
    """
    return np.asarray(~vectors.any(axis=1))


def require_directions(vectors: Float[np.ndarray, "n e"], texts: Sequence[str], *, name: str) -> None:
    """Refuse zero vectors where cosines are about to be taken.

    Args:
        vectors: One row per text.
    """
    zero = zero_rows(vectors)
    if zero.any():
        raise DataError(
            f"{name}: vectors must not be zero, which has a cosine with nothing, got one for {_told(texts, zero)}; "
            "leave those texts out, or use a model that knows them"
        )


def _told(texts: Sequence[str], chosen: Bool[np.ndarray, " n"]) -> str:
    """The chosen texts, each once."""
    distinct = dict.fromkeys(texts[row] for row in np.flatnonzero(chosen).tolist())
    return several((repr(cut(text, limit=SHOWN_CHARACTERS)) for text in distinct), of="texts", shown=_SHOWN)
