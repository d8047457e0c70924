"""Two towers that share an embedding space: one for queries, one for documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from adiabat.data.records import Side
from adiabat.errors import ModelError
from adiabat.model.bulk import Progress
from adiabat.model.encoder import Encoder
from adiabat.model.fingerprint import Fingerprint
from adiabat.model.precision import Precision
from adiabat.model.similarity import Similarity, similarity_stated


@dataclass(frozen=True, slots=True)
class DualEncoder:
    """A query tower and a document tower.

    Attributes:
        query: Encodes queries.
        document: Encodes documents; the same object as `query` where the towers are shared (SDE), another where they are not (ADE), perhaps
            with the same projection on top (ADE-SPL).
        name: What the user called it.
        root: The root configuration it was loaded with: other prompts, the default one, the similarity. Kept for saving.
    """

    query: Encoder
    document: Encoder
    name: str = ""
    root: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_one_width(self.query, self.document, self.name)

    @property
    def shared(self) -> bool:
        """Whether both sides are one set of weights."""
        return self.query is self.document

    @property
    def width(self) -> int:
        """Numbers per embedding (E)."""
        return self.query.width

    @property
    def parameters(self) -> int:
        """Parameters of both towers; what they share counts once."""
        weights = {id(weight): weight.numel() for tower in (self.query, self.document) for weight in tower.parameters()}
        return sum(weights.values())

    @property
    def similarity(self) -> Similarity:
        """What its vectors are compared by, as its root configuration states."""
        return similarity_stated(self.root, name=self.name)

    @property
    def unit(self) -> bool:
        """Whether both towers give vectors of length 1."""
        return self.query.settings.unit_length and self.document.settings.unit_length

    @property
    def ranks_by(self) -> Similarity:
        """What documents are ranked by: `similarity`, or cosine for unit vectors, which all similarities rank alike but for rounding."""
        return "cosine" if self.unit else self.similarity

    def tower(self, side: Side) -> Encoder:
        """The tower of one side.

        Args:
            side: ``query`` or ``document``.

        Returns:
            The encoder.
        """
        return self.query if side == "query" else self.document

    def encode(
        self,
        texts: Sequence[str],
        *,
        side: Side,
        precision: Precision = "auto",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Float[np.ndarray, "n e"]:
        """Embed texts through the tower of their side; see `Encoder.encode`.

        Args:
            texts: Any number.
            side: Which tower, and whose prompt.
            precision: See `Encoder.encode`.
            on_progress: Called after each batch.

        Returns:
            Embeddings, float32.
        """
        return self.tower(side).encode(texts, side=side, precision=precision, on_progress=on_progress)

    def fingerprint(self, side: Side = "document") -> Fingerprint:
        """What decides the vectors of one side.

        Args:
            side: Which tower.

        Returns:
            Its fingerprint.
        """
        return self.tower(side).fingerprint(side)

    def to(self, device: torch.device | str) -> "DualEncoder":
        """Move both towers.

        Args:
            device: Where to.

        Returns:
            This pair.
        """
        self.query.to(device)
        self.document.to(device)
        return self


def require_one_width(query: Encoder, document: Encoder, name: str) -> None:
    """Refuse towers whose embeddings cannot be compared.

    Args:
        query: Query tower.
        document: Document tower.
        name: Of the model, for the message.

    Raises:
        ModelError: If their widths differ.
    """
    if query.width != document.width:
        raise ModelError(
            f"{name or 'model'}: both towers must have one width, got {query.width} and {document.width}; "
            "train them with projections to one width, towers.projection_width"
        )
