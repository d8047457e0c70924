"""Saving encoders so that sentence-transformers loads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers.normalizers import Lowercase

from adiabat.model.directory import normalizers_of, quietly
from adiabat.model.encoder import Encoder, Projection
from adiabat.model.layout import write_json, write_root_configuration, write_tower_files
from adiabat.model.towers import DualEncoder


def save(model: DualEncoder, folder: Path) -> None:
    """Write a directory that `sentence_transformers.SentenceTransformer` loads with equal embeddings.

    Shared towers become a plain model; towers that differ become a Router, with a route for queries and one for documents.

    Args:
        model: What to save.
        folder: Made where missing; files of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if model.shared:
        modules = _save_tower(model.query, folder, {}, prefix="", root=True)
        listed = [{"idx": i, "name": str(i), "path": path, "type": _dotted(kind)} for i, (path, kind) in enumerate(modules)]
    else:
        written: dict[tuple[int, int], str] = {}
        routes = {side: _save_tower(model.tower(side), folder, written, prefix=f"{side}_", root=False) for side in ("query", "document")}
        write_json(folder / "router_config.json", _router_configuration(routes))
        listed = [{"idx": 0, "name": "0", "path": "", "type": _dotted("Router")}]
    write_json(folder / "modules.json", listed)
    write_root_configuration(
        folder, model.root, query_prompt=model.query.settings.query_prompt, document_prompt=model.document.settings.document_prompt
    )


def _dotted(kind: str) -> str:
    """The old dotted name: new installations still import it, old ones know no other."""
    return f"sentence_transformers.models.{kind}"


def _router_configuration(routes: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, Any]:
    return {
        "types": {path: _dotted(kind) for modules in routes.values() for path, kind in modules},
        "structure": {side: [path for path, _ in modules] for side, modules in routes.items()},
        "parameters": {"default_route": "query", "allow_empty_key": True, "route_mappings": {}},
    }


def _save_tower(encoder: Encoder, folder: Path, written: dict[tuple[int, int], str], *, prefix: str, root: bool) -> list[tuple[str, str]]:
    """Write the modules of one tower; returns (path, kind) of each. A transformer that is in `written` already is not written again."""
    kinds = ["Transformer", "Pooling", *("Dense" for _ in encoder.projections), *(["Normalize"] if encoder.settings.normalize else [])]
    modules = [("" if root and kind == "Transformer" else f"{prefix}{i}_{kind}", kind) for i, kind in enumerate(kinds)]
    mine = (id(encoder.backbone), encoder.settings.max_tokens)
    modules[0] = (written.setdefault(mine, modules[0][0]), "Transformer")
    for path, _ in modules:
        (folder / path).mkdir(exist_ok=True)
    transformer = folder / modules[0][0]
    with quietly():
        encoder.backbone.save_pretrained(transformer)
        encoder.tokenizer.save_pretrained(transformer)
    write_tower_files(
        transformer,
        folder / modules[1][0],
        encoder.settings,
        hidden_size=int(encoder.backbone.config.hidden_size),
        # Some tokenizer classes rebuild their normaliser from their own settings and would lose one that was added.
        lower_case=any(isinstance(part, Lowercase) for part in normalizers_of(encoder.tokenizer)),
    )
    dense = [path for path, kind in modules if kind == "Dense"]
    for path, projection in zip(dense, encoder.projections, strict=True):
        assert isinstance(projection, Projection)
        _save_projection(projection, folder / path)
    return modules


def _save_projection(projection: Projection, folder: Path) -> None:
    linear = projection.linear
    activation = type(projection.activation)
    write_json(
        folder / "config.json",
        {
            "in_features": linear.in_features,
            "out_features": linear.out_features,
            "bias": linear.bias is not None,
            "activation_function": f"{activation.__module__}.{activation.__name__}",
        },
    )
    save_file({f"linear.{name}": weights.contiguous() for name, weights in linear.state_dict().items()}, folder / "model.safetensors")
