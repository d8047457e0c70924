"""Two models in every cell of a language grid: changes by sign flips over all cells, and losses excluded in
single cells.

A cell of a language grid is better or worse where the sign-flip test over its units survives
Benjamini-Hochberg over all cells of the
comparison. Signs of whole units are flipped, the same in all cells: a unit is in every language, so cells are
far from independent. A discrepancy over pairs of units flips differences of pseudo-values
(`adiabat.evaluation.language_grid_measures`), which is not a permutation test in the strict sense. On
simulated grids without a difference (30, 100 and 400 premises, ten shapes) the test at 5 % rejected 0.2 to
5.4 % of cells, and at 0.2 % at most 0.25 %. The bootstrap of the same pseudo-values rejected up to 8.1 % and
0.75 %: too many where few premises changed, and in the far tail, where a correction over hundreds of cells
decides.

A cell that is neither is not worse where its data exclude a loss of the margin
(`adiabat.stats.noninferiority`). That is a statement about
the cell alone, without a correction: "not worse in all cells" needs every one of them to hold.
"""

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float

from adiabat.core.margin import DEFAULT_MARGIN, FEWEST_UNITS, Margin
from adiabat.results.evaluation_result import GridComparison
from adiabat.results.verdict import Reason, Word
from adiabat.stats.calibrated import NOTICED
from adiabat.stats.judgement import VOID, Evidence, Shown, judge
from adiabat.stats.noninferiority import Group, Units
from adiabat.stats.ranking_measures import improvement
from adiabat.stats.resampling import RESAMPLES
from adiabat.stats.samples import SHARE, GridSample
from adiabat.stats.significance import Z_CRITICAL, benjamini_hochberg, sign_flip_p_values, two_proportion_z
from adiabat.stats.student_t import CONFIDENCE, student_quantile

DISCOVERY_RATE = 0.05
"""Of the correction over the cells of a comparison."""


def compare_grids(
    after: GridSample,
    before: GridSample | None,
    *,
    seed: int,
    resamples: int = RESAMPLES,
    choice: float = 1.0,
    margin: Margin = DEFAULT_MARGIN,
    known: Collection[Reason] = (),
) -> GridComparison:
    """Compare two models in every cell of a language grid.

    Args:
        after: Of the model under test.
        before: Of its baseline, over the same units; None gives only the values.
        seed: Of the sign flips.
        resamples: Sign flips at least, > 0; `flips_for` adds as many as the cells need.
        choice: Factor on each p-value, >= 1: above 1 where `before` was chosen by its score on these units.
        margin: The loss below which a cell is "not worse".
        known: What is known of units and models beside their values, such as that a model trained on them.

    Returns:
        Tables of values, improvements and verdicts; counts by the z-test only where the cells count errors,
        and the units say something.

    Raises:
        ValueError: If the two differ in comparison, similarity, languages or units, or `resamples` is not
            above 0.

    Reference:
        Vasilyev et al. 2024.
    """
    values = cell_values(after)
    result = GridComparison(after.comparison, after.similarity, after=values.tolist())
    if before is None:
        return result
    _check_fit(after, before, resamples)
    baseline = cell_values(before)
    verdicts = _verdicts(after, before, margin, _changed(after, before, choice, seed, resamples), known)
    counts = Counter(chain.from_iterable(verdicts))
    improvements = []
    for before_row, after_row in zip(baseline.tolist(), values.tolist(), strict=True):
        pairs = zip(before_row, after_row, strict=True)
        improvements.append([improvement(b, a, lower_is_better=after.lower_is_better) for b, a in pairs])
    # The z-test of the literature is reported for comparison; it makes no verdict.
    improved_z, worsened_z = (None, None) if set(known) & set(VOID) else _counts_by_z(after, before)
    return replace(
        result,
        before=baseline.tolist(),
        improvement=improvements,
        verdicts=verdicts,
        improved=counts["better"],
        worsened=counts["worse"],
        not_worse=counts["not worse"],
        improved_z=improved_z,
        worsened_z=worsened_z,
        reasons=[reason for reason in Reason if reason in known],
    )


def _verdicts(
    after: GridSample,
    before: GridSample,
    margin: Margin,
    changed: Bool[np.ndarray, "a b"],
    known: Collection[Reason],
) -> list[list[Word]]:
    """Verdict on each cell; changes that are shown hold among all cells."""
    values, baseline, bounds = cell_values(after), cell_values(before), _loss_bounds(after, before, margin)
    rows: list[list[Word]] = [[] for _ in values]
    for cell in np.ndindex(values.shape):
        limit = margin.in_unit(float(baseline[cell]))
        shown: Shown | None = None
        if changed[cell]:
            has_fallen = bool(values[cell] < baseline[cell])
            shown = "better" if has_fallen == after.lower_is_better else "worse"
        excluded = None if limit is None else bool(bounds[cell] < limit)
        evidence = Evidence(shown=shown, loss_excluded=excluded, units=after.values.shape[-1], known=known)
        rows[cell[0]].append(judge(evidence).word)
    return rows


def cell_values(cells: GridSample) -> Float[np.ndarray, "a b"]:
    """Value of every cell: ``errors / total`` where the cells count errors, else the mean over units."""
    if cells.errors is not None:
        return np.asarray(cells.errors / cells.total)
    return np.asarray(cells.values.mean(axis=-1, dtype=np.float64))


def flips_for(cells: int, *, requested: int) -> int:
    """Number of sign flips for a comparison of so many cells: `requested`, or ``cells / 0.05`` where that is
    more.

    R flips give p-values of ``1 / (R + 1)`` at least, and the strictest step of Benjamini-Hochberg over n
    cells asks for ``0.05 / n``: with fewer flips, no single changed pair of languages could be reported.
    """
    return max(requested, math.ceil(cells / DISCOVERY_RATE))


def flips_notes(cells: int, *, requested: int) -> list[str]:
    """A sentence where `flips_for` gives more flips than `requested`; `cells` is 0 without a baseline."""
    flips = flips_for(cells, requested=requested)
    if flips == requested:
        return []
    return [
        f"signs were flipped {flips:,} times in the cells of the grid, not "
        f"measure.resamples = {requested:,}: "
        f"fewer could not detect a single changed pair of languages among {cells:,}"
    ]


def _changed(
    after: GridSample, before: GridSample, choice: float, seed: int, resamples: int
) -> Bool[np.ndarray, "a b"]:
    """Cells whose change survives the correction over all cells."""
    shape = after.values.shape
    differences = (after.values.astype(np.float64) - before.values).reshape(-1, shape[-1]).T
    flips = flips_for(math.ceil(differences.shape[1] * choice), requested=resamples)
    p_values = np.minimum(1.0, choice * sign_flip_p_values(differences, seed=seed, flips=flips))
    return benjamini_hochberg(p_values, rate=DISCOVERY_RATE).reshape(shape[:2])


def _counts_by_z(after: GridSample, before: GridSample) -> tuple[int, int] | tuple[None, None]:
    """Improved and worsened cells by the two-proportion test of Vasilyev et al. 2024."""
    if after.errors is None or before.errors is None:
        return None, None
    counted = zip(before.errors.ravel().tolist(), after.errors.ravel().tolist(), strict=True)
    # More errors give a z above 0.
    z = np.array([two_proportion_z(was, now, after.total) for was, now in counted])
    return int((z < -Z_CRITICAL).sum()), int((z > Z_CRITICAL).sum())


def _loss_bounds(after: GridSample, before: GridSample, margin: Margin) -> Float[np.ndarray, "a b"]:
    """The loss that each cell allows at one-sided 95 %, for itself: by a t interval, and exactly if few units
    lost; infinite with fewer than `FEWEST_UNITS` units.
    """
    sign = -1.0 if after.lower_is_better else 1.0
    gains = sign * (after.values.astype(np.float64) - before.values)
    count, baseline = gains.shape[-1], cell_values(before)
    if count < FEWEST_UNITS:
        return np.full(baseline.shape, math.inf)
    error = (gains + margin.moving * before.values).std(axis=-1, ddof=1) / math.sqrt(count)
    bound = student_quantile(CONFIDENCE, count - 1) * error - sign * (cell_values(after) - baseline)
    lost = (gains < -NOTICED * np.abs(gains).max(axis=-1, keepdims=True)).sum(axis=-1)
    room = (1 - before.values if after.lower_is_better else before.values).max(axis=-1)
    unseen = np.empty(baseline.shape)
    for cell in np.ndindex(baseline.shape):
        group = Group(float(count), (1.0,) * int(lost[cell]), float(room[cell]))
        units = Units(after.lower_is_better, SHARE, count, (group,))
        unseen[cell] = units.unseen(float(baseline[cell]))
    return np.asarray(np.maximum(bound, unseen))


def _check_fit(after: GridSample, before: GridSample, resamples: int) -> None:
    """Refuse, with a `ValueError`, grids that differ in more than their values."""
    if resamples <= 0:
        raise ValueError(f"resamples must be above 0, got {resamples}")
    counted = ("total",) if after.errors is not None and before.errors is not None else ()
    for name in ("comparison", "similarity", "rows", "columns", "lower_is_better", *counted):
        tested, baseline = getattr(after, name), getattr(before, name)
        if tested != baseline:
            raise ValueError(f"after and before must have the same {name}, got {tested} and {baseline}")
    if after.values.shape != before.values.shape:
        raise ValueError(
            f"after and before must be over the same units, got {after.values.shape[-1]} "
            f"and {before.values.shape[-1]}"
        )
