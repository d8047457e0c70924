"""Stored document vectors: found by document id, read from disk piece by piece, bound to the encoder that
made them.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from operator import eq
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from adiabat.core.arrays import AnyRows, BlockArray, RowNumbers
from adiabat.core.disk import AnyPath, real
from adiabat.core.errors import StoreError
from adiabat.core.files import MANIFEST_FILE, is_store, reading
from adiabat.core.provenance import require
from adiabat.core.wording import call_of, positional
from adiabat.data.records import Fingerprint
from adiabat.data.text_hashes import HASH_BYTES, Hashes, hash_texts
from adiabat.store.corpus_files import IdIndex, StringColumn, first_rows
from adiabat.store.manifest import (
    APPENDING,
    COMMIT_FILE,
    HASH_FILE,
    HEADER_BYTES,
    ID_FILE,
    INDEX_FILE,
    REBUILD,
    TEXT_FILE,
    TOMBSTONE_FILE,
    VECTOR_FILE,
    Manifest,
    StoreDtype,
    building_of,
    exists,
    npy_header,
    read_rows,
)
from adiabat.store.tombstones import Tombstones
from adiabat.store.watched_files import WatchedFiles


class Store:
    """A finished store of document vectors.

    It reads through buffers of the caller's size: its memory does not grow with the corpus. Documents are
    numbered from 0, without the rows of deleted ones.

    Example:
        >>> store = adiabat.Store.open(adiabat.embed("demo", "corpus.jsonl", out="store"))
        >>> store.gather([0, 1]).shape == (2, store.width)
        True
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Open the files of a store whose manifest has been read; `Store.open` is the way in."""
        self.path = path
        self.manifest = manifest
        self._handle = self._hash_handle = -1
        # What `stored_blocks` keeps on a device, by its name: as long as this object lives, its rows do not
        # change.
        self.kept: dict[str, object] = {}
        # Taken first, so that a change while the files are opened is noticed.
        self._watched = WatchedFiles(path, manifest)
        self._compare(always=False)
        self._ids = StringColumn(path / ID_FILE)
        self._texts = StringColumn(path / TEXT_FILE) if manifest.has_texts else None
        self._index = IdIndex(path / INDEX_FILE, self._ids)
        self.tombstones = Tombstones.none()
        if manifest.tombstones:
            with reading(path / TOMBSTONE_FILE, remedy=REBUILD, error=StoreError):
                self.tombstones = Tombstones.read(path, manifest.tombstones, file_rows=manifest.file_rows)
        # All files stay open: a change of the store renames new ones into their places, and this object keeps
        # the documents it has.
        if HASH_FILE in manifest.files:
            self._hash_handle = os.open(path / HASH_FILE, os.O_RDONLY)
        # Read by `preadv`, not mapped: pages of a map would count as this process's memory and grow with the
        # corpus.
        self._handle = os.open(path / VECTOR_FILE, os.O_RDONLY)

    @classmethod
    def open(cls, path: AnyPath) -> "Store":
        """Open the finished store of a directory, and compare the SHA-256 of the files that changed since the
        last comparison.

        Raises:
            StoreError: If there is none, it is unfinished or damaged, or of another format version.
        """
        store = cls(Path(path), require_readable(path))
        store._watched.require_manifest()
        return store

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `os.close` is bound as a default: at the interpreter's end this module's names may be gone before
        # the last store.
        for name in ("_handle", "_hash_handle"):
            handle = getattr(self, name, -1)
            if handle >= 0:
                close(handle)
                setattr(self, name, -1)

    def __fspath__(self) -> str:
        return str(self.path)

    def require_unchanged(self) -> None:
        """Refuse a store that another process wrote anew since it was opened; documents that it added or
        deleted change no row of it.

        Raises:
            StoreError: If a file is another one, so that rows and vectors would be of two stores.
        """
        self._watched.require_unchanged(self._handle)

    def __len__(self) -> int:
        return self.manifest.count

    @property
    def count(self) -> int:
        """Number of documents."""
        return self.manifest.count

    @property
    def width(self) -> int:
        """Width of a vector (E)."""
        return self.manifest.width

    @property
    def dtype(self) -> StoreDtype:
        """Number format of the stored vectors."""
        return self.manifest.dtype

    @property
    def fingerprint(self) -> Fingerprint | None:
        """Fingerprint of the encoder that made the vectors; None if they were imported without it."""
        return self.manifest.fingerprint

    @property
    def has_texts(self) -> bool:
        """Whether the store has texts."""
        return self.manifest.has_texts

    @cached_property
    def vectors(self) -> np.memmap:
        """All vectors as a read-only memory map, for inspection; touched pages count as memory of the
        process.

        In a store with deleted documents that is not compacted yet, they are a copy in memory.
        """
        shape = (self.manifest.file_rows, self.width)
        with open(os.dup(self._handle), "rb") as file:
            mapped: np.memmap = np.memmap(file, dtype=self.dtype, mode="r", offset=HEADER_BYTES, shape=shape)
        return np.delete(mapped, self.tombstones.rows, axis=0) if self.manifest.tombstones else mapped

    def rows(self, doc_ids: Sequence[str]) -> RowNumbers:
        """Rows of documents by their ids, int64 [n]; -1 for an id that is not in the store."""
        return self._index.rows(doc_ids)

    def doc_ids(self, rows: AnyRows) -> list[str]:
        """Ids of documents by their rows, from 0; StoreError for a row outside of the store."""
        return self._ids.take(self._checked(rows))

    def texts(self, rows: AnyRows) -> list[str]:
        """Texts of documents by their rows, from 0; StoreError for a row outside of the store, or if it keeps
        no texts.
        """
        if self._texts is None:
            raise StoreError(
                f"{self.path} must keep texts to show them, it holds vectors "
                "only; rebuild the store with texts"
            )
        return self._texts.take(self._checked(rows))

    def gather(self, rows: AnyRows) -> Float32[np.ndarray, "n e"]:
        """Vectors of documents by their rows, as stored (not normalised), float32 [n, width]; StoreError for
        a row outside of the store.

        Args:
            rows: From 0, any order, repeats allowed.
        """
        try:
            file_rows = self.tombstones.file_rows(self._checked(rows))
            return read_rows(self._handle, file_rows, self.dtype, self.width).astype(np.float32, copy=False)
        except EOFError as error:
            raise self._became_shorter() from error

    def rows_of_texts(self, texts: Collection[str]) -> dict[str, int]:
        """The first row of each known text, exactly as it was embedded; empty for vectors imported without
        texts.

        Texts are looked up by their hashes, which are read once.
        """
        if not texts or self._hash_handle < 0:
            return {}
        distinct = list(dict.fromkeys(texts))
        with open(os.dup(self._hash_handle), "rb") as file:
            rows = first_rows(file, hash_texts(distinct))
        return {text: row for text, row in zip(distinct, rows.tolist(), strict=True) if row >= 0}

    def text_hashes(self, rows: RowNumbers) -> Hashes:
        """128-bit hashes of the texts of documents, as they were embedded; zeros, which no text has, where a
        store does not know them.

        Stores of vectors that were imported without texts do not, and those without texts of adiabat 0.1.
        """
        if HASH_FILE not in self.manifest.files:
            return np.zeros(len(self._checked(rows)), dtype=f"S{HASH_BYTES}")
        # Mapped for each call: touched pages of one map would count as this process's memory.
        with open(os.dup(self._hash_handle), "rb") as file:
            mapped = np.memmap(file, dtype=f"S{HASH_BYTES}", mode="r", shape=(self.count,))
        return np.array(mapped[self._checked(rows)])

    def read_into(self, start: int, buffer: BlockArray) -> int:
        """Read vectors from the row `start` on into a contiguous buffer of the store's dtype and width.

        Returns:
            Rows read: fewer than the buffer holds only at the end of the store.

        Raises:
            StoreError: If the buffer is of another dtype or width, or the file became shorter.
        """
        if buffer.dtype != self.dtype or buffer.shape[1] != self.width or not buffer.flags.c_contiguous:
            raise StoreError(
                f"buffer must be contiguous {self.dtype} of width {self.width}, got {buffer.dtype} of shape "
                f"{buffer.shape}; make it with np.empty((rows, store.width), store.dtype)"
            )
        rows = max(0, min(len(buffer), self.count - start))
        if self.manifest.tombstones:
            self._read_around_tombstones(start, buffer[:rows])
        else:
            self._read_file(start, buffer[:rows])
        return rows

    def _read_around_tombstones(self, start: int, buffer: BlockArray) -> None:
        """Read documents from the row `start` on through a buffer of equal size, which also takes the rows
        between them.

        Each read covers as many rows of the file as the buffer holds, from the next document on; the
        documents among these rows are copied out.
        """
        through = np.empty_like(buffer)
        places = self.tombstones.file_rows(np.arange(start, start + len(buffer)))
        done = 0
        while done < len(buffer):
            first = places[done]
            end = int(np.searchsorted(places, first + len(through)))
            self._read_file(int(first), through[: places[end - 1] - first + 1])
            buffer[done:end] = through[places[done:end] - first]
            done = end

    def _read_file(self, file_row: int, buffer: BlockArray) -> None:
        """Fill a buffer from a row of the vector file on."""
        unread = buffer.data.cast("B") if len(buffer) else memoryview(b"")
        offset = HEADER_BYTES + file_row * self.manifest.row_bytes
        # A read may return fewer bytes than requested.
        while unread:
            size = os.preadv(self._handle, [unread], offset)
            if not size:
                raise self._became_shorter()
            unread, offset = unread[size:], offset + size

    def blocks(self, block_rows: int) -> Iterator[tuple[int, BlockArray]]:
        """All vectors, `block_rows` (> 0) at a time; the last block may be shorter.

        Yields:
            First row of the block, and its vectors in the store's dtype.
        """
        if block_rows < 1:
            raise StoreError(f"block_rows must be at least 1, got {block_rows}; raise it")
        for start in range(0, self.count, block_rows):
            block = np.empty((min(block_rows, self.count - start), self.width), dtype=self.dtype)
            self.read_into(start, block)
            yield start, block
        self.require_unchanged()

    def differences(self, fingerprint: Fingerprint) -> list[str]:
        """A phrase for each difference between the encoder of the stored vectors and the document side of
        another.

        A store imported without an encoder can only check the width.
        """
        if self.fingerprint is not None:
            return self.fingerprint.differences(fingerprint)
        if fingerprint.width == self.width:
            return []
        return [f"width {self.width} in the store, {fingerprint.width} in the encoder"]

    def require_encoder(self, fingerprint: Fingerprint, *, who: str | None = None) -> None:
        """Refuse an encoder whose vectors cannot be compared with the stored ones, by a StoreError that names
        each difference.

        Args:
            fingerprint: Fingerprint of the document side of the encoder.
            who: Its name, for the message.
        """
        differences = self.differences(fingerprint)
        if not differences:
            return
        than = f" than {who}'s" if who else ""
        raise StoreError(
            f"{self.path} was built by another encoder{than}: {'; '.join(differences)}; "
            "rebuild the store, or choose its encoder and document_prompt"
        )

    def same_documents(self, other: "Store") -> bool:
        """Whether both stores hold the same ids in the same order."""
        if self.count != other.count:
            return False
        return all(map(eq, self._ids, other._ids))

    def verify(self) -> None:
        """Read every file and compare its SHA-256 with the manifest's; StoreError if one differs."""
        self._compare(always=True)

    def _compare(self, *, always: bool) -> None:
        """Compare all files with their checksums, and the header of the vectors, which has none, with the
        manifest.
        """
        require(self.manifest.digests, real(self.path), remedy=REBUILD, error=StoreError, always=always)
        vectors = self.path / VECTOR_FILE
        with reading(vectors, remedy=REBUILD, error=StoreError), vectors.open("rb") as file:
            if file.read(HEADER_BYTES) != npy_header(self.dtype, self.manifest.file_rows, self.width):
                raise ValueError(
                    f"another header than that of {self.manifest.file_rows} vectors of "
                    f"{self.width} numbers, {self.dtype}"
                )

    def _became_shorter(self) -> StoreError:
        """The error for a vector file that another program cut."""
        return StoreError(f"{self.path / VECTOR_FILE} became shorter while it was read; rebuild the store")

    def _checked(self, rows: AnyRows) -> RowNumbers:
        """Row numbers, if all of them are documents."""
        numbers = np.asarray(rows, dtype=np.int64)
        outside = numbers[(numbers < 0) | (numbers >= self.count)]
        if len(outside):
            raise StoreError(
                f"rows must lie in 0..{self.count - 1}, got {outside[0]}; use `rows` to find a document's row"
            )
        return numbers


def require_readable(path: AnyPath) -> Manifest:
    """Refuse what is no finished store, by its manifest alone: the files, which may be large, are compared
    when it is opened.
    """
    folder = Path(path)
    require_store(folder)
    if exists(folder / APPENDING / COMMIT_FILE):
        raise StoreError(
            f"{folder} must not be read while a change of it is half done; repeat "
            "the interrupted change to complete it"
        )
    return Manifest.read(folder)


def require_count(k: int) -> None:
    """Refuse a search for no documents."""
    if k < 1:
        raise StoreError(f"k must be at least 1, got {k}; ask for the number of documents wanted")


def refuse_swapped(store: str | Path, *others: object, order: Sequence[str]) -> None:
    """Report arguments in the wrong order if another argument is the store; `Store.open` reports every other
    fault.
    """
    if is_store(Path(store)):
        return
    for other in others:
        with suppress(OSError):  # A query may be too long for a path.
            if isinstance(other, str | Path) and is_store(Path(other)):
                listed = " ".join(map(positional, order))
                raise StoreError(
                    f"{positional('store')} must be a store, {store} is not, but "
                    f"{other} is; the order is {listed}"
                )


def require_store(folder: Path) -> None:
    """Refuse a directory without a finished store."""
    if not exists(folder / MANIFEST_FILE):
        raise StoreError(_why_no_store(folder))


def _why_no_store(folder: Path) -> str:
    """What a folder is in place of a finished store, and what to do."""
    building = building_of(folder)
    if building.exists():
        return (
            f"{folder} must be a finished store, its build was interrupted "
            f"({building.name}); run its command again to resume"
        )
    held = f"it holds no {MANIFEST_FILE}" if folder.exists() else "there is no such directory"
    building_it = call_of("embed", positional("model"), positional("corpus"), out=folder)
    return f"{folder} must be a store, {held}; build it with: {building_it}"
