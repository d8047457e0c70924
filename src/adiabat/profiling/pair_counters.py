"""Repetition among pairs of a query and a document, and their spread over topics and tags: arithmetic on the numbers of their texts."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from adiabat.config.dual_training import TrainSection
from adiabat.data.text_hashes import Hashes, numbered
from adiabat.profiling.profile_record import GroupKind, Groups, NamedGroup, PairCounts, SmallGroups

NAMES: tuple[GroupKind, ...] = ("topic", "tag")
"""Columns that batches can be grouped by, the coarser first."""

BATCH_SIZES = (TrainSection.model_fields["batch_size"].default, 256)
"""Batch sizes for which small groups are counted: the default, and that of a GPU."""

LISTED_GROUPS = 8
"""Largest groups that are listed, and tags of each."""

NAME_CHARACTERS = 100
"""Characters of a name in memory, for columns of whole texts that are taken for topics."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The documents that rows list, row after row."""

    hashes: Hashes
    per_row: Int[np.ndarray, " rows"]
    missing: Bool[np.ndarray, " listed"]

    @property
    def row(self) -> Int[np.ndarray, " listed"]:
        """The row that lists each document."""
        return np.repeat(np.arange(len(self.per_row)), self.per_row)

    def rows_where(self, chosen: Bool[np.ndarray, " listed"]) -> list[int]:
        """Rows with a chosen document, ascending."""
        rows: list[int] = np.unique(self.row[chosen]).tolist()
        return rows


@dataclass(frozen=True, slots=True)
class PairRows:
    """Rows behind the counts."""

    own_answer: list[int]
    negatives_that_answer: list[int]
    missing: list[int]
    distinct_pairs: Int[np.ndarray, " pairs"]


def count_pairs(queries: Hashes, positives: Listed, negatives: Listed) -> tuple[PairCounts, PairRows]:
    """Count pairs and their repetition."""
    numbers = numbered(np.concatenate([queries, positives.hashes, negatives.hashes]))
    query, positive, negative = np.split(numbers, [len(queries), len(queries) + len(positives.hashes)])
    # One number for each pair of texts; below 2^63 up to three billion texts.
    width = int(numbers.max()) + 1
    pair = query[positives.row] * width + positive
    distinct, first = np.unique(pair, return_index=True)
    _, frequencies = np.unique(positive, return_counts=True)
    own_answer = query[positives.row] == positive
    answers = np.isin(query[negatives.row] * width + negative, distinct)
    counts = PairCounts(
        pairs=len(pair),
        distinct_pairs=len(distinct),
        unique_documents=len(frequencies) / len(pair),
        documents_once=int((frequencies == 1).sum()),
        most_repeated=int(frequencies.max()),
        queries_asked_again=len(query) - len(np.unique(query)),
        queries_with_several=int((np.unique(distinct // width, return_counts=True)[1] > 1).sum()),
        on_both_sides=len(np.intersect1d(query, np.concatenate([positive, negative]))),
        own_answer=int(own_answer.sum()),
        negatives=len(negative),
        rows_without_negatives=int((negatives.per_row == 0).sum()),
        negatives_that_answer=int(answers.sum()),
        missing_documents=int(positives.missing.sum() + negatives.missing.sum()),
    )
    missing = sorted({*positives.rows_where(positives.missing), *negatives.rows_where(negatives.missing)})
    return counts, PairRows(positives.rows_where(own_answer), negatives.rows_where(answers), missing, positives.row[first])


def in_corpus(listed: Listed, ids: Hashes, texts: Hashes) -> Listed:
    """Replace the hashes of ids by those of their texts in a corpus; of a repeated id, the first text counts."""
    numbers = numbered(np.concatenate([ids, listed.hashes]))
    distinct, first = np.unique(numbers[: len(ids)], return_index=True)
    row_of = np.full(int(numbers.max(initial=-1)) + 1, -1)
    row_of[distinct] = first
    rows = row_of[numbers[len(ids) :]]
    hashes = np.where(rows >= 0, texts[rows], listed.hashes)
    return Listed(hashes, listed.per_row, rows < 0)


class NameCounter:
    """Numbers the topic or the tag of each row: 0 is none, the others count from 1 by first appearance."""

    def __init__(self) -> None:
        self.names = [""]
        self._number_of = {hash(""): 0}
        self._numbers = array("i")

    def add(self, name: str) -> None:
        """Add the name of one more row, "" where it has none."""
        number = self._number_of.setdefault(hash(name), len(self.names))
        if number == len(self.names):
            self.names.append(name[:NAME_CHARACTERS])
        self._numbers.append(number)

    @property
    def numbers(self) -> Int[np.ndarray, " rows"]:
        """Number of each row's name."""
        return np.array(self._numbers, dtype=np.int64)


def groups_of(read: frozenset[str], topics: NameCounter, tags: NameCounter, rows: Int[np.ndarray, " pairs"]) -> Iterator[Groups]:
    """Count the pairs of each topic and each tag, where the data has these columns (`read`).

    Equal tags of different topics are different groups, as they are where batches are made.
    """
    topic, tag, width = topics.numbers[rows], tags.numbers[rows], len(tags.names)

    def named_topic(number: int, size: int) -> NamedGroup:
        inner, sizes = _largest_first(tag[(topic == number) & (tag > 0)])
        largest = tuple((tags.names[name], count) for name, count in zip(inner[:LISTED_GROUPS], sizes[:LISTED_GROUPS], strict=True))
        return NamedGroup(topics.names[number], size, tags=largest, tag_count=len(inner))

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
    numbers, sizes = _largest_first(keys[names > 0])
    small_sizes = {batch_size: [size for size in sizes if size < batch_size] for batch_size in BATCH_SIZES}
    return Groups(
        kind=kind,
        pairs=len(keys),
        without=int((names == 0).sum()),
        groups=len(numbers),
        names=len(np.unique(names[names > 0])),
        largest=tuple(named(key, size) for key, size in zip(numbers[:LISTED_GROUPS], sizes[:LISTED_GROUPS], strict=True)),
        smallest=named(numbers[-1], sizes[-1]) if numbers else None,
        small=tuple(SmallGroups(batch_size, len(small), sum(small)) for batch_size, small in small_sizes.items()),
    )


def _largest_first(numbers: Int[np.ndarray, " pairs"]) -> tuple[list[int], list[int]]:
    """Distinct numbers and their frequencies, the most frequent first, ties by number."""
    distinct, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return distinct[order].tolist(), counts[order].tolist()
