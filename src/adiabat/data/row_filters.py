"""Rows of a table that a task wants: those that its filter lets through, read by the columns that it names."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from adiabat.core.errors import DataError
from adiabat.core.text import cut
from adiabat.data.columns import RowError, first_row, parsed_rows
from adiabat.data.skipped_rows import Remarks
from adiabat.data.table_rows import FileFaults, Row, read_rows

Parsed = TypeVar("Parsed")

_LISTED = 10
"""Values that a message names."""
_LISTED_CHARACTERS = 60


def selected_rows(
    source: str | Path,
    columns: Mapping[str, str],
    parse: Callable[[Row], Parsed],
    *,
    split: str | None,
    where: Mapping[str, str],
) -> list[Parsed]:
    """Parse the rows that are wanted."""
    faults, remarks, read = FileFaults(), Remarks(), {*columns.values(), *where}
    _, every = first_row(read_rows(source, split=split, faults=faults), faults, source)
    wanted = (row for row in every if all(plain_value(row.values.get(name)) == value for name, value in where.items()))
    first = next(wanted, None)
    if first is None:
        faults.raise_if_any()
        raise DataError(_nothing_left(source, split, where))
    if missing := _missing(first, columns):
        raise DataError(missing)

    def parse_whole(number: int, row: Row) -> Parsed:
        del number
        if missing := _missing(row, columns):
            raise RowError(missing)
        remarks.add_unread(row, read)
        return parse(row)

    rows = list(parsed_rows(_with_first(first, wanted), faults, parse_whole))
    faults.raise_if_any()
    remarks.warn(source)
    return rows


def plain_value(value: object) -> str:
    """A value of a table as a text, as settings write it: labels and filters are compared by it.

    Args:
        value: A text, a number, true or false; None is "".
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def counted(values: Iterable[str]) -> str:
    """Values with their number, for messages."""
    counts = Counter(values).most_common()
    named = ", ".join(f'"{cut(value, limit=_LISTED_CHARACTERS)}" ({count:,})' for value, count in counts[:_LISTED])
    return named + (f" and {len(counts) - _LISTED:,} more" if len(counts) > _LISTED else "")


def quoted(names: Iterable[str]) -> str:
    """Names in quotes, for messages."""
    return ", ".join(f'"{name}"' for name in names)


def _with_first(first: Row, others: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from others


def _missing(row: Row, columns: Mapping[str, str]) -> str:
    """A phrase for the columns that a row lacks; "" where it has them all."""
    missing = {key: column for key, column in columns.items() if column not in row.values}
    if not missing:
        return ""
    asked = []
    for key, column in missing.items():
        near = difflib.get_close_matches(column, row.values, n=1, cutoff=0.6)
        asked.append(f'{key} (did you mean "{near[0]}"?)' if near else key)
    columns_are, ones = ("column", "one") if len(missing) == 1 else ("columns", "ones")
    told = f"{row.location} must have the {columns_are} {quoted(missing.values())}, got {quoted(row.values) or 'none'}"
    return f"{told}; name the right {ones} with {' and '.join(filter(None, [', '.join(asked[:-1]), asked[-1]]))}"


def _nothing_left(source: str | Path, split: str | None, where: Mapping[str, str]) -> str:
    """The phrase for a filter that no row passes: what it could have asked for."""
    there: dict[str, Counter[str]] = {name: Counter() for name in where}
    total, columns = 0, dict[str, None]()
    for row in read_rows(source, split=split, faults=FileFaults()):
        total += 1
        columns |= dict.fromkeys(row.values)
        for name in where.keys() & row.values.keys():
            there[name][plain_value(row.values[name])] += 1
    asked = " and ".join(f'"{name}" is "{value}"' for name, value in where.items())
    found = [f'"{name}" is {counted(values.elements())}' if values else _no_such(name, columns) for name, values in there.items()]
    return f"{source} must have rows where {asked}, got none of {total:,}; {'; '.join(found)}"


def _no_such(name: str, columns: Mapping[str, None]) -> str:
    near = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
    return f'there is no column "{name}", ' + (f'did you mean "{near[0]}"?' if near else f"the columns are {quoted(columns)}")
