"""The small files of a sentence-transformers directory: reading its old and new forms, writing the form that both read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from adiabat.errors import ModelError
from adiabat.model.encoder import EncoderSettings
from adiabat.model.pooling import Pooling

NAMES_OF_POOLING: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last", "max": "max", "weightedmean": "weighted_mean"}
"""Names in ``1_Pooling/config.json`` to ours."""

OLD_POOLING_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}

ROOT_FILE = "config_sentence_transformers.json"

UNLIMITED = 1_000_000
"""transformers writes about 1e30 for a tokenizer that states no limit; anything from here on means none."""

FALLBACK_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Module:
    """One module of a sentence-transformers directory: the last part of its type, and its folder."""

    kind: str
    folder: Path


def read_json(path: Path) -> dict[str, Any]:
    """Read one small JSON file.

    Args:
        path: May be missing.

    Returns:
        Its object; empty where the file is missing.

    Raises:
        ModelError: If it is not a JSON object.
    """
    return _read(path, dict) if path.is_file() else {}


def _read(path: Path, wanted: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as fault:
        raise ModelError(f"{path} must be readable JSON: {fault}") from fault
    if not isinstance(content, wanted):
        raise ModelError(f"{path} must hold a JSON {'object' if wanted is dict else 'list'}, got {type(content).__name__}")
    return content


def needed(record: Mapping[str, Any], *keys: str, where: Path) -> tuple[Any, ...]:
    """Values that a file must hold.

    Args:
        record: What was read.
        *keys: The keys wanted.
        where: The file, for the message.

    Returns:
        One value per key, in their order.

    Raises:
        ModelError: If any is missing.
    """
    missing = [key for key in keys if key not in record]
    if missing:
        raise ModelError(f"{where} must hold {', '.join(missing)}, got {', '.join(record) or 'nothing'}")
    return tuple(record[key] for key in keys)


def write_json(path: Path, content: object) -> None:
    """Write one small JSON file.

    Args:
        path: Replaced where it exists.
        content: Plain data.
    """
    path.write_text(json_text(content), encoding="utf-8")


def json_text(content: object) -> str:
    """A small JSON file.

    Args:
        content: Plain data.

    Returns:
        Its text.
    """
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_modules(folder: Path) -> list[Module]:
    """The modules of a directory, in order.

    Args:
        folder: Of the model.

    Returns:
        The modules; empty for a plain Hugging Face model.

    Raises:
        ModelError: If the file is no list of modules, or an empty one.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return []
    entries = _read(path, list)
    if not entries or not all(isinstance(entry, dict) and isinstance(entry.get("path", ""), str) for entry in entries):
        raise ModelError(f"{path} must hold a list of modules with their types and paths, got {entries!r:.80}")
    named = [needed(entry, "type", "path", where=path) for entry in entries]
    return [Module(_kind(dotted), folder / part) for dotted, part in named]


def _kind(dotted: object) -> str:
    return str(dotted).rsplit(".", 1)[-1]


def read_routes(folder: Path) -> dict[str, list[Module]]:
    """The two towers of a Router.

    Args:
        folder: Where ``router_config.json`` is.

    Returns:
        Modules under ``query`` and ``document``.

    Raises:
        ModelError: If a route is missing, empty, or names a module that has no type.
    """
    path = folder / "router_config.json"
    types, structure = needed(read_json(path), "types", "structure", where=path)
    if not isinstance(types, dict) or not isinstance(structure, dict):
        raise ModelError(f"{path}: types and structure must map names, got {types!r:.40} and {structure!r:.40}")
    if not all(structure.get(side) for side in ("query", "document")):
        raise ModelError(f"{path} must have routes query and document, got {', '.join(structure) or 'none'}")
    routes = {side: list(structure[side]) for side in ("query", "document")}
    needed(types, *dict.fromkeys(name for names in routes.values() for name in names), where=path)
    return {side: [Module(_kind(types[name]), folder / name) for name in names] for side, names in routes.items()}


def pooling_of(folder: Path) -> tuple[Pooling, bool]:
    """The pooling of a directory and whether it includes the prompt.

    Args:
        folder: Of the Pooling module.

    Returns:
        Name, and ``include_prompt``.

    Raises:
        ModelError: If it is a combination, or one that adiabat does not have.
    """
    config = read_json(folder / "config.json")
    if "pooling_mode" in config:
        named = config["pooling_mode"]
        modes = list(map(str, named)) if isinstance(named, list) else [str(named)]
        found = [NAMES_OF_POOLING.get(mode) for mode in modes]
    else:
        modes = [flag for flag, on in config.items() if flag.startswith("pooling_mode_") and on]
        found = [OLD_POOLING_FLAGS.get(flag) for flag in modes]
    if len(found) != 1 or found[0] is None:
        raise ModelError(f"{folder}/config.json must name one pooling of {', '.join(NAMES_OF_POOLING)}, got {', '.join(modes) or 'none'}")
    return found[0], bool(config.get("include_prompt", True))


def prompts_of(folder: Path) -> tuple[str, str]:
    """Prompts for query and document.

    A model that names a prompt for passages and none for documents gets it for its documents: ``encode_document`` of sentence-transformers
    6.2 would put nothing before them, and the model was not trained so.

    Args:
        folder: Of the model.

    Returns:
        Query prompt and document prompt, "" for none.

    Raises:
        ModelError: If the prompts are not texts by name.
    """
    path = folder / ROOT_FILE
    prompts = read_json(path).get("prompts") or {}
    if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
        raise ModelError(f"{path}: prompts must map names to texts, got {prompts!r:.80}")
    document = next((prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name) is not None), "")
    return prompts.get("query") or "", document


def max_tokens_of(folder: Path, tokenizer_limit: int, backbone: PreTrainedModel) -> int:
    """Where texts are cut: the directory's word, else the lesser of the tokenizer's and the backbone's limits.

    Args:
        folder: Of the Transformer module.
        tokenizer_limit: ``model_max_length`` of the tokenizer.
        backbone: Whose positions count.

    Returns:
        Tokens, special tokens included.

    Raises:
        ModelError: If the directory's word is no whole number.
    """
    path = folder / "sentence_bert_config.json"
    stated = read_json(path).get("max_seq_length")
    if stated is not None and type(stated) is not int:
        raise ModelError(f"{path}: max_seq_length must be a whole number, got {stated!r}")
    if stated:
        return stated
    positions = position_rows(backbone) or getattr(backbone.config, "max_position_embeddings", None) or UNLIMITED
    limit = min(tokenizer_limit, positions)
    return int(limit) if limit < UNLIMITED else FALLBACK_MAX_TOKENS


def position_rows(backbone: PreTrainedModel) -> int | None:
    """How many positions a backbone has a row for.

    Args:
        backbone: Any layout.

    Returns:
        Rows of the table of absolute positions that text may use; None where positions are relative or rotary, hence unbounded.
    """
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in ("position_embeddings", "wpe"):
            # RoBERTa and its relatives count positions from behind the padding id: rows up to it are no positions of text.
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    return None


def write_transformer_settings(folder: Path, settings: EncoderSettings, *, lower_case: bool) -> None:
    """Write the limit of texts beside a backbone.

    Args:
        folder: Of the Transformer module.
        settings: What to write.
        lower_case: Whether texts are lower-cased before they are split.
    """
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": settings.max_tokens, "do_lower_case": lower_case})


def write_pooling(folder: Path, settings: EncoderSettings, *, hidden_size: int) -> None:
    """Write how token states become one vector.

    Args:
        folder: Of the Pooling module.
        settings: What to write.
        hidden_size: Width of the token states (D).
    """
    flags = {flag: ours == settings.pooling for flag, ours in OLD_POOLING_FLAGS.items()}
    write_json(
        folder / "config.json",
        {
            "word_embedding_dimension": hidden_size,
            **flags,
            "pooling_mode_mean_sqrt_len_tokens": False,
            "include_prompt": settings.pool_prompt,
        },
    )


def write_root_configuration(folder: Path, stated: Mapping[str, Any], *, query_prompt: str, document_prompt: str) -> None:
    """Write the root configuration; both prompts are written even where empty, so that no default takes their place.

    Args:
        folder: Of the model.
        stated: What the model said when it was loaded: its other prompts, default prompt and similarity are kept.
        query_prompt: Put before queries.
        document_prompt: Put before documents.
    """
    write_json(
        folder / ROOT_FILE,
        {
            "model_type": "SentenceTransformer",
            "prompts": {**(stated.get("prompts") or {}), "query": query_prompt, "document": document_prompt},
            "default_prompt_name": stated.get("default_prompt_name"),
            "similarity_fn_name": stated.get("similarity_fn_name") or "cosine",
        },
    )
