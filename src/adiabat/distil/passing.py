"""Every token of a vocabulary through a teacher, by itself between the special tokens that the teacher knows (mission E1)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from adiabat.errors import DataError
from adiabat.model.encoder import Encoder
from adiabat.model.pooling import Pooling
from adiabat.model.precision import Precision
from adiabat.store.kept import KeptVectors
from adiabat.watch import SILENT, Watch

TokenPooling = Literal["mean", "token", "first", "last"]
"""``mean``: over the token and the special tokens around it; ``token``: over the token's own states; ``first`` and ``last``: the state of
the first or last of all."""

POOLINGS: Mapping[TokenPooling, Pooling] = {"mean": "mean", "token": "mean", "first": "cls", "last": "last"}

PRECISION: Precision = "fp32"
"""Of the passes: they are made once, and a table has what they give."""

BLOCK = 8_192
"""Tokens that pass between two notes on the disk of how far it is."""


@dataclass(frozen=True, slots=True)
class Sequences:
    """What passes through the teacher for each row of a table.

    Attributes:
        token_ids: Of the teacher, special tokens included.
        before: How many special tokens stand in front.
        after: How many stand behind.
    """

    token_ids: Sequence[Sequence[int]]
    before: int
    after: int


def token_vectors(
    teacher: Encoder,
    sequences: Sequences,
    *,
    pooling: TokenPooling = "mean",
    folder: Path | None = None,
    watch: Watch = SILENT,
) -> Float[np.ndarray, "v e"]:
    """Pass sequences through a teacher, projections included, and without prompts or unit length.

    Args:
        folder: Where vectors are kept as they come, so that what was cut short goes on; made where missing. None keeps none.
    """
    settings = replace(teacher.settings, pooling=POOLINGS[pooling], normalize=False)
    bare = teacher.with_settings(settings)
    skipped, closing = (sequences.before, sequences.after) if pooling == "token" else (0, 0)
    kept = KeptVectors(len(sequences.token_ids), bare.width)
    if folder is not None:
        kept.keep_in(folder / f"tokens-{_print_of(bare, sequences, pooling)}", resume=True)
    missing = np.flatnonzero(~kept.known)
    for start in range(0, len(missing), BLOCK):
        watch.progress("passing tokens through the teacher", start, len(missing))
        rows = missing[start : start + BLOCK]
        found = bare.encode_tokens([sequences.token_ids[row] for row in rows], skipped=skipped, closing=closing, precision=PRECISION)
        _require_finite(found, sequences, rows, teacher)
        kept.vectors[rows], kept.known[rows] = found, True
        kept.save()
    return kept.vectors


def _print_of(teacher: Encoder, sequences: Sequences, pooling: TokenPooling) -> str:
    """Digest of all that decides the vectors."""
    around = [sequences.before, sequences.after, pooling, PRECISION]
    told = json.dumps([teacher.weights_digest(), [list(ids) for ids in sequences.token_ids], *around])
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _require_finite(found: Float[np.ndarray, "b e"], sequences: Sequences, rows: Int[np.ndarray, " b"], teacher: Encoder) -> None:
    finite = np.isfinite(found).all(axis=1)
    if not finite.all():
        token = teacher.tokenizer.decode(list(sequences.token_ids[int(rows[finite.argmin()])]))
        raise DataError(f"the teacher must give finite vectors, got one that is not for {token!r}; check its weights")
