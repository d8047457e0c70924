"""The softmax over a whole store: every document that is not known to answer a query is a negative of it (mission A14).

Documents are fixed, so that a pass over the store has all there is to know: with the denominator it adds up, weighted by their
probabilities, the documents themselves, which are the gradient. A step costs a search and as much again, in memory that does not follow the
store.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from adiabat.data.ragged import Ragged
from adiabat.store.embeddings import Store
from adiabat.train.pairs import unit_rows

BLOCK_ROWS = 4_096
"""Documents that are scored at once."""

Blocks = Callable[[], Iterator[tuple[int, Float[Tensor, "b e"]]]]
"""Gives all documents, a block at a time, each with the row of its first."""


def store_softmax(
    query: Float[Tensor, "q e"], positive: Float[Tensor, "q e"], known: Ragged, blocks: Blocks, *, temperature: float, unit: bool = True
) -> Float[Tensor, ""]:
    """Cross-entropy of each query against one of its answers among all documents of a store but its other answers.

    ``loss = -mean_i ln( exp(s_ip / T) / (exp(s_ip / T) + sum_{j not in K_i} exp(s_ij / T)) )`` with ``s`` the cosine, or the
    dot product, ``K_i`` what is known to answer query ``i``, and ``p`` one of them.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` is an answer of query ``i``; no gradient goes to it.
        known: Rows of the store that answer each query.
        blocks: The store, such as `in_blocks` gives it; documents of any length, those of length 0 have a cosine of 0.
        temperature: ``T`` above, > 0, dimensionless.
        unit: Whether vectors are brought to length 1, so that ``s`` is the cosine.

    Returns:
        The loss.

    Raises:
        ValueError: If the temperature is not above 0.

    Reference:
        Mission A14; the running maximum is that of Milakov and Gimelshein 2018, the running sum of documents that of Rabe and Staats 2021.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}; 0.05 is common for cosines")
    scaled = unit_rows if unit else _as_given
    loss: Tensor = _StoreSoftmax.apply(scaled(query.float()), scaled(positive), known, blocks, temperature, scaled)  # type: ignore[no-untyped-call]
    return loss


def in_blocks(store: Store, device: torch.device, *, block_rows: int = BLOCK_ROWS) -> Blocks:
    """A store for `store_softmax`.

    Args:
        store: Its vectors are read anew for each pass.
        device: Where to.
        block_rows: Documents of a block, > 0.

    Returns:
        Its documents in float32.
    """

    def blocks() -> Iterator[tuple[int, Float[Tensor, "b e"]]]:
        for start, vectors in store.blocks(block_rows):
            yield start, torch.from_numpy(vectors).to(device, non_blocking=True).float()

    return blocks


def _as_given(vectors: Float[Tensor, "n e"]) -> Float[Tensor, "n e"]:
    return vectors


class _StoreSoftmax(torch.autograd.Function):
    """The gradient is made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Float[Tensor, "q e"],
        positive: Float[Tensor, "q e"],
        known: Ragged,
        blocks: Blocks,
        temperature: float,
        scaled: Callable[[Tensor], Tensor],
    ) -> Float[Tensor, ""]:
        """Begin with the answers themselves, so that the loss is never below 0, then add up all documents."""
        own = (query * positive).sum(dim=1).double() / temperature
        highest, mass, mean = own.clone(), torch.ones_like(own), positive.double()
        rows, asked = known.values, np.repeat(np.arange(len(known)), known.lengths)
        for start, documents in blocks():
            units = scaled(documents)
            scores = query @ units.T / temperature
            inside = (rows >= start) & (rows < start + len(units))
            scores[_on(asked[inside], scores), _on(rows[inside] - start, scores)] = -torch.inf
            higher = torch.maximum(highest, scores.amax(dim=1).double())
            shrunk, weights = torch.exp(highest - higher), torch.exp(scores - higher.float()[:, None])
            mass = mass * shrunk + weights.sum(dim=1).double()
            mean = mean * shrunk[:, None] + (weights @ units).double()
            highest = higher
        ctx.save_for_backward(((mean / mass[:, None] - positive) / (temperature * len(query))).to(query.dtype))
        return (highest + torch.log(mass) - own).mean().to(query.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        """``(sum_j P_ij d_j - p_i) / (q T)``."""
        (own,) = ctx.saved_tensors
        return gradient * own, None, None, None, None, None


def _on(places: Int[np.ndarray, " n"], like: Tensor) -> Tensor:
    return torch.from_numpy(places).to(like.device)
