"""Laws of the loss: their columns give the source's formulas."""

from collections.abc import Callable

import numpy as np
import pytest

from adiabat.scaling_laws.flops import PassedParameters, training_flops
from adiabat.scaling_laws.laws import (
    LOG_OF_NOTHING,
    ONE_SHARE,
    SHARE,
    SIZE_AND_TOKENS,
    Centre,
    Law,
    Points,
    columns_of,
)

ROWS = Points(np.array([1e6, 4e7, 1e9]), np.array([2e8, 3e9, 5e7]), np.array([1.0, 0.25, 0.5]), np.ones(3))
NOWHERE = Centre(0.0, 0.0)


def predicted(law: Law, exponents: list[float], weights: list[float], centre: Centre) -> np.ndarray:
    found: np.ndarray = columns_of(*law.basis(ROWS, centre), np.array(exponents)) @ np.array(weights)
    return found


def test_size_and_tokens_worked_by_hand() -> None:
    one = Points(np.array([100.0]), np.array([1e4]), np.array([1.0]), np.array([1.0]))
    columns = columns_of(*SIZE_AND_TOKENS.basis(one, NOWHERE), np.array([0.5, 0.25]))
    # 100^-0.5 = 1/10, 10,000^-0.25 = 1/10.
    assert columns[0] == pytest.approx([1, 0.1, 0.1])
    assert columns[0] @ [0.5, 3.0, 2.0] == pytest.approx(1.0)


def test_share_worked_by_hand() -> None:
    one = Points(np.array([16.0]), np.array([np.e**2]), np.array([0.5]), np.array([1.0]))
    columns = columns_of(*SHARE.basis(one, NOWHERE), np.array([0.25, 1.0, 2.0]))
    # N^-0.25 = 1/2, ln D = 2, (1 - S)^2 = 1/4, 1/D = e^-2.
    assert columns[0] == pytest.approx([1, 1, 0.5, np.exp(-2) / 4, np.exp(-2)])


def size_and_tokens(p: dict[str, float]) -> np.ndarray:
    found: np.ndarray = p["c"] + p["A"] / ROWS.size ** p["alpha"] + p["B"] / ROWS.tokens ** p["beta"]
    return found


def share(p: dict[str, float]) -> np.ndarray:
    by_size = (p["a_d"] * np.log(ROWS.tokens) + p["b_d"]) / ROWS.size ** p["alpha"]
    found: np.ndarray = (
        p["c"] + by_size + (p["a_s"] * (1 - ROWS.share) ** p["b_s"] + p["c_s"]) / ROWS.tokens ** p["beta"]
    )
    return found


def one_share(p: dict[str, float]) -> np.ndarray:
    return share({**p, "a_s": 0.0, "b_s": 1.0})


@pytest.mark.parametrize(
    ("law", "exponents", "weights", "formula"),
    [
        (SIZE_AND_TOKENS, [0.3, 0.4], [0.2, 0.5, 0.4], size_and_tokens),
        (SHARE, [0.3, 0.4, 1.5], [0.2, 0.1, 0.5, 0.3, 0.4], share),
        (ONE_SHARE, [0.3, 0.4], [0.2, 0.1, 0.5, 0.4], one_share),
    ],
)
@pytest.mark.parametrize("centre", [NOWHERE, Centre(17.0, 20.0)])
def test_printed_coefficients_give_the_same_loss_by_the_formula(
    law: Law,
    exponents: list[float],
    weights: list[float],
    formula: Callable[[dict[str, float]], np.ndarray],
    centre: Centre,
) -> None:
    printed = dict(law.printed(np.array(exponents), np.array(weights), centre))
    assert predicted(law, exponents, weights, centre) == pytest.approx(formula(printed))


def test_nothing_frozen_leaves_nothing_of_the_term_of_shares() -> None:
    base, powers = SHARE.basis(ROWS, NOWHERE)
    assert powers[2, 0, 3] == LOG_OF_NOTHING
    columns = columns_of(base, powers, np.array([0.3, 0.4, 0.5]))
    assert columns[0, 3] == pytest.approx(0, abs=1e-100)
    assert np.isfinite(columns).all()


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
