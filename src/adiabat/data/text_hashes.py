"""Hashes of texts: numbers for distinct texts in 24 bytes each, queries to hold out, and the texts that a job
trained on.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Int, UInt8

from adiabat.core.ragged import Ragged, connected

Entry = TypeVar("Entry")

Numbers = Int[np.ndarray, " n"]
"""One number for each text, or some of their numbers."""

Mask = Bool[np.ndarray, " n"]
"""Whether something holds for each text."""

HASH_BYTES = 16
Hashes = np.ndarray
"""One-dimensional, of dtype ``S16``: 128 bits per text, compared as bytes."""


def hash_texts(texts: Sequence[str]) -> Hashes:
    """Hash texts."""
    return _as_hashes(b"".join(map(_hash, texts)))


def _as_hashes(content: bytes) -> Hashes:
    """Bytes as an array of hashes, without a copy."""
    return np.frombuffer(content, dtype=f"S{HASH_BYTES}")


def _hash(text: str) -> bytes:
    """128 bits of a text; half of a surrogate pair is hashed, too."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


class TextNumbers:
    """Numbers distinct texts in order of first appearance.

    Known hashes are kept in sorted runs, each at least twice as long as the next, so that adding ``n`` texts
    costs ``n ln n`` in total without Python objects for texts.
    """

    def __init__(self) -> None:
        """Start without texts."""
        self._runs: list[tuple[Hashes, Int[np.ndarray, " _"]]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def number(self, hashes: Hashes) -> tuple[Numbers, Int[np.ndarray, " new"]]:
        """Number texts."""
        numbers = self._known(hashes)
        unknown = np.flatnonzero(numbers < 0)
        distinct, first, inverse = np.unique(hashes[unknown], return_index=True, return_inverse=True)
        ranks = np.empty(len(first), dtype=np.int64)
        # New texts are numbered by first appearance, not by hash.
        ranks[np.argsort(first)] = self._count + np.arange(len(first))
        numbers[unknown] = ranks[inverse]
        self._count += len(first)
        self._add(distinct, ranks)
        return numbers, unknown[np.sort(first)]

    def _known(self, hashes: Hashes) -> Numbers:
        """Numbers of hashes, -1 for new ones."""
        numbers = np.full(len(hashes), -1, dtype=np.int64)
        for known, theirs in self._runs:
            positions, equal = _found(hashes, known)
            numbers[equal] = theirs[positions[equal]]
        return numbers

    def _add(self, hashes: Hashes, numbers: Int[np.ndarray, " _"]) -> None:
        """Add a sorted run, merged with shorter ones before it."""
        if not len(hashes):
            return
        while self._runs and len(self._runs[-1][0]) < 2 * len(hashes):
            known, theirs = self._runs.pop()
            hashes, numbers = np.concatenate([known, hashes]), np.concatenate([theirs, numbers])
            order = np.argsort(hashes, kind="stable")
            hashes, numbers = hashes[order], numbers[order]
        self._runs.append((hashes, numbers))


class TextHashes:
    """Hashes of texts that arrive one at a time: 16 bytes per text."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, text: str) -> None:
        """Add one text."""
        self._bytes += _hash(text)

    def __len__(self) -> int:
        return len(self._bytes) // HASH_BYTES

    def hashes(self) -> Hashes:
        """A copy of all hashes, in input order."""
        return _as_hashes(bytes(self._bytes))


def numbered(hashes: Hashes) -> Int[np.ndarray, " texts"]:
    """Number the distinct texts."""
    numbers: Int[np.ndarray, " texts"] = np.unique(hashes, return_inverse=True)[1]
    return numbers


def folded(text: str) -> list[str]:
    """Normal form of a text for comparisons that ignore spelling details: Unicode NFKC, case folded, white
    space removed.
    """
    if text.isascii():
        return text.lower().split()
    # Folding case can undo the normal form (Unicode's NFKC_Casefold repeats it for that reason).
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).split()


def held_out_queries(queries: Iterable[str], fraction: float, most: int) -> Numbers:
    """Numbers of the queries to hold out: those with the lowest hashes, so that equal queries are on the same
    side.

    Added data never moves a query from training to validation, and from validation to training only if the
    limit (`most`) is reached.
    """
    hashes = np.fromiter((int.from_bytes(_order_of(query)) for query in queries), dtype=np.uint64)
    # Hashes are spread evenly, so that this share of them lies below.
    bound = np.uint64(int(fraction * 2**64))
    low = np.sort(hashes[hashes < bound])
    if len(low) > most:
        bound = low[most]
    return np.flatnonzero(hashes < bound)


def _order_of(query: str) -> bytes:
    """64 bits of a query, whose order decides which queries are held out first."""
    return hashlib.sha256(query.encode("utf-8", "surrogatepass")).digest()[:8]


FEWEST_HELD_OUT = 30
"""Queries below which a held-out set of new documents says too little."""


def held_out_documents(
    queries: Sequence[str], positives: Ragged, fraction: float, most: int
) -> Numbers | None:
    """Numbers of the queries to hold out so that no held-out query shares a positive, or its text, with one
    that is not.

    Queries connected through shared positives or equal texts stay together. The connected groups with the
    lowest hash of a query are held out, except those with more than half of the wanted queries.

    Returns:
        The numbers; None if fewer than `FEWEST_HELD_OUT` queries and than half of the wanted ones can be held
        out.
    """
    count = len(queries)
    hashes, text = np.unique(np.array([_order_of(query) for query in queries]), return_inverse=True)
    group = connected(positives, Ragged(text, np.arange(count + 1)))
    wanted, sizes = min(most, round(fraction * count)), np.bincount(group)
    # Numbers of texts ascend with their hashes.
    lowest = np.full(len(sizes), len(hashes))
    np.minimum.at(lowest, group, text)
    order = np.argsort(lowest, kind="stable")
    # A larger group would leave the choice to chance: it alone decides half of the queries.
    order = order[sizes[order] <= max(1, wanted // 2)]
    chosen = order[np.cumsum(sizes[order]) <= wanted]
    held_out = np.flatnonzero(np.isin(group, chosen))
    return held_out if len(held_out) >= min(FEWEST_HELD_OUT, max(1, wanted // 2)) else None


_BLOCK = 4_096
"""Texts read and hashed at a time."""

_NONE = _as_hashes(b"")


@dataclass(frozen=True, slots=True)
class TrainedTexts:
    """Texts that a job trained or validated on: sorted distinct 128-bit hashes that ignore case and white
    space.

    Documents without a text are identified by id; `unknown` says why the list may be incomplete, "" if it is
    complete. `signatures` of the queries find near duplicates; None if they were not recorded, or are too
    many.
    """

    queries: Hashes = field(default_factory=_NONE.copy)
    documents: Hashes = field(default_factory=_NONE.copy)
    doc_ids: Hashes = field(default_factory=_NONE.copy)
    unknown: str = ""
    signatures: UInt8[np.ndarray, "n 64"] | None = None

    @classmethod
    def of(
        cls, queries: Iterable[str], *, documents: Iterable[str] = (), doc_ids: Iterable[str] = ()
    ) -> "TrainedTexts":
        """Hash texts, a block at a time."""
        from adiabat.data.near_duplicates import signatures

        hashes, signed = list[Hashes](), list[Any]()
        for block in blocks(queries):
            hashes.append(_hashed(block))
            signed.append(signatures(block))
        return cls(
            _distinct(hashes),
            _distinct(map(_hashed, blocks(documents))),
            _distinct(map(_hashed, blocks(doc_ids))),
            signatures=_joined(signed),
        )

    @classmethod
    def joined(cls, runs: Sequence["TrainedTexts"]) -> "TrainedTexts":
        """Combine the texts of several runs, one after another."""
        unknown = [run.unknown for run in runs if run.unknown]
        return cls(
            _distinct(run.queries for run in runs),
            _distinct(run.documents for run in runs),
            _distinct(run.doc_ids for run in runs),
            unknown[0] if unknown else "",
            _joined([run.signatures for run in runs]),
        )

    def holds_queries(self, texts: Sequence[str]) -> Mask:
        """Which queries were used in training or validation."""
        return _among(self.queries, texts)

    def nearly_holds_queries(self, texts: Sequence[str]) -> Mask | None:
        """Which queries are near duplicates of one that was used in training or validation; None if that is
        unknown.
        """
        from adiabat.data.near_duplicates import near

        return None if self.signatures is None else near(texts, self.signatures)

    def holds_documents(self, entries: Sequence[str], *, are_texts: bool) -> Mask | None:
        """Which documents answered a query of training or validation; None if one side has texts and the
        other ids.
        """
        known, others = (self.documents, self.doc_ids) if are_texts else (self.doc_ids, self.documents)
        return None if len(others) else _among(known, entries)


def _joined(signed: Sequence[UInt8[np.ndarray, "_ 64"] | None]) -> UInt8[np.ndarray, "n 64"] | None:
    """Distinct signatures of all runs; None if one lacks them, or they are too many."""
    from adiabat.data.near_duplicates import MOST_SIGNATURES, SIGNATURE_BYTES

    known = [np.empty((0, SIGNATURE_BYTES), dtype=np.uint8)]
    for signatures in signed:
        if signatures is None:
            return None
        known.append(signatures)
    if sum(map(len, known)) > MOST_SIGNATURES:
        return None
    return np.unique(np.concatenate(known), axis=0)


def in_blocks(take: Callable[[Int[np.ndarray, " k"]], Sequence[str]], rows: Numbers) -> Iterator[str]:
    """Texts of a column, few of them in memory at a time."""
    return chain.from_iterable(take(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK))


def _among(known: Hashes, texts: Sequence[str]) -> Mask:
    """Which texts have a known hash."""
    hashes = np.concatenate([_NONE, *map(_hashed, blocks(texts))])
    if not len(known):
        return np.zeros(len(hashes), dtype=np.bool_)
    return _found(hashes, known)[1]


def _found(hashes: Hashes, known: Hashes) -> tuple[Numbers, Mask]:
    """Where each hash would be among ascending ones, at least one, and whether it is there."""
    positions = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return positions, np.asarray(known[positions] == hashes)


def blocks(entries: Iterable[Entry], size: int = _BLOCK) -> Iterator[list[Entry]]:
    """Entries a block at a time, so that few are in memory together."""
    remaining = iter(entries)
    while block := list(islice(remaining, size)):
        yield block


def _hashed(texts: Iterable[str]) -> Hashes:
    """Hashes of texts but for case and white space."""
    # Not `folded`: the hashes of earlier jobs would match no more.
    return hash_texts([" ".join(text.split()).casefold() for text in texts])


def _distinct(hashes: Iterable[Hashes]) -> Hashes:
    """Distinct hashes, sorted."""
    return np.unique(np.concatenate([_NONE, *hashes]))
