"""The margin of non-inferiority: a share of the baseline, or a difference of the measure that decides."""

import pytest

from adiabat.core.margin import Margin


@pytest.mark.parametrize(
    ("margin", "before", "in_unit", "moving", "said"),
    [
        (Margin(), 0.5, 0.005, 0.01, "1 %"),
        (Margin(0.025), 0.4, 0.01, 0.025, "2.5 %"),
        (Margin(0.025), 0.0, None, 0.025, "2.5 %"),
        (Margin(0.025), -0.1, None, 0.025, "2.5 %"),
        (Margin(absolute=0.02), -0.1, 0.02, 0.0, "0.02"),
        (Margin(0.3, 0.02), 0.5, 0.02, 0.0, "0.02"),
    ],
)
def test_a_share_moves_with_the_baseline_and_a_difference_does_not(
    margin: Margin, before: float, in_unit: float | None, moving: float, said: str
) -> None:
    assert margin.in_unit(before) == (None if in_unit is None else pytest.approx(in_unit))
    assert (margin.moving, str(margin)) == (moving, said)
    assert margin.of_others == Margin(margin.share)
