"""Layers on top of the pooled vector, and new ones from a seed."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Projection(nn.Module):
    """A linear layer on the pooled vector, with its activation, and perhaps a residual connection around both."""

    def __init__(self, linear: nn.Linear, activation: nn.Module, residual: nn.Linear | nn.Identity | None = None) -> None:
        """Put the parts together.

        Args:
            residual: What becomes of the pooled vector before it is added to the result; None adds nothing.
        """
        super().__init__()
        self.linear = linear
        self.activation = activation
        self.residual = residual

    def forward(self, pooled: Float[Tensor, "b d"]) -> Float[Tensor, "b e"]:
        """Project."""
        projected: Tensor = self.activation(self.linear(pooled))
        return projected if self.residual is None else projected + self.residual(pooled)


def new_projection(width: int, out: int, *, seed: int) -> Projection:
    """A linear map without bias or activation, the same for the same seed.

    Its weights are normal with variance ``1 / width``, which keeps lengths and angles on average: at the start, texts are about as near to
    each other as they were without it. The global random state is left alone.

    Args:
        width: Numbers per pooled vector (D).
        out: Numbers per embedding (E).
    """
    return projection_of(torch.empty(out, width).normal_(std=width**-0.5, generator=torch.Generator().manual_seed(seed)).T)


def projection_of(weights: Float[Tensor, "d e"]) -> Projection:
    """A linear map without bias or activation, by its weights."""
    linear = nn.utils.skip_init(nn.Linear, *weights.shape, bias=False)  # type: ignore[no-untyped-call]
    linear.weight = nn.Parameter(weights.T.clone(memory_format=torch.contiguous_format))
    return Projection(linear, nn.Identity())
