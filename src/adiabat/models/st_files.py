"""The small files of a sentence-transformers directory: reading its old and new forms, writing the form that both read.

Every key that sentence-transformers reads is honoured, or refused by its name: a model that is read in part gives other vectors.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from adiabat.core.errors import ModelError
from adiabat.core.files import reading
from adiabat.models.embedding_head import EncoderSettings, Pooling

NAMES_OF_POOLING: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last", "max": "max", "weightedmean": "weighted_mean"}
"""Names in ``1_Pooling/config.json`` to ours."""

OLD_POOLING_FLAGS: Mapping[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_lasttoken": "last",
}

POOLING_KEYS = frozenset(
    {
        *("embedding_dimension", "word_embedding_dimension", "pooling_mode", "include_prompt"),
        *(*OLD_POOLING_FLAGS, "pooling_mode_mean_sqrt_len_tokens"),
    }
)

IN_AND_OUT: Mapping[str, tuple[str | None, ...]] = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
}
"""What a module that follows the pooling takes, and what it gives."""

ROOT_FILE = "config_sentence_transformers.json"

UNLIMITED = 1_000_000
"""transformers writes about 1e30 for a tokenizer that states no limit; anything from here on means none."""


def read_json(path: Path) -> dict[str, Any]:
    """Read one small JSON file.

    Returns:
        Its object; empty where the file is missing.
    """
    return _read(path, dict) if path.is_file() else {}


def read_list(path: Path) -> list[Any]:
    """Read one small JSON file."""
    content: list[Any] = _read(path, list)
    return content


def _read(path: Path, wanted: type) -> Any:
    with reading(path, remedy="get the model again", error=ModelError):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, wanted):
        raise ModelError(f"{path} must hold a JSON {'object' if wanted is dict else 'list'}, got {type(content).__name__}")
    return content


def checked_keys(
    path: Path, record: Mapping[str, Any], *, known: Collection[str] = (), fixed: Mapping[str, Collection[object]] | None = None
) -> None:
    """Refuse what adiabat would not go by: a key that it does not know, and one with a value that it cannot honour."""
    fixed = fixed or {}
    if unknown := [key for key in record if key not in known and key not in fixed]:
        raise ModelError(
            f"{path} must hold no key that adiabat does not know, got {', '.join(unknown)}; update adiabat, or choose another model"
        )
    for key, values in fixed.items():
        if key in record and record[key] not in values:
            usual = next(iter(values))
            raise ModelError(
                f"{path}: {key} must be {'null' if usual is None else usual}, got {record[key]!r:.60}, which adiabat does not have; "
                "choose another model"
            )


def needed(record: Mapping[str, Any], *keys: str, where: Path) -> tuple[Any, ...]:
    """Values that a file must hold.

    Returns:
        One value per key, in their order.
    """
    missing = [key for key in keys if key not in record]
    if missing:
        raise ModelError(f"{where} must hold {', '.join(missing)}, got {', '.join(record) or 'nothing'}")
    return tuple(record[key] for key in keys)


def write_json(path: Path, content: object) -> None:
    """Write one small JSON file."""
    path.write_text(json_text(content), encoding="utf-8")


def json_text(content: object) -> str:
    """A small JSON file."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def pooling_of(folder: Path) -> tuple[Pooling, bool]:
    """The pooling of a directory and whether it includes the prompt."""
    config = read_json(folder / "config.json")
    checked_keys(folder / "config.json", config, known=POOLING_KEYS)
    if "pooling_mode" in config:
        named = config["pooling_mode"]
        modes = list(map(str, named)) if isinstance(named, list) else [str(named)]
        found = [NAMES_OF_POOLING.get(mode) for mode in modes]
    else:
        modes = [flag for flag, on in config.items() if flag.startswith("pooling_mode_") and on]
        modes = modes or (["pooling_mode_mean_tokens"] if config else [])
        found = [OLD_POOLING_FLAGS.get(flag) for flag in modes]
    if len(found) != 1 or found[0] is None:
        raise ModelError(f"{folder}/config.json must name one pooling of {', '.join(NAMES_OF_POOLING)}, got {', '.join(modes) or 'none'}")
    return found[0], bool(config.get("include_prompt", True))


def prompts_of(folder: Path) -> tuple[str, str]:
    """Prompts for query and document.

    A model that names a prompt for passages and none for documents gets it for its documents: ``encode_document`` of sentence-transformers
    6.2 would put nothing before them, and the model was not trained so.

    Returns:
        Query prompt and document prompt, "" for none.
    """
    path = folder / ROOT_FILE
    root = read_json(path)
    prompts = root.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(text is None or isinstance(text, str) for text in prompts.values()):
        raise ModelError(f"{path}: prompts must map names to texts, got {prompts!r:.80}")
    default = root.get("default_prompt_name")
    if default is not None and default not in (*prompts, "query", "document"):
        raise ModelError(
            f"{path}: default_prompt_name must be one of the prompts ({', '.join(prompts) or 'none'}), got {default!r}; correct it"
        )
    document = next((prompts[name] for name in ("document", "passage", "corpus") if prompts.get(name) is not None), "")
    return prompts.get("query") or "", document


def truncate_dim_of(folder: Path) -> int | None:
    """How many numbers of an embedding are kept.

    Returns:
        The first so many; None for all.
    """
    stated: int | None = read_json(folder / ROOT_FILE).get("truncate_dim")
    if stated is not None and (type(stated) is not int or stated < 1):
        raise ModelError(f"{folder / ROOT_FILE}: truncate_dim must be a whole number above 0, or null for none, got {stated!r}; correct it")
    return stated


def require_plain_normalize(folder: Path) -> None:
    """Refuse a Normalize module that does not bring the text's vector to unit length."""
    config = read_json(folder / "config.json")
    checked_keys(folder / "config.json", config, known=set(config), fixed=IN_AND_OUT)


def position_rows(backbone: PreTrainedModel) -> int | None:
    """How many positions a backbone has a row for.

    Returns:
        Rows of the table of absolute positions that text may use; None where positions are relative or rotary, hence unbounded.
    """
    for name, module in backbone.named_modules():
        if isinstance(module, nn.Embedding) and name.rsplit(".", 1)[-1] in ("position_embeddings", "wpe", "embed_positions"):
            # RoBERTa and its relatives count positions from behind the padding id, OPT from 2: rows before are no positions of text.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - int(getattr(module, "offset", unused))
    # GPT-J keeps angles in a table of its own in every block.
    angles = (buffer for name, buffer in backbone.named_buffers() if name.endswith(".embed_positions"))
    return next((len(table) for table in angles), None)


def write_transformer_settings(folder: Path, settings: EncoderSettings, *, lower_case: bool, options: Mapping[str, Any]) -> None:
    """Write the limit of texts beside a backbone."""
    sides = {"query_length": settings.query_max_tokens, "document_length": settings.document_max_tokens}
    # Versions before 6 refuse keys that they do not know, so those are written only where they say something.
    given = {key: limit for key, limit in sides.items() if limit is not None} | ({"config_args": dict(options)} if options else {})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": settings.max_tokens, "do_lower_case": lower_case, **given})


def write_pooling(folder: Path, settings: EncoderSettings, *, hidden_size: int) -> None:
    """Write how token states become one vector."""
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


def write_root_configuration(
    folder: Path, stated: Mapping[str, Any], *, query_prompt: str, document_prompt: str, truncate_dim: int | None
) -> None:
    """Write the root configuration; both prompts are written even where empty, so that no default takes their place.

    Args:
        truncate_dim: How many numbers of an embedding are kept; None keeps all.
    """
    write_json(
        folder / ROOT_FILE,
        {
            "model_type": "SentenceTransformer",
            "prompts": {**(stated.get("prompts") or {}), "query": query_prompt, "document": document_prompt},
            "default_prompt_name": stated.get("default_prompt_name"),
            "similarity_fn_name": stated.get("similarity_fn_name") or "cosine",
            **({} if truncate_dim is None else {"truncate_dim": truncate_dim}),
        },
    )
