"""What Ziarko et al. 2024 printed, as it stands and where it does not agree with itself."""

import math
from itertools import pairwise

import pytest

from adiabat.experiments.plan_prior import BUDGETS, FULL, LORA, PYTHIA, SWITCH


def test_sizes_are_those_that_the_suite_names_without_embeddings() -> None:
    # From the suite's own model cards; the two smallest have no card with this number.
    assert [one.parameters for one in PYTHIA][2:] == [18_915_328, 85_056_000, 302_311_424, 805_736_448, 1_208_602_624, 2_517_652_480]


def test_budgets_are_four_times_one_another() -> None:
    for one, following in pairwise(BUDGETS):
        assert following / one == pytest.approx(4, rel=0.02)


def test_the_printed_lines_do_not_meet_at_the_printed_switch() -> None:
    assert math.log(FULL.meets(LORA)) == pytest.approx(54)
    assert FULL.at(SWITCH) / LORA.at(SWITCH) == pytest.approx(0.86, abs=0.01)
