"""Sets too small for some verdict, margins too large for any, and language grids over runs."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.margin import FEWEST_UNITS, Margin
from adiabat.core.text import counted
from adiabat.core.wording import option
from adiabat.results.evaluation_result import Change, FailOn, GridComparison
from adiabat.results.verdict import Reason
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
    # On a set that is too small, the answer would not depend on the model.
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


def require_margin_below(margin: Margin, change: Change, task: str) -> None:
    """Refuse a margin that is all of a measure: it would call any loss no loss."""
    if margin.absolute is not None and change.most is not None and margin.absolute >= change.most:
        raise ConfigError(
            f"measure.margin_absolute must be below all that {change.measure} can lose on {task}, "
            f"{change.most:.3g}, got {margin}; take a smaller one"
        )


def grid_over_runs(
    after: Sequence[GridSample],
    before: Sequence[GridSample] | None,
    *,
    known: Collection[Reason] = (),
    **drawing: Any,
) -> GridComparison:
    """Compare the cells of a language grid as means over runs.

    Sign flips exchange the scores of single units, which does not cover the spread of runs.
    """
    is_single = len(after) == len(before or after) == 1
    reasons = {*known} if is_single else {*known, Reason.CELLS_OVER_RUNS}
    return compare_grids(
        mean_grid(after), None if before is None else mean_grid(before), known=reasons, **drawing
    )
