"""The version of adiabat, and which one wrote a file: every file states it."""

import json
import re
from contextlib import suppress
from pathlib import Path

__version__ = "0.2.0.dev0"

WRITER = "written_by"
"""Key of a JSON file, and of the metadata of a table, with the version of adiabat that wrote it."""

_NAME = "adiabat "

_STATING = (".json", ".parquet")
"""Suffixes of files that state it; others may be large, and are not read for it."""


def written_by() -> str:
    """The value of `WRITER`."""
    return f"{_NAME}{__version__}"


def version_in(path: Path) -> str | None:
    """The version of adiabat that a file names as its writer; None if it names none or cannot be read."""
    if path.suffix not in _STATING or not path.is_file():
        return None
    with suppress(Exception):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            stated = (pq.ParquetFile(path).metadata.metadata or {})[WRITER.encode()].decode()
        else:
            record = json.loads(path.read_text(encoding="utf-8"))
            # Results of adiabat 0.1 have it among the versions of all packages.
            stated = record.get(WRITER) or f"{_NAME}{record['versions']['adiabat']}"
        return stated.removeprefix(_NAME) or None
    return None


def is_newer(version: str) -> bool:
    """Whether a version of adiabat is newer than this one; development versions count as their release."""
    return _numbers(version) > _numbers(__version__)


def _numbers(version: str) -> list[int]:
    """Major, minor and patch; what follows them, such as ``dev0``, does not count."""
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
