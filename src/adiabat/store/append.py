"""Adding documents to a store: staged inside it, then moved in by a commit whose every step can be repeated."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from adiabat.core.errors import Faults, StoreError
from adiabat.core.files import MANIFEST_FILE, read_json, sole_writer, write_text
from adiabat.core.provenance import Digest, DigestedFile, require
from adiabat.data.records import Document, Fingerprint
from adiabat.store.build import CHUNK_SIZE, DocumentEncoder, Progress, Staging, require_chunk_size
from adiabat.store.corpus_files import ID_BATCH, TEXT_BATCH, IdIndex, StringColumn, StringColumnWriter, digest_documents, hash_ids
from adiabat.store.manifest import (
    APPENDING,
    COMMIT_FILE,
    COPY_BYTES,
    HASH_FILE,
    HEADER_BYTES,
    ID_FILE,
    INDEX_FILE,
    REBUILD,
    STATE_FILE,
    TEXT_FILE,
    VECTOR_FILE,
    Manifest,
    StoreDtype,
    VectorFile,
    hash_of_vectors,
    plain_disk_errors,
    sync_folder,
)
from adiabat.store.vector_store import Store

MERGED = "merged"
"""Folder of the files that replace the store's own, inside the staging folder."""


def append_documents(
    encoder: DocumentEncoder,
    documents: Callable[[], Iterator[Document]],
    path: str | os.PathLike[str],
    *,
    chunk_size: int = CHUNK_SIZE,
    on_progress: Progress | None = None,
    source: str,
) -> Store:
    """Encode new documents and add them at the end of a store; rows of old documents stay.

    Interrupted while encoding, the store is as it was, and the same call resumes. Interrupted within the commit, `Store.open` refuses the
    store until this function or `finish_append` has completed it.
    """
    require_chunk_size(chunk_size)
    folder = Path(path)
    finish_append(folder)
    # Outside of the lock, because hashing the weights of a large model takes seconds.
    fingerprint = encoder.fingerprint("document")
    _open_appendable(folder, fingerprint)
    with plain_disk_errors(folder), sole_writer(folder):
        # Open again: another append may have finished, or been interrupted in its commit, before the lock was taken.
        _complete(folder)
        store = _open_appendable(folder, fingerprint)
        staging = _stage(folder / APPENDING, fingerprint, store.dtype, chunk_size)
        staging.write_corpus(_new_documents(documents(), store, source), source=source)
        if not staging.state.count:
            staging.discard()
            return store
        staging.encode(encoder, on_progress, store=store)
        _merge(store, staging, source)
        # From this marker on, the append must go forward: every later call completes it first.
        write_text("", staging.folder / COMMIT_FILE)
        sync_folder(staging.folder)
        _redo(folder)
    return Store.open(folder)


def finish_append(path: str | os.PathLike[str]) -> bool:
    """Complete an append that was interrupted during its commit; True if there was one."""
    folder = Path(path)
    if not (folder / APPENDING / COMMIT_FILE).exists():
        return False
    with plain_disk_errors(folder), sole_writer(folder):
        return _complete(folder)


def _complete(folder: Path) -> bool:
    """`finish_append` under the lock, which is the store's: every append removes its staging folder at its end."""
    if not (folder / APPENDING / COMMIT_FILE).exists():
        return False
    _redo(folder)
    return True


def _open_appendable(folder: Path, fingerprint: Fingerprint) -> Store:
    store = Store.open(folder)
    if store.fingerprint is None:
        raise StoreError(f"{folder} holds imported vectors whose encoder is unknown; import them again with encoder and texts, then append")
    store.require_encoder(fingerprint)
    return store


def _stage(folder: Path, fingerprint: Fingerprint, dtype: StoreDtype, chunk_size: int) -> Staging:
    """Start or resume in the staging folder, removing leftovers of an interrupted commit."""
    folder.mkdir(exist_ok=True)
    # Leftovers of a merge that did not reach its commit, or of a finished commit without time to tidy.
    shutil.rmtree(folder / MERGED, ignore_errors=True)
    if not (folder / STATE_FILE).exists():
        for child in folder.iterdir():
            child.unlink()
    remedy = "remove it to start the append again, or append those documents first"
    return Staging.prepare(folder, fingerprint, dtype, chunk_size=chunk_size, remedy=remedy)


def _new_documents(documents: Iterator[Document], store: Store, source: str) -> Iterator[Document]:
    """Documents whose ids are not in the store; known ids are refused, all at once."""
    present = Faults()
    while block := list(islice(documents, ID_BATCH)):
        stored = store.rows([document.doc_id for document in block]) >= 0
        present.extend(f'"{document.doc_id}"' for document, old in zip(block, stored, strict=True) if old)
        yield from (document for document, old in zip(block, stored, strict=True) if not old)
    if present.count:
        raise StoreError(
            f"{source}: document ids must be new to {store.path}, it holds {present.told('documents')}; remove them from the corpus"
        )


def _merge(store: Store, staging: Staging, source: str) -> None:
    """Write the extended ids, texts, hashes, index and manifest into the staging folder."""
    merged = staging.folder / MERGED
    merged.mkdir()
    folders = store.path, staging.folder, merged
    ids = _merge_column(*folders, ID_FILE, "doc_id", ID_BATCH)
    index = IdIndex.write(merged / INDEX_FILE, np.concatenate([hash_ids(names) for names in StringColumn(merged / ID_FILE).slices()]))
    files = {ID_FILE: ids, INDEX_FILE: index, HASH_FILE: _merge_hashes(*folders)}
    corpus = None
    if store.has_texts:
        files[TEXT_FILE] = _merge_column(*folders, TEXT_FILE, "text", TEXT_BATCH)
        ids_and_texts = zip(StringColumn(merged / ID_FILE), StringColumn(merged / TEXT_FILE), strict=True)
        corpus = digest_documents(Document(doc_id, text) for doc_id, text in ids_and_texts)
    old = hash_of_vectors(store.path / VECTOR_FILE, store.count * store.manifest.row_bytes)
    if old.hexdigest() != store.manifest.sha256:
        raise StoreError(f"{store.path / VECTOR_FILE} is damaged: its SHA-256 is not the manifest's; {REBUILD}")
    replace(
        store.manifest,
        count=store.count + staging.state.count,
        sha256=hash_of_vectors(staging.folder / VECTOR_FILE, staging.state.count * store.manifest.row_bytes, old).hexdigest(),
        files=files,
        corpus=corpus,
        source=store.manifest.source if source == store.manifest.source else f"{store.manifest.source} + {source}",
    ).write(merged)


def _merge_column(store: Path, staging: Path, merged: Path, file: str, name: str, batch_rows: int) -> Digest:
    """Write old strings, then new ones."""
    with StringColumnWriter(merged / file, name=name, batch_rows=batch_rows) as writer:
        for strings in chain(StringColumn(store / file).slices(), StringColumn(staging / file).slices()):
            writer.extend(strings)
    return writer.digest


def _merge_hashes(store: Path, staging: Path, merged: Path) -> Digest:
    with DigestedFile(merged / HASH_FILE) as writer:
        for folder in (store, staging):
            with (folder / HASH_FILE).open("rb") as file:
                shutil.copyfileobj(file, writer, COPY_BYTES)
        writer.sync()
    return writer.digest


def _redo(folder: Path) -> None:
    """Run a commit from its beginning; every step can be repeated with the same result."""
    staging = folder / APPENDING
    if (staging / MERGED / MANIFEST_FILE).exists():
        # Replace the store's own manifest last: until then it counts only the old documents.
        old = Manifest.read(folder)
        manifest = _undamaged(folder, old)
        _extend_vectors(folder / VECTOR_FILE, staging / VECTOR_FILE, manifest, old.count)
        for name in (*manifest.files, MANIFEST_FILE):
            _move(staging / MERGED / name, folder / name)
    # Remove the state first, then the marker: a folder without both holds leftovers, which the next call clears.
    (staging / STATE_FILE).unlink(missing_ok=True)
    (staging / COMMIT_FILE).unlink()
    sync_folder(staging)
    shutil.rmtree(staging)


def _undamaged(folder: Path, old: Manifest) -> Manifest:
    """The manifest of the extended store, after checking the digest of every file; if one differs, the append is undone."""
    staging, remedy = folder / APPENDING, "append again: the store is unchanged"
    try:
        manifest = Manifest.read(staging / MERGED)
        for name, digest in manifest.files.items():
            # A commit that is repeated finds some of its files moved already.
            moved = not (staging / MERGED / name).exists()
            require({name: digest}, folder if moved else staging / MERGED, remedy=remedy, error=StoreError)
        added = read_json(staging / STATE_FILE, remedy=remedy, error=StoreError)["sha256"]
        size = HEADER_BYTES + (manifest.count - old.count) * old.row_bytes
        require({VECTOR_FILE: Digest(size, added, HEADER_BYTES)}, staging, remedy=remedy, error=StoreError)
    except StoreError:
        # The store can only be restored while none of its own files has been replaced.
        require(old.files, folder, remedy=REBUILD, error=StoreError)
        with VectorFile(folder / VECTOR_FILE, dtype=old.dtype, width=old.width, rows=old.count) as vectors:
            vectors.commit()
        shutil.rmtree(staging)
        raise
    return manifest


def _extend_vectors(target: Path, addition: Path, manifest: Manifest, old_count: int) -> None:
    with VectorFile(target, dtype=manifest.dtype, width=manifest.width, rows=old_count) as vectors:
        with addition.open("rb") as file:
            file.seek(HEADER_BYTES)
            while block := file.read(manifest.row_bytes * max(1, COPY_BYTES // manifest.row_bytes)):
                vectors.append(np.frombuffer(block, dtype=manifest.dtype).reshape(-1, manifest.width))
        vectors.commit()


def _move(source: Path, target: Path) -> None:
    """Rename, unless an earlier attempt did."""
    if source.exists():
        source.replace(target)
        sync_folder(target.parent)
