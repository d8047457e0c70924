"""The files of a corpus: ids, texts, an index of the ids, and hashes of the texts, which identify equal
texts.
"""

import hashlib
import mmap
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from jaxtyping import Int64

from adiabat.core.arrays import AnyRows, IdHashes, RowNumbers
from adiabat.core.arrow_columns import numbers_column, strings_column
from adiabat.core.errors import Faults, StoreError, several
from adiabat.core.files import reading
from adiabat.core.provenance import Digest, DigestedFile
from adiabat.data.records import Document
from adiabat.data.text_hashes import HASH_BYTES, Hashes, hash_texts
from adiabat.store.manifest import HASH_FILE, HEADER_BYTES, ID_FILE, INDEX_FILE, TEXT_FILE, npy_header

HASHES_PER_BLOCK = 1 << 18
_SURROGATE = re.compile("[\ud800-\udfff]")


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
        sha256: SHA-256 over ids and texts in order.
        count: Number of documents.
        files: Digest of each file by its name: of the bytes written, independent of errors of the disk.
    """

    sha256: str
    count: int
    files: dict[str, Digest]


def write_corpus(documents: Iterable[Document], folder: Path, *, source: str) -> CorpusFiles:
    """Write the ids, the texts, the id index and the hashes of the texts of a corpus."""
    digest, id_hashes = hashlib.sha256(), [np.empty(0, dtype=np.uint64)]
    faults, stream = Faults(), iter(documents)
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
            f"{source}: ids and texts must be valid Unicode, got half a surrogate pair: "
            f"{faults.told('documents')}; clean the corpus"
        )
    # Duplicates show once all ids are known: 8 bytes an id in memory, and the few that collide are read
    # again.
    hashes = np.concatenate(id_hashes)
    refuse_duplicates(hashes, StringColumn(folder / ID_FILE), source)
    index = IdIndex.write(folder / INDEX_FILE, hashes)
    files = {ID_FILE: ids.digest, INDEX_FILE: index, HASH_FILE: text_hashes.digest, TEXT_FILE: texts.digest}
    return CorpusFiles(digest.hexdigest(), len(hashes), files)


def duplicate_texts(path: Path, *, after: Path | None, offset: int) -> tuple[RowNumbers, RowNumbers]:
    """Documents of a corpus whose text occurs earlier in the corpus, or in the store that it extends.

    Memory is 16 bytes per text of the corpus, and twice that during sorting.

    Args:
        path: Hashes of the texts of the corpus.
        after: Hashes of the texts of the store; None for none.
        offset: Number of documents of the store, which precede those of the corpus.

    Returns:
        Their rows, ascending, and for each the first row with its text.
    """
    hashes = np.fromfile(path, dtype=f"S{HASH_BYTES}")
    # Different texts rarely share 64 bits, and numbers sort faster than bytes; the other half decides among
    # the few.
    suspects = repeated_rows(hashes.view("<u8")[::2])
    _, first, inverse = np.unique(hashes[suspects], return_index=True, return_inverse=True)
    originals = np.full(len(hashes), -1, dtype=np.int64)
    originals[suspects] = offset + suspects[first][inverse]
    originals[originals == offset + np.arange(len(hashes))] = -1
    if after is not None:
        with after.open("rb") as file:
            stored = first_rows(file, hashes)
        originals = np.where(stored >= 0, stored, originals)
    rows = np.flatnonzero(originals >= 0)
    return offset + rows, originals[rows]


def first_rows(file: BinaryIO, hashes: Hashes) -> RowNumbers:
    """The first row of each text in an open file of hashes; -1 for an unknown text."""
    distinct, inverse = np.unique(hashes, return_inverse=True)
    rows = np.full(len(distinct), -1, dtype=np.int64)
    start = 0
    file.seek(0)
    while len(distinct) and len(block := np.fromfile(file, dtype=f"S{HASH_BYTES}", count=HASHES_PER_BLOCK)):
        positions = np.minimum(np.searchsorted(distinct, block), len(distinct) - 1)
        hits = np.flatnonzero(distinct[positions] == block)
        hits = hits[rows[positions[hits]] < 0]
        # In reverse, so that of several rows with one text, the first is written last.
        rows[positions[hits[::-1]]] = start + hits[::-1]
        start += len(block)
    return rows[inverse]


ID_BATCH = 1024


TEXT_BATCH = 64
"""Rows per Arrow batch; reading one row reads its batch, and texts are long."""


LOOKUP_SLICE = 16384
"""Number of lookups after which touched pages of the index are released."""


def hash_ids(doc_ids: Sequence[str]) -> IdHashes:
    """64 bits per id; different ids may share them, so every match is verified against the id itself."""
    # Python's own hash of a text differs from process to process.
    digests = b"".join(
        hashlib.blake2b(doc_id.encode("utf-8", "surrogatepass"), digest_size=8).digest() for doc_id in doc_ids
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


class StringColumn:
    """One column of strings in an Arrow file, read by batches and never as a whole.

    All batches but the last have the same number of rows, so a row's batch is known from its number.
    """

    def __init__(self, path: Path) -> None:
        """Open the file."""
        with reading(path, remedy="rebuild the store", error=StoreError):
            # Read, not memory-mapped: mapped pages would count as this process's memory and grow with the
            # corpus.
            self._file = pa.ipc.open_file(pa.OSFile(str(path)))
            batches = self._file.num_record_batches
            self._step = self._file.get_batch(0).num_rows if batches else 1
            last = self._file.get_batch(batches - 1).num_rows if batches else 0
        self._count: int = max(batches - 1, 0) * self._step + last

    def __len__(self) -> int:
        return self._count

    def take(self, rows: AnyRows) -> list[str]:
        """The strings at `rows`, in that order; each batch is read once."""
        numbers = np.asarray(rows, dtype=np.int64)
        if not len(numbers):
            return []
        strings = np.empty(len(numbers), dtype=object)
        batches = numbers // self._step
        # Rows are grouped by batch, so that each batch is read once.
        order = np.argsort(batches, kind="stable")
        starts = np.flatnonzero(np.diff(batches[order], prepend=-1))
        for members in np.split(order, starts[1:]):
            column = self._file.get_batch(int(batches[members[0]])).column(0)
            strings[members] = column.take(numbers_column(numbers[members] % self._step)).to_pylist()
        return strings.tolist()

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.slices())

    def slices(self, start: int = 0) -> Iterator[list[str]]:
        """All strings from row `start` on, in non-empty lists."""
        for number in range(start // self._step, self._file.num_record_batches):
            batch: list[str] = self._file.get_batch(number).column(0).to_pylist()
            if strings := batch[max(0, start - number * self._step) :]:
                yield strings


class StringColumnWriter:
    """Writes what `StringColumn` reads."""

    def __init__(self, path: Path, *, name: str, batch_rows: int) -> None:
        """Create the file."""
        self._schema = pa.schema([pa.field(name, pa.string(), nullable=False)])
        self._batch_rows = batch_rows
        self._waiting: list[str] = []
        self._sink = DigestedFile(path)
        self._writer = pa.ipc.new_file(self._sink, self._schema)

    def extend(self, strings: Iterable[str]) -> None:
        """Append strings."""
        self._waiting.extend(strings)
        while len(self._waiting) >= self._batch_rows:
            self._flush()

    def _flush(self) -> None:
        """Write one batch; all but the last one have the same number of rows."""
        batch, self._waiting = self._waiting[: self._batch_rows], self._waiting[self._batch_rows :]
        self._writer.write_batch(pa.record_batch([strings_column(batch)], schema=self._schema))

    def __enter__(self) -> "StringColumnWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                if self._waiting:
                    self._flush()
                self._writer.close()
                self._sink.sync()
        finally:
            self._sink.close()

    @property
    def digest(self) -> Digest:
        """Digest of the whole file, available after the context ends."""
        return self._sink.digest


class IdIndex:
    """From id to row by a sorted file of 64-bit hashes; every match is verified against the id itself.

    A lookup is a binary search in a mapped file, and reads the ids that share the hash: 16 bytes of disk per
    id, and hardly any memory.
    """

    def __init__(self, path: Path, ids: StringColumn) -> None:
        """Map the file."""
        self._ids = ids
        count = len(ids)
        # An npy array of two rows: sorted hashes, and the row of each.
        if not path.exists() or path.stat().st_size != HEADER_BYTES + 16 * count:
            raise StoreError(
                f"{path} must index {count} ids, it is missing or of another length; rebuild the store"
            )
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._hashes = np.frombuffer(self._map, dtype="<u8", count=count, offset=HEADER_BYTES)
        self._rows = np.frombuffer(self._map, dtype="<u8", count=count, offset=HEADER_BYTES + 8 * count)

    @staticmethod
    def write(path: Path, hashes: IdHashes) -> Digest:
        """Write the index of ids whose hashes are given in row order."""
        order = np.argsort(hashes, kind="stable")
        with DigestedFile(path) as file:
            file.write(npy_header("uint64", 2, len(hashes)))
            file.write(hashes[order].astype("<u8").data)
            file.write(order.astype("<u8").data)
            file.sync()
        return file.digest

    def holds(self, hashes: IdHashes, rows: RowNumbers) -> bool:
        """Whether the file holds these hashes, sorted, and the row of each."""
        return bool(
            np.array_equal(self._hashes, hashes) and np.array_equal(self._rows, rows.astype(np.uint64))
        )

    def rows(self, doc_ids: Sequence[str]) -> RowNumbers:
        """One row per id, -1 for an unknown one."""
        hashes = hash_ids(doc_ids)
        rows = np.full(len(doc_ids), -1, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        for start in range(0, len(order), LOOKUP_SLICE):
            members = order[start : start + LOOKUP_SLICE]
            rows[members] = self._look_up([doc_ids[index] for index in members], hashes[members])
            # Sorted lookups walk the map once; releasing visited pages keeps resident memory small.
            self._map.madvise(mmap.MADV_DONTNEED)
        return rows

    def _look_up(self, doc_ids: Sequence[str], hashes: IdHashes) -> RowNumbers:
        """Rows of ids whose hashes are ascending."""
        result = np.full(len(doc_ids), -1, dtype=np.int64)
        positions = np.searchsorted(self._hashes, hashes)
        pending = np.arange(len(doc_ids))
        while len(pending):
            # A position past the end, or with another hash, ends the search for that id; a collision moves on
            # by one.
            inside = pending[positions[pending] < len(self._hashes)]
            pending = inside[self._hashes[positions[inside]] == hashes[inside]]
            rows = self._rows[positions[pending]].astype(np.int64)
            stored_ids = self._ids.take(rows)
            same = np.array([doc_ids[index] for index in pending], dtype=object) == stored_ids
            result[pending[same]] = rows[same]
            pending = pending[~same]
            positions[pending] += 1
        return result


def repeated_rows(hashes: IdHashes) -> Int64[np.ndarray, " some"]:
    """Rows whose hash occurs more than once, ascending: equal neighbours in the order of the hashes."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    equal = ordered[1:] == ordered[:-1]
    return np.unique(np.concatenate([order[:-1][equal], order[1:][equal]]))


def refuse_duplicates(hashes: IdHashes, ids: StringColumn, source: str) -> None:
    """Check that every id occurs once."""
    counts = Counter(ids.take(repeated_rows(hashes)))
    repeated = [f'"{doc_id}" {times} times' for doc_id, times in counts.items() if times > 1]
    if repeated:
        raise StoreError(
            f"{source}: document ids must be unique, got {several(repeated, of='ids')}; "
            "remove or rename the repeats"
        )


def invalid_unicode(strings: Iterable[str]) -> list[int]:
    """Indices of strings that are not valid Unicode (half a surrogate pair), which Arrow and tokenizers
    refuse.
    """
    return [
        index for index, string in enumerate(strings) if not string.isascii() and _SURROGATE.search(string)
    ]
