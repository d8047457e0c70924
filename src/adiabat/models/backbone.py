"""Loading transformers from a folder: which class, whose code may run, how many blocks, and whether the weights are all there."""

import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    LongT5EncoderModel,
    MT5EncoderModel,
    PretrainedConfig,
    PreTrainedModel,
    T5EncoderModel,
    UMT5EncoderModel,
)
from transformers.utils import logging as transformers_logging

from adiabat.core.errors import ConfigError, ModelError
from adiabat.models.adapters import merge_adapters
from adiabat.models.encoder import Encoder
from adiabat.models.st_files import needed, read_json
from adiabat.models.token_rows import table_rows

ENCODERS: Mapping[str, type[PreTrainedModel]] = {
    "t5": T5EncoderModel,
    "mt5": MT5EncoderModel,
    "umt5": UMT5EncoderModel,
    "longt5": LongT5EncoderModel,
}
"""Families of which only the encoder half is loaded; an encoder saved alone no longer says that it is one half of two."""

COUNTED_FROM_THE_END: Mapping[str, int] = {"num_hidden_groups": 1, "num_kv_shared_layers": 0}
"""Settings of a configuration which, above this value, make a block's weights depend on how many blocks there are (ALBERT, Gemma 3n)."""


HEADS_FOR_WORDS = re.compile(
    r"(?:\w+\.)?(?:pooler|decoder|lm_head|embed_out|lm_loss|pred_layer|final_logits_bias|vocab_\w+|head\.(?:dense|norm)"
    r"|cls\.\w+|\w*predictions|generator_\w+|sop_classifier|embeddings\.position_ids)(?:\.|$)|.*\b(?:inv_freq|masked_bias|attn\.bias)$"
)
"""Weights that files of pre-trained models hold beside the backbone: a pooler, what was trained to tell words or the order of sentences,
and tables that are computed anew."""

BLOCK = re.compile(r"\.\d+\.")


@dataclass(frozen=True, slots=True)
class Trust:
    """What loading may do beyond reading plain data.

    Attributes:
        remote_code: Name of the one model whose own Python code may run, exactly as it is loaded; None runs none. Code that the model
            takes from another repository never runs.
        pickles: Whether weights may come from a pickle (``pytorch_model.bin``), which can run code when read.
    """

    remote_code: str | None = None
    pickles: bool = False


def load_backbone(
    folder: Path, trust: Trust, *, blocks: int | None = None, options: Mapping[str, Any] | None = None, adapter: Path | None = None
) -> PreTrainedModel:
    """Load a transformer, float32, on the CPU.

    Args:
        blocks: Keep the first so many; the weights of the others are not loaded. None keeps all.
        adapter: Folder of a low-rank adapter that is merged into the weights; None: there is none, or it lies in `folder`.
    """
    code = trust.remote_code is not None
    _refuse_foreign_code(folder, trust)
    _require_adapter_weights(adapter or folder)
    _require_own_weights(folder)
    with _faults_told(folder, trust):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=code, **(options or {}))
    # Named in a file, either could have transformers fetch compiled kernels from the hub and run them; without, it takes torch's own.
    config._attn_implementation = config._experts_implementation = None
    if blocks is not None:
        config = first_blocks(config, blocks)
    loader = _loader(config, folder)
    # A pooler that the files lack, which no embedding reads, is drawn: the same in every run.
    with _faults_told(folder, trust), torch.random.fork_rng(devices=[]):
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
    _check_weights(folder, type(backbone).__name__, report)
    shortened = blocks is not None or "num_hidden_layers" in (options or {})
    _refuse_left_over(folder, report["unexpected_keys"], shortened=shortened)
    if adapter is not None:
        _load_adapter(backbone, adapter, trust, shortened=shortened)
    # Adapters that lie beside the weights are loaded with them; what is saved must be whole without them.
    merged = merge_adapters(backbone)
    if any(type(part).__module__.startswith("peft.") for part in merged.modules()):
        raise ModelError(f"{adapter or folder} must hold an adapter that can be merged into the weights; merge it with peft, and save that")
    # Part of the fingerprint, and written again when the model is saved.
    merged.__dict__["config_options"] = dict(options or {})
    return merged


def base_of_adapter(folder: Path) -> str | None:
    """The model that an adapter belongs to.

    Returns:
        Directory or hub name; None where the folder holds a whole model.
    """
    path = folder / "adapter_config.json"
    if not path.is_file() or (folder / "config.json").is_file():
        return None
    (base,) = needed(read_json(path), "base_model_name_or_path", where=path)
    if not isinstance(base, str) or not base:
        raise ModelError(f"{path} must name the adapter's base model in base_model_name_or_path, got {base!r}; merge the adapter into it")
    return base


def _load_adapter(backbone: PreTrainedModel, folder: Path, trust: Trust, *, shortened: bool) -> None:
    """Put an adapter's weights beside those of the layers that it adapts; those of blocks left out have no place."""
    with _faults_told(folder, trust):
        report = backbone.load_adapter(str(folder), ignore_mismatched_sizes=True)
    shapes = [name for name, *_ in report.mismatched_keys]
    left_over = [name for name in report.unexpected_keys if not (shortened and BLOCK.search(name))]
    if faults := sorted([*report.missing_keys, *left_over, *shapes]):
        raise ModelError(
            f"{folder} must hold an adapter of {type(backbone).__name__}; {len(faults)} of its weights are missing, left over or "
            f"of another shape, such as {', '.join(faults[:3])}"
        )


def _require_own_weights(folder: Path) -> None:
    """Refuse names of weight files that lead out of the folder."""
    shards = read_json(folder / "model.safetensors.index.json").get("weight_map") or {}
    named = {read_json(folder / "config.json").get("transformers_weights"), *shards.values()} - {None}
    if faults := sorted(str(name) for name in named if Path(str(name)).name != name):
        raise ModelError(f"{folder} must name files of its own for its weights, got {faults[0]!r}; copy that file into the model's folder")


def _require_adapter_weights(folder: Path) -> None:
    """Refuse an adapter without weights, or with weights in a pickle, which transformers would open."""
    if (folder / "adapter_config.json").is_file() and not (folder / "adapter_model.safetensors").is_file():
        raise ModelError(
            f"{folder} must hold adapter_model.safetensors, which adapter_config.json asks for; save the adapter again with peft"
        )


def first_blocks(config: PretrainedConfig, blocks: int) -> PretrainedConfig:
    """The configuration of a transformer that ends after its first blocks; a final norm, where there is one, follows the last of them."""
    count = getattr(config, "num_hidden_layers", None)
    if not isinstance(count, int) or any(getattr(config, name, usual) > usual for name, usual in COUNTED_FROM_THE_END.items()):
        raise _uncuttable(config, blocks, "blocks are not counted one by one in its config.json")
    if not 1 <= blocks <= count:
        raise ConfigError(f"encoder.blocks must be from 1 to {count}, the blocks that the backbone has, got {blocks}")
    record = {name: _cut(name, value, count, blocks) for name, value in config.to_dict().items()}
    stored = config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    try:
        # Built anew rather than changed in place, so that what the family derives from the number, and checks against it, follows.
        shorter = type(config).from_dict({**record, stored: blocks})
    except Exception as fault:
        raise _uncuttable(config, blocks, first_line(fault)) from fault
    return shorter


def _cut(name: str, value: object, count: int, blocks: int) -> object:
    """A list with one entry per block (``layer_types``, ``mlp_layer_types``, ``no_rope_layers``), cut; anything else as it is."""
    per_block = isinstance(value, list) and "layer" in name and len(value) == count
    return value[:blocks] if per_block else value  # type: ignore[index]


def _uncuttable(config: PretrainedConfig, blocks: int, reason: str) -> ConfigError:
    return ConfigError(f"encoder.blocks must be left out for a backbone of type {config.model_type}, got {blocks}: {reason}")


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' progress bars and load reports off stderr; what they would warn of is checked and raised here.

    The hook is used rather than ``disable_progress_bar``, which would also change the hub's bars, past restoring.
    """
    level = transformers_logging.get_verbosity()
    hook = transformers_logging.set_tqdm_hook(_no_bar)
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.set_tqdm_hook(hook)


def _no_bar(_: object, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return transformers_logging.EmptyTqdm(*given, **named)  # type: ignore[no-untyped-call]


@contextmanager
def _faults_told(folder: Path, trust: Trust) -> Iterator[None]:
    try:
        with quietly():
            yield
    except Exception as fault:
        # A foreign configuration can make any part of transformers, or the model's own code, fail in any way.
        raise ModelError(f"{folder} must hold a transformers model: {reason(fault)}{_hint(folder, trust)}") from fault


def first_line(fault: BaseException) -> str:
    """One line of a foreign message, which may be long, or empty."""
    lines = str(fault).strip().splitlines()
    return lines[0] if lines else type(fault).__name__


def reason(fault: Exception) -> str:
    """A foreign message, after the kind of fault where the message is not made for readers."""
    readable = isinstance(fault, (OSError, ValueError))
    return first_line(fault) if readable else f"{type(fault).__name__}: {first_line(fault)}"


def _refuse_foreign_code(folder: Path, trust: Trust) -> None:
    """Trust in one model is no trust in what its files refer to: ``auto_map`` may name code of another repository."""
    if trust.remote_code is None:
        return
    for name in ("config.json", "tokenizer_config.json"):
        classes = read_json(folder / name).get("auto_map") or {}
        named = chain.from_iterable(entry if isinstance(entry, list) else [entry] for entry in classes.values())
        for entry in named:
            repository, dashes, _ = str(entry).partition("--")
            if dashes and repository != trust.remote_code:
                raise ModelError(
                    f"{folder / name} must name code of the model itself, got code of {repository}; "
                    "copy that code into the model's directory, and load the directory"
                )


def _check_weights(folder: Path, architecture: str, report: Mapping[str, Any]) -> None:
    """Refuse a model of which a part would be random numbers; a pooler head is never used here, and often left out."""
    absent = [*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])]
    faults = sorted(name for name in absent if not name.startswith("pooler."))
    if faults:
        raise ModelError(
            f"{folder} must hold the weights that its config.json describes ({architecture}); "
            f"{len(faults)} are missing or of another shape, such as {', '.join(faults[:3])}"
        )


def _refuse_left_over(folder: Path, names: Iterable[str], *, shortened: bool) -> None:
    """Refuse weights that an embedding would not depend on, but for those of a head for words, and of blocks left out."""
    faults = sorted(name for name in names if not HEADS_FOR_WORDS.match(name) and not (shortened and BLOCK.search(name)))
    if faults:
        raise ModelError(
            f"{folder} must hold the weights of an embedding model alone; {len(faults)} belong to something on top of it, such as a "
            f"classifier or a layer of late interaction: {', '.join(faults[:3])}; choose another model, or save it without them"
        )


def _loader(config: PretrainedConfig, folder: Path) -> Any:
    if config.model_type in ENCODERS:
        return ENCODERS[config.model_type]
    if not config.is_encoder_decoder:
        return AutoModel
    if type(config) not in MODEL_FOR_TEXT_ENCODING_MAPPING:
        raise ModelError(
            f"{folder} must hold an encoder or a decoder, got both halves of type {config.model_type}; "
            f"adiabat takes the encoder half of {', '.join(ENCODERS)} alone, choose another model"
        )
    return AutoModelForTextEncoding


def _hint(folder: Path, trust: Trust) -> str:
    """What to do about a model that needs more trust; empty where that is not the reason."""
    if not trust.remote_code and read_json(folder / "config.json").get("auto_map"):
        return "; its own Python code runs only where encoder.trust_remote_code names this model"
    if not trust.pickles and list(folder.glob("*.bin")) and not list(folder.glob("*.safetensors")):
        return "; weights in a pickle need encoder.allow_pickles = true"
    return ""


FIRST = 5
"""The first token of the texts, behind those that families may treat apart."""

LONG = 8
"""Tokens of the longer text; the shorter one has one token, and is padded to as many."""

TOLERANCE = 1e-3
"""Most that a number of a unit vector may differ. Rounding makes 1e-6; models that mix padding in (FNet, ConvBERT) 0.1 and more."""


@torch.no_grad()
def require_embeddings(encoder: Encoder, folder: Path) -> None:
    """Refuse a tower that cannot embed texts, or not in batches."""
    family = getattr(encoder.backbone.config, "model_type", None) or type(encoder.backbone).__name__
    wanted = f"{folder} must hold a model that turns token ids into token states, got one of type {family}"
    rows = table_rows(encoder.backbone)
    usable = (number for number in itertools.count(FIRST) if number != encoder.pad_token_id)
    long = [number if rows is None else number % rows for number in itertools.islice(usable, LONG)]
    try:
        width, alone = encoder.width, encoder(encoder.collate([long[:1]], side="document"))
        padded = encoder(encoder.collate([long[:1], long], side="document"))
    except Exception as fault:
        # Models of images, sounds and pairs of texts fail in any way.
        raise ModelError(f"{wanted} ({reason(fault)}); choose another model") from fault
    if alone.shape[1] != width:
        raise ModelError(f"{wanted}, whose vectors have {alone.shape[1]} numbers where its config.json says {width}; choose another model")
    one, other = torch.nn.functional.normalize(torch.cat([alone, padded[:1]]), dim=-1)
    # NaN passes: later checks of the weights name the tensor that holds it.
    if bool((one - other).abs().max() > TOLERANCE):
        raise ModelError(
            f"{folder} must give a text the same vector in every batch, got a model of type {family}, whose vectors change with padding; "
            "choose another model"
        )
