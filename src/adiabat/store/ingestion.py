"""The work of `embed` and `import_vectors`: documents into a store, embedded, or with vectors that another
program made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from adiabat.config.shared import EmbedSettings
from adiabat.core.progress import Watch
from adiabat.data.records import Fingerprint, Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model
from adiabat.models.towers import DualEncoder
from adiabat.store.append import append_documents, update_documents
from adiabat.store.build import CHUNK_SIZE, build_store
from adiabat.store.deletion import Deletion
from adiabat.store.imports import import_vectors, update_from_vectors
from adiabat.store.ingestion_checks import Into, blank_of, documents_of
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_store import Store

GPU_CHUNK_SIZE = 65_536
"""Documents between two commits on a GPU: two or three seconds of MiniLM, a quarter of a minute of a model of
BERT-large's size."""


@dataclass(slots=True)
class _DocumentTower:
    """The document tower in the precision of the store; shows progress, and counts encoded texts and those
    that reach the token limit.
    """

    model: DualEncoder
    precision: Precision
    compiled: bool
    watch: Watch
    encoded: int = 0
    full: int = 0
    finished: int = 0
    total: int = 0

    @property
    def width(self) -> int:
        return self.model.width

    @property
    def chunk_size(self) -> int:
        """Documents between two commits: more on a GPU, which would otherwise wait for each commit as long as
        it computes.
        """
        return CHUNK_SIZE if self.model.document.device.type == "cpu" else GPU_CHUNK_SIZE

    def fingerprint(self, side: Side) -> Fingerprint:
        return self.model.fingerprint(side)

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        before = self.full

        def count(now: Progress) -> None:
            self.full = before + now.full
            if self.total:
                self._show(self.finished + now.done)

        vectors = self.model.encode(
            texts, side=side, precision=self.precision, compiled=self.compiled, on_progress=count
        )
        self.encoded += len(texts)
        return vectors

    def report(self, finished: int, total: int) -> None:
        """Show how many documents are stored; those of the chunk that is being encoded are counted on top."""
        self.finished, self.total = finished, total
        self._show(finished)

    def _show(self, done: int) -> None:
        self.watch.progress("encoding documents", done, self.total)

    def note_truncated(self) -> None:
        """Number of documents that reach the token limit, and may be truncated."""
        if self.full:
            limit = self.model.document.settings.limit("document")
            self.watch.note(
                f"{self.full:,} of {self.encoded:,} distinct documents reach the limit "
                f"of {limit} tokens: longer ones are cut"
            )


def embed_corpus(
    model: Model,
    corpus: str,
    out: Path,
    settings: EmbedSettings,
    watch: Watch,
    *,
    into: Into = "new",
    deletion: Deletion | None = None,
) -> Store:
    """Encode a corpus into a new store, or into the store at `out`."""
    blank = blank_of(settings, into)
    documents = documents_of(corpus, settings.data, blank=blank)
    encoder = _document_tower(model, settings, watch)
    documents = known_documents(
        encoder.model.document, documents, blank=blank, source=corpus, note=watch.note
    )
    forms = settings.data.ids
    told: dict[str, Any] = {"chunk_size": encoder.chunk_size, "on_progress": encoder.report, "source": corpus}
    if into == "new":
        section, name = settings.store, encoder.model.name
        built = build_store(
            encoder,
            lambda: documents,
            out,
            dtype=section.dtype,
            keep_texts=section.keep_texts,
            encoder_name=name,
            **told,
        )
        store, note = built.store, built.note
    else:
        if into == "append":
            change = append_documents(encoder, lambda: documents, out, id_forms=forms, **told)
        else:
            change = update_documents(
                encoder, lambda: documents, out, deletion=deletion, id_forms=forms, **told
            )
        store, note = change.store, change.told
    if note:
        watch.note(note)
    encoder.note_truncated()
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
    usual: Mapping[str, str] | None = None,
    into: Into = "new",
    deletion: Deletion | None = None,
) -> Store:
    """Import vectors into a new store, or the store at `out`; with corpus and model, some documents are
    encoded to check them.

    `usual` has names of columns that come first where the corpus has them.
    """
    documents = (
        None
        if corpus is None
        else documents_of(corpus, settings.data, blank=settings.data.blank, usual=usual)
    )
    encoder = None if model is None else _document_tower(model, settings, watch)
    checks = {
        "seed": settings.run.seed,
        "min_cosine": settings.store.min_cosine,
        "id_forms": settings.data.ids,
    }
    given: dict[str, Any] = {
        "ids": ids,
        "documents": documents,
        "encoder": encoder,
        "source": source,
        **checks,
    }
    if into == "update":
        change = update_from_vectors(vectors, out, deletion=deletion, **given)
        watch.note(change.told)
        return change.store
    name = encoder.model.name if encoder else "unknown"
    return import_vectors(vectors, out, dtype=settings.store.dtype, encoder_name=name, **given)


def _document_tower(model: Model, settings: EmbedSettings, watch: Watch) -> _DocumentTower:
    loaded = load(model, settings=settings.encoder, device=settings.run.device)
    tower = _DocumentTower(loaded, settings.store.precision, settings.run.compile, watch)
    if not tower.model.shared:
        watch.note(f"{tower.model.name} has two towers: its document tower encodes the documents")
    if slow := emulation_note(
        tower.model.document.device, settings.store.precision, setting="store.precision"
    ):
        watch.note(slow)
    return tower
