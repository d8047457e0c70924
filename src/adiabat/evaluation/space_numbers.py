"""Numbers of an embedding space with formula and source, for model and baseline on the same resamples (Moiseev et al. 2023)."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from adiabat.evaluation import space_geometry as spaces_of
from adiabat.evaluation.space_geometry import Counts, Pairs, Ratios, Statistic, auc_of, fold_of, probe_scores
from adiabat.results.space_result import SpaceNumber, Whose
from adiabat.stats.resampling import Interval, percentile_interval, resampling_counts

BLOCK_CELLS = 2**22
"""Numbers of a block of resamples: 32 MB."""

FORMULAS: Mapping[str, tuple[str, str]] = {
    "cosine to nearest document": ("mean over queries of max_d cos(q, d), over all documents", "Moiseev et al. 2023 (SamToNe), figure 5"),
    "cosine to positive": ("mean over queries of cos(q, p)", "defined here"),
    "alignment": ("mean over queries of |q − p|², vectors at unit length", "Wang and Isola 2020, equation 1"),
    "ratio, median": ("median over random pairs i ≠ j of cos(q_i, q_j) / cos(q_i, p_j)", "Moiseev et al. 2023 (SamToNe), figure 6"),
    "ratio, share within 1 ± 0.1": ("share of the same ratios that lie in [0.9, 1.1]", "defined here"),
    "cosine to another query less to its positive": ("mean over random pairs i ≠ j of cos(q_i, q_j) − cos(q_i, p_j)", "defined here"),
    "tower separation, AUC": (
        "area under the ROC curve of a logistic regression, cross-validated, that tells queries from their positives",
        "Hanley and McNeil 1982",
    ),
    "distance of tower means": ("|mean q − mean p|, vectors at unit length", "defined here"),
    "uniformity": ("ln E exp(−2 |x − y|²), over all pairs x ≠ y of the sample", "Wang and Isola 2020, equation 2, t = 2"),
    "cosine of random pairs": ("mean cosine of all pairs x ≠ y of the sample", "Ethayarajh 2019"),
    "variance along first component": ("largest eigenvalue of the covariance / sum of its eigenvalues", "Ethayarajh 2019"),
    "effective rank": ("exp(−sum l ln l), l the shares of the covariance's eigenvalues", "Roy and Vetterli 2007"),
}
"""Formula in one line and source of each number."""


@dataclass(frozen=True, slots=True)
class Space:
    """Unit vectors of one model.

    Attributes:
        queries: Of the sample.
        positives: Of each query.
        documents: Of the store, at random.
        nearest: Cosine of each query to its nearest document in the whole store.
    """

    queries: Float[np.ndarray, "n e"]
    positives: Float[np.ndarray, "n e"]
    documents: Float[np.ndarray, "m e"]
    nearest: Float[np.ndarray, " n"]


@dataclass(frozen=True, slots=True)
class UnitResampling:
    """Bootstrap of the units.

    Attributes:
        clusters: Of each unit, from 0; units of one cluster are drawn together.
        resamples: Number of resamples.
        seed: Of the draws.
    """

    clusters: Int[np.ndarray, " n"]
    resamples: int
    seed: int

    def blocks(self, columns: int) -> Iterator[Counts]:
        """Counts of drawn units, one row per resample; the size of a block changes the memory alone."""
        rows = max(1, BLOCK_CELLS // max(columns, len(self.clusters)))
        units = int(self.clusters.max()) + 1
        for counts in resampling_counts(units, resamples=self.resamples, seed=self.seed, block_size=rows):
            yield counts[:, self.clusters]


@dataclass(frozen=True, slots=True)
class SpaceResampling:
    """Random choices that both models share.

    Attributes:
        pairs: Of queries, at random.
        folds: Of each query and its positive.
        queries: Bootstrap of the queries.
        documents: Bootstrap of the documents.
    """

    pairs: Pairs
    folds: Int[np.ndarray, " n"]
    queries: UnitResampling
    documents: UnitResampling

    @classmethod
    def of(cls, clusters: Int[np.ndarray, " n"], documents: int, *, pairs: int, folds: int, resamples: int, seed: int) -> "SpaceResampling":
        """Draw pairs, folds and resamples by one seed."""
        return cls(
            spaces_of.random_pairs(clusters, pairs, seed=seed),
            fold_of(clusters, folds, seed=seed),
            UnitResampling(clusters, resamples, seed),
            UnitResampling(np.arange(documents), resamples, seed),
        )


def ratios(space: Space, plan: SpaceResampling) -> Ratios:
    """Numerators and denominators of the ratio, for each pair."""
    return spaces_of.ratios_of(space.queries, space.positives, plan.pairs)


def space_numbers(after: Space, before: Space | None, plan: SpaceResampling) -> list[SpaceNumber]:
    """Every number of `FORMULAS`, of both towers or of each, with intervals where it is a mean over the sample."""
    spaces = [after] if before is None else [after, before]
    return [*_of_pairs(spaces, plan), *_of_tower("queries", spaces, plan.queries), *_of_tower("documents", spaces, plan.documents)]


def _of_pairs(spaces: Sequence[Space], plan: SpaceResampling) -> list[SpaceNumber]:
    """Numbers of queries beside their positives."""
    builders: Mapping[str, Callable[[Space], Statistic]] = {
        "cosine to nearest document": lambda space: spaces_of.mean_of(space.nearest),
        "cosine to positive": lambda space: spaces_of.mean_of(spaces_of.cosines_of(space.queries, space.positives)),
        "alignment": lambda space: spaces_of.mean_of(np.square(space.queries - space.positives).sum(axis=1)),
        "ratio, median": lambda space: _ratio_median(space, plan),
        "ratio, share within 1 ± 0.1": lambda space: _ratio_share(space, plan),
        "cosine to another query less to its positive": lambda space: _ratio_gap(space, plan),
        "tower separation, AUC": lambda space: auc_of(*probe_scores(space.queries, space.positives, plan.folds), plan.folds),
    }
    measured = [_estimated(name, "both", build, spaces, plan.queries, columns=len(plan.pairs)) for name, build in builders.items()]
    means = [spaces_of.distance_of_means(space.queries, space.positives) for space in spaces]
    return [*measured, _number("distance of tower means", "both", means)]


def _ratio_median(space: Space, plan: SpaceResampling) -> Statistic:
    pair_ratios = ratios(space, plan)
    return spaces_of.median_of_pairs(pair_ratios.values, plan.pairs[pair_ratios.defined])


def _ratio_share(space: Space, plan: SpaceResampling) -> Statistic:
    pair_ratios = ratios(space, plan)
    near = np.abs(pair_ratios.values - 1) <= spaces_of.WITHIN
    return spaces_of.mean_of_pairs(near.astype(np.float64), plan.pairs[pair_ratios.defined])


def _ratio_gap(space: Space, plan: SpaceResampling) -> Statistic:
    pair_ratios = ratios(space, plan)
    return spaces_of.mean_of_pairs(pair_ratios.queries - pair_ratios.positives, plan.pairs)


def _of_tower(of: Whose, spaces: Sequence[Space], drawing: UnitResampling) -> list[SpaceNumber]:
    """Numbers of the vectors of one tower."""

    def vectors(space: Space) -> Float[np.ndarray, "v e"]:
        return space.queries if of == "queries" else space.documents

    builders: Mapping[str, Callable[[Space], Statistic]] = {
        "uniformity": lambda space: spaces_of.uniformity_of(vectors(space)),
        "cosine of random pairs": lambda space: spaces_of.mean_cosine_of(vectors(space)),
    }
    measured = [_estimated(name, of, build, spaces, drawing) for name, build in builders.items()]
    spectra = [spaces_of.spectrum_of(vectors(space)) for space in spaces]
    return [
        *measured,
        _number("variance along first component", of, [float(shares[0]) if len(shares) else None for shares in spectra]),
        _number("effective rank", of, [spaces_of.effective_rank(shares) if len(shares) else None for shares in spectra]),
    ]


def _estimated(
    name: str, of: Whose, build: Callable[[Space], Statistic], spaces: Sequence[Space], drawing: UnitResampling, *, columns: int = 0
) -> SpaceNumber:
    """A number with its intervals; tables of one model are freed before those of the other are built."""
    estimates = [_drawn(build, space, drawing, columns) for space in spaces]
    values = [value if math.isfinite(value) else None for value, _ in estimates]
    draws = [model_draws for _, model_draws in estimates]
    intervals = [None if value is None else _interval(model_draws) for value, model_draws in zip(values, draws, strict=True)]
    both = len(values) == 2 and None not in values
    return _number(name, of, values, intervals, _interval(draws[0] - draws[1]) if both else None)


def _drawn(
    build: Callable[[Space], Statistic], space: Space, drawing: UnitResampling, columns: int
) -> tuple[float, Float[np.ndarray, " r"]]:
    statistic = build(space)
    value = float(statistic(np.ones((1, len(drawing.clusters))))[0])
    return value, np.concatenate([statistic(counts) for counts in drawing.blocks(columns)])


def _interval(draws: Float[np.ndarray, " r"]) -> Interval | None:
    """Over the resamples in which the number is defined, if they are more than 99 %."""
    defined = draws[np.isfinite(draws)]
    return percentile_interval(defined) if len(defined) > 0.99 * len(draws) else None


def _number(
    name: str,
    of: Whose,
    values: Sequence[float | None],
    intervals: Sequence[Interval | None] = (None, None),
    difference_interval: Interval | None = None,
) -> SpaceNumber:
    """The record of a number; values and intervals are of the model under test, then of the baseline."""
    formula, source = FORMULAS[name]
    after, before = values[0], values[1] if len(values) > 1 else None
    return SpaceNumber(
        name=name,
        of=of,
        formula=formula,
        source=source,
        after=after,
        after_interval=intervals[0],
        before=before,
        before_interval=intervals[1] if len(values) > 1 else None,
        difference=None if after is None or before is None else after - before,
        difference_interval=difference_interval,
    )
