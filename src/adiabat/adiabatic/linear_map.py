"""A linear map of query vectors, fitted on stored documents: how much a better query side could gain,
measured without tuning a model.

The map W makes ``W q`` of a query vector q and leaves documents alone. It minimises the cross-entropy of a
softmax over the store,

``mean_q [ln sum_d exp(s(W q, d) / T) - mean_(p in positives) s(W q, p) / T] + pull / 2 ||W - I||^2``,

with ``s`` the dot product of unit vectors for cosine, of the vectors for dot product, and ``q.d - |d|^2 / 2``
for Euclidean distance. It is convex in W, so the map does not depend on a seed. The pull to the identity
decides how far the map may go; held-out queries choose it.

In a large store, the documents are the positives, the nearest of each query and a random sample of all
others, each of which stands for as many others as it was drawn from (Bengio and Senecal 2008, sampled
softmax).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int, Int64
from torch import Tensor

from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import Similarity
from adiabat.store.vector_store import Store

TEMPERATURE = 0.02
"""Of scores between unit vectors; other scores are divided by their typical size first."""

PULLS = (3.0, 1.0, 0.3, 0.1)
"""Pulls to the identity, strongest first; each fit starts from the one before it, the first from the identity
itself."""

MOST_DOCUMENTS = 8_192
"""Largest store whose documents all enter the softmax, and the number of documents that do in a larger
one."""

STEPS = 20
"""Maximum steps of L-BFGS per pull; 5 to 10 usually suffice."""

MapProgress = Callable[[int, int], None]
"""Called with (fits done, fits in all)."""


@dataclass(frozen=True, slots=True)
class MapProblem:
    """Queries with their positives among documents, scaled so that scores are those of the softmax.

    Attributes:
        queries: Query vectors.
        targets: Mean vector of each query's positives, divided by the temperature.
        constants: Mean over each query's positives of the part of the score that no map changes.
        documents: Document vectors, divided by the temperature.
        offsets: Of each document, what is added to its score: the logarithm of the number of documents that
            it stands for.
    """

    queries: Float[Tensor, "q e"]
    targets: Float[Tensor, "q e"]
    constants: Float[Tensor, " q"]
    documents: Float[Tensor, "d e"]
    offsets: Float[Tensor, " d"]

    def take(self, rows: Int64[np.ndarray, " n"]) -> "MapProblem":
        """The problem of some queries, with the same documents."""
        index = torch.from_numpy(rows)
        return replace(
            self, queries=self.queries[index], targets=self.targets[index], constants=self.constants[index]
        )

    def to(self, device: torch.device) -> "MapProblem":
        """The problem on a device."""
        return MapProblem(*(getattr(self, field.name).to(device) for field in fields(self)))

    def losses(self, change: Float[Tensor, "e e"]) -> Float64[np.ndarray, " q"]:
        """Cross-entropy of each query under the map ``I + change``."""
        mapped = self._mapped(change)
        totals = torch.logsumexp(self._scores(mapped), dim=1)
        return np.asarray(self._losses(mapped, totals).cpu().numpy())

    def _mapped(self, change: Float[Tensor, "e e"]) -> Float[Tensor, "q e"]:
        return self.queries + self.queries @ change.to(self.queries.device).T

    def _scores(self, mapped: Float[Tensor, "q e"]) -> Float[Tensor, "q d"]:
        # In place, here and below: the scores of all documents fill tens of megabytes.
        return (mapped @ self.documents.T).add_(self.offsets)

    def _losses(self, mapped: Float[Tensor, "q e"], totals: Float[Tensor, " q"]) -> Float64[Tensor, " q"]:
        return (totals - (mapped * self.targets).sum(dim=1) - self.constants).double()

    def objective(
        self, flat: Float64[np.ndarray, " ee"], pull: float
    ) -> tuple[float, Float64[np.ndarray, " ee"]]:
        """The objective and its gradient at the map ``I + change``."""
        width = self.queries.shape[1]
        change = torch.from_numpy(flat.reshape(width, width)).float()
        change = change.to(self.queries.device)
        mapped = self._mapped(change)
        scores = self._scores(mapped)
        totals = torch.logsumexp(scores, dim=1)
        loss = self._losses(mapped, totals).mean()
        # The mean document of each query by its softmax; the gradient is the distance to its targets.
        expected = scores.sub_(totals[:, None]).exp_() @ self.documents
        gradient = (expected - self.targets).T @ self.queries / len(self.queries) + pull * change
        return float(loss + pull / 2 * change.double().square().sum()), np.asarray(
            gradient.double().cpu().numpy()
        ).ravel()


def map_problem(
    store: Store,
    queries: Float32[np.ndarray, "q e"],
    positives: Ragged,
    nearest: Int64[np.ndarray, "q k"],
    *,
    similarity: Similarity,
    seed: int,
    most: int = MOST_DOCUMENTS,
) -> MapProblem:
    """The problem of queries in a store.

    Args:
        nearest: Rows of the nearest documents of each query; -1 for none.
        seed: Of the draw of documents in a store of more than `most`.
        most: Maximum number of documents, unless the positives alone are more.
    """
    rows, weights = _documents(
        store.count, np.unique(positives.values), nearest, np.random.default_rng(seed), most
    )
    vectors, documents = queries.astype(np.float32), store.gather(rows)
    if similarity == "cosine":
        vectors, documents = _unit(vectors), _unit(documents)
    size = (
        1.0 if similarity == "cosine" else float(_lengths(vectors).mean() * _lengths(documents).mean()) or 1.0
    )
    scale = 1 / (TEMPERATURE * size)
    fixed = (
        -np.square(documents, dtype=np.float64).sum(axis=1) / 2 * scale
        if similarity == "distance"
        else np.zeros(len(rows))
    )
    column = np.searchsorted(rows, positives.values)
    owner = np.repeat(np.arange(len(positives)), positives.lengths)
    shares = 1 / positives.lengths[owner]
    targets = np.zeros(vectors.shape, dtype=np.float32)
    np.add.at(targets, owner, (shares[:, None] * scale * documents[column]).astype(np.float32))
    constants = np.bincount(owner, weights=shares * fixed[column], minlength=len(positives))
    return MapProblem(
        queries=torch.from_numpy(vectors),
        targets=torch.from_numpy(targets),
        constants=torch.from_numpy(constants).float(),
        documents=torch.from_numpy((scale * documents).astype(np.float32)),
        offsets=torch.from_numpy(np.log(weights) + fixed).float(),
    )


def _documents(
    count: int,
    positives: Int[np.ndarray, " p"],
    nearest: Int64[np.ndarray, "q k"],
    generator: np.random.Generator,
    most: int,
) -> tuple[Int64[np.ndarray, " d"], Float64[np.ndarray, " d"]]:
    """Rows of the documents in the softmax, ascending, and the number of documents that each stands for."""
    if count <= most:
        return np.arange(count), np.ones(count)
    certain = positives.astype(np.int64)
    for rank in range(nearest.shape[1]):
        # Half of the places are for the random sample.
        with_rank = np.union1d(certain, nearest[nearest[:, rank] >= 0, rank])
        if len(with_rank) > most // 2:
            break
        certain = with_rank
    others = np.setdiff1d(np.arange(count), certain)
    drawn = (
        generator.choice(others, size=max(1, min(most - len(certain), len(others))), replace=False)
        if len(others)
        else others
    )
    rows = np.concatenate([certain, drawn])
    weights = np.concatenate([np.ones(len(certain)), np.full(len(drawn), len(others) / max(1, len(drawn)))])
    order = np.argsort(rows)
    return rows[order], weights[order]


def _lengths(vectors: Float32[np.ndarray, "n e"]) -> Float32[np.ndarray, " n"]:
    return np.asarray(np.linalg.norm(vectors, axis=1))


def _unit(vectors: Float32[np.ndarray, "n e"]) -> Float32[np.ndarray, "n e"]:
    """Vectors of unit length; a zero vector stays zero."""
    return np.asarray(vectors / np.maximum(_lengths(vectors), np.finfo(np.float32).tiny)[:, None])


def fit_maps(
    problem: MapProblem, pulls: Sequence[float], *, on_fit: Callable[[], None] = lambda: None
) -> list[Float32[np.ndarray, "e e"]]:
    """The map of each pull, strongest first: ``I`` plus a change, of which the change is returned."""
    from scipy.optimize import minimize

    width = problem.queries.shape[1]
    flat, changes = np.zeros(width * width), []
    for pull in pulls:
        # Each fit starts from the one before it, whose pull is stronger, so few steps suffice.
        flat = minimize(
            problem.objective,
            flat,
            args=(pull,),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": STEPS, "ftol": 1e-4},
        ).x
        changes.append(flat.reshape(width, width).astype(np.float32))
        on_fit()
    return changes


@dataclass(frozen=True, slots=True)
class CrossValidatedMap:
    """Query vectors mapped by maps that were fitted without them.

    Attributes:
        vectors: Every query under the map of the other folds.
        pull: The pull with the lowest loss over all folds; None if it is that of the identity.
    """

    vectors: Float32[np.ndarray, "q e"]
    pull: float | None


def cross_validate(
    problem: MapProblem,
    queries: Float32[np.ndarray, "q e"],
    folds: Int[np.ndarray, " q"],
    *,
    on_progress: MapProgress | None = None,
) -> CrossValidatedMap:
    """Map every query by a map that was fitted on the other folds.

    The pull of a fold, or the identity, is the one with the lowest loss on the queries of the other folds,
    each under a map that was fitted without it; so no query chooses its own pull.

    Args:
        queries: The query vectors as the model gives them; they keep their lengths unless mapped.
        folds: Number of each query's fold, from 0.
    """
    count, done = int(folds.max()) + 1, 0

    def report() -> None:
        nonlocal done
        done += 1
        if on_progress:
            on_progress(done, count * len(PULLS))

    members = [np.flatnonzero(folds == fold) for fold in range(count)]
    identity = np.zeros((queries.shape[1], queries.shape[1]), dtype=np.float32)
    losses = np.zeros((len(PULLS) + 1, len(queries)))
    changes = []
    for inside in members:
        fitted = [
            identity,
            *fit_maps(problem.take(np.flatnonzero(folds != folds[inside[0]])), PULLS, on_fit=report),
        ]
        held_out = problem.take(inside)
        for number, change in enumerate(fitted):
            losses[number, inside] = held_out.losses(torch.from_numpy(change))
        changes.append(fitted)
    vectors = queries.astype(np.float32, copy=True)
    for fold, inside in enumerate(members):
        vectors[inside] = apply_map(
            queries[inside], changes[fold][int(losses[:, folds != fold].sum(axis=1).argmin())]
        )
    # Row 0 is the identity, so that pull `n` is in row ``n + 1``.
    best = int(losses.sum(axis=1).argmin())
    return CrossValidatedMap(vectors, PULLS[best - 1] if best else None)


def apply_map(
    queries: Float32[np.ndarray, "q e"], change: Float32[np.ndarray, "e e"]
) -> Float32[np.ndarray, "q e"]:
    """Queries under the map ``I + change``; not normalised."""
    return np.asarray(queries + queries @ change.T)


def folds_of(clusters: Int[np.ndarray, " q"], folds: int, *, seed: int) -> Int64[np.ndarray, " q"] | None:
    """Number of each query's fold, whole clusters together: the largest cluster first, each to the smallest
    fold.

    Returns:
        None if there are fewer clusters than folds, or if one cluster has more than half of the queries.
    """
    # A cluster of more than half of the queries would leave less than half to fit on.
    sizes = np.bincount(clusters)
    if np.count_nonzero(sizes) < folds or 2 * sizes.max() > len(clusters):
        return None
    order = np.random.default_rng(seed).permutation(len(sizes))
    fold_of, filled = np.zeros(len(sizes), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for cluster in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[cluster] = filled.argmin()
        filled[fold_of[cluster]] += sizes[cluster]
    return np.asarray(fold_of[clusters])
