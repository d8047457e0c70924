"""Building a store from a corpus, or from imported vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float

from adiabat.config.shared import EmbedSettings, StoreSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Fingerprint, Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.model_names import Model, is_model, load, require_names
from adiabat.models.towers import DualEncoder
from adiabat.store.append import append_documents, finish_append
from adiabat.store.build import build_store
from adiabat.store.imports import import_vectors
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_store import Store


@dataclass(slots=True)
class _DocumentTower:
    """The document tower in the precision of the store; counts encoded texts, and those that reach the token limit."""

    model: DualEncoder
    precision: Precision
    encoded: int = 0
    full: int = 0

    @property
    def width(self) -> int:
        return self.model.width

    def fingerprint(self, side: Side) -> Fingerprint:
        return self.model.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        counts: list[Progress] = []
        vectors = self.model.encode(texts, side=side, precision=self.precision, on_progress=counts.append)
        self.encoded += len(texts)
        self.full += counts[-1].full if counts else 0
        return vectors

    def note_truncated(self, watch: Watch) -> None:
        """Number of documents that reach the token limit, and may be truncated."""
        if self.full:
            limit = self.model.document.settings.limit("document")
            watch.note(f"{self.full:,} of {self.encoded:,} distinct documents reach the limit of {limit} tokens: longer ones are cut")


def embed_corpus(model: Model, corpus: str, out: Path, settings: EmbedSettings, watch: Watch, *, append: bool = False) -> Store:
    """Encode a corpus into a new store, or add it to the store at `out`."""
    _refuse_model(corpus)
    require_names(model)
    # Check the first row, so that errors in the corpus come before the model is loaded.
    documents = read_corpus(corpus, columns=settings.data.columns.given(), split=settings.data.split, blank=settings.data.blank)
    if append:
        finish_append(out)
        former = Store.open(out)
        _refuse_idle(settings.store, {"dtype": former.dtype, "keep_texts": former.has_texts}, "append, which follows the store")
    encoder = _document_tower(model, settings, watch)
    documents = known_documents(encoder.model.document, documents, blank=settings.data.blank, source=corpus, note=watch.note)
    progress = partial(watch.progress, "encoding documents")
    if append:
        store, note = append_documents(encoder, lambda: documents, out, on_progress=progress, source=corpus), ""
    else:
        section, name = settings.store, encoder.model.name
        built = build_store(
            encoder,
            lambda: documents,
            out,
            dtype=section.dtype,
            keep_texts=section.keep_texts,
            on_progress=progress,
            source=corpus,
            encoder_name=name,
        )
        store, note = built.store, built.note
    if note:
        watch.note(note)
    encoder.note_truncated(watch)
    return store


def store_vectors(
    vectors: str | PathLike[str],
    out: Path,
    settings: EmbedSettings,
    watch: Watch,
    *,
    ids: str | PathLike[str] | Sequence[str] | None,
    corpus: str | None,
    model: Model | None,
    source: str,
) -> Store:
    """Make a store of imported vectors; with a corpus and a model, some documents are encoded to check the vectors."""
    if corpus is not None:
        _refuse_model(corpus)
    require_names(model)
    _refuse_idle(settings.store, {"keep_texts": True}, "import, which keeps the texts it checks vectors with")
    columns = settings.data.columns.given()
    documents = None if corpus is None else read_corpus(corpus, columns=columns, split=settings.data.split, blank=settings.data.blank)
    encoder = None if model is None else _document_tower(model, settings, watch)
    dtype, seed, name = settings.store.dtype, settings.run.seed, encoder.model.name if encoder else "unknown"
    return import_vectors(
        vectors, out, ids=ids, documents=documents, encoder=encoder, dtype=dtype, seed=seed, source=source, encoder_name=name
    )


def _refuse_model(corpus: str) -> None:
    if is_model(corpus):
        raise DataError(f"CORPUS must be a corpus, {corpus} is a model; the order is MODEL CORPUS")


def _document_tower(model: Model, settings: EmbedSettings, watch: Watch) -> _DocumentTower:
    tower = _DocumentTower(load(model, settings=settings.encoder, device=settings.run.device), settings.store.precision)
    if slow := emulation_note(tower.model.document.device, settings.store.precision, setting="store.precision"):
        watch.note(slow)
    return tower


def _refuse_idle(section: StoreSection, fixed: dict[str, object], purpose: str) -> None:
    """Refuse settings without effect: those that differ from their default and from the fixed values."""
    default = StoreSection()
    idle = [name for name, value in fixed.items() if getattr(section, name) not in (value, getattr(default, name))]
    if idle:
        names = " and ".join(f"store.{name}" for name in idle)
        raise ConfigError(f"{names} must be left out of an {purpose}, got {', '.join(str(getattr(section, name)) for name in idle)}")
