"""Blocks that are to be compiled, without a compiler."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from adiabat.models import compilation


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Compiles nothing, and notes the graphs that were to be."""
    noted: list[str] = []

    def note(graph: torch.fx.GraphModule, given: list[Any]) -> torch.fx.GraphModule:
        noted.append(graph.code)
        return graph

    monkeypatch.setattr(compilation, "COMPILER", note)
    torch._dynamo.reset()
    # Torch hides this warning of its own, but not where warnings are errors.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        yield noted
    torch._dynamo.reset()
