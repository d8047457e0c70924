"""Operations of training, worked by hand."""

import pytest

from adiabat.scaling_laws.flops import PassedParameters, training_flops


@pytest.mark.parametrize(
    ("passed", "tokens", "flops"),
    [
        (PassedParameters(100, 100, 100), 7.0, 6 * 100 * 7),
        (PassedParameters(100, 40, 40), 1_000.0, (2 * 100 + 4 * 40) * 1_000),
        # Updating a small part saves a third at most.
        (PassedParameters(100, 100, 1), 10.0, 2 * 10 * 201),
        (PassedParameters(100, 100, 100), 0.0, 0),
        (PassedParameters(100, 0, 0), 10.0, 2 * 100 * 10),
    ],
    ids=["full", "frozen blocks", "small part", "no tokens", "nothing trained"],
)
def test_operations_by_hand(passed: PassedParameters, tokens: float, flops: float) -> None:
    assert training_flops(passed, tokens) == flops
