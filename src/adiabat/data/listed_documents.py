"""The documents that a row of examples lists: those that answer its query, and those that do not."""

import ast
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from adiabat.core.errors import DataError
from adiabat.core.text import shown
from adiabat.data.columns import Columns, RowError, entries_value
from adiabat.data.records import Example
from adiabat.data.row_filters import plain_value
from adiabat.data.table_rows import Row

_ANSWERS = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
_LABELS = (
    "write 1 where the document answers the query and 0 where it does not, or set data.columns.label = '' to take every row for an answer"
)
_LISTS = "write JSON lists, or JSON lines in place of CSV"


def listed_documents(row: Row, columns: Columns) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Answers and others of a row.

    Returns:
        Positives and negatives; what a label of 0 is given to is a negative, so that a row may be without positives.
    """
    positive_columns, negative_columns, column = columns.document_columns(row)
    positives, negatives = _entries(positive_columns, row, columns), _entries(negative_columns, row, columns)
    if not positives:
        names = " and ".join(f'"{name}"' for name in positive_columns)
        raise RowError(f"{row.location}: {names} must name at least one document, got none")
    if column is None:
        return positives, negatives
    columns.labelled = True
    answers = _answers(row.values[column], column, row.location, len(positives))
    if not all(answers):
        columns.remarks.add_label(column)
    split = [tuple(entry for entry, answer in zip(positives, answers, strict=True) if answer is wanted) for wanted in (True, False)]
    return split[0], (*split[1], *negatives)


def merged_by_query(rows: Sequence[Example], source: str | Path) -> list[Example]:
    """Rows that ask the same as one example: labelled files have a row for each document."""
    rows_of: dict[str, list[Example]] = {}
    for row in rows:
        rows_of.setdefault(row.query, []).append(row)
    examples = [example for each in rows_of.values() if (example := _merged(each)).positives]
    if rows and not examples:
        raise DataError(f"{source} must have a row with label 1, got label 0 in all {len(rows):,}; check what the labels mean")
    if lost := len(rows_of) - len(examples):
        warnings.warn(f"{source}: {lost:,} of {len(rows_of):,} queries have no row with label 1 and are left out", stacklevel=3)
    return examples


def _merged(rows: Sequence[Example]) -> Example:
    positives = tuple(dict.fromkeys(entry for row in rows for entry in row.positives))
    listed, known = dict.fromkeys(entry for row in rows for entry in row.negatives), set(positives)
    negatives = tuple(entry for entry in listed if entry not in known)
    return replace(rows[0], positives=positives, negatives=negatives, grades=(1,) * len(positives))


def _entries(names: list[str], row: Row, columns: Columns) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    for name in names:
        value = row.values[name]
        if isinstance(value, str) and (value[:2] in ("['", '["', "[]") or (value[:1] == "[" and value[1:2].isdigit())):
            value = _listed(value, name, row, columns)
        found += entries_value(value, name, row.location)
    return found


def _listed(text: str, column: str, row: Row, columns: Columns) -> object:
    """A text that may be a list: a cell of CSV cannot hold one otherwise, while other formats could have said so."""
    listed = list_in(text)
    if listed is None and not (text[1:2] in ("'", '"') and text[-2:] in ("']", '"]')):
        return text
    if not row.header:
        columns.remarks.add_list(column, row.location, read=False)
        return text
    if listed is None:
        raise RowError(f'{row.location}: "{column}" must be a text or a list, got what looks like one: {shown(text)}', advice=_LISTS)
    columns.remarks.add_list(column, row.location, read=True)
    return listed


def list_in(text: str) -> list[str | int] | None:
    """The list that a text spells, as JSON or as Python's ``str`` writes it.

    Returns:
        Texts or whole numbers; None where it is no such list, or might be misread: Python joins the strings of numpy's ``['a' 'b']``.
    """
    for parse in (json.loads, ast.literal_eval):
        try:
            listed = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        same = parse is json.loads or str(listed) == text
        if same and isinstance(listed, list) and all(type(entry) in (str, int) for entry in listed):
            return listed
    return None


def _answers(value: object, column: str, location: str, count: int) -> list[bool]:
    """Whether each document of a row answers; one label counts for all of them."""
    labels = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(labels) != count:
        raise RowError(f'{location}: "{column}" must hold a label for each of {count} documents, got {len(labels)}', advice=_LABELS)
    answers = [_ANSWERS.get(plain_value(label).strip().lower()) for label in labels]
    if None in answers:
        label = labels[answers.index(None)]
        got = "none" if label is None else shown(label)
        raise RowError(f'{location}: "{column}" must be 0 or 1, whether the document answers the query, got {got}', advice=_LABELS)
    return [bool(answer) for answer in answers]
