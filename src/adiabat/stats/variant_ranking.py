"""Ranking of candidates (variants, data sets, backbones) by the scores of every run on every query.

Candidates share their queries, so a resample draws queries once within each task, for all candidates. Runs
are independent: they are drawn for each candidate apart, and a drawn run brings its scores on all tasks.
Deviations of runs form one pool, widened as in `adiabat.stats.resampling`; with five candidates of three
seeds it has ten degrees of freedom instead of two. With one seed, intervals are over queries alone.

The best of many looks better than it is. Differences therefore have simultaneous intervals: the largest
deviation of all pairs, each in its own standard error, sets the width for all (Tukey's method, by
resampling), so that no pair differs by being chosen.

References: Davison and Hinkley 1997, section 3.8 (several sources of variation); Owen 2007 (the pigeonhole
bootstrap); Hsu 1996 (comparisons with the best).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from adiabat.stats.clusters import Clusters
from adiabat.stats.resampling import CONFIDENCE, resampling_counts

MIN_CHANGED = 6
"""Minimum number of differing queries, or clusters of them, for two candidates to differ: fewer could all
differ one way by chance."""

ROUNDING = 1e-9
"""Difference of a cluster's sums that is rounding: scores of a measure differ by far more."""

Scores = Sequence[Float[np.ndarray, "_ _ _"]]
"""For each task, one row per candidate, run and query."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Scores of each candidate on each task in each resample; `plain` is without the factor on deviations of
    runs, for standard errors.
    """

    tasks: Float[np.ndarray, "r c t"]
    plain: Float[np.ndarray, "r c t"]

    def overall(self) -> tuple[Float[np.ndarray, "r c"], Float[np.ndarray, "r c"]]:
        """Means of `tasks` and of `plain` over tasks, equally weighted."""
        return self.tasks.mean(axis=2), self.plain.mean(axis=2)


@dataclass(frozen=True, slots=True)
class Differences:
    """Differences of pairs, the first less the second, with simultaneous intervals.

    `distinct` is true where the interval lies beside zero, and enough queries differ.
    """

    values: Float[np.ndarray, " p"]
    low: Float[np.ndarray, " p"]
    high: Float[np.ndarray, " p"]
    distinct: Bool[np.ndarray, " p"]


def draw(
    scores: Scores, *, trained: int, seed: int, resamples: int, clusters: Sequence[Clusters | None] = ()
) -> Draws:
    """Resample queries and runs.

    Args:
        scores: Of candidates and runs on the queries of each task; an untrained start has the same scores in
            every run.
        trained: How many of the candidates, the first ones, were trained: the others are starts, which do not
            vary from run to run.
        seed: Of the draws.
        resamples: How many, > 0.
        clusters: For each task, clusters of its queries, which are drawn whole; left out, queries are drawn
            one by one.

    Returns:
        The draws.

    Raises:
        ValueError: If there is no task, tasks differ in candidates or runs, one has no query, or a score is
            not finite.
    """
    _check(scores, trained)
    runs = scores[0].shape[1]
    *streams, last = np.random.SeedSequence(seed).generate_state(len(scores) + 1).tolist()
    random = np.random.default_rng(last)
    # A drawn run brings its scores on all tasks, so all tasks share the draws.
    chosen = random.integers(0, trained * runs, size=(resamples, trained * runs))
    freedom = trained * (runs - 1)
    scale = np.sqrt(freedom / random.chisquare(freedom, size=resamples)) if freedom else np.zeros(resamples)
    tasks, plain = [], []
    for task_scores, stream, drawn in zip(scores, streams, clusters or [None] * len(scores), strict=True):
        means = _query_means(task_scores, drawn, seed=stream, resamples=resamples)
        centre, moved = means.mean(axis=2), _moved(means[:, :trained], chosen)
        moved = np.pad(moved, [(0, 0), (0, centre.shape[1] - trained)])
        tasks.append(centre + scale[:, None] * moved)
        plain.append(centre + moved)
    return Draws(np.stack(tasks, axis=2), np.stack(plain, axis=2))


def _check(scores: Scores, trained: int) -> None:
    if not scores:
        raise ValueError("scores must be of at least one task, got none")
    for task_scores in scores:
        if task_scores.shape[:2] != scores[0].shape[:2] or not task_scores.size:
            raise ValueError(
                "scores must be of the same candidates and runs on at least one query, got "
                f"{[task_scores.shape for task_scores in scores]}"
            )
        if not np.isfinite(task_scores).all():
            raise ValueError("scores must be finite numbers, got others")
    if not 1 <= trained <= len(scores[0]):
        raise ValueError(f"trained must be 1 to {len(scores[0])}, got {trained}")


def _query_means(
    scores: Float[np.ndarray, "c s q"], clusters: Clusters | None, *, seed: int, resamples: int
) -> Float[np.ndarray, "r c s"]:
    """Means over queries, or whole clusters of them, that are drawn with replacement."""
    queries = scores.shape[2]
    sums, weights = _drawn_sums(scores.reshape(-1, queries).T / queries, clusters)
    blocks = resampling_counts(weights.size, resamples=resamples, seed=seed)
    means = [counts @ sums * (queries / (counts @ weights))[:, None] for counts in blocks]
    return np.concatenate(means).reshape(resamples, *scores.shape[:2])


def _drawn_sums(
    values: Float[np.ndarray, "q k"], clusters: Clusters | None
) -> tuple[Float[np.ndarray, "u k"], Float[np.ndarray, " u"]]:
    """Sums over each cluster of queries that is drawn whole, and its number of queries; without clusters,
    single queries.
    """
    if clusters is None or not clusters.drawn:
        return values, np.ones(len(values))
    positions = clusters.positions
    sizes = np.bincount(positions).astype(np.float64)
    sums = np.zeros((sizes.size, values.shape[1]))
    np.add.at(sums, positions, values)
    return sums, sizes


def _moved(means: Float[np.ndarray, "r c s"], chosen: Int[np.ndarray, "r cs"]) -> Float[np.ndarray, "r c"]:
    """What drawn runs add to each candidate's mean: deviations of one pool, widened by ``sqrt(S / (S -
    1))``.
    """
    resamples, _, runs = means.shape
    if runs == 1:
        return np.zeros(means.shape[:2])
    deviations = (means - means.mean(axis=2, keepdims=True)) * np.sqrt(runs / (runs - 1))
    return np.asarray(
        np.take_along_axis(deviations.reshape(resamples, -1), chosen, axis=1)
        .reshape(means.shape)
        .mean(axis=2)
    )


def overall(scores: Scores) -> Float[np.ndarray, "c s"]:
    """Score of each candidate and run: mean over its queries, then over tasks."""
    return np.asarray(np.mean([task_scores.mean(axis=2) for task_scores in scores], axis=0))


def run_deviation(scores: Scores) -> float | None:
    """How much runs of trained candidates differ; None with one run of each.

    ``sqrt(sum (x_cs - mean_c)^2 / (C (S - 1)))`` of the overall scores.
    """
    runs = overall(scores)
    candidates, seeds = runs.shape
    if seeds == 1:
        return None
    return float(np.sqrt(((runs - runs.mean(axis=1, keepdims=True)) ** 2).sum() / (candidates * (seeds - 1))))


def intervals(draws: Float[np.ndarray, "r k"]) -> Float[np.ndarray, "k 2"]:
    """Central 95 % of each column of draws: lower and upper ends."""
    return np.asarray(np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0).T)


def best_shares(draws: Float[np.ndarray, "r c"]) -> Float[np.ndarray, " c"]:
    """Share of the resamples in which each candidate is highest; tied candidates share it."""
    highest = draws == draws.max(axis=1, keepdims=True)
    return np.asarray((highest / highest.sum(axis=1, keepdims=True)).mean(axis=0))


def differences(
    scores: Scores,
    draws: Draws,
    first: Int[np.ndarray, " p"],
    second: Int[np.ndarray, " p"],
    *,
    clusters: Sequence[Clusters | None] = (),
) -> Differences:
    """Differences of several pairs, with intervals that hold for all of them at once.

    ``d_p -+ k e_p``, where ``e_p`` is the standard error of pair p over the resamples, and k the 95 %
    quantile of the largest ``|d*_p - d_p| / e_p`` of a resample.

    Args:
        scores: As for `draw`.
        draws: Of them.
        first: Candidates.
        second: Those that they are compared with.
        clusters: As for `draw`.

    Returns:
        One difference per pair.
    """
    means = overall(scores).mean(axis=1)
    scaled, plain = draws.overall()
    values = means[first] - means[second]
    errors = np.std(plain[:, first] - plain[:, second], axis=0)
    # Candidates with equal scores on every query have an interval without width.
    moving = errors > 0
    deviations = np.abs(scaled[:, first] - scaled[:, second] - values)[:, moving] / errors[moving]
    factor = float(np.quantile(deviations.max(axis=1), CONFIDENCE)) if moving.any() else 0.0
    low, high = values - factor * errors, values + factor * errors
    enough = changed_units(scores, first, second, clusters) >= MIN_CHANGED
    return Differences(values, low, high, ((low > 0) | (high < 0)) & enough)


def changed_units(
    scores: Scores,
    first: Int[np.ndarray, " p"],
    second: Int[np.ndarray, " p"],
    clusters: Sequence[Clusters | None] = (),
) -> Int[np.ndarray, " p"]:
    """Number of queries, or drawn clusters of them, over all tasks, on which candidates of each pair differ
    in the mean over runs.
    """
    of_task = zip(scores, clusters or [None] * len(scores), strict=True)
    sums = np.concatenate(
        [_drawn_sums(task_scores.mean(axis=1).T, drawn)[0] for task_scores, drawn in of_task]
    )
    # Sums of equal values in another order differ by rounding.
    return np.array(
        [
            np.count_nonzero(np.abs(sums[:, i] - sums[:, j]) > ROUNDING)
            for i, j in zip(first, second, strict=True)
        ]
    )


def pairs_of(count: int) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """All pairs of candidates, each once, the lower number first."""
    first, second = np.triu_indices(count, 1)
    return first, second
