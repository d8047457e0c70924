"""Documents into a store: those of a corpus, embedded, or vectors that another program made."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float

from adiabat.config.shared import NEEDED_COSINE, EmbedSettings, IdForms
from adiabat.core.disk import clear, make_folder, move, remove
from adiabat.core.errors import Faults, StoreError
from adiabat.core.files import MANIFEST_FILE, is_store, is_there, read_json, sole_writer, write_json
from adiabat.core.progress import Watch
from adiabat.core.provenance import now
from adiabat.core.wording import option
from adiabat.data.records import Document, Fingerprint, Side
from adiabat.models.bulk import Progress
from adiabat.models.device import Precision, emulation_note
from adiabat.models.model_names import load
from adiabat.models.model_paths import Model, require_names
from adiabat.models.towers import DualEncoder
from adiabat.store.addressing import forms_advice, other_forms
from adiabat.store.agreement import agreed_fingerprint
from adiabat.store.append import append_documents, update_documents
from adiabat.store.build import DocumentEncoder, begin, build_store, finish, to_dtype, unusable_rows
from adiabat.store.corpus_files import ID_BATCH, CorpusFiles, IdIndex, StringColumn, StringColumnWriter, invalid_unicode, write_corpus
from adiabat.store.deletion import Deletion
from adiabat.store.ingestion_checks import Into, blank_of, documents_of, refuse_idle, refuse_model, require_importable
from adiabat.store.manifest import (
    HASH_FILE,
    ID_FILE,
    INDEX_FILE,
    STATE_FILE,
    TEXT_FILE,
    VECTOR_FILE,
    Manifest,
    StoreDtype,
    VectorFile,
    plain_disk_errors,
)
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_sources import VectorSource, open_vectors, read_ids
from adiabat.store.vector_store import Store, require_store

BLOCK_ROWS = 4096
TEXT_FOLDER = "documents"
INCOMING_FILE = "ids.incoming"


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


def embed_corpus(
    model: Model, corpus: str, out: Path, settings: EmbedSettings, watch: Watch, *, into: Into = "new", deletion: Deletion | None = None
) -> Store:
    """Encode a corpus into a new store, or into the store at `out`."""
    refuse_model(corpus)
    require_names(model)
    # Check the first row, so that errors in the corpus come before the model is loaded.
    blank = blank_of(settings, into)
    documents = documents_of(corpus, settings.data, blank=blank)
    if into != "new":
        require_store(out)
        former = Manifest.read(out)
        refuse_idle(settings.store, {"dtype": former.dtype, "keep_texts": former.has_texts}, f"{into}, which follows the store")
    encoder = _document_tower(model, settings, watch)
    documents = known_documents(encoder.model.document, documents, blank=blank, source=corpus, note=watch.note)
    progress = partial(watch.progress, "encoding documents")
    if into == "new":
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
    else:
        named = {"on_progress": progress, "source": corpus}
        if into == "append":
            change = append_documents(encoder, lambda: documents, out, **named)
        else:
            change = update_documents(encoder, lambda: documents, out, deletion=deletion, **named)
        store, note = change.store, change.told
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
    usual: Mapping[str, str] | None = None,
) -> Store:
    """Make a store of imported vectors; with a corpus and a model, some documents are encoded to check the vectors.

    `usual` has names of columns that come first where the corpus has them.
    """
    require_importable(vectors, out, settings, corpus=corpus, model=model, usual=usual)
    documents = None if corpus is None else documents_of(corpus, settings.data, blank=settings.data.blank, usual=usual)
    encoder = None if model is None else _document_tower(model, settings, watch)
    return import_vectors(
        vectors,
        out,
        ids=ids,
        documents=documents,
        encoder=encoder,
        dtype=settings.store.dtype,
        seed=settings.run.seed,
        min_cosine=settings.store.min_cosine,
        source=source,
        encoder_name=encoder.model.name if encoder else "unknown",
        id_forms=settings.data.ids,
    )


def _document_tower(model: Model, settings: EmbedSettings, watch: Watch) -> _DocumentTower:
    tower = _DocumentTower(load(model, settings=settings.encoder, device=settings.run.device), settings.store.precision)
    if not tower.model.shared:
        watch.note(f"{tower.model.name} has two towers: its document tower encodes the documents")
    if slow := emulation_note(tower.model.document.device, settings.store.precision, setting="store.precision"):
        watch.note(slow)
    return tower


def import_vectors(
    vectors: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    ids: str | os.PathLike[str] | Sequence[str] | Sequence[int] | np.ndarray | None = None,
    documents: Iterable[Document] | None = None,
    encoder: DocumentEncoder | None = None,
    dtype: StoreDtype = "float16",
    sample: int = 16,
    seed: int = 0,
    min_cosine: float = NEEDED_COSINE,
    source: str | None = None,
    encoder_name: str = "unknown",
    id_forms: IdForms = "exact",
) -> Store:
    """Make a store of vectors from a numpy, Parquet or faiss file.

    With texts and an encoder, `sample` random documents are encoded again. If all agree with their vectors in direction and length, the
    store takes the encoder's fingerprint. Otherwise its fingerprint stays unknown, and only the width of an encoder can be checked.

    Args:
        out: Directory of the store; must not exist or be empty.
        ids: One per vector: strings or whole numbers, or a file (text with one per line, ``.json``, ``.npy``, ``.arrow``,
            ``.parquet``); None takes those of the Parquet file or faiss index itself.
        min_cosine: Cosine that each of the sampled vectors must have with the encoder's own.
        documents: Texts by id, in any order; texts with other ids are checked and left out. None for a store without texts.
        source: Name of the corpus, for the manifest; None takes the file's.
        id_forms: Whether the ids of texts must be exact, or may differ in their Unicode form.
    """
    target = Path(out)
    if is_store(target):
        raise StoreError(f"{target} must be empty, it is a store; choose another {option('out')}")
    opened = open_vectors(os.fspath(vectors), block_rows=BLOCK_ROWS)
    if encoder and encoder.width != opened.width:
        raise StoreError(f"{vectors} must have the encoder's width {encoder.width}, got {opened.width}; choose the encoder that made them")
    building = begin(target)
    with plain_disk_errors(building), sole_writer(building):
        _start_over(building)
        try:
            write_json({"import": str(vectors)}, building / STATE_FILE)
            sha256, corpus = _copy(opened, building, ids, documents, dtype, str(vectors), id_forms)
            with_texts = documents is not None
            manifest = Manifest(
                fingerprint=agreed_fingerprint(encoder, building, sample, seed, min_cosine=min_cosine) if encoder and with_texts else None,
                dtype=dtype,
                width=opened.width,
                count=corpus.count,
                sha256=sha256,
                files={name: digest for name, digest in corpus.files.items() if with_texts or name not in (TEXT_FILE, HASH_FILE)},
                corpus=corpus.sha256 if with_texts else None,
                encoder=encoder_name,
                source=source or Path(vectors).name,
                created=now(),
            )
        except BaseException:
            # An import is fast compared with encoding, so it restarts instead of resuming.
            clear(building)
            raise
        return finish(building, target, manifest)


def _start_over(building: Path) -> None:
    """Remove the files of a killed import; refuse a folder with other content."""
    state = building / STATE_FILE
    if is_there(state, error=StoreError) and "import" in read_json(state, remedy=f"remove the folder {building}", error=StoreError):
        clear(building / TEXT_FOLDER)
        # Remove the state last: until then, it identifies the folder.
        for name in (VECTOR_FILE, ID_FILE, INCOMING_FILE, TEXT_FILE, HASH_FILE, INDEX_FILE, MANIFEST_FILE, STATE_FILE):
            remove(building / name)
    strangers = [child.name for child in building.iterdir() if not child.name.startswith(f".{STATE_FILE}")]
    if strangers:
        listed = ", ".join(sorted(strangers)[:5])
        raise StoreError(f"{building} must be empty, it holds {listed}; remove it, or choose another {option('out')}")


def _copy(
    opened: VectorSource,
    building: Path,
    ids: str | os.PathLike[str] | Sequence[str] | Sequence[int] | np.ndarray | None,
    documents: Iterable[Document] | None,
    dtype: StoreDtype,
    name: str,
    id_forms: IdForms,
) -> tuple[str, CorpusFiles]:
    """Write vectors, ids and texts (empty ones if unknown); returns the digest of the vectors, and the other files."""
    id_stream = None if ids is None else read_ids(ids)
    sha256, count = _copy_vectors(opened, building, id_stream, dtype, name)
    if not count:
        raise StoreError(f"{name}: must hold at least one vector, got none")
    # The ids were first written unchecked; they are now read from a renamed file, checked, written again and indexed.
    incoming = building / INCOMING_FILE
    move(building / ID_FILE, incoming)
    column = StringColumn(incoming)
    without_texts = (Document(doc_id, "") for doc_id in column)
    imported = without_texts if documents is None else _with_texts(column, documents, building / TEXT_FOLDER, id_forms)
    corpus = write_corpus(imported, building, source=name)
    remove(incoming)
    clear(building / TEXT_FOLDER)
    return sha256, corpus


def _with_texts(ids: StringColumn, documents: Iterable[Document], folder: Path, id_forms: IdForms) -> Iterator[Document]:
    """The documents of some ids, in their order; all are written to disk first, since they may come in any order and exceed memory."""
    make_folder(folder)
    write_corpus(documents, folder, source="documents")
    texts, index = StringColumn(folder / TEXT_FILE), IdIndex(folder / INDEX_FILE, StringColumn(folder / ID_FILE))
    missing, some_missing = Faults(), list[str]()
    for block in ids.slices():
        known = other_forms(block, index.rows) if id_forms == "nfc" else {}
        rows = index.rows([known.get(doc_id, doc_id) for doc_id in block])
        absent = [doc_id for doc_id, row in zip(block, rows, strict=True) if row < 0]
        missing.extend(f'"{doc_id}"' for doc_id in absent)
        some_missing = some_missing or absent
        if not missing.count:
            yield from map(Document, block, texts.take(rows))
    if missing.count:
        advice = forms_advice(some_missing, index.rows) or "add them, or import without texts"
        raise StoreError(f"documents must hold the text of every vector, got none for {missing.told('ids')}; {advice}")


def _copy_vectors(opened: VectorSource, building: Path, id_stream: Iterator[str] | None, dtype: StoreDtype, name: str) -> tuple[str, int]:
    faults = Faults()
    with (
        VectorFile(building / VECTOR_FILE, dtype=dtype, width=opened.width) as file,
        StringColumnWriter(building / ID_FILE, name="doc_id", batch_rows=ID_BATCH) as column,
    ):
        for block_ids, block in opened.blocks:
            ids = block_ids if id_stream is None else list(islice(id_stream, len(block)))
            if ids is None:
                raise StoreError(f"{name}: vectors must come with ids, the file holds none; name a file of them ({option('ids')})")
            if len(ids) < len(block):
                raise StoreError(f"{name}: ids and vectors must be equally many, got only {file.rows + len(ids)} ids")
            faults.extend(f"id {ids[index]!r} is not valid Unicode" for index in invalid_unicode(ids))
            stored = to_dtype(block, dtype)
            rows, kinds = unusable_rows(stored)
            faults.extend(f'"{ids[row]}" {kind}' for row, kind in zip(rows, kinds, strict=True))
            if not faults.count:
                column.extend(ids)
            file.append(stored)
        surplus = sum(1 for _ in id_stream) if id_stream is not None else 0
        if surplus:
            raise StoreError(f"{name}: ids and vectors must be equally many, got {file.rows + surplus} ids for {file.rows} vectors")
        if faults.count:
            raise StoreError(
                f"{name}: vectors must be finite and of a length other than zero, got {faults.told('vectors')}; correct or drop them"
            )
        file.commit()
        return file.sha256, file.rows
