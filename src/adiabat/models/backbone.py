"""Loading the transformer and tokenizer of a folder: class, permission to run code, number of blocks,
completeness of weights.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers.normalizers import Lowercase, Normalizer
from tokenizers.normalizers import Sequence as Chain
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from adiabat.core.errors import ConfigError, ModelError, first_line, reraise_unrelated
from adiabat.models.json_files import exists, read_json, require_switches
from adiabat.models.lost_files import require_shards
from adiabat.models.st_files import PICKLES, required
from adiabat.models.st_modules import CONFIG_SWITCHES, TOKENIZER_SWITCHES, TransformerSettings

ENCODERS: Mapping[str, str] = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
}
"""Families of which only the encoder is loaded, with its class, whose module loads at use; the configuration
of a saved encoder no longer tells."""

COUNTED_FROM_THE_END: Mapping[str, int] = {"num_hidden_groups": 1, "num_kv_shared_layers": 0}
"""Settings that make a block's weights depend on the number of blocks if they exceed this value (ALBERT,
Gemma 3n)."""

HEADS_FOR_WORDS = re.compile(
    r"(?:\w+\.)?(?:pooler|decoder|lm_head|embed_out|lm_loss|pred_layer|final_logits_bias|vocab_\w+|head\.(?:dense|norm)"
    r"|cls\.\w+|\w*predictions|generator_\w+|sop_classifier|embeddings\.position_ids)(?:\.|$)|.*\b(?:inv_freq|masked_bias|attn\.bias)$"
)
"""Weights in files of pre-trained models that are not part of the backbone: poolers, pre-training heads, and
computed tables."""

BLOCK = re.compile(r"\.\d+\.")


@dataclass(frozen=True, slots=True)
class Trust:
    """Permissions of loading beyond reading plain data.

    Attributes:
        remote_code: Name of the model, exactly as it is loaded, whose own Python code may run; None runs
            none. Code of another repository never runs.
        pickles: Whether weights may be read from a pickle (``pytorch_model.bin``), which can run code.
    """

    remote_code: str | None = None
    pickles: bool = False


def load_backbone(
    folder: Path,
    trust: Trust,
    *,
    blocks: int | None = None,
    options: Mapping[str, Any] | None = None,
    adapter: Path | None = None,
) -> PreTrainedModel:
    """Load a transformer, float32, on the CPU.

    Everything that transformers would take in silence is checked before or afterwards: files outside the
    folder, foreign code, switches of other types, and weights that are missing or left over.

    Args:
        blocks: Number of leading blocks to load; None loads all.
        adapter: Folder of a low-rank adapter to merge into the weights; None for none, or for one in
            `folder`.
    """
    code = trust.remote_code is not None
    require_files_inside(folder, trust)
    adapted = adapter or folder
    if exists(adapted / "adapter_config.json"):
        _require_mergeable(adapted)
    require_switches(read_json(folder / "config.json"), CONFIG_SWITCHES, path=folder / "config.json")
    with as_model_error(folder, trust):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=code, **(options or {}))
    # Either setting could make transformers fetch compiled kernels from the hub and run them; None uses
    # torch's own.
    config._attn_implementation = config._experts_implementation = None
    if blocks is not None:
        config = first_blocks(config, blocks)
    loader = _loader(config, folder)
    # A pooler missing from the files is random but unused by embeddings; make it the same in every run.
    with as_model_error(folder, trust), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        backbone, report = loader.from_pretrained(
            folder,
            config=config,
            trust_remote_code=code,
            use_safetensors=None if trust.pickles else True,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    shortened = blocks is not None or "num_hidden_layers" in (options or {})
    _check_weights(folder, type(backbone).__name__, report, shortened=shortened)
    if adapter is not None:
        _load_adapter(backbone, adapter, trust, shortened=shortened)
    if hasattr(backbone, "peft_config"):
        from adiabat.models.adapters import merge_adapters

        # Adapters beside the weights are loaded with them; a saved model must be complete without them.
        backbone = merge_adapters(backbone)
    if any(type(module).__module__.startswith("peft.") for module in backbone.modules()):
        raise ModelError(f"{adapter or folder} must hold an adapter that adiabat can merge; {MERGE_FIRST}")
    # Included in the fingerprint, and written again when the model is saved.
    backbone.__dict__["config_options"] = dict(options or {})
    loaded: PreTrainedModel = backbone
    return loaded


def base_of_adapter(folder: Path) -> str | None:
    """Directory or hub name of an adapter's base model; None if the folder holds a whole model."""
    path = folder / "adapter_config.json"
    if not exists(path) or exists(folder / "config.json"):
        return None
    (base,) = required(read_json(path), "base_model_name_or_path", path=path)
    if not isinstance(base, str) or not base:
        raise ModelError(
            f"{path} must name the adapter's base model in base_model_name_or_path, "
            f"got {base!r}; merge the adapter into it"
        )
    return base


def _load_adapter(backbone: PreTrainedModel, folder: Path, trust: Trust, *, shortened: bool) -> None:
    """Add an adapter's weights to the layers that it adapts; weights of blocks that were not loaded are
    dropped.
    """
    with as_model_error(folder, trust):
        report = backbone.load_adapter(str(folder), ignore_mismatched_sizes=True)
    shapes = [name for name, *_ in report.mismatched_keys]
    left_over = [name for name in report.unexpected_keys if not (shortened and BLOCK.search(name))]
    if faults := sorted([*report.missing_keys, *left_over, *shapes]):
        raise ModelError(
            f"{folder} must hold an adapter of {type(backbone).__name__}; {len(faults)} "
            "of its weights are missing, left over or "
            f"of another shape, such as {', '.join(faults[:3])}; if peft loads it, {MERGE_FIRST}"
        )


MERGE_FIRST = "merge it first (peft's merge_and_unload), save the merged model, and name that"

MERGEABLE = frozenset(("LORA", "IA3", "LOHA", "LOKR", "OFT", "BOFT", "HRA", "FOURIERFT", "LN_TUNING", "C3A"))
"""Kinds of adapters that transformers loads whole beside a backbone, and that become part of its weights."""

ADAPTER_SWITCHES = ("use_rslora", "use_dora", "fan_in_fan_out", "lora_bias", "use_qalora")

UNMERGED = ("use_dora", "use_bdlora", "alora_invocation_tokens", "layer_replication")
"""Keys of a LoRA adapter that transformers loads in part, or that depend on the text."""


def _require_mergeable(folder: Path) -> None:
    """Refuse an adapter that cannot be merged, or not by adiabat, and one without its weights."""
    path = folder / "adapter_config.json"
    record = read_json(path)
    require_switches(record, ADAPTER_SWITCHES, path=path)
    kind = record.get("peft_type")
    if kind not in MERGEABLE:
        raise ModelError(
            f"{path}: peft_type must be {' or '.join(sorted(MERGEABLE))}, got {kind!r}; {MERGE_FIRST}, "
            "or choose another model if it adds tokens to each text"
        )
    for name in UNMERGED:
        if record.get(name):
            raise ModelError(
                f"{path}: {name} must be unset for adiabat to merge the adapter, "
                f"got {record[name]!r:.40}; {MERGE_FIRST}"
            )
    # transformers would open a pickle.
    if not exists(folder / "adapter_model.safetensors"):
        raise ModelError(
            f"{folder} must hold adapter_model.safetensors, which adapter_config.json "
            "asks for; save the adapter again with peft"
        )


def require_files_inside(folder: Path, trust: Trust) -> None:
    """Refuse weight file names that point out of the folder, and code of another repository."""
    shards = read_json(folder / "model.safetensors.index.json").get("weight_map") or {}
    stated = read_json(folder / "config.json").get("transformers_weights")
    names = {stated, *shards.values()} - {None}
    if faults := sorted(str(name) for name in names if Path(str(name)).name != name):
        raise ModelError(
            f"{folder} must name files of its own for its weights, got {faults[0]!r}; "
            "copy that file into the model's folder"
        )
    require_shards(folder, set(shards.values()))
    if trust.remote_code is None:
        return
    for name in ("config.json", "tokenizer_config.json"):
        classes = read_json(folder / name).get("auto_map") or {}
        lists = (entry if isinstance(entry, list) else [entry] for entry in classes.values())
        for entry in chain.from_iterable(lists):
            repository, dashes, _ = str(entry).partition("--")
            if dashes and repository != trust.remote_code:
                raise ModelError(
                    f"{folder / name} must name code of the model itself, got code of {repository}; "
                    "copy that code into the model's directory, and load the directory"
                )


def first_blocks(config: PretrainedConfig, blocks: int) -> PretrainedConfig:
    """The configuration of a transformer cut after its leading blocks; a final norm follows the last of
    them.
    """
    count = getattr(config, "num_hidden_layers", None)
    limits = COUNTED_FROM_THE_END.items()
    if not isinstance(count, int) or any(getattr(config, name, usual) > usual for name, usual in limits):
        raise _uncuttable(config, blocks, "blocks are not counted one by one in its config.json")
    if not 1 <= blocks <= count:
        raise ConfigError(
            f"encoder.blocks must be from 1 to {count}, the blocks that the backbone has, got {blocks}"
        )
    record = config.to_dict()
    for name, value in record.items():
        # Settings with an entry per block, such as `layer_types` and `no_rope_layers`.
        if isinstance(value, list) and "layer" in name and len(value) == count:
            record[name] = value[:blocks]
    stored = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    try:
        # Built again, so that the family derives other settings from the number of blocks, and checks them.
        shorter = type(config).from_dict({**record, stored: blocks})
    except Exception as fault:
        reraise_unrelated(fault)
        raise _uncuttable(config, blocks, first_line(fault)) from fault
    return shorter


def _uncuttable(config: PretrainedConfig, blocks: int, reason: str) -> ConfigError:
    """The error for a backbone that cannot be cut after some of its blocks."""
    return ConfigError(
        f"encoder.blocks must be left out for a backbone of type {config.model_type}, got {blocks}: {reason}"
    )


def _silent_bar(_: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> object:
    """A progress bar that shows nothing."""
    return transformers_logging.EmptyTqdm(*args, **kwargs)  # type: ignore[no-untyped-call]


@contextmanager
def quietly() -> Iterator[None]:
    """Silence transformers' progress bars and load reports; this module checks what they would warn of."""
    level = transformers_logging.get_verbosity()
    # `disable_progress_bar` would also change the hub's bars, past restoring.
    hook = transformers_logging.set_tqdm_hook(_silent_bar)
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.set_tqdm_hook(hook)


@contextmanager
def as_model_error(folder: Path, trust: Trust) -> Iterator[None]:
    """Report whatever transformers raises as a fault of the model, with advice for the usual causes."""
    try:
        with quietly():
            yield
    except BaseException as fault:
        # A configuration can make transformers, or the model's own code, fail in any way.
        reraise_unrelated(fault)
        hint = ""
        if not trust.remote_code and read_json(folder / "config.json").get("auto_map"):
            hint = "; its own Python code runs only where encoder.trust_remote_code names this model"
        elif not trust.pickles and not list(folder.glob("*.safetensors")):
            hint = f"; {PICKLES}"
        raise ModelError(f"{folder} must hold a transformers model: {reason(fault)}{hint}") from fault


def reason(fault: BaseException) -> str:
    """Another library's message, preceded by the class of its error if the message is not a sentence for
    users.
    """
    readable = isinstance(fault, (OSError, ValueError))
    return first_line(fault) if readable else f"{type(fault).__name__}: {first_line(fault)}"


def _check_weights(folder: Path, architecture: str, report: Mapping[str, Any], *, shortened: bool) -> None:
    """Refuse a model with missing weights, except a pooler's, or with unexpected weights that embeddings
    could depend on.

    Unexpected weights of a pre-training head, and of blocks that were not loaded, are accepted.
    """
    absent = [*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])]
    if faults := sorted(name for name in absent if not name.startswith("pooler.")):
        raise ModelError(
            f"{folder} must hold the weights that its config.json describes ({architecture}); "
            f"{len(faults)} are missing or of another shape, such as {', '.join(faults[:3])}"
        )
    left_over = (name for name in report["unexpected_keys"] if not (shortened and BLOCK.search(name)))
    if faults := sorted(name for name in left_over if not HEADS_FOR_WORDS.match(name)):
        raise ModelError(
            f"{folder} must hold the weights of an embedding model alone; {len(faults)} belong to something "
            f"on top of it, such as a classifier or a layer of late interaction: {', '.join(faults[:3])}; "
            "choose another model, or save it without them"
        )


def _loader(config: PretrainedConfig, folder: Path) -> Any:
    """The class of transformers that loads the part of a model which embeds texts."""
    if config.model_type in ENCODERS:
        return getattr(transformers, ENCODERS[config.model_type])
    if not config.is_encoder_decoder:
        return AutoModel
    if type(config) not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        raise ModelError(
            f"{folder} must hold an encoder or a decoder, got both halves of type {config.model_type}; "
            f"adiabat takes only the encoder half of {', '.join(ENCODERS)}; choose another model"
        )
    return AutoModelForTextEncoding


TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")
"""Files that may hold the vocabulary; without one, transformers would build a tokenizer with an empty
vocabulary."""

TOKENIZER_JSON = ("tokenizer.json", "vocab.json", "added_tokens.json", "special_tokens_map.json")
"""Files of a tokenizer that hold a JSON object; ``tokenizer_config.json`` is read before."""


LISTED_TOKENS = 8
"""Maximum number of special tokens named in a message; some tokenizers have hundreds."""


def load_tokenizer(
    folder: Path, trust: Trust, *, pad_token: str | None = None, settings: TransformerSettings | None = None
) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer."""
    settings = settings or TransformerSettings()
    if not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise ModelError(f"{folder} must hold a tokenizer, got none of {', '.join(TOKENIZER_FILES)}")
    _require_tokenizer_settings(folder / "tokenizer_config.json")
    try:
        with quietly():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=trust.remote_code is not None, **settings.tokenizer
            )
    except BaseException as fault:
        reraise_unrelated(fault)
        # A damaged file is named; transformers does not say which it was.
        for name in TOKENIZER_JSON:
            read_json(folder / name)
        raise ModelError(f"{folder} must hold a tokenizer: {reason(fault)}") from fault
    if not tokenizer.is_fast:
        raise ModelError(
            f"{folder} must hold a fast tokenizer (tokenizer.json); convert it with transformers first"
        )
    if any(tokenizer("a").get("token_type_ids", ())):
        raise ModelError(
            f"{folder} must hold a tokenizer that gives texts token types of 0, "
            "got others, which adiabat does not support"
        )
    # `save_pretrained` writes it, whichever file stated it.
    tokenizer.init_kwargs["truncation_side"] = tokenizer.truncation_side
    # sentence-transformers keeps lower-casing beside the tokenizer; here it becomes part of it, unless it is.
    normalizers = normalizers_of(tokenizer)
    lowers = any(isinstance(each, Lowercase) or getattr(each, "lowercase", False) for each in normalizers)
    if settings.lower_case and not lowers:
        tokenizer.backend_tokenizer.normalizer = Chain([Lowercase(), *normalizers])
    if pad_token is not None:
        set_pad_token(tokenizer, pad_token)
    return tokenizer


def _require_tokenizer_settings(path: Path) -> None:
    """Refuse settings of a tokenizer that transformers would take in silence and read differently."""
    stated = read_json(path)
    require_switches(stated, TOKENIZER_SWITCHES, path=path)
    limit = stated.get("model_max_length")
    # Infinity, or a float such as 1e30, stands for no limit.
    if limit in (None, float("inf")):
        return
    if isinstance(limit, bool) or not isinstance(limit, int | float) or limit % 1:
        raise ModelError(f"{path}: model_max_length must be a whole number, got {limit!r:.60}; correct it")


def set_pad_token(tokenizer: PreTrainedTokenizerBase, token: str) -> None:
    """Set a special token as padding for a tokenizer without one.

    Padding is masked, so vectors do not change.

    A tokenizer with a padding token keeps it, because one setting may cover several models. Ordinary tokens
    are refused: saving would make them special, and texts that contain them would be split differently.
    """
    if tokenizer.pad_token_id is not None:
        return
    known = special_tokens(tokenizer)
    if token not in known:
        names = ", ".join(map(repr, known[:LISTED_TOKENS])) or "it has none"
        raise ConfigError(
            "encoder.pad_token must be one of the tokenizer's special tokens "
            f"({names}), got {token!r}; choose another"
        )
    tokenizer.pad_token = token


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Tokens that are never part of a word, by id."""
    added = tokenizer.added_tokens_decoder
    return [added[number].content for number in sorted(added) if added[number].special]


def require_pad_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that cannot pad, because sentence-transformers needs padding; adiabat does not."""
    if tokenizer.pad_token_id is not None:
        return
    known = special_tokens(tokenizer)
    usual = tokenizer.eos_token if tokenizer.eos_token in known else next(iter(known), None)
    advice = (
        f'set encoder.pad_token = "{usual}"' if usual else "give the tokenizer a special token to pad with"
    )
    raise ModelError(
        "the tokenizer must have a padding token, got none: sentence-transformers "
        f"needs one to encode with what is saved; {advice}"
    )


def normalizers_of(tokenizer: PreTrainedTokenizerBase) -> list[Normalizer]:
    """The normalizers of a tokenizer, which change a text before it is split."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None:
        return []
    return [normalizer[i] for i in range(len(normalizer))] if isinstance(normalizer, Chain) else [normalizer]
