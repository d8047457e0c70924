"""How many parameters of a tower a token passes, forwards and backwards (mission B4)."""

from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from adiabat.model.encoder import Encoder
from adiabat.plan.flops import PassedParameters
from adiabat.train.blocks import blocks_of, frozen_prefix
from adiabat.train.randomness import RandomState


def passed_parameters(encoder: Encoder) -> PassedParameters:
    """Count what training does with the parameters of a tower; tables that are looked up count nowhere.

    The gradient passes back to the first block that holds, or follows, something trainable, and no further; a block counts whole. One
    that is repeated with the same weights (ALBERT) counts once, which is too little.

    Args:
        encoder: The tower, with what is frozen switched off.

    Returns:
        The counts.
    """
    looked_up = {id(part.weight) for part in encoder.modules() if isinstance(part, nn.Embedding)}
    multiplied = {id(weights): weights for weights in encoder.used_parameters().values() if id(weights) not in looked_up}
    forward = sum(weights.numel() for weights in multiplied.values())
    updated = sum(weights.numel() for weights in multiplied.values() if weights.requires_grad)
    if not any(weights.requires_grad for weights in encoder.parameters()):
        return PassedParameters(forward, 0, 0)
    blocks = blocks_of(encoder.backbone)
    passed = {id(weights) for block in blocks[frozen_prefix(encoder, blocks) :] for weights in block.parameters()}
    passed |= _passed_outside(encoder, blocks)
    return PassedParameters(forward, sum(weights.numel() for key, weights in multiplied.items() if key in passed), updated)


@torch.enable_grad()
def _passed_outside(encoder: Encoder, blocks: list[nn.Module]) -> set[int]:
    """Parameters outside the blocks, such as those of norms and projections, through which a gradient passes: found by passing a token."""
    inside = {part for block in blocks for part in block.modules()}
    passed: set[int] = set()

    def note(own: set[int], module: nn.Module, given: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            passed.update(own)

    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        for part in encoder.modules():
            if part not in inside and (own := {id(weights) for weights in part.parameters(recurse=False)}):
                stack.callback(part.register_forward_hook(partial(note, own)).remove)
        encoder(encoder.collate([[encoder.pad_token_id]], side="document"))
    return passed
