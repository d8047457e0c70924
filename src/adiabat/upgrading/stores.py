"""Stores of adiabat 0.1, whose manifest had no checksums but that of the vectors; the vectors stay as they
are.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.core.errors import StoreError
from adiabat.core.files import MANIFEST_FILE, read_json, reading, sole_writer
from adiabat.core.formats import rebuilt
from adiabat.core.progress import Watch
from adiabat.core.provenance import Digest, DigestedFile, digest_of, require
from adiabat.core.text import amount
from adiabat.data.records import Document, Fingerprint
from adiabat.data.text_hashes import HASH_BYTES, hash_texts
from adiabat.store.corpus_files import IdIndex, StringColumn, digest_documents, hash_ids
from adiabat.store.manifest import (
    APPENDING,
    COMMIT_FILE,
    HASH_FILE,
    HEADER_BYTES,
    ID_FILE,
    INDEX_FILE,
    REBUILD,
    STORE,
    TEXT_FILE,
    VECTOR_FILE,
    Manifest,
    StoreDtype,
    plain_disk_errors,
    require_store_format,
)
from adiabat.store.vector_store import Store
from adiabat.upgrading.backup import set_aside

DAMAGED = "restore the store from a copy, or rebuild it"


@dataclass(frozen=True, slots=True)
class FormerManifest:
    """The manifest of format 1."""

    fingerprint: Fingerprint | None
    dtype: StoreDtype
    width: int
    count: int
    sha256: str
    corpus: str | None
    encoder: str
    source: str
    created: str
    has_texts: bool

    def of_today(self, files: dict[str, Digest]) -> Manifest:
        """The manifest of today, with the digests of all files but that of the vectors."""
        shared = {
            name: getattr(self, name) for name in FormerManifest.__dataclass_fields__ if name != "has_texts"
        }
        return Manifest(**shared, files=files)


def is_former(folder: Path) -> bool:
    """Whether a store is of a former format; a newer one, and what is no store, is refused."""
    record = _record(folder)
    if record.get("version") in STORE.writers:
        return True
    require_store_format(folder, record)
    return False


def _record(folder: Path) -> dict[str, Any]:
    """The manifest as it lies there; that of format 1 has no checksum."""
    return read_json(folder / MANIFEST_FILE, remedy=REBUILD, error=StoreError, required=False)


def bytes_to_read(folder: Path) -> int:
    """Size of all files of a store."""
    return sum(
        (folder / name).stat().st_size
        for name in (VECTOR_FILE, ID_FILE, TEXT_FILE, INDEX_FILE)
        if (folder / name).exists()
    )


def bytes_to_write(folder: Path) -> int:
    """Size of the hashes of texts that are added."""
    record = _record(folder)
    return HASH_BYTES * int(record["count"]) if record.get("has_texts") else 0


def upgrade_store(folder: Path, watch: Watch) -> Path:
    """Check every file of a store of format 1, add the hashes of its texts, and write the manifest of today
    last.

    Returns:
        The former manifest.
    """
    if (folder / APPENDING / COMMIT_FILE).exists():
        raise StoreError(
            f"{folder} holds an append that is half done; complete it with the "
            "adiabat that began it, then upgrade"
        )
    needed, free = bytes_to_write(folder), shutil.disk_usage(folder).free
    if needed > free:
        raise StoreError(
            f"{folder} must have {amount(needed)} of free space for the hashes of its "
            f"texts, got {amount(free) or 'none'}; free some"
        )
    with plain_disk_errors(folder), sole_writer(folder):
        record = _record(folder)
        del record["format"], record["version"]
        former = rebuilt(
            FormerManifest,
            record,
            folder / MANIFEST_FILE,
            remedy=DAMAGED,
            error=StoreError,
            optional=["quantised"],
        )
        files = _checked_files(folder, former, watch)
        backup = set_aside(folder / MANIFEST_FILE)
        former.of_today(files).write(folder)
    # Vectors that were just compared are not read again.
    store = Store.open(folder)
    if (store.count, store.manifest.sha256) != (former.count, former.sha256):
        raise StoreError(f"{folder} must hold the vectors of its former manifest, got others; {DAMAGED}")
    return backup


def _checked_files(folder: Path, former: FormerManifest, watch: Watch) -> dict[str, Digest]:
    """Digests of all files but the vectors, each compared with what the former manifest says of it."""
    vectors = Digest(
        HEADER_BYTES + former.count * former.width * np.dtype(former.dtype).itemsize,
        former.sha256,
        HEADER_BYTES,
    )
    done = 0

    def show(count: int) -> None:
        nonlocal done
        done += count
        watch.progress(f"checking the vectors of {folder}", done, vectors.size)

    require({VECTOR_FILE: vectors}, folder, remedy=DAMAGED, error=StoreError, on_bytes=show)
    with reading(folder, remedy=DAMAGED, error=StoreError):
        ids = StringColumn(folder / ID_FILE)
        _require_index(folder, ids, former.count)
        names = [ID_FILE, INDEX_FILE]
        files = {}
        if former.has_texts:
            texts = StringColumn(folder / TEXT_FILE)
            watch.progress(f"checking the texts of {folder}", 0, former.count)
            documents = (Document(doc_id, text) for doc_id, text in zip(ids, texts, strict=True))
            if digest_documents(_counted(documents, former.count, watch, folder)) != former.corpus:
                raise ValueError("ids and texts do not match the checksum of the corpus")
            names.append(TEXT_FILE)
            files[HASH_FILE] = _write_hashes(texts, folder)
    return {**{name: digest_of(folder / name) for name in names}, **files}


def _counted(documents: Iterator[Document], count: int, watch: Watch, folder: Path) -> Iterator[Document]:
    """The same documents, with a report of progress at every 100,000."""
    for number, document in enumerate(documents, start=1):
        if number % 100_000 == 0:
            watch.progress(f"checking the texts of {folder}", number, count)
        yield document


def _require_index(folder: Path, ids: StringColumn, count: int) -> None:
    """Compare the index of ids with the ids; both had no checksum."""
    if len(ids) != count:
        raise ValueError(f"{len(ids)} ids for {count} vectors")
    # The index is computed again from the ids, and compared.
    hashes = np.concatenate([hash_ids(names) for names in ids.slices()])
    order = np.argsort(hashes, kind="stable")
    index = IdIndex(folder / INDEX_FILE, ids)
    if not index.holds(hashes[order], order):
        raise ValueError(f"{INDEX_FILE} is no index of {ID_FILE}")


def _write_hashes(texts: StringColumn, folder: Path) -> Digest:
    """Write the hash of each text, by which later updates find what changed; returns the file's digest."""
    with DigestedFile(folder / HASH_FILE) as file:
        for block in texts.slices():
            file.write(hash_texts(block).tobytes())
        file.sync()
    return file.digest
