"""Loading encoders from disk or hub."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adiabat.errors import ConfigError, ModelError, several
from adiabat.model.backbone import Trust, first_line, load_backbone
from adiabat.model.encoder import Encoder, EncoderSettings, Projection
from adiabat.model.layout import (
    ROOT_FILE,
    Module,
    max_tokens_of,
    pooling_of,
    position_rows,
    prompts_of,
    read_json,
    read_modules,
    read_routes,
)
from adiabat.model.projection import load_projection
from adiabat.model.tokenizer import load_tokenizer, set_pad_token
from adiabat.model.towers import DualEncoder

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the modules of one model, each folder once: routes that name one folder share what is in it."""

    trust: Trust
    blocks: int | None
    pad_token: str | None
    transformers: dict[Path, tuple[PreTrainedModel, PreTrainedTokenizerBase]] = field(default_factory=dict)
    projections: dict[Path, Projection] = field(default_factory=dict)

    def transformer(self, folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        if folder not in self.transformers:
            backbone = load_backbone(folder, self.trust, blocks=self.blocks)
            self.transformers[folder] = (backbone, load_tokenizer(folder, self.trust, pad_token=self.pad_token))
        return self.transformers[folder]

    def projection(self, folder: Path) -> Projection:
        if folder not in self.projections:
            self.projections[folder] = load_projection(folder)
        return self.projections[folder]


def load(
    name: str | Path,
    *,
    settings: Mapping[str, str | bool | int] | None = None,
    trust: Trust | None = None,
    blocks: int | None = None,
    pad_token: str | None = None,
) -> DualEncoder:
    """Load a model: a sentence-transformers directory (plain or Router), a Hugging Face model directory, or a hub name.

    A plain Hugging Face model gets mean pooling and unit length unless `settings` say otherwise. Modules that both routes of a Router name,
    such as a shared projection, are one object in both towers.

    Args:
        name: Directory or hub name.
        settings: Fields of `EncoderSettings` that override what the directory says, for both towers.
        trust: None runs no code from the model and reads weights from safetensors only.
        blocks: Keep the first so many transformer blocks of each tower; None keeps all.
        pad_token: What a tokenizer that has no padding token pads with; see `adiabat.model.tokenizer.set_pad_token`.

    Returns:
        Both towers, float32, on the CPU, in evaluation mode.

    Raises:
        ModelError: If it is not there, not understood, or would need more trust.
        ConfigError: If the model cannot have a setting that was given.
    """
    trust = trust or Trust()
    if trust.remote_code not in (None, str(name)):
        raise ModelError(f"encoder.trust_remote_code must be the name of the model loaded, got {trust.remote_code!r} while loading {name}")
    folder = local_folder(name, trust=trust)
    modules, root = read_modules(folder), read_json(folder / ROOT_FILE)
    reader = _Reader(trust, blocks, pad_token)
    if modules and modules[0].kind in ("Router", "Asym"):
        routes = read_routes(modules[0].folder)
        document = _tower(folder, [*routes["document"], *modules[1:]], settings, reader)
        same = routes["query"] == routes["document"]
        query = document if same else _tower(folder, [*routes["query"], *modules[1:]], settings, reader)
        return DualEncoder(query, document, str(name), root)
    encoder = _tower(folder, modules or [Module("Transformer", folder)], settings, reader, plain=not modules)
    return DualEncoder(encoder, encoder, str(name), root)


def override(model: DualEncoder, settings: Mapping[str, str | bool | int], *, pad_token: str | None = None) -> DualEncoder:
    """The same weights under other settings.

    Args:
        model: As it was loaded; neither it nor its tokenizers change.
        settings: Fields of `EncoderSettings`, for both towers.
        pad_token: As for `load`.

    Returns:
        A pair that shares its weights with `model`; towers that were one stay one. The model itself where nothing is to be changed.

    Raises:
        ConfigError: If a setting is unknown or beyond the backbone's positions, or the tokenizer cannot pad so.
    """
    if not settings and pad_token is None:
        return model
    query = _overridden(model.query, settings, pad_token)
    return replace(model, query=query, document=query if model.shared else _overridden(model.document, settings, pad_token))


def _overridden(encoder: Encoder, settings: Mapping[str, str | bool | int], pad_token: str | None) -> Encoder:
    tokenizer = encoder.tokenizer
    if pad_token is not None:
        tokenizer = copy.deepcopy(tokenizer)
        set_pad_token(tokenizer, pad_token)
    return encoder.with_settings(_checked(encoder.settings, settings, encoder.backbone), tokenizer=tokenizer)


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
            f"and the hub did not give it ({first_line(fault)}); check the name"
        ) from fault


def _hub_files(trust: Trust) -> list[str]:
    return [*HUB_FILES, *(["*.bin"] if trust.pickles else []), *(["*.py"] if trust.remote_code else [])]


def _tower(
    folder: Path, modules: Sequence[Module], overrides: Mapping[str, str | bool | int] | None, reader: _Reader, *, plain: bool = False
) -> Encoder:
    """Build one tower from its list of modules; `plain` marks a model without sentence-transformers files."""
    transformer, *rest = modules
    if transformer.kind != "Transformer":
        raise ModelError(f"{folder}: the first module must be a Transformer, got {transformer.kind}; adiabat tunes transformer encoders")
    _check_order(folder, [module.kind for module in rest])
    backbone, tokenizer = reader.transformer(transformer.folder)
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
    projections = [reader.projection(module.folder) for module in rest if module.kind == "Dense"]
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
