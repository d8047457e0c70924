"""What is trained on and what is held out, by the text of the query."""

import hashlib
from collections.abc import Iterable

import numpy as np
from jaxtyping import Int


def held_out_queries(queries: Iterable[str], fraction: float, most: int) -> Int[np.ndarray, " n"]:
    """Which queries are held out: those whose text hashes lowest, so that equal queries are always on the same side.

    Added data moves no query from training to validation; it moves one the other way only where the limit is reached.
    """
    hashes = np.fromiter((_hashed(query) for query in queries), dtype=np.uint64)
    below = np.uint64(int(fraction * 2**64))
    low = np.sort(hashes[hashes < below])
    return np.flatnonzero(hashes < (low[most] if len(low) > most else below))


def _hashed(query: str) -> int:
    return int.from_bytes(hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8], "big")
