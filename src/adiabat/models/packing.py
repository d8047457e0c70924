"""Backbones without padding: the tokens of a batch stand in one row, text after text, and each text attends to itself alone.

All layers but attention treat tokens one by one, so only attention needs to know where a text ends.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput

_THREAD = threading.local()


def thread_generator() -> torch.Generator | None:
    """The generator of this thread; None for torch's global one."""
    generator: torch.Generator | None = getattr(_THREAD, "generator", None)
    return generator


@contextmanager
def drawing_from(generator: torch.Generator | None) -> Iterator[None]:
    """Let this thread draw from a generator of the CPU, or from torch's (None), within the context."""
    before = thread_generator()
    _THREAD.generator = generator
    try:
        yield
    finally:
        _THREAD.generator = before


def dropped(states: Float[Tensor, "*axes"], share: float) -> Float[Tensor, "*axes"]:
    """Set a share of numbers to zero at random, and scale the others up so that the mean stays."""
    generator = thread_generator()
    if generator is None:
        return functional.dropout(states, share)
    if share >= 1:
        return states * 0.0
    mask = torch.empty_like(states).bernoulli_(1.0 - share, generator=generator)
    return states * mask.div_(1.0 - share)


class ThreadDropout(nn.Dropout):
    """`torch.nn.Dropout` that draws from this thread's generator, where it has one."""

    def forward(self, states: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Drop where the module is in training mode."""
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

    ``softmax(s Q K^T) V``; heads of keys and values serve ``h / k`` heads of queries each.
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
"""Model types whose attention depends on queries, keys, values and the direction alone.

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
    """Scaled dot-product attention inside each text; in the form that transformers calls."""
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
    """A backbone that takes and returns padded batches, and packs them in between."""

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
        """Positions inside each text, as the backbone counts them: RoBERTa's family starts after the padding token's id."""
        embeddings: Any = getattr(self.backbone, "embeddings", None)
        if hasattr(embeddings, "create_position_ids_from_input_ids"):
            positions: Tensor = embeddings.create_position_ids_from_input_ids(input_ids, embeddings.padding_idx)
            return positions
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)


def is_packable(backbone: PreTrainedModel) -> bool:
    """Whether packed batches of a backbone give the states of padded ones; code of a model's own may do anything."""
    return backbone.config.model_type in PACKABLE and type(backbone).__module__.startswith("transformers.models.")
