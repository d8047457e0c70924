"""Loading models from a directory or the hub, module by module."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from adiabat.core.errors import ConfigError, ModelError, several
from adiabat.core.files import reading
from adiabat.data.records import SIDES
from adiabat.models.backbone import Trust, base_of_adapter, load_backbone, require_embeddings
from adiabat.models.embedding_head import EncoderSettings, Projection
from adiabat.models.encoder import Encoder
from adiabat.models.st_files import (
    ROOT_FILE,
    first_line,
    load_projection,
    pooling_of,
    position_rows,
    prompts_of,
    read_json,
    require_plain_normalize,
    truncate_dim_of,
)
from adiabat.models.st_modules import (
    Module,
    TransformerSettings,
    default_max_tokens,
    read_modules,
    read_routes,
    read_transformer_settings,
    require_embedding_type,
    require_no_head,
)
from adiabat.models.static import Static, StaticBackbone, is_model2vec, load_model2vec, load_static_embedding
from adiabat.models.tokenizer import load_tokenizer, set_pad_token
from adiabat.models.towers import DualEncoder

HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")

MODEL2VEC = "model2vec"
"""The kind of the one module of a directory of model2vec, which lists none."""


UNPOOLED_PROMPTS = frozenset({"hkunlp/instructor-base", "hkunlp/instructor-large", "hkunlp/instructor-xl"})
"""Models whose prompt sentence-transformers leaves out of the pooling, though their files do not say so."""

Overrides = Mapping[str, str | bool | int]
"""Values of `EncoderSettings` by name."""


@dataclass(frozen=True, slots=True)
class _Transformer:
    """The contents of a Transformer module."""

    backbone: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    settings: TransformerSettings


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the modules of one model, each folder once: routes that name one folder share its weights."""

    trust: Trust
    blocks: int | None
    pad_token: str | None
    transformers: dict[Path, _Transformer] = field(default_factory=dict)
    statics: dict[Path, Static] = field(default_factory=dict)
    projections: dict[Path, Projection] = field(default_factory=dict)

    def transformer(self, folder: Path) -> _Transformer:
        if folder not in self.transformers:
            settings = read_transformer_settings(folder)
            backbone = self.backbone(folder, settings)
            tokenizer = load_tokenizer(folder, self.trust, pad_token=self.pad_token, settings=settings)
            self.transformers[folder] = _Transformer(backbone, tokenizer, settings)
        return self.transformers[folder]

    def backbone(self, folder: Path, settings: TransformerSettings) -> PreTrainedModel:
        base = base_of_adapter(folder)
        if base is None:
            return load_backbone(folder, self.trust, blocks=self.blocks, options=settings.config)
        # A model whose code is trusted may name any base: the code of the base is not trusted with it.
        trust = Trust(pickles=self.trust.pickles)
        try:
            base_folder = local_folder(base, trust=trust)
        except ModelError as fault:
            raise ModelError(f"{folder}/adapter_config.json must name a base model that can be had, got {base}: {fault}") from fault
        return load_backbone(base_folder, trust, blocks=self.blocks, options=settings.config, adapter=folder)

    def static(self, module: Module) -> Static:
        if self.blocks is not None:
            raise ConfigError(f"encoder.blocks must be left out for a static model, which has none, got {self.blocks}")
        if module.folder not in self.statics:
            read = load_model2vec if module.kind == MODEL2VEC else load_static_embedding
            self.statics[module.folder] = read(module.folder)
        return self.statics[module.folder]

    def projection(self, folder: Path) -> Projection:
        if folder not in self.projections:
            self.projections[folder] = load_projection(folder)
        return self.projections[folder]


def load(
    name: str | Path,
    *,
    settings: Overrides | None = None,
    trust: Trust | None = None,
    blocks: int | None = None,
    pad_token: str | None = None,
) -> DualEncoder:
    """Load a model: a directory of sentence-transformers (plain or Router), Hugging Face or model2vec, or a hub name.

    A plain Hugging Face model gets mean pooling and unit length unless `settings` say otherwise. Modules that both routes of a Router name,
    such as a shared projection, are one object.

    Args:
        trust: None runs no code from the model and reads weights from safetensors only.
        blocks: Number of first transformer blocks of each tower that are loaded; None loads all.
    """
    trust = trust or Trust()
    if trust.remote_code not in (None, str(name)):
        raise ModelError(f"encoder.trust_remote_code must be the name of the model loaded, got {trust.remote_code!r} while loading {name}")
    if str(name) in UNPOOLED_PROMPTS:
        settings = {"pool_prompt": False, **(settings or {})}
    folder = local_folder(name, trust=trust)
    # A value of another type than its key has can make any reader of it fail.
    with reading(folder, remedy="get the model again", error=ModelError):
        root = read_json(folder / ROOT_FILE)
        require_embedding_type(folder, root)
        query, document = _towers(folder, settings or {}, _Reader(trust, blocks, pad_token))
        return DualEncoder(query, document, str(name), root)


def _towers(folder: Path, overrides: Overrides, reader: _Reader) -> tuple[Encoder, Encoder]:
    """The query tower and the document tower, which are one object where a model has one."""
    modules = read_modules(folder)
    if not modules or modules[0].kind not in ("Router", "Asym"):
        encoder = _tower(folder, modules or [_only_module(folder)], overrides, reader, plain=not modules)
        return encoder, encoder
    routes = read_routes(modules[0].folder)
    document = _tower(folder, [*routes["document"], *modules[1:]], overrides, reader)
    same = routes["query"] == routes["document"]
    query = document if same else _tower(folder, [*routes["query"], *modules[1:]], overrides, reader)
    return query, document


def _only_module(folder: Path) -> Module:
    """The module of a directory that lists none."""
    require_model(folder)
    require_no_head(folder)
    return Module(MODEL2VEC if is_model2vec(folder) else "Transformer", folder)


def require_model(folder: Path) -> None:
    """Refuse a directory that holds no model, by the names of its files alone."""
    names = sorted(path.name for path in folder.iterdir())
    if not {"modules.json", "config.json", "adapter_config.json"} & set(names):
        listed = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") if names else "nothing"
        raise ModelError(f"{folder} must be the directory of a model, with a config.json or modules.json, got {listed} in it; name another")


def override(model: DualEncoder, settings: Overrides, *, pad_token: str | None = None) -> DualEncoder:
    """The same weights under other settings."""
    if not settings and pad_token is None:
        return model
    query = _overridden(model.query, settings, pad_token)
    return replace(model, query=query, document=query if model.shared else _overridden(model.document, settings, pad_token))


def _overridden(encoder: Encoder, settings: Overrides, pad_token: str | None) -> Encoder:
    tokenizer = encoder.tokenizer
    if pad_token is not None:
        tokenizer = copy.deepcopy(tokenizer)
        set_pad_token(tokenizer, pad_token)
    return encoder.with_settings(_checked(encoder.settings, settings, encoder.backbone), tokenizer=tokenizer)


def local_folder(name: str | Path, *, trust: Trust | None = None) -> Path:
    """The directory of a model; any other name is fetched from the hub (configuration, tokenizer and safetensors only).

    Args:
        trust: Whether pickled weights and Python files are fetched too; None fetches neither.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled

    trust = trust or Trust()
    patterns = [*HUB_FILES, *(["*.bin"] if trust.pickles else []), *(["*.py"] if trust.remote_code else [])]
    try:
        return Path(snapshot_download(str(name), allow_patterns=patterns))
    except (HFValidationError, LocalEntryNotFoundError, HfHubHTTPError, OfflineModeIsEnabled, OSError) as fault:
        raise ModelError(
            f"MODEL must be a directory, a job, `demo` or a hub name, got {name}: there is no such directory, "
            f"and the hub did not give it ({first_line(fault)}); check the name"
        ) from fault


def _tower(folder: Path, modules: Sequence[Module], overrides: Overrides, reader: _Reader, *, plain: bool = False) -> Encoder:
    """Build one tower from its list of modules; `plain` marks a model without sentence-transformers files."""
    transformer, *later = modules
    if transformer.kind in ("StaticEmbedding", MODEL2VEC):
        return _static_tower(folder, modules, overrides, reader)
    if transformer.kind != "Transformer":
        raise ModelError(f"{folder}: the first module must be a Transformer or a StaticEmbedding, got {transformer.kind}; choose another")
    if not plain:
        _check_order(folder, modules)
    read = reader.transformer(transformer.folder)
    (pooling, pool_prompt) = next((pooling_of(module.folder) for module in later if module.kind == "Pooling"), ("mean", True))
    stated = read.settings
    default_limit = default_max_tokens(read.tokenizer.model_max_length, read.backbone, plain=plain)
    query_prompt, document_prompt = prompts_of(folder)
    settings = EncoderSettings(
        pooling=pooling,
        normalize=plain or _normalizes(later),
        max_tokens=default_limit if stated.max_tokens is None else stated.max_tokens,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        pool_prompt=pool_prompt,
        query_max_tokens=stated.query_max_tokens,
        document_max_tokens=stated.document_max_tokens,
        truncate_dim=truncate_dim_of(folder),
    )
    projections = [reader.projection(module.folder) for module in later if module.kind == "Dense"]
    encoder = Encoder(read.backbone, read.tokenizer, _checked(settings, overrides, read.backbone), projections).eval()
    require_embeddings(encoder, folder)
    return encoder


def _static_tower(folder: Path, modules: Sequence[Module], overrides: Overrides, reader: _Reader) -> Encoder:
    """Build a tower that looks tokens up."""
    first, *later = modules
    _check_order(folder, modules)
    static = reader.static(first)
    query_prompt, document_prompt = prompts_of(folder)
    settings = EncoderSettings(
        normalize=static.normalize or _normalizes(later),
        max_tokens=static.max_tokens,
        query_prompt=query_prompt,
        document_prompt=document_prompt,
        truncate_dim=truncate_dim_of(folder),
    )
    projections = [reader.projection(module.folder) for module in later if module.kind == "Dense"]
    return Encoder(static.backbone, static.tokenizer, _checked(settings, overrides, static.backbone), projections).eval()


def _normalizes(modules: Sequence[Module]) -> bool:
    """Whether one of the modules brings vectors to unit length."""
    normalizing = [module.folder for module in modules if module.kind == "Normalize"]
    for folder in normalizing:
        require_plain_normalize(folder)
    return bool(normalizing)


def _checked(settings: EncoderSettings, overrides: Overrides, backbone: PreTrainedModel) -> EncoderSettings:
    """The directory's settings with the user's on top."""
    known = [setting.name for setting in fields(EncoderSettings)]
    unknown = [f"unknown key encoder.{name}" for name in overrides if name not in known]
    if unknown:
        raise ConfigError(f"{several(unknown)}; known are {', '.join(known)}")
    if "max_tokens" in overrides:
        settings = replace(settings, query_max_tokens=None, document_max_tokens=None)
    chosen = replace(settings, **overrides)  # type: ignore[arg-type]
    # No other library knows these two settings of a static model, so that a saved one could not hold them.
    if isinstance(backbone, StaticBackbone) and chosen.pooling != "mean":
        raise ConfigError(f"encoder.pooling must be mean for a static model, got {chosen.pooling}; leave it out")
    if isinstance(backbone, StaticBackbone) and not chosen.pool_prompt:
        raise ConfigError("encoder.pool_prompt must be true for a static model, got false; give it no prompt instead")
    rows, limit = position_rows(backbone), max(chosen.limit(side) for side in SIDES)
    if rows is not None and limit > rows:
        raise ConfigError(f"encoder.max_tokens must be <= {rows}, the positions that the backbone has, got {limit}")
    return chosen


def _check_order(folder: Path, modules: Sequence[Module]) -> None:
    first, *kinds = (module.kind for module in modules)
    pooling = ["Pooling"] if first == "Transformer" else []
    ordered = [kind for kind in (*pooling, "Dense", "Normalize") for _ in range(kinds.count(kind))]
    order = "Pooling, any Dense, then Normalize" if pooling else "any Dense, then Normalize"
    fault = f"{folder}: modules after the {first} must be {order}, got {', '.join(kinds) or 'none'}"
    if pooling and "Pooling" not in kinds:
        raise ModelError(f"{fault}: without a Pooling, a text has no vector")
    if kinds != ordered or kinds.count("Pooling") > 1 or kinds.count("Normalize") > 1:
        raise ModelError(fault)
