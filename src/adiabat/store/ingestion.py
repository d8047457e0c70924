"""The work of `embed` and `import_vectors`: documents into a store, embedded, or with vectors that another
program made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.shared import EmbedSettings
from adiabat.core.arrays import VectorArray
from adiabat.core.disk import AnyPath
from adiabat.core.progress import Watch
from adiabat.data.records import Fingerprint, Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model
from adiabat.models.towers import DualEncoder
from adiabat.store.append import add_documents
from adiabat.store.build import CHUNK_SIZE, build_store
from adiabat.store.deletion import Deletion
from adiabat.store.imports import Incoming, import_vectors, update_from_vectors
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

    Attributes:
        encoded: Texts so far, each distinct one of a chunk once.
        full: Those that reach the limit.
        finished: Documents that are on disk.
        total: Documents of the corpus; 0 until they are counted.
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

    def encode(self, texts: Sequence[str], *, side: Side) -> VectorArray:
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
    told: dict[str, Any] = {"chunk_size": encoder.chunk_size, "on_progress": encoder.report, "source": corpus}
    if into == "new":
        built = build_store(
            encoder,
            lambda: documents,
            out,
            dtype=settings.store.dtype,
            keep_texts=settings.store.keep_texts,
            encoder_name=encoder.model.name,
            **told,
        )
        store, note = built.store, built.note
    else:
        is_update, forms = into == "update", settings.data.ids
        change = add_documents(
            encoder, lambda: documents, out, replacing=is_update, deletion=deletion, id_forms=forms, **told
        )
        store, note = change.store, change.told
    if note:
        watch.note(note)
    encoder.note_truncated()
    return store


def store_vectors(
    vectors: AnyPath,
    out: Path,
    settings: EmbedSettings,
    watch: Watch,
    *,
    ids: AnyPath | Sequence[str] | None,
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
    documents = None
    if corpus is not None:
        documents = documents_of(corpus, settings.data, blank=settings.data.blank, usual=usual)
    encoder = None if model is None else _document_tower(model, settings, watch)
    incoming = Incoming(
        vectors,
        ids,
        documents,
        encoder,
        seed=settings.run.seed,
        min_cosine=settings.store.min_cosine,
        source=source,
        id_forms=settings.data.ids,
    )
    if into == "update":
        change = update_from_vectors(incoming, out, deletion=deletion)
        watch.note(change.told)
        return change.store
    name = encoder.model.name if encoder else "unknown"
    return import_vectors(incoming, out, dtype=settings.store.dtype, encoder_name=name)


def _document_tower(model: Model, settings: EmbedSettings, watch: Watch) -> _DocumentTower:
    """The model in the precision of the store, with notes on what a user may not expect."""
    loaded = load(model, settings=settings.encoder, device=settings.run.device)
    precision, device = settings.store.precision, loaded.document.device
    if not loaded.shared:
        watch.note(f"{loaded.name} has two towers: its document tower encodes the documents")
    if slow := emulation_note(device, precision, setting="store.precision"):
        watch.note(slow)
    return _DocumentTower(loaded, precision, settings.run.compile, watch)
