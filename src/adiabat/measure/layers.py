"""How much each parameter tensor moved in training (mission A11)."""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from adiabat.errors import ModelError, several
from adiabat.measure.results import LayerChange

_CHUNK = 1 << 20
"""Numbers compared at a time, so that a large embedding table is never copied whole in double precision."""


def layer_changes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> list[LayerChange]:
    """Compare two sets of weights, tensor by tensor.

    ``relative = |after - before| / |before|`` (Frobenius norm), ``largest = max |w|``, ``largest_change = (Wt - Wo) / (Wt + Wo)`` with
    ``Wo`` the largest before and ``Wt`` the largest after.

    Args:
        before: Weights by name, of any floating type and on any device.
        after: The same names and shapes.

    Returns:
        One change for every name, in the order of `before`, unchanged tensors too (all zeros). Computed in double precision.

    Raises:
        ModelError: If names or shapes differ; all differences are named.

    Reference:
        Source 000; mission A11.
    """
    faults = [f'"{name}" {where} only' for name, where in _one_sided(before, after)]
    faults += [
        f'"{name}" of shape {tuple(tensor.shape)} before and {tuple(after[name].shape)} after'
        for name, tensor in before.items()
        if name in after and after[name].shape != tensor.shape
    ]
    if faults:
        found = several(faults, of="differences")
        raise ModelError(f"weights must be of the same model, got {found}; compare a model with the one that it was trained from")
    return [_change(name, tensor, after[name]) for name, tensor in before.items()]


def _one_sided(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Names that only one side has, with the side."""
    yield from ((name, "before") for name in before if name not in after)
    yield from ((name, "after") for name in after if name not in before)


def _change(name: str, before: Tensor, after: Tensor) -> LayerChange:
    """Compare one tensor, a chunk at a time."""
    old_squares = moved_squares = largest_before = largest_after = 0.0
    chunks = zip(torch.split(before.detach().flatten(), _CHUNK), torch.split(after.detach().flatten(), _CHUNK), strict=True)
    for old, new in ((old.cpu().double(), new.cpu().double()) for old, new in chunks if old.numel()):
        moved = new - old
        old_squares += torch.dot(old, old).item()
        moved_squares += torch.dot(moved, moved).item()
        largest_before = max(largest_before, old.abs().max().item())
        largest_after = max(largest_after, new.abs().max().item())
    both = largest_before + largest_after
    return LayerChange(
        name=name,
        relative=math.sqrt(moved_squares / old_squares) if old_squares else None,
        largest_before=largest_before,
        largest_after=largest_after,
        largest_change=(largest_after - largest_before) / both if both else 0.0,
    )
