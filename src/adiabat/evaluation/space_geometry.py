"""How vectors lie on the unit sphere: numbers of a space, each as a function of how often every unit is drawn (Moiseev et al. 2023).

A statistic takes counts, one row per resample and one column per vector, and gives its value in each resample; a row of ones gives its
plain value. A pair of two units counts as often as both are drawn together, the pair of a unit with itself never: so that the bootstrap
of a mean over pairs knows that pairs share their units (Snijders and Borgatti 1999).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.core.errors import DataError
from adiabat.results.space_result import QUANTILES, Histogram

Counts = Float[np.ndarray, "r n"]
Draws = Float[np.ndarray, " r"]
Statistic = Callable[[Counts], Draws]
Pairs = Int[np.ndarray, "k 2"]

MIN_DENOMINATOR = 0.01
"""Cosine of a query and another's positive below which, in size, their ratio says more of rounding than of towers."""

WITHIN = 0.1
"""A ratio is near 1 where it is no farther from it."""

BINS = 40
RATIO_RANGE = (-1.0, 3.0)
"""What a histogram of ratios shows at the most; the rest is counted at its ends."""

MIN_VARIANCE = 1e-10
"""Mean squared distance of unit vectors to their mean up to which they are one vector and rounding: float32's is about 1e-14."""


def unit_rows(vectors: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "n e"]:
    """Vectors at unit length.

    Args:
        vectors: None of length 0; see `lengths_of`.

    Returns:
        The same directions, in double precision.
    """
    wide = vectors.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide, axis=1, keepdims=True))


def lengths_of(vectors: Float[np.ndarray, "n e"], *, name: str) -> Float[np.ndarray, " n"]:
    """Euclidean lengths.

    Args:
        vectors: Any.
        name: They are, for the message.

    Returns:
        One for each.

    Raises:
        DataError: If a vector is not finite.
    """
    broken = int((~np.isfinite(vectors).all(axis=1)).sum())
    if broken:
        raise DataError(
            f"{name} must be finite, got NaN or infinity in {broken:,} of {len(vectors):,}; "
            "a model whose training broke down gives them: take an earlier one, or rebuild the store"
        )
    return np.asarray(np.linalg.norm(vectors.astype(np.float64), axis=1))


def cosines_of(first: Float[np.ndarray, "n e"], second: Float[np.ndarray, "n e"]) -> Float[np.ndarray, " n"]:
    """Cosine of each row with the row beside it.

    Args:
        first: Unit vectors.
        second: Unit vectors.

    Returns:
        One for each pair.
    """
    return np.asarray(np.einsum("ne,ne->n", first, second))


def mean_of(values: Float[np.ndarray, " n"]) -> Statistic:
    """The mean of a value per unit.

    ``sum_i c_i v_i / sum_i c_i``

    Args:
        values: One for each unit.

    Returns:
        The statistic.
    """
    return lambda counts: counts @ values / counts.sum(axis=1)


def uniformity_of(vectors: Float[np.ndarray, "n e"]) -> Statistic:
    """How evenly unit vectors cover the sphere.

    ``ln E_{i != j} exp(-2 |x_i - x_j|^2)``

    Args:
        vectors: Unit length.

    Returns:
        The statistic: 0 where all vectors are one, lower the more even, -4 at about the least in many dimensions.

    Reference:
        Wang and Isola 2020, equation 2 with t = 2.
    """
    # Of unit vectors |x - y|^2 is 2 - 2 cos.
    kernel = np.exp(4 * (vectors @ vectors.T) - 4)
    np.fill_diagonal(kernel, 0.0)

    def value(counts: Counts) -> Draws:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(np.einsum("rn,rn->r", counts @ kernel, counts) / _ordered_pairs(counts)))

    return value


def mean_cosine_of(vectors: Float[np.ndarray, "n e"]) -> Statistic:
    """How far vectors point the same way: the mean cosine of two of them.

    ``E_{i != j} x_i . x_j = (|sum_i c_i x_i|^2 - sum_i c_i^2) / ((sum_i c_i)^2 - sum_i c_i^2)``

    Args:
        vectors: Unit length.

    Returns:
        The statistic: 0 for directions that are even, 1 where all vectors are one.

    Reference:
        Ethayarajh 2019.
    """

    def value(counts: Counts) -> Draws:
        sums = np.square(counts @ vectors).sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((sums - np.square(counts).sum(axis=1)) / _ordered_pairs(counts))

    return value


def _ordered_pairs(counts: Counts) -> Draws:
    """How many pairs of different units are drawn, ``sum_{i != j} c_i c_j``."""
    return np.asarray(np.square(counts.sum(axis=1)) - np.square(counts).sum(axis=1))


def mean_of_pairs(values: Float[np.ndarray, " k"], pairs: Pairs) -> Statistic:
    """The mean of a value per pair of units.

    ``sum_{ij} c_i c_j v_ij / sum_{ij} c_i c_j``

    Args:
        values: One for each pair.
        pairs: The two units of each.

    Returns:
        The statistic; NaN in a resample that has none of the pairs.
    """

    def value(counts: Counts) -> Draws:
        weights = counts[:, pairs[:, 0]] * counts[:, pairs[:, 1]]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(weights @ values / weights.sum(axis=1))

    return value


def median_of_pairs(values: Float[np.ndarray, " k"], pairs: Pairs) -> Statistic:
    """The median of a value per pair of units, weighted as `mean_of_pairs` weighs.

    Args:
        values: One for each pair.
        pairs: The two units of each.

    Returns:
        The statistic; between two middle values their mean; NaN in a resample that has none of the pairs.
    """
    if not len(values):
        return lambda counts: np.full(len(counts), np.nan)
    order = np.argsort(values, kind="stable")
    ascending, first, second = values[order], pairs[order, 0], pairs[order, 1]

    def value(counts: Counts) -> Draws:
        reached = np.cumsum(counts[:, first] * counts[:, second], axis=1)
        half = reached[:, -1:] / 2
        middle = (ascending[(reached >= half).argmax(axis=1)] + ascending[(reached > half).argmax(axis=1)]) / 2
        return np.where(reached[:, -1] > 0, middle, np.nan)

    return value


@dataclass(frozen=True, slots=True)
class Ratios:
    """For random pairs of queries: how alike they are, beside how alike the first is to the other's positive.

    Attributes:
        queries: ``q_i . q_j``.
        positives: ``q_i . p_j``.
    """

    queries: Float[np.ndarray, " k"]
    positives: Float[np.ndarray, " k"]

    @property
    def defined(self) -> Bool[np.ndarray, " k"]:
        """Where the denominator is not too near 0."""
        return np.asarray(np.abs(self.positives) >= MIN_DENOMINATOR)

    @property
    def values(self) -> Float[np.ndarray, " d"]:
        """``(q_i . q_j) / (q_i . p_j)`` where it is defined."""
        defined = self.defined
        return np.asarray(self.queries[defined] / self.positives[defined])


def ratios_of(queries: Float[np.ndarray, "n e"], positives: Float[np.ndarray, "n e"], pairs: Pairs) -> Ratios:
    """Similarities of random pairs, to a query and to its positive.

    Args:
        queries: Unit length.
        positives: Of each query, unit length.
        pairs: i and j of each.

    Returns:
        Numerators and denominators.

    Reference:
        Moiseev et al. 2023 (SamToNe), figure 6.
    """
    # A sum over pairs at once would hold a vector for each.
    blocks = np.array_split(pairs, max(1, len(pairs) // 4096))
    to_queries = [cosines_of(queries[block[:, 0]], queries[block[:, 1]]) for block in blocks]
    to_positives = [cosines_of(queries[block[:, 0]], positives[block[:, 1]]) for block in blocks]
    return Ratios(np.concatenate(to_queries), np.concatenate(to_positives))


def random_pairs(clusters: Int[np.ndarray, " n"], count: int, *, seed: int) -> Pairs:
    """Draw pairs of units from different clusters.

    Args:
        clusters: Of each unit: queries of one cluster share their positive, so that neither is the other's wrong answer.
        count: How many at the most, > 0.
        seed: Of the draw.

    Returns:
        Each ordered pair at most once; fewer than `count` where few units have many clusters.
    """
    units = len(clusters)
    codes = np.random.default_rng(seed).choice(units**2, size=min(units**2, 4 * count), replace=False)
    pairs = np.stack(np.divmod(codes, units), axis=1)
    return np.asarray(pairs[clusters[pairs[:, 0]] != clusters[pairs[:, 1]]][:count])


def distance_of_means(first: Float[np.ndarray, "n e"], second: Float[np.ndarray, "n e"]) -> float:
    """How far the centres of two sets of vectors lie apart, ``| E x - E y |``.

    Args:
        first: Of one tower.
        second: Of the other.

    Returns:
        The Euclidean distance; of unit vectors at most 2.
    """
    return float(np.linalg.norm((first - second).mean(axis=0)))


def spectrum_of(vectors: Float[np.ndarray, "n e"]) -> Float[np.ndarray, " s"]:
    """Shares of the variance along the principal components.

    Args:
        vectors: Unit length.

    Returns:
        Descending, of sum 1; empty where the vectors do not vary.
    """
    centred = vectors - vectors.mean(axis=0)
    if np.square(centred).sum(axis=1).mean() <= MIN_VARIANCE:
        return np.empty(0)
    # Both products have the same eigenvalues, zeros apart.
    gram = centred @ centred.T if len(centred) < centred.shape[1] else centred.T @ centred
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return np.asarray(values / values.sum())


def effective_rank(shares: Float[np.ndarray, " s"]) -> float:
    """How many directions the variance takes, ``exp(-sum_k l_k ln l_k)``.

    Args:
        shares: Of the variance along the principal components, of sum 1.

    Returns:
        Between 1 and the number of shares.

    Reference:
        Roy and Vetterli 2007, of the eigenvalues of the covariance.
    """
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def cosine_edges(values: Float[np.ndarray, " v"]) -> Float[np.ndarray, " b"]:
    """Bins that hold all of some cosines.

    Args:
        values: Of all models, at least one.

    Returns:
        `BINS` bins of equal width; those of a single value are 0.02 wide in all.
    """
    low, high = float(values.min()), float(values.max())
    spare = max(0.0, 0.02 - (high - low)) / 2
    return np.linspace(low - spare, high + spare, BINS + 1)


def ratio_edges(values: Float[np.ndarray, " v"]) -> Float[np.ndarray, " b"]:
    """Bins for all but the farthest ratios; 1 and what is near it are always among them.

    Args:
        values: Of all models.

    Returns:
        `BINS` bins of equal width, within `RATIO_RANGE`.
    """
    low, high = np.quantile(values, [0.005, 0.995]) if len(values) else (1.0, 1.0)
    return np.linspace(max(RATIO_RANGE[0], min(low, 0.85)), min(RATIO_RANGE[1], max(high, 1.15)), BINS + 1)


def histogram_of(values: Float[np.ndarray, " v"], edges: Float[np.ndarray, " b"], *, left_out: int = 0) -> Histogram:
    """Count values in bins.

    Args:
        values: Finite.
        edges: Ascending; the last bin holds its upper edge too.
        left_out: Values that are not defined.

    Returns:
        Counts and quantiles.
    """
    return Histogram(
        counts=np.histogram(values, bins=edges)[0].tolist(),
        below=int((values < edges[0]).sum()),
        above=int((values > edges[-1]).sum()),
        quantiles=np.quantile(values, QUANTILES).tolist() if len(values) else [],
        left_out=left_out,
    )
