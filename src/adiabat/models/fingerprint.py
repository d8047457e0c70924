"""What makes two encoders interchangeable: the parts that decide a document's vector, each named so that a difference can be told."""

from dataclasses import asdict, dataclass, fields

from adiabat.core.errors import StoreError


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The parts of one tower that decide its vectors.

    Attributes:
        backbone: Model family, as in the configuration's ``model_type``, and what a directory changes of its configuration.
        weights: SHA-256 over the names and bytes of backbone and projection.
        tokenizer: SHA-256 of the tokenizer's definition.
        pooling: Name of the pooling.
        normalize: Whether vectors have unit length.
        prompt: Text put before every document.
        max_tokens: Where texts are cut, in tokens, special tokens included.
        width: Numbers per vector (E).
    """

    backbone: str
    weights: str
    tokenizer: str
    pooling: str
    normalize: bool
    prompt: str
    max_tokens: int
    width: int

    def differences(self, other: "Fingerprint") -> list[str]:
        """Name each part in which `other` differs, with both values.

        Returns:
            Phrases such as ``prompt "passage: " in the store, "" in the encoder``; empty where all parts agree.
        """
        return [
            f"{part.name} {_shown(getattr(self, part.name))} in the store, {_shown(getattr(other, part.name))} in the encoder"
            for part in fields(self)
            if getattr(self, part.name) != getattr(other, part.name)
        ]

    def to_json(self) -> dict[str, str | bool | int]:
        """Plain data for a manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, str | bool | int]) -> "Fingerprint":
        """Read what `to_json` wrote.

        Args:
            record: One value per part.
        """
        wanted = {part.name for part in fields(cls)}
        if set(record) != wanted:
            raise StoreError(f"fingerprint must hold {', '.join(sorted(wanted))}, got {', '.join(sorted(record))}; rebuild the store")
        return cls(**record)  # type: ignore[arg-type]


def _shown(value: str | bool | int) -> str:
    """A value for a message: text in quotes, hashes cut to twelve digits."""
    if isinstance(value, str):
        return f'"{value[:12]}..."' if len(value) == 64 else f'"{value}"'
    return str(value)
