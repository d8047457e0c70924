"""Statistics of vectors on the unit sphere, as functions of how often each unit is drawn (Moiseev et al.
2023).

A statistic takes counts, one row per resample and one column per vector, and returns its value in each
resample; a row of ones gives its
plain value. A pair counts as often as both units are drawn together, and a unit makes no pair with itself:
the bootstrap of a mean over pairs so accounts for the units that pairs share (Snijders and Borgatti 1999).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.core.errors import DataError
from adiabat.results.space_result import QUANTILES, Histogram
from adiabat.stats.statistics import members_of
from adiabat.stats.unit_arrays import Counts, Draws, Numbers, Values, Vectors

Statistic = Callable[[Counts], Draws]
Pairs = Int[np.ndarray, "k 2"]

MIN_DENOMINATOR = 0.01
"""Minimum absolute cosine of a query and another's positive: below it, their ratio is mostly rounding."""

WITHIN = 0.1
"""Maximum distance of a ratio "near 1"."""

BINS = 40
RATIO_RANGE = (-1.0, 3.0)
"""Maximum range of a histogram of ratios; the rest is counted at its ends."""

MIN_VARIANCE = 1e-10
"""Mean squared distance of unit vectors to their mean below which they are one vector: float32 rounding is
about 1e-14."""


def unit_rows(vectors: Vectors) -> Vectors:
    """Vectors scaled to unit length, in double precision."""
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def lengths_of(vectors: Vectors, *, name: str) -> Values:
    """Euclidean lengths; a vector that is not finite is a `DataError`, and `name` says what the vectors
    are.
    """
    broken = int((~np.isfinite(vectors).all(axis=1)).sum())
    if broken:
        raise DataError(
            f"{name} must be finite, got NaN or infinity in {broken:,} of {len(vectors):,}; "
            "the model's training may have diverged: use an earlier model, or rebuild the store"
        )
    return np.asarray(np.linalg.norm(vectors.astype(np.float64), axis=1))


def cosines_of(first: Vectors, second: Vectors) -> Values:
    """Cosine of each row with the row beside it, of unit vectors."""
    return np.asarray(np.einsum("ne,ne->n", first, second))


def mean_of(values: Values) -> Statistic:
    """Mean of a value per unit, ``sum_i c_i v_i / sum_i c_i``."""
    return lambda counts: counts @ values / counts.sum(axis=1)


def uniformity_of(vectors: Vectors) -> Statistic:
    """Uniformity of unit vectors on the sphere, ``ln E_{i != j} exp(-2 |x_i - x_j|^2)``.

    0 if all vectors are equal, lower the more even, about -4 at the least in many dimensions (Wang and Isola
    2020, equation 2 with t = 2).
    """
    # |x - y|^2 = 2 - 2 cos for unit vectors.
    kernel = np.exp(4 * (vectors @ vectors.T) - 4)
    np.fill_diagonal(kernel, 0.0)

    def value(counts: Counts) -> Draws:
        total = np.einsum("rn,rn->r", counts @ kernel, counts)
        # A resample of one unit alone has no pairs.
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(total / _ordered_pairs(counts)))

    return value


def mean_cosine_of(vectors: Vectors) -> Statistic:
    """Mean cosine of two different unit vectors: 0 for even directions, 1 where all vectors are equal
    (Ethayarajh 2019).

    ``E_{i != j} x_i . x_j = (|sum_i c_i x_i|^2 - sum_i c_i^2) / ((sum_i c_i)^2 - sum_i c_i^2)``
    """

    def value(counts: Counts) -> Draws:
        total = np.square(counts @ vectors).sum(axis=1) - np.square(counts).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(total / _ordered_pairs(counts))

    return value


def _ordered_pairs(counts: Counts) -> Draws:
    """Number of drawn pairs of different units, ``sum_{i != j} c_i c_j``."""
    return np.asarray(np.square(counts.sum(axis=1)) - np.square(counts).sum(axis=1))


def mean_of_pairs(values: Float[np.ndarray, " k"], pairs: Pairs) -> Statistic:
    """Mean of a value per pair of units, ``sum_{ij} c_i c_j v_ij / sum_{ij} c_i c_j``; NaN in a resample
    without any of the pairs.
    """

    def value(counts: Counts) -> Draws:
        weights = counts[:, pairs[:, 0]] * counts[:, pairs[:, 1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(weights @ values / weights.sum(axis=1))

    return value


def median_of_pairs(values: Float[np.ndarray, " k"], pairs: Pairs) -> Statistic:
    """Median of a value per pair of units, weighted as in `mean_of_pairs`; between two middle values their
    mean.
    """
    if not len(values):
        return lambda counts: np.full(len(counts), np.nan)
    order = np.argsort(values, kind="stable")
    ascending, first, second = values[order], pairs[order, 0], pairs[order, 1]

    def value(counts: Counts) -> Draws:
        reached = np.cumsum(counts[:, first] * counts[:, second], axis=1)
        half = reached[:, -1:] / 2
        # The two middle values: they are one value unless exactly half of the weight lies below.
        lower = ascending[(reached >= half).argmax(axis=1)]
        upper = ascending[(reached > half).argmax(axis=1)]
        return np.where(reached[:, -1] > 0, (lower + upper) / 2, np.nan)

    return value


@dataclass(frozen=True, slots=True)
class Ratios:
    """Similarities of the first query of a pair (i, j): ``q_i . q_j`` to the second query, and ``q_i . p_j``
    to that query's positive.
    """

    queries: Float[np.ndarray, " k"]
    positives: Float[np.ndarray, " k"]
    pairs: Pairs

    @property
    def defined(self) -> Bool[np.ndarray, " k"]:
        """Where the denominator is not near 0."""
        return np.asarray(np.abs(self.positives) >= MIN_DENOMINATOR)

    @property
    def values(self) -> Float[np.ndarray, " d"]:
        """``(q_i . q_j) / (q_i . p_j)`` where it is defined."""
        defined = self.defined
        return np.asarray(self.queries[defined] / self.positives[defined])

    def median(self) -> Statistic:
        """Median of the ratios."""
        return median_of_pairs(self.values, self.pairs[self.defined])

    def share_near_one(self) -> Statistic:
        """Share of the ratios that differ from 1 by `WITHIN` at most."""
        return mean_of_pairs((np.abs(self.values - 1) <= WITHIN).astype(np.float64), self.pairs[self.defined])

    def mean_gap(self) -> Statistic:
        """Mean of ``q_i . q_j - q_i . p_j``."""
        return mean_of_pairs(self.queries - self.positives, self.pairs)


def ratios_of(queries: Vectors, positives: Vectors, pairs: Pairs) -> Ratios:
    """Similarities of pairs (i, j) of unit vectors, to a query and to its positive (Moiseev et al. 2023,
    SamToNe, figure 6).
    """
    to_queries, to_positives = [], []
    # In blocks: all pairs at once would hold a vector for each.
    for block in np.array_split(pairs, max(1, len(pairs) // 4096)):
        first, second = block.T
        to_queries.append(cosines_of(queries[first], queries[second]))
        to_positives.append(cosines_of(queries[first], positives[second]))
    return Ratios(np.concatenate(to_queries), np.concatenate(to_positives), pairs)


def random_pairs(clusters: Numbers, count: int, *, seed: int) -> Pairs:
    """Draw ordered pairs of units from different clusters, each at most once, `count` at most.

    Queries of one cluster share their positive, so neither is the other's wrong answer.
    """
    units = len(clusters)
    # Four times as many, since pairs within a cluster are dropped.
    codes = np.random.default_rng(seed).choice(units**2, size=min(units**2, 4 * count), replace=False)
    pairs = np.stack(np.divmod(codes, units), axis=1)
    return np.asarray(pairs[clusters[pairs[:, 0]] != clusters[pairs[:, 1]]][:count])


def distance_of_means(first: Vectors, second: Vectors) -> float:
    """Euclidean distance of the means of two sets of vectors, ``| E x - E y |``; at most 2 for unit
    vectors.
    """
    return float(np.linalg.norm((first - second).mean(axis=0)))


def spectrum_of(vectors: Vectors) -> Float[np.ndarray, " s"]:
    """Shares of the variance along the principal components, descending, of sum 1; empty if the vectors do
    not vary.
    """
    centred = vectors - vectors.mean(axis=0)
    if np.square(centred).sum(axis=1).mean() <= MIN_VARIANCE:
        return np.empty(0)
    # Both products have the same eigenvalues, except zeros.
    gram = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return np.asarray(values / values.sum())


def effective_rank(shares: Float[np.ndarray, " s"]) -> float:
    """Effective rank of shares of the variance, ``exp(-sum_k l_k ln l_k)``: from 1 to the number of shares
    (Roy and Vetterli 2007).
    """
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def cosine_edges(values: Float[np.ndarray, " v"]) -> Float[np.ndarray, " b"]:
    """`BINS` bins of equal width that hold all of some cosines; for a single value they are 0.02 wide in
    all.
    """
    # Bins of no width hold nothing.
    low, high = float(values.min()), float(values.max())
    spare = max(0.0, 0.02 - (high - low)) / 2
    return np.linspace(low - spare, high + spare, BINS + 1)


def ratio_edges(values: Float[np.ndarray, " v"]) -> Float[np.ndarray, " b"]:
    """`BINS` bins of equal width within `RATIO_RANGE`, for all but the farthest ratios and always for those
    near 1.
    """
    low, high = 0.85, 1.15
    if len(values):
        lowest, highest = np.quantile(values, [0.005, 0.995])
        low, high = max(RATIO_RANGE[0], min(low, lowest)), min(RATIO_RANGE[1], max(high, highest))
    return np.linspace(low, high, BINS + 1)


def histogram_of(
    values: Float[np.ndarray, " v"], edges: Float[np.ndarray, " b"], *, left_out: int = 0
) -> Histogram:
    """Counts of finite values in bins, and their quantiles; the last bin holds its upper edge too."""
    counts, _ = np.histogram(values, bins=edges)
    below, above = np.count_nonzero(values < edges[0]), np.count_nonzero(values > edges[-1])
    quantiles = np.quantile(values, QUANTILES).tolist() if len(values) else []
    return Histogram(counts.tolist(), int(below), int(above), quantiles, left_out)


REGULARISATION = 1.0
"""C of the logistic regression, on vectors whose components have variance 1 on average."""

ITERATIONS = 2_000


def fold_of(clusters: Numbers, folds: int, *, seed: int) -> Numbers:
    """Fold of each pair, from 0; pairs of one cluster share a fold, so that no positive is both trained on
    and tested on.
    """
    sizes = np.bincount(clusters)
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    filled, fold = np.zeros(folds), np.empty(len(sizes), dtype=np.int64)
    # Largest cluster first, each into the smallest fold: folds become about equal.
    for cluster in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold[cluster] = filled.argmin()
        filled[fold[cluster]] += sizes[cluster]
    return np.asarray(fold[clusters])


def probe_scores(queries: Vectors, documents: Vectors, folds: Numbers) -> tuple[Values, Values]:
    """Scores of queries and of documents by logistic regressions that were trained on the other folds; higher
    is more like a query.

    Vectors are centred and divided by one number, so the axes do not matter.
    """
    from sklearn.linear_model import LogisticRegression

    scores = np.empty((2, len(folds)))
    for fold in range(int(folds.max()) + 1):
        aside = folds == fold
        learned = np.concatenate([queries[~aside], documents[~aside]])
        centre = learned.mean(axis=0)
        # Of equal vectors nothing can be learned, and nothing is divided by 0.
        spread = float(np.sqrt(np.square(learned - centre).mean())) or 1.0
        probe = LogisticRegression(C=REGULARISATION, max_iter=ITERATIONS, tol=1e-6)
        probe.fit((learned - centre) / spread, np.repeat([1, 0], len(learned) // 2))
        for side, vectors in enumerate((queries, documents)):
            scores[side, aside] = probe.decision_function((vectors[aside] - centre) / spread)
    return scores[0], scores[1]


def auc_of(queries: Values, documents: Values, folds: Numbers) -> Statistic:
    """Area under the ROC curve: how often a query scores above a document of its fold; a tie counts half
    (Hanley and McNeil 1982).

    ``AUC = sum_f sum_{i,j in f} c_i c_j [s(q_i) > s(d_j)] / sum_f (sum_{i in f} c_i)^2``. Different folds
    have different regressions and are not compared. 0.5 if nothing separates the towers, 1 if the probe
    always does.
    """
    members = members_of(folds, folds.size)
    # 1 where a query scores above a document, 0.5 where they tie.
    wins = [(np.sign(queries[rows, None] - documents[rows]) + 1) / 2 for rows in members]

    def value(counts: Counts) -> Draws:
        won, compared = np.zeros(len(counts)), np.zeros(len(counts))
        for rows, table in zip(members, wins, strict=True):
            fold_counts = counts[:, rows]
            won += np.einsum("rn,rn->r", fold_counts @ table, fold_counts)
            compared += np.square(fold_counts.sum(axis=1))
        return won / compared

    return value
