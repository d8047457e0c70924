"""The commit of a changed store: its new files are merged in a folder inside it, then moved in by steps that
can all be repeated.

The files of a change, in the order in which they come to be:

1. ``appending/state.json`` with the staged corpus and vectors (`adiabat.store.build`), or
   ``compaction.json``;
2. ``appending/merged``: ids, texts, hashes, index, tombstones and manifest of the changed store;
3. ``appending/commit.json``: from here on the change goes forward, and no reader opens the store;
4. the vectors are appended to the store's own file, then each merged file takes the place of the former one,
   the manifest last: until then it counts only the old documents;
5. state and marker go, then the folder.

Killed before step 3, the store is as it was; after it, the next change repeats steps 4 and 5.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np

from adiabat.core.arrays import Mask
from adiabat.core.disk import AnyPath, make_folder, move, remove, sync
from adiabat.core.errors import StoreError
from adiabat.core.files import MANIFEST_FILE, open_plain, read_json, sole_writer, write_json
from adiabat.core.formats import layout_of
from adiabat.core.provenance import Digest, DigestedFile, require
from adiabat.core.text import counted
from adiabat.core.wording import again
from adiabat.data.records import Document
from adiabat.data.text_hashes import HASH_BYTES
from adiabat.store.build import Staging
from adiabat.store.corpus_files import (
    HASHES_PER_BLOCK,
    ID_BATCH,
    TEXT_BATCH,
    IdIndex,
    StringColumn,
    StringColumnWriter,
    digest_documents,
    hash_ids,
)
from adiabat.store.manifest import (
    APPENDING,
    COMMIT_FILE,
    COMPACTION_FILE,
    COPY_BYTES,
    GRAPH_FILES,
    HASH_FILE,
    HEADER_BYTES,
    ID_FILE,
    INDEX_FILE,
    REBUILD,
    STATE_FILE,
    TEXT_FILE,
    TOMBSTONE_FILE,
    VECTOR_FILE,
    Manifest,
    VectorFile,
    exists,
    hash_of_vectors,
    plain_disk_errors,
)
from adiabat.store.tombstones import Tombstones
from adiabat.store.vector_store import Store

MERGED = "merged"
"""Folder of the files that replace the store's own, inside the staging folder."""


@dataclass(frozen=True, slots=True)
class Change:
    """A changed store, numbers of documents, and that of vectors which a compaction removed."""

    store: Store
    new: int = 0
    replaced: int = 0
    unchanged: int = 0
    deleted: int = 0
    removed: int = 0

    @property
    def told(self) -> str:
        """A note for the user."""
        if self.removed:
            return f"{self.store.path}: {counted(self.removed, 'vector')} of former documents removed"
        counts = {
            "new": self.new,
            "replaced": self.replaced,
            "deleted": self.deleted,
            "unchanged": self.unchanged,
        }
        listed = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        if not self.new + self.replaced + self.deleted:
            return f"{self.store.path} is as it was: {listed or 'nothing to change'}"
        former = self.store.manifest.tombstones
        left = ""
        if former:
            left = f"; its file keeps {counted(former, 'vector')} of former documents until it is compacted"
        return f"{self.store.path}: {listed}{left}"


def finish_change(path: AnyPath) -> bool:
    """Complete a change that was interrupted during its commit; True if there was one."""
    folder = Path(path)
    if not _is_committed(folder):
        return False
    with changing(folder) as is_completed:
        return is_completed


@contextmanager
def changing(folder: Path) -> Iterator[bool]:
    """The right to change a store, whose interrupted commit is completed first; True if there was one."""
    with plain_disk_errors(folder), sole_writer(folder):
        yield _complete(folder)


def _complete(folder: Path) -> bool:
    """`finish_change` under the lock, which is the store's: every change removes its staging folder at its
    end.
    """
    if not _is_committed(folder):
        return False
    if exists(folder / APPENDING / COMMIT_FILE):
        _redo(folder)
    remove(folder / APPENDING)
    return True


def _is_committed(folder: Path) -> bool:
    """Whether the staging folder of a change has the marker of the commit, or what a finished commit had no
    time to remove.
    """
    staging = folder / APPENDING
    if exists(staging / COMMIT_FILE):
        return True
    return staging.is_dir() and not any(exists(staging / name) for name in (STATE_FILE, COMPACTION_FILE))


def cleared(folder: Path) -> Path:
    """The staging folder without leftovers of a merge that did not reach its commit, or of a finished commit
    without time to tidy.
    """
    staging = folder / APPENDING
    make_folder(staging)
    remove(staging / MERGED)
    if not exists(staging / STATE_FILE):
        remove(*staging.iterdir())
    return staging


def commit(folder: Path, added: "Added | None" = None) -> Store:
    """Move the merged files in."""
    # From this marker on, the change must go forward: every later one completes it first.
    write_json({} if added is None else {"sha256": added.sha256}, folder / APPENDING / COMMIT_FILE)
    sync(folder / APPENDING)
    _redo(folder)
    store = Store.open(folder)
    # Last of all: what remains of it tells the same command that its change is done.
    remove(folder / APPENDING)
    return store


@dataclass(frozen=True, slots=True)
class _Part:
    """A folder with files of documents, and which of them the changed store has."""

    folder: Path
    kept: Mask


@dataclass(frozen=True, slots=True)
class Added(_Part):
    """Documents that are added to a store; the vector file has those that are kept alone, with this
    digest.
    """

    sha256: str

    @classmethod
    def of(cls, staging: Staging) -> "Added | None":
        """All documents of a staging folder; None for none."""
        state = staging.state
        every = np.ones(state.count, dtype=np.bool_)
        return cls(staging.folder, every, state.sha256) if state.count else None

    @property
    def count(self) -> int:
        """Number of documents that are kept."""
        return int(np.count_nonzero(self.kept))


def merge(store: Store, kept: Mask, added: Added | None, *, source: str | None = None) -> None:
    """Write ids, texts, hashes, index and manifest of the changed store into the staging folder.

    Args:
        kept: Which documents of the store remain.
        added: Documents that follow them; None for none.
        source: Their corpus.
    """
    count = int(np.count_nonzero(kept)) + (0 if added is None else added.count)
    if not count:
        raise StoreError(
            f"{store.path} must keep at least one document, got a request to delete "
            f"all {store.count:,}; remove the folder"
        )
    merged = store.path / APPENDING / MERGED
    make_folder(merged)
    parts = [_Part(store.path, kept), *([added] if added else [])]
    files = {ID_FILE: _merge_column(parts, merged / ID_FILE, "doc_id", ID_BATCH)}
    id_hashes = [hash_ids(names) for names in StringColumn(merged / ID_FILE).slices()]
    files[INDEX_FILE] = IdIndex.write(merged / INDEX_FILE, np.concatenate(id_hashes))
    if HASH_FILE in store.manifest.files:
        files[HASH_FILE] = _merge_hashes(parts, merged / HASH_FILE)
    corpus = None
    # The quantised graph stays where it is.
    files |= {name: digest for name, digest in store.manifest.files.items() if name in GRAPH_FILES}
    if store.has_texts:
        files[TEXT_FILE] = _merge_column(parts, merged / TEXT_FILE, "text", TEXT_BATCH)
        ids_and_texts = zip(StringColumn(merged / ID_FILE), StringColumn(merged / TEXT_FILE), strict=True)
        corpus = digest_documents(Document(doc_id, text) for doc_id, text in ids_and_texts)
    deleted = np.flatnonzero(~kept)
    tombstones = store.tombstones.with_deleted(deleted, store.doc_ids(deleted))
    if len(tombstones.rows):
        files[TOMBSTONE_FILE] = tombstones.write(merged)
    sha256, file_sha256 = _vector_digests(store, tombstones, added)
    replace(
        store.manifest,
        count=count,
        sha256=sha256,
        files=files,
        corpus=corpus,
        source=_joined(store.manifest.source, source),
        tombstones=len(tombstones.rows),
        file_sha256=file_sha256,
    ).write(merged)


def _joined(former: str, added: str | None) -> str:
    """Names of all corpora of a store, each once."""
    return former if added is None or added in former.split(" + ") else f"{former} + {added}"


def _merge_column(parts: Sequence[_Part], path: Path, name: str, batch_rows: int) -> Digest:
    """Write the strings of all parts."""
    with StringColumnWriter(path, name=name, batch_rows=batch_rows) as writer:
        for part in parts:
            kept = iter(part.kept.tolist())
            for strings in StringColumn(part.folder / path.name).slices():
                # `compress` takes as many truth values as there are strings.
                writer.extend(compress(strings, kept))
    return writer.digest


def _merge_hashes(parts: Sequence[_Part], path: Path) -> Digest:
    """Write the hashes of the texts of all kept documents."""
    with DigestedFile(path) as writer:
        for part in parts:
            start = 0
            with open_plain(part.folder / HASH_FILE, error=StoreError) as file:
                while len(block := np.fromfile(file, dtype=f"V{HASH_BYTES}", count=HASHES_PER_BLOCK)):
                    writer.write(block[part.kept[start : start + len(block)]].tobytes())
                    start += len(block)
        writer.sync()
    return writer.digest


def _vector_digests(store: Store, tombstones: Tombstones, added: Added | None) -> tuple[str, str]:
    """SHA-256 of the vectors of all documents of the changed store, and of all rows of its vector file; "" if
    both are equal.
    """
    path, manifest = store.path / VECTOR_FILE, store.manifest
    whole, of_documents = _hashes_of_rows(path, manifest, tombstones)
    if whole.hexdigest() != manifest.digests[VECTOR_FILE].sha256:
        raise StoreError(f"{path} is damaged: its SHA-256 is not the manifest's; {REBUILD}")
    hashes = [of_documents, whole] if len(tombstones.rows) else [whole]
    if added is not None:
        size = added.count * manifest.row_bytes
        hashes = [hash_of_vectors(added.folder / VECTOR_FILE, size, so_far) for so_far in hashes]
    return hashes[0].hexdigest(), hashes[1].hexdigest() if len(hashes) > 1 else ""


def _hashes_of_rows(
    path: Path, manifest: Manifest, tombstones: Tombstones
) -> tuple["hashlib._Hash", "hashlib._Hash"]:
    """SHA-256 of all rows of a vector file, and of those with a document."""
    has_document = np.ones(manifest.file_rows, dtype=np.bool_)
    has_document[tombstones.rows] = False
    rows_per_block = max(1, COPY_BYTES // manifest.row_bytes)
    whole, of_documents = hashlib.sha256(), hashlib.sha256()
    with open_plain(path, error=StoreError) as file:
        file.seek(HEADER_BYTES)
        for start in range(0, manifest.file_rows, rows_per_block):
            inside = has_document[start : start + rows_per_block]
            block = np.frombuffer(file.read(len(inside) * manifest.row_bytes), dtype=np.uint8).reshape(
                len(inside), -1
            )
            whole.update(block.data)
            if len(tombstones.rows):
                of_documents.update(block[inside].data)
    return whole, of_documents


def _redo(folder: Path) -> None:
    """Run a commit from its beginning; every step can be repeated with the same result."""
    staging = folder / APPENDING
    if exists(staging / MERGED / MANIFEST_FILE):
        # Replace the store's own manifest last: until then it counts only the old documents.
        old = Manifest.read(folder)
        manifest = _undamaged(folder, old)
        if exists(staging / VECTOR_FILE):
            _extend_vectors(folder / VECTOR_FILE, staging / VECTOR_FILE, manifest, old.file_rows)
        for name in (*manifest.digests, MANIFEST_FILE):
            _move(staging / MERGED / name, folder / name)
    if not Manifest.read(folder).tombstones:
        remove(folder / TOMBSTONE_FILE)
    # Remove the state first, then the marker: a folder without both holds leftovers, which the next call
    # clears.
    remove(staging / STATE_FILE, staging / COMPACTION_FILE, staging / COMMIT_FILE)
    sync(staging)


def _undamaged(folder: Path, old: Manifest) -> Manifest:
    """The manifest of the changed store, after checking the digest of every file; if one differs, the change
    is undone.
    """
    staging = folder / APPENDING
    is_extended = exists(staging / VECTOR_FILE)
    try:
        return _checked(folder, old, is_extended, remedy=f"{again()}: the store is unchanged")
    except StoreError:
        try:
            require(old.files if is_extended else old.digests, folder, remedy=REBUILD, error=StoreError)
        except StoreError:
            # The change replaced some of the store's own files already, which is no damage: name the file
            # that is damaged.
            return _checked(folder, old, is_extended, remedy=REBUILD)
        if is_extended:
            with VectorFile(
                folder / VECTOR_FILE, dtype=old.dtype, width=old.width, rows=old.file_rows
            ) as vectors:
                vectors.commit()
        remove(staging)
        raise


def _checked(folder: Path, old: Manifest, is_extended: bool, *, remedy: str) -> Manifest:
    """The manifest of the changed store, whose every file has its digest."""
    staging = folder / APPENDING
    manifest = Manifest.read(staging / MERGED)
    for name, digest in manifest.files.items() if is_extended else manifest.digests.items():
        # A commit that is repeated finds some of its files moved already, and files that do not change are
        # not merged.
        is_merged = exists(staging / MERGED / name)
        require({name: digest}, staging / MERGED if is_merged else folder, remedy=remedy, error=StoreError)
    if is_extended:
        # An import has no state of its own.
        state = staging / (STATE_FILE if (staging / STATE_FILE).exists() else COMMIT_FILE)
        with layout_of(state, remedy=remedy, error=StoreError):
            added = str(read_json(state, remedy=remedy, error=StoreError)["sha256"])
        size = HEADER_BYTES + (manifest.file_rows - old.file_rows) * old.row_bytes
        require({VECTOR_FILE: Digest(size, added, HEADER_BYTES)}, staging, remedy=remedy, error=StoreError)
    return manifest


def _extend_vectors(target: Path, addition: Path, manifest: Manifest, old_rows: int) -> None:
    """Append the vectors of another file; only once they are on disk does the header count them."""
    with VectorFile(target, dtype=manifest.dtype, width=manifest.width, rows=old_rows) as vectors:
        with open_plain(addition, error=StoreError) as file:
            file.seek(HEADER_BYTES)
            while block := file.read(manifest.row_bytes * max(1, COPY_BYTES // manifest.row_bytes)):
                vectors.append(np.frombuffer(block, dtype=manifest.dtype).reshape(-1, manifest.width))
        vectors.commit()


def _move(source: Path, target: Path) -> None:
    """Rename, unless an earlier attempt did."""
    if exists(source):
        move(source, target)
        sync(target.parent)
