"""The files of a corpus: ids, texts, an index of the ids, and hashes of the texts, by which equal texts are found."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from adiabat.core.checksums import Digest, DigestedFile
from adiabat.core.errors import Faults, StoreError
from adiabat.data.records import Document
from adiabat.data.text_hashes import HASH_BYTES, Hashes, hash_texts
from adiabat.store.id_index import (
    ID_BATCH,
    TEXT_BATCH,
    IdIndex,
    StringColumn,
    StringColumnWriter,
    hash_ids,
    invalid_unicode,
    refuse_duplicates,
    repeated_rows,
)
from adiabat.store.manifest import HASH_FILE, ID_FILE, INDEX_FILE, TEXT_FILE

HASHES_PER_BLOCK = 1 << 18


def digest_documents(documents: Iterable[Document]) -> str:
    """SHA-256 over ids and texts in order."""
    digest = hashlib.sha256()
    for document in documents:
        digest.update(_framed(document))
    return digest.hexdigest()


def _framed(document: Document) -> bytes:
    """Id and text, each after its length, so that no two corpora give the same bytes."""
    strings = (string.encode("utf-8", "surrogatepass") for string in (document.doc_id, document.text))
    return b"".join(len(string).to_bytes(8, "little") + string for string in strings)


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """A corpus on disk.

    Attributes:
        sha256: Over ids and texts in order.
        count: Documents.
        files: Digest of each file by its name: of the bytes written, whatever the disk gives back.
    """

    sha256: str
    count: int
    files: dict[str, Digest]


def write_corpus(documents: Iterable[Document], folder: Path, *, source: str) -> CorpusFiles:
    """Write the ids, the texts, the id index and the hashes of the texts of a corpus."""
    digest, id_hashes, faults, stream = hashlib.sha256(), [np.empty(0, dtype=np.uint64)], Faults(), iter(documents)
    with (
        StringColumnWriter(folder / ID_FILE, name="doc_id", batch_rows=ID_BATCH) as ids,
        StringColumnWriter(folder / TEXT_FILE, name="text", batch_rows=TEXT_BATCH) as texts,
        DigestedFile(folder / HASH_FILE) as text_hashes,
    ):
        while block := list(islice(stream, ID_BATCH)):
            broken = invalid_unicode(f"{document.doc_id}{document.text}" for document in block)
            faults.extend(f"document {block[index].doc_id!r}" for index in broken)
            if faults.count:
                continue  # All faults of the corpus are reported at once; nothing of it is kept.
            for document in block:
                digest.update(_framed(document))
            id_hashes.append(hash_ids([document.doc_id for document in block]))
            ids.extend(document.doc_id for document in block)
            texts.extend(document.text for document in block)
            text_hashes.write(hash_texts([document.text for document in block]).tobytes())
        text_hashes.sync()
    if faults.count:
        raise StoreError(
            f"{source}: ids and texts must be valid Unicode, got half a surrogate pair: {faults.told('documents')}; clean the corpus"
        )
    # Duplicates show once all ids are known: 8 bytes an id in memory, and the few that collide are read again.
    hashes = np.concatenate(id_hashes)
    refuse_duplicates(hashes, StringColumn(folder / ID_FILE), source)
    index = IdIndex.write(folder / INDEX_FILE, hashes)
    files = {ID_FILE: ids.digest, INDEX_FILE: index, HASH_FILE: text_hashes.digest, TEXT_FILE: texts.digest}
    return CorpusFiles(digest.hexdigest(), len(hashes), files)


@dataclass(frozen=True, slots=True)
class DuplicateTexts:
    """Documents whose text an earlier document has.

    Attributes:
        rows: Of them, ascending.
        originals: For each, the first row with its text.
    """

    rows: Int64[np.ndarray, " copies"]
    originals: Int64[np.ndarray, " copies"]

    @classmethod
    def of(cls, path: Path, *, after: Path | None, offset: int) -> "DuplicateTexts":
        """Find the documents of a corpus whose text stands before them: in the corpus, or in the store that it is to follow.

        Memory is 16 bytes a text of the corpus, and as much again while they are sorted.

        Args:
            path: Hashes of the texts of the corpus.
            after: Hashes of the texts of the store; None for none.
            offset: Documents of the store, which come before those of the corpus.
        """
        hashes = np.fromfile(path, dtype=f"S{HASH_BYTES}")
        # Texts that differ rarely share 64 bits, and numbers sort sooner than bytes: the other half decides among few.
        suspects = repeated_rows(hashes.view("<u8")[::2])
        _, first, inverse = np.unique(hashes[suspects], return_index=True, return_inverse=True)
        originals = np.full(len(hashes), -1, dtype=np.int64)
        originals[suspects] = offset + suspects[first][inverse]
        originals[originals == offset + np.arange(len(hashes))] = -1
        if after is not None:
            stored = first_rows(after, hashes)
            originals = np.where(stored >= 0, stored, originals)
        rows = np.flatnonzero(originals >= 0)
        return cls(offset + rows, originals[rows])

    def between(self, start: int, end: int) -> "DuplicateTexts":
        """Those among consecutive rows."""
        inside = slice(*np.searchsorted(self.rows, [start, end]))
        return DuplicateTexts(self.rows[inside], self.originals[inside])


def first_rows(path: Path, hashes: Hashes) -> Int64[np.ndarray, " n"]:
    """The first row of each text, by its hash; -1 for a text that is not there."""
    distinct, inverse = np.unique(hashes, return_inverse=True)
    rows = np.full(len(distinct), -1, dtype=np.int64)
    for start, block in _hash_blocks(path) if len(distinct) else ():
        positions = np.minimum(np.searchsorted(distinct, block), len(distinct) - 1)
        hits = np.flatnonzero(distinct[positions] == block)
        hits = hits[rows[positions[hits]] < 0]
        # Backwards, so that of several rows with one text the first is written last.
        rows[positions[hits[::-1]]] = start + hits[::-1]
    return rows[inverse]


def _hash_blocks(path: Path) -> Iterator[tuple[int, Hashes]]:
    start = 0
    with path.open("rb") as file:
        while len(block := np.fromfile(file, dtype=f"S{HASH_BYTES}", count=HASHES_PER_BLOCK)):
            yield start, block
            start += len(block)
