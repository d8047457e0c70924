"""Numbers of an embedding space with formula and source, for model and baseline on the same resamples
(Moiseev et al. 2023).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

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

T = TypeVar("T")

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
        cls,
        clusters: Numbers,
        documents: int,
        *,
        pairs: int,
        folds: int,
        resamples: int,
        seed: int,
    ) -> "SpaceResampling":
        """Draw pairs and folds by one seed."""
        drawn, fold = random_pairs(clusters, pairs, seed=seed), fold_of(clusters, folds, seed=seed)
        return cls(clusters, documents, drawn, fold, resamples, seed)

    def draws(self, statistic: Statistic, of: Whose) -> tuple[float, Draws]:
        """A statistic of queries or of documents: its value, and its value on each resample."""
        clusters = np.arange(self.documents) if of == "documents" else self.clusters
        # Statistics of both towers may hold a column for each pair.
        rows = max(1, BLOCK_CELLS // max(len(self.pairs) if of == "both" else 0, len(clusters)))
        blocks = resampling_counts(
            int(clusters.max()) + 1, resamples=self.resamples, seed=self.seed, block_size=rows
        )
        value = float(statistic(np.ones((1, len(clusters))))[0])
        return value, np.concatenate([statistic(counts[:, clusters]) for counts in blocks])


def space_numbers(after: Space, before: Space | None, plan: SpaceResampling) -> list[SpaceNumber]:
    """Every number of `FORMULAS`, of both towers or of each, with intervals where it is a mean over the
    sample.
    """
    spaces = [after] if before is None else [after, before]
    of_both: Mapping[str, Callable[[Space], Statistic]] = {
        "cosine to nearest document": lambda space: mean_of(space.nearest),
        "cosine to positive": lambda space: mean_of(cosines_of(space.queries, space.positives)),
        "alignment": lambda space: mean_of(np.square(space.queries - space.positives).sum(axis=1)),
        "ratio, median": lambda space: space.ratios(plan.pairs).median(),
        "ratio, share within 1 ± 0.1": lambda space: space.ratios(plan.pairs).share_near_one(),
        "cosine to another query less to its positive": lambda space: space.ratios(plan.pairs).mean_gap(),
        "tower separation, AUC": lambda space: auc_of(
            *probe_scores(space.queries, space.positives, plan.folds), plan.folds
        ),
    }
    numbers = [_estimated(name, "both", build, spaces, plan) for name, build in of_both.items()]
    numbers.append(
        _number(
            "distance of tower means",
            "both",
            [distance_of_means(space.queries, space.positives) for space in spaces],
        )
    )
    sides: tuple[Whose, ...] = ("queries", "documents")
    for of in sides:
        vectors_of = [space.queries if of == "queries" else space.documents for space in spaces]
        spectra = [spectrum_of(vectors) for vectors in vectors_of]
        numbers += [
            _estimated("uniformity", of, uniformity_of, vectors_of, plan),
            _estimated("cosine of random pairs", of, mean_cosine_of, vectors_of, plan),
            _number(
                "variance along first component",
                of,
                [float(shares[0]) if len(shares) else None for shares in spectra],
            ),
            _number(
                "effective rank", of, [effective_rank(shares) if len(shares) else None for shares in spectra]
            ),
        ]
    return numbers


def _estimated(
    name: str, of: Whose, build: Callable[[T], Statistic], measured: Sequence[T], plan: SpaceResampling
) -> SpaceNumber:
    """A number with its intervals; tables of one model are freed before those of the other are built."""
    estimates = [plan.draws(build(each), of) for each in measured]
    values = [value if math.isfinite(value) else None for value, _ in estimates]
    draws = [model_draws for _, model_draws in estimates]
    intervals = [
        None if value is None else _interval(model_draws)
        for value, model_draws in zip(values, draws, strict=True)
    ]
    both = len(values) == 2 and None not in values
    return _number(name, of, values, intervals, _interval(draws[0] - draws[1]) if both else None)


def _interval(draws: Draws) -> Interval | None:
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
