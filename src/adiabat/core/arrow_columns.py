"""Columns of Arrow tables from strings and numbers.

`pa.array` would give the same columns, but imports pandas, if it is installed, to look at what it is given:
half a second of each process.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

LARGEST_OFFSET = 2**31 - 1
"""Bytes that the strings of a column may have in all: their ends are 32-bit numbers."""


def strings_column(strings: Sequence[str], *, present: np.ndarray | None = None) -> pa.Array:
    """A column of strings, which must be valid Unicode; those that are not `present` are null."""
    encoded = [string.encode() for string in strings]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(string) for string in encoded], out=offsets[1:])
    if offsets[-1] > LARGEST_OFFSET:
        raise ValueError(
            f"the strings of a column must have at most {LARGEST_OFFSET:,} bytes, got {offsets[-1]:,}"
        )
    # Arrow's layout of strings: which are present, where each begins and the last ends, and all bytes.
    buffers = [_bits(present), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def numbers_column(numbers: np.ndarray, *, present: np.ndarray | None = None) -> pa.Array:
    """A column of numbers or truth values, of the same type; those that are not `present` are null."""
    plain = _bits(numbers) if numbers.dtype == np.bool_ else pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [_bits(present), plain])


def _bits(values: np.ndarray | None) -> pa.Buffer | None:
    """Truth values as Arrow has them, a bit for each."""
    return None if values is None else pa.py_buffer(np.packbits(values, bitorder="little"))


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows with the same names as a table; None is null."""
    columns = {}
    for name in rows[0] if rows else ():
        columns[name] = _column_of([row[name] for row in rows])
    return pa.table(columns)


def _column_of(values: Sequence[Any]) -> pa.Array:
    """A column of texts, numbers or truth values; Arrow chooses the type of anything else."""
    known = [value for value in values if value is not None]
    kinds = {type(value) for value in known}
    present = None if len(known) == len(values) else np.array([value is not None for value in values])
    if not known:
        return pa.nulls(len(values))
    if kinds == {str}:
        return strings_column([value or "" for value in values], present=present)
    if kinds in ({float}, {int}, {float, int}, {bool}):
        kind = float if float in kinds else kinds.pop()
        numbers = np.array([0 if value is None else value for value in values], dtype=kind)
        return numbers_column(numbers, present=present)
    return pa.array(values)
