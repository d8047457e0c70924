"""The copies of a tower that training passes run on: the tower's weights, with modules of their own."""

from collections.abc import Sequence

from torch import nn

from adiabat.errors import ModelError
from adiabat.model.dropout import own_dropout
from adiabat.model.encoder import Encoder
from adiabat.model.packing import PackedBackbone, is_packable
from adiabat.model.workers import working_copies
from adiabat.train.blocks import blocks_of
from adiabat.train.chunking import Chunking

COMPILER = "inductor"
"""Torch's compiler of `Chunking.compiled`."""


def training_copies(encoders: Sequence[Encoder], count: int, chunking: Chunking) -> list[list[Encoder]]:
    """Copies of towers for the passes of several threads.

    On a CPU they compute no padding where the backbone can; on a GPU, attention text by text would leave it idle.
    """
    copies = [working_copies(encoder, count, precision="fp32", shared=[encoder.tokenizer]) for encoder in encoders]
    for own in copies:
        for copy in own[1:]:
            _give_own_gradients(copy)
        for copy in own:
            _prepare(copy, chunking)
    return [list(towers) for towers in zip(*copies, strict=True)]


def _prepare(copy: Encoder, chunking: Chunking) -> None:
    """Make a copy's backbone pass as it is asked to."""
    if chunking.checkpointed and not blocks_of(copy.backbone):
        raise ModelError(f"checkpointed must be False for {type(copy.backbone).__name__}, which has no blocks that could be checkpointed")
    if chunking.compiled:
        copy.backbone.compile(dynamic=False, backend=COMPILER)
    elif not chunking.buckets and copy.device.type == "cpu" and is_packable(copy.backbone):
        own_dropout(copy)
        copy.backbone = PackedBackbone(copy.backbone)  # type: ignore[assignment]


def _give_own_gradients(module: nn.Module) -> None:
    """Replace each parameter by one that has the same memory, and a gradient of its own."""
    twins: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, weights in part.named_parameters(recurse=False, remove_duplicate=False):
            twin = twins.setdefault(id(weights), nn.Parameter(weights.detach(), requires_grad=weights.requires_grad))
            setattr(part, name, twin)


def is_packed(encoder: Encoder) -> bool:
    """Whether an encoder computes no padding."""
    return isinstance(encoder.backbone, PackedBackbone)


def size_of(encoder: Encoder) -> int:
    """What a token costs, up to a factor."""
    multiplied = (part for part in encoder.modules() if not isinstance(part, nn.Embedding))
    return max(1, sum(weights.numel() for part in multiplied for weights in part.parameters(recurse=False)))
