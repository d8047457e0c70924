"""Resampling a language grid: one draw of clusters for all cells, comparisons and similarities, as a product of matrices.

Every cell is a hypothesis of its own, and the false discovery rate is kept over all of them. The least p-value that R resamples can give
is ``2 / (R + 1)``, and the strictest step of Benjamini-Hochberg over n cells asks for ``0.05 / n``: with too few resamples for the cells,
a single changed language pair could never be told, however much it changed. So their number follows the number of cells.

Letters in shapes: a query languages, b document languages, c clusters, r resamples, s similarities.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from adiabat.measure.significance import bootstrap_p_values, resampling_counts

ByCluster = Float[np.ndarray, "c cells"]

DISCOVERY_RATE = 0.05
"""Of the correction over the cells of a comparison."""

MOST_RESAMPLES = 100_000
"""Up to which the number follows the cells by itself: enough for 50 languages, and minutes of work."""


@dataclass(frozen=True, slots=True)
class Side:
    """One model in one comparison: errors of each cell, and the first-order influence of each cluster on its discrepancy."""

    errors: Int[np.ndarray, "a b"]
    influence: ByCluster


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison by one similarity.

    Attributes:
        comparison: As in `GridComparison.comparison`.
        similarity: What scored the pairs.
        total: Comparisons in each cell.
        after: The model under test.
        before: The baseline, or None.
        moved: Per cluster and cell, how many placements differ from the baseline's.
    """

    comparison: str
    similarity: str
    total: int
    after: Side
    before: Side | None = None
    moved: ByCluster | None = None

    @property
    def difference(self) -> Float[np.ndarray, " cells"]:
        """Discrepancy after minus before of every cell; 0 without a baseline."""
        before = self.before or self.after
        return np.asarray((self.after.errors - before.errors).ravel() / self.total)

    @property
    def change(self) -> ByCluster:
        """Influence of each cluster on that difference."""
        return np.asarray(self.after.influence - (self.before or self.after).influence)


@dataclass(frozen=True, slots=True)
class Draws:
    """Bootstrap of a grid: draws of each similarity's average, and how often each cell's difference fell on either side of 0."""

    after: Float[np.ndarray, "r s"]
    before: Float[np.ndarray, "r s"]
    difference: Float[np.ndarray, "r s"]
    at_most_zero: Int[np.ndarray, "comparisons cells"]
    at_least_zero: Int[np.ndarray, "comparisons cells"]


def resamples_for(cells: int, *, wanted: int) -> int:
    """How many resamples a grid is given.

    Args:
        cells: Compared at once; 0 where there is no baseline.
        wanted: Asked for.

    Returns:
        `wanted`, or the least number that can find a single changed cell, ``ceil(2 cells / 0.05)``, up to `MOST_RESAMPLES`.
    """
    return max(wanted, min(_needed(cells), MOST_RESAMPLES))


def resampling_notes(cells: int, *, wanted: int) -> list[str]:
    """What a reader should know of the number of resamples.

    Args:
        cells: Compared at once; 0 where there is no baseline.
        wanted: Asked for.

    Returns:
        Sentences, none where the grid was resampled as asked and that was enough.
    """
    given, notes = resamples_for(cells, wanted=wanted), []
    if given > wanted:
        notes.append(
            f"the grid was resampled {given:,} times, not measure.resamples = {wanted:,}: "
            f"so few could not tell a single changed pair of languages among {cells:,}"
        )
    if given < _needed(cells):
        notes.append(
            f"{given:,} resamples are few for {cells:,} pairs of languages: where a pair's change kept its sign in all of them, "
            "its p-value is that of a normal distribution of the same spread"
        )
    return notes


def _needed(cells: int) -> int:
    return math.ceil(2 * cells / DISCOVERY_RATE)


def draw_grid(compared: Sequence[Compared], *, seed: int, resamples: int) -> Draws:
    """Draw clusters, the same for every cell, comparison and similarity; only tail counts are kept of single cells.

    Args:
        compared: The comparisons of one similarity are neighbours, equally many of each, of equally many cells.
        seed: Of the draws.
        resamples: How many, > 0.

    Returns:
        Draws around 0 of the averages, and tails around the differences found.
    """
    similarities = len({one.similarity for one in compared})
    change = [one.change for one in compared]
    observed, single = np.concatenate([one.difference for one in compared]), np.concatenate(change, axis=1)
    averages = np.concatenate([_averages([one.after.influence for one in compared], similarities), _averages(change, similarities)], axis=1)
    low, high = np.zeros(single.shape[1], dtype=np.int64), np.zeros(single.shape[1], dtype=np.int64)
    draws = []
    for counts in resampling_counts(single.shape[0], resamples=resamples, seed=seed):
        draws.append(counts @ averages)
        if compared[0].before is not None:
            drawn = observed + counts @ single
            low += (drawn <= 0).sum(axis=0)
            high += (drawn >= 0).sum(axis=0)
    after, difference = np.split(np.concatenate(draws), 2, axis=1)
    return Draws(after, after - difference, difference, low.reshape(len(compared), -1), high.reshape(len(compared), -1))


def _averages(influence: Sequence[ByCluster], similarities: int) -> Float[np.ndarray, "c s"]:
    """Mean over the cells of all comparisons, one column per similarity."""
    by_comparison = np.stack([columns.mean(axis=1) for columns in influence], axis=1)
    return np.asarray(by_comparison.reshape(by_comparison.shape[0], similarities, -1).mean(axis=2))


def cell_p_values(one: Compared, moved: ByCluster, drawn: Draws, index: int) -> Float[np.ndarray, " cells"]:
    """Two-sided p-value of every cell of a comparison.

    Where there are fewer resamples than `resamples_for` would like, and none of them changed the sign of a cell's difference, the p-value
    is that of the bootstrap's normal approximation: a resampled difference is a sum over clusters drawn n times out of n, so its variance
    is ``sum(d^2) - sum(d)^2 / n`` of the influences d. The guard against few changed clusters holds for either.

    Args:
        one: The comparison; it has a baseline.
        moved: Its `Compared.moved`.
        drawn: Of all comparisons.
        index: Which of them it is.

    Returns:
        One per cell, in [0, 1].

    Reference:
        Efron and Tibshirani 1993, chapter 13; mission A8, A9.
    """
    low, high, resamples = drawn.at_most_zero[index], drawn.at_least_zero[index], drawn.difference.shape[0]
    changed = np.count_nonzero(moved, axis=0)
    p_values = bootstrap_p_values(low, high, resamples=resamples, changed=changed)
    if resamples >= _needed(low.size):
        return p_values
    unseen = np.minimum(low, high) == 0
    normal = np.maximum(_normal_p_values(one), np.minimum(np.exp2(1.0 - changed), 1.0))
    return np.where(unseen, np.minimum(p_values, normal), p_values)


def _normal_p_values(one: Compared) -> Float[np.ndarray, " cells"]:
    change = one.change
    variance = np.square(change).sum(axis=0) - np.square(change.sum(axis=0)) / change.shape[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(one.difference) / np.sqrt(np.maximum(variance, 0))
    # Neither a difference nor a spread: nothing changed.
    return np.array([math.erfc(value / math.sqrt(2)) for value in np.nan_to_num(z, nan=0.0).tolist()])
