"""The work of `embed` and `import_vectors`: documents into a store, embedded, or with vectors that another
program made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.config.shared import EmbedSettings, StoreSection
from adiabat.core.arrays import VectorArray
from adiabat.core.disk import AnyPath
from adiabat.core.errors import StoreError, require_packages
from adiabat.core.progress import Watch
from adiabat.data.records import Fingerprint, Side
from adiabat.models.backend_checks import PACKAGES
from adiabat.models.backend_choice import (
    TIMED_TEXTS,
    by_openvino,
    candidates,
    fastest,
    may_gain,
    require_graph,
)
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model
from adiabat.models.towers import DualEncoder
from adiabat.store.append import add_documents
from adiabat.store.build import CHUNK_SIZE, INT8, Encoding, build_store
from adiabat.store.corpus_files import StringColumn
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
    """The document tower by the program and in the precision of the settings; shows progress, and counts
    encoded texts and those that reach the token limit.

    Attributes:
        asked: The settings that choose program and precision.
        compiled: Whether torch compiles the blocks.
        seed: Draws the texts that int8 is calibrated on.
        encoded: Texts so far, each distinct one of a chunk once.
        full: Those that reach the limit.
        finished: Documents that are on disk.
        total: Documents of the corpus; 0 until they are counted.
    """

    model: DualEncoder
    asked: StoreSection
    compiled: bool
    watch: Watch
    seed: int = 0
    encoded: int = 0
    full: int = 0
    finished: int = 0
    total: int = 0

    @property
    def width(self) -> int:
        return self.model.width

    @property
    def precision(self) -> Precision:
        """The precision of torch."""
        return "fp32" if self.asked.precision == "int8" else self.asked.precision

    @property
    def quantises(self) -> bool:
        return self.asked.precision == "int8"

    def choose(self, texts: StringColumn, distinct: int, folder: Path) -> Encoding:
        """What the settings ask for, and the fastest where they leave it open and enough texts wait."""
        if self.quantises:
            from adiabat.store.quantisation import quantised_encoding

            encoding, self.model = quantised_encoding(self.model, texts, folder, self.seed, self.watch)
            return encoding
        if self.asked.backend == "openvino":
            (chosen,) = by_openvino(self.model, "document", ["bf16" if self.precision == "bf16" else "fp32"])
        elif self.asked.backend == "auto" and not self.compiled and may_gain(self.model, distinct):
            rows = np.linspace(0, len(texts) - 1, TIMED_TEXTS, dtype=np.int64)
            found = candidates(self.model, self.precision, self.watch.note)
            chosen = fastest(found, texts.take(rows), self.watch.note) if len(found) > 1 else found[0]
        else:
            return Encoding()
        self.model = chosen.model
        return Encoding("" if chosen.name == "torch" else chosen.name)

    def resume(self, by: str, folder: Path) -> None:
        """Encode as the build in a folder began."""
        program, _, precision = (by or "torch auto").partition(" ")
        is_program = self.asked.backend in ("auto", program)
        # torch settles its precision anew, to the same.
        is_precision = precision == "auto" or self.asked.precision in ("auto", precision)
        if not is_program or not is_precision or self.quantises != (by == INT8):
            raise StoreError(
                f"{folder} holds an interrupted build by {by or 'torch'}, got store.backend = "
                f"{self.asked.backend} and store.precision = {self.asked.precision}; repeat the call that "
                "began it, or remove the folder"
            )
        if by:
            require_packages(PACKAGES, extra="openvino", purpose=f"a build by {by}")
        if by == INT8:
            from adiabat.store.quantisation import by_graph

            self.model = by_graph(self.model, folder)
        elif by:
            (begun,) = by_openvino(self.model, "document", ["bf16" if precision == "bf16" else "fp32"])
            self.model = begun.model

    def follow(self, store: Store) -> None:
        """Encode by the quantised graph of a store."""
        from adiabat.store.quantisation import by_graph

        require_packages(PACKAGES, extra="openvino", purpose=f"adding to {store.path} in int8")
        if not self.quantises:
            self.watch.note(f"{store.path} is in int8, so its quantised graph encodes the new documents too")
        self.model = by_graph(self.model, store.path)

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
    told: dict[str, Any] = {
        "chunk_size": encoder.chunk_size,
        "choice": encoder,
        "on_progress": encoder.report,
        "source": corpus,
    }
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
    # Where OpenVINO is asked for, a GPU that is there is not.
    needs_cpu = settings.store.needs_openvino and settings.run.device == "auto"
    loaded = load(model, settings=settings.encoder, device="cpu" if needs_cpu else settings.run.device)
    if settings.store.needs_openvino:
        require_graph(loaded.document)
    tower = _DocumentTower(loaded, settings.store, settings.run.compile, watch, settings.run.seed)
    precision, device = tower.precision, loaded.document.device
    if not loaded.shared:
        watch.note(f"{loaded.name} has two towers: its document tower encodes the documents")
    if slow := emulation_note(device, precision, setting="store.precision"):
        watch.note(slow)
    return tower
