"""The content of a store's directory: file names, the manifest, the vector file, and writes that survive a
crash.
"""

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from adiabat.core.arrays import VectorArray
from adiabat.core.disk import open_in_place, sync
from adiabat.core.errors import StoreError, disk_error_of
from adiabat.core.files import MANIFEST_FILE, is_there, open_plain, read_json, write_json
from adiabat.core.formats import Format, rebuilt, to_upgrade
from adiabat.core.provenance import Digest
from adiabat.core.text import counted
from adiabat.core.wording import again
from adiabat.data.records import Fingerprint

FORMAT = "adiabat-store"
VERSION = 2
"""Version 1 had no checksums of ids and texts."""
VERSION_WITH_TOMBSTONES = 3
"""Of a store whose vector file has rows of deleted documents, which a reader of version 2 would find."""
STORE = Format(VERSION_WITH_TOMBSTONES, oldest=VERSION, writers={1: "0.1"})
"""Numbers of the manifest's format."""
VECTOR_FILE = "vectors.npy"
ID_FILE = "ids.arrow"
TEXT_FILE = "texts.arrow"
INDEX_FILE = "id_index.npy"
HASH_FILE = "text_hashes.bin"
TOMBSTONE_FILE = "tombstones.bin"
GRAPH_FILES = GRAPH_FILE, GRAPH_WEIGHTS_FILE = "encoder.xml", "encoder.bin"
"""The quantised graph that made the vectors of a store, in OpenVINO's format."""
STATE_FILE = "state.json"
COMPACTION_FILE = "compaction.json"
COMMIT_FILE = "commit.json"
APPENDING = "appending"
BUILDING_SUFFIX = ".building"
LEXICAL_FILE, SPOOL_FILE = "lexical.json", "postings.tmp"
DATA_FILE, ROW_FILE, START_FILE = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
VOCABULARY_FILE, PARAMETER_FILE = "vocab.index.json", "params.index.json"
LEXICAL_FILES = (LEXICAL_FILE, SPOOL_FILE, DATA_FILE, ROW_FILE, START_FILE, VOCABULARY_FILE, PARAMETER_FILE)
"""Of a BM25 index; a killed build of version 0.1 left the spool beside it."""
REBUILD = "rebuild the store, or copy it again from where it is whole"

HEADER_BYTES = 128
"""Fixed size, so that a header with more rows can overwrite the old one; a multiple of 64, as the npy format
requires."""
COPY_BYTES = 1 << 22
"""Bytes read at a time while files are hashed or copied: 4 MiB."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

SHORTEST, LONGEST = 1e-15, 1e15
"""Range of vector lengths whose squares and products neither vanish nor overflow in float32 (1e-38 to
3e38)."""

StoreDtype = Literal["float16", "float32"]


@dataclass(frozen=True, slots=True)
class Quantisation:
    """What int8 changes in the vectors of a store, measured on documents of its corpus.

    Attributes:
        calibrated: Texts that it is calibrated on.
        compared: Documents whose vectors are compared with those in float32.
        minimum_cosine: Least cosine of both vectors of a document.
        mean_cosine: Mean of these cosines.
        queries: Documents whose first sentence is a query for the rest of them, among all compared ones.
        before: Mean nDCG@10 of these queries in float32; None without any.
        after: The same by the quantised documents.
        difference: Its paired 95 % interval; None with fewer than two queries.
    """

    calibrated: int
    compared: int
    minimum_cosine: float
    mean_cosine: float
    queries: int = 0
    before: float | None = None
    after: float | None = None
    difference: tuple[float, float] | None = None

    @property
    def told(self) -> str:
        """One line for users."""
        documents = counted(self.compared, "document")
        line = f"int8: cosine {self.minimum_cosine:.4f} or more to float32, mean {self.mean_cosine:.4f}"
        if self.before is None or self.after is None:
            return f"{line} ({documents})"
        interval = ""
        if self.difference is not None:
            low, high = self.difference
            interval = f" [{low:+.4f}, {high:+.4f}]"
        change = f"{self.after - self.before:+.4f}{interval} from {self.before:.4f}"
        known = counted(self.queries, "first sentence")
        return f"{line}, nDCG@10 {change} ({documents}, {known} as queries)"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a finished store.

    Attributes:
        fingerprint: Fingerprint of the encoder; None for vectors imported without one.
        width: Width of a vector (E).
        count: Number of documents.
        sha256: SHA-256 of the vectors of all documents, in order.
        files: Digest of every other file of the store, by name.
        corpus: SHA-256 over ids and texts in order; None if the texts are unknown.
        encoder: Name of the encoder, for messages.
        source: Name of the corpus, for messages.
        created: ISO 8601, UTC.
        tombstones: Rows of the vector file that belong to no document any more; `TOMBSTONE_FILE` lists them.
        file_sha256: SHA-256 of all rows of the vector file; "" if there are no tombstones.
        quantisation: What int8 changes in the vectors; None if they are not quantised.
    """

    fingerprint: Fingerprint | None
    dtype: StoreDtype
    width: int
    count: int
    sha256: str
    files: Mapping[str, Digest]
    corpus: str | None
    encoder: str
    source: str
    created: str
    tombstones: int = 0
    file_sha256: str = ""
    quantisation: Quantisation | None = None

    @property
    def has_texts(self) -> bool:
        """Whether the store has texts."""
        return TEXT_FILE in self.files

    @property
    def is_quantised(self) -> bool:
        """Whether a quantised graph, which is kept in the store, made its vectors."""
        return self.fingerprint is not None and bool(self.fingerprint.quantised)

    @property
    def documents(self) -> str:
        """What tells these documents from others: the digest of their ids and texts, or of the vectors where
        texts are unknown.
        """
        return self.corpus or self.sha256

    @property
    def row_bytes(self) -> int:
        """Bytes of one vector."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def file_rows(self) -> int:
        """Rows of the vector file."""
        return self.count + self.tombstones

    @property
    def file_bytes(self) -> int:
        """Expected size of the vector file in bytes."""
        return HEADER_BYTES + self.file_rows * self.row_bytes

    @property
    def digests(self) -> dict[str, Digest]:
        """Digest of each file of the store, by name; that of the vector file leaves its header out."""
        return {
            VECTOR_FILE: Digest(self.file_bytes, self.file_sha256 or self.sha256, HEADER_BYTES),
            **self.files,
        }

    def write(self, folder: Path) -> None:
        """Write the manifest into `folder` atomically."""
        record: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        record |= {"format": FORMAT, "version": VERSION_WITH_TOMBSTONES if self.tombstones else VERSION}
        if not self.tombstones:
            # Earlier versions of adiabat read stores without tombstones, and refuse keys that they do not
            # know.
            del record["tombstones"], record["file_sha256"]
        del record["quantisation"]
        if self.quantisation is not None:
            record["quantisation"] = asdict(self.quantisation)
        record["fingerprint"] = self.fingerprint.to_json() if self.fingerprint else None
        record["files"] = {name: digest._asdict() for name, digest in self.files.items()}
        is_new = self.tombstones > 0 or self.quantisation is not None
        write_json(record, folder / MANIFEST_FILE, writer=is_new)
        sync(folder)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a finished store."""
        path = folder / MANIFEST_FILE
        # The version is read first: manifests before version 2 have no checksum.
        require_store_format(folder, read_json(path, remedy=REBUILD, error=StoreError, required=False))
        record = read_json(path, remedy=REBUILD, error=StoreError)
        del record["format"]
        optional = ["quantised", "quantisation"]
        if record.pop("version") != VERSION_WITH_TOMBSTONES:
            optional += ["tombstones", "file_sha256"]
        return rebuilt(cls, record, path, remedy=REBUILD, error=StoreError, optional=optional)


def require_store_format(folder: Path, record: Mapping[str, Any]) -> None:
    """Refuse the manifest of something else than a store, or of another version of adiabat."""
    path = folder / MANIFEST_FILE
    if record.get("format") != FORMAT:
        raise StoreError(f'{path}: format must be "{FORMAT}"; choose the directory of a store')
    STORE.require(record.get("version"), path, older=to_upgrade(folder), error=StoreError)


def exists(path: Path) -> bool:
    """`is_there` for the files of a store."""
    return is_there(path, error=StoreError)


def building_of(target: Path) -> Path:
    """The folder in which the store for `target` is built."""
    return Path(f"{os.path.realpath(target)}{BUILDING_SUFFIX}")


def npy_header(dtype: str, count: int, width: int) -> bytes:
    """Header of an npy file (format 1.0), padded to `HEADER_BYTES`.

    Its parts: 6 bytes of magic, 2 of the version, 2 with the length of the rest, and a Python dictionary that
    ends in a line feed. A greater number of rows thus fits in the same place.
    """
    text = (
        f"{{'descr': '{np.dtype(dtype).newbyteorder('<').str}', 'fortran_order': "
        f"False, 'shape': ({count}, {width}), }}"
    )
    # Magic, version and the length of the body take 10 bytes, the line feed 1.
    body = text.encode("ascii").ljust(HEADER_BYTES - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def write_at(handle: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at an offset in a file."""
    unwritten = memoryview(content).cast("B")
    while unwritten:
        size = os.pwrite(handle, unwritten, offset)
        unwritten, offset = unwritten[size:], offset + size


def read_rows(handle: int, rows: Int[np.ndarray, " n"], dtype: StoreDtype, width: int) -> VectorArray:
    """Read vectors of an open vector file, in the stored dtype."""
    vectors = np.empty((len(rows), width), dtype=np.dtype(dtype).newbyteorder("<"))
    row_bytes = width * vectors.itemsize
    for index, offset in enumerate((HEADER_BYTES + rows * row_bytes).tolist()):
        if os.preadv(handle, [vectors[index]], offset) != row_bytes:
            raise EOFError(f"the file ends before row {rows[index]}")
    return vectors


class VectorFile:
    """The vector file being written: rows are appended, and count once `commit` has returned.

    The header is written last, in its place at the beginning. What a killed process wrote beyond the counted
    rows is cut off when the file is opened again.
    """

    def __init__(
        self, path: Path, *, dtype: StoreDtype, width: int, rows: int = 0, sha256: str | None = None
    ) -> None:
        """Open or create the file, and truncate it to its first `rows` rows, with this SHA-256; None if the
        caller has checked them.
        """
        self.rows = rows
        self._dtype, self._width = dtype, width
        self._row_bytes = width * np.dtype(dtype).itemsize
        needed = HEADER_BYTES + rows * self._row_bytes
        size = path.stat().st_size if path.exists() else 0
        remedy = f"remove the folder {path.parent} and {again()}"
        # `ftruncate` would lengthen the file by zero vectors.
        if rows and size < needed:
            raise StoreError(
                f"{path} must have at least {needed} bytes for the {rows} vectors "
                f"written before, got {size}; {remedy}"
            )
        compared = rows and sha256 is not None
        self._hash = hash_of_vectors(path, rows * self._row_bytes) if compared else hashlib.sha256()
        if compared and self.sha256 != sha256:
            raise StoreError(
                f"{path} must be undamaged, got vectors that differ from those written; {remedy}"
            )
        self._handle = open_in_place(path)
        os.ftruncate(self._handle, needed)

    def append(self, vectors: np.ndarray) -> None:
        """Append rows."""
        content = np.ascontiguousarray(vectors, dtype=np.dtype(self._dtype).newbyteorder("<"))
        # Write beyond the rows that the header counts: a torn write is cut off when the build resumes.
        write_at(self._handle, content.data, HEADER_BYTES + self.rows * self._row_bytes)
        self._hash.update(content.data)
        self.rows += len(content)

    def commit(self) -> None:
        """Set the number of rows in the header, and flush everything to disk."""
        write_at(self._handle, npy_header(self._dtype, self.rows, self._width), 0)
        # An unfinished folder is never opened as a store, so header and rows may reach the disk in any order.
        os.fsync(self._handle)

    def take(self, rows: Int[np.ndarray, " n"]) -> VectorArray:
        """Read rows again."""
        return read_rows(self._handle, rows, self._dtype, self._width)

    @property
    def sha256(self) -> str:
        """SHA-256 of the rows that were checked or appended, as computed before writing."""
        return self._hash.hexdigest()

    def __enter__(self) -> "VectorFile":
        return self

    def __exit__(self, *unused: object) -> None:
        os.close(self._handle)


def hash_of_vectors(path: Path, size: int, so_far: "hashlib._Hash | None" = None) -> "hashlib._Hash":
    """SHA-256 of the vectors of a file, without header."""
    digest = hashlib.sha256() if so_far is None else so_far.copy()
    with open_plain(path, error=StoreError) as file:
        file.seek(HEADER_BYTES)
        while block := file.read(min(COPY_BYTES, size)):
            digest.update(block)
            size -= len(block)
    return digest


@contextmanager
def plain_disk_errors(folder: Path) -> Iterator[None]:
    """Report a full disk (or quota), or a file beyond the size limit of the process, in one line."""
    try:
        yield
    except Exception as fault:
        # `core.files` reports a full disk by a DataError of its own, which does not say that the command can
        # be resumed.
        error = disk_error_of(fault)
        if error is None:
            raise
        if error.errno == errno.EFBIG:
            raise StoreError(
                f"{folder}: the system's limit on file size is too small for the store: {error.strerror}; "
                f"raise the limit (ulimit -f), or choose another disk, and {again()} to resume"
            ) from fault
        if error.errno not in DISK_FULL:
            raise
        raise StoreError(f"{folder}: the disk is full; free some space and {again()} to resume") from fault
