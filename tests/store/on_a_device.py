"""The way of a GPU, on the tensors of a CPU."""

import pytest

from adiabat.store import scoring, search, stored_blocks


def score_as_on_a_device(monkeypatch: pytest.MonkeyPatch, *, free: int = 1 << 33) -> None:
    """Everything that runs on a GPU runs as there, on the tensors of a CPU."""
    for module in (scoring, search, stored_blocks):
        monkeypatch.setattr(module, "is_cpu", lambda device: False)
    monkeypatch.setattr(stored_blocks, "free_memory", lambda device: free)
