"""Counting while the rows go by: 32 bytes a text are kept, whatever its length, and a sample."""

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int, Int64

from adiabat.core.errors import DataError
from adiabat.data.columns import value_kind
from adiabat.data.table_rows import Row
from adiabat.data.text_hashes import TextHashes, folded, numbered
from adiabat.profiling.pair_counters import NameTally
from adiabat.profiling.profile_record import Column, Role, TextCounts
from adiabat.profiling.row_reader import Entry
from adiabat.profiling.text_languages import SEEN_CHARACTERS
from adiabat.profiling.text_lengths import Sample, TokenCounter, TokenSample

SHOWN_CHARACTERS = 300
"""Of each text of a row that is shown."""

SHOWN_PLACES = 3
"""Of what a finding counts."""

MISREAD = re.compile("[\u00c2\u00c3][\u0080-\u009f\u00a1-\u00bf]|\u00e2\u20ac|\ufffd|[\u0080-\u009f]")
"""UTF-8 read as Latin-1 or Windows-1252 (``Ã©``, ``â€™``), bytes that were no text (U+FFFD), C1 controls."""


class TextTally:
    """The texts of one role."""

    def __init__(self, role: Role, *, sample: int, seed: int, counter: TokenCounter | None) -> None:
        """Begin with none.

        Args:
            counter: Counts tokens; None counts none.
        """
        self.role = role
        self.hashes = TextHashes()
        self.beginnings: Sample[str] = Sample(sample, seed=f"{seed} languages {role}")
        self.tokens = TokenSample(role, counter, sample, seed=seed) if counter else None
        self.languages: Counter[str] = Counter()
        self.misread = 0
        self.misread_places: list[str] = []
        self.bare = True
        """Whether each text so far is one word of ASCII, as ids are."""
        self._folded = array("q")
        self._words = array("i")
        self._characters = array("i")

    def add(self, text: str, place: str) -> None:
        """Count one text."""
        words = folded(text)
        self.hashes.add(text)
        self._folded.append(hash(" ".join(words)))
        self._words.append(len(words))
        self._characters.append(len(text))
        if not text.isascii():
            self.bare = False
            self._look_for_misread(text, place)
        elif len(words) != 1:
            self.bare = False
        if (drawn := self.beginnings.place()) is not None:
            self.beginnings.keep(drawn, text[:SEEN_CHARACTERS])
        if self.tokens is not None:
            self.tokens.add(text)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def words(self) -> Int[np.ndarray, " texts"]:
        """Words of each text."""
        return np.array(self._words, dtype=np.int64)

    @property
    def characters(self) -> Int[np.ndarray, " texts"]:
        """Characters of each text."""
        return np.array(self._characters, dtype=np.int64)

    def counts(self) -> TextCounts:
        """How many texts, and how many different ones."""
        distinct = int(numbered(self.hashes.hashes()).max(initial=-1)) + 1
        return TextCounts(self.role, len(self), distinct, len(np.unique(np.array(self._folded))), self.misread)

    def _look_for_misread(self, text: str, place: str) -> None:
        if MISREAD.search(text):
            self.misread += 1
            if len(self.misread_places) < SHOWN_PLACES:
                self.misread_places.append(place)


class IdTally:
    """Ids by their hashes, exactly and without case: 24 bytes an id."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._exact = array("q")
        self._folded = array("q")

    def add(self, address: str, row: int) -> None:
        """Note one id."""
        self._rows.append(row)
        self._exact.append(hash(address))
        self._folded.append(hash(address.casefold()))

    def repeated(self) -> Int64[np.ndarray, "ids 2"]:
        """Ids given before."""
        found: Int64[np.ndarray, "ids 2"] = self._numbers[repeats(np.array(self._exact, dtype=np.int64))]
        return found

    def alike(self) -> Int64[np.ndarray, "ids 2"]:
        """Ids that differ from an earlier one in case alone."""
        _, kept = np.unique(np.array(self._exact, dtype=np.int64), return_index=True)
        kept.sort()
        found: Int64[np.ndarray, "ids 2"] = self._numbers[kept[repeats(np.array(self._folded, dtype=np.int64)[kept])]]
        return found

    @property
    def _numbers(self) -> Int64[np.ndarray, " ids"]:
        return np.array(self._rows, dtype=np.int64)


def repeats(values: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, "again 2"]:
    """Where a value stands that has stood before."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    firsts = first[inverse]
    again = np.flatnonzero(firsts != np.arange(len(values)))
    return np.stack([firsts[again], again], axis=1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How the sample is drawn, and what counts tokens.

    Attributes:
        shown: Rows shown, at most.
        sample: Texts of each role looked at closely, at most.
        seed: Of both.
        counter: Counts tokens; None counts none.
    """

    shown: int
    sample: int
    seed: int
    counter: TokenCounter | None


class Tally:
    """The rows of one source."""

    def __init__(self, drawing: Drawing) -> None:
        """Begin with none."""
        self.rows = 0
        self.texts: dict[Role, TextTally] = {}
        self.ids = IdTally()
        self.addresses = TextHashes()
        self.shown: Sample[tuple[int, Entry]] = Sample(drawing.shown, seed=f"{drawing.seed} shown")
        self.positives = array("i")
        self.negatives = array("i")
        self.topics, self.tags = NameTally(), NameTally()
        self._drawing = drawing

    def add(self, entry: Entry) -> None:
        """Count one row."""
        for role, texts in entry.texts.items():
            tally = self.of(role)
            for text in texts:
                tally.add(text, entry.place)
            tally.languages.update(entry.languages.get(role, ()))
        self.positives.append(len(entry.texts.get("positive", ())))
        self.negatives.append(len(entry.texts.get("negative", ())))
        self.topics.add(entry.topic)
        self.tags.add(entry.tag)
        if entry.address:
            self.ids.add(entry.address, self.rows)
            self.addresses.add(entry.address)
        if (drawn := self.shown.place()) is not None:
            self.shown.keep(drawn, (self.rows, _cut(entry)))
        self.rows += 1

    def of(self, role: Role) -> TextTally:
        """The texts of a role.

        Returns:
            Its tally, empty where no text came.
        """
        if role not in self.texts:
            drawing = self._drawing
            self.texts[role] = TextTally(role, sample=drawing.sample, seed=drawing.seed, counter=drawing.counter)
        return self.texts[role]

    def shown_entries(self) -> list[Entry]:
        """The rows drawn to be shown, in file order."""
        return [entry for _, entry in sorted(self.shown.items, key=lambda item: item[0])]


def _cut(entry: Entry) -> Entry:
    """A row as it is kept to be shown; ids are never so long."""
    texts = {role: tuple(text[: SHOWN_CHARACTERS + 1] for text in texts) for role, texts in entry.texts.items()}
    return replace(entry, texts=texts)


MOST_VALUES = 50
"""A column with more different values is no tag, and its values are not kept."""

_LONGEST_VALUE = 80


class ColumnTally:
    """Counts, row by row, what each column holds."""

    def __init__(self) -> None:
        self._columns: dict[str, _Held] = {}
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
            held = self._columns.get(name)
            if held is None:
                held = self._columns[name] = _Held()
            held.add(value, row.place)

    def columns(self, used: Mapping[str, str]) -> tuple[Column, ...]:
        """What was counted."""
        return tuple(held.column(name, used.get(name, "")) for name, held in self._columns.items())

    def first_place(self, name: str, kind: str) -> str:
        """Where a kind of value stands first."""
        return self._columns[name].places[kind]


class _Held:
    """One column."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._values: Counter[str] | None = Counter()
        self._kind_of_type: dict[type, str] = {}

    def add(self, value: object, place: str) -> None:
        kind = self._kind(value)
        self._kinds[kind] += 1
        if kind not in self.places:
            self.places[kind] = place
        if self._values is None or value is None or value == "":
            return
        if isinstance(value, str | int) and len(shown := str(value)) <= _LONGEST_VALUE:
            self._values[shown] += 1
            if len(self._values) <= MOST_VALUES:
                return
        self._values = None

    def column(self, name: str, used_as: str) -> Column:
        values = tuple(self._values.most_common()) if self._values else None
        return Column(name, used_as, tuple(self._kinds.most_common()), self._kinds.total(), values)

    def _kind(self, value: object) -> str:
        kind = self._kind_of_type.get(type(value))
        if kind is None:
            kind = self._kind_of_type[type(value)] = value_kind(value)
        if kind == "a list" and isinstance(value, list | tuple) and len({value_kind(one) for one in value[:64]}) > 1:
            return "a list of several kinds"
        return kind
