"""A delta: what differs between a model and its base, loaded as ``base + delta``.

A folder of two files. ``delta.json`` names the base with the digests of its towers' weights, and has the
settings of each tower that differs. ``delta.safetensors`` has, for each of its weights that differs, the
difference in float16, or two factors whose product it is. Projections that the base lacks lie in folders of
their own.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from adiabat.core.disk import make_folder
from adiabat.core.errors import ModelError
from adiabat.core.files import reading
from adiabat.core.formats import Format
from adiabat.core.provenance import digest_of
from adiabat.data.records import SIDES, Side
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.json_files import exists, read_json, write_json
from adiabat.models.st_files import load_projection, required, save_projection
from adiabat.models.towers import DualEncoder

FILE, WEIGHTS = "delta.json", "delta.safetensors"

FORMAT = Format(1, oldest=1)

OUTER, INNER = ".outer", ".inner"
"""Endings of the names of two factors, ``W + outer @ inner``."""

Weights = dict[str, Float[Tensor, "*shape"]]
"""Differences or factors by the names of the weights."""


@dataclass(frozen=True, slots=True)
class TowerDelta:
    """What differs in one tower.

    Attributes:
        weights: Of the backbone.
        projections: Whether the projections are others, and lie beside the weights.
    """

    side: Side
    settings: EncoderSettings
    weights: Weights
    projections: bool


def is_delta(folder: Path) -> bool:
    """Whether a folder holds a delta."""
    return exists(folder / FILE)


def write_delta(
    model: DualEncoder, base: DualEncoder, base_name: str, deltas: list[TowerDelta], folder: Path
) -> None:
    """Write what differs; the model's towers give the projections."""
    towers: dict[str, Any] = {}
    tensors: Weights = {}
    for delta in deltas:
        towers[delta.side] = {"settings": asdict(delta.settings), "projections": delta.projections}
        tensors |= {f"{delta.side}/{name}": weights for name, weights in delta.weights.items()}
        if delta.projections:
            for number, projection in enumerate(model.tower(delta.side).projection_list()):
                place = _projection(folder, delta.side, number)
                make_folder(place)
                save_projection(projection, place)
    save_file({name: weights.contiguous() for name, weights in tensors.items()}, folder / WEIGHTS)
    write_json(
        folder / FILE,
        {
            "format": FORMAT.number,
            "base": base_name,
            "base_weights": {side: base.tower(side).weights_digest() for side in SIDES},
            "base_tokenizers": {side: base.tower(side).tokenizer_digest() for side in SIDES},
            "weights": digest_of(folder / WEIGHTS).sha256,
            "shared": model.shared,
            "root": dict(model.root),
            "towers": towers,
        },
    )


def load_delta(
    folder: Path, load_base: Callable[[str], DualEncoder], *, over_base: bool = False
) -> DualEncoder:
    """The model of a delta, over its base; weights that do not differ are those of the base itself.

    Args:
        folder: The delta.
        load_base: Loads the base by its name.
        over_base: Keep the differences of dense layers of the query tower beside the weights of the base, and
            add them in each pass, so that many deltas take little more memory than one model. The document
            tower, whose weights stores are compared with, is changed as a whole.
    """
    # A value of an unexpected type can make any step fail.
    with reading(folder, remedy="get the delta again", error=ModelError):
        path = folder / FILE
        record = read_json(path)
        FORMAT.require(record.get("format", 0), path, older="export the model again", error=ModelError)
        name, towers, is_one, root, sealed = required(
            record, "base", "towers", "shared", "root", "weights", path=path
        )
        if digest_of(folder / WEIGHTS).sha256 != sealed:
            raise ValueError(f"{WEIGHTS} does not match its checksum in {FILE}")
        if not isinstance(towers, dict) or not set(towers) <= set(SIDES):
            raise ValueError(f"towers in {FILE} must name query and document, got {towers!r:.60}")
        if is_delta(Path(name)):
            raise ValueError(f"its base, {name}, is a delta too, which has no weights of its own")
        base = load_base(name)
        for side in SIDES:
            _require_base(base.tower(side), side, record, path)
        tensors = load_file(folder / WEIGHTS)
        ways = {"query": beside if over_base and not is_one else changed, "document": changed}
        made = {
            side: _tower(folder, base.tower(side), side, towers[side], tensors, ways[side])
            for side in SIDES
            if side in towers
        }
        query = made.get("query", base.query)
        document = query if is_one else made.get("document", base.document)
        return replace(base, query=query, document=document, name=str(folder), root=root)


def _require_base(tower: Encoder, side: Side, record: Mapping[str, Any], path: Path) -> None:
    """Refuse a base of other weights, or with another tokenizer."""
    found = {"base_weights": tower.weights_digest(), "base_tokenizers": tower.tokenizer_digest()}
    for key, digest in found.items():
        if record[key][side] != digest:
            raise ModelError(
                f"{path} must lie over the base model that it was made from, {record['base']}, got one with "
                f"another {side} tower; restore that model, or correct base in {FILE}"
            )


def _tower(
    folder: Path,
    base: Encoder,
    side: Side,
    record: Mapping[str, Any],
    tensors: Weights,
    add: Callable[[nn.Module, Weights], Any],
) -> Encoder:
    """The base's tower with its differences added."""
    prefix = f"{side}/"
    changes = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    projections = base.projection_list()
    if record["projections"]:
        count = len(list(folder.glob(f"{side}_projection_*")))
        projections = [load_projection(_projection(folder, side, number)) for number in range(count)]
    settings = EncoderSettings(**record["settings"])
    return Encoder(add(base.backbone, changes), base.tokenizer, settings, projections).eval().to(base.device)


def changed(module: nn.Module, changes: Weights) -> Any:
    """A copy of a module with some of its weights changed, which shares all others with it."""
    names = _names(changes)
    kept = {id(weights): weights for name, weights in module.named_parameters() if name not in names}
    twin = copy.deepcopy(module, memo=dict(kept))
    with torch.no_grad():
        for name in names:
            weights = twin.get_parameter(name)
            if name in changes:
                weights.add_(changes[name].to(weights))
            else:
                outer, inner = (changes[name + part].to(weights) for part in (OUTER, INNER))
                weights.add_(outer @ inner)
    return twin


def beside(module: nn.Module, changes: Weights) -> Any:
    """The same, with the changes of dense layers beside their weights, which stay shared too."""
    dense = {
        path
        for name in _names(changes)
        if name.endswith(".weight")
        and isinstance(module.get_submodule(path := name.removesuffix(".weight")), nn.Linear)
    }
    parts = {f"{path}.weight{part}" for path in dense for part in ("", OUTER, INNER)}
    twin = changed(module, {name: each for name, each in changes.items() if name not in parts})
    for path in dense:
        layer = twin.get_submodule(path)
        twin.set_submodule(
            path, ChangedLinear(layer, *(changes.get(f"{path}.weight{part}") for part in ("", OUTER, INNER)))
        )
    return twin


class ChangedLinear(nn.Module):
    """A dense layer over shared weights, ``(W + D) x + b`` or ``W x + outer (inner x) + b``."""

    difference: Float[Tensor, "o i"] | None
    outer: Float[Tensor, "o r"] | None
    inner: Float[Tensor, "r i"] | None

    def __init__(
        self,
        layer: nn.Linear,
        difference: Float[Tensor, "o i"] | None,
        outer: Float[Tensor, "o r"] | None,
        inner: Float[Tensor, "r i"] | None,
    ) -> None:
        """Take the layer, and its difference as it was stored or its factors."""
        super().__init__()
        self.layer = layer
        self.register_buffer("difference", difference, persistent=False)
        # Factors are small, and would be converted in every pass.
        self.register_buffer("outer", None if outer is None else outer.to(layer.weight), persistent=False)
        self.register_buffer("inner", None if inner is None else inner.to(layer.weight), persistent=False)

    @property
    def weight(self) -> Tensor:
        """The shared weights, for code that asks for their type."""
        return self.layer.weight

    def forward(self, states: Float[Tensor, "*rows i"]) -> Float[Tensor, "*rows o"]:
        """Apply the changed layer."""
        if self.outer is not None and self.inner is not None:
            low_rank = nn.functional.linear(nn.functional.linear(states, self.inner), self.outer)
            return self.layer(states) + low_rank  # type: ignore[no-any-return]
        assert self.difference is not None
        weights = self.layer.weight + self.difference.to(self.layer.weight)
        return nn.functional.linear(states, weights, self.layer.bias)


def _names(changes: Weights) -> set[str]:
    """The names of the changed weights."""
    return {name.removesuffix(OUTER).removesuffix(INNER) for name in changes}


def _projection(folder: Path, side: Side, number: int) -> Path:
    return folder / f"{side}_projection_{number}"
