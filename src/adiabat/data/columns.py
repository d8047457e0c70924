"""Which column of a row holds what, and what a value must be.

Files of the field name the same thing differently; `column_names` lists what is understood, and a mapping from our name to the
file's overrides it. Everything here looks at one row.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.skipped_rows import Remarks
from adiabat.data.table_headers import COLUMN_ALIASES, MEANING, OF_LAYOUT, REQUIRED, Layout, more_columns
from adiabat.data.table_rows import FileFaults, Row

Parsed = TypeVar("Parsed")

_MOST_SEEN = 1_000
"""Names of columns that are remembered."""


class RowError(Exception):
    """One row cannot be used; the message is a phrase with its file and line."""

    def __init__(self, phrase: str, *, advice: str = "") -> None:
        super().__init__(phrase)
        self.advice = advice


class Columns:
    """Finds the columns of a row."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """Take the mapping and check our side of it."""
        self.mapping: Mapping[str, str] = dict(given or {})
        self.remarks = Remarks()
        """On the rows that were parsed with these columns."""
        self.labelled = False
        """Whether a label was read in one of them."""
        self._seen: set[str] = set()
        self._listed: dict[tuple[str, ...], tuple[list[str], list[str], str | None]] = {}
        for name in self.mapping:
            if name not in COLUMN_ALIASES:
                raise ConfigError(f"unknown key data.columns.{name}; {_near_name(name)}")
        self.layouts: tuple[Layout, ...] = tuple(layout for layout, names in OF_LAYOUT.items() if names.issuperset(self.mapping))
        if not self.layouts:
            raise ConfigError(
                f"columns must map names of one kind of row, got {', '.join(self.mapping)}; a row is a document (doc_id, text, title), "
                "an example (query_id, query, positive, negative, label, topic, tag) or a sentence pair (premise, hypothesis, label)"
            )

    def find(self, name: str, row: Row) -> str | None:
        """The file's name of our column `name`.

        Returns:
            A key of the row's values, or None where the row has no such column.
        """
        if name in self.mapping:
            return self.mapping[name] if self.mapping[name] in row.values else None
        if name in row.values:
            return name
        present = [alias for alias in COLUMN_ALIASES[name] if alias in row.values]
        if len(present) > 1:
            raise DataError(
                f"{row.location}: expected one column for {name}, found {_quoted(present)}; "
                f'choose with data.columns.{name} = "{present[0]}" or "{present[1]}"'
            )
        if name == "positive" and not present:
            present = more_columns(name, row.values)
        return present[0] if present else None

    def require(self, name: str, row: Row, layout: Layout) -> str:
        """As `find`, for a column that must be there."""
        column = self.find(name, row)
        if column is None:
            raise RowError(self.missing(name, row, layout))
        return column

    def find_all(self, name: str, row: Row) -> list[str]:
        """The file's columns of positives or negatives: the one of `find`, then ``negative_1``, ``negative_2`` ... by number."""
        if name in self.mapping or name == "positive":
            first = self.require(name, row, "examples")
            if name in self.mapping:
                return [first]
        else:
            first = self.find(name, row) or ""
        return list(dict.fromkeys([*([first] if first else []), *more_columns(name, row.values)]))

    def _label(self, row: Row) -> str | None:
        """The column that says whether the documents of an example answer: beside negatives, only one that `given` names."""
        if "label" in self.mapping:
            return self.require("label", row, "examples") if self.mapping["label"] else None
        # Beside negatives, a score is that of a teacher.
        return None if self.find_all("negative", row) else self.find("label", row)

    def document_columns(self, row: Row) -> tuple[list[str], list[str], str | None]:
        """The columns of a row that list documents, found once for all rows with the same names."""
        names = tuple(row.values)
        columns = self._listed.get(names)
        if columns is None:
            columns = self.find_all("positive", row), self.find_all("negative", row), self._label(row)
            if len(self._listed) < _MOST_SEEN:
                self._listed[names] = columns
        return columns

    def note_unread(self, row: Row, layout: Layout) -> None:
        """Note the columns of a row that are not read, for `remarks`."""
        if self._seen.issuperset(row.values):
            return
        columns = {name: self._columns_of(name, row, layout) for name in OF_LAYOUT[layout]}
        unknown = [alias for name, there in columns.items() if not there for alias in COLUMN_ALIASES[name]]
        self.remarks.add_unread(row, frozenset(chain.from_iterable(columns.values())), unknown)
        if len(self._seen) < _MOST_SEEN:
            self._seen.update(row.values)

    def _columns_of(self, name: str, row: Row, layout: Layout) -> list[str]:
        """All of a row's columns that are read as one of ours."""
        if name in ("positive", "negative"):
            return self.find_all(name, row)
        column = self._label(row) if name == "label" and layout == "examples" else self.find(name, row)
        return [] if column is None else [column]

    def layout(self, row: Row, *, wanted: Sequence[Layout]) -> Layout:
        """What the row is, judged by its columns.

        Where a row is both, an example by its query and positives and a document by its id and a text besides, it is a document.
        """
        possible = [layout for layout in self.layouts if layout in wanted]
        if not possible:
            names = " or ".join(", ".join(REQUIRED[layout]) for layout in wanted)
            raise ConfigError(f"columns must map {names} here, got {', '.join(self.mapping)}; leave these out")
        for name, column in self.mapping.items():
            if column not in row.values and (name, column) != ("label", ""):
                raise DataError(self.missing(name, row, possible[0]))
        if {"examples", "corpus"}.issubset(possible) and _has_text_of_its_own(row):
            possible.remove("examples")
        for layout in possible:
            if self._is(layout, row):
                return layout
        raise DataError(self._misfit(row, possible))

    def missing(self, name: str, row: Row, layout: Layout) -> str:
        """The phrase for a column that is not there."""
        found = f"found {_quoted(row.values) or 'no columns'}"
        if name in self.mapping:
            return f'{_location(row)}: expected "{self.mapping[name]}" (data.columns.{name}), {found}; name a column that is there'
        known = {self.find(other, row) for other in OF_LAYOUT[layout]}
        known.update(more_columns("negative", row.values) if layout == "examples" else ())
        spare = [key for key in row.values if key not in known]
        advice = f'map it with data.columns.{name} = "{spare[0]}"' if len(spare) == 1 else f"say which it is with data.columns.{name}"
        # A column that is there under another name is asked for by that name.
        wanted = [self.find(other, row) or other for other in REQUIRED[layout]]
        return f"{_location(row)}: expected {_quoted(wanted)}, {found}; {advice}"

    def _misfit(self, row: Row, possible: Sequence[Layout]) -> str:
        """The phrase for a row of no layout; it speaks of the layout of which the row has most."""
        present = {layout: sum(self.find(name, row) is not None for name in REQUIRED[layout]) for layout in possible}
        if not any(present.values()) and len(possible) > 1:
            wanted = ", or ".join(f"{_quoted(REQUIRED[layout])} ({MEANING[layout]})" for layout in reversed(possible))
            advice = "map them with data.columns.NAME" + (
                ", or put a header before the first row if these are values" if row.header else ""
            )
            return f"{_location(row)}: expected {wanted}, found {_quoted(row.values) or 'no columns'}; {advice}"
        closest = max(reversed(possible), key=present.__getitem__)
        missing = next((name for name in REQUIRED[closest] if self.find(name, row) is None), None)
        if missing is None:
            return f"{row.location}: expected premise and hypothesis by language, found one text each; give objects by language"
        return self.missing(missing, row, closest)

    def _is(self, layout: Layout, row: Row) -> bool:
        columns = []
        for name in REQUIRED[layout]:
            column = self.find(name, row)
            if column is None:
                return False
            columns.append(column)
        return layout != "grid" or all(isinstance(row.values[column], Mapping) for column in columns)


def _location(row: Row) -> str:
    """Where the columns of a row are named."""
    return row.header or row.location


def _has_text_of_its_own(row: Row) -> bool:
    """Whether a row has an id and a text that cannot be the positive of an example (a ``passage`` can)."""
    texts = set(COLUMN_ALIASES["text"]).difference(COLUMN_ALIASES["positive"])
    return not texts.isdisjoint(row.values) and not set(COLUMN_ALIASES["doc_id"]).isdisjoint(row.values)


def parsed_rows(rows: Iterable[Row], faults: FileFaults, parse: Callable[[int, Row], Parsed]) -> Iterator[Parsed]:
    """Parse each row; a row that cannot be used is noted and left out."""
    for number, row in enumerate(rows):
        try:
            yield parse(number, row)
        except RowError as fault:
            faults.add(str(fault))
            faults.advise(fault.advice)


def first_row(rows: Iterator[Row], faults: FileFaults, source: object) -> tuple[Row, Iterator[Row]]:
    """The first sound row, and all rows, that one included."""
    first = next(rows, None)
    if first is None:
        faults.raise_if_any()
        raise DataError(f"{source} must hold at least one row, got none; check that it was written to its end")
    return first, chain([first], rows)


def text_value(value: object, column: str, location: str) -> str:
    """A text that a tokenizer can take."""
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RowError(f'{location}: "{column}" must not be empty')
    if not isinstance(value, str):
        raise RowError(f'{location}: "{column}" must be a text, got {value_kind(value)}')
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise RowError(f'{location}: "{column}" must be Unicode text, got half of a surrogate pair') from error
    return value


def id_value(value: object, column: str, location: str) -> str:
    """An id; a whole number is taken as its decimal text."""
    return text_value(str(value) if isinstance(value, int) and not isinstance(value, bool) else value, column, location)


def entries_value(value: object, column: str, location: str) -> tuple[str, ...]:
    """Document texts or ids: one, or a list of them.

    Args:
        value: What stands in the row; None is the empty list.
    """
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return tuple(id_value(entry, column, location) for entry in value)
    return (id_value(value, column, location),)


def value_kind(value: object) -> str:
    """What a value is, in the words of a data file."""
    if isinstance(value, bool):
        return "true or false"
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (str, "a string"),
        ((int, float), "a number"),
        ((list, tuple), "a list"),
        (Mapping, "an object"),
        (type(None), "null"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), type(value).__name__)


def _quoted(names: Iterable[str]) -> str:
    every = [f'"{name}"' for name in names]
    return " and ".join(every) if len(every) < 3 else f"{', '.join(every[:-1])} and {every[-1]}"


def _near_name(name: str) -> str:
    near = difflib.get_close_matches(name, COLUMN_ALIASES, n=1, cutoff=0.6)
    return f"did you mean data.columns.{near[0]}?" if near else f"the names are {', '.join(COLUMN_ALIASES)}"
