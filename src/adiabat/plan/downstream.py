"""Whether a lower loss goes with better scores of tasks, over the runs of a sweep (mission B9)."""

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata, spearmanr

from adiabat.plan.intervals import Estimate, estimate

LEAST = 4
"""Runs without which a rank correlation says nothing."""


def rank_correlation(
    loss: Float[np.ndarray, " p"], score: Float[np.ndarray, " p"], *, resamples: int = 1_000, seed: int = 0
) -> Estimate | None:
    """Spearman's correlation of losses and scores, with the interval of runs drawn again.

    Args:
        loss: Of each run.
        score: Of each run.
        resamples: How often runs are drawn again; draws in which all losses or all scores are alike are drawn again.
        seed: Of the draws.

    Returns:
        In [-1, 1]: below 0 where a lower loss goes with a higher score; None of fewer than `LEAST` different losses or scores.

    Reference:
        Source 001, appendix C.
    """
    if min(len(np.unique(loss)), len(np.unique(score))) < LEAST:
        return None
    generator = np.random.default_rng(seed)
    draws: list[float] = []
    while len(draws) < resamples:
        rows = generator.integers(0, len(loss), len(loss))
        if len(np.unique(loss[rows])) > 1 and len(np.unique(score[rows])) > 1:
            draws.append(_correlation(loss[rows], score[rows]))
    return estimate(float(spearmanr(loss, score).statistic), np.array(draws))


def _correlation(loss: Float[np.ndarray, " p"], score: Float[np.ndarray, " p"]) -> float:
    return float(np.corrcoef(rankdata(loss), rankdata(score))[0, 1])
