"""Which keys the installed sentence-transformers reads, walked from its own source."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Module, Router, Transformer
from sentence_transformers.base.modules.transformer import ProcessingKwargs
from sentence_transformers.sentence_transformer.model import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding, pooling

LOADING = frozenset(
    {
        *("subfolder", "token", "cache_dir", "cache_folder", "revision", "local_files_only", "trust_remote_code"),
        *("init_defaults", "module_classes", "model_name_or_path"),
    }
)
"""What whoever loads a model says, over what any file does."""

FAMILIES = ("base", "sentence_transformer", "sparse_encoder", "multi_vector_encoder", "cross_encoder")

READERS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Transformer": (Transformer.load_config, Transformer._load_init_kwargs, Transformer._get_default_modality_config),
    "Router": (Router.load,),
    "StaticEmbedding": (StaticEmbedding.load,),
    "root": (BaseModel._parse_model_config, BaseModel._get_model_type, SentenceTransformer._parse_model_config),
    "modules.json": (BaseModel._load_config_modules,),
}
"""Beside the constructors, which take what a file says: what reads keys by their names."""


def classes() -> Iterator[type[Module]]:
    """Every module class that a directory can name."""
    for family in FAMILIES:
        importlib.import_module(f"sentence_transformers.{family}.modules")
    waiting = [Module]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind.__module__.startswith("sentence_transformers.") and kind.__name__ != "InputModule":
                yield kind
            waiting.append(kind)


def keys_of(kind: type[Module]) -> set[str]:
    """What a file may say to one class: its configuration, old names, and the parameters of its constructor, to which a file is passed."""
    constructor = set(inspect.signature(kind.__init__).parameters) - {"self", "args", "kwargs"}
    found = {*kind.config_keys, *kind.config_key_renames, *(constructor - LOADING), *read_by(kind.__name__)}
    if kind.__name__ == "Pooling":
        found |= set(pooling._LEGACY_POOLING_MODE_KWARGS)
    return found | ({f"processing_kwargs.{key}" for key in ProcessingKwargs.__annotations__} if kind is Transformer else set())


def read_by(name: str) -> set[str]:
    """Keys that the readers of one kind of file name."""
    return {key for function in READERS.get(name, ()) for key in named_keys(function)}


def named_keys(function: Callable[..., Any]) -> set[str]:
    """Texts by which a function looks into a mapping: ``x["a"]``, ``x.get("a")``, ``"a" in x``, and lists and mappings of such texts."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return {text for node in ast.walk(tree) for text in _looked_up(node) if text[0].isalpha() or text[0] == "_"} - LOADING


def _looked_up(node: ast.AST) -> Iterator[str]:
    match node:
        case (
            ast.Subscript(slice=ast.Constant(value=str(key))) | ast.Compare(left=ast.Constant(value=str(key)), ops=[ast.In() | ast.NotIn()])
        ):
            yield key
        case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[ast.Constant(value=str(key)), *_]):
            yield key
        case ast.For(iter=ast.Tuple(elts=elements) | ast.List(elts=elements)) | ast.List(elts=elements) | ast.Dict(keys=elements):
            yield from (element.value for element in elements if isinstance(element, ast.Constant) and isinstance(element.value, str))
