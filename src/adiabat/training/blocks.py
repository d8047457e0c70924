"""The transformer blocks of a backbone, and three things to do with them during a pass: record, replay, checkpoint.

Each gives some blocks another `forward` for as long as one pass lasts, so it needs no knowledge of the backbone but where its blocks are.
A copy of the tower for each thread keeps threads apart.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from adiabat.models.encoder import Encoder
from adiabat.models.packing import drawing_from, thread_generator


@dataclass(frozen=True, slots=True)
class RandomState:
    """Where generators stand: this thread's own (`adiabat.models.packing`; `own`), or torch's for the CPU and perhaps a GPU."""

    device: torch.device
    cpu: Tensor
    gpu: Tensor | None
    own: bool = False

    @classmethod
    def now(cls, device: torch.device) -> Self:
        """Note the state."""
        if (generator := thread_generator()) is not None:
            return cls(device, generator.get_state(), None, own=True)
        return cls(device, torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self) -> None:
        """Go back to it."""
        if self.own:
            generator = thread_generator()
            if generator is None:
                raise RuntimeError("a state of a thread's own generator must be restored where there is one, got none")
            generator.set_state(self.cpu)
            return
        torch.set_rng_state(self.cpu)
        if self.gpu is not None:
            torch.cuda.set_rng_state(self.gpu, self.device)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Go back to it while the block lasts; afterwards the generators stand where they stood before."""
        # Torch's generator is one for all threads: what draws from its own must not touch it.
        apart = drawing_from(torch.Generator()) if self.own else torch.random.fork_rng([self.device] if self.gpu is not None else [])
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
    """What a block gave in one pass.

    Attributes:
        value: Token states, or what else the backbone's family gives beside them (T5: the position bias that later blocks read).
        state: Random numbers right after it; None where none are drawn.
    """

    value: Any
    state: RandomState | None


def blocks_of(backbone: nn.Module) -> list[nn.Module]:
    """The blocks of a backbone: the list of modules that holds most parameters, the outermost where several hold the same.

    Returns:
        The blocks in order; empty where the backbone has no list of modules.
    """
    # No common name: transformers has layer, layers, h, block; the list with most parameters is the stack in every family of the tests.
    lists = [submodule for submodule in backbone.modules() if isinstance(submodule, nn.ModuleList) and len(submodule)]
    return list(max(lists, key=lambda submodule: sum(weights.numel() for weights in submodule.parameters()), default=[]))


@torch.enable_grad()
def frozen_prefix(encoder: Encoder, blocks: Sequence[nn.Module]) -> int:
    """How many leading blocks give what nothing trainable has a part in.

    Found by passing one token: names do not tell what is read before the first block (MPNet registers its relative positions after it).

    Returns:
        The number; 0 where blocks do not pass once each, in order (ALBERT repeats one).
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
        stack.enter_context(_instead({block: partial(note, number, block.forward) for number, block in enumerate(blocks)}))
        encoder(encoder.collate([[encoder.pad_token_id]], side="document"))
    # Replaying one of the repeated passes would give the output of the wrong one.
    if passed != list(range(len(blocks))):
        return 0
    return next((number for number, still in enumerate(frozen) if not still), len(blocks))


def _tensors(output: Any) -> Iterator[Tensor]:
    """Tensors in what a block gave."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (tuple, list, Mapping)):
        for value in output.values() if isinstance(output, Mapping) else output:
            yield from _tensors(value)


def recorded(block: nn.Module, record: list[BlockOutput], *, device: torch.device | None) -> AbstractContextManager[None]:
    """Append what a block gives to a list, while the context lasts.

    Args:
        device: Where the pass runs if it may draw random numbers; None if not.
    """
    forward = block.forward

    def note(*inputs: Any, **options: Any) -> Any:
        output = forward(*inputs, **options)
        record.append(BlockOutput(output, RandomState.now(device) if device else None))
        return output

    return _instead({block: note})


def replayed(blocks: Sequence[nn.Module], output: BlockOutput) -> AbstractContextManager[None]:
    """Let blocks give what the last of them gave in an earlier pass, while the context lasts."""

    def repeat(*inputs: Any, **options: Any) -> Any:
        if output.state is not None:
            output.state.restore()
        return output.value

    return _instead(dict.fromkeys(blocks, repeat))


def checkpointed(blocks: Sequence[nn.Module], *, draws: bool) -> AbstractContextManager[None]:
    """Let blocks keep nothing but their input for the gradient, and compute again what else it needs, while the context lasts.

    transformers' own switch works in training mode alone, that is, with dropout on.
    """
    # What torch preserves by itself is its own random state alone, which is one for all threads.
    contexts = {block: partial(_twice, next(block.parameters()).device if draws else None) for block in blocks}
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return _instead({block: partial(checkpoint, block.forward, context_fn=contexts[block], **options) for block in blocks})


def _twice(device: torch.device | None) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of a block's first computation, and of its second, which draws the same."""
    return nullcontext(), nullcontext() if device is None else RandomState.now(device).replayed()


@contextmanager
def _instead(forwards: Mapping[nn.Module, Forward]) -> Iterator[None]:
    """Give modules another `forward`, while the block lasts."""
    before = {module: vars(module).get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        # A forward that was put aside before, by packing for instance, comes back; else that of the class shows again.
        for module, original in before.items():
            del vars(module)["forward"]
            if original is not None:
                vars(module)["forward"] = original
