"""Every token of a vocabulary through a teacher, by itself between the special tokens that the teacher knows.

Reference: van Dongen and Tulkens, model2vec.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.models.device import Precision
from adiabat.models.embedding_head import Pooling
from adiabat.models.encoder import Encoder
from adiabat.store.embedding_cache import EmbeddingCache

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
    """What passes through the teacher for each row of a table."""

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
    cache = EmbeddingCache(len(sequences.token_ids), bare.width)
    if folder is not None:
        cache.keep_in(folder / f"tokens-{_print_of(bare, sequences, pooling)}", resume=True)
    missing = np.flatnonzero(~cache.known)
    for start in range(0, len(missing), BLOCK):
        watch.progress("passing tokens through the teacher", start, len(missing))
        rows = missing[start : start + BLOCK]
        vectors = bare.encode_tokens([sequences.token_ids[row] for row in rows], skipped=skipped, closing=closing, precision=PRECISION)
        _require_finite(vectors, sequences, rows, teacher)
        cache.put(rows, vectors)
        cache.save()
    return cache.vectors


def _print_of(teacher: Encoder, sequences: Sequences, pooling: TokenPooling) -> str:
    """Digest of all that decides the vectors."""
    around = [sequences.before, sequences.after, pooling, PRECISION]
    text = json.dumps([teacher.weights_digest(), [list(ids) for ids in sequences.token_ids], *around])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _require_finite(vectors: Float[np.ndarray, "b e"], sequences: Sequences, rows: Int[np.ndarray, " b"], teacher: Encoder) -> None:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        token = teacher.tokenizer.decode(list(sequences.token_ids[int(rows[finite.argmin()])]))
        raise DataError(f"the teacher must give finite vectors, got one that is not for {token!r}; check its weights")


Reduction = Literal["pca", "randomized", "ica"]
"""``pca``: by the eigenvectors of the covariance, exact; ``randomized``: by a random projection, for thousands of numbers per token;
``ica``: independent directions in place of uncorrelated ones, which van Dongen and Tulkens, model2vec found worse."""

Table = Float[np.ndarray, "v e"]


def reduced(
    table: Table, dims: int, *, how: Reduction = "pca", seed: int = 0, watch: Watch = SILENT
) -> tuple[Float[np.ndarray, "v k"], float]:
    """Project token vectors, centred, onto a few directions."""
    require_dims(dims, *table.shape)
    exact = table.astype(np.float64)
    if not np.ptp(exact, axis=0).any():
        raise DataError("the teacher must tell tokens apart, got the same vector for all; check its weights, or take another pooling")
    if how == "ica":
        scores = _independent(exact, dims, seed, watch)
        variance = _kept(exact, scores)
    else:
        projection = PCA(n_components=dims, svd_solver="covariance_eigh" if how == "pca" else "randomized", random_state=seed)
        scores = projection.fit_transform(exact)
        variance = float(projection.explained_variance_ratio_.sum())
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(dims)]
    return (scores * np.sign(largest)).astype(np.float32), variance


def require_dims(dims: int, rows: int, width: int) -> None:
    """Refuse more directions than there can be."""
    if dims > width:
        raise ConfigError(f"static.dims must be at most the {width} numbers of a token's vector, got {dims}; lower it, or leave it out")
    if dims >= rows:
        raise ConfigError(f"static.dims must be below the {rows} tokens of the vocabulary, got {dims}; lower it")


def _independent(table: Float[np.ndarray, "v e"], dims: int, seed: int, watch: Watch) -> Float[np.ndarray, "v k"]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        sources: Float[np.ndarray, "v k"] = FastICA(n_components=dims, whiten="unit-variance", random_state=seed).fit_transform(table)
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        watch.note("independent directions were not found to the end: they span what they should, and are turned within it")
    return sources


def _kept(table: Float[np.ndarray, "v e"], scores: Float[np.ndarray, "v k"]) -> float:
    """Share of the variance that a linear function of the projections gives back."""
    centred = table - table.mean(axis=0)
    basis, _ = np.linalg.qr(scores - scores.mean(axis=0))
    return float(((basis.T @ centred) ** 2).sum() / (centred**2).sum())
