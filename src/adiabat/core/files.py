"""Files that appear whole or not at all, checked reading, and one writer at a time in a directory."""

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from adiabat.core.disk import clear, make_folder, move, part_of, remove, take_lock
from adiabat.core.errors import (
    AdiabatError,
    DataError,
    InUseError,
    JobError,
    disk_error_of,
    reraise_unrelated,
)
from adiabat.core.misfits import said_by
from adiabat.core.version import WRITER, __version__, is_newer, version_in, written_by
from adiabat.core.wording import option

MANIFEST_FILE = "manifest.json"


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock a directory against a second writing process.

    File systems that cannot lock a directory (NFS, some network and user-space ones) are not protected; the
    caller must ensure a single writer.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not take_lock(handle):
            raise InUseError(
                f"{folder} must have one writer at a time, and another process is "
                "writing to it; wait for that to end"
            )
        yield
    finally:
        os.close(handle)


MISMATCH = "its content does not match its checksum"

CHECKSUM = "checksum"
"""Key of a JSON file with the SHA-256 of the rest of its object."""


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file atomically."""
    write_together({path: text})


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file atomically."""
    write_together({path: content})


def write_parquet(table: "pa.Table", path: Path) -> None:
    """Write a table atomically, with a checksum of the whole file in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({CHECKSUM: _BLANK, WRITER: written_by()})
    content = sink.getvalue().to_pybytes()
    write_bytes(_with_checksum(content, _BLANK, hashlib.sha256(content).hexdigest()), path)


def open_parquet(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> "pq.ParquetFile":
    """Open a table that `write_parquet` wrote; a table without a checksum is from an earlier version and not
    checked.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path, remedy=remedy, error=error):
        content = read_plain(path, error=error)
        file = pq.ParquetFile(pa.BufferReader(content))
        stated = (file.metadata.metadata or {}).get(CHECKSUM.encode())
        if stated is not None:
            blank = _with_checksum(content, stated.decode(), _BLANK)
            if hashlib.sha256(blank).hexdigest() != stated.decode():
                raise ValueError(MISMATCH)
        return file


_BLANK = "0" * 64
"""Placeholder for the checksum while it is computed."""


def _with_checksum(content: bytes, old: str, new: str) -> bytes:
    """The Parquet file with another checksum of the same length in its metadata, which are at its end."""
    before, _, after = content.rpartition(old.encode())
    return before + new.encode() + after


def write_json(record: Mapping[str, Any], path: Path, *, writer: bool = True) -> None:
    """Write a JSON object atomically, with a checksum of its content.

    Args:
        writer: State the version of adiabat that writes it; False for records in which earlier versions
            expect no further key.
    """
    write_text(sealed_json(record, writer=writer), path)


def sealed_json(record: Mapping[str, Any], *, writer: bool = True) -> str:
    """The text of a JSON object with its writer and checksum; keys are sorted, so that equal records give
    equal files.
    """
    # Numeric keys become texts, which sort differently.
    plain = json.loads(json.dumps(record))
    if writer:
        plain[WRITER] = written_by()
    sealed = {**plain, CHECKSUM: _json_digest(plain)}
    return json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read_json(
    path: Path, *, remedy: str, error: type[AdiabatError] = DataError, required: bool = True
) -> dict[str, Any]:
    """Read a JSON object that `write_json` wrote."""
    with reading(path, remedy=remedy, error=error):
        record = json.loads(read_plain(path, limit=LARGEST_RECORD, error=error).decode("utf-8"))
        if not isinstance(record, dict):
            raise TypeError(f"it holds a JSON {type(record).__name__}, not an object")
        checksum = record.pop(CHECKSUM, None)
        if checksum is None and required and WRITER not in record:
            raise error(
                f"{path} must have a checksum, got none: adiabat 0.1 wrote it, or it was edited; {remedy}"
            )
        if (required or checksum is not None) and checksum != _json_digest(record):
            raise ValueError(MISMATCH)
        record.pop(WRITER, None)
        return record


def _json_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record's content, whatever the order of its keys and its white space."""
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


_STAND_INS: Mapping[bytes, tuple[str, str]] = {
    b"version https://git-lfs.github.com/spec/": ("a Git LFS pointer", "fetch the file with git lfs pull"),
    b"<!doctype html": ("an HTML page, such as a server's error message", "download the file again"),
    b"<html": ("an HTML page, such as a server's error message", "download the file again"),
}
"""First bytes of a file that stands in place of another, in lower case, with its description and the
remedy."""


def require_content(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse a file that stands in place of its content: a pointer of Git LFS, or a page that a server sent
    instead.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    except OSError:
        return  # Whoever reads the file reports it.
    for start, (description, remedy) in _STAND_INS.items():
        if beginning.startswith(start):
            raise error(f"{path} must hold its content, got {description}; {remedy}")


def require_no_zero_bytes(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse a text file with zero bytes, which a lost block leaves, and which readers of words take for
    letters.
    """
    content = read_plain(path, error=error)
    place = content.find(0)
    if place >= 0:
        number = content.count(b"\n", 0, place) + 1
        raise error(f"{path}:{number} must be text, got a zero byte; part of the file is lost, get it again")


@contextmanager
def reading(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> Iterator[None]:
    """Convert any error inside the block to one line that names the file; a damaged file can raise anything
    in a reader.

    A lack of memory, threads, file descriptors or disk space says nothing about the file, and is raised as it
    is.
    """
    try:
        yield
    except FileNotFoundError as fault:
        raise error(f"{fault.filename or path} must exist; {remedy}") from fault
    except BaseException as fault:
        reraise_unrelated(fault)
        if isinstance(fault, OSError) and fault.errno is not None:
            message = f"{path} must be readable, got: {fault.strerror}; check its permissions and its disk"
            raise error(message) from fault
        if path.is_file():
            require_content(path, error=error)
        detail = said_by(fault)
        # A file whose checksum is wrong may name any version.
        writer = None if str(fault) == MISMATCH else version_in(path)
        if writer is not None and is_newer(writer):
            raise error(
                f"{path} was written by adiabat {writer}, this is adiabat "
                f"{__version__} ({detail}); update adiabat"
            ) from fault
        raise error(f"{path} must be undamaged, got {detail}; {remedy}") from fault


LARGEST_CONFIGURATION = 64 << 20
"""Bytes of a settings file, or of a configuration of another library; the largest known, with names of
100,000 labels, have 5 MB."""

LARGEST_RECORD = 256 << 20
"""Bytes of a JSON record of adiabat; a suite of 1,000 tasks has 10 MB."""

LARGEST_LOG = 2 << 30
"""Bytes of a log, which is read whole; one of a million steps has 300 MB."""


LARGEST_VOCABULARY = 1 << 30
"""Bytes of a JSON file of another library, which may be a vocabulary; the largest known have 40 MB."""


def require_plain(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse devices, pipes and sockets, and files without their content."""
    require_regular(path, error=error)
    if path.is_file():
        require_content(path, error=error)


def require_regular(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse devices, pipes and sockets: they may be endless, or cannot be read twice."""
    require_name(path, error=error)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise error(
            f"{path} must be a file or a folder, got a device, pipe or socket; copy its output into a file"
        )


def require_name(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse a path that no file can have, or that records cannot hold."""
    require_no_zero(path, error=error)
    try:
        str(path).encode()
    except UnicodeEncodeError as fault:
        # Under another locale Python cannot read names in UTF-8.
        is_locale = sys.getfilesystemencoding() != "utf-8"
        advice = "choose a locale of UTF-8, or set PYTHONUTF8=1" if is_locale else "rename it"
        raise error(f"{os.fsencode(path)!r} must have a name in UTF-8, got other bytes; {advice}") from fault


def require_no_zero(path: Path, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse a path that no file can have, in place of a ValueError of Python."""
    if "\0" in str(path):
        raise error(f"{str(path)!r} must be a path without a zero byte; correct it")


def require_small(path: Path, size: int, limit: int, *, error: type[AdiabatError] = DataError) -> None:
    """Refuse a file above a number of bytes."""
    if size > limit:
        raise error(f"{path} must have at most {limit:,} bytes, got more; check that it is the right file")


def open_plain(path: Path, *, error: type[AdiabatError] = DataError) -> BufferedReader:
    """Open a file for reading in binary mode, after `require_plain`."""
    require_plain(path, error=error)
    return path.open("rb")


def read_plain(path: Path, *, limit: int | None = None, error: type[AdiabatError] = DataError) -> bytes:
    """The bytes of a file after `require_plain`; a file that is small by nature is refused above `limit`
    bytes.
    """
    with open_plain(path, error=error) as file:
        if limit is None:
            return file.read()
        # A file of the system's may state no size.
        require_small(path, os.fstat(file.fileno()).st_size, limit, error=error)
        content = file.read(limit + 1)
    require_small(path, len(content), limit, error=error)
    return content


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write several files atomically as a group; text becomes UTF-8.

    None is renamed into place before all are on disk.
    """
    with ExitStack() as stack:
        parts: dict[Path, Path] = {}
        for path, content in contents.items():
            with writing_to(path):
                parts[path], file = stack.enter_context(part_of(path))
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
                _sync(file)
        # A rename takes no space: from here on, a full disk cannot leave some of the files behind.
        for path, part in parts.items():
            with writing_to(path):
                move(part, path)


@contextmanager
def writing_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file piece by piece; it is renamed into place once it is on disk."""
    with writing_to(path), part_of(path) as (part, file):
        yield file
        _sync(file)
        move(part, path)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Write a folder in a hidden one beside it, which takes its place once it is whole, or is removed.

    Raises:
        JobError: If the disk fails, in whatever class a library reports it.
    """
    making = folder.with_name(f".{folder.name}.making")
    try:
        make_folder(making, parents=True)
        with sole_writer(making):
            try:
                # Of a call that was killed.
                remove(*making.iterdir())
                yield making
                move(making, folder)
            finally:
                clear(making)
    except Exception as fault:
        if isinstance(fault, AdiabatError) or disk_error_of(fault) is None:
            raise
        raise JobError(
            f"{option('out', folder)} could not be written: {fault}; free some space, or choose another "
            "directory"
        ) from fault


def _sync(file: BinaryIO) -> None:
    """Put what was written on disk, so that it survives a power cut."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Describe a failed disk operation in one line."""
    try:
        yield
    except OSError as fault:
        if (error := disk_error_of(fault)) is None:
            raise
        remedy = advice_on(error, "free space there or name another folder")
        raise DataError(f"{path} must be writable, got {error.strerror or error}; {remedy}") from fault


def advice_on(fault: Exception, full: str) -> str:
    """Advice for a file that could not be written."""
    number = fault.errno if isinstance(fault, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR):
        return "its directory was removed or renamed; restore it, or run the command again"
    return f"raise the limit on file size (ulimit -f), or {full}" if number == errno.EFBIG else full


def is_there(path: Path, *, error: type[AdiabatError] = DataError) -> bool:
    """Whether a file or folder exists; a link that leads nowhere is an error, because its file was lost and
    counts as there.
    """
    require_no_zero(path, error=error)
    if path.exists():
        return True
    if path.is_symlink():
        raise error(
            f"{path} must exist, got a link to {os.readlink(path)}, which is not "
            "there; restore that, or remove the link"
        )
    return False


def is_store(target: Path) -> bool:
    """Whether a folder holds a finished store."""
    return is_there(target / MANIFEST_FILE)
