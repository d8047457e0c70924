"""Pairs of a query and a document that answers it: each distinct text once, with the known answers and
non-answers of each query.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int

from adiabat.core.ragged import Ragged, compact
from adiabat.data.records import Example
from adiabat.data.text_hashes import TextNumbers, hash_texts

Numbers = Int[np.ndarray, " n"]
"""One number for each entry."""

OfPairs = Int[np.ndarray, " pairs"]
"""One number for each pair."""

Entry = TypeVar("Entry")

BLOCK = 1_024
"""Number of examples numbered together."""

EQUAL_TEXTS = "equal.npz"
"""File in a folder of texts that caches `text_numbers`."""


@runtime_checkable
class TextColumn(Protocol):
    """Texts by row, in memory or on disk."""

    def __len__(self) -> int:
        """Number of texts."""

    def __iter__(self) -> Iterator[str]:
        """All texts, in order."""

    def take(self, rows: Numbers) -> list[str]:
        """A selection of the texts."""


class TextList(list[str]):
    """Texts in memory."""

    def take(self, rows: Numbers) -> list[str]:
        """A selection of the texts."""
        return [self[row] for row in rows.tolist()]


@dataclass(frozen=True, slots=True)
class Texts:
    """Distinct texts of both sides, in order of first appearance; pairs refer to them by row.

    Attributes:
        documents: Distinct documents; ids if vectors of a store are read.
        query_ids: The id with which each query first appeared, for messages.
        folder: Folder of the texts and data derived from them; None if they are only in memory.
        sha256: Their digest in hexadecimal if known; "" computes it.
    """

    queries: TextColumn
    documents: TextColumn
    query_ids: TextColumn
    folder: Path | None = None
    sha256: str = ""

    def digest(self) -> bytes:
        """SHA-256 over the texts of both sides, in their order."""
        if self.sha256:
            return bytes.fromhex(self.sha256)
        digest = hashlib.sha256()
        for texts in (self.queries, self.documents):
            digest.update(np.int64(len(texts)).tobytes())
            for block in _blocks(texts):
                digest.update(hash_texts(block).tobytes())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs of a query and a document that answers it.

    Attributes:
        answers: Rows that answer each *query* of `texts`, in any pair of training or validation.
        negatives: Rows listed as not answering each *query*, none of them an answer.
        sources: Number of the source of each pair, ascending.
        topics: Number of the topic of each pair, equal for equal topics; all 0 without topics.
    """

    name: str
    texts: Texts
    query: OfPairs
    positive: OfPairs
    answers: Ragged
    negatives: Ragged
    sources: OfPairs
    topics: OfPairs
    tags: OfPairs
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.query)

    @property
    def query_rows(self) -> Int[np.ndarray, " queries"]:
        """Rows of the distinct queries that have a pair, ascending."""
        return np.unique(self.query)

    @property
    def candidates(self) -> Int[np.ndarray, " documents"]:
        """Rows of the documents ranked in validation: those of a pair, or listed as a negative of one of its
        queries, ascending.
        """
        return np.unique(np.concatenate([self.positive, self.negatives.take(self.query_rows).values]))

    def subset(self, mask: Bool[np.ndarray, " pairs"]) -> "PairSet":
        """Some of the pairs."""
        each = {
            name: getattr(self, name)[mask] for name in ("query", "positive", "sources", "topics", "tags")
        }
        return replace(self, **each)

    def digest(self) -> str:
        """SHA-256 over texts, pairs, their sources, topics and tags, and negatives, in their order."""
        digest = hashlib.sha256(self.texts.digest())
        pairs = (self.query, self.positive, self.sources, self.topics, self.tags)
        for numbers in (*pairs, self.negatives.lengths, self.negatives.values):
            digest.update(np.int64(len(numbers)).tobytes())
            digest.update(np.ascontiguousarray(numbers, dtype=np.int64).data)
        return digest.hexdigest()


def text_numbers(texts: Texts) -> tuple[Int[np.ndarray, " queries"], Int[np.ndarray, " documents"]]:
    """Number the texts of both sides together."""
    if texts.folder is not None:
        with np.load(texts.folder / EQUAL_TEXTS) as arrays:
            return arrays["queries"], arrays["documents"]
    numbering = TextNumbers()
    none = np.empty(0, dtype=np.int64)
    sides = [
        np.concatenate([none, *(numbering.number(hash_texts(block))[0] for block in _blocks(side))])
        for side in (texts.queries, texts.documents)
    ]
    return compact(sides[0]), compact(sides[1])


def joined(sets: Sequence[PairSet]) -> PairSet:
    """Several sources as one set of pairs."""
    if len(sets) == 1:
        return sets[0]
    return PairSet(
        " + ".join(pairs.name for pairs in sets),
        sets[0].texts,
        np.concatenate([pairs.query for pairs in sets]),
        np.concatenate([pairs.positive for pairs in sets]),
        sets[0].answers,
        sets[0].negatives,
        np.repeat(np.arange(len(sets), dtype=np.int32), [len(pairs) for pairs in sets]),
        np.concatenate([pairs.topics for pairs in sets]),
        np.concatenate([pairs.tags for pairs in sets]),
        tuple(chain.from_iterable(pairs.notes for pairs in sets)),
    )


def _blocks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    remaining = iter(entries)
    while block := list(islice(remaining, BLOCK)):
        yield block


@runtime_checkable
class Sink(Protocol):
    """Accepts texts in the order of their rows, such as a list or a file being written."""

    def extend(self, strings: Iterable[str], /) -> None:
        """Append texts."""


class _Side:
    """Distinct texts of one side."""

    def __init__(self, texts: Sink) -> None:
        self._texts = texts
        self._numbering = TextNumbers()

    def __len__(self) -> int:
        return len(self._numbering)

    def number(self, texts: Sequence[str]) -> tuple[Numbers, list[int]]:
        """Rows of texts, and the positions of new ones."""
        rows, new = self._numbering.number(hash_texts(texts))
        new_rows: list[int] = new.tolist()
        self._texts.extend(texts[index] for index in new_rows)
        return rows, new_rows


@dataclass(frozen=True, slots=True)
class _Listed:
    """Documents listed in some examples, with the listing example and their role."""

    query: Numbers
    document: Numbers
    answers: Bool[np.ndarray, " n"]
    of: Numbers
    topic: Numbers
    tag: Numbers

    def where(self, mask: np.ndarray) -> "_Listed":
        return _Listed(*(getattr(self, name)[mask] for name in self.__slots__))

    def each_once(self, documents: int) -> "_Listed":
        """Remove duplicate pairs of query and document, in order of first appearance."""
        return self.where(np.sort(np.unique(self.keys(documents), return_index=True)[1]))

    def keys(self, documents: int) -> Numbers:
        """A number for each pair of query and document."""
        keys: Numbers = self.query.astype(np.int64) * documents + self.document
        return keys

    def by_query(self, queries: int) -> Ragged:
        """Documents of each query, in input order."""
        order = np.argsort(self.query, kind="stable")
        return Ragged(
            self.document[order],
            compact(np.concatenate([[0], np.cumsum(np.bincount(self.query, minlength=queries))])),
        )


class PairBuilder:
    """Numbers texts as examples arrive, and forms the pairs at the end; texts need not be in memory.

    Entries with the same query text share their lists, across sets too. A negative that another entry lists
    as an answer is left out and counted in a note of the first set. A repeated pair counts once.
    """

    def __init__(self, queries: Sink, documents: Sink, query_ids: Sink) -> None:
        """Start without texts."""
        self._queries, self._documents, self._ids = _Side(queries), _Side(documents), query_ids
        self._names: dict[str, int] = {"": 0}
        self._listed: list[_Listed] = []
        self._notes: dict[str, None] = {}

    def add(self, examples: Iterable[Example], *, of: int) -> None:
        """Number the examples of a set."""
        for block in _blocks(examples):
            self._add(block, of)

    def note(self, sentences: Iterable[str]) -> None:
        """Add remarks on the input to the notes of the first set."""
        self._notes.update(dict.fromkeys(sentences))

    def _add(self, examples: Sequence[Example], of: int) -> None:
        rows, new = self._queries.number([example.query for example in examples])
        self._ids.extend(examples[index].query_id for index in new)
        listed = [text for example in examples for text in (*example.positives, *example.negatives)]
        counts = [count for example in examples for count in (len(example.positives), len(example.negatives))]
        each = np.array(counts).reshape(-1, 2).sum(axis=1)
        topics, tags = (
            [self._name(getattr(example, kind)) for example in examples] for kind in ("topic", "tag")
        )
        self._listed.append(
            _Listed(
                query=np.repeat(compact(rows), each),
                document=compact(self._documents.number(listed)[0]),
                answers=np.repeat(np.arange(len(counts)) % 2 == 0, counts),
                of=np.full(len(listed), of, dtype=np.int32),
                topic=np.repeat(compact(np.array(topics)), each),
                tag=np.repeat(compact(np.array(tags)), each),
            )
        )

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def built(self, names: Sequence[str], texts: Texts) -> tuple[PairSet, ...]:
        """Form the pairs."""
        queries, documents = len(self._queries), len(self._documents)
        listed = _Listed(
            *(
                np.concatenate([getattr(listed_block, name) for listed_block in (_nothing(), *self._listed)])
                for name in _Listed.__slots__
            )
        )
        near = listed.where(listed.answers)
        known = near.each_once(documents)
        far = listed.where(~listed.answers).each_once(documents)
        wrong = far.where(~np.isin(far.keys(documents), known.keys(documents)))
        left_out = len(far.query) - len(wrong.query)
        why = (
            f"{left_out:,} of {len(far.query):,} listed negatives left out, because "
            "they are listed as positives of the same query"
        )
        answers, negatives = known.by_query(queries), wrong.by_query(queries)
        unanswered = int((answers.lengths == 0).sum())
        notes = (*self._notes, *([why] if left_out else []))
        if unanswered:
            notes += (
                f"{unanswered:,} of {queries:,} queries left out, because no "
                "row gives them a positive (label 1)",
            )
        sets = []
        for number, name in enumerate(names):
            of_set = near.where(near.of == number)
            pairs = of_set.each_once(documents)
            set_notes = (*notes, *_repeated(name, len(of_set.query), len(pairs.query)))
            sets.append(
                PairSet(
                    name,
                    texts,
                    pairs.query,
                    pairs.document,
                    answers,
                    negatives,
                    pairs.of * 0,
                    pairs.topic,
                    pairs.tag,
                    set_notes,
                )
            )
            notes = ()
        return tuple(sets)


def _repeated(name: str, listed: int, once: int) -> tuple[str, ...]:
    """A note on repeated pairs, if there are any."""
    if listed == once:
        return ()
    return (f"{name}: {listed - once:,} of {listed:,} pairs left out as duplicates",)


def _nothing() -> _Listed:
    none = np.empty(0, dtype=np.int32)
    return _Listed(none, none, none > 0, none, none, none)
