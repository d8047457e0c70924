"""Column names: the header of CSV and TSV, and the names that data sets in the field use."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal

from adiabat.core.errors import DataError
from adiabat.core.text import cut, number_of, shown

Layout = Literal["grid", "examples", "corpus"]
"""Kind of a row: a sentence pair in several languages, a query with its documents, or a document."""

COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "doc_id": ("doc_id", "_id", "id", "docid", "pid"),
    "text": ("text", "passage", "contents", "content", "body", "abstract"),
    "title": ("title",),
    "query_id": ("query_id", "query-id", "qid", "_id", "id"),
    "query": ("query", "anchor", "question", "q", "query_text"),
    "positive": ("positive", "pos", "positives", "passage", "positive_document_ids", "answer"),
    "negative": ("negative", "neg", "negatives", "negative_document_ids"),
    "topic": ("topic",),
    "tag": ("tag",),
    "premise": ("premise",),
    "hypothesis": ("hypothesis",),
    "label": ("label", "labels", "score", "relevance", "is_relevant"),
}
"""Our name of a column to its names in files. Our own name wins; two others at once are an error that asks."""

_NUMBERED = re.compile(r"(?:(positives?|pos)_?|(?:hard_)?(?:negatives?|neg)_?)(\d+)|hard_(?:negatives?|neg)")
"""Further columns of positives and negatives: ``positive_2``, ``negative1``, ``hard_negatives`` ..."""

OF_LAYOUT: Mapping[Layout, frozenset[str]] = {
    "grid": frozenset({"premise", "hypothesis", "label"}),
    "examples": frozenset({"query_id", "query", "positive", "negative", "label", "topic", "tag"}),
    "corpus": frozenset({"doc_id", "text", "title"}),
}
"""Our names of the columns of each kind of row."""
OF_DOCUMENTS = OF_LAYOUT["corpus"]

REQUIRED: Mapping[Layout, tuple[str, ...]] = {
    "grid": ("premise", "hypothesis"),
    "examples": ("query", "positive"),
    "corpus": ("doc_id", "text"),
}
MEANING: Mapping[Layout, str] = {"grid": "a sentence pair", "examples": "an example", "corpus": "a document"}

_KNOWN = frozenset(chain.from_iterable(COLUMN_ALIASES.values()))
_LONGEST_NAME = 80
_MAX_WORDS = 6
_SEPARATORS = {
    "csv": ("commas", {";": "semicolons", "\t": "tabs", "|": "bars"}),
    "tsv": ("tabs", {",": "commas", ";": "semicolons", "|": "bars"}),
}


def more_columns(name: str, columns: Iterable[str]) -> list[str]:
    """Further columns of positives or negatives, by number."""
    numbered = [(match[1], column) for column in columns if (match := _numbered(column)) and match[0] == name]
    return [column for _, column in sorted(numbered)]


@lru_cache(maxsize=1024)
def _numbered(column: str) -> tuple[str, int] | None:
    match = _NUMBERED.fullmatch(column)
    return match and ("positive" if match[1] else "negative", int(match[2] or 0))


@dataclass(frozen=True, slots=True)
class Header:
    """Columns of a file, in their order, and the location of the header; "" is an index of pandas, and is not read."""

    columns: tuple[str, ...]
    location: str

    def values(self, cells: Sequence[str]) -> Mapping[str, str | None]:
        """Values of a row by column; an empty cell is None."""
        return {name: cell or None for name, cell in zip(self.columns, cells, strict=True) if name}

    def described(self) -> str:
        """The names, for messages."""
        return _shown_names(self.columns)


def header_of(cells: Sequence[str], location: str, *, form: str, expected: Sequence[str] | None = None) -> Header:
    """Read a line as the header; `expected` are its names, None allows any."""
    names = tuple(cell.strip() for cell in cells)
    if expected is not None and names != tuple(expected):
        raise DataError(f"{location} must be the header {' '.join(expected)} (by tabs), got {cut(' '.join(names), limit=120)}; add it")
    separator, others = _SEPARATORS[form]
    if len(names) == 1 and (other := next((sign for sign in others if sign in names[0]), None)):
        raise DataError(
            f"{location} must separate its columns by {separator}, got {others[other]} in {_shown_names(names)}; "
            f"write the file with {separator}"
        )
    if "" in names[1:] or names == ("",) or len(set(names)) < len(names):
        raise DataError(f"{location} must name every column once, got {_shown_names(names)}; correct the header")
    values = [name for name in names if _is_value(name)]
    # pandas numbers columns without a name; beside known names, a number is a name too.
    if values and _KNOWN.isdisjoint(names) and names != tuple(map(str, range(len(names)))):
        raise DataError(
            f"{location} must be a header of column names, got {_shown_names(names)}, where {shown(values[0])} is no name; "
            "put a header before the first row"
        )
    if names[0] == "":
        warnings.warn(f"{location}: the first column has no name, as where pandas wrote its index, and is not read", stacklevel=2)
    return Header(names, location)


def _is_value(name: str) -> bool:
    """Whether a cell is a number or a sentence rather than the name of a column."""
    return number_of(name) is not None or len(name) > _LONGEST_NAME or len(name.split()) > _MAX_WORDS


def _shown_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(map(shown, names[:10])) + more
