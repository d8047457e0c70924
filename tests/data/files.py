"""Small files to read, and the message of a reader that refuses one."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


def table(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    """Rows in the format of the file's name."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
        return path
    if not name.endswith((".csv", ".tsv")):
        return write(path, *rows)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter="\t" if ".tsv" in name else ",")
    writer.writeheader()
    writer.writerows(rows)
    return write(path, text.getvalue().encode())


def refusal(
    read: Callable[..., object], *source: object, error: type[Exception] = DataError, **options: object
) -> str:
    with pytest.raises(error) as caught:
        read(*source, **options)
    return str(caught.value)
