"""Columns of Arrow tables from strings and numbers.

`pa.array` would give the same columns, but imports pandas, if it is installed, to look at what it is given: half a second of each process.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

LARGEST_OFFSET = 2**31 - 1
"""Bytes that the strings of a column may have in all: their ends are 32-bit numbers."""


def strings_column(strings: Sequence[str]) -> pa.Array:
    """A column of strings, which must be valid Unicode."""
    encoded = [string.encode() for string in strings]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(string) for string in encoded], out=offsets[1:])
    if offsets[-1] > LARGEST_OFFSET:
        raise ValueError(f"the strings of a column must have at most {LARGEST_OFFSET:,} bytes, got {offsets[-1]:,}")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def numbers_column(numbers: np.ndarray) -> pa.Array:
    """A column of numbers or truth values, of the same type."""
    # Arrow has a bit for each truth value.
    plain = np.packbits(numbers, bitorder="little") if numbers.dtype == np.bool_ else np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, pa.py_buffer(plain)])
