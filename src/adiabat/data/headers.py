"""The first line of CSV and TSV, which must name the columns: a first row that is taken for them is lost without a word."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from adiabat.data.column_names import COLUMN_ALIASES
from adiabat.data.numerals import number_of, shown
from adiabat.errors import DataError
from adiabat.excerpts import cut

_KNOWN = frozenset(chain.from_iterable(COLUMN_ALIASES.values()))
_LONGEST_NAME = 80
_MOST_WORDS = 6
_SEPARATORS = {
    "csv": ("commas", {";": "semicolons", "\t": "tabs", "|": "bars"}),
    "tsv": ("tabs", {",": "commas", ";": "semicolons", "|": "bars"}),
}


@dataclass(frozen=True, slots=True)
class Header:
    """Names of the columns of a file.

    Attributes:
        columns: In their order; "" is an index that pandas wrote, and is not read.
        place: ``path:line``.
    """

    columns: tuple[str, ...]
    place: str

    def values(self, cells: Sequence[str]) -> Mapping[str, str | None]:
        """The values of a row.

        Returns:
            Column to its cell; None where it is empty.
        """
        return {name: cell or None for name, cell in zip(self.columns, cells, strict=True) if name}

    def described(self) -> str:
        """The names, for messages."""
        return _quoted(self.columns)


def header_of(cells: Sequence[str], place: str, *, form: str, expected: Sequence[str] | None = None) -> Header:
    """Take a line for the header.

    Args:
        expected: What it must be; None takes any names.
    """
    names = tuple(cell.strip() for cell in cells)
    if expected is not None and names != tuple(expected):
        raise DataError(f"{place} must be the header {' '.join(expected)} (by tabs), got {cut(' '.join(names), limit=120)}; add it")
    commas, others = _SEPARATORS[form]
    if len(names) == 1 and (other := next((sign for sign in others if sign in names[0]), None)):
        raise DataError(
            f"{place} must separate its columns by {commas}, got {others[other]} in {_quoted(names)}; write the file with {commas}"
        )
    if "" in names[1:] or names == ("",) or len(set(names)) < len(names):
        raise DataError(f"{place} must name every column once, got {_quoted(names)}; correct the header")
    rows = [name for name in names if _is_value(name)]
    # pandas numbers the columns that have no name; and beside names that are known, a number is the name of a column too.
    if rows and _KNOWN.isdisjoint(names) and names != tuple(map(str, range(len(names)))):
        raise DataError(
            f"{place} must be a header of column names, got {_quoted(names)}, where {shown(rows[0])} is no name; "
            "put a header before the first row"
        )
    if names[0] == "":
        warnings.warn(f"{place}: the first column has no name, as where pandas wrote its index, and is not read", stacklevel=2)
    return Header(names, place)


def _is_value(name: str) -> bool:
    """Whether a cell is rather a number or a sentence than the name of a column."""
    return number_of(name) is not None or len(name) > _LONGEST_NAME or len(name.split()) > _MOST_WORDS


def _quoted(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(map(shown, names[:10])) + more
