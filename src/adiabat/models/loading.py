"""Loading models from a directory or the hub, module by module."""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from adiabat.core.errors import ConfigError, ModelError, reraise_unrelated, several
from adiabat.core.files import reading
from adiabat.core.ragged import Ragged
from adiabat.core.surroundings import hub_cache
from adiabat.data.records import SIDES
from adiabat.models.backbone import (
    Trust,
    base_of_adapter,
    load_backbone,
    load_tokenizer,
    reason,
    set_pad_token,
)
from adiabat.models.embedding_head import EncoderSettings, Projection, is_cutting
from adiabat.models.encoder import Encoder, table_rows
from adiabat.models.json_files import ROOT_FILE, exists, read_json
from adiabat.models.lost_files import (
    HUB_FILES,
    is_stamped,
    require_files,
    require_nothing_lost,
    require_settings_of_tokens,
)
from adiabat.models.model_paths import (
    DEMO_HUB_NAME,
    PACKAGE,
    demo_model_folder,
    require_model,
    unknown_model,
)
from adiabat.models.st_files import (
    IN_AND_OUT,
    UNLIMITED,
    checked_keys,
    load_projection,
    pooling_of,
    position_rows,
    prompts_of,
    truncate_dim_of,
)
from adiabat.models.st_modules import (
    FILES,
    Module,
    TransformerSettings,
    other_model,
    read_modules,
    read_routes,
    read_transformer_settings,
    require_no_head,
)
from adiabat.models.static import StaticBackbone, is_model2vec, load_model2vec, load_static_embedding
from adiabat.models.towers import DualEncoder

MODEL2VEC = "model2vec"
"""Class of the single module of a model2vec directory, which lists no modules."""


FALLBACK_MAX_TOKENS = 512
"""Token limit of a plain model that states none."""

UNPOOLED_PROMPTS = frozenset({"hkunlp/instructor-base", "hkunlp/instructor-large", "hkunlp/instructor-xl"})
"""Models whose prompt sentence-transformers excludes from pooling, although their files do not say so."""

Overrides = Mapping[str, str | bool | int]
"""Values of `EncoderSettings` by name."""


TokenStates = tuple[PreTrainedModel, PreTrainedTokenizerBase, EncoderSettings]
"""The contents of a first module: source of the token states, and the settings in its files."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the modules of one model, each folder once, so that routes with the same folder share weights.

    Attributes:
        trust: Permissions of loading.
        blocks: Number of leading blocks of a transformer; None for all.
        pad_token: Padding token for a tokenizer without one; None leaves it without.
        stamped: Whether sentence-transformers wrote the directory, so that its files must all be there.
        first_modules: What was read so far, by folder.
        projections: The same for projections.
    """

    trust: Trust
    blocks: int | None
    pad_token: str | None
    stamped: bool = False
    first_modules: dict[Path, TokenStates] = field(default_factory=dict)
    projections: dict[Path, Projection] = field(default_factory=dict)

    def token_states(self, module: Module, *, plain: bool) -> TokenStates:
        """The first module of a tower; `plain` marks a model without sentence-transformers files."""
        folder = module.folder
        if folder not in self.first_modules:
            if module.kind == "Transformer":
                self.first_modules[folder] = self._transformer(folder, plain=plain)
            elif self.blocks is not None:
                raise ConfigError(
                    f"encoder.blocks must be left out for a static model, which has none, got {self.blocks}"
                )
            elif module.kind == MODEL2VEC:
                self.first_modules[folder] = load_model2vec(folder)
            else:
                self.first_modules[folder] = load_static_embedding(folder)
        return self.first_modules[folder]

    def _transformer(self, folder: Path, *, plain: bool) -> TokenStates:
        """A transformer with its tokenizer, and the token limit that its files state or imply."""
        if self.stamped:
            require_settings_of_tokens(folder, FILES)
        stated = read_transformer_settings(folder)
        backbone = self._backbone(folder, stated)
        tokenizer = load_tokenizer(folder, self.trust, pad_token=self.pad_token, settings=stated)
        limits = dict(stated.limits)
        if limits["max_tokens"] is None:
            # If no file of sentence-transformers states a limit: the lower one of tokenizer and backbone.
            positions = getattr(backbone.config, "max_position_embeddings", None)
            most = position_rows(backbone) or (positions if positions and positions > 0 else UNLIMITED)
            lesser = int(min(tokenizer.model_max_length, most, UNLIMITED))
            limits["max_tokens"] = FALLBACK_MAX_TOKENS if plain and lesser == UNLIMITED else lesser
        return backbone, tokenizer, EncoderSettings(normalize=plain, **limits)  # type: ignore[arg-type]

    def _backbone(self, folder: Path, settings: TransformerSettings) -> PreTrainedModel:
        """The transformer of a folder, or its base model with the adapter of the folder merged."""
        base = base_of_adapter(folder)
        if base is None:
            return load_backbone(folder, self.trust, blocks=self.blocks, options=settings.config)
        # A model with trusted code may name any base; trust does not extend to the base's code.
        trust = Trust(pickles=self.trust.pickles)
        try:
            base_folder = local_folder(base, trust=trust)
        except ModelError as fault:
            raise ModelError(
                f"{folder}/adapter_config.json must name a base model that can be loaded, got {base}: {fault}"
            ) from fault
        _require_files(base_folder)
        return load_backbone(base_folder, trust, blocks=self.blocks, options=settings.config, adapter=folder)

    def projection(self, folder: Path) -> Projection:
        if folder not in self.projections:
            self.projections[folder] = load_projection(folder, pickles=self.trust.pickles)
        return self.projections[folder]


def load(
    name: str | Path,
    *,
    settings: Overrides | None = None,
    trust: Trust | None = None,
    blocks: int | None = None,
    pad_token: str | None = None,
) -> DualEncoder:
    """Load a model: a directory of sentence-transformers (plain or Router), Hugging Face or model2vec, or a
    hub name.

    A plain Hugging Face model gets mean pooling and unit length unless `settings` say otherwise. Modules that
    both routes of a Router use, such as a shared projection, are one object.

    Args:
        trust: None runs no code from the model and reads weights from safetensors only.
        blocks: Number of leading transformer blocks of each tower to load; None loads all.
    """
    trust = trust or Trust()
    if trust.remote_code not in (None, str(name)):
        raise ModelError(
            "encoder.trust_remote_code must be the name of the model loaded, got "
            f"{trust.remote_code!r} while loading {name}"
        )
    if str(name) in UNPOOLED_PROMPTS:
        settings = {"pool_prompt": False, **(settings or {})}
    folder = local_folder(name, trust=trust)
    _require_files(folder)
    # A value of an unexpected type can make any reader fail.
    with reading(folder, remedy="get the model again", error=ModelError):
        root = read_json(folder / ROOT_FILE)
        model_type = root.get("model_type", "SentenceTransformer")
        if model_type != "SentenceTransformer":
            raise other_model(folder, model_type)
        query, document = _towers(
            folder, settings or {}, _Reader(trust, blocks, pad_token, is_stamped(folder))
        )
        return DualEncoder(query, document, str(name), root)


def _require_files(folder: Path) -> None:
    """Refuse a model without all of its files, before any is read; `read_modules` checks those of its
    modules.
    """
    require_nothing_lost(folder)
    require_files(folder)


def _towers(folder: Path, overrides: Overrides, reader: _Reader) -> tuple[Encoder, Encoder]:
    """The query tower and the document tower; one object if the model has only one."""
    modules = read_modules(folder)
    if not modules:
        require_model(folder)
        require_no_head(folder)
        only = Module(MODEL2VEC if is_model2vec(folder) else "Transformer", folder)
        encoder = _tower(folder, [only], overrides, reader, plain=True)
        return encoder, encoder
    if modules[0].kind not in ("Router", "Asym"):
        encoder = _tower(folder, modules, overrides, reader)
        return encoder, encoder
    routes = read_routes(modules[0].folder)
    document = _tower(folder, [*routes["document"], *modules[1:]], overrides, reader)
    same = routes["query"] == routes["document"]
    query = document if same else _tower(folder, [*routes["query"], *modules[1:]], overrides, reader)
    return query, document


def override(model: DualEncoder, settings: Overrides, *, pad_token: str | None = None) -> DualEncoder:
    """A model with the same weights and other settings."""
    if not settings and pad_token is None:
        return model
    query = _overridden(model.query, settings, pad_token)
    return replace(
        model,
        query=query,
        document=query if model.shared else _overridden(model.document, settings, pad_token),
    )


def _overridden(encoder: Encoder, settings: Overrides, pad_token: str | None) -> Encoder:
    """A tower with other settings, and its own copy of the tokenizer if that gets a padding token."""
    tokenizer = encoder.tokenizer
    if pad_token is not None:
        tokenizer = copy.deepcopy(tokenizer)
        set_pad_token(tokenizer, pad_token)
    return encoder.with_settings(_checked(encoder.settings, settings, encoder.backbone), tokenizer=tokenizer)


def local_folder(name: str | Path, *, trust: Trust | None = None) -> Path:
    """The directory of a model; configuration, tokenizer, safetensors and trusted files of other names are
    fetched from the hub.
    """
    folder = Path(name)
    if exists(folder) and folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    trust = trust or Trust()
    patterns = [*HUB_FILES, *(["*.bin"] if trust.pickles else []), *(["*.py"] if trust.remote_code else [])]
    try:
        return Path(
            snapshot_download(str(name), allow_patterns=patterns, cache_dir=hub_cache("HF_HUB_CACHE", "hub"))
        )
    except Exception as fault:
        # The network fails in classes of whatever library makes the requests.
        reraise_unrelated(fault)
        # Adapters over the embedded model name it as the hub does.
        if str(name) == DEMO_HUB_NAME and find_spec(PACKAGE) is not None:
            return demo_model_folder()
        raise unknown_model(str(name), fault) from fault


def _tower(
    folder: Path, modules: Sequence[Module], overrides: Overrides, reader: _Reader, *, plain: bool = False
) -> Encoder:
    """Build one tower from its list of modules; `plain` marks a model without sentence-transformers files.

    The first module gives token states and the settings in its files, each later one adds a setting or a
    projection. Then come the prompts and the cut of the root configuration, then the user's settings, and
    last a test with two short texts.
    """
    first, *later = modules
    if first.kind not in ("Transformer", "StaticEmbedding", MODEL2VEC):
        raise ModelError(
            f"{folder}: the first module must be a Transformer or a StaticEmbedding, "
            f"got {first.kind}; choose another"
        )
    truncate_dim = truncate_dim_of(folder)
    if (
        truncate_dim is not None
        and later
        and later[-1].kind == "Dense"
        and is_cutting(reader.projection(later[-1].folder), truncate_dim)
    ):
        # `save` writes it for versions that do not read truncate_dim.
        later = later[:-1]
    if not plain:
        _check_order(folder, [first, *later])
    backbone, tokenizer, settings = reader.token_states(first, plain=plain)
    projections = []
    for module in later:
        if module.kind == "Pooling":
            pooling, pool_prompt = pooling_of(module.folder)
            settings = replace(settings, pooling=pooling, pool_prompt=pool_prompt)
        elif module.kind == "Dense":
            projections.append(reader.projection(module.folder))
        else:
            # Refuse a Normalize that does not scale the text's vector to unit length.
            config = read_json(module.folder / "config.json")
            checked_keys(module.folder / "config.json", config, known=set(config), fixed=IN_AND_OUT)
            settings = replace(settings, normalize=True)
    query_prompt, document_prompt = prompts_of(folder)
    stated = replace(
        settings, query_prompt=query_prompt, document_prompt=document_prompt, truncate_dim=truncate_dim
    )
    encoder = Encoder(backbone, tokenizer, _checked(stated, overrides, backbone), projections).eval()
    if first.kind == "Transformer":
        require_embeddings(encoder, folder)
    return encoder


def _checked(settings: EncoderSettings, overrides: Overrides, backbone: PreTrainedModel) -> EncoderSettings:
    """The directory's settings, overridden by the user's.

    A limit for all texts replaces those for one side. No limit may exceed the positions of the backbone.
    """
    known = [setting.name for setting in fields(EncoderSettings)]
    unknown = [f"unknown key encoder.{name}" for name in overrides if name not in known]
    if unknown:
        raise ConfigError(f"{several(unknown)}; known are {', '.join(known)}")
    if "max_tokens" in overrides:
        settings = replace(settings, query_max_tokens=None, document_max_tokens=None)
    chosen = replace(settings, **overrides)  # type: ignore[arg-type]
    # No other library knows these two settings of a static model, so they could not be saved.
    if isinstance(backbone, StaticBackbone) and chosen.pooling != "mean":
        raise ConfigError(
            f"encoder.pooling must be mean for a static model, got {chosen.pooling}; leave it out"
        )
    if isinstance(backbone, StaticBackbone) and not chosen.pool_prompt:
        raise ConfigError(
            "encoder.pool_prompt must be true for a static model, got false; use no prompt instead"
        )
    rows, limit = position_rows(backbone), max(chosen.limit(side) for side in SIDES)
    if rows is not None and limit > rows:
        raise ConfigError(
            f"encoder.max_tokens must be <= {rows}, the positions that the backbone has, got {limit}"
        )
    return chosen


def _check_order(folder: Path, modules: Sequence[Module]) -> None:
    """Refuse modules in an order in which sentence-transformers would compute something else."""
    first, *kinds = (module.kind for module in modules)
    pooling = ["Pooling"] if first == "Transformer" else []
    ordered = [kind for kind in (*pooling, "Dense", "Normalize") for _ in range(kinds.count(kind))]
    order = "Pooling, any Dense, then Normalize" if pooling else "any Dense, then Normalize"
    fault = f"{folder}: modules after the {first} must be {order}, got {', '.join(kinds) or 'none'}"
    if pooling and "Pooling" not in kinds:
        raise ModelError(f"{fault}: without a Pooling, a text has no vector")
    if kinds != ordered or kinds.count("Pooling") > 1:
        raise ModelError(fault)


FIRST_TOKEN = 5
"""First token id of the test texts, after the ids that families treat specially."""


LONG = 8
"""Number of tokens of the longer test text; the shorter one has one token and is padded to this length."""


TOLERANCE = 1e-3
"""Maximum difference in a dimension of a unit vector. Rounding gives 1e-6; models that mix in padding (FNet,
ConvBERT) give 0.1 and more."""


@torch.no_grad()
def require_embeddings(encoder: Encoder, folder: Path) -> None:
    """Refuse a tower that cannot embed texts, or cannot embed them in batches.

    A text of one token is embedded alone, and padded beside a longer one: both vectors must be equal up to
    rounding.
    """
    family = getattr(encoder.backbone.config, "model_type", None) or type(encoder.backbone).__name__
    demand = f"{folder} must hold a model that turns token ids into token states, got one of type {family}"
    rows = table_rows(encoder.backbone)
    usable = (number for number in itertools.count(FIRST_TOKEN) if number != encoder.pad_token_id)
    long = [number if rows is None else number % rows for number in itertools.islice(usable, LONG)]
    try:
        width, alone = encoder.width, encoder(encoder.collate(Ragged.of([long[:1]]), side="document"))
        padded = encoder(encoder.collate(Ragged.of([long[:1], long]), side="document"))
    except Exception as fault:
        reraise_unrelated(fault)
        # Models of images, sounds and pairs of texts can fail in any way.
        raise ModelError(f"{demand} ({reason(fault)}); choose another model") from fault
    if alone.shape[1] != width:
        raise ModelError(
            f"{demand}, whose vectors have {alone.shape[1]} numbers where its "
            f"config.json says {width}; choose another model"
        )
    unpadded, padded_short = torch.nn.functional.normalize(torch.cat([alone, padded[:1]]), dim=-1)
    # NaN passes here: later checks of the weights name the tensor.
    if bool((unpadded - padded_short).abs().max() > TOLERANCE):
        raise ModelError(
            f"{folder} must give a text the same vector in every batch, got a model of type {family}, whose "
            "vectors change with padding; choose another model"
        )
