"""Which chunks keep their graph under gradient caching, so that they are not computed twice: as many as fit
in memory.

Gradients do not depend on it: a chunk that is computed again gives the same graph.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from adiabat.models.device import free_memory

FREE_SHARE = 0.8
"""Share of a GPU's free memory that graphs may take; allocators leave gaps, and the loss needs its
matrices."""

UNMADE = 4
"""Bytes that an optimizer step will still need, in bytes of the trained weights: gradients, two moments of
Adam, and a rounded copy."""


def graph_bytes(embed: Callable[[], Tensor], weights: Iterable[Tensor]) -> int:
    """Bytes that autograd keeps of a pass for its gradient, beside the weights."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in weights}
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in shared:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    # The graph lives until the end, so that no storage takes the place of an earlier one.
    with torch.autograd.graph.saved_tensors_hooks(note, _same):
        graph = embed()
    del graph
    return sum(sizes.values())


def _same(tensor: Tensor) -> Tensor:
    return tensor


def free_bytes(device: torch.device, weights: Iterable[Tensor]) -> int:
    """Bytes that kept graphs may take where none are stated: of a GPU what is free, of a CPU nothing."""
    if device.type != "cuda":
        return 0
    unmade = UNMADE * sum(tensor.nbytes for tensor in weights if tensor.requires_grad)
    return max(0, int(FREE_SHARE * free_memory(device)) - unmade)


def first_that_fit(sizes: Sequence[float], room: float) -> list[bool]:
    """Which graphs are kept: in order, each that fits in the room that earlier ones leave."""
    kept = []
    for size in sizes:
        fits = size <= room
        room -= size if fits else 0.0
        kept.append(fits)
    return kept
