"""Equal texts get equal numbers, without a text being kept: 24 bytes for each distinct one."""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

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
