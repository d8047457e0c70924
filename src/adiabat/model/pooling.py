"""From token states to one vector per text."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.errors import ConfigError

Pooling = Literal["mean", "cls", "last", "max", "weighted_mean"]
"""Which token states make the vector; ``weighted_mean`` weighs token ``t`` (from 1) by ``t``, as SGPT does."""

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def pool(hidden: Float[Tensor, "b l d"], mask: Int[Tensor, "b l"], *, pooling: Pooling) -> Float[Tensor, "b d"]:
    """Reduce the token states of each text to one vector.

    Sums run in float32 whatever the precision of `hidden`, so that a long text loses nothing to bfloat16.

    Args:
        hidden: Last hidden states.
        mask: 1 at tokens that count, 0 at padding; at least one 1 per row.
        pooling: One of `POOLINGS`.

    Returns:
        Pooled states, float32.

    Raises:
        ConfigError: If `pooling` is not known.

    Reference:
        Reimers & Gurevych 2019 (mean, cls, max); Muennighoff 2022 (weighted mean); mission B1 (mean against last).
    """
    states = hidden.float()
    match pooling:
        case "mean":
            return _weighted(states, mask.float())
        case "weighted_mean":
            positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
            return _weighted(states, (mask * positions).float())
        case "max":
            return states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
        case "cls":
            return _at(states, mask.argmax(dim=1))
        case "last":
            return _at(states, mask.shape[1] - 1 - mask.flip(1).argmax(dim=1))
    raise ConfigError(f"pooling must be one of {', '.join(POOLINGS)}, got {pooling!r}")


def _weighted(states: Float[Tensor, "b l d"], weights: Float[Tensor, "b l"]) -> Float[Tensor, "b d"]:
    total = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
    return total / weights.sum(dim=1, keepdim=True)


def _at(states: Float[Tensor, "b l d"], position: Int[Tensor, " b"]) -> Float[Tensor, "b d"]:
    return states[torch.arange(len(states), device=states.device), position]
