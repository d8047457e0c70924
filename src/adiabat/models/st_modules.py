"""Modules of a sentence-transformers directory, and its settings for the backbone."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adiabat.core.errors import ModelError
from adiabat.data.records import SIDES, Side
from adiabat.models.json_files import exists, flag_of, read_json, read_typed, require_switches, table_in
from adiabat.models.lost_files import require_files
from adiabat.models.st_files import UNLIMITED, checked_keys, required

PATH_OF_CLASS = re.compile(
    r"sentence_transformers\.(?:models|(?:base|sentence_transformer|sparse_encoder)\.modules)\.(?:\w+\.)?(\w+)"
)
"""Locations of sentence-transformers' modules, under old and new names."""

OTHER_ARCHITECTURES = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
    "ForRetrieval",
    "ColBERT",
)
"""Endings of architectures with a head on top: rerankers, classifiers, taggers, late interaction."""

ROUTER_PARAMETERS = frozenset({"default_route", "allow_empty_key", "route_mappings"})


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a sentence-transformers directory: class name and folder."""

    kind: str
    folder: Path


def other_model(folder: Path, kind: object) -> ModelError:
    """The error for a reranker, a sparse encoder, a late-interaction model or anything else."""
    return ModelError(
        f"{folder} must be a model that gives each text one vector, got one of type {kind}; choose another"
    )


def require_no_head(folder: Path) -> None:
    """Refuse a plain Hugging Face directory whose configuration names an architecture with a head of its
    own.
    """
    architectures = read_json(folder / "config.json").get("architectures")
    for architecture in architectures if isinstance(architectures, list) else []:
        if str(architecture).endswith(OTHER_ARCHITECTURES):
            raise other_model(folder, architecture)


def read_modules(folder: Path) -> list[Module]:
    """The modules of a directory, in order; empty for a plain Hugging Face model."""
    path = folder / "modules.json"
    if not exists(path):
        return []
    entries = read_typed(path, list)
    plain = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("path", ""), str)]
    if not entries or len(plain) < len(entries):
        raise ModelError(
            f"{path} must hold a list of modules with their types and paths, got {entries!r:.80}"
        )
    names = [str(entry["name"]) for entry in entries if "name" in entry]
    if len(set(names)) < len(names):
        raise ModelError(
            f"{path} must give each module a unique name, got {', '.join(names)}: one would replace another"
        )
    types_and_names = [required(entry, "type", "path", path=path) for entry in entries]
    return [_module(folder, dotted, name, path=path) for dotted, name in types_and_names]


def _module(folder: Path, dotted: object, name: str, *, path: Path) -> Module:
    """The module with a dotted type in a named folder, as listed in the file at `path`."""
    known = PATH_OF_CLASS.fullmatch(str(dotted))
    if known is None:
        raise ModelError(
            f"{path} must name modules of embedding models of sentence-transformers, got {dotted}; "
            "adiabat runs no code of other libraries or of the model; choose another"
        )
    module = folder / name
    # A folder outside the model's, for example through a symbolic link, could make adiabat read any file of
    # this machine.
    try:
        inside = module.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links; a name that no file can have
        inside = False
    if not inside:
        raise ModelError(
            f"{path} must name folders inside the model's own, got {name!r}; "
            "copy that folder into the model's"
        )
    # Hubs keep no empty folders, such as that of a Normalize.
    if exists(module) and module.is_dir():
        require_files(module)
    return Module(known[1], module)


def read_routes(folder: Path) -> dict[Side, list[Module]]:
    """The modules of both towers of a Router, or of the older Asym, whose routes are in ``config.json``."""
    path = folder / "router_config.json"
    if not exists(path) and exists(folder / "config.json"):
        path = folder / "config.json"
    record = read_json(path)
    required(record, "types", "structure", path=path)
    types, structure, parameters = (
        table_in(record, name, path=path) for name in ("types", "structure", "parameters")
    )
    checked_keys(path, parameters, known=ROUTER_PARAMETERS)
    mappings = _route_mappings(path, table_in(parameters, "route_mappings", path=path))
    routes: dict[Side, list[str]] = {
        side: list(structure.get(_route_of(side, structure, mappings)) or ()) for side in SIDES
    }
    if not all(routes.values()):
        raise ModelError(f"{path} must have routes query and document, got {', '.join(structure) or 'none'}")
    required(types, *dict.fromkeys(name for names in routes.values() for name in names), path=path)
    return {
        side: [_module(folder, types[name], name, path=path) for name in names]
        for side, names in routes.items()
    }


def _route_mappings(path: Path, written: Mapping[str, str]) -> dict[tuple[str | None, object], str]:
    """Route of each task and kind of input; the file writes keys as Python tuples."""
    try:
        mappings = {ast.literal_eval(key): route for key, route in written.items()}
        return {(task, kind): route for (task, kind), route in mappings.items()}
    except (AttributeError, SyntaxError, TypeError, ValueError) as fault:
        raise ModelError(
            f"{path}: route_mappings must map pairs of task and kind to routes, "
            f"got {written!r:.80}; correct it"
        ) from fault


def _route_of(
    side: Side, structure: Mapping[str, Any], mappings: Mapping[tuple[str | None, object], str]
) -> str:
    """The route that sentence-transformers takes for a text of one side: by the most specific mapping, else
    by its name.
    """
    keys = ((side, "text"), (side, None), (None, "text"), (None, None))
    mapped = next((mappings[key] for key in keys if key in mappings), None)
    return mapped or (side if side in structure else "text")


FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
FILES = tuple(f"sentence_{family}_config.json" for family in FAMILIES)
"""Old versions named the file after the family; the first non-empty one is used."""

KNOWN = frozenset(
    (
        "max_seq_length",
        "query_length",
        "document_length",
        "do_lower_case",
        "modality_config",
        "module_output_name",
        "processing_kwargs",
        "model_kwargs",
        "model_args",
        "processor_kwargs",
        "tokenizer_args",
        "config_kwargs",
        "config_args",
    )
)

LIMITS = {
    "max_tokens": "max_seq_length",
    "query_max_tokens": "query_length",
    "document_max_tokens": "document_length",
}
"""Our names of the limits, mapped to the file's."""

FIXED: Mapping[str, tuple[object, ...]] = {
    "transformer_task": ("feature-extraction",),
    "query_expansion": (None,),
    "tokenizer_name_or_path": (None,),
    "unpad_inputs": (None, True, False),
}

OVERRULED = frozenset(
    {"subfolder", "token", "cache_dir", "revision", "local_files_only", "trust_remote_code"}
)
"""Options that sentence-transformers takes only from its caller."""

IDLE_MODEL_OPTIONS = frozenset(
    {
        "dtype",
        "torch_dtype",
        "attn_implementation",
        "device_map",
        "low_cpu_mem_usage",
        "use_safetensors",
        "add_pooling_layer",
    }
)
"""Options that do not change vectors beyond rounding: weights are always loaded in float32, and poolers are
never used."""

UNUSABLE_CONFIG = ("auto_map", "code_revision", "gguf_file", "return_unused_kwargs")
"""Options of the backbone's configuration that would run other code, or return something else."""

CONFIG_SWITCHES = ("is_causal",)
"""Settings of backbones that are true or false, and that transformers does not check."""

TOKENIZER_SWITCHES = (
    "add_bos_token",
    "add_eos_token",
    "add_prefix_space",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
)
"""Options of tokenizers that are true or false, and change tokens; transformers takes any value."""

TOKENIZER_OPTIONS = frozenset(
    (
        "truncation_side",
        "padding_side",
        "use_fast",
        "legacy",
        "clean_up_tokenization_spaces",
        "chat_template",
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
        *TOKENIZER_SWITCHES,
    )
)

FIXED_CALL: Mapping[str, tuple[object, ...]] = {
    "truncation": (True, "longest_first", "only_first", False, "do_not_truncate"),
    "add_special_tokens": (True,),
    "is_split_into_words": (False,),
    "return_attention_mask": (True, None),
    "return_overflowing_tokens": (False,),
    "return_tensors": ("pt",),
    "stride": (0,),
}

IDLE_CALL = frozenset(
    (
        "padding",
        "padding_side",
        "pad_to_multiple_of",
        "logits_to_keep",
        "verbose",
        "return_token_type_ids",
        "return_length",
        "return_special_tokens_mask",
        "return_offsets_mapping",
    )
)
"""Options of a call that do not change vectors, because padding is masked."""


@dataclass(frozen=True, slots=True)
class TransformerSettings:
    """Settings of a directory for its backbone; the defaults if there is no file.

    Attributes:
        limits: Maximum tokens, by the names of `EncoderSettings`; None for the limit of tokenizer and
            backbone.
        lower_case: Whether texts are lower-cased before tokenisation.
        tokenizer: Options for loading the tokenizer.
        config: Options for loading the backbone's configuration.
    """

    limits: Mapping[str, int | None] = field(default_factory=dict)
    lower_case: bool = False
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def read_transformer_settings(folder: Path) -> TransformerSettings:
    """Read the settings file of the backbone, under any of its names."""
    path = next((folder / name for name in FILES if read_json(folder / name)), folder / FILES[0])
    record = read_json(path)
    checked_keys(path, record, known=KNOWN, fixed=FIXED)
    _require_text_states(path, record)
    checked_keys(path, _options(path, record, "model_args", "model_kwargs"), known=IDLE_MODEL_OPTIONS)
    tokenizer = _options(path, record, "tokenizer_args", "processor_kwargs")
    checked_keys(path, tokenizer, known=TOKENIZER_OPTIONS | {"model_max_length"})
    require_switches(tokenizer, TOKENIZER_SWITCHES, path=path)
    config = _options(path, record, "config_args", "config_kwargs")
    require_switches(config, CONFIG_SWITCHES, path=path)
    checked_keys(path, {key: config[key] for key in UNUSABLE_CONFIG if key in config})
    limits = {
        "max_tokens": tokenizer.pop("model_max_length", record.get("max_seq_length")),
        "query_max_tokens": record.get("query_length"),
        "document_max_tokens": record.get("document_length"),
        **_limits_of_calls(path, record),
    }
    for name, limit in limits.items():
        if limit is not None and type(limit) is not int:
            raise ModelError(f"{path}: {LIMITS[name]} must be a whole number, got {limit!r}; correct it")
    return TransformerSettings(
        limits, lower_case=flag_of(record, "do_lower_case", path=path), tokenizer=tokenizer, config=config
    )


def _options(path: Path, record: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Options under their old name, which sentence-transformers prefers, or their new one."""
    name = old if old in record else new
    return {key: value for key, value in table_in(record, name, path=path).items() if key not in OVERRULED}


def _require_text_states(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a backbone that takes texts as chat messages, or returns anything but token states."""
    kinds = record.get(
        "modality_config", {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    )
    text = kinds.get("text") if isinstance(kinds, dict) else None
    if not isinstance(text, dict) or "message" in kinds:
        raise ModelError(
            f"{path}: modality_config must take texts, not chat messages, got "
            f"{kinds!r:.80}; choose another model"
        )
    checked_keys(
        path,
        text,
        known={"format"},
        fixed={"method": ("forward",), "method_output_name": ("last_hidden_state", ["last_hidden_state"])},
    )
    if "modality_config" in record:
        name = record.get("module_output_name")
        checked_keys(path, {"module_output_name": name}, fixed={"module_output_name": ("token_embeddings",)})


def _limits_of_calls(path: Path, record: Mapping[str, Any]) -> dict[str, int | None]:
    """Limits set by the options of every tokenizer call; options for all inputs override those for texts."""
    processing = table_in(record, "processing_kwargs", path=path)
    checked_keys(path, processing, known=("text", "common", "audio", "image", "video", "chat_template"))
    call = {**table_in(processing, "text", path=path), **table_in(processing, "common", path=path)}
    checked_keys(path, call, known=IDLE_CALL | {"max_length"}, fixed=FIXED_CALL)
    neither: dict[str, int | None] = {"query_max_tokens": None, "document_max_tokens": None}
    if call.get("truncation") in (False, "do_not_truncate"):
        return {"max_tokens": UNLIMITED, **neither}
    if "max_length" not in call:
        return {}
    return neither if call["max_length"] is None else {"max_tokens": call["max_length"], **neither}
