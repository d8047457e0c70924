"""Provenance of data and results: versions, dates, checksums of files and lines, and checks of packaged
files.
"""

import hashlib
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import BufferedWriter, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from adiabat.core.disk import new_file
from adiabat.core.errors import AdiabatError, DataError, LinkError
from adiabat.core.files import (
    CHECKSUM,
    LARGEST_LOG,
    LARGEST_RECORD,
    MISMATCH,
    is_there,
    open_plain,
    read_json,
    read_plain,
    reading,
    write_bytes,
    write_json,
    write_text,
)
from adiabat.core.formats import rebuilt
from adiabat.core.progress import ignored
from adiabat.core.version import __version__

if TYPE_CHECKING:
    import numpy as np

SHA256_BYTES = 32
CHECKSUMS = "checksums.json"
CHECKED = ".checked.json"
"""File beside sealed files with the state of each file at its last check."""
VERIFY = "ADIABAT_VERIFY"
"""Environment variable; if it is set, `require` verifies every checksum once per process."""

TICK_NS = 20_000_000
"""Longer than the resolution of file dates: a file changed more recently may change again without a new
date."""

_compared: set[tuple[Path | int | str, ...]] = set()
"""State of the files that this process has verified."""


class Digest(NamedTuple):
    """Required size of a file, and its SHA-256 from byte `start`, which skips a header that the reader checks
    itself.
    """

    size: int
    sha256: str
    start: int = 0


BLOCK_BYTES = 1 << 24
"""Bytes between two reports of progress while a file is hashed: 16 MiB take about a hundredth of a second."""

OnBytes = Callable[[int], None]
"""Called with the number of bytes hashed since the last call."""


def digest_of(path: Path, *, start: int = 0, on_bytes: OnBytes = ignored) -> Digest:
    """Size and SHA-256 of a file."""
    digest = hashlib.sha256()
    with open_plain(path) as stream:
        stream.seek(start)
        while block := stream.read(BLOCK_BYTES):
            digest.update(block)
            on_bytes(len(block))
        return Digest(os.fstat(stream.fileno()).st_size, digest.hexdigest(), start)


class DigestedFile(BufferedWriter):
    """A new file written from beginning to end, and the digest of the bytes written, independent of errors of
    the disk.
    """

    def __init__(self, path: Path) -> None:
        """Create the file."""
        super().__init__(new_file(path).detach())
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, content: "bytes | memoryview") -> int:  # type: ignore[override]
        """Write bytes at the end."""
        self._hash.update(content)
        self._size += (written := super().write(content))
        return written

    @property
    def digest(self) -> Digest:
        """Digest of all bytes written."""
        return Digest(self._size, self._hash.hexdigest())

    def sync(self) -> None:
        """Flush everything to disk."""
        self.flush()
        os.fsync(self.fileno())


def write_array(array: "np.ndarray", path: Path) -> None:
    """Write an array as an npy file atomically, followed by its SHA-256, which other readers ignore."""
    import numpy as np

    content = BytesIO()
    np.save(content, array, allow_pickle=False)
    # Readers of npy files ignore bytes after the array.
    content.write(hashlib.sha256(content.getbuffer()).digest())
    write_bytes(content.getvalue(), path)


def read_array(path: Path, *, remedy: str) -> "np.ndarray":
    """Read an array that `write_array` wrote."""
    import numpy as np

    with reading(path, remedy=remedy, error=DataError):
        content = read_plain(path)
        if hashlib.sha256(content[:-SHA256_BYTES]).digest() != content[-SHA256_BYTES:]:
            raise ValueError(MISMATCH)
        array: np.ndarray = np.load(BytesIO(content), allow_pickle=False)
        return array


def seal(folder: Path, names: Iterable[str], *, into: str = CHECKSUMS) -> None:
    """Write the checksums of files in a folder to a file beside them."""
    write_digests({name: digest_of(folder / name) for name in names}, folder / into)


def write_digests(digests: Mapping[str, Digest], path: Path) -> None:
    """Write digests for `require_seal`; every key of the file is the name of a file."""
    write_json({name: digest._asdict() for name, digest in digests.items()}, path, writer=False)


def require_seal(
    folder: Path,
    *,
    remedy: str,
    error: type[AdiabatError] = DataError,
    always: bool = False,
    source: str = CHECKSUMS,
) -> frozenset[str]:
    """Check that sealed files are unchanged since `seal`."""
    record = read_json(folder / source, remedy=remedy, error=error)
    expected = rebuilt(dict[str, Digest], record, folder / source, remedy=remedy, error=error)
    require(expected, folder, remedy=remedy, error=error, always=always)
    return frozenset(expected)


def is_whole(folder: Path, source: str) -> bool:
    """Whether rebuildable sealed files exist and are undamaged; damage gives a warning."""
    if not is_there(folder / source):
        return False
    try:
        require_seal(folder, remedy="it is rebuilt", source=source)
    except DataError as damage:
        warnings.warn(str(damage), stacklevel=2)
        return False
    return True


def require(
    expected: Mapping[str, Digest],
    folder: Path,
    *,
    remedy: str,
    error: type[AdiabatError] = DataError,
    always: bool = False,
    on_bytes: OnBytes = ignored,
) -> None:
    """Check the sizes of files, and the checksums of those whose size, dates or inode changed since their
    last check.
    """
    checked = _checked(folder)
    states: dict[str, list[int | str] | None] = {}
    for name, digest in expected.items():
        with reading(folder / name, remedy=remedy, error=error):
            states[name] = _compared_state(folder / name, digest, checked.get(name), always, on_bytes)
    certain = {name: state for name, state in states.items() if state is not None}
    if any(checked.get(name) != state for name, state in certain.items()):
        _remember({**checked, **certain}, folder)


def _compared_state(
    path: Path, expected: Digest, checked: object, always: bool, on_bytes: OnBytes
) -> list[int | str] | None:
    """State that identifies an unchanged file; None if the file could still change without a trace."""
    status, now = path.stat(), time.time_ns()
    if status.st_size != expected.size:
        raise ValueError(f"{status.st_size} bytes instead of {expected.size}")
    state: list[int | str] = [expected.sha256, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
    identity = (path.absolute(), *state)
    compare = always or (bool(os.environ.get(VERIFY)) and identity not in _compared)
    if compare or checked != state:
        if digest_of(path, start=expected.start, on_bytes=on_bytes) != expected:
            raise ValueError("its SHA-256 does not match its checksum")
        _compared.add(identity)
    return state if status.st_ctime_ns + TICK_NS < now else None


def _checked(folder: Path) -> dict[str, object]:
    """The remembered states; empty if they cannot be read, so that every checksum is verified."""
    try:
        record = json.loads(read_plain(folder / CHECKED, limit=LARGEST_RECORD).decode("utf-8"))
    except (DataError, OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _remember(states: Mapping[str, object], folder: Path) -> None:
    """Keep the states of compared files beside them."""
    # A folder that is read-only, full or behind a link is checked again each time.
    with suppress(DataError, LinkError):
        write_text(json.dumps(states), folder / CHECKED)


LINE_DIGITS = 16
"""Hexadecimal digits of the SHA-256 of a line."""


class Line(NamedTuple):
    """A JSON object with a checksum over it and all lines before it; "" in files of earlier versions."""

    row: dict[str, Any]
    checksum: str

    def __str__(self) -> str:
        """The line as text."""
        sealed = {CHECKSUM: self.checksum} if self.checksum else {}
        return json.dumps({**self.row, **sealed}, allow_nan=True) + "\n"


def line_of(row: Mapping[str, Any], *, after: str = "") -> Line:
    """Make a line from a row and the checksum of the line before."""
    text = json.dumps(row, sort_keys=True, separators=(",", ":"))
    return Line(dict(row), hashlib.sha256(f"{after}{text}".encode()).hexdigest()[:LINE_DIGITS])


def read_lines(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> Iterator[Line]:
    """Read lines written by `line_of`; an incomplete last line is skipped."""
    with reading(path, remedy=remedy, error=error):
        *lines, unfinished = read_plain(path, limit=LARGEST_LOG, error=error).split(b"\n")
    before: str | None = ""
    for number, text in enumerate(lines, start=1):
        with reading(Path(f"{path}:{number}"), remedy=remedy, error=error):
            line = _line(text, before)
            if before and not line.checksum:
                raise ValueError("it has no checksum, while the line before it has one")
        yield line
        # Lines after one without a checksum cannot be compared with it.
        before = line.checksum or None
    if unfinished:
        # The last line may be complete except for its line end.
        with suppress(ValueError, TypeError, RecursionError):
            yield _line(unfinished, before)


def last_checksum(path: Path, *, remedy: str, error: type[AdiabatError] = DataError) -> str:
    """Checksum of the last line; "" for an empty or missing file."""
    if not is_there(path, error=error):
        return ""
    with reading(path, remedy=remedy, error=error):
        _, _, text = read_plain(path, limit=LARGEST_LOG, error=error).removesuffix(b"\n").rpartition(b"\n")
        return _line(text, None).checksum if text else ""


def _line(text: bytes, before: str | None) -> Line:
    """Read a line; its checksum covers the line before, whose checksum is `before`, None if unknown."""
    row = json.loads(text.decode("utf-8"))
    if not isinstance(row, dict):
        raise TypeError(f"a JSON {type(row).__name__}, not an object")
    checksum = row.pop(CHECKSUM, "")
    if checksum and before is not None and checksum != line_of(row, after=before).checksum:
        raise ValueError("its content, or a line before it, does not match its checksum")
    return Line(row, checksum)


PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "ir-measures")


def versions(device: str) -> dict[str, str]:
    """Versions of the packages that results depend on."""
    packages = {"adiabat": __version__, **{name: _version(name) for name in PACKAGES}}
    return {
        **packages,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "device": device,
    }


def _version(name: str) -> str:
    """The version of a package; one that lies in a folder beside others has none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def now() -> str:
    """The current time."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def packaged_folder(room: str) -> Path:
    """Folder of a room's packaged files."""
    # Wheels are unpacked when installed, so the package's files have paths.
    return Path(__file__).parents[1] / room / "files"


def require_published(
    path: Path, sha256: str, *, remedy: str = "install adiabat again", error: type[AdiabatError] = DataError
) -> Path:
    """Refuse a packaged file whose checksum differs from the published one."""
    if not path.is_file():
        raise error(f"{path} must exist, got no such file; {remedy}")
    if (actual := digest_of(path).sha256) != sha256:
        raise error(f"{path} must have the sha256 {sha256}, got {actual}; {remedy}")
    return path
