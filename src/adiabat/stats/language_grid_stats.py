"""Two models on one language grid, cell by cell.

A cell is better or worse where the sign-flip test over its units survives Benjamini-Hochberg over all cells of the comparison.
Signs of whole units are flipped, the same in all cells: a unit is there in every language, so cells are far from independent.

For a discrepancy over pairs of units the flips are of differences of pseudo-values (`adiabat.evaluation.language_grid_measures`), to
which a permutation test in the strict sense does not apply. Simulated grids without any difference say what that costs: with 30, 100 and
400 premises, in ten shapes (hard, easy, skewed, nearly equal models, one premise in ten changed, premises of unequal size, ...), the test
at 5 % rejected 0.2 to 5.4 % of cells and the test at 0.2 % at most 0.25 %, while the bootstrap of the same pseudo-values rejected up to 8.1
% and 0.75 %: too many where few premises changed or there are few of them, and in the far tail, where a correction over hundreds of cells
decides. Hence flips, and no bootstrap.
"""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from adiabat.results.evaluation_result import GridComparison
from adiabat.stats.ranking_measures import improvement
from adiabat.stats.resampling import RESAMPLES
from adiabat.stats.samples import GridSample
from adiabat.stats.significance import Z_CRITICAL, benjamini_hochberg, sign_flip_p_values, two_proportion_z

DISCOVERY_RATE = 0.05
"""Of the correction over the cells of a comparison."""


def compare_grids(
    after: GridSample, before: GridSample | None, *, seed: int, resamples: int = RESAMPLES, choice: float = 1.0
) -> GridComparison:
    """Tables of one comparison, and which cells changed.

    Args:
        after: Of the model under test.
        before: Of the model that it is compared with, over the same units; None gives the values alone.
        seed: Of the sign flips.
        resamples: Sign flips at the least, > 0; as many as so many cells need: see `flips_for`.
        choice: For how many comparisons each p-value counts, >= 1: more than one where `before` was chosen for what it scored.

    Returns:
        The tables; counts by the z-test only where the cells count errors.

    Raises:
        ValueError: If the two are not of the same comparison, similarity, languages and number of units, or `resamples` is not above 0.

    Reference:
        Vasilyev et al. 2024.
    """
    values = cell_values(after)
    result = GridComparison(after.comparison, after.similarity, after=values.tolist())
    if before is None:
        return result
    _check_fit(after, before, resamples)
    baseline = cell_values(before)
    better = values < baseline if after.lower_is_better else values > baseline
    verdicts = np.where(_changed(after, before, choice, seed, resamples), np.where(better, "better", "worse"), "no evidence")
    rows = zip(baseline.tolist(), values.tolist(), strict=True)
    improved_z, worsened_z = _counts_by_z(after, before)
    return replace(
        result,
        before=baseline.tolist(),
        improvement=[[improvement(b, a, lower_is_better=after.lower_is_better) for b, a in zip(*row, strict=True)] for row in rows],
        verdicts=verdicts.tolist(),
        improved=int((verdicts == "better").sum()),
        worsened=int((verdicts == "worse").sum()),
        improved_z=improved_z,
        worsened_z=worsened_z,
    )


def cell_values(cells: GridSample) -> Float[np.ndarray, "a b"]:
    """The value of every cell.

    Args:
        cells: Of one model.

    Returns:
        ``errors / total`` where the cells count errors, else the mean over units.
    """
    if cells.errors is not None:
        return np.asarray(cells.errors / cells.total)
    return np.asarray(cells.values.mean(axis=-1, dtype=np.float64))


def flips_for(cells: int, *, requested: int) -> int:
    """How many sign flips a comparison of so many cells is given.

    The least p-value that R flips can give is ``1 / (R + 1)``, and the strictest step of Benjamini-Hochberg over n cells asks for
    ``0.05 / n``: with fewer, a single changed pair of languages could never be told, however much it changed.

    Args:
        cells: Compared at once.
        requested: Asked for.

    Returns:
        `requested`, or ``n / 0.05`` where that is more.
    """
    return max(requested, math.ceil(cells / DISCOVERY_RATE))


def flips_notes(cells: int, *, requested: int) -> list[str]:
    """What a reader should know of the number of flips.

    Args:
        cells: Compared at once; 0 where there is no baseline.
        requested: Asked for.

    Returns:
        One sentence, or none where signs were flipped as often as asked.
    """
    flips = flips_for(cells, requested=requested)
    if flips == requested:
        return []
    return [
        f"signs were flipped {flips:,} times in the cells of the grid, not measure.resamples = {requested:,}: "
        f"so few could not tell a single changed pair of languages among {cells:,}"
    ]


def _changed(after: GridSample, before: GridSample, choice: float, seed: int, resamples: int) -> Bool[np.ndarray, "a b"]:
    """GridSample whose change holds after the correction over all."""
    shape = after.values.shape
    differences = (after.values.astype(np.float64) - before.values).reshape(-1, shape[-1]).T
    flips = flips_for(math.ceil(differences.shape[1] * choice), requested=resamples)
    p_values = np.minimum(1.0, choice * sign_flip_p_values(differences, seed=seed, flips=flips))
    return benjamini_hochberg(p_values, rate=DISCOVERY_RATE).reshape(shape[:2])


def _counts_by_z(after: GridSample, before: GridSample) -> tuple[int, int] | tuple[None, None]:
    """The source's counts of improved and worsened cells."""
    if after.errors is None or before.errors is None:
        return None, None
    counted = zip(before.errors.ravel().tolist(), after.errors.ravel().tolist(), strict=True)
    # More errors give a z above 0.
    z = np.array([two_proportion_z(was, now, after.total) for was, now in counted])
    return int((z < -Z_CRITICAL).sum()), int((z > Z_CRITICAL).sum())


def _check_fit(after: GridSample, before: GridSample, resamples: int) -> None:
    if resamples <= 0:
        raise ValueError(f"resamples must be above 0, got {resamples}")
    counted = ("total",) if after.errors is not None and before.errors is not None else ()
    for name in ("comparison", "similarity", "rows", "columns", "lower_is_better", *counted):
        tested, baseline = getattr(after, name), getattr(before, name)
        if tested != baseline:
            raise ValueError(f"after and before must have the same {name}, got {tested} and {baseline}")
    if after.values.shape != before.values.shape:
        raise ValueError(f"after and before must be over the same units, got {after.values.shape[-1]} and {before.values.shape[-1]}")
