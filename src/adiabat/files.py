"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from adiabat.errors import DataError


def write_text(text: str, path: Path) -> None:
    """Write a UTF-8 text file in one move, so that no reader sees half of it.

    Args:
        text: The whole content.
        path: Where to; its folder must exist.

    Raises:
        DataError: If the file cannot be written; what stood there before stays.
    """
    write_together({path: text})


def write_together(texts: Mapping[Path, str]) -> None:
    """Write UTF-8 text files that belong together: none takes its place before all of them are on disk.

    Args:
        texts: Path to its whole content, in the order in which they take their places; folders must exist.

    Raises:
        DataError: If one cannot be written; what stood there before stays.
    """
    with ExitStack() as cleaning:
        parts = {path: _part(text, path, cleaning) for path, text in texts.items()}
        for path, part in parts.items():
            with _told(path):
                part.replace(path)


def _part(text: str, path: Path, cleaning: ExitStack) -> Path:
    """The content in a file beside the one that it will be."""
    where, beginning = path.parent, f".{path.name}."
    with (
        _told(path),
        tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="\n", dir=where, prefix=beginning, delete=False) as file,
    ):
        part = Path(file.name)
        cleaning.callback(part.unlink, missing_ok=True)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
        part.chmod(0o644)
    return part


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} must be writable, got {error.strerror}; free space there or name another folder") from error
