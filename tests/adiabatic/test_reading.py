"""What writing probes otherwise does to what an untuned tower finds for them."""

import numpy as np
import pytest

from adiabat.adiabatic.drift import MEASURES, OVERLAP_LOSS, TURN, Reading, drift_of
from adiabat.adiabatic.drift_guard import noise_of


def reading(angles: list[float], rows: list[list[int]], *, length: float = 1.0) -> Reading:
    vectors = length * np.array([[np.cos(angle), np.sin(angle)] for angle in angles], dtype=np.float32)
    return Reading(vectors, np.array(rows), np.array([[0.9, 0.8 - angle] for angle in angles], dtype=np.float32))


def test_noise_is_the_drift_of_the_probes_that_move() -> None:
    start, otherwise = reading([0.0, 0.5], [[1, 2], [3, 4]]), reading([0.1, 0.5], [[2, 1], [3, 4]])
    found = noise_of(start, otherwise)
    assert found[TURN] == pytest.approx(0.1, rel=1e-5)
    # Half of what both probes have: the second one's vector stays.
    assert found[OVERLAP_LOSS] == pytest.approx(2 * drift_of(start, otherwise).means[OVERLAP_LOSS])


def test_the_length_of_a_vector_and_its_rounding_do_not_move_a_probe() -> None:
    start, otherwise = reading([0.2, 0.4], [[1, 2], [3, 4]]), reading([0.2, 0.4 + 1e-6], [[1, 2], [3, 4]], length=1e3)
    assert noise_of(start, otherwise) == dict.fromkeys(MEASURES, 0.0)
