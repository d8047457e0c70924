"""The fingerprint of an encoder: everything that decides a document's vector, by field, so that a message can name each difference."""

from dataclasses import asdict, dataclass, fields

from adiabat.core.errors import StoreError


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that decides the vectors of one tower.

    Attributes:
        backbone: Model family (``model_type`` of the configuration), and options with which a directory changes its configuration.
        weights: SHA-256 over the names and bytes of backbone and projection.
        tokenizer: SHA-256 of the tokenizer's definition.
        prompt: Text prepended to every text of the side.
        max_tokens: Maximum tokens of a text, including special tokens.
        width: Width of a vector (E).
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
        """A phrase for each field that differs, such as ``prompt "passage: " in the store, "" in the encoder``."""
        return [
            f"{field.name} {_phrase(getattr(self, field.name))} in the store, {_phrase(getattr(other, field.name))} in the encoder"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]

    def to_json(self) -> dict[str, str | bool | int]:
        """Plain data for a manifest."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: dict[str, str | bool | int]) -> "Fingerprint":
        """The inverse of `to_json`."""
        names = {field.name for field in fields(cls)}
        if set(record) != names:
            raise StoreError(f"fingerprint must hold {', '.join(sorted(names))}, got {', '.join(sorted(record))}; rebuild the store")
        return cls(**record)  # type: ignore[arg-type]


def _phrase(value: str | bool | int) -> str:
    """A value for a message: texts in quotes, hashes cut to twelve digits."""
    if isinstance(value, str):
        return f'"{value[:12]}..."' if len(value) == 64 else f'"{value}"'
    return str(value)
