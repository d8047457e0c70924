"""What passes of a tower cost, found by passing a few tokens under torch's own counter (mission B4).

Matrix products alone are counted, each multiplication and addition by itself, as is usual; norms, activations and the optimizer come to a
few percent of them. Attention counts as two products forwards and four backwards; kernels that compute scores a second time to save
memory take one more. A text is counted as if it passed alone: what a family computes once for a whole batch (DeBERTa's projections of
distances) counts for each text.
"""

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from adiabat.model.encoder import Encoder
from adiabat.plan.flops import ByLength, TowerOperations
from adiabat.train.blocks import BlockOutput, blocks_of, checkpointed, frozen_prefix, recorded, replayed
from adiabat.train.randomness import RandomState

_FOUND: dict[tuple[object, ...], TowerOperations] = {}

_LENGTHS = (2, 4, 7)
"""Three, for three numbers; more than one token, which a product of a text could be mistaken for."""


def operations_of(encoder: Encoder) -> TowerOperations:
    """Count what a tower's passes cost, once for all towers that are made alike."""
    if (key := _made_of(encoder)) not in _FOUND:
        blocks = blocks_of(encoder.backbone)
        prefix = frozen_prefix(encoder, blocks) if blocks else 0
        counted = [_counted(encoder, blocks, prefix, length) for length in _LENGTHS]
        _FOUND[key] = TowerOperations(*(_by_length(values) for values in zip(*counted, strict=True)))
    return _FOUND[key]


def _made_of(encoder: Encoder) -> tuple[object, ...]:
    """All that decides the counts, whatever the weights are: a study or a sweep asks for the same tower again and again."""
    config: Any = getattr(encoder.backbone, "config", None)
    told = config.to_json_string() if hasattr(config, "to_json_string") else repr(config)
    trained = tuple((name, weights.shape, weights.requires_grad) for name, weights in encoder.named_parameters())
    return type(encoder.backbone), repr(encoder), told, encoder.settings, trained


def _by_length(values: tuple[int, ...]) -> ByLength:
    """The parabola through three counts, which are whole numbers."""
    powers = np.vander(np.array(_LENGTHS, dtype=np.float64), 3, increasing=True)
    return ByLength(*(round(number) for number in np.linalg.solve(powers, np.array(values, dtype=np.float64))))


@torch.enable_grad()
def _counted(encoder: Encoder, blocks: list[nn.Module], prefix: int, length: int) -> tuple[int, int, int, int]:
    """Operations of one text: forwards, again, those of checkpointed blocks computed once more, and backwards."""
    record: list[BlockOutput] = []
    forward, backward = _pass(encoder, length, recorded(blocks[prefix - 1], record, device=None) if prefix else nullcontext())
    again, _ = _pass(encoder, length, replayed(blocks[:prefix], record[0]) if prefix else nullcontext())
    # Torch stops such a computation at the last number that the gradient needs, which is not the end of every block.
    _, longer = _pass(encoder, length, checkpointed(blocks[prefix:], draws=False))
    return forward, again, longer - backward, backward


def _pass(encoder: Encoder, length: int, manner: AbstractContextManager[None]) -> tuple[int, int]:
    """Operations of one text, forwards and backwards."""
    counter = FlopCounterMode(display=False)
    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        # The counter knows the products of this kernel on every device.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(manner)
        tokens = encoder.collate([[encoder.pad_token_id] * length], side="document")
        with counter:
            embeddings = encoder(tokens)
            forward = counter.get_total_flops()
            if embeddings.requires_grad:
                _differentiate(embeddings, [weights for weights in encoder.parameters() if weights.requires_grad])
            return forward, counter.get_total_flops() - forward


def _differentiate(embeddings: Tensor, weights: list[nn.Parameter]) -> None:
    """Pass backwards and leave the gradients as they were.

    `torch.autograd.grad` would do so by itself, but fails under the counter where a module is given a parameter as its input (DeBERTa).
    """
    before = [parameter.grad for parameter in weights]
    for parameter in weights:
        parameter.grad = None
    embeddings.sum().backward()  # type: ignore[no-untyped-call]
    for parameter, gradient in zip(weights, before, strict=True):
        parameter.grad = gradient
