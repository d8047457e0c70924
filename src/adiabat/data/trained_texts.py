"""Which texts a job trained or validated on, as hashes: measurements count how many of their own texts are among them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np
from jaxtyping import Bool, Int

from adiabat.data.text_hashes import HASH_BYTES, Hashes, hash_texts

_BLOCK = 4_096
"""Texts that are read and hashed together."""

_NONE: Hashes = np.empty(0, dtype=f"S{HASH_BYTES}")


def _none() -> Hashes:
    return _NONE


@dataclass(frozen=True, slots=True)
class TrainedTexts:
    """What a job trained or validated on: hashes of 128 bits, sorted, each once. Case and white space make no difference.

    Attributes:
        unknown: Why the job may have trained on other texts too; "" where these are all.
    """

    queries: Hashes = field(default_factory=_none)
    documents: Hashes = field(default_factory=_none)
    doc_ids: Hashes = field(default_factory=_none)
    unknown: str = ""

    @classmethod
    def of(cls, queries: Iterable[str], *, documents: Iterable[str] = (), doc_ids: Iterable[str] = ()) -> "TrainedTexts":
        """Hash texts, a block at a time."""
        return cls(_distinct(_hashed(queries)), _distinct(_hashed(documents)), _distinct(_hashed(doc_ids)))

    @classmethod
    def joined(cls, parts: Sequence["TrainedTexts"]) -> "TrainedTexts":
        """What several runs trained or validated on, one after another."""
        return cls(
            _distinct(texts.queries for texts in parts),
            _distinct(texts.documents for texts in parts),
            _distinct(texts.doc_ids for texts in parts),
            next((texts.unknown for texts in parts if texts.unknown), ""),
        )

    def holds_queries(self, texts: Sequence[str]) -> Bool[np.ndarray, " n"]:
        """Which queries were trained or validated on."""
        return _among(self.queries, texts)

    def holds_documents(self, entries: Sequence[str], *, are_texts: bool) -> Bool[np.ndarray, " n"] | None:
        """Which documents answered a query that was trained or validated on.

        Returns:
            True where one is among `documents` or `doc_ids`; None where one side has texts and the other ids, which do not compare.
        """
        known, others = (self.documents, self.doc_ids) if are_texts else (self.doc_ids, self.documents)
        return None if len(others) else _among(known, entries)


def in_blocks(take: Callable[[Int[np.ndarray, " k"]], Sequence[str]], rows: Int[np.ndarray, " n"]) -> Iterator[str]:
    """Texts of a column, of which few are in memory at a time."""
    return chain.from_iterable(take(rows[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK))


def _among(known: Hashes, texts: Sequence[str]) -> Bool[np.ndarray, " n"]:
    hashes = np.concatenate([_NONE, *_hashed(texts)])
    if not len(known):
        return np.zeros(len(hashes), dtype=np.bool_)
    positions = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    return np.asarray(known[positions] == hashes)


def _hashed(texts: Iterable[str]) -> Iterator[Hashes]:
    remaining = iter(texts)
    while block := list(islice(remaining, _BLOCK)):
        yield hash_texts([" ".join(text.split()).casefold() for text in block])


def _distinct(hashes: Iterable[Hashes]) -> Hashes:
    return np.unique(np.concatenate([_NONE, *hashes]))
