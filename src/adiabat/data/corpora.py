"""Documents to embed: corpora proper, and the documents inside example files and language grids."""

import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from adiabat.core.errors import ConfigError, Faults
from adiabat.core.wording import in_callers_words
from adiabat.data.columns import Columns, Table, id_of, optional_text
from adiabat.data.examples import parse_example
from adiabat.data.judged_sets import corpus_part
from adiabat.data.judgements import BEIR_ID
from adiabat.data.language_grids import parse_grid_row
from adiabat.data.lines import Layout, parted_columns
from adiabat.data.records import Document, Example, grid_id, text_id
from adiabat.data.sources import Source
from adiabat.data.table_rows import FileFaults, Row, RowError, UniqueNames, read_rows

ANY: tuple[Layout, ...] = ("grid", "examples", "corpus")

Blank = Literal["error", "drop", "keep"]
"""Treatment of documents that have neither title nor text: refused, left out, or read with the text ""."""

LocatedDocument = tuple[Document, str]
"""A document and its ``file:line``."""


def read_corpus(
    source: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    split: str | None = None,
    blank: Blank = "error",
    whole: bool = True,
    usual: Mapping[str, str] | None = None,
) -> Iterator[Document]:
    """Iterate over the documents of a source, in order; `whole` reads all splits of it, with a note, where
    none is named.

    Reads the corpus of a judged data set (``corpus.jsonl`` of a BEIR folder), rows with an id, a text and
    perhaps a title (the text is then ``title + " " + text``, stripped, as BEIR's dense retrievers have it),
    example files (the unique texts of their positives and negatives, in order of first appearance, addressed
    by `text_id`), and language grids (their hypotheses, addressed by `grid_id`). Rows with an id and a text
    are documents even where they have a question and an answer too; map those two with `columns` to have them
    read as examples.

    The source and its first row are checked at the call. Memory grows by about ten bytes per document (an
    example file: about 100 per unique text), to find repeated ids.
    """
    table = open_corpus(source, columns, split, whole=whole, usual=usual)
    if blank != "error" and table.layout != "corpus":
        kind = "examples" if table.layout == "examples" else "a language grid"
        raise ConfigError(
            f'blank must be "error" for {source}, which holds {kind}, got "drop"; '
            "leave it out, and correct blank texts"
        )
    if table.layout == "examples":
        return _example_texts(table)
    return _documents(table, blank, whole=whole)


def training_texts(source: str | Path) -> Iterator[Document]:
    """Documents identified by their text: those of examples, none of which is blank, and the non-blank ones
    of a corpus.
    """
    try:
        return read_corpus(source, blank="drop", whole=False)
    except ConfigError:
        return read_corpus(source, whole=False)


def open_corpus(
    source: str | Path,
    mapping: Mapping[str, str] | None,
    split: str | None,
    *,
    wanted: Sequence[Layout] = ANY,
    whole: bool = False,
    usual: Mapping[str, str] | None = None,
) -> Table:
    """The table with the documents of a source; `usual` as in `Columns`."""
    table, mapped = documents_file(source), dict(mapping or {})
    if table != source:
        if split is not None:
            raise ConfigError(
                f'split must be left out for the corpus of the BEIR folder {source}, got "{split}"; '
                "leave it out"
            )
        # Columns that the address names may be those of its queries.
        mapped |= parted_columns(Source.of(source).columns)[1]
        usual = {**BEIR_ID, **(usual or {})}
    return Table.open(table, mapped, split=split, wanted=wanted, whole=whole, usual=usual)


def _documents(table: Table, blank: Blank, *, whole: bool) -> Iterator[Document]:
    """The documents of a corpus or a grid; repeated ids and blank documents are told after the last one."""
    keep_blank = blank != "error"
    blanks, hashes = Faults(shown=3), array("q")
    for document, location in _located(table, keep_blank=keep_blank):
        # Eight bytes an id, in place of the id.
        hashes.append(hash(document.doc_id))
        if not document.text:
            blanks.add(f'"{document.doc_id}" ({location})')
        if document.text or blank == "keep":
            yield document
    # Equal hashes may be collisions: if some repeat, read the source again for the ids themselves.
    if suspects := _repeated(hashes):
        ids = UniqueNames("document id", table.faults)
        rows = read_rows(table.source, split=table.split, faults=FileFaults(), whole=whole, mapped=True)
        again = replace(table, rows=rows, faults=FileFaults())
        for document, location in _located(again, keep_blank=keep_blank):
            if hash(document.doc_id) in suspects:
                ids.add(document.doc_id, location)
    table.finish()
    if blanks.count:
        listed = blanks.told(f"of {len(hashes):,} documents")
        warnings.warn(
            f"{in_callers_words(table.source)}: blank documents, with neither title nor text, are left out: "
            f"{listed}",
            stacklevel=2,
        )


def _located(table: Table, *, keep_blank: bool) -> Iterator[LocatedDocument]:
    """Each document with its ``file:line``; those of a grid are its hypotheses in every language."""
    if table.layout == "corpus":
        yield from table.parsed(partial(parse_document, keep_blank=keep_blank))
        return
    for number, pair in enumerate(table.parsed(parse_grid_row)):
        for language, text in pair.hypothesis.items():
            yield Document(grid_id(number, language), text), pair.location


def _example_texts(table: Table) -> Iterator[Document]:
    """The distinct texts of positives and negatives, in order of first appearance."""
    digests: set[bytes] = set()
    for example in with_id_warning(table.whole(parse_example), table.source):
        for text in example.positives + example.negatives:
            doc_id = text_id(text)
            # The digest without its prefix, in bytes: a third of the memory of the id.
            digest = bytes.fromhex(doc_id.removeprefix("text:"))
            if digest not in digests:
                digests.add(digest)
                yield Document(doc_id, text)
    table.finish()


def with_id_warning(examples: Iterable[Example], source: str | Path) -> Iterator[Example]:
    """Examples whose documents are read as texts; warns at the end if all of them look like ids."""
    found, all_look_like_ids = False, True
    for example in examples:
        found = found or bool(example.positives)
        all_look_like_ids = all_look_like_ids and all(map(_looks_like_id, example.positives))
        yield example
    if found and all_look_like_ids:
        warnings.warn(
            f"{in_callers_words(source)}: every positive is one word with a digit, and is taken for a text; "
            "if they are ids, name the corpus that holds their texts",
            stacklevel=2,
        )


def _looks_like_id(text: str) -> bool:
    """Whether a text is one word of ASCII with a digit in it."""
    return text.isascii() and any(map(str.isdigit, text)) and len(text.split(maxsplit=1)) == 1


def documents_file(source: str | Path) -> str | Path:
    """The table with the documents of a source: the corpus of a folder or a judged data set, or the source
    itself.
    """
    return corpus_part(source) or source


def _repeated(hashes: "array[int]") -> set[int]:
    """Hashes that occur more than once; the array is sorted in place."""
    values = np.frombuffer(hashes, dtype=np.int64) if hashes else np.empty(0, dtype=np.int64)
    values.sort()  # In place: their order is not needed any more, and a copy would double the memory.
    return set(values[1:][values[1:] == values[:-1]].tolist())


def parse_document(row: Row, columns: Columns, *, keep_blank: bool = False) -> LocatedDocument:
    """Read a row of a corpus; `keep_blank` keeps blank documents, with the text "", so that repeated ids are
    found.
    """
    id_column = columns.require("doc_id", row, "corpus")
    text_column = columns.require("text", row, "corpus")
    title_column = columns.find("title", row)
    columns.note_unread(row, "corpus")
    doc_id = id_of(row, id_column)
    # Title or text may be empty: some BEIR corpora hold only titles.
    names = [name for name in (title_column, text_column) if name is not None]
    text = " ".join(optional_text(row.values[name], name, row.location) for name in names).strip()
    if not text and not keep_blank:
        raise RowError(
            f'{row.location}: "{text_column}" must not be empty',
            advice="fill in blank documents, or set data.blank = drop",
        )
    return Document(doc_id, text), row.location
