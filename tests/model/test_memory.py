"""The peak of memory, of a part of a process."""

import sys

import numpy as np
import pytest
import torch

from adiabat.model.memory import begin_peak, peak_bytes

CPU = torch.device("cpu")
MUCH = 300_000_000


def test_what_is_held_for_a_while_is_seen() -> None:
    begin_peak(CPU)
    before = peak_bytes(CPU)
    held = np.ones(MUCH, dtype=np.uint8)
    assert peak_bytes(CPU) - before > 0.9 * MUCH
    del held
    assert peak_bytes(CPU) - before > 0.9 * MUCH


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets the mark begin anew")
def test_what_was_held_before_is_forgotten() -> None:
    held = np.ones(MUCH, dtype=np.uint8)
    high = peak_bytes(CPU)
    del held
    begin_peak(CPU)
    assert high - peak_bytes(CPU) > 0.8 * MUCH
