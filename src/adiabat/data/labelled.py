"""Labelled texts: pairs with a score or a label, single texts with a label, and parallel sentences.

Any table that `adiabat.data.table_rows.read_rows` reads is accepted. Tasks name the columns, and `where`
filters rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float

from adiabat.core.errors import ConfigError, DataError, several
from adiabat.core.text import cut, number_of, shown
from adiabat.data.columns import (
    Remarks,
    first_row,
    parsed_rows,
    plain_value,
    quoted,
    split_name,
    text_of,
    text_value,
)
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, read_rows, value_kind

Parsed = TypeVar("Parsed")

MIN_PAIRS = 3
"""Minimum number of pairs in a set: two pairs correlate by 1 or -1 for every model and every resample."""

_LISTED_VALUES = 10
_VALUE_CHARACTERS = 60
_NUMBER_ADVICE = "give every pair a number, or name the column of numbers with score"
_LABEL_ADVICE = "give every row a text or a number, or name another column"


@dataclass(frozen=True, slots=True)
class TextPairs:
    """Pairs of texts; `name` is that of the file and the rows read; `a` and `b` may be in two languages."""

    name: str
    a: Sequence[str]
    b: Sequence[str]

    def __len__(self) -> int:
        return len(self.a)


@dataclass(frozen=True, slots=True)
class ScoredPairs(TextPairs):
    """Pairs of texts with finite human similarity scores; each of the `sets`, or the only set "", has at
    least `MIN_PAIRS`.
    """

    scores: Float[np.ndarray, " n"]
    sets: Sequence[str]


@dataclass(frozen=True, slots=True)
class LabelledPairs(TextPairs):
    """Pairs of texts; some match, and some do not."""

    together: Bool[np.ndarray, " n"]


@dataclass(frozen=True, slots=True)
class LabelledTexts:
    """Texts with a label each, in file order; `name` is that of the file and the rows read."""

    name: str
    texts: Sequence[str]
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def distinct(self) -> list[str]:
        """The distinct labels, sorted."""
        return sorted(set(self.labels))


@dataclass(frozen=True, slots=True)
class ParallelTexts(TextPairs):
    """Sentences with their translations, at least two different ones on each side; `columns` names them, such
    as ``en`` and ``de``.
    """

    columns: tuple[str, str]


def read_scored_pairs(
    source: str | Path,
    *,
    a: str = "a",
    b: str = "b",
    score: str = "score",
    sets: str | None = None,
    split: str | None = None,
    where: Mapping[str, str] | None = None,
) -> ScoredPairs:
    """Read pairs of texts, or of words, with human similarity scores; `sets` is the column of their sets,
    None means one set.
    """
    cells: Cells = {"a": (a, text_of), "b": (b, text_of), "score": (score, _number)}
    if sets is not None:
        cells["set"] = sets, _label
    name, (texts_a, texts_b, scores, *set_names) = _columns(source, cells, split, where)
    set_of_each = set_names[0] if set_names else [""] * len(scores)
    pairs = ScoredPairs(name, texts_a, texts_b, np.array(scores), set_of_each)
    _require_rankable(pairs, source, score)
    return pairs


def read_labelled_pairs(
    source: str | Path,
    *,
    a: str = "a",
    b: str = "b",
    label: str = "label",
    positive: str = "1",
    split: str | None = None,
    where: Mapping[str, str] | None = None,
) -> LabelledPairs:
    """Read pairs of texts; those with the label `positive` match."""
    cells: Cells = {"a": (a, text_of), "b": (b, text_of), "label": (label, _label)}
    name, (texts_a, texts_b, labels) = _columns(source, cells, split, where)
    # Settings write labels as texts, whatever their type in the file.
    together = np.array([value == positive for value in labels])
    if together.all() or not together.any():
        raise DataError(
            f'{source} must have pairs whose "{label}" is "{positive}" and pairs where it is another, '
            f"got {value_counts(labels)}; set positive to the label of pairs that belong together"
        )
    return LabelledPairs(name, texts_a, texts_b, together)


def read_labelled_texts(
    source: str | Path,
    *,
    text: str = "text",
    label: str = "label",
    split: str | None = None,
    where: Mapping[str, str] | None = None,
) -> LabelledTexts:
    """Read texts with a label each."""
    cells: Cells = {"text": (text, text_of), "label": (label, _label)}
    name, (texts, labels) = _columns(source, cells, split, where)
    return LabelledTexts(name, texts, labels)


def read_parallel_texts(
    source: str | Path, *, a: str, b: str, split: str | None = None, where: Mapping[str, str] | None = None
) -> ParallelTexts:
    """Read sentences with their translations."""
    name, (texts_a, texts_b) = _columns(source, {"a": (a, text_of), "b": (b, text_of)}, split, where)
    constant = [column for column, texts in ((a, texts_a), (b, texts_b)) if len(set(texts)) < 2]
    if constant:
        raise DataError(
            f"{source} must have two different sentences in each column, got only one in "
            f"{quoted(constant)}; a translation needs another sentence that it could be confused with"
        )
    return ParallelTexts(name, texts_a, texts_b, (a, b))


def require_separable(training: LabelledTexts, test: LabelledTexts | None = None) -> None:
    """Check that there are labels to separate, before a model computes anything; `test` holds the texts to
    classify, if any.
    """
    known = training.distinct
    if len(known) < 2:
        raise DataError(
            f"{training.name} must have texts of at least two labels, got only "
            f"{quoted(known)}; name the column of labels"
        )
    if test is None:
        return
    unknown = [label for label in test.labels if label not in known]
    if unknown:
        raise DataError(
            f"{training.name} must have texts of every label of the test, got none for "
            f"{value_counts(unknown)}; leave those out of the test, or train on data that has them"
        )


def _require_rankable(pairs: ScoredPairs, source: str | Path, column: str) -> None:
    """Check that the scores of each set can be ranked; all sets at fault are told at once."""
    scores_of: dict[str, list[float]] = {}
    for name, score in zip(pairs.sets, pairs.scores.tolist(), strict=True):
        scores_of.setdefault(name, []).append(score)
    faults = []
    for name, scores in scores_of.items():
        different = len(set(scores))
        if len(scores) < MIN_PAIRS or different < 2:
            faults.append(f"{len(scores)} with {different} different scores in the set {shown(name)}")
    if faults:
        raise DataError(
            f'{source} must have at least {MIN_PAIRS} pairs with different scores in "{column}" in each set, '
            f"got {several(faults)}; add some, or leave these sets out: they have no rank correlation"
        )


def _label(row: Row, column: str) -> str:
    """A label as settings write it: a text, or a number in its shortest form."""
    value = row.values[column]
    if not isinstance(value, str | int | float | None):
        raise RowError(
            f'{row.location}: "{column}" must be a text or a number, got {value_kind(value)}',
            advice=_LABEL_ADVICE,
        )
    return text_value(plain_value(value), column, row.location)


def _number(row: Row, column: str) -> float:
    """A finite number; in CSV and TSV it is a text."""
    value = row.values[column]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        number = number_of(value)
        if number is not None:
            return number
    raise RowError(
        f'{row.location}: "{column}" must be a finite number, got {shown(value)}', advice=_NUMBER_ADVICE
    )


Cells = dict[str, tuple[str, Callable[[Row, str], Any]]]
"""The key of each value in the settings, the column that it is read from, and the reader of one value."""


def _columns(
    source: str | Path, cells: Cells, split: str | None, where: Mapping[str, str] | None
) -> tuple[str, list[list[Any]]]:
    """Name of the rows that pass a filter, and their values by column.

    Columns that the address names go before those of the settings.
    """
    addressed = Source.of(source).columns
    if others := [name for name in addressed if name not in cells]:
        raise ConfigError(
            f"{source} must not name {', '.join(others)} in its address: the task reads "
            f"{', '.join(cells)}, which its settings name"
        )
    columns = {key: addressed.get(key, column) for key, (column, _) in cells.items()}

    def parse(row: Row) -> list[Any]:
        return [read(row, columns[key]) for key, (_, read) in cells.items()]

    filters = where or {}
    # Values arrive row by row, and are returned column by column.
    rows = selected_rows(source, columns, parse, split=split, where=filters)
    name = "/".join([split_name(source, split), *filters.values()])
    return name, [list(values) for values in zip(*rows, strict=True)]


def selected_rows(
    source: str | Path,
    columns: Mapping[str, str],
    parse: Callable[[Row], Parsed],
    *,
    split: str | None,
    where: Mapping[str, str],
) -> list[Parsed]:
    """Parse the rows that pass the filter `where` and have all `columns`."""
    faults, remarks, used = FileFaults(), Remarks(), {*columns.values(), *where}
    first, rows = first_row(read_rows(source, split=split, faults=faults, mapped=True), faults, source)

    def passes(row: Row) -> bool:
        """Whether a row has the wanted value in every filtered column."""
        return all(plain_value(row.values.get(name)) == value for name, value in where.items())

    def parse_complete(row: Row) -> Parsed:
        """Parse a row that has all columns."""
        if missing := _missing(row, columns):
            raise RowError(missing)
        remarks.add_unread(row, used)
        return parse(row)

    selected = filter(passes, rows)
    first_selected = next(selected, None)
    if first_selected is None:
        faults.raise_if_any()
        raise DataError(_nothing_selected(source, first, where))
    # A name that no row has is told once, not of every row.
    if missing := _missing(first_selected, columns):
        raise DataError(missing)
    parsed = list(parsed_rows(chain([first_selected], selected), faults, parse_complete))
    faults.raise_if_any()
    remarks.warn(source)
    return parsed


def value_counts(values: Iterable[str]) -> str:
    """Values with their frequencies, for messages."""
    counts = Counter(values)
    listed = []
    for value, count in counts.most_common(_LISTED_VALUES):
        listed.append(f'"{cut(value, limit=_VALUE_CHARACTERS)}" ({count:,})')
    more = len(counts) - len(listed)
    return ", ".join(listed) + (f" and {more:,} more" if more else "")


def _missing(row: Row, columns: Mapping[str, str]) -> str:
    """A phrase for the missing columns of a row; "" if it has all."""
    missing = [f'"{column}" ({key})' for key, column in columns.items() if column not in row.values]
    if not missing:
        return ""
    got = quoted(row.values) or "none"
    return f"{row.location} must have the columns {', '.join(missing)}, got {got}; name others"


def _nothing_selected(source: str | Path, first: Row, where: Mapping[str, str]) -> str:
    """The phrase for a filter that matches no row, with the first row's values of its columns."""
    wanted = " and ".join(f'"{name}" is "{value}"' for name, value in where.items())
    columns = ", ".join(f'"{name}": {shown(value)}' for name, value in first.values.items())
    return f"{source} must have rows where {wanted}, got none; its first row is {cut(columns, limit=500)}"
