"""Equal texts get equal numbers, without a text being kept: 24 bytes for each distinct one."""

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int, UInt64

HASH_BYTES = 16
Hashes = np.ndarray
"""One-dimensional, of dtype ``S16``: 128 bits per text, which compare as bytes."""


def hash_texts(texts: Sequence[str]) -> Hashes:
    """Hash texts.

    Returns:
        128 bits of BLAKE2b of each text's UTF-8 bytes.
    """
    digests = b"".join(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest() for text in texts)
    return np.frombuffer(digests, dtype=f"S{HASH_BYTES}")


class Numbering:
    """Numbers distinct texts in the order in which they first come.

    Known hashes lie in sorted runs, each at least twice as long as the next, so that adding ``n`` texts costs ``n ln n`` in all, and no
    Python object stands for a text.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._runs: list[tuple[Hashes, Int[np.ndarray, " _"]]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def number(self, hashes: Hashes) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " new"]]:
        """Number some texts."""
        numbers = self._known(hashes)
        unknown = np.flatnonzero(numbers < 0)
        distinct, first, inverse = np.unique(hashes[unknown], return_index=True, return_inverse=True)
        ranks = np.empty(len(first), dtype=np.int64)
        ranks[np.argsort(first)] = self._count + np.arange(len(first))
        numbers[unknown] = ranks[inverse]
        self._count += len(first)
        self._add(distinct, ranks)
        return numbers, unknown[np.sort(first)]

    def _known(self, hashes: Hashes) -> Int[np.ndarray, " n"]:
        numbers = np.full(len(hashes), -1, dtype=np.int64)
        for known, theirs in self._runs:
            places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found = known[places] == hashes
            numbers[found] = theirs[places[found]]
        return numbers

    def _add(self, hashes: Hashes, numbers: Int[np.ndarray, " _"]) -> None:
        if not len(hashes):
            return
        while self._runs and len(self._runs[-1][0]) < 2 * len(hashes):
            known, theirs = self._runs.pop()
            hashes, numbers = np.concatenate([known, hashes]), np.concatenate([theirs, numbers])
            order = np.argsort(hashes, kind="stable")
            hashes, numbers = hashes[order], numbers[order]
        self._runs.append((hashes, numbers))


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
