"""Passes of a backbone in training: packed without padding, with a dropout generator per thread, and with blocks recorded and replayed.

When packed, the tokens of a batch form one row, text after text, and each text attends only to itself. All other layers treat tokens
independently, so only attention needs the boundaries of texts.

Recording, replaying and checkpointing replace the `forward` of some blocks for one pass, so they only need to know where the blocks are.
Each thread has its own copy of the tower.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput

from adiabat.models.encoder import Encoder

_THREAD = threading.local()


def thread_generator() -> torch.Generator | None:
    """The generator of this thread; None for torch's global one."""
    generator: torch.Generator | None = getattr(_THREAD, "generator", None)
    return generator


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Within the context, this thread draws from a CPU generator, or from torch's (None)."""
    before = thread_generator()
    _THREAD.generator = generator
    try:
        yield
    finally:
        _THREAD.generator = before


def dropped(states: Float[Tensor, "*axes"], share: float) -> Float[Tensor, "*axes"]:
    """Set a random share of values to zero, and scale the others to keep the mean."""
    generator = thread_generator()
    if generator is None:
        return functional.dropout(states, share)
    if share >= 1:
        return states * 0.0
    mask = torch.empty_like(states).bernoulli_(1.0 - share, generator=generator)
    return states * mask.div_(1.0 - share)


class ThreadDropout(nn.Dropout):
    """`torch.nn.Dropout` that draws from this thread's generator, if it has one."""

    def forward(self, states: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Apply dropout in training mode."""
        return dropped(states, self.p) if self.training and self.p else states


def use_thread_dropout(module: nn.Module) -> None:
    """Replace every `torch.nn.Dropout` inside a module by `ThreadDropout`."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                setattr(parent, name, ThreadDropout(child.p).train(child.training))


def attention(
    query: Float[Tensor, "1 h n d"],
    key: Float[Tensor, "1 k n d"],
    value: Float[Tensor, "1 k n d"],
    *,
    scaling: float,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "1 n h d"]:
    """Scaled dot-product attention of one text with dropout on its weights.

    ``softmax(s Q K^T) V``; each head of keys and values serves ``h / k`` heads of queries.
    """
    groups = query.shape[1] // key.shape[1]
    key, value = (states.repeat_interleave(groups, dim=1) if groups > 1 else states for states in (key, value))
    scores = (query * scaling) @ key.transpose(2, 3)
    if causal:
        count = scores.shape[-1]
        later = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = dropped(torch.softmax(scores, dim=-1), dropout)
    return (weights @ value).transpose(1, 2)


PACKABLE = frozenset(("bert", "roberta", "xlm-roberta", "gpt_neox", "llama"))
"""Model types whose attention depends only on queries, keys, values and direction.

Other families are padded: T5 adds a bias by position inside its attention, and sliding windows mask by distance.
"""

ATTENTION = "adiabat_packed"


def _attention_by_text(
    module: nn.Module,
    query: Float[Tensor, "1 h n d"],
    key: Float[Tensor, "1 k n d"],
    value: Float[Tensor, "1 k n d"],
    attention_mask: None,
    *,
    text_lengths: list[int],
    **options: Any,
) -> tuple[Float[Tensor, "1 n h d"], None]:
    """Scaled dot-product attention inside each text, with the signature that transformers calls."""
    texts = zip(*(states.split_with_sizes(text_lengths, dim=2) for states in (query, key, value)), strict=True)
    if share := options.get("dropout"):
        # Torch's attention would draw from one generator for all threads.
        scaling = options.get("scaling") or query.shape[-1] ** -0.5
        causal = bool(module.is_causal if options.get("is_causal") is None else options["is_causal"])
        return torch.cat([attention(q, k, v, scaling=scaling, causal=causal, dropout=share) for q, k, v in texts], dim=1), None
    attended = [sdpa_attention_forward(module, q, k, v, attention_mask, **options)[0] for q, k, v in texts]
    return torch.cat(attended, dim=1), None


AttentionInterface.register(ATTENTION, _attention_by_text)


class PackedBackbone(nn.Module):
    """A backbone that takes and returns padded batches, and packs them internally."""

    def __init__(self, backbone: PreTrainedModel) -> None:
        """Wrap a backbone."""
        super().__init__()
        backbone.set_attn_implementation(ATTENTION)
        self.backbone = backbone
        self.config = backbone.config

    def forward(self, input_ids: Int[Tensor, "b l"], attention_mask: Int[Tensor, "b l"]) -> BaseModelOutput:
        """Token states of a batch."""
        real = attention_mask.bool()
        states = self.backbone(
            input_ids=input_ids[real].unsqueeze(0),
            position_ids=self._positions(input_ids)[real].unsqueeze(0),
            use_cache=False,
            text_lengths=attention_mask.sum(dim=1).tolist(),
        ).last_hidden_state[0]
        padded = states.new_zeros(*real.shape, states.shape[-1])
        padded[real] = states
        return BaseModelOutput(last_hidden_state=padded)

    def _positions(self, input_ids: Int[Tensor, "b l"]) -> Int[Tensor, "b l"]:
        """Positions inside each text, in the backbone's numbering: RoBERTa's family starts after the padding token's id."""
        embeddings: Any = getattr(self.backbone, "embeddings", None)
        if hasattr(embeddings, "create_position_ids_from_input_ids"):
            positions: Tensor = embeddings.create_position_ids_from_input_ids(input_ids, embeddings.padding_idx)
            return positions
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)


def is_packable(backbone: PreTrainedModel) -> bool:
    """Whether a backbone gives the same states for packed and padded batches; a model's own code may not."""
    return backbone.config.model_type in PACKABLE and type(backbone).__module__.startswith("transformers.models.")


@dataclass(frozen=True, slots=True)
class RandomState:
    """State of the generators: this thread's own (`thread_generator`; `own`), or torch's for the CPU and optionally a GPU."""

    device: torch.device
    cpu: Tensor
    gpu: Tensor | None
    own: bool = False

    @classmethod
    def now(cls, device: torch.device) -> Self:
        """Save the state."""
        if (generator := thread_generator()) is not None:
            return cls(device, generator.get_state(), None, own=True)
        return cls(device, torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self) -> None:
        """Restore the state."""
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
        """Restore the state within the block; afterwards the generators continue from where they were."""
        # Torch's generator is shared by all threads, so a pass with its own generator must not touch it.
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
    """The output of a block in one pass.

    Attributes:
        value: Token states, and further outputs of some families (T5: the position bias that later blocks read).
        state: Random state right after the block; None if no random numbers are drawn.
    """

    value: Any
    state: RandomState | None


def blocks_of(backbone: nn.Module) -> list[nn.Module]:
    """The blocks of a backbone: the list of modules with most parameters; the outermost of several with the same parameters.

    Returns:
        The blocks in order; empty if the backbone has no list of modules.
    """
    # No common name: transformers has layer, layers, h, block; the list with most parameters is the stack in every family of the tests.
    lists = [submodule for submodule in backbone.modules() if isinstance(submodule, nn.ModuleList) and len(submodule)]
    return list(max(lists, key=lambda submodule: sum(weights.numel() for weights in submodule.parameters()), default=[]))


@torch.enable_grad()
def frozen_prefix(encoder: Encoder, blocks: Sequence[nn.Module]) -> int:
    """The number of leading blocks whose output does not depend on trainable weights.

    Determined by passing one token: names do not tell what is used before the first block (MPNet registers its relative positions after
    it).

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
        stack.enter_context(_instead({block: partial(note, number, block.forward) for number, block in enumerate(blocks)}))
        encoder(encoder.collate([[encoder.pad_token_id]], side="document"))
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


def recorded(block: nn.Module, record: list[BlockOutput], *, device: torch.device | None) -> AbstractContextManager[None]:
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
    contexts = {block: partial(_twice, next(block.parameters()).device if draws else None) for block in blocks}
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    return _instead({block: partial(checkpoint, block.forward, context_fn=contexts[block], **options) for block in blocks})


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
