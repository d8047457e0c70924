"""Tables for other programs, spreadsheets among them: names stay text whatever they begin with, numbers keep all their digits."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from adiabat.report.format import cut_name

LENGTH = 1000
"""Characters of a text that a cell holds."""

# What a spreadsheet takes for the start of a formula.
_FORMULA = re.compile(r"^[=+\-@\t\r\n|%]")


def csv_of(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(value) for value in row] for row in rows)
    return file.getvalue()


def cell(value: object) -> str:
    """A value as its cell holds it.

    Args:
        value: A text, a number, true or false, or None.

    Returns:
        ``yes`` or ``no`` for a truth value, nothing for None, and behind an apostrophe a text that a spreadsheet would compute.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        shown = cut_name(value, limit=LENGTH)
        return f"'{shown}" if _FORMULA.match(shown) else shown
    return repr(value)
