"""Language grids of a suite as maps: each model's values, and its differences to the model that it is compared with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.report import heat_cells as heat
from adiabat.report import wording
from adiabat.results.suite_result import SuiteGrid

Comparison = tuple[str, str]


def grids_of(grids: Sequence[SuiteGrid], *, against: str | None = None) -> list[dict[str, Any]]:
    """The maps of one task, for its page.

    Args:
        against: Name of the model that the others of the task are compared with; None where there is none.
    """
    by_comparison: dict[Comparison, list[SuiteGrid]] = {}
    for grid in grids:
        by_comparison.setdefault((grid.grid.comparison, grid.grid.similarity), []).append(grid)
    return [_entry(comparison, every, against) for comparison, every in by_comparison.items()]


def _entry(comparison: Comparison, grids: Sequence[SuiteGrid], against: str | None) -> dict[str, Any]:
    values = [np.array(grid.grid.after, dtype=np.float64) for grid in grids]
    changes = [_changes(grid) for grid in grids]
    known = [change for change in changes if change is not None]
    among_values, among_changes = (
        np.concatenate([each.ravel() for each in values]),
        np.concatenate([[0.0], *(each.ravel() for each in known)]),
    )
    return {
        "title": ", ".join(filter(None, comparison)),
        "direction": "lower is better" if grids[0].lower_is_better else "higher is better",
        "range": f"{100 * among_values.min():.1f} to {100 * among_values.max():.1f}",
        "reach": f"{max(100 * float(np.abs(among_changes).max()), heat.LEAST_REACH):.1f}",
        # Where the mean over several runs is on either side, cells have no verdicts, and perhaps no differences.
        "untold": [] if against is None else [grid.model for grid in grids if grid.model != against and grid.grid.verdicts is None],
        "models": [
            {
                "name": grid.model,
                "against": grid.against,
                "rows": grid.rows,
                "columns": grid.columns,
                "values": heat.value_cells(value, among=among_values),
                "changes": None
                if change is None
                else heat.change_cells(change, _marked(grid), among=among_changes, lower_is_better=grid.lower_is_better),
                "counts": _counts(grid),
                "mean": f"{100 * value.mean():.1f}",
            }
            for grid, value, change in zip(grids, values, changes, strict=True)
        ],
    }


def _changes(grid: SuiteGrid) -> Float[np.ndarray, "q d"] | None:
    if grid.against is None or grid.grid.before is None:
        return None
    return np.array(grid.grid.after, dtype=np.float64) - np.array(grid.grid.before, dtype=np.float64)


def _marked(grid: SuiteGrid) -> Any:
    """Where the verdict of a cell is more than no evidence."""
    if grid.grid.verdicts is None:
        return np.zeros((len(grid.rows), len(grid.columns)), dtype=np.bool_)
    return np.isin(grid.grid.verdicts, ("better", "worse"))


def _counts(grid: SuiteGrid) -> dict[str, str] | None:
    table = grid.grid
    if table.improved is None or table.worsened is None:
        return None
    cells = len(grid.rows) * len(grid.columns)
    by_z = None
    if table.improved_z is not None and table.worsened_z is not None:
        by_z = f"by the z-test {wording.integer(table.improved_z)} better, {wording.integer(table.worsened_z)} worse"
    return {
        "improved": wording.integer(table.improved),
        "worsened": wording.integer(table.worsened),
        "neither": wording.integer(cells - table.improved - table.worsened),
        "cells": wording.integer(cells),
        "by_z": by_z or "",
    }
