"""Maps of two towers by t-SNE, and how well a line separates queries from documents."""

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.errors import MissingDependencyError
from adiabat.evaluation.space_geometry import Counts, Draws, Statistic

INITIAL_SPREAD = 9e-5
"""Standard deviation of the places that t-SNE starts from: below 1e-4, from which on points move too little (Kobak and Berens 2019)."""

MIN_PERPLEXITY = 2.0


def require_maps() -> None:
    """Say early that a map cannot be drawn."""
    try:
        import openTSNE  # noqa: F401  it is only asked for
    except ImportError as error:
        raise MissingDependencyError("openTSNE", extra="maps", purpose="the map of adiabat space --map") from error


def initial_map(vectors: Float[np.ndarray, "n e"], *, seed: int) -> Float[np.ndarray, "n 2"]:
    """Where the points of a map start: along the first two principal components, with a little noise that parts equal points."""
    centred = vectors - vectors.mean(axis=0)
    # The signs of singular vectors are arbitrary: the largest component of each shall be positive.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    points = np.zeros((len(centred), 2))
    points[:, : len(axes)] = centred @ axes.T
    spread = float(points[:, 0].std())
    noise = np.random.default_rng(seed).normal(scale=INITIAL_SPREAD / 100, size=points.shape)
    return np.asarray(points * (INITIAL_SPREAD / spread if spread > 0 else 0.0) + noise)


def fit_perplexity(perplexity: float, points: int) -> float:
    """The most that a map of few points can have: three times as many neighbours are looked at."""
    return max(MIN_PERPLEXITY, min(perplexity, float((points - 1) // 3)))


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


REGULARISATION = 1.0
"""C of the logistic regression, on vectors whose components have variance 1 on average."""

ITERATIONS = 2_000


def fold_of(clusters: Int[np.ndarray, " n"], folds: int, *, seed: int) -> Int[np.ndarray, " n"]:
    """Put pairs into folds, those of one cluster into the same one: no positive is learned from in one fold and judged in another.

    Args:
        clusters: Of each pair, from 0; as many at least as folds.
        folds: How many.
        seed: Of the order in which clusters are dealt out.

    Returns:
        The fold of each pair, from 0.
    """
    sizes = np.bincount(clusters)
    order = np.random.default_rng(seed).permutation(len(sizes))
    # The largest first, each into the smallest fold, so that folds come out about equal.
    filled, fold = np.zeros(folds), np.empty(len(sizes), dtype=np.int64)
    for cluster in order[np.argsort(-sizes[order], kind="stable")]:
        fold[cluster] = int(filled.argmin())
        filled[fold[cluster]] += sizes[cluster]
    return np.asarray(fold[clusters])


def probe_scores(
    queries: Float[np.ndarray, "n e"], documents: Float[np.ndarray, "n e"], folds: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """How much like a query each vector looks to a logistic regression that has not seen its fold.

    Vectors are centred and divided by one number, so that nothing depends on how the axes lie.

    Args:
        queries: One of each pair.
        documents: The other.
        folds: Of each pair.

    Returns:
        Scores of queries, and of documents; higher is more like a query.
    """
    scores = np.empty((2, len(folds)))
    for fold in range(int(folds.max()) + 1):
        aside = folds == fold
        scores[:, aside] = _fold_scores(queries, documents, aside)
    return scores[0], scores[1]


def _fold_scores(queries: Float[np.ndarray, "n e"], documents: Float[np.ndarray, "n e"], aside: np.ndarray) -> Float[np.ndarray, "2 a"]:
    from sklearn.linear_model import LogisticRegression

    learned = np.concatenate([queries[~aside], documents[~aside]])
    centre = learned.mean(axis=0)
    spread = float(np.sqrt(np.square(learned - centre).mean())) or 1.0
    probe = LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS, tol=1e-6)
    probe.fit((learned - centre) / spread, np.repeat([1, 0], len(learned) // 2))
    return np.stack([probe.decision_function((vectors[aside] - centre) / spread) for vectors in (queries, documents)])


def auc_of(queries: Float[np.ndarray, " n"], documents: Float[np.ndarray, " n"], folds: Int[np.ndarray, " n"]) -> Statistic:
    """How often a query scores above a document, both of the same fold; a tie counts half.

    ``AUC = sum_f sum_{i,j in f} c_i c_j [s(q_i) > s(d_j)] / sum_f (sum_{i in f} c_i)^2``: scores of different folds come from different
    regressions and are not compared.

    Args:
        queries: Scores.
        documents: Scores.
        folds: Of each pair.

    Returns:
        The statistic: 0.5 where nothing tells the towers apart, 1 where the probe always does.

    Reference:
        Hanley and McNeil 1982.
    """
    members = [np.flatnonzero(folds == fold) for fold in range(int(folds.max()) + 1)]
    wins = [_wins(queries[rows], documents[rows]) for rows in members]

    def value(counts: Counts) -> Draws:
        won, compared = np.zeros(len(counts)), np.zeros(len(counts))
        for rows, table in zip(members, wins, strict=True):
            fold_counts = counts[:, rows]
            won += np.einsum("rn,rn->r", fold_counts @ table, fold_counts)
            compared += np.square(fold_counts.sum(axis=1))
        return won / compared

    return value


def _wins(queries: Float[np.ndarray, " n"], documents: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n n"]:
    ahead = queries[:, None] - documents[None]
    return np.asarray((np.sign(ahead) + 1) / 2)
