"""How many parameters of a tower a token passes, forwards and backwards (mission B4)."""

from collections import Counter
from collections.abc import Mapping
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

    The gradient passes back to the first block that holds, or follows, something trainable, and no further; a block counts whole. Weights
    that a token passes several times, as those of ALBERT, count as often. A projection behind the pooling counts as if each token passed
    it, in place of each text.
    """
    looked_up = {id(part.weight) for part in encoder.modules() if isinstance(part, nn.Embedding)}
    multiplied = {id(weights): weights for weights in encoder.used_parameters().values() if id(weights) not in looked_up}
    blocks = blocks_of(encoder.backbone)
    times, passed = _seen_of_a_token(encoder, blocks)
    counts = {key: weights.numel() * times.get(key, 1) for key, weights in multiplied.items()}
    forward = sum(counts.values())
    updated = sum(counts[key] for key, weights in multiplied.items() if weights.requires_grad)
    if not any(weights.requires_grad for weights in encoder.parameters()):
        return PassedParameters(forward, 0, 0)
    passed |= {id(weights) for block in blocks[frozen_prefix(encoder, blocks) :] for weights in block.parameters()}
    return PassedParameters(forward, sum(count for key, count in counts.items() if key in passed), updated)


@torch.enable_grad()
def _seen_of_a_token(encoder: Encoder, blocks: list[nn.Module]) -> tuple[Mapping[int, int], set[int]]:
    """How often a token passes weights, and outside the blocks those that a gradient passes: found by passing one.

    The first is once, but for layers that are repeated; the second are those of norms and projections.
    """
    inside = {part for block in blocks for part in block.modules()}
    times: Counter[int] = Counter()
    passed: set[int] = set()

    def note(own: list[int], module: nn.Module, given: Any, output: Any) -> None:
        times.update(own)
        if module not in inside and isinstance(output, Tensor) and output.requires_grad:
            passed.update(own)

    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        for part in encoder.modules():
            if own := [id(weights) for weights in part.parameters(recurse=False)]:
                stack.callback(part.register_forward_hook(partial(note, own)).remove)
        encoder(encoder.collate([[encoder.pad_token_id]], side="document"))
    return times, passed
