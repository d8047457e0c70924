"""Checks of a store that is to be made, by its settings and paths, before torch is loaded."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from adiabat.config.shared import (
    NEEDED_COSINE,
    EmbedDataSection,
    EmbedSettings,
    StoreSection,
    require_device_name,
)
from adiabat.core.errors import ConfigError, DataError, StoreError
from adiabat.core.files import is_store
from adiabat.core.wording import option, positional
from adiabat.data.corpora import Blank, read_corpus
from adiabat.data.records import Document
from adiabat.models.backend_checks import require_openvino
from adiabat.models.model_paths import Model, is_model, require_names, require_reachable
from adiabat.store.build import require_target
from adiabat.store.manifest import Manifest
from adiabat.store.vector_sources import require_vectors
from adiabat.store.vector_store import require_store

Into = Literal["new", "append", "update"]
"""What documents go into: a new store, or the store at `out`, all of them or those that are new or
changed."""


def require_embeddable(model: Model, corpus: str, out: Path, settings: EmbedSettings, *, into: Into) -> None:
    """Check a corpus that is embedded into a new store, or into the store at `out`."""
    refuse_model(corpus)
    require_device_name(settings.run.device)
    require_names(model)
    refuse_idle(settings.store, {"min_cosine": NEEDED_COSINE}, "encoding, which computes all vectors itself")
    if settings.store.needs_openvino:
        _require_openvino(settings)
    documents_of(corpus, settings.data, blank=blank_of(settings, into))
    if into != "new":
        require_store(out)
        former = Manifest.read(out)
        _require_one_precision(settings.store, out, former, into)
        refuse_idle(
            settings.store,
            {"dtype": former.dtype, "keep_texts": former.has_texts},
            f"{into}, which follows the store",
        )
    elif not is_store(out):
        require_target(out)
    require_reachable(model)


def _require_openvino(settings: EmbedSettings) -> None:
    """Refuse OpenVINO where it cannot run, or beside what torch alone does."""
    store = settings.store
    setting = "store.precision = int8" if store.precision == "int8" else "store.backend = openvino"
    require_openvino(settings.run.device, purpose=setting)
    if settings.run.compile:
        raise ConfigError(f"run.compile must be left out with {setting}, since torch compiles; choose one")


def _require_one_precision(section: StoreSection, out: Path, former: Manifest, into: Into) -> None:
    """Refuse int8 vectors beside others; a store that is in int8 itself goes on with its graph."""
    if section.precision == "int8" and not former.is_quantised:
        raise ConfigError(
            f"store.precision must be auto, fp32 or bf16 for an {into} of {out}, whose vectors are not "
            "quantised, got int8; leave it out, or build a store of its own"
        )
    if section.backend == "torch" and former.is_quantised:
        raise ConfigError(
            f"store.backend must be auto or openvino for an {into} of {out}, whose quantised graph encodes "
            "the new documents too, got torch; leave it out"
        )


def require_importable(
    vectors: str,
    out: Path,
    settings: EmbedSettings,
    *,
    ids: object,
    corpus: str | None,
    model: Model | None,
    into: Into,
    usual: Mapping[str, str] | None = None,
) -> None:
    """Check vectors that are imported into a new store, or into the store at `out`.

    `usual` has names of columns that come first where the corpus has them.
    """
    if corpus is not None:
        refuse_model(corpus)
    require_device_name(settings.run.device)
    require_names(model)
    refuse_idle(settings.store, {"backend": "auto"}, "import, which compares vectors with those of torch")
    if settings.store.precision == "int8":
        raise ConfigError(
            "store.precision must be auto, fp32 or bf16 for an import, which compares vectors with those of "
            "torch, got int8; leave it out"
        )
    refuse_idle(settings.store, {"keep_texts": True}, "import, which keeps the texts it checks vectors with")
    if corpus is not None:
        documents_of(corpus, settings.data, blank=settings.data.blank, usual=usual)
    require_vectors(vectors, ids)
    if into == "update":
        require_store(out)
        refuse_idle(settings.store, {"dtype": Manifest.read(out).dtype}, "update, which follows the store")
    elif is_store(out):
        advice = f"choose another {option('out')}, or replace its documents with {option('update', True)}"
        raise StoreError(f"{out} must be empty, it is a store; {advice}")
    else:
        require_target(out)
    require_reachable(model)


def documents_of(
    corpus: str, section: EmbedDataSection, *, blank: Blank, usual: Mapping[str, str] | None = None
) -> Iterator[Document]:
    """The documents of a corpus, whose first row is checked."""
    return read_corpus(corpus, columns=section.columns.given(), split=section.split, blank=blank, usual=usual)


def blank_of(settings: EmbedSettings, into: Into) -> Blank:
    """Treatment of documents without text: an update deletes those of the store that have lost theirs."""
    return "keep" if into == "update" and settings.data.blank == "drop" else settings.data.blank


def refuse_model(corpus: str) -> None:
    """Refuse a model in the place of a corpus."""
    if is_model(corpus):
        order = f"{positional('model')} {positional('corpus')}"
        raise DataError(f"{positional('corpus')} must be a corpus, {corpus} is a model; the order is {order}")


def refuse_idle(section: StoreSection, fixed: dict[str, object], purpose: str) -> None:
    """Refuse settings without effect: those that differ from their default and from the fixed values."""
    default = StoreSection()
    idle = [
        name for name, value in fixed.items() if getattr(section, name) not in (value, getattr(default, name))
    ]
    if idle:
        names = " and ".join(f"store.{name}" for name in idle)
        raise ConfigError(
            f"{names} must be left out of an {purpose}, got "
            f"{', '.join(str(getattr(section, name)) for name in idle)}"
        )
