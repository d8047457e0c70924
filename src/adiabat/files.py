"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adiabat.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file in one move, so that no reader sees half of it.

    Args:
        text: The whole content.
        path: Where to; its folder must exist.

    Raises:
        DataError: If the file cannot be written; what stood there before stays.
    """
    write_together({path: text})


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file in one move, as `write_text` does.

    Args:
        content: The whole of it.
        path: Where to; its folder must exist.

    Raises:
        DataError: If the file cannot be written; what stood there before stays.
    """
    write_together({path: content})


def write_parquet(table: "pa.Table", path: Path) -> None:
    """Write a table in one move, as `write_text` does.

    Args:
        table: Of pyarrow.
        path: Where to; its folder must exist.

    Raises:
        DataError: If the file cannot be written; what stood there before stays.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_bytes(sink.getvalue().to_pybytes(), path)


def write_together(contents: Mapping[Path, str | bytes]) -> None:
    """Write files that belong together, text as UTF-8: none takes its place before all of them are on disk.

    Args:
        contents: Path to its whole content, in the order in which they take their places; folders must exist.

    Raises:
        DataError: If one cannot be written; what stood there before stays.
    """
    with ExitStack() as cleaning:
        parts = {path: _part(content, path, cleaning) for path, content in contents.items()}
        for path, part in parts.items():
            with _told(path):
                part.replace(path)


def _part(content: str | bytes, path: Path, cleaning: ExitStack) -> Path:
    """The content in a file beside the one that it will be."""
    with _told(path), tempfile.NamedTemporaryFile("wb", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        part = Path(file.name)
        cleaning.callback(part.unlink, missing_ok=True)
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
        part.chmod(0o644)
    return part


def make_folder(path: Path) -> None:
    """Make a folder in one that exists; one that is there already is left as it is.

    Args:
        path: Of the folder.

    Raises:
        DataError: If the disk is full or not writable.
    """
    with _told(path):
        path.mkdir(exist_ok=True)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} must be writable, got {error.strerror}; free space there or name another folder") from error
