"""Counters that see one row at a time and keep 32 bytes a text, whatever its length, and a sample."""

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from adiabat.core.errors import DataError
from adiabat.data.table_rows import Row, value_kind
from adiabat.data.text_hashes import TextHashes, folded, numbered
from adiabat.profiling.pair_counters import NameCounter
from adiabat.profiling.profile_record import Column, Role, TextCounts
from adiabat.profiling.row_reader import Entry
from adiabat.profiling.text_lengths import SAMPLED_CHARACTERS, Sample, TokenCounter, TokenSample

SHOWN_CHARACTERS = 300
"""Characters of each text of an example row."""

SHOWN_LOCATIONS = 3
"""Locations that a finding names."""

MAX_VALUES = 50
"""A column with more distinct values is no tag, and its values are not kept."""

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
    """Counts the texts of one role."""

    def __init__(self, role: Role, sampling: Sampling) -> None:
        self.role = role
        self.hashes = TextHashes()
        self.prefixes: Sample[str] = Sample(sampling.texts, seed=f"{sampling.seed} languages {role}")
        self.tokens = TokenSample(role, sampling.tokens, sampling.texts, seed=sampling.seed) if sampling.tokens else None
        self.languages: Counter[str] = Counter()
        self.misread = 0
        self.misread_locations: list[str] = []
        self.are_single_words = True
        """Whether each text so far is one word of ASCII, as ids are."""
        self._folded = array("q")
        self.words = array("i")
        self.characters = array("i")

    def add(self, text: str, location: str) -> None:
        """Count one text."""
        words = folded(text)
        self.hashes.add(text)
        self._folded.append(hash(" ".join(words)))
        self.words.append(len(words))
        self.characters.append(len(text))
        if not text.isascii():
            self.are_single_words = False
            if MISREAD.search(text):
                self.misread += 1
                if len(self.misread_locations) < SHOWN_LOCATIONS:
                    self.misread_locations.append(location)
        elif len(words) != 1:
            self.are_single_words = False
        if (slot := self.prefixes.offer()) is not None:
            self.prefixes.put(slot, text[:SAMPLED_CHARACTERS])
        if self.tokens is not None:
            self.tokens.add(text)

    def __len__(self) -> int:
        return len(self.hashes)

    def counts(self) -> TextCounts:
        """Texts, distinct ones, and mis-decoded ones."""
        distinct = int(numbered(self.hashes.hashes()).max(initial=-1)) + 1
        return TextCounts(self.role, len(self), distinct, len(np.unique(np.array(self._folded))), self.misread)


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

    def repeated(self) -> Int64[np.ndarray, "ids 2"]:
        """(first row, later row) of each id that an earlier row has."""
        return self._rows_at(_repeats(np.array(self._exact, dtype=np.int64)))

    def repeated_but_for_case(self) -> Int64[np.ndarray, "ids 2"]:
        """(first row, later row) of each id that differs from an earlier one in case alone."""
        _, first = np.unique(np.array(self._exact, dtype=np.int64), return_index=True)
        first.sort()
        return self._rows_at(first[_repeats(np.array(self._folded, dtype=np.int64)[first])])

    def _rows_at(self, positions: Int64[np.ndarray, "ids 2"]) -> Int64[np.ndarray, "ids 2"]:
        return np.asarray(np.array(self._rows, dtype=np.int64)[positions])


def _repeats(values: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, "repeats 2"]:
    """(first position, later position) of each value that occurred before."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    firsts = first[inverse]
    later = np.flatnonzero(firsts != np.arange(len(values)))
    return np.stack([firsts[later], later], axis=1).astype(np.int64)


class RowCounter:
    """Counts the rows of one source."""

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
            shortened = {role: tuple(text[: SHOWN_CHARACTERS + 1] for text in texts) for role, texts in entry.texts.items()}
            self._examples.put(slot, (self.rows, replace(entry, texts=shortened)))
        self.rows += 1

    def of(self, role: Role) -> TextCounter:
        """The counter of a role, empty where it has no texts."""
        if role not in self.texts:
            self.texts[role] = TextCounter(role, self._sampling)
        return self.texts[role]

    def examples(self) -> list[Entry]:
        """The example rows, in file order."""
        return [entry for _, entry in sorted(self._examples.items, key=lambda item: item[0])]


class ColumnCounter:
    """Counts the kinds and values of each column."""

    def __init__(self) -> None:
        self._columns: dict[str, _ColumnCounts] = {}
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
                continue
            counts = self._columns.get(name)
            if counts is None:
                counts = self._columns[name] = _ColumnCounts()
            counts.add(value, row.location)

    def columns(self, used: Mapping[str, str]) -> tuple[Column, ...]:
        """The columns; `used` maps the file's name of each that is read to ours."""
        return tuple(counts.column(name, used.get(name, "")) for name, counts in self._columns.items())

    def first_location(self, name: str, kind: str) -> str:
        """Location of the first value of a kind."""
        return self._columns[name].locations[kind]


class _ColumnCounts:
    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._values: Counter[str] | None = Counter()
        self._kind_of_type: dict[type, str] = {}

    def add(self, value: object, location: str) -> None:
        kind = self._kind(value)
        self._kinds[kind] += 1
        if kind not in self.locations:
            self.locations[kind] = location
        if self._values is None or value is None or value == "":
            return
        if isinstance(value, str | int) and len(text := str(value)) <= _LONGEST_VALUE:
            self._values[text] += 1
            if len(self._values) <= MAX_VALUES:
                return
        self._values = None

    def column(self, name: str, used_as: str) -> Column:
        values = tuple(self._values.most_common()) if self._values else None
        return Column(name, used_as, tuple(self._kinds.most_common()), self._kinds.total(), values)

    def _kind(self, value: object) -> str:
        kind = self._kind_of_type.get(type(value))
        if kind is None:
            kind = self._kind_of_type[type(value)] = value_kind(value)
        if kind == "a list" and isinstance(value, list | tuple) and len(set(map(value_kind, value[:_KIND_ENTRIES]))) > 1:
            return "a list of several kinds"
        return kind
