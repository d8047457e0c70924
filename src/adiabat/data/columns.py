"""Find the columns of a row by our names for them, and check their values.

Files of the field name the same column differently: `lines.COLUMN_ALIASES` lists the names, and a mapping
from our name to the file's overrides them.
"""

import difflib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from adiabat.core.errors import ConfigError, DataError
from adiabat.core.text import cut, numbered
from adiabat.core.wording import in_callers_words
from adiabat.data.folders import table_name
from adiabat.data.lines import COLUMN_ALIASES, MEANING, OF_LAYOUT, REQUIRED, Layout, more_columns
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows, value_kind

Parsed = TypeVar("Parsed")

_MAX_NAMES = 1_000
"""Maximum number of column names in memory: objects whose keys are ids must not fill it."""
_SHOWN_NAMES = 8
"""Ignored columns that a remark names."""
_USUAL = frozenset(("metadata", "pos_scores", "neg_scores", "vector", "embedding", "embeddings", "vec"))
"""Columns of field formats that are not read as rows: of BEIR corpora, of FlagEmbedding's mined negatives,
and vectors of an import."""


# How a user says which columns a file's rows have.
_WHERE_MAPPED = 'in columns (NAME = "COLUMN") or behind the path (?NAME=COLUMN)'
_MAP = f"map what is missing {_WHERE_MAPPED}; CSV and TSV begin with a header of names"


class Remarks:
    """Collects remarks: columns that are not read, texts that look like lists, and labels that make documents
    negatives.
    """

    def __init__(self) -> None:
        self._unread: dict[str, str] = {}
        self._lists: dict[tuple[str, bool], tuple[str, int]] = {}
        self._labels: Counter[str] = Counter()

    def add_unread(self, row: Row, used: Set[str], known: Iterable[str] = ()) -> None:
        """Note the columns of a row that are not read, each with its nearest match among `known`."""
        known = list(known)
        for name in row.values:
            # One more than is shown tells that there are others: objects may have a key for each id.
            if len(self._unread) > _SHOWN_NAMES:
                return
            if name not in used and name not in _USUAL and name not in self._unread:
                near = difflib.get_close_matches(name.lower(), known, n=1)
                self._unread[name] = "" if near == [name] else "".join(near)

    def add_list(self, column: str, location: str, *, read: bool) -> None:
        """Note a text that looks like a list, and whether it is read as one."""
        first, count = self._lists.get((column, read), (location, 0))
        self._lists[column, read] = first, count + 1

    def add_label(self, column: str) -> None:
        """Note a row with a document whose label is 0."""
        self._labels[column] += 1

    def interpretations(self) -> list[str]:
        """Notes on values that are read in an unusual way."""
        sentences = []
        for (column, read), (first, count) in self._lists.items():
            taken_for = "read as one" if read else "taken for one text; write a JSON list if it is one"
            sentences.append(
                f"{_short(column, 60)} looks like a list in {_rows(count)} (first {first}) and is {taken_for}"
            )
        for column, count in self._labels.items():
            sentences.append(
                f"{_short(column, 60)} is a label: documents with 0 are negatives, in {_rows(count)}"
            )
        return sentences

    def sentences(self) -> list[str]:
        """All remarks."""
        sentences = self.interpretations()
        if self._unread:
            listed = []
            for name, near in islice(self._unread.items(), _SHOWN_NAMES):
                nearest = f' (nearest known name: "{near}")' if near else ""
                listed.append(_short(name, 40) + nearest)
            others = " and others" if len(self._unread) > _SHOWN_NAMES else ""
            sentences.append(f"ignored columns: {', '.join(listed)}{others}")
        return sentences

    def warn(self, source: str | Path) -> None:
        """Warn of all remarks, behind the name that the caller gave the source."""
        for sentence in self.sentences():
            warnings.warn(f"{in_callers_words(source)}: {sentence}", stacklevel=2)


def _rows(count: int) -> str:
    """A count of rows with its noun."""
    return f"{count:,} {numbered('row', count)}"


def _short(name: str, limit: int) -> str:
    """A name of the data in quotes, cut to a number of characters."""
    return f'"{cut(name, limit=limit)}"'


class Columns:
    """Finds the columns of rows."""

    def __init__(
        self,
        mapping: Mapping[str, str] | None = None,
        *,
        source: str | Path = "",
        usual: Mapping[str, str] | None = None,
    ) -> None:
        """Take the mapping that applies to all rows; the columns in the address of `source` come before it.

        Args:
            usual: Names that come first in rows that have them.
        """
        self.mapping: Mapping[str, str] = {**(mapping or {}), **Source.of(source).columns}
        self.usual: Mapping[str, str] = usual or {}
        self.remarks = Remarks()
        self.labelled = False
        self._noted: set[str] = set()
        self._document_columns: dict[tuple[str, ...], tuple[list[str], list[str], str | None]] = {}
        for name in self.mapping:
            if name not in COLUMN_ALIASES:
                near = difflib.get_close_matches(name, COLUMN_ALIASES, n=1)
                advice = f"did you mean {near[0]}?" if near else f"the names are {', '.join(COLUMN_ALIASES)}"
                raise ConfigError(f"columns must map names that rows have, got {name}; {advice}")
        # One row is of one kind, so that no mapping can serve two.
        self.layouts = [layout for layout, names in OF_LAYOUT.items() if self.mapping.keys() <= {*names}]
        if not self.layouts:
            raise ConfigError(
                f"columns must map names of one kind of row, got {', '.join(self.mapping)}; a row is a "
                "document (doc_id, text, title), an example (query_id, query, positive, negative, label, "
                "scores, topic, tag) or a sentence pair (premise, hypothesis, label)"
            )

    def find(self, name: str, row: Row) -> str | None:
        """The file's name for our column `name`, or None if the row has no such column."""
        if name in self.mapping:
            return self.mapping[name] if self.mapping[name] in row.values else None
        for known in (self.usual.get(name), name):
            if known in row.values:
                return known
        present = [alias for alias in COLUMN_ALIASES[name] if alias in row.values]
        # Two names for one column: choosing one in silence could train on the wrong texts.
        if len(present) > 1:
            raise DataError(
                f"{row.location}: must have one column for {name}, got {quoted(present)}; "
                f"choose one {_WHERE_MAPPED}"
            )
        if name == "positive" and not present:
            present = more_columns(name, row.values)
        return present[0] if present else None

    def require(self, name: str, row: Row, layout: Layout) -> str:
        """Like `find`, for a required column."""
        column = self.find(name, row)
        if column is None:
            raise RowError(self._lacking(row, [layout]), advice=_MAP)
        return column

    def find_all(self, name: str, row: Row) -> list[str]:
        """The file's columns of positives or negatives: that of `find`, then ``negative_1``, ``negative_2``
        ... in numeric order.
        """
        if name in self.mapping:
            return [self.require(name, row, "examples")]
        first = self.require(name, row, "examples") if name == "positive" else self.find(name, row)
        columns = more_columns(name, row.values)
        if first is None or first in columns:
            return columns
        return [first, *columns]

    def document_columns(self, row: Row) -> tuple[list[str], list[str], str | None]:
        """Columns of an example's positives and negatives, and of their label; cached for rows with the same
        names.

        Beside negatives, only a mapped column is a label: a score there is a teacher's.
        """
        names = tuple(row.values)
        if names in self._document_columns:
            return self._document_columns[names]
        positives, negatives = self.find_all("positive", row), self.find_all("negative", row)
        label = None
        if self.mapping.get("label"):
            label = self.require("label", row, "examples")
        elif "label" not in self.mapping and not negatives:
            label = self.find("label", row)
        if len(self._document_columns) < _MAX_NAMES:
            self._document_columns[names] = positives, negatives, label
        return positives, negatives, label

    def note_unread(self, row: Row, layout: Layout) -> None:
        """Note the columns of a row that are not read in `remarks`."""
        if self._noted.issuperset(row.values):
            return
        columns: dict[str, list[str | None]] = {name: [self.find(name, row)] for name in OF_LAYOUT[layout]}
        if layout == "examples":
            positives, negatives, label = self.document_columns(row)
            columns |= {"positive": [*positives], "negative": [*negatives], "label": [label]}
        used: set[str] = set()
        unknown: list[str] = []
        for name, present in columns.items():
            found = list(filter(None, present))
            used.update(found)
            if not found:
                unknown += COLUMN_ALIASES[name]
        self.remarks.add_unread(row, used, unknown)
        if len(self._noted) < _MAX_NAMES:
            self._noted.update(row.values)

    def layout(self, row: Row, *, wanted: Sequence[Layout]) -> Layout:
        """The kind of a row, by its columns; a row that is both an example and a document, by an id and a
        text, is a document.
        """
        possible = [layout for layout in self.layouts if layout in wanted]
        if not possible:
            names = " or ".join(", ".join(REQUIRED[layout]) for layout in wanted)
            raise ConfigError(
                f"columns must map {names} here, got {', '.join(self.mapping)}; leave these out"
            )
        for name, column in self.mapping.items():
            # An empty name says that the file has no labels, or no scores of a teacher.
            if column not in row.values and (name, column) not in (("label", ""), ("scores", "")):
                raise DataError(f"{self._lacking(row, possible)}; {_MAP}")
        if {"examples", "corpus"}.issubset(possible) and _is_document(row):
            possible.remove("examples")
        has_plain_texts = False
        for layout in possible:
            columns = [self.find(name, row) for name in REQUIRED[layout]]
            present = [row.values[column] for column in columns if column is not None]
            if len(present) < len(columns):
                continue
            if layout != "grid" or all(isinstance(value, Mapping) for value in present):
                return layout
            has_plain_texts = True
        if has_plain_texts:
            raise DataError(
                f"{row.location}: must have premise and hypothesis as objects by language, got one text "
                'each; give objects, such as {"en": "text"}'
            )
        raise DataError(f"{self._lacking(row, possible)}; {_MAP}")

    def _lacking(self, row: Row, layouts: Sequence[Layout]) -> str:
        """The phrase for a row that has the columns of none of these kinds."""
        mapped = [f'"{column}" ({name})' for name, column in self.mapping.items() if column]
        kinds = []
        for layout in reversed(layouts):
            unmapped = [name for name in REQUIRED[layout] if name not in self.mapping]
            # The file's name of each column where it has one, otherwise ours.
            usual = [f'"{self.find(name, row) or name}"' for name in unmapped]
            kinds.append(f"{', '.join([*mapped, *usual])} ({MEANING[layout]})")
        got = quoted(row.values) or "no columns"
        return f"{row.header or row.location}: must have {' or '.join(kinds)}, got {got}"


def _is_document(row: Row) -> bool:
    """Whether a row has an id and a text that cannot be the positive of an example, as a ``passage`` can."""
    texts = set(COLUMN_ALIASES["text"]).difference(COLUMN_ALIASES["positive"])
    return not (texts.isdisjoint(row.values) or row.values.keys().isdisjoint(COLUMN_ALIASES["doc_id"]))


def parsed_rows(rows: Iterable[Row], faults: FileFaults, parse: Callable[[Row], Parsed]) -> Iterator[Parsed]:
    """Parse each row; rows that cannot be used are noted and skipped."""
    for row in rows:
        try:
            yield parse(row)
        except RowError as fault:  # Spelled out: for a context manager there are too many rows.
            faults.add(str(fault), fault.advice)


def first_row(rows: Iterator[Row], faults: FileFaults, source: object) -> tuple[Row, Iterator[Row]]:
    """The first valid row, and an iterator over all rows including it."""
    first = next(rows, None)
    if first is None:
        faults.raise_if_any()
        raise DataError(f"{source} must hold at least one row, got none; check that the file is complete")
    return first, chain([first], rows)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind, the names of their columns, and the faults found in them."""

    source: str | Path
    split: str | None
    columns: Columns
    layout: Layout
    first: Row
    rows: Iterator[Row]
    faults: FileFaults = field(default_factory=FileFaults)

    @classmethod
    def open(
        cls,
        source: str | Path,
        mapping: Mapping[str, str] | None = None,
        *,
        split: str | None = None,
        wanted: Sequence[Layout],
        usual: Mapping[str, str] | None = None,
        whole: bool = False,
    ) -> "Table":
        """Check a source and its first row, which decides the kind of all rows."""
        columns, faults = Columns(mapping, source=source, usual=usual), FileFaults()
        first, rows = first_row(
            read_rows(source, split=split, faults=faults, whole=whole, mapped=True), faults, source
        )
        return cls(source, split, columns, columns.layout(first, wanted=wanted), first, rows, faults)

    @property
    def name(self) -> str:
        """The source and its split, for tables and reports."""
        return split_name(self.source, self.split)

    def parsed(self, parse: Callable[[Row, Columns], Parsed]) -> Iterator[Parsed]:
        """Parse each row; rows that cannot be used are noted and skipped."""
        return parsed_rows(self.rows, self.faults, lambda row: parse(row, self.columns))

    def whole(self, parse: Callable[[Row, Columns], Parsed]) -> Iterator[Parsed]:
        """Like `parsed`, but all faults are raised behind the last row, before any other remark."""
        yield from self.parsed(parse)
        self.faults.raise_if_any()

    def finish(self) -> None:
        """Raise all faults, or warn of all remarks if there are none."""
        self.faults.raise_if_any()
        self.columns.remarks.warn(self.source)


def split_name(source: str | Path, split: str | None) -> str:
    """Name of a source and its split, for tables and reports."""
    split = Source.of(source).split or split
    return f"{table_name(source)}/{split}" if split else table_name(source)


def text_value(value: object, column: str, location: str) -> str:
    """Check a text that the tokenizer can take."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RowError(f'{location}: "{column}" must not be empty')
    if not isinstance(value, str):
        raise RowError(f'{location}: "{column}" must be a text, got {value_kind(value)}')
    if not value.isascii():
        try:
            # Half of a surrogate pair can stand in a Python text, but has no UTF-8.
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError(
                f'{location}: "{column}" must be Unicode text, got half of a surrogate pair'
            ) from error
    return value


def text_of(row: Row, column: str) -> str:
    """The text in a column of a row, which must not be empty."""
    return text_value(row.values[column], column, row.location)


def id_of(row: Row, column: str) -> str:
    """The id in a column of a row."""
    return id_value(row.values[column], column, row.location)


def optional_text(value: object, column: str, location: str) -> str:
    """A text that may be missing; "" for null and for white space alone."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return ""
    return text_value(value, column, location)


def id_value(value: object, column: str, location: str) -> str:
    """Read an id; a whole number becomes its decimal text."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return text_value(value, column, location)


def entries_value(value: object, column: str, location: str) -> tuple[str, ...]:
    """Read document texts or ids: one, or a list of them; None is the empty list."""
    if value is None:
        return ()
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(id_value(entry, column, location) for entry in entries)


def shared_values(value: object, column: str, location: str) -> tuple[str, ...]:
    """The values of ``measure.cluster`` of a query: one or a list of them, numbers by value; empty ones and
    NaN are none.
    """
    entries = value if isinstance(value, list | tuple) else [value]
    if any(isinstance(entry, list | tuple | Mapping) for entry in entries):
        raise RowError(
            f'{location}: "{column}" must be a text, a number, true or false, or '
            f"a list of these, got {value_kind(value)}"
        )
    # Only NaN differs from itself.
    plain = [plain_value(entry) for entry in entries if entry == entry]
    return tuple(dict.fromkeys(filter(None, plain)))


def plain_value(value: object) -> str:
    """A value as settings write it, for comparing labels and filters; None is ""."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)
