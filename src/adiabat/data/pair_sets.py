"""Pairs of a query and a document that answers it: each distinct text once, with the known answers and
non-answers of each query.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Int

from adiabat.core.ragged import Ragged, compact
from adiabat.data.records import Example
from adiabat.data.text_hashes import Hashes, TextNumbers, blocks, hash_texts

Numbers = Int[np.ndarray, " n"]
"""One number for each entry."""

OfPairs = Int[np.ndarray, " pairs"]
"""One number for each pair."""

Scores = Float32[np.ndarray, " n"]
"""A teacher's score for each entry."""

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
            for hashes in _hashed(texts):
                digest.update(hashes.tobytes())
        return digest.digest()


@dataclass(frozen=True, slots=True)
class PairSet:
    """Pairs of a query and a document that answers it.

    Attributes:
        answers: Rows that answer each *query* of `texts`, in any pair of training or validation.
        negatives: Rows listed as not answering each *query*, none of them an answer.
        sources: Number of the source of each pair, ascending.
        topics: Number of the topic of each pair, equal for equal topics; all 0 without topics.
        scores: A teacher's score of each pair.
        negative_scores: A teacher's score of each listed negative, parallel to the values of `negatives`.
            Both are None where no example has scores, and NaN for examples without.
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
    scores: Scores | None = None
    negative_scores: Scores | None = None

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
        listed = self.negatives.take(self.query_rows).values
        return np.unique(np.concatenate([self.positive, listed]))

    def subset(self, mask: Bool[np.ndarray, " pairs"]) -> "PairSet":
        """Some of the pairs."""
        return replace(
            self,
            query=self.query[mask],
            positive=self.positive[mask],
            sources=self.sources[mask],
            topics=self.topics[mask],
            tags=self.tags[mask],
            scores=None if self.scores is None else self.scores[mask],
        )

    def digest(self) -> str:
        """SHA-256 over texts, pairs, their sources, topics and tags, negatives, and scores if there are any,
        in their order.
        """
        digest = hashlib.sha256(self.texts.digest())
        pairs = (self.query, self.positive, self.sources, self.topics, self.tags)
        for numbers in (*pairs, self.negatives.lengths, self.negatives.values):
            digest.update(np.int64(len(numbers)).tobytes())
            digest.update(np.ascontiguousarray(numbers, dtype=np.int64).data)
        for scores in (self.scores, self.negative_scores):
            if scores is not None:
                digest.update(np.ascontiguousarray(scores).data)
        return digest.hexdigest()


def text_numbers(texts: Texts) -> tuple[Int[np.ndarray, " queries"], Int[np.ndarray, " documents"]]:
    """Number the texts of both sides together."""
    if texts.folder is not None:
        with np.load(texts.folder / EQUAL_TEXTS) as arrays:
            return arrays["queries"], arrays["documents"]
    numbering = TextNumbers()
    sides = []
    for side in (texts.queries, texts.documents):
        blocks = [numbering.number(hashes)[0] for hashes in _hashed(side)]
        sides.append(compact(np.concatenate([np.empty(0, dtype=np.int64), *blocks])))
    return sides[0], sides[1]


def joined(sets: Sequence[PairSet]) -> PairSet:
    """Several sources as one set of pairs."""
    if len(sets) == 1:
        return sets[0]
    return replace(
        sets[0],
        name=" + ".join(pairs.name for pairs in sets),
        query=np.concatenate([pairs.query for pairs in sets]),
        positive=np.concatenate([pairs.positive for pairs in sets]),
        sources=np.repeat(np.arange(len(sets), dtype=np.int32), [len(pairs) for pairs in sets]),
        topics=np.concatenate([pairs.topics for pairs in sets]),
        tags=np.concatenate([pairs.tags for pairs in sets]),
        scores=None if sets[0].scores is None else np.concatenate([pairs.scores for pairs in sets]),
        notes=tuple(chain.from_iterable(pairs.notes for pairs in sets)),
    )


def _hashed(texts: Iterable[str]) -> Iterator[Hashes]:
    """Hashes of texts, a block at a time."""
    return map(hash_texts, blocks(texts))


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
        positions: list[int] = new.tolist()
        # Only new texts are kept, in the order of their rows.
        self._texts.extend(texts[position] for position in positions)
        return rows, positions


@dataclass(frozen=True, slots=True)
class _Listed:
    """Documents listed in some examples, with the listing example, their role, and the set that lists
    them.

    Columns of a table rather than objects: a hundred million entries take two gigabytes.
    """

    query: Numbers
    document: Numbers
    answers: Bool[np.ndarray, " n"]
    of: Numbers
    topic: Numbers
    tag: Numbers
    score: Scores

    @classmethod
    def joined(cls, blocks: Sequence["_Listed"]) -> "_Listed":
        """Several blocks as one; none of them gives an empty one."""
        none = np.empty(0, dtype=np.int32)
        every = [cls(none, none, none > 0, none, none, none, none.astype(np.float32)), *blocks]
        return cls(*(np.concatenate([getattr(block, name) for block in every]) for name in cls.__slots__))

    def where(self, mask: np.ndarray) -> "_Listed":
        """Some of the documents."""
        return _Listed(*(getattr(self, name)[mask] for name in self.__slots__))

    def each_once(self, documents: int) -> "_Listed":
        """Remove duplicate pairs of query and document, in order of first appearance."""
        _, first = np.unique(self.keys(documents), return_index=True)
        return self.where(np.sort(first))

    def keys(self, documents: int) -> Numbers:
        """A number for each pair of query and document."""
        # 64 bits hold the product of three billion queries and documents each.
        keys: Numbers = self.query.astype(np.int64) * documents + self.document
        return keys

    def by_query(self, queries: int) -> tuple[Ragged, Scores]:
        """Documents of each query, in input order, and the scores of all of them."""
        order = np.argsort(self.query, kind="stable")
        ends = np.cumsum(np.bincount(self.query, minlength=queries))
        return Ragged(self.document[order], compact(np.concatenate([[0], ends]))), self.score[order]


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
        self._is_scored = False

    def add(self, examples: Iterable[Example], *, of: int) -> None:
        """Number the examples of a set."""
        for block in blocks(examples, BLOCK):
            self._add(block, of)

    def note(self, sentences: Iterable[str]) -> None:
        """Add remarks on the input to the notes of the first set."""
        self._notes.update(dict.fromkeys(sentences))

    def _add(self, examples: Sequence[Example], of: int) -> None:
        """Number a block of examples, and note who lists what."""
        rows, new = self._queries.number([example.query for example in examples])
        self._ids.extend(examples[index].query_id for index in new)
        listed, counts, scores = list[str](), list[int](), list[float]()
        for example in examples:
            listed += (*example.positives, *example.negatives)
            scores += example.scores or [math.nan] * (len(example.positives) + len(example.negatives))
            self._is_scored |= bool(example.scores)
            counts += len(example.positives), len(example.negatives)
        # Counts of positives and negatives alternate.
        each = np.array(counts).reshape(-1, 2).sum(axis=1)
        topics = [self._name(example.topic) for example in examples]
        tags = [self._name(example.tag) for example in examples]
        self._listed.append(
            _Listed(
                query=np.repeat(compact(rows), each),
                document=compact(self._documents.number(listed)[0]),
                answers=np.repeat(np.arange(len(counts)) % 2 == 0, counts),
                of=np.full(len(listed), of, dtype=np.int32),
                topic=np.repeat(compact(np.array(topics)), each),
                tag=np.repeat(compact(np.array(tags)), each),
                score=np.array(scores, dtype=np.float32),
            )
        )

    def _name(self, name: str) -> int:
        """The number of a topic or a tag; "" has 0."""
        return self._names.setdefault(name, len(self._names))

    def built(self, names: Sequence[str], texts: Texts) -> tuple[PairSet, ...]:
        """Form the pairs."""
        queries, documents = len(self._queries), len(self._documents)
        listed = _Listed.joined(self._listed)
        near = listed.where(listed.answers)
        known = near.each_once(documents)
        far = listed.where(~listed.answers).each_once(documents)
        wrong = far.where(~np.isin(far.keys(documents), known.keys(documents)))
        answers, _ = known.by_query(queries)
        negatives, negative_scores = wrong.by_query(queries)
        notes = list(self._notes)
        if left_out := len(far.query) - len(wrong.query):
            notes.append(
                f"{left_out:,} of {len(far.query):,} listed negatives left out, because they are listed as "
                "positives of the same query"
            )
        if unanswered := int((answers.lengths == 0).sum()):
            notes.append(
                f"{unanswered:,} of {queries:,} queries left out, because no row gives them a positive "
                "(label 1)"
            )
        sets = []
        for number, name in enumerate(names):
            of_set = near.where(near.of == number)
            pairs = of_set.each_once(documents)
            if repeated := len(of_set.query) - len(pairs.query):
                notes.append(f"{name}: {repeated:,} of {len(of_set.query):,} pairs left out as duplicates")
            sets.append(
                PairSet(
                    name,
                    texts,
                    pairs.query,
                    pairs.document,
                    answers,
                    negatives,
                    sources=pairs.of * 0,
                    topics=pairs.topic,
                    tags=pairs.tag,
                    notes=tuple(notes),
                    scores=pairs.score if self._is_scored else None,
                    negative_scores=negative_scores if self._is_scored else None,
                )
            )
            # Notes on all sets together stand with the first.
            notes = []
        return tuple(sets)
