"""Documents to embed: corpora proper, and the documents inside example files and language grids."""

import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from adiabat.core.errors import ConfigError, Faults
from adiabat.data.columns import Columns, RowError, first_row, id_value, parsed_rows, text_value, value_kind
from adiabat.data.examples import compressed_path, parse_example
from adiabat.data.language_grids import parse_grid_row
from adiabat.data.records import Document, Example, grid_id, text_id
from adiabat.data.table_formats import HUB_PREFIX
from adiabat.data.table_headers import Layout
from adiabat.data.table_rows import FileFaults, Row, read_rows

BEIR_COLUMNS: Mapping[str, str] = {"doc_id": "_id", "text": "text"}
"""Columns of ``corpus.jsonl``."""

Blank = Literal["error", "drop"]
"""Treatment of documents that have neither title nor text."""

LocatedDocument = tuple[Document, str]
"""A document and its ``file:line``."""


def read_corpus(
    source: str | Path, *, columns: Mapping[str, str] | None = None, split: str | None = None, blank: Blank = "error"
) -> Iterator[Document]:
    """Iterate over the documents of a source, in order.

    Reads a BEIR folder (``corpus.jsonl``, plain or compressed), rows with an id, a text and perhaps a title (the text is then
    ``title + " " + text``, stripped, as BEIR's dense retrievers have it), example files (the unique texts of their positives and
    negatives, in order of first appearance, addressed by `text_id`), and language grids (their hypotheses, addressed by `grid_id`).
    Rows with an id and a text are documents even where they have a question and an answer too; map those two with `columns` to have
    them read as examples.

    The source and its first row are checked at the call. Memory grows by about ten bytes per document (an example file: about 100 per
    unique text), to find repeated ids.
    """
    return _Corpus(source, columns, split, blank).documents()


def training_texts(source: str | Path) -> Iterator[Document]:
    """Documents whose text alone counts: all of examples, none of which is blank, and those with a text of a corpus."""
    try:
        return read_corpus(source, blank="drop")
    except ConfigError:
        return read_corpus(source)


class _Corpus:
    """A source whose layout is known."""

    def __init__(self, source: str | Path, mapping: Mapping[str, str] | None, split: str | None, blank: Blank) -> None:
        self.source = documents_file(source)
        self.split = split
        self.drops_blank = blank == "drop"
        in_folder = self.source != source
        if in_folder and split is not None:
            raise ConfigError(f'split must be left out for the corpus of the BEIR folder {source}, got "{split}"; leave it out')
        self.columns = Columns(BEIR_COLUMNS if in_folder and not mapping else mapping)
        faults = FileFaults()
        first, _ = first_row(read_rows(self.source, split=split, faults=faults), faults, source)
        self.layout: Layout = self.columns.layout(first, wanted=("grid", "examples", "corpus"))
        if self.drops_blank and self.layout != "corpus":
            kind = "examples" if self.layout == "examples" else "a language grid"
            raise ConfigError(f'blank must be "error" for {source}, which holds {kind}, got "drop"; leave it out, and mend blank texts')

    def documents(self) -> Iterator[Document]:
        faults, blanks, hashes = FileFaults(), Faults(shown=3), array("q")
        if self.layout == "examples":
            yield from self._example_texts(faults)
        else:
            for document, location in self._located(faults):
                hashes.append(hash(document.doc_id))
                if document.text:
                    yield document
                else:
                    blanks.add(f'"{document.doc_id}" ({location})')
            self._note_repeated_ids(hashes, faults)
        faults.raise_if_any()
        self.columns.remarks.warn(self.source)
        if blanks.count:
            listed = blanks.told(f"of {len(hashes):,} documents")
            warnings.warn(f"{self.source}: blank documents, with neither title nor text, are left out: {listed}", stacklevel=2)

    def _rows(self, faults: FileFaults) -> Iterator[Row]:
        return read_rows(self.source, split=self.split, faults=faults)

    def _located(self, faults: FileFaults) -> Iterator[LocatedDocument]:
        if self.layout == "corpus":
            parse = partial(parse_document, columns=self.columns, keep_blank=self.drops_blank)
            yield from parsed_rows(self._rows(faults), faults, parse)
            return
        pairs = parsed_rows(self._rows(faults), faults, partial(parse_grid_row, columns=self.columns))
        for number, pair in enumerate(pairs):
            for language, text in pair.hypothesis.items():
                yield Document(grid_id(number, language), text), pair.location

    def _example_texts(self, faults: FileFaults) -> Iterator[Document]:
        digests: set[bytes] = set()
        for example in with_id_warning(self._examples(faults), self.source):
            for text in example.positives + example.negatives:
                doc_id = text_id(text)
                # The digest without its prefix, in bytes: a third of the memory of the id.
                digest = bytes.fromhex(doc_id.removeprefix("text:"))
                if digest not in digests:
                    digests.add(digest)
                    yield Document(doc_id, text)

    def _examples(self, faults: FileFaults) -> Iterator[Example]:
        yield from parsed_rows(self._rows(faults), faults, partial(parse_example, columns=self.columns))
        # A file with faults gets no other warnings.
        faults.raise_if_any()

    def _note_repeated_ids(self, hashes: "array[int]", faults: FileFaults) -> None:
        """Compare hashes, and only where some repeat read the source again, to tell equal ids from collisions."""
        suspects = _repeated(hashes)
        if not suspects:
            return
        locations: dict[str, str] = {}
        for document, location in self._located(FileFaults()):
            if hash(document.doc_id) in suspects:
                first = locations.setdefault(document.doc_id, location)
                if first != location:
                    faults.add(f'{location}: document id must be unique, got "{document.doc_id}" again, first at {first}')


def with_id_warning(examples: Iterable[Example], source: str | Path) -> Iterator[Example]:
    """Examples whose documents are read as texts, with a warning at their end where all of them look like ids."""
    look_like_ids = None
    for example in examples:
        if look_like_ids is not False and example.positives:
            look_like_ids = all(map(_looks_like_id, example.positives))
        yield example
    if look_like_ids:
        reason = "every positive is one word with a digit, and is taken for a text; if they are ids, name the corpus that holds their texts"
        warnings.warn(f"{source}: {reason}", stacklevel=2)


def _looks_like_id(text: str) -> bool:
    return text.isascii() and any(map(str.isdigit, text)) and len(text.split(maxsplit=1)) == 1


def documents_file(source: str | Path) -> str | Path:
    """The file with the documents of a source: ``corpus.jsonl`` of a BEIR folder, or the source itself."""
    if str(source).startswith(HUB_PREFIX):
        return source
    return compressed_path(Path(source) / "corpus.jsonl") or source


def _repeated(hashes: "array[int]") -> set[int]:
    values = np.frombuffer(hashes, dtype=np.int64) if hashes else np.empty(0, dtype=np.int64)
    values.sort()  # In place: their order is not needed any more, and a copy would double the memory.
    return set(values[1:][values[1:] == values[:-1]].tolist())


def parse_document(number: int, row: Row, *, columns: Columns, keep_blank: bool) -> LocatedDocument:
    """One row of a corpus; `keep_blank` keeps blank documents, with the text "", so that repeated ids are found."""
    del number
    id_column = columns.require("doc_id", row, "corpus")
    text_column = columns.require("text", row, "corpus")
    title_column = columns.find("title", row)
    columns.note_unread(row, "corpus")
    doc_id = id_value(row.values[id_column], id_column, row.location)
    text = _title_and_text(row, title_column, text_column)
    if not text and not keep_blank:
        raise RowError(f'{row.location}: "{text_column}" must not be empty', advice="fill in blank documents, or set data.blank = drop")
    return Document(doc_id, text), row.location


def _title_and_text(row: Row, title_column: str | None, text_column: str) -> str:
    """Title and text, either of which may be empty: some BEIR corpora hold titles alone."""
    title = row.values[title_column] if title_column is not None else None
    text = row.values[text_column]
    for value, column in ((title, title_column), (text, text_column)):
        if not isinstance(value, str | None):
            raise RowError(f'{row.location}: "{column}" must be a text, got {value_kind(value)}')
    joined = f"{title or ''} {text or ''}".strip()
    return text_value(joined, text_column, row.location) if joined else ""
