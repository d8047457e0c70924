"""The whole way from token ids to the vector of a text as one module, for the graphs of other runtimes, by
which texts are encoded and towers are exported.
"""

import copy
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.data.records import Side
from adiabat.models.embedding_head import pool
from adiabat.models.encoder import Encoder
from adiabat.models.tokens import TokenBatch

STATES, VECTORS = "last_hidden_state", "sentence_embedding"
"""Outputs of a graph: the states of the tokens, which sentence-transformers pools itself, and the vectors."""

TEXTS = 32
"""Texts in a batch of a graph."""

Feed = dict[str, Int[np.ndarray, "b l"]]
"""The named inputs of a graph."""

Run = Callable[[Feed], Float[np.ndarray, "b e"]]
"""A graph in its runtime, from named inputs to vectors."""


class EmbeddingGraph(nn.Module):
    """Backbone, pooling, projections and normalisation of one tower, with padding on either side.

    Attributes:
        inputs: Names of the inputs, in the order of the arguments.
    """

    def __init__(self, tower: Encoder, side: Side) -> None:
        """Take the modules of the tower."""
        super().__init__()
        self.tower = tower
        self.skipped = tower.unpooled_tokens(side)
        self.inputs = ["input_ids", "attention_mask"]
        # BERT tells two segments of a text apart; a text alone is the first one.
        takes_segments = "token_type_ids" in signature(type(tower.backbone).forward).parameters
        if takes_segments and getattr(tower.backbone.config, "type_vocab_size", 0) > 1:
            self.inputs.append("token_type_ids")

    def forward(
        self,
        input_ids: Int[Tensor, "b l"],
        attention_mask: Int[Tensor, "b l"],
        token_type_ids: Int[Tensor, "b l"] | None = None,
    ) -> tuple[Float[Tensor, "b l d"], Float[Tensor, "b e"]]:
        """States of all tokens, and the vector of each text."""
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        states = self.tower.backbone(
            input_ids=input_ids, attention_mask=attention_mask, **segments
        ).last_hidden_state
        mask = attention_mask
        if self.skipped:
            # Counted from the first token of the text, which padding may precede. One token is always pooled,
            # also of an empty text after a prompt.
            skipped = (mask.sum(dim=1, keepdim=True) - 1).clamp(max=self.skipped)
            mask = mask * (mask.cumsum(dim=1) > skipped)
        return states, self.tower.head(pool(states, mask, pooling=self.tower.settings.pooling))

    def example(self) -> tuple[Tensor, ...]:
        """Inputs to trace the graph with: two texts of two lengths."""
        ids = torch.ones(2, 8, dtype=torch.long)
        mask = torch.ones_like(ids)
        mask[1, 5:] = 0
        return (ids, mask, torch.zeros_like(ids))[: len(self.inputs)]

    def feeds(self, texts: Sequence[str], side: Side) -> list[Feed]:
        """The inputs of texts, batch by batch."""
        feeds = []
        for first in range(0, len(texts), TEXTS):
            tokens = self.tower.tokenize(texts[first : first + TEXTS], side=side)
            feeds.append(feed_of(self.inputs, self.tower.collate(tokens, side=side)))
        return feeds

    def vectors(self, run: Run, texts: Sequence[str], side: Side) -> Float[np.ndarray, "n e"]:
        """Vectors of texts by a graph in its runtime."""
        return np.concatenate([run(feed) for feed in self.feeds(texts, side)])


def feed_of(inputs: Sequence[str], batch: TokenBatch) -> Feed:
    """A padded batch as the inputs of a graph, of which the third, where it has one, is that of segments."""
    ids = batch.input_ids.cpu().numpy()
    mask = batch.attention_mask.cpu().numpy()
    return dict(zip(inputs, (ids, mask, np.zeros_like(ids)), strict=False))


def as_graph(tower: Encoder, side: Side) -> EmbeddingGraph:
    """The graph of a copy of a tower, which attends without the tricks that a tracer cannot follow."""
    twin = copy.deepcopy(tower)
    backbone: Any = twin.backbone
    backbone.set_attn_implementation("sdpa" if backbone._supports_sdpa else "eager")
    return EmbeddingGraph(twin, side).eval()
