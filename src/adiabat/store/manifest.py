"""What lies in a store's directory: file names, the manifest, the vector file, and writes that survive a crash."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from adiabat.errors import StoreError, several
from adiabat.model.fingerprint import Fingerprint

FORMAT = "adiabat-store"
VERSION = 1
MANIFEST_FILE = "manifest.json"
VECTOR_FILE = "vectors.npy"
ID_FILE = "ids.arrow"
TEXT_FILE = "texts.arrow"
INDEX_FILE = "id_index.npy"
STATE_FILE = "state.json"
COMMIT_FILE = "commit.json"
APPENDING = "appending"
BUILDING_SUFFIX = ".building"
PARTIAL_SUFFIX = ".partial"

HEADER_BYTES = 128
"""Fixed, so that a header that counts more rows can take the place of the old one; a multiple of 64, as the npy format asks."""
COPY_BYTES = 1 << 22
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

SHORTEST, LONGEST = 1e-15, 1e15
"""Lengths of vectors between which squares and products of two neither vanish nor overflow in float32."""

StoreDtype = Literal["float16", "float32"]
DTYPES: tuple[StoreDtype, ...] = ("float16", "float32")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished store says of itself.

    Attributes:
        fingerprint: Of the encoder, None for vectors imported without one.
        dtype: Of the stored vectors.
        width: Numbers per vector (E).
        count: Documents.
        sha256: Over the vectors' bytes, header left out.
        corpus: SHA-256 over ids and texts in order; None where the texts are not known.
        encoder: Name of the encoder, for people.
        source: Name of the corpus, for people.
        created: ISO 8601, UTC.
        has_texts: Whether the texts are kept beside the vectors.
    """

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

    @property
    def row_bytes(self) -> int:
        """Bytes of one vector."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def file_bytes(self) -> int:
        """Bytes that the vector file must have."""
        return HEADER_BYTES + self.count * self.row_bytes

    def write(self, folder: Path) -> None:
        """Put the manifest into `folder`, whole or not at all.

        Args:
            folder: An existing directory.
        """
        record: dict[str, Any] = {"format": FORMAT, "version": VERSION}
        record |= {name: getattr(self, name) for name in self.__dataclass_fields__}
        record["fingerprint"] = self.fingerprint.to_json() if self.fingerprint else None
        write_json(folder / MANIFEST_FILE, record)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a finished store.

        Args:
            folder: Its directory.

        Returns:
            The manifest.

        Raises:
            StoreError: If it is damaged, or of a format or version unknown here.
        """
        where = folder / MANIFEST_FILE
        record = read_json(where)
        if record.pop("format", None) != FORMAT:
            raise StoreError(f'{where}: format must be "{FORMAT}"; choose the directory of a store')
        version = record.pop("version", None)
        if version != VERSION:
            raise StoreError(
                f"{where}: format version must be {VERSION}, got {version}; install the adiabat that wrote it, or rebuild the store"
            )
        missing = set(cls.__dataclass_fields__) ^ set(record)
        if missing:
            raise StoreError(
                f"{where}: must hold exactly the known fields, got a difference in {', '.join(sorted(missing))}; rebuild the store"
            )
        odd = [f"{name} is {record[name]!r}" for name, kinds in _KINDS.items() if type(record[name]) not in kinds]
        if odd:
            raise StoreError(f"{where}: fields must be of their type, got {several(odd, of='fields')}; rebuild the store")
        if record["dtype"] not in DTYPES:
            raise StoreError(f"{where}: dtype must be float16 or float32, got {record['dtype']}; rebuild the store")
        if record["fingerprint"] is not None:
            record["fingerprint"] = Fingerprint.from_json(record["fingerprint"])
        return cls(**record)


_KINDS: dict[str, tuple[type, ...]] = {
    "fingerprint": (dict, type(None)),
    "dtype": (str,),
    "width": (int,),
    "count": (int,),
    "sha256": (str,),
    "corpus": (str, type(None)),
    "encoder": (str,),
    "source": (str,),
    "created": (str,),
    "has_texts": (bool,),
}
"""Exact types of the fields as JSON has them: a truth value is no number here."""


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.

    Returns:
        The object.

    Raises:
        StoreError: If the file is not a JSON object.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoreError(f"{path}: must be JSON, got {error}; rebuild the store") from error
    if not isinstance(record, dict):
        raise StoreError(f"{path}: must hold a JSON object, got {type(record).__name__}; rebuild the store")
    return cast(dict[str, Any], record)


def write_json(path: Path, record: dict[str, Any]) -> None:
    """Replace a JSON file atomically and durably.

    Args:
        path: The file.
        record: Its new content.
    """
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    with partial.open("w", encoding="utf-8") as file:
        json.dump(record, file, indent=1, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync_folder(path.parent)


def building_of(target: Path) -> Path:
    """The folder in which the store for `target` is made.

    Args:
        target: Directory that the store will have, or a link to it.

    Returns:
        A folder beside the directory itself, so that one rename can put it into place.
    """
    return Path(f"{os.path.realpath(target)}{BUILDING_SUFFIX}")


def sync_folder(folder: Path) -> None:
    """Make renames inside a directory durable.

    Args:
        folder: The directory.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def npy_header(dtype: str, count: int, width: int) -> bytes:
    """Header of an npy file (format 1.0), padded to `HEADER_BYTES`.

    Args:
        dtype: NumPy name of the numbers.
        count: Rows.
        width: Columns.

    Returns:
        The bytes.
    """
    text = f"{{'descr': '{np.dtype(dtype).newbyteorder('<').str}', 'fortran_order': False, 'shape': ({count}, {width}), }}"
    body = text.encode("ascii").ljust(HEADER_BYTES - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def write_at(handle: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at a place in a file.

    Args:
        handle: File descriptor.
        content: Bytes.
        offset: Where they begin.
    """
    left = memoryview(content).cast("B")
    while left:
        written = os.pwrite(handle, left, offset)
        left, offset = left[written:], offset + written


class VectorFile:
    """The vector file while it is being written: rows are appended, and count once `commit` has returned."""

    def __init__(self, path: Path, *, dtype: StoreDtype, width: int, rows: int = 0) -> None:
        """Open or create the file and cut it to its first `rows` rows.

        Args:
            path: The npy file.
            dtype: Of the stored numbers.
            width: Numbers per row.
            rows: How many rows are already good.

        Raises:
            StoreError: If the file is missing or shorter than these rows need.
        """
        self.rows = rows
        self._dtype, self._width = dtype, width
        self._row_bytes = width * np.dtype(dtype).itemsize
        needed = HEADER_BYTES + rows * self._row_bytes
        size = path.stat().st_size if path.exists() else 0
        # Lengthening the file would invent zero vectors.
        if rows and size < needed:
            raise StoreError(
                f"{path} must have at least {needed} bytes for the {rows} vectors written before, got {size}; "
                f"remove the folder {path.parent} and run the command again"
            )
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._handle, needed)

    def append(self, vectors: np.ndarray) -> None:
        """Write rows at the end.

        Args:
            vectors: Of the file's dtype and width.
        """
        content = np.ascontiguousarray(vectors, dtype=np.dtype(self._dtype).newbyteorder("<"))
        write_at(self._handle, content.data, HEADER_BYTES + self.rows * self._row_bytes)
        self.rows += len(content)

    def commit(self) -> None:
        """Let the header count the rows written so far, and wait until all is on disk."""
        write_at(self._handle, npy_header(self._dtype, self.rows, self._width), 0)
        os.fsync(self._handle)

    def __enter__(self) -> "VectorFile":
        return self

    def __exit__(self, *unused: object) -> None:
        os.close(self._handle)


def hash_vectors(*paths: Path) -> list[str]:
    """SHA-256 over the vectors of files, headers left out.

    Args:
        *paths: Vector files.

    Returns:
        After each file, the digest of all vectors so far, 64 hexadecimal digits.
    """
    digest, so_far = hashlib.sha256(), []
    for path in paths:
        with path.open("rb") as file:
            file.seek(HEADER_BYTES)
            while block := file.read(COPY_BYTES):
                digest.update(block)
        so_far.append(digest.hexdigest())
    return so_far


@contextmanager
def disk_full_is_plain(where: Path) -> Iterator[None]:
    """Turn a full disk (or quota), or a file that grows beyond the limit of the process, into one clear line.

    Args:
        where: Directory that was being written.

    Yields:
        Nothing.

    Raises:
        StoreError: In place of their OSError, which names no file.
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise StoreError(
                f"{where}: a file must be allowed to grow as large as the store needs, got: {error.strerror}; "
                "raise the limit (ulimit -f), or choose another disk, and run the same command to go on"
            ) from error
        if error.errno not in DISK_FULL:
            raise
        raise StoreError(
            f"{where}: the disk must have room for the store, it is full; free some and run the same command to go on"
        ) from error
