"""The modules that a model's directory lists: the class of each, where its files lie, and what is no embedding model."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.data.records import SIDES, Side
from adiabat.errors import ModelError
from adiabat.model.layout import checked_keys, needed, read_json, read_list

PATH_OF_CLASS = re.compile(r"sentence_transformers\.(?:models|(?:base|sentence_transformer|sparse_encoder)\.modules)\.(?:\w+\.)?(\w+)")
"""Where sentence-transformers keeps its modules, by their old names and their new ones."""

RERANKER = "a reranker (cross-encoder), which scores pairs of texts"
SPARSE = "a sparse encoder (SPLADE), which weighs the words of its vocabulary"
LATE_INTERACTION = "a late-interaction model (ColBERT), which gives a vector for each token"

OTHER_TYPES: Mapping[str, str] = {
    "CrossEncoder": RERANKER,
    "SparseEncoder": SPARSE,
    "MultiVectorEncoder": LATE_INTERACTION,
    "ColBERT": LATE_INTERACTION,
}
"""Values of ``model_type`` in the root configuration beside ``SentenceTransformer``."""

OTHER_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("SpladePooling", "MLMTransformer", "SparseAutoEncoder", "SparseStaticEmbedding"), SPARSE),
    **dict.fromkeys(("MultiVectorMask", "BaseTokenPooling", "HierarchicalTokenPooling", "LambdaTokenPooling"), LATE_INTERACTION),
    "LogitScore": RERANKER,
}
"""Modules by which another kind of model is known."""

OTHER_ARCHITECTURES: Mapping[str, str] = {
    "ForSequenceClassification": "a reranker or classifier, which scores texts by a head on top",
    "ForTokenClassification": "a tagger, which labels tokens by a head on top",
    "ForQuestionAnswering": "a reader, which marks answers by a head on top",
    "ForMultipleChoice": "a model for multiple choice, which scores texts by a head on top",
    "ForRetrieval": LATE_INTERACTION,
    "ColBERT": LATE_INTERACTION,
}
"""How the names of architectures end that have a head of their own, other than one for words."""

ROUTER_PARAMETERS = frozenset({"default_route", "allow_empty_key", "route_mappings"})


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a sentence-transformers directory: the name of its class, and its folder."""

    kind: str
    folder: Path


def other_model(folder: Path, kind: str) -> ModelError:
    """The refusal of what is no embedding model."""
    return ModelError(f"{folder} must be a model that gives each text one vector, got {kind}; choose another model")


def require_embedding_type(folder: Path, root: Mapping[str, Any]) -> None:
    """Refuse a directory that says itself that it holds another kind of model."""
    named = root.get("model_type", "SentenceTransformer")
    if named != "SentenceTransformer":
        raise other_model(folder, OTHER_TYPES.get(str(named), f"one of type {named!r}"))


def require_no_head(folder: Path) -> None:
    """Refuse a plain Hugging Face directory whose configuration names an architecture with a head of its own."""
    named = read_json(folder / "config.json").get("architectures")
    for architecture in named if isinstance(named, list) else []:
        kind = next((kind for ending, kind in OTHER_ARCHITECTURES.items() if str(architecture).endswith(ending)), None)
        if kind is not None:
            raise other_model(folder, f"{architecture}, {kind}")


def read_modules(folder: Path) -> list[Module]:
    """The modules of a directory, in order.

    Returns:
        The modules; empty for a plain Hugging Face model.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return []
    entries = read_list(path)
    if not entries or not all(isinstance(entry, dict) and isinstance(entry.get("path", ""), str) for entry in entries):
        raise ModelError(f"{path} must hold a list of modules with their types and paths, got {entries!r:.80}")
    names = [str(entry["name"]) for entry in entries if "name" in entry]
    if len(set(names)) < len(names):
        raise ModelError(f"{path} must give each module a name of its own, got {', '.join(names)}: one would take another's place")
    named = [needed(entry, "type", "path", where=path) for entry in entries]
    return [_module(folder, dotted, part, where=path) for dotted, part in named]


def _module(folder: Path, dotted: object, part: str, *, where: Path) -> Module:
    known = PATH_OF_CLASS.fullmatch(str(dotted))
    name = str(dotted).rsplit(".", 1)[-1]
    if str(dotted).startswith("pylate."):
        raise other_model(folder, f"{LATE_INTERACTION}: {where.name} names {dotted}")
    if name in OTHER_CLASSES and str(dotted).startswith("sentence_transformers."):
        raise other_model(folder, f"{OTHER_CLASSES[name]}: {where.name} names {dotted}")
    if known is None:
        raise ModelError(
            f"{where} must name modules of sentence-transformers itself, got {dotted}, code of the model's own or of another library, "
            "which adiabat does not run; choose another model"
        )
    return Module(known[1], _inside(folder, part, where=where))


def _inside(folder: Path, part: str, *, where: Path) -> Path:
    """A module's folder; one outside of the model's, be it by a symbolic link, could have any file of this machine read."""
    module = folder / part
    try:
        inside = module.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links; a name that no file can have
        inside = False
    if not inside:
        raise ModelError(f"{where} must name folders inside of the model's own, got {part!r}; copy that folder into the model's")
    return module


def read_routes(folder: Path) -> dict[Side, list[Module]]:
    """The two towers of a Router, or of the older Asym, whose routes stand in ``config.json``."""
    path = folder / "router_config.json"
    path = path if path.is_file() or not (folder / "config.json").is_file() else folder / "config.json"
    record = read_json(path)
    types, structure = needed(record, "types", "structure", where=path)
    parameters = record.get("parameters") or {}
    if not all(isinstance(part, dict) for part in (types, structure, parameters)):
        raise ModelError(
            f"{path}: types, structure and parameters must map names, got {types!r:.40}, {structure!r:.40}, {parameters!r:.40}"
        )
    checked_keys(path, parameters, known=ROUTER_PARAMETERS)
    mappings = _route_mappings(path, parameters.get("route_mappings") or {})
    routes: dict[Side, list[str]] = {side: list(structure.get(_route_of(side, structure, mappings)) or ()) for side in SIDES}
    if not all(routes.values()):
        raise ModelError(f"{path} must have routes query and document, got {', '.join(structure) or 'none'}")
    needed(types, *dict.fromkeys(name for names in routes.values() for name in names), where=path)
    return {side: [_module(folder, types[name], name, where=path) for name in names] for side, names in routes.items()}


def _route_mappings(path: Path, written: Mapping[str, str]) -> dict[tuple[str | None, object], str]:
    """Which route goes with which task and kind of input; keys are written as Python writes tuples."""
    try:
        mappings = {ast.literal_eval(key): route for key, route in written.items()}
        return {(task, kind): route for (task, kind), route in mappings.items()}
    except (AttributeError, SyntaxError, TypeError, ValueError) as fault:
        raise ModelError(f"{path}: route_mappings must map pairs of task and kind to routes, got {written!r:.80}; correct it") from fault


def _route_of(side: Side, structure: Mapping[str, Any], mappings: Mapping[tuple[str | None, object], str]) -> str:
    """The route that sentence-transformers takes for a text of one side: the most precise mapping, else the route of that name."""
    keys = ((side, "text"), (side, None), (None, "text"), (None, None))
    mapped = next((mappings[key] for key in keys if key in mappings), None)
    return mapped or (side if side in structure else "text")
