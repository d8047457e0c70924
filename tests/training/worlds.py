"""Texts that several tests of passes embed, and their gradients."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from adiabat.models.bulk import TokenTable
from adiabat.models.encoder import Encoder
from adiabat.training.passes import Passes

TEXTS = ["a", "two words", "three short words", "the longest of all the texts in this batch", "", "again two"]
PICKED = np.array([3, 0, 5, 2, 1])
Gradients = dict[str, Tensor]


def table_of(encoder: Encoder, texts: Sequence[str] = TEXTS) -> TokenTable:
    return TokenTable.of(encoder, texts, side="query")


def gradients_of(*towers: Encoder) -> Gradients:
    """By the tower and the name."""
    named = [
        (f"{number} {name}", weights.grad)
        for number, tower in enumerate(towers)
        for name, weights in tower.named_parameters()
    ]
    return {name: gradient.clone() for name, gradient in named if gradient is not None}


def loss_of(embeddings: Tensor) -> Tensor:
    """A sum in which every number has a weight of its own."""
    target = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0))
    return (embeddings * target).sum().square()


def passed(
    encoder: Encoder, passes: Passes, picked: np.ndarray = PICKED, texts: Sequence[str] = TEXTS
) -> tuple[Tensor, Gradients]:
    """Embeddings of some texts, and the gradients of a sum over them."""
    encoder.zero_grad()
    embeddings = passes.embed(table_of(encoder, texts), picked)
    loss_of(embeddings).backward()
    return embeddings.detach(), gradients_of(encoder)


def assert_alike(found: Gradients, wanted: Gradients, *, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """The same weights have the same gradients, up to a share of the largest number of each."""
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(
            found[name],
            gradient,
            rtol=rtol,
            atol=atol * float(1 + gradient.abs().max()),
            msg=lambda told, name=name: f"{name}: {told}",
        )
