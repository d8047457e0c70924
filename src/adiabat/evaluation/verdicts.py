"""Comparisons that prove nothing and so have no verdict, sets too small for one, and a model that is its own
baseline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from adiabat.core.errors import DataError
from adiabat.core.margin import FEWEST_UNITS, Margin
from adiabat.core.text import counted
from adiabat.core.wording import option
from adiabat.results.evaluation_result import Change, DatasetResult, FailOn, GridComparison, Verdict
from adiabat.stats.calibrated import FEWEST_CHANGED
from adiabat.stats.grid_comparison import compare_grids
from adiabat.stats.samples import GridSample, mean_grid


class SetSize(NamedTuple):
    """A data set by its number of units; the fewest changed units are those of queries, not of a language
    grid.
    """

    name: str
    units: int
    is_grid: bool

    @property
    def said(self) -> str:
        """The size in a phrase."""
        return f"{self.name} has {counted(self.units, 'sentence pair' if self.is_grid else 'query')}"

    @property
    def shows_nothing(self) -> bool:
        """Whether the set can be neither better nor worse."""
        return self.units < FEWEST_CHANGED and not self.is_grid


def notes_on_sizes(sizes: Sequence[SetSize]) -> Iterator[str]:
    """Sets that are too small for some verdict, whatever is measured."""
    for size in sizes:
        if size.shows_nothing:
            yield f"{size.said}, and fewer than {FEWEST_CHANGED} show no change"
        elif size.units < FEWEST_UNITS:
            yield f"{size.said}, and fewer than {FEWEST_UNITS} exclude no loss"


def require_answerable(sizes: Sequence[SetSize], fail_on: FailOn) -> None:
    """Refuse sets whose size alone decides whether `Result.failing` names them."""
    small = [size.said for size in sizes if size.units < FEWEST_UNITS]
    if fail_on == "undecided" and small:
        raise DataError(
            f"{option('fail_on', fail_on)} must be asked of sets of at least "
            f"{FEWEST_UNITS} queries, {small[0]}, "
            f"which is undecided whatever the model; add queries, or take {option('fail_on', 'worse')}"
        )
    if fail_on == "worse" and all(size.shows_nothing for size in sizes):
        raise DataError(
            f"{option('fail_on', fail_on)} must be asked of a set of at least "
            f"{FEWEST_CHANGED} queries, {small[0]}, "
            f"which is never worse; add queries, or leave it out"
        )


def without_verdicts(changes: Sequence[Change]) -> list[Change]:
    """Changes without verdicts, for a model that was trained on too many of the units."""
    return [replace(change, verdict=None, needed=None) for change in changes]


def without_grid_verdicts(grids: Sequence[GridComparison]) -> list[GridComparison]:
    """Language grids without verdicts."""
    return [
        replace(
            grid,
            verdicts=None,
            improved=None,
            worsened=None,
            not_worse=None,
            improved_z=None,
            worsened_z=None,
        )
        for grid in grids
    ]


def without_good_news(changes: Sequence[Change]) -> list[Change]:
    """Changes of units that depend on one another but are drawn singly: these prove no gain and exclude no
    loss, but may warn of one.
    """
    undecided: dict[str, Any] = {"verdict": "undecided", "loss_bound": None, "needed": None}
    return [
        change if change.verdict in (None, "worse") else replace(change, **undecided) for change in changes
    ]


def grid_over_runs(
    after: Sequence[GridSample], before: Sequence[GridSample] | None, **drawing: Any
) -> GridComparison:
    """Compare the cells of a language grid as means over runs; those of several runs have no verdicts.

    Sign flips exchange the scores of single units, which does not cover the spread of runs.
    """
    compared = compare_grids(mean_grid(after), None if before is None else mean_grid(before), **drawing)
    return compared if len(after) == len(before or after) == 1 else without_grid_verdicts([compared])[0]


def of_one_model(result: DatasetResult, margin: Margin) -> DatasetResult:
    """Model and baseline are one: no number of units would show a loss."""

    def held(change: Change) -> Change:
        undecided = change.verdict == "undecided" and change.margin is not None
        return replace(change, verdict="not worse", loss_bound=0.0, needed=None) if undecided else change

    def held_cells(grid: GridComparison) -> GridComparison:
        if grid.verdicts is None or grid.before is None:
            return grid
        # As in a change, a share of a baseline of 0 is no margin.
        is_margin = [[bool(margin.of(result.main).unit) or value > 0 for value in row] for row in grid.before]
        verdicts: list[list[Verdict]] = [
            ["not worse" if cell == "undecided" and known else cell for cell, known in zip(*row, strict=True)]
            for row in zip(grid.verdicts, is_margin, strict=True)
        ]
        return replace(grid, verdicts=verdicts, not_worse=sum(row.count("not worse") for row in verdicts))

    return replace(
        result,
        changes=[*map(held, result.changes)],
        ladder=[*map(held, result.ladder)],
        parts=[replace(part, change=held(part.change)) for part in result.parts],
        grid=[*map(held_cells, result.grid)],
    )
