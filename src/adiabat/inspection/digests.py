"""Texts known by their hashes, so that duplicates are found in memory that does not follow the texts."""

import hashlib
import unicodedata

import numpy as np
from jaxtyping import Int, UInt64

_BYTES = 16


class Digests:
    """128 bits of SHA-256 of each text, one after another: 16 bytes a text, whatever its length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, text: str) -> None:
        """Note one more text."""
        self._bytes += hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_BYTES]

    def __len__(self) -> int:
        return len(self._bytes) // _BYTES

    def words(self) -> UInt64[np.ndarray, "texts 2"]:
        """The digests as numbers.

        Returns:
            One row per text, in the order in which they came; a copy.
        """
        return np.frombuffer(bytes(self._bytes), dtype=np.uint64).reshape(-1, 2)


def numbered(digests: UInt64[np.ndarray, "texts 2"]) -> Int[np.ndarray, " texts"]:
    """Number the distinct texts."""
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    begins = np.ones(len(digests), dtype=np.int64)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    numbers = np.empty(len(digests), dtype=np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers


def folded(text: str) -> list[str]:
    """The words of a text as they are compared where writing does not count: Unicode NFKC, case folded, white space dropped."""
    if text.isascii():
        return text.lower().split()
    # Folding case can undo the normal form (Unicode's NFKC_Casefold repeats it for that reason).
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split()
