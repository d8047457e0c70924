"""Fewer numbers per token: the directions in which token vectors differ most (mission E1)."""

import warnings
from typing import Literal

import numpy as np
from jaxtyping import Float
from sklearn.decomposition import PCA, FastICA
from sklearn.exceptions import ConvergenceWarning

from adiabat.errors import ConfigError, DataError
from adiabat.watch import SILENT, Watch

Reduction = Literal["pca", "randomized", "ica"]
"""``pca``: by the eigenvectors of the covariance, exact; ``randomized``: by a random projection, for thousands of numbers per token;
``ica``: independent directions in place of uncorrelated ones, which source 004 found worse."""

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
        kept = _kept(exact, scores)
    else:
        found = PCA(n_components=dims, svd_solver="covariance_eigh" if how == "pca" else "randomized", random_state=seed)
        scores = found.fit_transform(exact)
        kept = float(found.explained_variance_ratio_.sum())
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(dims)]
    return (scores * np.sign(largest)).astype(np.float32), kept


def require_dims(dims: int, rows: int, width: int) -> None:
    """Refuse more directions than there can be."""
    if dims > width:
        raise ConfigError(f"static.dims must be at most the {width} numbers of a token's vector, got {dims}; lower it, or leave it out")
    if dims >= rows:
        raise ConfigError(f"static.dims must be below the {rows} tokens of the vocabulary, got {dims}; lower it")


def _independent(table: Float[np.ndarray, "v e"], dims: int, seed: int, watch: Watch) -> Float[np.ndarray, "v k"]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        found: Float[np.ndarray, "v k"] = FastICA(n_components=dims, whiten="unit-variance", random_state=seed).fit_transform(table)
    if any(issubclass(one.category, ConvergenceWarning) for one in caught):
        watch.note("independent directions were not found to the end: they span what they should, and are turned within it")
    return found


def _kept(table: Float[np.ndarray, "v e"], scores: Float[np.ndarray, "v k"]) -> float:
    """Share of the variance that a linear function of the projections gives back."""
    centred = table - table.mean(axis=0)
    basis, _ = np.linalg.qr(scores - scores.mean(axis=0))
    return float(((basis.T @ centred) ** 2).sum() / (centred**2).sum())
