"""Non-inferiority: how large a loss the data still allow, and whether it is below a margin.

A set "did not get worse" only where the data exclude a loss of the margin. With a margin that is a share m of the baseline, the loss is
excluded where the one-sided 95 % lower end of ``s (after - before) + m before`` lies above 0 (s is -1 where lower values are better): both
models vary together from resample to resample, and so does the margin. The end is the lower of a BCa and a t end.

Resamples of a few losses know nothing of the losses that were not drawn: of 50 queries none may have lost, and a share of 6 % still lose.
Where fewer than `FEW_LOSSES` units lost, the loss may therefore be as large as the Clopper-Pearson upper end of their share, times what a
unit can lose at most. In simulations with a true loss of exactly the margin (`scripts/calibrate_statistics.py`), the end alone excludes it
in up to 60 % of trials if losses are rare, and this rule in at most 5 %. Of other shapes it is 2 to 7 % with 100 units, and 3 to 6 % with
more.

Reference:
    Blackwelder 1982 (one-sided test against a margin); Clopper and Pearson 1934; Efron and Tibshirani 1993, chapter 14.
"""

import math
from dataclasses import dataclass

from adiabat.core.margin import Margin
from adiabat.stats.quantity import POWER, Quantity
from adiabat.stats.resampling import CONFIDENCE, student_quantile
from adiabat.stats.samples import Bounds

FEW_LOSSES = 6
"""With fewer units that lost, the share of losing units is bounded exactly."""

FEWEST_UNITS = 10
"""With fewer units, no loss is excluded."""


@dataclass(frozen=True, slots=True)
class Units:
    """The units behind a change.

    Attributes:
        lower_is_better: Whether a loss is a rise.
        bounds: Of the measure; None if it has none.
        count: Number of units with weight, > 0.
        lost: Number of them that the model under test does worse on, or that differ if units have no values of their own.
    """

    lower_is_better: bool
    bounds: Bounds | None
    count: int
    lost: int

    def worst(self, before: float) -> float:
        """Mean loss if every unit fell to the worst value of the measure."""
        if self.bounds is None:
            return math.inf
        low, high = self.bounds
        return high - before if self.lower_is_better else before - low

    def unseen(self, before: float) -> float:
        """The loss if as many units lose all they have as `lost` of `count` allow; 0 if enough losses were seen."""
        if self.lost >= FEW_LOSSES:
            return 0.0
        from scipy.special import betaincinv

        share = float(betaincinv(self.lost + 1, self.count - self.lost, CONFIDENCE)) if self.lost < self.count else 1.0
        return share * self.worst(before)


def margin_in_unit(margin: Margin, before: float) -> float | None:
    """The margin as a difference of the measure; None for a share of a baseline that is not above 0."""
    if margin.unit:
        return margin.value
    return margin.value * before if before > 0 else None


def loss_bound(difference: Quantity, before: Quantity, units: Units, margin: Margin) -> float:
    """The largest loss that the data allow at one-sided 95 %.

    Args:
        difference: ``after - before`` with its resamples.
        before: The baseline, on the same resamples.
        units: The units that were measured.
        margin: Of the measure; a share moves with the baseline of each resample.

    Returns:
        The loss in the measure's unit, of either sign; infinite with fewer than two units. It is below the margin exactly where the data
        exclude a loss of the margin.
    """
    share = 0.0 if margin.unit else margin.value
    shifted = difference.combined(-1.0 if units.lower_is_better else 1.0, before, share)
    return max(share * before.value - shifted.lower_end(), units.unseen(before.value) or -math.inf)


def units_needed(difference: Quantity, before: float, units: Units, margin: float) -> int | None:
    """Number of units at which a model that lost nothing would be shown to be within the margin four times in five.

    ``n ((t_95 + t_80) SE / margin)^2`` at the observed standard error, and enough for the exact bound if few units lost.

    Args:
        difference: ``after - before`` with its resamples.
        before: Value of the baseline.
        units: The units that were measured.
        margin: In the measure's unit, > 0.

    Returns:
        More than there are; None if no number would do, or there are fewer than two units.
    """
    error, freedom = difference.error()
    worst = units.worst(before)
    if freedom == 0 or (units.lost < FEW_LOSSES and math.isinf(worst)):
        return None
    needed = units.count * ((student_quantile(CONFIDENCE, freedom) + student_quantile(POWER, freedom)) * error / margin) ** 2
    if units.lost < FEW_LOSSES and margin < worst:
        needed = max(needed, math.log(1 - CONFIDENCE) / math.log1p(-margin / worst))
    return max(math.ceil(needed), units.count + 1)
