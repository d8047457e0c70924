"""Loading encoders from disk or hub, and saving them so that sentence-transformers loads them."""

import logging
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
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
    Module,
    max_tokens_of,
    needed,
    pooling_of,
    position_rows,
    prompts_of,
    read_json,
    read_modules,
    read_routes,
    write_json,
    write_root_configuration,
    write_tower_files,
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
"""What reading a damaged or foreign directory raises in transformers, safetensors and torch."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What loading may do beyond reading plain data.

    Attributes:
        remote_code: Name of the one model whose own Python code may run, exactly as it is loaded; None runs none.
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
    modules = read_modules(folder)
    if modules and modules[0].kind in ("Router", "Asym"):
        routes = read_routes(modules[0].folder)
        document = _tower(folder, [*routes["document"], *modules[1:]], settings, trust)
        same = routes["query"] == routes["document"]
        query = document if same else _tower(folder, [*routes["query"], *modules[1:]], settings, trust)
        return DualEncoder(query, document, str(name))
    encoder = _tower(folder, modules or [Module("Transformer", folder)], settings, trust, plain=not modules)
    return DualEncoder(encoder, encoder, str(name))


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
            f"MODEL must be a directory, a job, `demo` or a hub name, got {name}: no such directory, and the hub says: {_first_line(fault)}"
        ) from fault


def _hub_files(trust: Trust) -> list[str]:
    return [*HUB_FILES, *(["*.bin"] if trust.pickles else []), *(["*.py"] if trust.remote_code else [])]


def _first_line(fault: BaseException) -> str:
    """One line of a foreign message, which may be long, or empty."""
    lines = str(fault).strip().splitlines()
    return lines[0] if lines else type(fault).__name__


def _no_bar(_: object, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return transformers_logging.EmptyTqdm(*given, **named)  # type: ignore[no-untyped-call]


@contextmanager
def _quietly() -> Iterator[None]:
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


def _tower(
    folder: Path, modules: Sequence[Module], overrides: Mapping[str, str | bool | int] | None, trust: Trust, *, plain: bool = False
) -> Encoder:
    """Build one tower from its list of modules; `plain` marks a model without sentence-transformers files."""
    transformer, *rest = modules
    if transformer.kind != "Transformer":
        raise ModelError(f"{folder}: the first module must be a Transformer, got {transformer.kind}; adiabat tunes transformer encoders")
    _check_order(folder, [module.kind for module in rest])
    backbone, tokenizer = _backbone(transformer.folder, trust), _tokenizer(transformer.folder, trust)
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
    try:
        with _quietly():
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
    except FAULTS as fault:
        raise ModelError(f"{folder} must hold a transformers model: {_first_line(fault)}{_hint(folder, trust)}") from fault
    _check_weights(folder, type(backbone).__name__, [*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])])
    found: PreTrainedModel = backbone
    return found


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
        with _quietly():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust.remote_code is not None)
    except FAULTS as fault:
        raise ModelError(f"{folder} must hold a tokenizer: {_first_line(fault)}") from fault
    if not tokenizer.is_fast:
        raise ModelError(f"{folder} must hold a fast tokenizer (tokenizer.json); convert it with transformers first")
    if read_json(folder / "sentence_bert_config.json").get("do_lower_case"):
        _lower_case(tokenizer)
    return tokenizer


def _lower_case(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make lower-casing part of the tokenizer, where sentence-transformers keeps it beside it; once is enough."""
    backend = tokenizer.backend_tokenizer
    parts = _normalizers(tokenizer)
    if not any(isinstance(part, Lowercase) or getattr(part, "lowercase", False) for part in parts):
        backend.normalizer = Chain([Lowercase(), *parts])


def _normalizers(tokenizer: PreTrainedTokenizerBase) -> list[Normalizer]:
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


def save(model: DualEncoder, folder: Path) -> None:
    """Write a directory that `sentence_transformers.SentenceTransformer` loads with equal embeddings.

    Shared towers become a plain model; towers that differ become a Router, with a route for queries and one for documents.

    Args:
        model: What to save.
        folder: Made where missing; files of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if model.shared:
        modules = _save_tower(model.query, folder, prefix="", root=True)
        listed = [{"idx": i, "name": str(i), "path": path, "type": _dotted(kind)} for i, (path, kind) in enumerate(modules)]
    else:
        routes = {side: _save_tower(model.tower(side), folder, prefix=f"{side}_", root=False) for side in ("query", "document")}
        write_json(folder / "router_config.json", _router_configuration(routes))
        listed = [{"idx": 0, "name": "0", "path": "", "type": _dotted("Router")}]
    write_json(folder / "modules.json", listed)
    write_root_configuration(
        folder, query_prompt=model.query.settings.query_prompt, document_prompt=model.document.settings.document_prompt
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


def _save_tower(encoder: Encoder, folder: Path, *, prefix: str, root: bool) -> list[tuple[str, str]]:
    """Write the modules of one tower; returns (path, kind) of each."""
    kinds = ["Transformer", "Pooling", *("Dense" for _ in encoder.projections), *(["Normalize"] if encoder.settings.normalize else [])]
    modules = [("" if root and kind == "Transformer" else f"{prefix}{i}_{kind}", kind) for i, kind in enumerate(kinds)]
    for path, _ in modules:
        (folder / path).mkdir(exist_ok=True)
    transformer = folder / modules[0][0]
    with _quietly():
        encoder.backbone.save_pretrained(transformer)
        encoder.tokenizer.save_pretrained(transformer)
    write_tower_files(
        transformer,
        folder / modules[1][0],
        encoder.settings,
        hidden_size=int(encoder.backbone.config.hidden_size),
        # Some tokenizer classes rebuild their normaliser from their own settings and would lose one that was added.
        lower_case=any(isinstance(part, Lowercase) for part in _normalizers(encoder.tokenizer)),
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
