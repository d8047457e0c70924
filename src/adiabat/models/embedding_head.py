"""From token states to an embedding: settings, pooling, projection, similarity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.core.errors import ConfigError, ModelError
from adiabat.data.records import Side

TokenTensor = Int[Tensor, "b l"]
"""A number for each token of a padded batch."""

Pooling = Literal["mean", "cls", "last", "max", "weighted_mean"]
"""Token states that form the vector; ``weighted_mean`` weights token ``t`` (from 1) by ``t``, as SGPT
does."""

POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

Similarity = Literal["cosine", "distance", "dot"]
"""``distance`` scores by the negative Euclidean distance, so that higher is always closer."""

SimilarityName = Literal["cosine", "dot", "euclidean"]
"""Names in sentence-transformers and in our settings."""

STATED: Mapping[str, Similarity] = {"cosine": "cosine", "dot": "dot", "euclidean": "distance"}
NAMES: Mapping[Similarity, SimilarityName] = {"cosine": "cosine", "dot": "dot", "distance": "euclidean"}


def similarity_stated(root: Mapping[str, Any], *, name: str) -> Similarity:
    """The similarity that a model's root configuration states."""
    stated = root.get("similarity_fn_name")
    if stated is None:
        return "cosine"
    if not isinstance(stated, str) or stated not in STATED:
        raise ModelError(
            f"{name}: similarity_fn_name in config_sentence_transformers.json must be {', '.join(STATED)}, "
            f"got {stated}; adiabat computes no other; set encoder.similarity to one of them"
        )
    return STATED[stated]


def pool(hidden: Float[Tensor, "b l d"], mask: TokenTensor, *, pooling: Pooling) -> Float[Tensor, "b d"]:
    """Reduce the token states of each text to one vector, in float32, because bfloat16 sums over a long text
    lose precision.

    Args:
        mask: 1 for tokens that are pooled, 0 for padding; at least one 1 per row.

    Reference:
        Reimers & Gurevych 2019 (mean, cls, max); Muennighoff 2022 (weighted mean).
    """
    states = hidden.float()
    if pooling in ("mean", "weighted_mean"):
        # sum_t w_t h_t / sum_t w_t, where w_t is 1, or t for the weighted mean
        weights = mask
        if pooling == "weighted_mean":
            weights = mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)
        weights = weights.float()
        return torch.bmm(weights.unsqueeze(1), states).squeeze(1) / weights.sum(dim=1, keepdim=True)
    if pooling == "max":
        return states.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(dim=1)
    # argmax finds the first 1 of a row; the count of ones so far is highest at the last one.
    position = (mask if pooling == "cls" else mask * mask.cumsum(dim=1)).argmax(dim=1)
    # Gathered, not indexed: a graph for another runtime would keep the number of texts of its example.
    place = position[:, None, None].expand(-1, 1, states.shape[2])
    return states.gather(1, place).squeeze(1)


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """Settings of tokenisation and of the steps from token states to an embedding.

    Attributes:
        max_tokens: Maximum tokens of a text, including prompt and special tokens; >= 3.
        pool_prompt: False excludes the tokens of the prompt from pooling.
        query_max_tokens: Maximum tokens of a query; None takes `max_tokens`.
        document_max_tokens: Maximum tokens of a document; None takes `max_tokens`.
        truncate_dim: Number of leading dimensions to keep, after normalisation; None keeps all.
    """

    pooling: Pooling = "mean"
    normalize: bool = True
    max_tokens: int = 512
    query_prompt: str = ""
    document_prompt: str = ""
    pool_prompt: bool = True
    query_max_tokens: int | None = None
    document_max_tokens: int | None = None
    truncate_dim: int | None = None

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ConfigError(f"encoder.pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")
        for name in ("max_tokens", "query_max_tokens", "document_max_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 3:
                raise ConfigError(
                    f"encoder.{name} must be >= 3 (one token between two special ones), got {limit}"
                )
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ConfigError(f"encoder.truncate_dim must be >= 1, got {self.truncate_dim}")

    def prompt(self, side: Side) -> str:
        """The prompt of one side; "" for none."""
        return self.query_prompt if side == "query" else self.document_prompt

    def limit(self, side: Side) -> int:
        """Maximum tokens of the texts of one side."""
        limit = self.query_max_tokens if side == "query" else self.document_max_tokens
        return self.max_tokens if limit is None else limit

    @property
    def unit_length(self) -> bool:
        """Whether embeddings have unit length; truncation shortens them."""
        return self.normalize and self.truncate_dim is None


class Projection(nn.Module):
    """A linear layer on the pooled vector, with its activation, and optionally a residual connection around
    both.
    """

    def __init__(
        self, linear: nn.Linear, activation: nn.Module, residual: nn.Linear | nn.Identity | None = None
    ) -> None:
        """Assemble the modules; `residual` maps the pooled vector before it is added to the result, None adds
        nothing.
        """
        super().__init__()
        self.linear = linear
        self.activation = activation
        self.residual = residual

    def forward(self, pooled: Float[Tensor, "b d"]) -> Float[Tensor, "b e"]:
        """Project."""
        projected: Tensor = self.activation(self.linear(pooled))
        return projected if self.residual is None else projected + self.residual(pooled)


def new_projection(width: int, out: int, *, seed: int) -> Projection:
    """A random linear map without bias or activation, determined by the seed; the global random state is
    unchanged.

    Its weights are normal with variance ``1 / width``, which preserves lengths and angles on average.
    """
    generator = torch.Generator().manual_seed(seed)
    return projection_of(torch.empty(out, width).normal_(std=width**-0.5, generator=generator).T)


def projection_of(weights: Float[Tensor, "d e"]) -> Projection:
    """A linear map without bias or activation, from given weights."""
    linear = nn.utils.skip_init(nn.Linear, *weights.shape, bias=False)  # type: ignore[no-untyped-call]
    linear.weight = nn.Parameter(weights.T.clone(memory_format=torch.contiguous_format))
    return Projection(linear, nn.Identity())


def cutting(width: int, out: int) -> Projection:
    """A linear map that keeps the first dimensions."""
    return projection_of(torch.eye(width, out))


def is_cutting(projection: Projection, out: int) -> bool:
    """Whether a projection does nothing but keep so many first dimensions."""
    linear = projection.linear
    has_bias: bool = linear.bias is not None
    plain = not has_bias and isinstance(projection.activation, nn.Identity) and projection.residual is None
    return plain and torch.equal(linear.weight.detach().cpu(), torch.eye(out, linear.in_features))
