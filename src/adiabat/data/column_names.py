"""What columns of data files are called: our names, those of the field, and which belong to what kind of row."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal

Layout = Literal["grid", "examples", "corpus"]
"""What a row is: a sentence pair in several languages, a query with its documents, or one document."""

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
"""Our name of a column to the names it may have in a file. Our own name wins; two others at once are an error that asks."""

_MORE = re.compile(r"(?:(positives?|pos)_?|(?:hard_)?(?:negatives?|neg)_?)(\d+)|hard_(?:negatives?|neg)")
"""Further columns of positives and negatives: ``positive_2``, ``negative1``, ``hard_negatives`` ..."""

OF_DOCUMENTS = frozenset(("doc_id", "text", "title"))
"""Our names of the columns of a corpus, which files of examples with a corpus of its own have not."""

OF_LAYOUT: Mapping[Layout, frozenset[str]] = {
    "grid": frozenset({"premise", "hypothesis", "label"}),
    "examples": frozenset({"query_id", "query", "positive", "negative", "label", "topic", "tag"}),
    "corpus": frozenset({"doc_id", "text", "title"}),
}
REQUIRED: Mapping[Layout, tuple[str, ...]] = {
    "grid": ("premise", "hypothesis"),
    "examples": ("query", "positive"),
    "corpus": ("doc_id", "text"),
}
MEANING: Mapping[Layout, str] = {"grid": "a sentence pair", "examples": "an example", "corpus": "a document"}


def more_columns(name: str, columns: Iterable[str]) -> list[str]:
    """Further columns of positives or negatives."""
    found = [(known[1], key) for key in columns if (known := _numbered(key)) and known[0] == name]
    return [key for _, key in sorted(found)]


@lru_cache(maxsize=1024)
def _numbered(column: str) -> tuple[str, int] | None:
    match = _MORE.fullmatch(column)
    return match and ("positive" if match[1] else "negative", int(match[2] or 0))
