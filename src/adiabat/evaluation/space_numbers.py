"""Numbers of an embedding space with formula and source, for model and baseline on the same resamples
(Moiseev et al. 2023).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.evaluation.space_geometry import (
    Pairs,
    Ratios,
    Statistic,
    auc_of,
    cosines_of,
    distance_of_means,
    effective_rank,
    fold_of,
    mean_cosine_of,
    mean_of,
    probe_scores,
    random_pairs,
    ratios_of,
    spectrum_of,
    uniformity_of,
)
from adiabat.results.space_result import SpaceNumber, Whose
from adiabat.stats.resampling import percentile_interval, resampling_counts
from adiabat.stats.student_t import Interval
from adiabat.stats.unit_arrays import Draws, Numbers, Values, Vectors

BLOCK_CELLS = 2**22
"""Numbers of a block of resamples: 32 MB."""

FORMULAS: Mapping[str, tuple[str, str]] = {
    "cosine to nearest document": (
        "mean over queries of max_d cos(q, d), over all documents",
        "Moiseev et al. 2023 (SamToNe), figure 5",
    ),
    "cosine to positive": ("mean over queries of cos(q, p)", "defined here"),
    "alignment": ("mean over queries of |q − p|², vectors at unit length", "Wang and Isola 2020, equation 1"),
    "ratio, median": (
        "median over random pairs i ≠ j of cos(q_i, q_j) / cos(q_i, p_j)",
        "Moiseev et al. 2023 (SamToNe), figure 6",
    ),
    "ratio, share within 1 ± 0.1": ("share of the same ratios that lie in [0.9, 1.1]", "defined here"),
    "cosine to another query less to its positive": (
        "mean over random pairs i ≠ j of cos(q_i, q_j) − cos(q_i, p_j)",
        "defined here",
    ),
    "tower separation, AUC": (
        "area under the ROC curve of a logistic regression, cross-validated, "
        "that tells queries from their positives",
        "Hanley and McNeil 1982",
    ),
    "distance of tower means": ("|mean q − mean p|, vectors at unit length", "defined here"),
    "uniformity": (
        "ln E exp(−2 |x − y|²), over all pairs x ≠ y of the sample",
        "Wang and Isola 2020, equation 2, t = 2",
    ),
    "cosine of random pairs": ("mean cosine of all pairs x ≠ y of the sample", "Ethayarajh 2019"),
    "variance along first component": (
        "largest eigenvalue of the covariance / sum of its eigenvalues",
        "Ethayarajh 2019",
    ),
    "effective rank": (
        "exp(−sum l ln l), l the shares of the covariance's eigenvalues",
        "Roy and Vetterli 2007",
    ),
}
"""Formula in one line and source of each number."""


@dataclass(frozen=True, slots=True)
class Space:
    """Unit vectors of one model; `nearest` is the cosine of each query to its nearest document in the whole
    store.
    """

    queries: Vectors
    positives: Vectors
    documents: Float[np.ndarray, "m e"]
    nearest: Values

    def ratios(self, pairs: Pairs) -> Ratios:
        """Numerators and denominators of the ratio, for each pair of queries."""
        return ratios_of(self.queries, self.positives, pairs)


@dataclass(frozen=True, slots=True)
class SpaceResampling:
    """Random choices that both models share; queries of one cluster are drawn together, and documents each
    alone.
    """

    clusters: Numbers
    documents: int
    pairs: Pairs
    folds: Numbers
    resamples: int
    seed: int

    @classmethod
    def of(
        cls, clusters: Numbers, documents: int, *, pairs: int, folds: int, resamples: int, seed: int
    ) -> "SpaceResampling":
        """Draw pairs and folds by one seed."""
        drawn = random_pairs(clusters, pairs, seed=seed)
        return cls(clusters, documents, drawn, fold_of(clusters, folds, seed=seed), resamples, seed)

    def estimate(self, name: str, of: Whose, statistic: Statistic) -> "_Estimate":
        """A statistic of queries or of documents: its value, and its value on each resample."""
        clusters = np.arange(self.documents) if of == "documents" else self.clusters
        # Statistics of both towers may hold a column for each pair.
        columns = max(len(self.pairs), len(clusters)) if of == "both" else len(clusters)
        blocks = resampling_counts(
            int(clusters.max()) + 1,
            resamples=self.resamples,
            seed=self.seed,
            block_size=max(1, BLOCK_CELLS // columns),
        )
        value = float(statistic(np.ones((1, len(clusters))))[0])
        draws = np.concatenate([statistic(counts[:, clusters]) for counts in blocks])
        return _Estimate(name, of, value if math.isfinite(value) else None, draws)


@dataclass(frozen=True, slots=True)
class _Estimate:
    """A number of one model; `value` is None where it is not defined, and `draws` where it is no mean over
    the sample.
    """

    name: str
    of: Whose
    value: float | None
    draws: Draws | None = None

    def interval(self) -> Interval | None:
        """Bootstrap interval, where the number has one."""
        return None if self.value is None or self.draws is None else _interval(self.draws)


def space_numbers(after: Space, before: Space | None, plan: SpaceResampling) -> list[SpaceNumber]:
    """Every number of `FORMULAS`, of both towers or of each, with intervals where it is a mean over the
    sample.
    """
    if before is None:
        return [_number(estimate, None) for estimate in _estimates(after, plan)]
    pairs = zip(_estimates(after, plan), _estimates(before, plan), strict=True)
    return [_number(*pair) for pair in pairs]


def _estimates(space: Space, plan: SpaceResampling) -> Iterator[_Estimate]:
    """The numbers of one model, one by one: tables of all pairs of vectors are freed in between."""
    ratios = space.ratios(plan.pairs)
    separation = probe_scores(space.queries, space.positives, plan.folds)
    of_both = {
        "cosine to nearest document": mean_of(space.nearest),
        "cosine to positive": mean_of(cosines_of(space.queries, space.positives)),
        "alignment": mean_of(np.square(space.queries - space.positives).sum(axis=1)),
        "ratio, median": ratios.median(),
        "ratio, share within 1 ± 0.1": ratios.share_near_one(),
        "cosine to another query less to its positive": ratios.mean_gap(),
        "tower separation, AUC": auc_of(*separation, plan.folds),
    }
    for name, statistic in of_both.items():
        yield plan.estimate(name, "both", statistic)
    # Resampling adds noise to both means, which only lengthens their distance: it has no interval.
    yield _Estimate("distance of tower means", "both", distance_of_means(space.queries, space.positives))
    sides: Mapping[Whose, Vectors] = {"queries": space.queries, "documents": space.documents}
    for of, vectors in sides.items():
        yield plan.estimate("uniformity", of, uniformity_of(vectors))
        yield plan.estimate("cosine of random pairs", of, mean_cosine_of(vectors))
        shares = spectrum_of(vectors)
        largest = float(shares[0]) if len(shares) else None
        yield _Estimate("variance along first component", of, largest)
        yield _Estimate("effective rank", of, effective_rank(shares) if len(shares) else None)


def _interval(draws: Draws) -> Interval | None:
    """Over the resamples in which the number is defined, if they are more than 99 %."""
    defined = draws[np.isfinite(draws)]
    return percentile_interval(defined) if len(defined) > 0.99 * len(draws) else None


def _number(after: _Estimate, before: _Estimate | None) -> SpaceNumber:
    """The record of a number of the model under test, and of the baseline if there is one."""
    formula, source = FORMULAS[after.name]
    number = SpaceNumber(after.name, after.of, formula, source, after.value, after.interval())
    if before is None:
        return number
    number = replace(number, before=before.value, before_interval=before.interval())
    if after.value is None or before.value is None:
        return number
    # Both models have the same resamples, so what moves both alike is no part of the difference.
    paired = None
    if after.draws is not None and before.draws is not None:
        paired = _interval(after.draws - before.draws)
    return replace(number, difference=after.value - before.value, difference_interval=paired)
