"""What pairs of a query and its document have in common with one another: arithmetic on the numbers of their texts."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from adiabat.config.dual_training import TrainSection
from adiabat.data.text_hashes import Hashes, numbered
from adiabat.profiling.profile_record import GroupKind, Groups, NamedGroup, PairCounts, SmallGroups


@dataclass(frozen=True, slots=True)
class Listed:
    """The documents that rows list, row after row.

    Attributes:
        hashes: Of each document.
        per_row: How many each row lists.
        missing: Of which there is no text in the corpus.
    """

    hashes: Hashes
    per_row: Int[np.ndarray, " rows"]
    missing: Bool[np.ndarray, " listed"]

    @property
    def row(self) -> Int[np.ndarray, " listed"]:
        """The row that lists each."""
        return np.repeat(np.arange(len(self.per_row)), self.per_row)


@dataclass(frozen=True, slots=True)
class PairRows:
    """Rows to quote, and to go by.

    Attributes:
        own_answer: Whose document is their query.
        negatives_that_answer: That list a negative which is a positive of the same query.
        missing: That name a document which the corpus does not have.
        most_repeated: The first that has the most repeated positive.
        each: Of each different pair the first that lists it, not to quote but to count by.
    """

    own_answer: list[int]
    negatives_that_answer: list[int]
    missing: list[int]
    most_repeated: int
    each: Int[np.ndarray, " pairs"]


def count_pairs(query: Hashes, positives: Listed, negatives: Listed) -> tuple[PairCounts, PairRows]:
    """Count pairs and what repeats in them."""
    numbers = numbered(np.concatenate([query, positives.hashes, negatives.hashes]))
    asked, near, far = np.split(numbers, [len(query), len(query) + len(positives.hashes)])
    # One number for a pair of texts; below 2^63 up to three thousand million texts.
    width = int(numbers.max()) + 1
    pair = asked[positives.row] * width + near
    distinct, came_first = np.unique(pair, return_index=True)
    documents, times = np.unique(near, return_counts=True)
    own = asked[positives.row] == near
    answers = np.isin(asked[negatives.row] * width + far, distinct)
    counts = PairCounts(
        pairs=len(pair),
        distinct_pairs=len(distinct),
        unique_documents=len(documents) / len(pair),
        documents_once=int((times == 1).sum()),
        most_repeated=int(times.max()),
        queries_asked_again=len(asked) - len(np.unique(asked)),
        queries_with_several=int((np.unique(distinct // width, return_counts=True)[1] > 1).sum()),
        on_both_sides=len(np.intersect1d(asked, np.concatenate([near, far]))),
        own_answer=int(own.sum()),
        negatives=len(far),
        rows_without_negatives=int((negatives.per_row == 0).sum()),
        negatives_that_answer=int(answers.sum()),
        missing_documents=int(positives.missing.sum() + negatives.missing.sum()),
    )
    first = int(positives.row[np.argmax(near == documents[np.argmax(times)])])
    absent = sorted({*_rows(positives, positives.missing), *_rows(negatives, negatives.missing)})
    each = positives.row[came_first]
    return counts, PairRows(_rows(positives, own), _rows(negatives, answers), absent, first, each)


def _rows(listed: Listed, chosen: Bool[np.ndarray, " listed"]) -> list[int]:
    rows: list[int] = np.unique(listed.row[chosen]).tolist()
    return rows


def in_corpus(listed: Listed, ids: Hashes, texts: Hashes) -> Listed:
    """Put texts in the place of ids."""
    numbers = numbered(np.concatenate([ids, listed.hashes]))
    distinct, first = np.unique(numbers[: len(ids)], return_index=True)
    row_of = np.full(int(numbers.max(initial=-1)) + 1, -1)
    row_of[distinct] = first
    rows = row_of[numbers[len(ids) :]]
    hashes = np.where(rows >= 0, texts[rows], listed.hashes)
    return Listed(hashes, listed.per_row, rows < 0)


NAMES = ("topic", "tag")
"""Columns that say what a row is about, for batches of one kind; the coarser first."""

USUAL_BATCH: int = TrainSection.model_fields["batch_size"].default
"""Pairs of a batch where training is told nothing else."""

BATCH_SIZES = (USUAL_BATCH, 256)
"""For which it is said how many groups are too small: the usual one, and one of a GPU."""

LISTED = 8
"""Largest groups that are named, and tags of each."""

KEPT_CHARACTERS = 100
"""Of a name, so that a column of whole texts that is taken for topics costs little."""


class NameTally:
    """The topic or the tag of each row by its number: 0 is none, the others count from 1 as they first come."""

    def __init__(self) -> None:
        self.names = [""]
        self._numbers = {hash(""): 0}
        self._each = array("i")

    def add(self, name: str) -> None:
        """Note that of one more row.

        Args:
            name: "" where the row has none.
        """
        number = self._numbers.setdefault(hash(name), len(self.names))
        if number == len(self.names):
            self.names.append(name[:KEPT_CHARACTERS])
        self._each.append(number)

    @property
    def numbers(self) -> Int[np.ndarray, " rows"]:
        """Of each row."""
        return np.array(self._each, dtype=np.int64)


def groups_of(read: frozenset[str], topics: NameTally, tags: NameTally, rows: Int[np.ndarray, " pairs"]) -> Iterator[Groups]:
    """Count pairs by what the data says of them.

    Equal tags of different topics are different groups, as they are where batches are made.
    """
    topic, tag, width = topics.numbers[rows], tags.numbers[rows], len(tags.names)

    def named_topic(number: int, size: int) -> NamedGroup:
        inner = tag[(topic == number) & (tag > 0)]
        found, sizes = _largest_first(inner)
        named = tuple((tags.names[one], count) for one, count in zip(found[:LISTED], sizes[:LISTED], strict=True))
        return NamedGroup(topics.names[number], size, tags=named, tag_count=len(found))

    def named_tag(number: int, size: int) -> NamedGroup:
        return NamedGroup(tags.names[number % width], size, within=topics.names[number // width])

    if "topic" in read:
        yield _groups("topic", topic, topic, named_topic)
    if "tag" in read:
        yield _groups("tag", topic * width + tag, tag, named_tag)


def _groups(
    kind: GroupKind, keys: Int[np.ndarray, " pairs"], names: Int[np.ndarray, " pairs"], named: Callable[[int, int], NamedGroup]
) -> Groups:
    """Groups by their keys; a pair whose name is 0 is in none."""
    found, sizes = _largest_first(keys[names > 0])
    return Groups(
        kind=kind,
        pairs=len(keys),
        without=int((names == 0).sum()),
        groups=len(found),
        names=len(np.unique(names[names > 0])),
        largest=tuple(named(key, size) for key, size in zip(found[:LISTED], sizes[:LISTED], strict=True)),
        smallest=named(found[-1], sizes[-1]) if found else None,
        small=tuple(_small(sizes, batch_size) for batch_size in BATCH_SIZES),
    )


def _largest_first(numbers: Int[np.ndarray, " pairs"]) -> tuple[list[int], list[int]]:
    """Each number and how often it stands there; of equally frequent ones the least first."""
    found, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return found[order].tolist(), counts[order].tolist()


def _small(sizes: list[int], batch_size: int) -> SmallGroups:
    small = [size for size in sizes if size < batch_size]
    return SmallGroups(batch_size, len(small), sum(small))
