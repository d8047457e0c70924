"""The difference between a tower and the base that it was tuned from, as whole tensors or as factors."""

import torch
from jaxtyping import Float
from torch import Tensor

from adiabat.core.errors import ModelError
from adiabat.core.text import cut
from adiabat.core.wording import option
from adiabat.models.deltas import INNER, OUTER, Weights
from adiabat.models.encoder import Encoder

NEGLIGIBLE = 1e-3
"""Share of a difference, by its Frobenius norm, that its factors may lack: rounding of merged weights in
float32 leaves about 1e-4 of a difference after a few hundred steps."""


def differences(tower: Encoder, base: Encoder) -> Weights:
    """``W - W0`` of each weight of the backbone that differs.

    Raises:
        ModelError: If the two have other weights or shapes.
    """
    after, before = _weights(tower), _weights(base)
    if odd := sorted(
        name
        for name in after.keys() | before.keys()
        if name not in after or name not in before or after[name].shape != before[name].shape
    ):
        raise ModelError(
            "the tower must have the weights of its base model and no others, got "
            f"{cut(', '.join(odd), limit=120)} in one of them only, or of another shape; "
            f"{option('to', 'sentence-transformers')} holds all weights"
        )
    return {
        name: (after[name] - before[name]).detach()
        for name in after
        if not torch.equal(after[name], before[name])
    }


def factors(
    difference: Float[Tensor, "o i"], rank: int
) -> tuple[Float[Tensor, "o r"], Float[Tensor, "r i"]] | None:
    """Two factors of rank `rank` whose product is a difference; None if it has a higher rank."""
    left, values, right = torch.linalg.svd(difference.double(), full_matrices=False)
    if float(values[rank:].norm()) > NEGLIGIBLE * float(values.norm()):
        return None
    # Both factors of one size, so that neither leaves the range of float16.
    root = values[:rank].sqrt()
    return (left[:, :rank] * root).float(), (root[:, None] * right[:rank]).float()


def factored(changes: Weights, rank: int) -> Weights:
    """Differences of dense layers as factors where their rank allows it, the others whole."""
    parts: Weights = {}
    for name, difference in changes.items():
        pair = factors(difference, rank) if difference.ndim == 2 and rank < min(difference.shape) else None
        if pair is None:
            parts[name] = difference
        else:
            parts[name + OUTER], parts[name + INNER] = pair
    return parts


def _weights(tower: Encoder) -> Weights:
    """The weights of the backbone that vectors depend on."""
    return {
        name: weights
        for name, weights in tower.used_parameters().items()
        if not name.startswith("projections.")
    }
