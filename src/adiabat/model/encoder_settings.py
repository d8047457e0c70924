"""What turns token states into an embedding, and texts into tokens."""

from dataclasses import dataclass

from adiabat.data.records import Side
from adiabat.errors import ConfigError
from adiabat.model.pooling import POOLINGS, Pooling


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What turns token states into an embedding, and texts into tokens.

    Attributes:
        pooling: See `adiabat.model.pooling`.
        normalize: Whether embeddings get unit length.
        max_tokens: Where texts are cut, in tokens, prompt and special tokens included; >= 3.
        query_prompt: Put before every query.
        document_prompt: Put before every document.
        pool_prompt: False leaves the tokens of the prompt out of the pooling.
        query_max_tokens: Where queries are cut; None cuts them at `max_tokens`.
        document_max_tokens: Where documents are cut; None cuts them at `max_tokens`.
        truncate_dim: How many numbers of an embedding are kept, the first ones, after unit length; None keeps all.
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
                raise ConfigError(f"encoder.{name} must be >= 3 (one token between two special ones), got {limit}")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ConfigError(f"encoder.truncate_dim must be >= 1, got {self.truncate_dim}")

    def prompt(self, side: Side) -> str:
        """The prompt of one side.

        Returns:
            The text put before; "" for none.
        """
        return self.query_prompt if side == "query" else self.document_prompt

    def limit(self, side: Side) -> int:
        """Where the texts of one side are cut."""
        limit = self.query_max_tokens if side == "query" else self.document_max_tokens
        return self.max_tokens if limit is None else limit

    @property
    def unit_length(self) -> bool:
        """Whether embeddings have unit length; what is left of one that was truncated has less."""
        return self.normalize and self.truncate_dim is None
