"""The files of a corpus: ids, texts, an index of the ids, and hashes of the texts; each with the digest of what was written."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from adiabat.core.checksums import Digest, DigestedFile
from adiabat.core.errors import Faults, StoreError
from adiabat.data.records import Document
from adiabat.data.text_hashes import hash_texts
from adiabat.store.id_index import ID_BATCH, TEXT_BATCH, IdIndex, StringColumn, StringColumnWriter, hash_ids, refuse_duplicates, unwritable
from adiabat.store.manifest import HASH_FILE, ID_FILE, INDEX_FILE, TEXT_FILE


def digest_documents(documents: Iterable[Document]) -> str:
    """SHA-256 over ids and texts in order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(_digested(document))
    return digest.hexdigest()


def _digested(document: Document) -> bytes:
    """Id and text, each after its length, so that no two corpora give the same bytes."""
    parts = (string.encode("utf-8", "surrogatepass") for string in (document.doc_id, document.text))
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """A corpus on disk.

    Attributes:
        sha256: Over ids and texts in order.
        count: Documents.
        files: What each of its files must be, by name: of what was written, whatever the disk gives back.
    """

    sha256: str
    count: int
    files: dict[str, Digest]


def write_corpus(documents: Iterable[Document], folder: Path, *, source: str) -> CorpusFiles:
    """Write the ids, the texts, the id index and the hashes of the texts of a corpus."""
    digest, hashes, faults, stream = hashlib.sha256(), [np.empty(0, dtype=np.uint64)], Faults(), iter(documents)
    with (
        StringColumnWriter(folder / ID_FILE, name="doc_id", batch_rows=ID_BATCH) as ids,
        StringColumnWriter(folder / TEXT_FILE, name="text", batch_rows=TEXT_BATCH) as texts,
        DigestedFile(folder / HASH_FILE) as text_hashes,
    ):
        while part := list(islice(stream, ID_BATCH)):
            broken = unwritable(f"{document.doc_id}{document.text}" for document in part)
            faults.extend(f"document {part[place].doc_id!r}" for place in broken)
            if faults.count:
                continue
            for document in part:
                digest.update(_digested(document))
            hashes.append(hash_ids([document.doc_id for document in part]))
            ids.extend(document.doc_id for document in part)
            texts.extend(document.text for document in part)
            text_hashes.write(hash_texts([document.text for document in part]).tobytes())
        text_hashes.sync()
    if faults.count:
        raise StoreError(
            f"{source}: ids and texts must be valid Unicode, got half a surrogate pair: {faults.told('documents')}; clean the corpus"
        )
    every = np.concatenate(hashes)
    refuse_duplicates(every, StringColumn(folder / ID_FILE), source)
    index = IdIndex.write(folder / INDEX_FILE, every)
    files = {ID_FILE: ids.digest, INDEX_FILE: index, HASH_FILE: text_hashes.digest, TEXT_FILE: texts.digest}
    return CorpusFiles(digest.hexdigest(), len(every), files)
