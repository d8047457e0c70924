"""The peak of memory, of a part of a process."""

import ctypes
import sys

import numpy as np
import pytest
import torch

from adiabat.models.device import peak_memory, reset_peak_memory

CPU = torch.device("cpu")
MUCH, PIECE = 300_000_000, 30_000


def test_what_is_held_for_a_while_is_seen() -> None:
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    held = np.ones(MUCH, dtype=np.uint8)
    assert peak_memory(CPU) - before > 0.9 * MUCH
    del held
    assert peak_memory(CPU) - before > 0.9 * MUCH


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets the mark begin anew")
def test_what_was_held_before_is_forgotten() -> None:
    held = np.ones(MUCH, dtype=np.uint8)
    high = peak_memory(CPU)
    del held
    reset_peak_memory(CPU)
    assert high - peak_memory(CPU) > 0.8 * MUCH


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the GNU C library alone gives back on demand")
def test_what_an_allocator_keeps_free_is_not_counted() -> None:
    # Pieces that come from the heap, with one at its end that stays: the heap cannot shrink of itself.
    pieces = [np.ones(PIECE, dtype=np.uint8) for _ in range(MUCH // PIECE)]
    last = np.ones(PIECE, dtype=np.uint8)
    del pieces
    high = peak_memory(CPU)
    reset_peak_memory(CPU)
    assert high - peak_memory(CPU) > 0.8 * MUCH
    assert last.all()
