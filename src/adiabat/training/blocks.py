"""Passes of a backbone in training with blocks recorded, replayed and checkpointed, and the random state that
this needs.

Recording, replaying and checkpointing replace the `forward` of some blocks for one pass, so they only need to
know where the blocks are. Each thread has its own copy of the tower.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adiabat.core.ragged import Ragged
from adiabat.models.encoder import Encoder
from adiabat.models.packing import PackedBackbone as PackedBackbone  # scripts know it from here
from adiabat.models.packing import drawing_from, thread_generator


@dataclass(frozen=True, slots=True)
class RandomState:
    """State of the generators: this thread's own (`thread_generator`; `own`), or torch's for the CPU and
    optionally a GPU.
    """

    device: torch.device
    cpu: Tensor
    gpu: Tensor | None
    own: bool = False

    @classmethod
    def now(cls, device: torch.device) -> Self:
        """Save the state."""
        if (generator := thread_generator()) is not None:
            return cls(device, generator.get_state(), None, own=True)
        return cls(
            device, torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        )

    def restore(self) -> None:
        """Restore the state."""
        if self.own:
            generator = thread_generator()
            assert generator is not None, "restored in a thread that has none"
            generator.set_state(self.cpu)
            return
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Restore the state within the block; afterwards the generators continue from where they were."""
        # Torch's generator is shared by all threads, so a pass with its own generator must not touch it.
        apart = (
            drawing_from(torch.Generator())
            if self.own
            else torch.random.fork_rng([self.device] if self.gpu is not None else [])
        )
        # Restoring inside the fork brings the generators back to where they stood.
        with apart:
            self.restore()
            yield


def draws(module: nn.Module) -> bool:
    """Whether a pass may draw random numbers."""
    return any(submodule.training for submodule in module.modules())


Forward = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class BlockOutput:
    """The output of a block in one pass.

    Attributes:
        value: Token states, and further outputs of some families (T5: the position bias that later blocks
            read).
        state: Random state right after the block; None if no random numbers are drawn.
    """

    value: Any
    state: RandomState | None


@torch.enable_grad()
def frozen_prefix(encoder: Encoder, blocks: Sequence[nn.Module]) -> int:
    """The number of leading blocks whose output does not depend on trainable weights.

    Determined by passing one token: names do not tell what is used before the first block (MPNet registers
    its relative positions after it).

    Returns:
        The number; 0 if blocks do not run once each, in order (ALBERT repeats one).
    """
    passed: list[int] = []
    frozen: list[bool] = []

    def note(number: int, forward: Forward, *inputs: Any, **options: Any) -> Any:
        output = forward(*inputs, **options)
        passed.append(number)
        frozen.append(not any(tensor.requires_grad for tensor in _tensors(output)))
        return output

    with ExitStack() as stack:
        stack.enter_context(RandomState.now(encoder.device).replayed())
        stack.enter_context(
            _instead({block: partial(note, number, block.forward) for number, block in enumerate(blocks)})
        )
        encoder(encoder.collate(Ragged.of([[encoder.pad_token_id]]), side="document"))
    # Replaying one of the repeated passes would give the output of the wrong one.
    if passed != list(range(len(blocks))):
        return 0
    return next((number for number, still in enumerate(frozen) if not still), len(blocks))


def _tensors(output: Any) -> Iterator[Tensor]:
    """Tensors in a block's output."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (tuple, list, Mapping)):
        for value in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(value)


def recorded(
    block: nn.Module, record: list[BlockOutput], *, device: torch.device | None
) -> AbstractContextManager[None]:
    """Within the context, append the outputs of blocks to a list.

    Args:
        device: Device of the pass if it may draw random numbers; None if not.
    """
    forward = block.forward

    def note(*inputs: Any, **options: Any) -> Any:
        output = forward(*inputs, **options)
        record.append(BlockOutput(output, RandomState.now(device) if device else None))
        return output

    return _instead({block: note})


def replayed(blocks: Sequence[nn.Module], output: BlockOutput) -> AbstractContextManager[None]:
    """Within the context, blocks return the recorded output of the last of them from an earlier pass."""

    def repeat(*inputs: Any, **options: Any) -> Any:
        if output.state is not None:
            output.state.restore()
        return output.value

    return _instead(dict.fromkeys(blocks, repeat))


def checkpointed(blocks: Sequence[nn.Module], *, draws: bool) -> AbstractContextManager[None]:
    """Within the context, blocks store only their input and recompute the rest in the backward pass.

    transformers' own gradient checkpointing requires training mode, which turns dropout on.
    """
    # By itself, torch only preserves its own random state, which is shared by all threads.
    contexts = {
        block: partial(_twice, next(block.parameters()).device if draws else None) for block in blocks
    }
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return _instead(
        {block: partial(checkpoint, block.forward, context_fn=contexts[block], **options) for block in blocks}
    )


def _twice(device: torch.device | None) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a block's first computation, and of its recomputation with the same random numbers."""
    return nullcontext(), nullcontext() if device is None else RandomState.now(device).replayed()


@contextmanager
def _instead(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Replace the `forward` of modules within the block."""
    before = {module: vars(module).get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        # Restore a replaced forward, for example by packing; otherwise that of the class.
        for module, original in before.items():
            del vars(module)["forward"]
            if original is not None:
                vars(module)["forward"] = original
