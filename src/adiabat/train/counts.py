"""How many parameters of a tower a token passes, forwards and backwards (mission B4)."""

from collections import Counter
from collections.abc import Callable, Mapping
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

    Args:
        encoder: The tower, with what is frozen switched off.

    Returns:
        The counts.
    """
    looked_up = {id(part.weight) for part in encoder.modules() if isinstance(part, nn.Embedding)}
    multiplied = {id(weights): weights for weights in encoder.used_parameters().values() if id(weights) not in looked_up}
    times = _passes_of(encoder)
    counts = {key: weights.numel() * times.get(key, 1) for key, weights in multiplied.items()}
    forward = sum(counts.values())
    updated = sum(counts[key] for key, weights in multiplied.items() if weights.requires_grad)
    if not any(weights.requires_grad for weights in encoder.parameters()):
        return PassedParameters(forward, 0, 0)
    blocks = blocks_of(encoder.backbone)
    passed = {id(weights) for block in blocks[frozen_prefix(encoder, blocks) :] for weights in block.parameters()}
    passed |= _passed_outside(encoder, blocks)
    return PassedParameters(forward, sum(count for key, count in counts.items() if key in passed), updated)


@torch.no_grad()
def _passes_of(encoder: Encoder) -> dict[int, int]:
    """How often a token passes weights: once, but for those of layers that are repeated; found by passing one."""
    found: Counter[int] = Counter()

    def note(own: list[int], module: nn.Module, given: Any, output: Any) -> None:
        found.update(own)

    _pass_a_token(encoder, {part: partial(note, own) for part in encoder.modules() if (own := _own(part))})
    return found


@torch.enable_grad()
def _passed_outside(encoder: Encoder, blocks: list[nn.Module]) -> set[int]:
    """Parameters outside the blocks, such as those of norms and projections, through which a gradient passes: found by passing a token."""
    inside = {part for block in blocks for part in block.modules()}
    passed: set[int] = set()

    def note(own: list[int], module: nn.Module, given: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad:
            passed.update(own)

    outside = {part: own for part in encoder.modules() if part not in inside and (own := _own(part))}
    _pass_a_token(encoder, {part: partial(note, own) for part, own in outside.items()})
    return passed


def _own(part: nn.Module) -> list[int]:
    """Weights that a module itself holds."""
    return [id(weights) for weights in part.parameters(recurse=False)]


def _pass_a_token(encoder: Encoder, hooks: Mapping[nn.Module, Callable[..., None]]) -> None:
    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        for part, hook in hooks.items():
            stack.callback(part.register_forward_hook(hook).remove)
        encoder(encoder.collate([[encoder.pad_token_id]], side="document"))
