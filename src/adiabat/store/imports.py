"""Vectors that another program made, imported into a new store or a living one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import compress, islice
from pathlib import Path

import numpy as np

from adiabat.config.shared import NEEDED_COSINE, IdForms
from adiabat.core.disk import AnyPath, clear, make_folder, move, remove, require_sole
from adiabat.core.errors import Faults, StoreError
from adiabat.core.files import MANIFEST_FILE, is_store, read_json, sole_writer, write_json
from adiabat.core.provenance import now
from adiabat.core.wording import option
from adiabat.data.records import Document
from adiabat.data.text_hashes import HASH_BYTES
from adiabat.store.addressing import forms_advice, other_forms
from adiabat.store.agreement import agreed_fingerprint
from adiabat.store.append import Selection
from adiabat.store.build import (
    DocumentEncoder,
    begin,
    clear_traces,
    finish,
    refuse_files,
    to_dtype,
    unusable_rows,
)
from adiabat.store.commit import Added, Change, changing, cleared
from adiabat.store.corpus_files import (
    ID_BATCH,
    CorpusFiles,
    IdIndex,
    StringColumn,
    StringColumnWriter,
    invalid_unicode,
    write_corpus,
)
from adiabat.store.deletion import Deletion, require_idle
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
    exists,
    plain_disk_errors,
)
from adiabat.store.vector_sources import Ids, VectorSource, open_vectors, read_ids, require_ids
from adiabat.store.vector_store import Store

BLOCK_ROWS = 4096
TEXT_FOLDER = "documents"
INCOMING_FILE = "ids.incoming"


@dataclass(frozen=True, slots=True)
class Incoming:
    """Vectors that another program made, and what belongs to them.

    With texts and an encoder, `sample` random documents are encoded again. If all agree with their vectors in
    direction and length, the vectors are the encoder's, and so is the fingerprint of their store.

    Attributes:
        vectors: A numpy, Parquet, Arrow or faiss file.
        ids: One per vector: strings or whole numbers, or a file (text with one per line, ``.json``, ``.npy``,
            ``.arrow``, ``.parquet``); None takes those of the Parquet file or faiss index itself.
        documents: Texts by id, in any order; texts with other ids are checked and left out. None for a store
            without texts.
        sample: Number of documents that are encoded again.
        seed: Of their choice.
        min_cosine: Cosine that each of the sampled vectors must have with the encoder's own.
        source: Name of the corpus, for the manifest; None takes the file's.
        id_forms: Whether the ids of texts must be exact, or may differ in their Unicode form.
    """

    vectors: AnyPath
    ids: Ids | None = None
    documents: Iterable[Document] | None = None
    encoder: DocumentEncoder | None = None
    sample: int = 16
    seed: int = 0
    min_cosine: float = NEEDED_COSINE
    source: str | None = None
    id_forms: IdForms = "exact"

    @property
    def corpus_name(self) -> str:
        """The corpus, for the manifest."""
        return self.source or Path(self.vectors).name


def import_vectors(
    incoming: Incoming | AnyPath,
    out: AnyPath,
    *,
    ids: Ids | None = None,
    dtype: StoreDtype = "float16",
    encoder_name: str = "unknown",
) -> Store:
    """Make a store of vectors from a file in a directory that must not exist or be empty.

    A path stands for vectors with `ids` and without texts. Without texts or an encoder the fingerprint of a
    store stays unknown, and only the width of an encoder can be checked.
    """
    if not isinstance(incoming, Incoming):
        incoming = Incoming(incoming, ids)
    encoder, name = incoming.encoder, str(incoming.vectors)
    target = Path(out)
    if is_store(target):
        raise StoreError(f"{target} must be empty, it is a store; choose another {option('out')}")
    opened = open_vectors(name, block_rows=BLOCK_ROWS)
    if encoder and encoder.width != opened.width:
        raise StoreError(
            f"{name} must have the encoder's width {encoder.width}, got "
            f"{opened.width}; choose the encoder that made them"
        )
    building = begin(target)
    with plain_disk_errors(building), sole_writer(building):
        _start_over(building)
        try:
            write_json({"import": name}, building / STATE_FILE)
            sha256, corpus = _copy(opened, building, incoming, dtype)
            with_texts = incoming.documents is not None
            fingerprint, files = None, dict(corpus.files)
            if not with_texts:
                del files[TEXT_FILE], files[HASH_FILE]
            elif encoder:
                fingerprint = agreed_fingerprint(
                    encoder, building, incoming.sample, incoming.seed, min_cosine=incoming.min_cosine
                )
            manifest = Manifest(
                fingerprint=fingerprint,
                dtype=dtype,
                width=opened.width,
                count=corpus.count,
                sha256=sha256,
                files=files,
                corpus=corpus.sha256 if with_texts else None,
                encoder=encoder_name,
                source=incoming.corpus_name,
                created=now(),
            )
        except BaseException:
            # An import is fast compared with encoding, so it restarts instead of resuming.
            clear(building)
            raise
        # No call resumes an import, so its traces go before it has its place.
        manifest.write(building)
        clear_traces(building, manifest)
        return finish(building, target, manifest)


def update_from_vectors(incoming: Incoming, out: AnyPath, *, deletion: Deletion | None = None) -> Change:
    """Replace documents of a store by their ids, or add them, with vectors of a file; those whose vector and
    text it has stay.

    An interrupted call leaves the store as it was, and starts over when it is repeated.
    """
    folder = Path(out)
    opened = open_vectors(str(incoming.vectors), block_rows=BLOCK_ROWS)
    with changing(folder):
        store = Store.open(folder)
        _require_fitting(store, opened, incoming)
        deleted = (deletion or Deletion()).mask(store)
        selection = Selection(store, incoming.corpus_name, False, deleted, ~deleted, incoming.id_forms)
        require_idle(folder)
        staging = cleared(folder)
        try:
            _copy(opened, staging, incoming, store.dtype, named=selection.named)
            if store.fingerprint is not None:
                assert incoming.encoder is not None
                agreed_fingerprint(
                    incoming.encoder, staging, incoming.sample, incoming.seed, min_cosine=incoming.min_cosine
                )
            added = _changed_vectors(staging, selection)
        except BaseException:
            clear(staging)
            raise
        return selection.commit(added)


def _require_fitting(store: Store, opened: VectorSource, incoming: Incoming) -> None:
    """Refuse vectors that cannot stand beside those of a store."""
    require_sole(store.path / VECTOR_FILE)
    if opened.width != store.width:
        raise StoreError(
            f"{incoming.vectors} must have the store's width {store.width}, got {opened.width}; "
            "choose vectors of the same model"
        )
    if incoming.documents is None and HASH_FILE in store.manifest.files:
        raise StoreError(
            f"{store.path} knows its texts, and vectors for it must come with theirs; give the corpus"
        )
    if store.fingerprint is None:
        return
    if incoming.encoder is None:
        raise StoreError(
            f"{store.path} holds vectors of a known model, which must check others; give the model"
        )
    store.require_encoder(incoming.encoder.fingerprint("document"))


def _changed_vectors(staging: Path, selection: Selection) -> Added | None:
    """The vectors of a staging folder that the store lacks, or has with another vector or text; the vector
    file keeps those alone.
    """
    store, ids = selection.store, StringColumn(staging / ID_FILE)
    is_new = np.ones(len(ids), dtype=np.bool_)
    all_vectors = staging / INCOMING_FILE
    move(staging / VECTOR_FILE, all_vectors)
    all_hashes = np.fromfile(staging / HASH_FILE, dtype=f"S{HASH_BYTES}")
    with VectorFile(staging / VECTOR_FILE, dtype=store.dtype, width=store.width) as file:
        for start in range(0, len(ids), BLOCK_ROWS):
            inside = np.arange(start, min(start + BLOCK_ROWS, len(ids)))
            names, vectors = ids.take(inside), np.load(all_vectors, mmap_mode="r")[inside]
            rows = store.rows(names)
            is_same, known = rows >= 0, np.flatnonzero(rows >= 0)
            is_same[known] = (store.gather(rows[known]) == vectors[known].astype(np.float32)).all(axis=1)
            if HASH_FILE in store.manifest.files:
                is_same[known] &= store.text_hashes(rows[known]) == all_hashes[inside[known]]
            selection.replace(names, rows, is_same)
            selection.unchanged += int(np.count_nonzero(is_same))
            is_new[inside] = ~is_same
            if not is_same.all():
                file.append(vectors[~is_same])
        file.commit()
        selection.refuse_deleted()
        remove(all_vectors)
        return Added(staging, is_new, file.sha256) if is_new.any() else None


def _start_over(building: Path) -> None:
    """Remove the files of a killed import; refuse a folder with other content."""
    if _is_import(building):
        clear(building / TEXT_FOLDER)
        files = (VECTOR_FILE, ID_FILE, INCOMING_FILE, TEXT_FILE, HASH_FILE, INDEX_FILE, MANIFEST_FILE)
        # Remove the state last: until then, it identifies the folder.
        remove(*(building / name for name in (*files, STATE_FILE)))
    refuse_files(
        building, parts_too=False, demand="empty", remedy=f"remove it, or choose another {option('out')}"
    )


def _is_import(building: Path) -> bool:
    """Whether a killed import left a folder: with its state, or with a manifest in place of one."""
    if not exists(building / STATE_FILE):
        return exists(building / MANIFEST_FILE)
    return "import" in read_json(
        building / STATE_FILE, remedy=f"remove the folder {building}", error=StoreError
    )


def _copy(
    opened: VectorSource,
    building: Path,
    incoming: Incoming,
    dtype: StoreDtype,
    *,
    named: Callable[[Iterator[Document]], Iterator[Document]] = iter,
) -> tuple[str, CorpusFiles]:
    """Write vectors, ids and texts (empty ones if unknown); returns the digest of the vectors, and the other
    files.

    `named` gives the documents the ids under which they are written.
    """
    name, ids = str(incoming.vectors), incoming.ids
    require_ids(opened, name, ids)
    id_stream = None if ids is None else read_ids(ids)
    sha256, count = _copy_vectors(opened, building, id_stream, dtype, name)
    if not count:
        raise StoreError(f"{name}: must hold at least one vector, got none")
    # The ids were first written unchecked; they are now read from a renamed file, checked, written again and
    # indexed.
    unchecked = building / INCOMING_FILE
    move(building / ID_FILE, unchecked)
    column = StringColumn(unchecked)
    imported: Iterator[Document]
    if incoming.documents is None:
        imported = (Document(doc_id, "") for doc_id in column)
    else:
        imported = _with_texts(column, incoming.documents, building / TEXT_FOLDER, incoming.id_forms)
    corpus = write_corpus(named(imported), building, source=name)
    remove(unchecked)
    clear(building / TEXT_FOLDER)
    return sha256, corpus


def _with_texts(
    ids: StringColumn, documents: Iterable[Document], folder: Path, id_forms: IdForms
) -> Iterator[Document]:
    """The documents of some ids, in their order; all are written to disk first, since they may come in any
    order and exceed memory.
    """
    make_folder(folder)
    write_corpus(documents, folder, source="documents")
    texts = StringColumn(folder / TEXT_FILE)
    index = IdIndex(folder / INDEX_FILE, StringColumn(folder / ID_FILE))
    missing, some_missing = Faults(), list[str]()
    for block in ids.slices():
        known = other_forms(block, index.rows) if id_forms == "nfc" else {}
        rows = index.rows([known.get(doc_id, doc_id) for doc_id in block])
        absent = list(compress(block, (rows < 0).tolist()))
        missing.extend(f'"{doc_id}"' for doc_id in absent)
        some_missing = some_missing or absent
        if not missing.count:
            yield from map(Document, block, texts.take(rows))
    if missing.count:
        advice = forms_advice(some_missing, index.rows) or "add them, or import without texts"
        raise StoreError(
            f"documents must hold the text of every vector, got none for {missing.told('ids')}; {advice}"
        )


def _copy_vectors(
    opened: VectorSource, building: Path, id_stream: Iterator[str] | None, dtype: StoreDtype, name: str
) -> tuple[str, int]:
    """Write vectors and ids, unchecked but for their number; returns the digest and the number of the
    vectors.
    """
    faults = Faults()
    with (
        VectorFile(building / VECTOR_FILE, dtype=dtype, width=opened.width) as file,
        StringColumnWriter(building / ID_FILE, name="doc_id", batch_rows=ID_BATCH) as column,
    ):
        for block_ids, block in opened.blocks:
            ids = block_ids if id_stream is None else list(islice(id_stream, len(block)))
            assert ids is not None, "require_ids was called"
            if len(ids) < len(block):
                raise StoreError(
                    f"{name}: ids and vectors must be equally many, got only "
                    f"{file.rows + len(ids)} ids; give one for each vector"
                )
            faults.extend(f"id {ids[index]!r} is not valid Unicode" for index in invalid_unicode(ids))
            stored = to_dtype(block, dtype)
            rows, kinds = unusable_rows(stored)
            faults.extend(f'"{ids[row]}" {kind}' for row, kind in zip(rows, kinds, strict=True))
            if not faults.count:
                column.extend(ids)
            file.append(stored)
        surplus = sum(1 for _ in id_stream or ())
        if surplus:
            counts = f"{file.rows + surplus} ids for {file.rows} vectors"
            raise StoreError(
                f"{name}: ids and vectors must be equally many, got {counts}; give one for each vector"
            )
        if faults.count:
            raise StoreError(
                f"{name}: vectors must be finite and of a length other than zero, got "
                f"{faults.told('vectors')}; correct or drop them"
            )
        file.commit()
        return file.sha256, file.rows
