"""Two towers that share an embedding space: one for queries, one for documents."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from adiabat.core.arrays import VectorArray
from adiabat.core.errors import ConfigError, ModelError
from adiabat.core.text import cut
from adiabat.data.records import SIDES, Fingerprint, Side
from adiabat.models.bulk import Progress, Runtime
from adiabat.models.device import Precision
from adiabat.models.embedding_head import (
    Projection,
    Similarity,
    new_projection,
    projection_of,
    similarity_stated,
)
from adiabat.models.encoder import Encoder
from adiabat.models.model_paths import no_side
from adiabat.models.static import StaticBackbone, require_saveable


@dataclass(frozen=True, slots=True)
class DualEncoder:
    """A query tower and a document tower.

    Attributes:
        query: Encodes queries.
        document: Encodes documents; the same object as `query` for shared towers (SDE), otherwise another one
            (ADE), possibly with the same projection on top (ADE-SPL).
        name: Name that the user gave.
        root: The root configuration it was loaded with: other prompts, the default prompt, the similarity.
            Kept for saving.

    Example:
        >>> model = adiabat.load("demo")
        >>> model.encode_document(["Nodes and edges."]).shape == (1, model.width)
        True
    """

    query: Encoder
    document: Encoder
    name: str = ""
    root: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_one_width(self.query, self.document, self.name)

    @property
    def shared(self) -> bool:
        """Whether both sides are one tower."""
        return self.query is self.document

    @property
    def alike(self) -> bool:
        """Whether both towers give a text one vector, apart from prompt and token limit."""
        if self.shared:
            return True
        query, document = (replace(self.fingerprint(side), prompt="", max_tokens=0) for side in SIDES)
        return query == document

    @property
    def width(self) -> int:
        """Width of an embedding (E)."""
        return self.query.width

    @property
    def parameters(self) -> int:
        """Parameters of both towers; shared ones count once."""
        weights = dict.fromkeys(chain(self.query.parameters(), self.document.parameters()))
        return sum(weight.numel() for weight in weights)

    @property
    def similarity(self) -> Similarity:
        """The similarity stated in its root configuration."""
        return similarity_stated(self.root, name=self.name)

    @property
    def unit(self) -> bool:
        """Whether both towers give vectors of length 1."""
        return self.query.settings.unit_length and self.document.settings.unit_length

    @property
    def ranks_by(self) -> Similarity:
        """The similarity to rank documents by; cosine for unit vectors, for which all similarities rank
        alike.
        """
        return "cosine" if self.unit else self.similarity

    def tower(self, side: Side) -> Encoder:
        """The tower of one side, ``query`` or ``document``."""
        return self.query if side == "query" else self.document

    def encode(
        self,
        texts: Sequence[str],
        *,
        side: Side,
        precision: Precision = "auto",
        compiled: bool = False,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> VectorArray:
        """Embed texts with the tower of their side, float32; see `Encoder.encode`."""
        return self.tower(side).encode(
            texts, side=side, precision=precision, compiled=compiled, on_progress=on_progress
        )

    def encode_query(
        self, texts: Sequence[str], *, precision: Precision = "auto"
    ) -> Float32[np.ndarray, "n e"]:
        """Embed texts as queries, with the prompt of queries.

        Args:
            texts: Any number.
            precision: ``fp32``, ``bf16``, or ``auto``: bfloat16 where the device has it and vectors stay at
                cosine >= 0.9999.

        Returns:
            Embeddings, float32 [n, width].

        Raises:
            TypeError: If `texts` is a single text.
        """
        return self._encode_list(texts, "query", precision)

    def encode_document(
        self, texts: Sequence[str], *, precision: Precision = "auto"
    ) -> Float32[np.ndarray, "n e"]:
        """Embed texts as documents; see `encode_query`."""
        return self._encode_list(texts, "document", precision)

    def _encode_list(
        self, texts: Sequence[str], side: Side, precision: Precision
    ) -> Float32[np.ndarray, "n e"]:
        """Embed a list of texts; one text alone would be taken for a list of its letters."""
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise TypeError(
                f"texts must be a list of texts, got {cut(repr(texts), limit=60)} ({type(texts).__name__})"
            )
        return self.encode(list(texts), side=side, precision=precision)

    def fingerprint(self, side: Side = "document") -> Fingerprint:
        """Fingerprint of everything that decides the vectors of one side."""
        return self.tower(side).fingerprint(side)

    def fingerprints(self) -> tuple[Fingerprint, Fingerprint]:
        """Fingerprints of the query and of the document side; weights that both share are hashed once."""
        query, settings = self.query.fingerprint("query"), self.document.settings
        if not self.shared:
            return query, self.document.fingerprint("document")
        return query, replace(
            query, prompt=settings.prompt("document"), max_tokens=settings.limit("document")
        )

    def with_runtime(self, runtime: Runtime, side: Side) -> "DualEncoder":
        """A model with the same weights, whose texts of one side are embedded by a runtime of them."""
        tower = self.tower(side).with_runtime(runtime, side)
        if self.shared:
            return replace(self, query=tower, document=tower)
        return replace(self, query=tower) if side == "query" else replace(self, document=tower)

    def to(self, device: torch.device | str) -> "DualEncoder":
        """Move both towers to a device, in place."""
        self.query.to(device)
        self.document.to(device)
        return self


def side_of(model: DualEncoder, chosen: Side | None, *, usual: Side, setting: str) -> Side:
    """The chosen side of a model of which one tower is taken, or the usual one if both are alike; towers that
    differ leave no usual one.
    """
    if chosen is None and not model.alike:
        raise no_side(model.name or "a model", setting=setting)
    return chosen or usual


def require_one_width(query: Encoder, document: Encoder, name: str) -> None:
    """Refuse towers of different widths, whose embeddings cannot be compared."""
    if query.width != document.width:
        raise ModelError(
            f"{name or 'model'}: both towers must have one width, got {query.width} and {document.width}; "
            "train them with projections to one width, towers.projection_width"
        )


TowerKind = Literal["shared", "asymmetric", "shared_projection"]
"""SDE: one tower for both sides. ADE: two towers. ADE-SPL: two backbones with a common projection."""


def build_towers(
    start: DualEncoder,
    *,
    kind: TowerKind,
    projection_width: int | None = None,
    projection_start: Float[Tensor, "d e"] | None = None,
    document_start: DualEncoder | None = None,
    frozen: Side | None = None,
    seed: int,
) -> DualEncoder:
    """Copy the initial towers into the architecture to be trained.

    Args:
        projection_width: Width of a `new_projection` on top. Both sides draw theirs from the same seed, so
            that equal towers start equal. None adds none, except for ``shared_projection``: towers that
            already share a final projection keep it, others get one of their own width.
        projection_start: Initial weights of that projection; None draws them.
        document_start: Model whose document tower the document side starts from; None takes that of `start`.
    """
    source = start.document if document_start is None else document_start.document
    top = _NewProjection(projection_width, projection_start, seed)
    _require_fitting(start, source, kind, top)
    query = trainable_copy(start.query)
    document = query if kind == "shared" else trainable_copy(source).to(query.device)
    if kind == "shared_projection":
        # Modules are equal only to themselves.
        last = start.query.projection_list()[-1:]
        if last and last == source.projection_list()[-1:] and not top.requested:
            document.projections[-1] = query.projections[-1]
        else:
            projection = top.for_tower(query)
            query.projections.append(projection)
            document.projections.append(projection)
    elif top.requested:
        if frozen != "query":
            top.add_to(query)
        if frozen != "document" and document is not query:
            top.add_to(document)
    if frozen is not None and query.width != document.width:
        other, new = (document, query) if frozen == "document" else (query, document)
        raise ModelError(
            f"{start.name}: the other tower must be as wide as the frozen {frozen} tower, {other.width}, got "
            f"{new.width}; give {top.setting} that width"
        )
    return replace(start, query=query, document=document)


def trainable_copy(tower: Encoder) -> Encoder:
    """A copy of a tower for training; the original, which is often also the other tower, is unchanged."""
    require_saveable(tower)
    projections = copy.deepcopy(tower.projection_list())
    twin = Encoder(copy.deepcopy(tower.backbone), tower.tokenizer, tower.settings, projections)
    used = {id(weights) for weights in twin.used_parameters().values()}
    for weights in twin.parameters():
        weights.requires_grad_(id(weights) in used)
    return twin.eval()


def with_projection(tower: Encoder, weights: Float[Tensor, "d e"]) -> Encoder:
    """A copy of a tower whose vectors are multiplied by weights, before they are scaled to unit length."""
    twin = trainable_copy(tower)
    _NewProjection(None, weights, seed=0).add_to(twin)
    return twin


def merged_tower(tower: Encoder) -> Encoder:
    """An equivalent tower with its adapters merged."""
    if not hasattr(tower.backbone, "peft_config"):
        return tower
    from adiabat.models.adapters import merge_adapters

    return Encoder(merge_adapters(tower.backbone), tower.tokenizer, tower.settings, tower.projection_list())


def interpolated(tuned: Encoder, start: Encoder, share: float) -> Encoder:
    """A tower with weights ``w0 + share (w1 - w0)``, initial ones ``w0`` and tuned ones ``w1``.

    Weights that tuning added, such as new biases, start from 0.
    """
    between = copy.deepcopy(tuned)
    before = dict(start.named_parameters())
    with torch.no_grad():
        for name, weights in between.named_parameters():
            origin = before[name].to(weights) if name in before else torch.zeros_like(weights)
            weights.copy_(torch.lerp(origin, weights, share))
    return between


def averaged(first: Encoder, second: Encoder) -> Encoder:
    """A tower with the means of the weights of two that were tuned from one; a layer that only one of them
    has counts as the identity in the other.
    """
    added = len(first.projections) - len(second.projections)
    longer, shorter = (first, second) if added >= 0 else (second, first)
    for _ in range(abs(added)):
        shorter = with_projection(shorter, torch.eye(shorter.width))
    return interpolated(longer, shorter, 0.5).eval()


def freeze_tower(encoder: Encoder) -> None:
    """Freeze a tower while the other one is trained: no gradients, no dropout; shared weights are frozen
    too.
    """
    encoder.requires_grad_(False).eval()


def _require_fitting(start: DualEncoder, document: Encoder, kind: TowerKind, top: "_NewProjection") -> None:
    """Refuse towers that cannot be built, before any is copied."""
    query = start.query
    if kind == "shared" and query is not document:
        raise ModelError(
            "towers.kind must be asymmetric or shared_projection where the two sides start from different "
            f"towers, got {kind}; choose one of them, or start from one tower"
        )
    if kind == "shared_projection" and query.width != document.width:
        raise ModelError(
            f"towers.kind must be asymmetric where the two sides start with different widths, got {kind} "
            f"over {query.width} and {document.width}: one projection takes vectors of one width; choose "
            "asymmetric, and set towers.projection_width"
        )
    if not top.requested:
        require_one_width(query, document, start.name)
    elif any(tower.width < tower.full_width for tower in (query, document)):
        raise ConfigError(
            f"{top.setting} must be left out for a model that cuts its embeddings (truncate_dim), which no "
            "layer can follow; take truncate_dim out of its config_sentence_transformers.json"
        )
    elif top.width is not None and top.width < 1:
        raise ConfigError(f"towers.projection_width must be > 0, got {top.width}")


@dataclass(frozen=True, slots=True)
class _NewProjection:
    """The projection to put on top of the towers.

    Attributes:
        width: Of the embeddings; None takes that of the tower, or of the initial weights.
        start: Initial weights; None draws them.
        seed: Of the drawn weights.
    """

    width: int | None
    start: Float[Tensor, "d e"] | None
    seed: int

    @property
    def requested(self) -> bool:
        return self.width is not None or self.start is not None

    @property
    def setting(self) -> str:
        return "towers.projection_width" if self.start is None else "towers.projection_start"

    def for_tower(self, tower: Encoder) -> Projection:
        """The projection, on the device of a tower."""
        weights = self._weights(tower)
        if weights is None:
            return new_projection(tower.width, self.width or tower.width, seed=self.seed).to(tower.device)
        return projection_of(weights)

    def add_to(self, tower: Encoder) -> None:
        """Put the projection on top of a tower."""
        backbone, weights = tower.backbone, self._weights(tower)
        # For a static model without projections, the product of table and matrix is again a static model.
        if weights is not None and isinstance(backbone, StaticBackbone) and not len(tower.projections):
            tower.backbone = backbone.times(weights)
        else:
            tower.projections.append(self.for_tower(tower))

    def _weights(self, tower: Encoder) -> Float[Tensor, "d e"] | None:
        """Given initial weights, which must fit the tower."""
        if self.start is not None and len(self.start) != tower.width:
            raise ConfigError(
                f"towers.projection_start must have a row for each of the {tower.width} numbers of a vector, "
                f"got {len(self.start)}; make it for this model"
            )
        return None if self.start is None else self.start.to(tower.device, torch.float32)
