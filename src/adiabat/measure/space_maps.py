"""Maps of two towers in the plane by t-SNE, begun from given places so that maps of two models can be compared (mission C6)."""

import numpy as np
from jaxtyping import Float

from adiabat.errors import MissingDependencyError

BEGINNING = 9e-5
"""Standard deviation of the places that t-SNE starts from: below 1e-4, from which on points move too little (Kobak and Berens 2019)."""

LEAST_PERPLEXITY = 2.0


def require_maps() -> None:
    """Say early that a map cannot be drawn."""
    try:
        import openTSNE  # noqa: F401  it is only asked for
    except ImportError as error:
        raise MissingDependencyError("openTSNE", extra="maps", purpose="the map of adiabat space --map") from error


def first_places(vectors: Float[np.ndarray, "n e"], *, seed: int) -> Float[np.ndarray, "n 2"]:
    """Where the points of a map start: along the first two principal components, with a little noise that parts equal points."""
    centred = vectors - vectors.mean(axis=0)
    # The signs of singular vectors are arbitrary: the largest component of each shall be positive.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    places = np.zeros((len(centred), 2))
    places[:, : len(axes)] = centred @ axes.T
    spread = float(places[:, 0].std())
    noise = np.random.default_rng(seed).normal(scale=BEGINNING / 100, size=places.shape)
    return np.asarray(places * (BEGINNING / spread if spread > 0 else 0.0) + noise)


def fitting_perplexity(perplexity: float, points: int) -> float:
    """The most that a map of few points can have: three times as many neighbours are looked at."""
    return max(LEAST_PERPLEXITY, min(perplexity, float((points - 1) // 3)))


def tower_map(
    vectors: Float[np.ndarray, "n e"], first: Float[np.ndarray, "n 2"], *, perplexity: float, seed: int
) -> Float[np.ndarray, "n 2"]:
    """Places of unit vectors in the plane, near where they are near on the sphere.

    Exact neighbours and a single thread: the same vectors give the same map.

    Args:
        vectors: Of both towers, unit length.
    """
    require_maps()
    from openTSNE import TSNE

    maker = TSNE(
        perplexity=perplexity,
        initialization=first.copy(),
        metric="euclidean",
        neighbors="exact",
        negative_gradient_method="bh",
        # scikit-learn, whose check this goes through, takes 32 bits.
        random_state=seed % 2**32,
        n_jobs=1,
    )
    return np.array(maker.fit(vectors), dtype=np.float64)
