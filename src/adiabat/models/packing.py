"""Packed passes: the texts of a batch laid end to end, without padding, each attending only to itself; and
dropout by thread.

All layers but attention treat tokens independently, so only attention needs the boundaries of texts. They
come from the host with the batch (`TextLayout`), because reading them from the device would wait for it.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, library, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from adiabat.models.device import Precision, native_bf16
from adiabat.models.embedding_head import TokenTensor
from adiabat.models.tokens import TextLayout, TokenBatch

QueryHeads = Float[Tensor, "1 h n d"]
"""Queries of one packed row: heads, tokens, width of a head."""

KeyHeads = Float[Tensor, "1 k n d"]
"""Keys or values, whose heads may serve several heads of queries."""

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


def for_each_head(query: QueryHeads, states: KeyHeads) -> QueryHeads:
    """Keys or values, each head repeated for the ``h / k`` heads of queries that it serves."""
    groups = query.shape[1] // states.shape[1]
    return states.repeat_interleave(groups, dim=1) if groups > 1 else states


def attention(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    *,
    scaling: float,
    causal: bool,
    dropout: float,
) -> Float[Tensor, "1 n h d"]:
    """Scaled dot-product attention of one text with dropout on its weights.

    ``softmax(s Q K^T) V``; each head of keys and values serves ``h / k`` heads of queries.
    """
    key, value = for_each_head(query, key), for_each_head(query, value)
    scores = (query * scaling) @ key.transpose(2, 3)
    if causal:
        count = scores.shape[-1]
        later = torch.ones(count, count, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = dropped(torch.softmax(scores, dim=-1), dropout)
    return (weights @ value).transpose(1, 2)


PACKABLE = frozenset(("bert", "roberta", "xlm-roberta", "gpt_neox", "llama"))
"""Model types whose attention depends only on queries, keys, values and direction.

Other families are padded: T5 adds a bias by position inside its attention, and sliding windows mask by
distance.
"""

ATTENTION = "adiabat_packed"


def _attention_by_text(
    module: nn.Module,
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    attention_mask: None,
    *,
    layout: TextLayout,
    **options: Any,
) -> tuple[Float[Tensor, "1 n h d"], None]:
    """Scaled dot-product attention inside each text, with the signature that transformers calls."""
    scaling = options.get("scaling") or query.shape[-1] ** -0.5
    causal = bool(module.is_causal if options.get("is_causal") is None else options["is_causal"])
    if _takes_one_kernel(query):
        return attention_of_segments(query, key, value, layout, scaling=scaling, causal=causal), None
    texts = zip(
        *(states.split_with_sizes(layout.lengths, dim=2) for states in (query, key, value)), strict=True
    )
    if share := options.get("dropout"):
        # Torch's attention would draw from one generator for all threads.
        return torch.cat(
            [attention(q, k, v, scaling=scaling, causal=causal, dropout=share) for q, k, v in texts], dim=1
        ), None
    attended = [sdpa_attention_forward(module, q, k, v, attention_mask, **options)[0] for q, k, v in texts]
    return torch.cat(attended, dim=1), None


AttentionInterface.register(ATTENTION, _attention_by_text)

WIDEST_HEAD = 256
"""Widest head that FlashAttention takes; its width must be a multiple of 8 (Dao 2023)."""


def _takes_one_kernel(states: Tensor) -> bool:
    """Whether all texts of a packed row go through one kernel."""
    # On a GPU, nothing is packed without that kernel (`gains_by_packing`); asking for it again would end a
    # compiled graph.
    return states.is_cuda


def has_segment_kernel(device: torch.device) -> bool:
    """Whether one kernel attends inside all texts of a packed row: FlashAttention, on NVIDIA's GPUs with
    bfloat16.
    """
    built = torch.version.cuda is not None and torch.backends.cuda.is_flash_attention_available()
    return device.type == "cuda" and built and native_bf16(device)


def attention_of_segments(
    query: QueryHeads,
    key: KeyHeads,
    value: KeyHeads,
    layout: TextLayout,
    *,
    scaling: float,
    causal: bool,
) -> Float[Tensor, "1 n h d"]:
    """Attention inside each text of a packed row by one kernel, in bfloat16.

    FlashAttention takes tokens before heads, and the starts of texts as a prefix sum of their lengths
    (`TextLayout.starts`); queries and keys have the same texts.
    """
    key, value = for_each_head(query, key), for_each_head(query, value)
    # Rotated queries and keys come in float32.
    rows = [states[0].transpose(0, 1).bfloat16() for states in (query, key, value)]
    attended: Tensor = _segments(*rows, layout.starts, layout.longest, causal, scaling)[0]
    return attended.unsqueeze(0).to(value.dtype)


# An operator of its own: torch's `varlen_attn` came with 2.10, changed its arguments since, and sums
# gradients in no fixed order.
@library.custom_op("adiabat::attention_of_segments", mutates_args=(), device_types="cuda")
def _segments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    longest: int,
    causal: bool,
    scaling: float,
) -> tuple[Tensor, Tensor]:
    """Attention inside each segment; also the logarithms of its sums, which the gradient needs."""
    attended, logarithms, *_ = torch.ops.aten._flash_attention_forward(
        query, key, value, starts, starts, longest, longest, 0.0, causal, False, scale=scaling
    )
    return attended, logarithms


@_segments.register_fake
def _segments_shapes(query: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
    """Results of `_segments` without values, for torch's compiler."""
    return torch.empty_like(query), query.new_empty(query.shape[1], query.shape[0], dtype=torch.float32)


@library.custom_op("adiabat::gradient_of_segments", mutates_args=(), device_types="cuda")
def _segments_gradient(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attended: Tensor,
    logarithms: Tensor,
    starts: Tensor,
    longest: int,
    causal: bool,
    scaling: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values."""
    # Without dropout, the kernel reads neither a random state nor the last argument.
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)
    unused = torch.empty(0, device=query.device)
    with _in_fixed_order():
        gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
            gradient.contiguous(),
            query,
            key,
            value,
            attended,
            logarithms,
            starts,
            starts,
            longest,
            longest,
            0.0,
            causal,
            state,
            unused,
            scale=scaling,
        )
    return gradients


@_segments_gradient.register_fake
def _segments_gradient_shapes(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: object
) -> tuple[Tensor, Tensor, Tensor]:
    """Results of `_segments_gradient` without values, for torch's compiler."""
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the backward pass needs."""
    query, key, value, starts, *ctx.numbers = inputs
    ctx.save_for_backward(query, key, value, *output, starts)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    """The backward pass; the numbers of a layout have no gradient."""
    gradients = _segments_gradient(gradient, *ctx.saved_tensors, *ctx.numbers)
    return *gradients, None, None, None, None


_segments.register_autograd(_differentiate, setup_context=_keep_for_gradient)


@contextmanager
def _in_fixed_order() -> Iterator[None]:
    """Within the context, kernels that can sum in a fixed order do, so that a resumed run repeats every
    bit.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    # Torch makes its attribute by a module of a class of its own.
    settings: Any = torch.utils.deterministic
    filling = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    # The kernel writes all of its results; filling them with NaN first would take a pass over each.
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        settings.fill_uninitialized_memory = filling


@contextmanager
def without_plans(device: torch.device) -> Iterator[None]:
    """Within the context, a GPU never takes cuDNN's attention.

    It plans anew for each shape, which takes a small model longer than the pass itself.
    """
    before: bool = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    if device.type != "cuda" or not before:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


class PackedBackbone(nn.Module):
    """A backbone that takes and returns padded batches, and packs them internally.

    The tokens of all texts, without padding, are one row for the backbone; positions count from the beginning
    of each text, and attention stays within it.
    """

    def __init__(self, backbone: PreTrainedModel) -> None:
        """Wrap a backbone."""
        super().__init__()
        backbone.set_attn_implementation(ATTENTION)
        self.backbone = backbone
        self.config = backbone.config

    def forward(self, batch: TokenBatch) -> Float[Tensor, "b l d"]:
        """Token states of a batch; zeros for padding."""
        places, (rows, length) = batch.layout.places, batch.input_ids.shape
        states = self.backbone(
            input_ids=batch.input_ids.flatten()[places].unsqueeze(0),
            position_ids=self._positions(batch.input_ids).flatten()[places].unsqueeze(0),
            use_cache=False,
            layout=batch.layout,
        ).last_hidden_state[0]
        # Pooling sums over padded rows: sums by segment would add in no fixed order on a GPU.
        padded: Tensor = states.new_zeros(rows * length, states.shape[-1]).index_copy(0, places, states)
        return padded.view(rows, length, -1)

    def _positions(self, input_ids: TokenTensor) -> TokenTensor:
        """Positions inside each text, in the backbone's numbering: RoBERTa's family starts after the padding
        token's id.
        """
        embeddings: Any = getattr(self.backbone, "embeddings", None)
        if hasattr(embeddings, "create_position_ids_from_input_ids"):
            positions: Tensor = embeddings.create_position_ids_from_input_ids(
                input_ids, embeddings.padding_idx
            )
            return positions
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)


def is_packable(backbone: PreTrainedModel) -> bool:
    """Whether a backbone gives the same states for packed and padded batches; a model's own code may not."""
    return backbone.config.model_type in PACKABLE and type(backbone).__module__.startswith(
        "transformers.models."
    )


def gains_by_packing(backbone: PreTrainedModel, device: torch.device, precision: Precision) -> bool:
    """Whether a backbone can be packed on a device: attention text by text suits a CPU, but would leave a GPU
    idle.
    """
    if not is_packable(backbone) or device.type == "cpu":
        return is_packable(backbone)
    # The kernel for all texts draws its dropout in an order of its own.
    draws = any(module.training for module in backbone.modules())
    fits = _head_width(backbone) % 8 == 0 and _head_width(backbone) <= WIDEST_HEAD
    return precision == "bf16" and has_segment_kernel(device) and fits and not draws


def _head_width(backbone: PreTrainedModel) -> int:
    """Width of a head of attention."""
    config = backbone.config
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def pack(encoder: nn.Module) -> None:
    """Let an encoder with a packable backbone compute no padding."""
    encoder.backbone = PackedBackbone(encoder.backbone)  # type: ignore[arg-type]


def is_packed(encoder: nn.Module) -> bool:
    """Whether an encoder computes no padding."""
    return isinstance(encoder.backbone, PackedBackbone)
