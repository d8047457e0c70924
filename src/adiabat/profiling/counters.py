"""Counters that take one row at a time and keep 32 bytes per text and a sample; and counts of repeated
pairs.
"""

import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
from jaxtyping import Bool, Int, Int64

from adiabat.config.dual_training import TrainSection
from adiabat.core.errors import DataError, Faults
from adiabat.data.table_rows import Row, value_kind
from adiabat.data.text_hashes import Hashes, TextHashes, folded, numbered
from adiabat.profiling.profile_record import (
    Column,
    GroupKind,
    Groups,
    NamedGroup,
    PairCounts,
    Role,
    SmallGroups,
    TextCounts,
)
from adiabat.profiling.row_reader import Entry
from adiabat.profiling.text_lengths import SAMPLED_CHARACTERS, Sample, TokenCounter, TokenSample

OfPairs = Int[np.ndarray, " pairs"]
"""One number for each pair."""

RowPairs = Int64[np.ndarray, "ids 2"]
"""For each id that repeats, its first row and a later one."""

SHOWN_CHARACTERS = 300
"""Characters of each text of an example row."""

SHOWN_LOCATIONS = 3
"""Locations that a finding names."""

MAX_VALUES = 50
"""A column with more distinct values is not a tag, and its values are not kept."""

_LONGEST_VALUE = 80
_KIND_ENTRIES = 64
"""Entries of a list whose kinds are compared."""

MISREAD = re.compile("[\u00c2\u00c3][\u0080-\u009f\u00a1-\u00bf]|\u00e2\u20ac|\ufffd|[\u0080-\u009f]")
"""UTF-8 read as Latin-1 or Windows-1252 (``Ã©``, ``â€™``), undecodable bytes (U+FFFD), C1 controls."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Example rows and texts of each role to draw, at most, and the counter of tokens; None counts none."""

    examples: int
    texts: int
    seed: int
    tokens: TokenCounter | None


class TextCounter:
    """Counts the texts of one role.

    Texts are kept as hashes and lengths, 32 bytes each: whatever else is told of them is sampled, or counted
    as they pass.
    """

    def __init__(self, role: Role, sampling: Sampling) -> None:
        self.role = role
        self.hashes = TextHashes()
        self.prefixes: Sample[str] = Sample(sampling.texts, seed=f"{sampling.seed} languages {role}")
        self.tokens = (
            TokenSample(role, sampling.tokens, sampling.texts, seed=sampling.seed)
            if sampling.tokens
            else None
        )
        self.languages: Counter[str] = Counter()
        self.misread = Faults(shown=SHOWN_LOCATIONS)
        self.are_single_words = True
        """Whether each text so far is one word of ASCII, as ids are."""
        self._folded = array("q")
        self.words = array("i")
        self.characters = array("i")

    def add(self, text: str, location: str) -> None:
        """Count one text."""
        words = folded(text)
        self.hashes.add(text)
        # 64 bits a text: among a million texts, two collide with a probability of 3e-8.
        self._folded.append(hash(" ".join(words)))
        self.words.append(len(words))
        self.characters.append(len(text))
        if len(words) != 1 or not text.isascii():
            self.are_single_words = False
        if not text.isascii() and MISREAD.search(text):
            self.misread.add(location)
        if (slot := self.prefixes.offer()) is not None:
            self.prefixes.put(slot, text[:SAMPLED_CHARACTERS])
        if self.tokens is not None:
            self.tokens.add(text)

    def __len__(self) -> int:
        return len(self.hashes)

    def counts(self) -> TextCounts:
        """Texts, distinct ones, and mis-decoded ones."""
        distinct, folded_alike = len(np.unique(self.hashes.hashes())), len(np.unique(self._folded))
        return TextCounts(self.role, len(self), distinct, folded_alike, self.misread.count)


class IdCounter:
    """Finds ids that repeat, exactly or but for case, by their hashes: 24 bytes an id."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._exact = array("q")
        self._folded = array("q")

    def add(self, address: str, row: int) -> None:
        """Count the id of a row."""
        self._rows.append(row)
        self._exact.append(hash(address))
        self._folded.append(hash(address.casefold()))

    def repeated(self) -> RowPairs:
        """(first row, later row) of each id that an earlier row has."""
        return self._rows_at(_repeats(np.array(self._exact, dtype=np.int64)))

    def repeated_but_for_case(self) -> RowPairs:
        """(first row, later row) of each id that differs from an earlier one in case alone."""
        first = np.unique(self._exact, return_index=True)[1]
        # The first row of each exact id, in the order of the file: exact repetitions are told elsewhere.
        first.sort()
        return self._rows_at(first[_repeats(np.array(self._folded, dtype=np.int64)[first])])

    def _rows_at(self, positions: RowPairs) -> RowPairs:
        """Numbers of the rows at some positions: rows without an id take none."""
        return np.asarray(np.array(self._rows, dtype=np.int64)[positions])


def _repeats(values: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, "repeats 2"]:
    """(first position, later position) of each value that occurred before."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    firsts = first[inverse]
    # A value's own position differs from its first one wherever it repeats.
    later = np.flatnonzero(firsts != np.arange(len(values)))
    return np.stack([firsts[later], later], axis=1).astype(np.int64)


class RowCounter:
    """Counts the rows of one source: texts by role, ids, documents of each row, topics and tags."""

    def __init__(self, sampling: Sampling) -> None:
        self.rows = 0
        self.texts: dict[Role, TextCounter] = {}
        self.ids = IdCounter()
        self.addresses = TextHashes()
        self.positives = array("i")
        self.negatives = array("i")
        self.topics, self.tags = NameCounter(), NameCounter()
        self._examples: Sample[tuple[int, Entry]] = Sample(sampling.examples, seed=f"{sampling.seed} shown")
        self._sampling = sampling

    def add(self, entry: Entry) -> None:
        """Count one row."""
        for role, texts in entry.texts.items():
            counter = self.of(role)
            for text in texts:
                counter.add(text, entry.location)
            # Rows of a language grid name the language of each text.
            counter.languages.update(entry.languages.get(role, ()))
        self.positives.append(len(entry.texts.get("positive", ())))
        self.negatives.append(len(entry.texts.get("negative", ())))
        self.topics.add(entry.topic)
        self.tags.add(entry.tag)
        if entry.address:
            self.ids.add(entry.address, self.rows)
            self.addresses.add(entry.address)
        if (slot := self._examples.offer()) is not None:
            # Ids are never so long that a truncated one could be mistaken for another.
            shortened: dict[Role, tuple[str, ...]] = {}
            for role, texts in entry.texts.items():
                shortened[role] = tuple(text[: SHOWN_CHARACTERS + 1] for text in texts)
            self._examples.put(slot, (self.rows, replace(entry, texts=shortened)))
        self.rows += 1

    def of(self, role: Role) -> TextCounter:
        """The counter of a role, empty if it has no texts."""
        if role not in self.texts:
            self.texts[role] = TextCounter(role, self._sampling)
        return self.texts[role]

    def examples(self) -> list[Entry]:
        """The example rows, in file order."""
        return [entry for _, entry in sorted(self._examples.items, key=itemgetter(0))]


class ColumnCounter:
    """Counts the kinds and values of each column; one that cannot be read is left out."""

    def __init__(self) -> None:
        self._columns: defaultdict[str, _ColumnCounts] = defaultdict(_ColumnCounts)
        self._unreadable: set[str] = set()

    def add(self, row: Row) -> None:
        """Count one row."""
        for name in row.values:
            if name in self._unreadable:
                continue
            try:
                value = row.values[name]
            except DataError:
                self._unreadable.add(name)
            else:
                self._columns[name].add(value, row.location)

    def columns(self, used: Mapping[str, str]) -> tuple[Column, ...]:
        """The columns; `used` maps the file's name of each that is read to ours."""
        return tuple(counts.column(name, used.get(name, "")) for name, counts in self._columns.items())

    def first_location(self, name: str, kind: str) -> str:
        """Location of the first value of a kind."""
        return self._columns[name].locations[kind]


class _ColumnCounts:
    """The kinds of a column's values, the first location of each, and the values while they are few.

    A column of more than `MAX_VALUES` values is no tag, and its values are forgotten for good.
    """

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._values: Counter[str] | None = Counter()

    def add(self, value: object, location: str) -> None:
        """Count a value."""
        kind = value_kind(value)
        if isinstance(value, list | tuple) and len(set(map(value_kind, value[:_KIND_ENTRIES]))) > 1:
            kind = "a list of several kinds"
        self._kinds[kind] += 1
        self.locations.setdefault(kind, location)
        if self._values is None or value is None or value == "":
            return
        if isinstance(value, str | int) and len(text := str(value)) <= _LONGEST_VALUE:
            self._values[text] += 1
            if len(self._values) <= MAX_VALUES:
                return
        # Too many values, or one that is no short text or number: the column is no tag.
        self._values = None

    def column(self, name: str, used_as: str) -> Column:
        """The record of the column."""
        values = tuple(self._values.most_common()) if self._values else None
        return Column(name, used_as, tuple(self._kinds.most_common()), self._kinds.total(), values)


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


@dataclass(frozen=True, slots=True)
class PairRows:
    """Rows behind the counts, ascending, which findings quote; `distinct_pairs` has each pair's first."""

    own_answer: list[int]
    negatives_that_answer: list[int]
    missing: list[int]
    distinct_pairs: OfPairs


def count_pairs(queries: Hashes, positives: Listed, negatives: Listed) -> tuple[PairCounts, PairRows]:
    """Count pairs and their repetition.

    Equal texts have one number on both sides, so a pair of texts is one number, and every count is one of
    numbers that are equal.
    """
    numbers = numbered(np.concatenate([queries, positives.hashes, negatives.hashes]))
    query, positive, negative = np.split(numbers, [len(queries), len(queries) + len(positives.hashes)])
    # One number for each pair of texts; below 2^63 up to three billion texts.
    width = int(numbers.max()) + 1
    asked = query[positives.row]
    pair = asked * width + positive
    distinct, first = np.unique(pair, return_index=True)
    # Pairs of each distinct positive.
    frequencies = np.unique(positive, return_counts=True)[1]
    documents_of_each = np.unique(distinct // width, return_counts=True)[1]
    is_own = asked == positive
    is_answer = np.isin(query[negatives.row] * width + negative, distinct)
    missing = np.concatenate([positives.row[positives.missing], negatives.row[negatives.missing]])
    counts = PairCounts(
        pairs=len(pair),
        distinct_pairs=len(distinct),
        unique_documents=len(frequencies) / len(pair),
        documents_once=int((frequencies == 1).sum()),
        most_repeated=int(frequencies.max()),
        queries_asked_again=len(query) - len(np.unique(query)),
        queries_with_several=int((documents_of_each > 1).sum()),
        on_both_sides=len(np.intersect1d(query, np.concatenate([positive, negative]))),
        own_answer=int(is_own.sum()),
        negatives=len(negative),
        rows_without_negatives=int((negatives.per_row == 0).sum()),
        negatives_that_answer=int(is_answer.sum()),
        missing_documents=len(missing),
    )
    rows = PairRows(
        own_answer=_ascending(positives.row[is_own]),
        negatives_that_answer=_ascending(negatives.row[is_answer]),
        missing=_ascending(missing),
        distinct_pairs=positives.row[first],
    )
    return counts, rows


def _ascending(rows: Int[np.ndarray, " _"]) -> list[int]:
    """Each row once."""
    ascending: list[int] = np.unique(rows).tolist()
    return ascending


def in_corpus(listed: Listed, ids: Hashes, texts: Hashes) -> Listed:
    """Replace the hashes of ids by those of their texts in a corpus; of a repeated id, the first text
    counts.
    """
    # Ids of the corpus come first, so that rows of the corpus are the first positions.
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
        """Add the name of one more row, "" if it has none."""
        number = self._number_of.setdefault(hash(name), len(self.names))
        # A new name has the next number.
        if number == len(self.names):
            self.names.append(name[:NAME_CHARACTERS])
        self._numbers.append(number)

    @property
    def numbers(self) -> Int[np.ndarray, " rows"]:
        """Number of each row's name."""
        return np.array(self._numbers, dtype=np.int64)


def groups_of(
    read: frozenset[str], topics: NameCounter, tags: NameCounter, rows: OfPairs
) -> Iterator[Groups]:
    """Count the pairs of each topic and each tag, where the data has these columns (`read`).

    Equal tags of different topics are different groups, as they are where batches are made.
    """
    topic, tag, width = topics.numbers[rows], tags.numbers[rows], len(tags.names)

    def named_topic(number: int, size: int) -> NamedGroup:
        """A topic by its number, with its largest tags."""
        inner = _largest_first(tag[(topic == number) & (tag > 0)])
        largest = tuple((tags.names[name], count) for name, count in inner[:LISTED_GROUPS])
        return NamedGroup(topics.names[number], size, tags=largest, tag_count=len(inner))

    def named_tag(number: int, size: int) -> NamedGroup:
        """A tag within a topic, by their common number."""
        return NamedGroup(tags.names[number % width], size, within=topics.names[number // width])

    if "topic" in read:
        yield _groups("topic", topic, topic, named_topic)
    if "tag" in read:
        yield _groups("tag", topic * width + tag, tag, named_tag)


def _groups(
    kind: GroupKind, keys: OfPairs, names: OfPairs, named: Callable[[int, int], NamedGroup]
) -> Groups:
    """Groups by their keys; a pair whose name is 0 is in none.

    Args:
        keys: The group of each pair.
        names: The number of its topic or tag alone, to count distinct names.
        named: Makes the record of a group, by its key and its pairs.
    """
    # The key of a tag holds the number of its topic, too.
    groups = _largest_first(keys[names > 0])
    small = []
    for batch_size in BATCH_SIZES:
        sizes = [size for _, size in groups if size < batch_size]
        small.append(SmallGroups(batch_size, len(sizes), sum(sizes)))
    return Groups(
        kind=kind,
        pairs=len(keys),
        without=int((names == 0).sum()),
        groups=len(groups),
        names=len(np.unique(names[names > 0])),
        largest=tuple(named(key, size) for key, size in groups[:LISTED_GROUPS]),
        smallest=named(*groups[-1]) if groups else None,
        small=tuple(small),
    )


def _largest_first(numbers: OfPairs) -> list[tuple[int, int]]:
    """Distinct numbers with their frequencies, the most frequent first, ties by number."""
    distinct, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return list(zip(distinct[order].tolist(), counts[order].tolist(), strict=True))
