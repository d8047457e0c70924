"""What the file beside a backbone says: where texts are cut, and with which options tokenizer and configuration are loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from adiabat.errors import ModelError
from adiabat.model.layout import UNLIMITED, checked_keys, position_rows, read_json

FAMILIES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
FILES = tuple(f"sentence_{family}_config.json" for family in FAMILIES)
"""Old versions named the file after the family; the first that says anything counts."""

KNOWN = frozenset(
    {
        *("max_seq_length", "query_length", "document_length", "do_lower_case"),
        *("modality_config", "module_output_name", "processing_kwargs"),
        *("model_kwargs", "model_args", "processor_kwargs", "tokenizer_args", "config_kwargs", "config_args"),
    }
)

LIMITS = {"max_tokens": "max_seq_length", "query_max_tokens": "query_length", "document_max_tokens": "document_length"}
"""Our names of the limits to the file's."""

FIXED: Mapping[str, tuple[object, ...]] = {
    "transformer_task": ("feature-extraction",),
    "query_expansion": (None,),
    "tokenizer_name_or_path": (None,),
    "unpad_inputs": (None, True, False),
}

OVERRULED = frozenset({"subfolder", "token", "cache_dir", "revision", "local_files_only", "trust_remote_code"})
"""Options that sentence-transformers takes from its caller, whatever a file says."""

IDLE_MODEL_OPTIONS = frozenset(
    {"dtype", "torch_dtype", "attn_implementation", "device_map", "low_cpu_mem_usage", "use_safetensors", "add_pooling_layer"}
)
"""Options that change no vector beyond its rounding: weights are always loaded in float32, and a pooler is never used."""

TOKENIZER_OPTIONS = frozenset(
    {
        *("truncation_side", "padding_side", "use_fast", "legacy", "clean_up_tokenization_spaces", "chat_template"),
        *("add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "strip_accents", "tokenize_chinese_chars"),
        *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    }
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
    {
        *("padding", "padding_side", "pad_to_multiple_of", "logits_to_keep", "verbose", "return_token_type_ids", "return_length"),
        *("return_special_tokens_mask", "return_offsets_mapping"),
    }
)
"""Options of a call that change no vector: what is padded is masked."""

FALLBACK_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TransformerSettings:
    """What the file says; empty where there is none.

    Attributes:
        max_tokens: Where texts are cut; None: where tokenizer and backbone say.
        query_max_tokens: Where queries are cut; None: as other texts.
        document_max_tokens: Where documents are cut; None: as other texts.
        lower_case: Whether texts are lower-cased before they are split.
        tokenizer: Options that the tokenizer is loaded with.
        config: Options that the backbone's configuration is loaded with.
    """

    max_tokens: int | None = None
    query_max_tokens: int | None = None
    document_max_tokens: int | None = None
    lower_case: bool = False
    tokenizer: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def read_transformer_settings(folder: Path) -> TransformerSettings:
    """Read the file beside a backbone, under any of its names."""
    path, record = next(((folder / name, record) for name in FILES if (record := read_json(folder / name))), (folder / FILES[0], {}))
    checked_keys(path, record, known=KNOWN, fixed=FIXED)
    _require_text_states(path, record)
    checked_keys(path, _options(path, record, "model_args", "model_kwargs"), known=IDLE_MODEL_OPTIONS)
    tokenizer = _options(path, record, "tokenizer_args", "processor_kwargs")
    checked_keys(path, tokenizer, known=TOKENIZER_OPTIONS | {"model_max_length"})
    config = _options(path, record, "config_args", "config_kwargs")
    checked_keys(path, {key: config[key] for key in ("auto_map", "code_revision", "gguf_file", "return_unused_kwargs") if key in config})
    limits = {
        "max_tokens": tokenizer.pop("model_max_length", record.get("max_seq_length")),
        "query_max_tokens": record.get("query_length"),
        "document_max_tokens": record.get("document_length"),
        **_limits_of_calls(path, record),
    }
    for name, limit in limits.items():
        if limit is not None and type(limit) is not int:
            raise ModelError(f"{path}: {LIMITS[name]} must be a whole number, got {limit!r}; correct it")
    return TransformerSettings(**limits, lower_case=bool(record.get("do_lower_case")), tokenizer=tokenizer, config=config)


def _options(path: Path, record: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Options under their old name, which sentence-transformers puts first, or their new one."""
    options = record.get(old if old in record else new) or {}
    if not isinstance(options, dict):
        raise ModelError(f"{path}: {old if old in record else new} must map names to values, got {options!r:.60}; correct it")
    return {key: value for key, value in options.items() if key not in OVERRULED}


def _require_text_states(path: Path, record: Mapping[str, Any]) -> None:
    """Refuse a backbone that takes texts as chat messages, or gives something else than the states of tokens."""
    kinds = record.get("modality_config", {"text": {"method": "forward", "method_output_name": "last_hidden_state"}})
    text = kinds.get("text") if isinstance(kinds, dict) else None
    if not isinstance(text, dict) or "message" in kinds:
        raise ModelError(f"{path}: modality_config must have texts, and no messages of a chat, got {kinds!r:.80}; choose another model")
    checked_keys(
        path, text, known={"format"}, fixed={"method": ("forward",), "method_output_name": ("last_hidden_state", ["last_hidden_state"])}
    )
    if "modality_config" in record:
        checked_keys(path, {"module_output_name": record.get("module_output_name")}, fixed={"module_output_name": ("token_embeddings",)})


def _limits_of_calls(path: Path, record: Mapping[str, Any]) -> dict[str, int | None]:
    """What the options of every call of the tokenizer change of the limits; those of all inputs go before those of texts."""
    processing = record.get("processing_kwargs") or {}
    checked_keys(path, processing, known=("text", "common", "audio", "image", "video", "chat_template"))
    call = {**(processing.get("text") or {}), **(processing.get("common") or {})}
    checked_keys(path, call, known=IDLE_CALL | {"max_length"}, fixed=FIXED_CALL)
    neither: dict[str, int | None] = {"query_max_tokens": None, "document_max_tokens": None}
    if call.get("truncation") in (False, "do_not_truncate"):
        return {"max_tokens": UNLIMITED, **neither}
    if "max_length" not in call:
        return {}
    return neither if call["max_length"] is None else {"max_tokens": call["max_length"], **neither}


def default_max_tokens(tokenizer_limit: int, backbone: PreTrainedModel, *, plain: bool) -> int:
    """Where texts are cut if no file of sentence-transformers says so: the lesser of the tokenizer's and the backbone's limits."""
    stated = getattr(backbone.config, "max_position_embeddings", None)
    positions = position_rows(backbone) or (stated if stated and stated > 0 else UNLIMITED)
    limit = min(tokenizer_limit, positions)
    return int(limit) if limit < UNLIMITED else FALLBACK_MAX_TOKENS if plain else UNLIMITED
