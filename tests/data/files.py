"""Small files to read, and the message of a reader that refuses one."""

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from adiabat.core.errors import DataError


def jsonl(rows: Iterable[object], *, end: str = "\n") -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows).encode()


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


PACKERS = {".gz": gzip.compress, ".zst": zstd}


def write(path: Path, *rows: object) -> Path:
    """Rows as JSON lines, bytes as they are; the ending says how they are compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(row if isinstance(row, bytes) else jsonl([row]) for row in rows)
    path.write_bytes(PACKERS.get(path.suffix, bytes)(data))
    return path


def refusal(
    read: Callable[..., object], *source: object, error: type[Exception] = DataError, **options: object
) -> str:
    with pytest.raises(error) as caught:
        read(*source, **options)
    return str(caught.value)
