"""Loading encoders from disk or hub."""

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers.normalizers import Lowercase, Normalizer
from tokenizers.normalizers import Sequence as Chain
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    AutoTokenizer,
    LongT5EncoderModel,
    MT5EncoderModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5EncoderModel,
    UMT5EncoderModel,
)
from transformers.utils import logging as transformers_logging

from adiabat.errors import ConfigError, ModelError, several
from adiabat.model.encoder import Encoder, EncoderSettings, Projection
from adiabat.model.layout import (
    ROOT_FILE,
    Module,
    max_tokens_of,
    needed,
    pooling_of,
    position_rows,
    prompts_of,
    read_json,
    read_modules,
    read_routes,
)
from adiabat.model.towers import DualEncoder

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
}
"""Activations of a projection that are built by name; nothing else named in a file is ever imported."""

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")

ENCODERS: Mapping[str, type[PreTrainedModel]] = {
    "t5": T5EncoderModel,
    "mt5": MT5EncoderModel,
    "umt5": UMT5EncoderModel,
    "longt5": LongT5EncoderModel,
}
"""Families of which only the encoder half is loaded; an encoder saved alone no longer says that it is one half of two."""

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")
"""One of these holds the vocabulary; without any, transformers would build a tokenizer that knows no word."""

FAULTS = (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError, pickle.UnpicklingError)
"""What reading a damaged file of weights raises in safetensors and torch."""

Loaded = dict[Path, tuple[PreTrainedModel, PreTrainedTokenizerBase]]
"""Transformers by folder: two routes that name one folder share it."""


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


def load(name: str | Path, *, settings: Mapping[str, str | bool | int] | None = None, trust: Trust | None = None) -> DualEncoder:
    """Load a model: a sentence-transformers directory (plain or Router), a Hugging Face model directory, or a hub name.

    A plain Hugging Face model gets mean pooling and unit length unless `settings` say otherwise.

    Args:
        name: Directory or hub name.
        settings: Fields of `EncoderSettings` that override what the directory says, for both towers.
        trust: None runs no code from the model and reads weights from safetensors only.

    Returns:
        Both towers, float32, on the CPU, in evaluation mode.

    Raises:
        ModelError: If it is not there, not understood, or would need more trust.
    """
    trust = trust or Trust()
    if trust.remote_code not in (None, str(name)):
        raise ModelError(f"encoder.trust_remote_code must be the name of the model loaded, got {trust.remote_code!r} while loading {name}")
    folder = local_folder(name, trust=trust)
    modules, root = read_modules(folder), read_json(folder / ROOT_FILE)
    if modules and modules[0].kind in ("Router", "Asym"):
        routes = read_routes(modules[0].folder)
        loaded: Loaded = {}
        document = _tower(folder, [*routes["document"], *modules[1:]], settings, trust, loaded)
        same = routes["query"] == routes["document"]
        query = document if same else _tower(folder, [*routes["query"], *modules[1:]], settings, trust, loaded)
        return DualEncoder(query, document, str(name), root)
    encoder = _tower(folder, modules or [Module("Transformer", folder)], settings, trust, {}, plain=not modules)
    return DualEncoder(encoder, encoder, str(name), root)


def override(model: DualEncoder, settings: Mapping[str, str | bool | int]) -> DualEncoder:
    """The same weights under other settings.

    Args:
        model: As it was loaded.
        settings: Fields of `EncoderSettings`, for both towers; none gives the model itself.

    Returns:
        A pair that shares its weights with `model`; towers that were one stay one.

    Raises:
        ConfigError: If a setting is unknown or beyond the backbone's positions.
    """
    if not settings:
        return model
    query = model.query.with_settings(_checked(model.query.settings, settings, model.query.backbone))
    if model.shared:
        return replace(model, query=query, document=query)
    return replace(
        model, query=query, document=model.document.with_settings(_checked(model.document.settings, settings, model.document.backbone))
    )


def local_folder(name: str | Path, *, trust: Trust | None = None) -> Path:
    """The directory of a model; a name that is none is fetched from the hub (configuration, tokenizer and safetensors only).

    Args:
        name: Directory or hub name.
        trust: Whether pickled weights and Python files are fetched too; None fetches neither.

    Returns:
        A directory that exists.

    Raises:
        ModelError: If there is no such directory and the hub has no such model or cannot be reached.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    try:
        return Path(snapshot_download(str(name), allow_patterns=_hub_files(trust or Trust())))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as fault:
        raise ModelError(
            f"MODEL must be a directory, a job, `demo` or a hub name, got {name}: there is no such directory, "
            f"and the hub did not give it ({_first_line(fault)}); check the name"
        ) from fault


def _hub_files(trust: Trust) -> list[str]:
    return [*HUB_FILES, *(["*.bin"] if trust.pickles else []), *(["*.py"] if trust.remote_code else [])]


def _first_line(fault: BaseException) -> str:
    """One line of a foreign message, which may be long, or empty."""
    lines = str(fault).strip().splitlines()
    return lines[0] if lines else type(fault).__name__


def _reason(fault: Exception) -> str:
    """A foreign message, after the kind of fault where the message is not made for readers."""
    readable = isinstance(fault, (OSError, ValueError))
    return _first_line(fault) if readable else f"{type(fault).__name__}: {_first_line(fault)}"


def _no_bar(_: object, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return transformers_logging.EmptyTqdm(*given, **named)  # type: ignore[no-untyped-call]


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' progress bars and load reports off stderr; what they would warn of is checked and raised here.

    The hook is used rather than ``disable_progress_bar``, which would also change the hub's bars, past restoring.

    Yields:
        Nothing.
    """
    level = transformers_logging.get_verbosity()
    hook = transformers_logging.set_tqdm_hook(_no_bar)
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.set_tqdm_hook(hook)


def _tower(
    folder: Path,
    modules: Sequence[Module],
    overrides: Mapping[str, str | bool | int] | None,
    trust: Trust,
    loaded: Loaded,
    *,
    plain: bool = False,
) -> Encoder:
    """Build one tower from its list of modules; `plain` marks a model without sentence-transformers files."""
    transformer, *rest = modules
    if transformer.kind != "Transformer":
        raise ModelError(f"{folder}: the first module must be a Transformer, got {transformer.kind}; adiabat tunes transformer encoders")
    _check_order(folder, [module.kind for module in rest])
    if transformer.folder not in loaded:
        loaded[transformer.folder] = (_backbone(transformer.folder, trust), _tokenizer(transformer.folder, trust))
    backbone, tokenizer = loaded[transformer.folder]
    pooling = next((pooling_of(module.folder) for module in rest if module.kind == "Pooling"), ("mean", True))
    query_prompt, document_prompt = prompts_of(folder)
    settings = EncoderSettings(
        pooling=pooling[0],
        normalize=plain or any(module.kind == "Normalize" for module in rest),
        max_tokens=max_tokens_of(transformer.folder, tokenizer.model_max_length, backbone),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        pool_prompt=pooling[1],
    )
    projections = [_projection(module.folder) for module in rest if module.kind == "Dense"]
    return Encoder(backbone, tokenizer, _checked(settings, overrides or {}, backbone), projections).eval()


def _checked(settings: EncoderSettings, overrides: Mapping[str, str | bool | int], backbone: PreTrainedModel) -> EncoderSettings:
    """The directory's settings with the user's on top."""
    known = [part.name for part in fields(EncoderSettings)]
    unknown = [f"unknown key encoder.{name}" for name in overrides if name not in known]
    if unknown:
        raise ConfigError(f"{several(unknown)}; known are {', '.join(known)}")
    chosen = replace(settings, **overrides)  # type: ignore[arg-type]
    rows = position_rows(backbone)
    if rows is not None and chosen.max_tokens > rows:
        raise ConfigError(f"encoder.max_tokens must be <= {rows}, the positions that the backbone has, got {chosen.max_tokens}")
    return chosen


def _check_order(folder: Path, kinds: Sequence[str]) -> None:
    wanted = [kind for kind in ("Pooling", "Dense", "Normalize") for _ in range(kinds.count(kind))]
    if list(kinds) != wanted or kinds.count("Pooling") > 1 or kinds.count("Normalize") > 1:
        raise ModelError(f"{folder}: modules after the Transformer must be Pooling, any Dense, then Normalize, got {', '.join(kinds)}")


def _backbone(folder: Path, trust: Trust) -> PreTrainedModel:
    code = trust.remote_code is not None
    _refuse_foreign_code(folder, trust)
    try:
        with quietly():
            config = AutoConfig.from_pretrained(folder, trust_remote_code=code)
            backbone, report = _loader(config).from_pretrained(
                folder,
                config=config,
                trust_remote_code=code,
                use_safetensors=None if trust.pickles else True,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except Exception as fault:
        # A foreign configuration can make any part of transformers, or the model's own code, fail in any way.
        raise ModelError(f"{folder} must hold a transformers model: {_reason(fault)}{_hint(folder, trust)}") from fault
    _check_weights(folder, type(backbone).__name__, [*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    found: PreTrainedModel = backbone
    return found


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


def _check_weights(folder: Path, architecture: str, absent: Sequence[str]) -> None:
    """Refuse a model of which a part would be random numbers; a pooler head is never used here, and often left out."""
    faults = sorted(name for name in absent if not name.startswith("pooler."))
    if faults:
        raise ModelError(
            f"{folder} must hold the weights that its config.json describes ({architecture}); "
            f"{len(faults)} are missing or of another shape, such as {', '.join(faults[:3])}"
        )


def _loader(config: PretrainedConfig) -> Any:
    if config.model_type in ENCODERS:
        return ENCODERS[config.model_type]
    return AutoModelForTextEncoding if config.is_encoder_decoder else AutoModel


def _hint(folder: Path, trust: Trust) -> str:
    """What to do about a model that needs more trust; empty where that is not the reason."""
    if not trust.remote_code and read_json(folder / "config.json").get("auto_map"):
        return "; its own Python code runs only where encoder.trust_remote_code names this model"
    if not trust.pickles and list(folder.glob("*.bin")) and not list(folder.glob("*.safetensors")):
        return "; weights in a pickle need encoder.allow_pickles = true"
    return ""


def _tokenizer(folder: Path, trust: Trust) -> PreTrainedTokenizerBase:
    if not any(path for pattern in TOKENIZER_FILES for path in folder.glob(pattern)):
        raise ModelError(f"{folder} must hold a tokenizer, got none of {', '.join(TOKENIZER_FILES)}")
    try:
        with quietly():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust.remote_code is not None)
    except Exception as fault:
        raise ModelError(f"{folder} must hold a tokenizer: {_reason(fault)}") from fault
    if not tokenizer.is_fast:
        raise ModelError(f"{folder} must hold a fast tokenizer (tokenizer.json); convert it with transformers first")
    if read_json(folder / "sentence_bert_config.json").get("do_lower_case"):
        _lower_case(tokenizer)
    return tokenizer


def _lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make lower-casing part of the tokenizer, where sentence-transformers keeps it beside it; once is enough."""
    backend = tokenizer.backend_tokenizer
    parts = normalizers_of(tokenizer)
    if not any(isinstance(part, Lowercase) or getattr(part, "lowercase", False) for part in parts):
        backend.normalizer = Chain([Lowercase(), *parts])


def normalizers_of(tokenizer: PreTrainedTokenizerBase) -> list[Normalizer]:
    """What a tokenizer does to a text before splitting it.

    Args:
        tokenizer: A fast one.

    Returns:
        The steps, in order.
    """
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None:
        return []
    return [normalizer[i] for i in range(len(normalizer))] if isinstance(normalizer, Chain) else [normalizer]


def _projection(folder: Path) -> Projection:
    config = read_json(folder / "config.json")
    activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{folder}: activation_function must be one of {', '.join(ACTIVATIONS)}, got {activation}")
    inner, outer = needed(config, "in_features", "out_features", where=folder / "config.json")
    linear = nn.Linear(inner, outer, bias=config.get("bias", True))
    if not (folder / "model.safetensors").is_file():
        raise ModelError(f"{folder} must hold model.safetensors; save the model anew with sentence-transformers")
    try:
        linear.load_state_dict({name.removeprefix("linear."): weights for name, weights in load_file(folder / "model.safetensors").items()})
    except FAULTS as fault:
        raise ModelError(f"{folder}/model.safetensors must hold a linear layer of {inner} to {outer}: {_first_line(fault)}") from fault
    return Projection(linear, ACTIVATIONS[activation]())
