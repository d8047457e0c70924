"""Embedding many texts: one thread prepares batches, all cores or a GPU embed them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.models.device import Precision, autocast
from adiabat.models.static import StaticBackbone
from adiabat.models.threads import MAX_WORKERS, parallel_map, thread_replicas
from adiabat.models.tokens import TokenBatch, token_budget_batches

if TYPE_CHECKING:
    from adiabat.models.encoder import Encoder

TOKENIZE_BLOCK = 4096
"""Texts tokenised at a time: bounds the memory of Python lists, and is far above the size of a batch."""

BAG_BLOCK = 2048
"""The same for a static model: 1,024 and 4,096 take 4 and 2 % longer."""

PreparedBatch = tuple[Int[np.ndarray, " b"], TokenBatch]
"""Row numbers of the texts, and their tokens."""

EmbeddedBatch = tuple[Int[np.ndarray, " b"], Float[np.ndarray, "b e"], int]
"""Row numbers of the texts, their embeddings, and how many of them fill the token limit."""

TokenLists = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Progress:
    """What `adiabat.models.encoder.Encoder.encode` reports after each batch.

    Attributes:
        done: Texts embedded so far.
        total: Texts in all.
        full: Embedded texts that fill `EncoderSettings.limit`: their embedding lacks what lies beyond it.
    """

    done: int
    total: int
    full: int


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Texts as tokens, tokenised block by block.

    Attributes:
        block: Gives the tokens of texts from one number up to another.
        fill: Makes a batch of token lists.
        total: Number of texts.
        whole: Whether pooling takes all tokens of a text.
        limit: Where texts are cut, in tokens.
    """

    block: Callable[[int, int], TokenLists]
    fill: Callable[[TokenLists], TokenBatch]
    total: int
    whole: bool
    limit: int


def default_budget(device: torch.device) -> int:
    """Tokens per forward pass."""
    return 1_024 if device.type == "cpu" else 65_536


def distinct_texts(texts: Sequence[str]) -> tuple[Sequence[str], slice | Int[np.ndarray, " n"]]:
    """The distinct texts, and the index of each text among them."""
    index_of: dict[str, int] = {}
    indices = [] if isinstance(texts, str) else [index_of.setdefault(text, len(index_of)) for text in texts]
    return (texts, slice(None)) if len(index_of) == len(indices) else (list(index_of), np.array(indices))


def embed_blocks(
    encoder: "Encoder",
    source: TokenSource,
    *,
    precision: Precision,
    budget: int,
    on_progress: Callable[[Progress], None] | None = None,
) -> Float[np.ndarray, "n e"]:
    """Embed texts in batches of a budget of tokens, padding counted."""

    def prepared(start: int) -> list[PreparedBatch]:
        token_ids = source.block(start, start + TOKENIZE_BLOCK)
        grouped = token_budget_batches([len(ids) for ids in token_ids], budget)
        return [(start + rows, source.fill([token_ids[row] for row in rows])) for rows in grouped]

    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    done = full = 0
    with ExitStack() as stack:
        # One thread tokenises ahead of the others.
        prepare = stack.enter_context(parallel_map([prepared]))
        batches = chain.from_iterable(prepare(range(0, total, TOKENIZE_BLOCK)))
        first = list(islice(batches, MAX_WORKERS))
        embed = stack.enter_context(parallel_map(_embedders(encoder, precision, source.limit, len(first))))
        for rows, embeddings, limited in embed(chain(first, batches)):
            vectors[rows] = embeddings
            done, full = done + len(rows), full + limited
            if on_progress:
                on_progress(Progress(done, total, full))
    return vectors


def embed_bags(
    encoder: "Encoder", backbone: StaticBackbone, source: TokenSource, *, on_progress: Callable[[Progress], None] | None = None
) -> Float[np.ndarray, "n e"]:
    """Embed texts by a static model with mean pooling: a bag of rows for each text, without padding and without token states."""
    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    full = 0

    # One after the other: tokenising uses all cores already, and pooling beside it slows down both.
    for start in range(0, total, BAG_BLOCK):
        token_ids = source.block(start, start + BAG_BLOCK)
        end = start + len(token_ids)
        with torch.inference_mode():
            vectors[start:end] = encoder.head(backbone.bag_means(token_ids)).cpu().numpy()
        full += sum(len(ids) >= source.limit for ids in token_ids)
        if on_progress:
            on_progress(Progress(end, total, full))
    return vectors


def _embedders(encoder: "Encoder", precision: Precision, limit: int, batches: int) -> list[Callable[[PreparedBatch], EmbeddedBatch]]:
    """Functions that embed batches: on a CPU a replica of the encoder per core (no more than batches), elsewhere the encoder alone."""
    count = min(torch.get_num_threads(), batches) if encoder.device.type == "cpu" else 1
    encoders = [encoder] if count <= 1 else thread_replicas(encoder, count, precision=precision, shared=[encoder.tokenizer])
    return [partial(_embedded, replica, precision, limit) for replica in encoders]


def _embedded(encoder: "Encoder", precision: Precision, limit: int, batch: PreparedBatch) -> EmbeddedBatch:
    """Embed one batch; each thread enters the contexts for itself."""
    rows, tokens = batch
    with torch.inference_mode(), autocast(encoder.device, precision):
        embeddings: Tensor = encoder(tokens.to(encoder.device))
    full = tokens.attention_mask.sum(dim=1) >= limit
    return rows, embeddings.cpu().numpy(), int(full.sum())
