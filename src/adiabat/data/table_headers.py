"""Column names: the header of CSV and TSV, and the names that data sets in the field use."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
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


def header_of(cells: Sequence[str], location: str, *, form: str, expected: Sequence[str] | None = None) -> tuple[str, ...]:
    """Read a line as the header; `expected` are its names, None allows any. The name "" is an index of pandas, and is not read."""
    names = tuple(cell.strip() for cell in cells)
    if expected is not None and names != tuple(expected):
        raise DataError(f"{location} must be the header {' '.join(expected)} (by tabs), got {cut(' '.join(names), limit=120)}; add it")
    separator, others = _SEPARATORS[form]
    got = f"got {shown_names(names)}"
    if len(names) == 1 and (other := next((sign for sign in others if sign in names[0]), None)):
        got = f"got {others[other]} in {shown_names(names)}"
        raise DataError(f"{location} must separate its columns by {separator}, {got}; write the file with {separator}")
    if "" in names[1:] or names == ("",) or len(set(names)) < len(names):
        raise DataError(f"{location} must name every column once, {got}; correct the header")
    # A number or a sentence is the name of a column where pandas numbered them, or where it stands beside known names.
    values = [name for name in names if number_of(name) is not None or len(name) > _LONGEST_NAME or len(name.split()) > _MAX_WORDS]
    if values and _KNOWN.isdisjoint(names) and names != tuple(map(str, range(len(names)))):
        advice = "put a header before the first row"
        raise DataError(f"{location} must be a header of column names, {got}, where {shown(values[0])} is no name; {advice}")
    if names[0] == "":
        warnings.warn(f"{location}: the first column has no name, as where pandas wrote its index, and is not read", stacklevel=2)
    return names


def shown_names(names: Sequence[str]) -> str:
    """The first names of a header, for messages."""
    more = f" and {len(names) - 10:,} more" if len(names) > 10 else ""
    return ", ".join(map(shown, names[:10])) + more
