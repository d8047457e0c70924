"""Small files to read, and the message of a reader that refuses one."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from adiabat.core.errors import DataError


def write(path: Path, *rows: object) -> Path:
    """Rows as JSON lines, bytes as they are; the ending says how they are compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(
        row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode() + b"\n"
        for row in rows
    )
    if path.suffix == ".zst":
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def refusal(read: Callable[..., object], *source: object, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(*source, **options)
    return str(caught.value)
