"""Files that appear whole or not at all."""

import os
import tempfile
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
    part: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            part = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise DataError(f"{path} must be writable, got {error.strerror}; free space there or name another folder") from error
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
