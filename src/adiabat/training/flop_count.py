"""The cost of a tower's passes, measured by passing a few tokens under torch's FLOP counter (Ziarko et al.
2024).

Only matrix products are counted, with multiplications and additions separately, as usual; norms, activations
and the optimizer add a few percent. Attention counts as two products forwards and four backwards; kernels
that recompute scores to save memory take one more. A text is
counted as if it passed alone: work that a family does once for a whole batch (DeBERTa's projections of
distances) counts for each text.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from adiabat.core.ragged import Ragged
from adiabat.models.compilation import blocks_of
from adiabat.models.encoder import Encoder
from adiabat.scaling_laws.flops import ByLength, PassedParameters, TowerOperations
from adiabat.training.blocks import BlockOutput, RandomState, checkpointed, frozen_prefix, recorded, replayed

_FOUND: dict[tuple[object, ...], TowerOperations] = {}

_LENGTHS = (2, 4, 7)
"""Numbers of tokens to count with: three, for the three coefficients; each more than one, so that a product
per text is not mistaken for one per token."""


def operations_of(encoder: Encoder) -> TowerOperations:
    """Count the cost of a tower's passes, once for all towers of the same structure."""
    if (key := _made_of(encoder)) not in _FOUND:
        blocks = blocks_of(encoder.backbone)
        prefix = frozen_prefix(encoder, blocks) if blocks else 0
        counted = [_counted(encoder, blocks, prefix, length) for length in _LENGTHS]
        _FOUND[key] = TowerOperations(*(_by_length(values) for values in zip(*counted, strict=True)))
    return _FOUND[key]


def _made_of(encoder: Encoder) -> tuple[object, ...]:
    """Cache key: everything that decides the counts, independent of the weights; experiments ask for the same
    tower repeatedly.
    """
    config: Any = getattr(encoder.backbone, "config", None)
    text = config.to_json_string() if hasattr(config, "to_json_string") else repr(config)
    trained = tuple(
        (name, weights.shape, weights.requires_grad) for name, weights in encoder.named_parameters()
    )
    return type(encoder.backbone), repr(encoder), text, encoder.settings, trained


def _by_length(values: tuple[int, ...]) -> ByLength:
    """The parabola through three counts, whose coefficients are integers."""
    powers = np.vander(np.array(_LENGTHS, dtype=np.float64), 3, increasing=True)
    # Products of attention grow with the square of the length, dense layers with the length, a projection
    # with neither.
    return ByLength(
        *(round(number) for number in np.linalg.solve(powers, np.array(values, dtype=np.float64)))
    )


@torch.enable_grad()
def _counted(
    encoder: Encoder, blocks: list[nn.Module], prefix: int, length: int
) -> tuple[int, int, int, int]:
    """Operations of one text: forward, recomputation of checkpointed blocks, and backward."""
    # Without random numbers: dropout contains no matrix products, and does not count.
    record: list[BlockOutput] = []
    forward, backward = _pass(
        encoder, length, recorded(blocks[prefix - 1], record, device=None) if prefix else nullcontext()
    )
    again = _pass(encoder, length, replayed(blocks[:prefix], record[0]))[0] if prefix else forward
    # Torch stops a recomputation at the last tensor that the gradient needs, which is not the end of every
    # block.
    _, longer = _pass(encoder, length, checkpointed(blocks[prefix:], draws=False))
    return forward, again, longer - backward, backward


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts by torch's formulas, as `FlopCounterMode` does; its table by modules takes five times as
    long.
    """

    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if formula := flop_registry.get(getattr(func, "overloadpacket", None)):
            self.operations += formula(*args, **(kwargs or {}), out_val=result)
        return result


def _pass(encoder: Encoder, length: int, manner: AbstractContextManager[None]) -> tuple[int, int]:
    """Operations of one text, forward and backward."""
    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        # Torch's formulas cover the products of this kernel on every device.
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(manner)
        tokens = encoder.collate(Ragged.of([[encoder.pad_token_id] * length]), side="document")
        counter = stack.enter_context(_Products())  # type: ignore[no-untyped-call]
        embeddings = encoder(tokens)
        forward = counter.operations
        if embeddings.requires_grad:
            weights = [weights for weights in encoder.parameters() if weights.requires_grad]
            torch.autograd.grad(embeddings.sum(), weights, allow_unused=True)
        return forward, counter.operations - forward


def passed_parameters(encoder: Encoder) -> PassedParameters:
    """Count the operations of training on the parameters of a tower; lookup tables do not count.

    The gradient stops at the first block that is, or follows something, trainable; a block counts whole.
    Weights that a token passes several times, as in ALBERT, count each time. A projection after the pooling
    is counted per token instead of per text.
    """
    tables = {id(module.weight) for module in encoder.modules() if isinstance(module, nn.Embedding)}
    blocks = blocks_of(encoder.backbone)
    times, passed = _seen_of_a_token(encoder, blocks)
    for block in blocks[frozen_prefix(encoder, blocks) :]:
        passed.update(map(id, block.parameters()))
    forward = backward = updated = 0
    # Tied weights are one object, but multiplied in both places: `times` counts how often.
    for weights in set(encoder.used_parameters().values()):
        key = id(weights)
        operations = 0 if key in tables else weights.numel() * times.get(key, 1)
        forward += operations
        backward += operations if key in passed else 0
        updated += operations if weights.requires_grad else 0
    if not any(weights.requires_grad for weights in encoder.parameters()):
        return PassedParameters(forward, 0, 0)
    return PassedParameters(forward, backward, updated)


@torch.enable_grad()
def _seen_of_a_token(encoder: Encoder, blocks: list[nn.Module]) -> tuple[Mapping[int, int], set[int]]:
    """How often a token passes the block weights, and other weights that need gradients; measured by passing
    one token.

    The first number is 1 unless layers are repeated; the second covers norms and projections.
    """
    inside = set(chain.from_iterable(block.modules() for block in blocks))
    times: Counter[int] = Counter()
    passed: set[int] = set()

    def note(parameters: list[int], module: nn.Module, inputs: Any, output: Any) -> None:
        times.update(parameters)
        if module not in inside and isinstance(output, Tensor) and output.requires_grad:
            passed.update(parameters)

    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        for submodule in encoder.modules():
            if parameters := [id(weights) for weights in submodule.parameters(recurse=False)]:
                stack.callback(submodule.register_forward_hook(partial(note, parameters)).remove)
        encoder(encoder.collate(Ragged.of([[encoder.pad_token_id]]), side="document"))
    return times, passed
