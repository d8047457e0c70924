"""Runs made up from laws whose coefficients are known, on the source's own grid."""

from typing import Any

import numpy as np

from adiabat.experiments import plan_prior as published
from adiabat.experiments.plan_prior import PYTHIA
from adiabat.scaling_laws.laws import Points

SIZES = np.array([float(one.parameters) for one in PYTHIA])
BUDGETS = np.array(published.BUDGETS)


def by_size_and_tokens(size: np.ndarray, tokens: np.ndarray, share: np.ndarray) -> Any:
    return 0.2 + 126 / size**0.3 + 707 / tokens**0.35


def by_one_share(size: np.ndarray, tokens: np.ndarray, share: np.ndarray) -> Any:
    return 0.15 + (2 * np.log(tokens) + 80) / size**0.3 + 700 / tokens**0.35


def by_share(size: np.ndarray, tokens: np.ndarray, share: np.ndarray) -> Any:
    return 0.15 + (2 * np.log(tokens) + 80) / size**0.3 + (300 * (1 - share) ** 2 + 700) / tokens**0.35


def grid(
    law: Any,
    *,
    shares: tuple[float, ...] = (1.0,),
    budgets: np.ndarray = BUDGETS,
    noise: float = 0.0,
    seed: int = 0,
) -> Points:
    """Every size at every budget and share, with relative noise of the loss."""
    size, budget, share = (each.ravel() for each in np.meshgrid(SIZES, budgets, shares, indexing="ij"))
    tokens = budget / ((2 + 4 * share) * size)
    errors = noise * np.random.default_rng(seed).standard_normal(len(size))
    return Points(size, tokens, share, law(size, tokens, share) * np.exp(errors))
