"""Operations of training, worked by hand."""

import pytest

from adiabat.scaling_laws.flops import PassedParameters, training_flops


def test_training_everything_takes_six_operations_a_parameter_and_token() -> None:
    assert training_flops(PassedParameters(100, 100, 100), 7.0) == 6 * 100 * 7


def test_freezing_leading_blocks_takes_two_forwards_and_four_behind_them() -> None:
    assert training_flops(PassedParameters(100, 40, 40), 1_000.0) == (2 * 100 + 4 * 40) * 1_000


def test_updating_a_small_part_saves_a_third_at_most() -> None:
    whole, part = (training_flops(PassedParameters(100, 100, updated), 10.0) for updated in (100, 1))
    assert part == 2 * 10 * 201
    assert part / whole == pytest.approx(2 / 3, rel=0.01)


def test_no_tokens_and_nothing_trained_cost_nothing_more() -> None:
    assert training_flops(PassedParameters(100, 100, 100), 0.0) == 0
    assert training_flops(PassedParameters(100, 0, 0), 10.0) == 2 * 100 * 10
