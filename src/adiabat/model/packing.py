"""Backbones that compute no padding: the tokens of a batch stand in one row, text after text, and each text attends to itself alone.

Everything but attention treats tokens one by one, so only attention has to know where a text ends.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutput

from adiabat.model.dropout import attention

PACKABLE = frozenset(("bert", "roberta", "xlm-roberta", "gpt_neox", "llama"))
"""Model types whose attention depends on nothing but queries, keys, values and the direction.

T5 adds a bias by position inside its attention, and families with sliding windows mask by distance: those are padded.
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
        # Torch's own would draw from one generator for all threads.
        scaling = options.get("scaling") or query.shape[-1] ** -0.5
        causal = bool(module.is_causal if options.get("is_causal") is None else options["is_causal"])
        return torch.cat([attention(q, k, v, scaling=scaling, causal=causal, dropout=share) for q, k, v in texts], dim=1), None
    attended = [sdpa_attention_forward(module, q, k, v, attention_mask, **options)[0] for q, k, v in texts]
    return torch.cat(attended, dim=1), None


AttentionInterface.register(ATTENTION, _attention_by_text)


class PackedBackbone(nn.Module):
    """A backbone that takes and gives padded batches, and packs them in between."""

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
        """Positions inside each text, as the backbone would count them itself: RoBERTa's family starts after the padding token's id."""
        embeddings: Any = getattr(self.backbone, "embeddings", None)
        if hasattr(embeddings, "create_position_ids_from_input_ids"):
            positions: Tensor = embeddings.create_position_ids_from_input_ids(input_ids, embeddings.padding_idx)
            return positions
        return torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)


def is_packable(backbone: PreTrainedModel) -> bool:
    """Whether packed batches of a backbone give what padded ones give."""
    return backbone.config.model_type in PACKABLE and type(backbone).__module__.startswith("transformers.models.")
