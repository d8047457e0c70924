"""The corpus while it is mined, on disk, and the queries, whose positives are its ids or texts."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64, Integer

from adiabat.config.shared import DataSection
from adiabat.core.disk import remove
from adiabat.core.errors import DataError, Faults, several
from adiabat.core.files import is_there, read_json, write_json
from adiabat.core.formats import layout_of, rebuilt
from adiabat.core.provenance import Digest, require
from adiabat.core.text import counted
from adiabat.core.wording import again, call_of
from adiabat.data.examples import read_examples
from adiabat.data.records import Document, Example, ExampleSet, LanguageGridSet, text_id
from adiabat.mining.mine_checks import CORPUS_FILE
from adiabat.store.addressing import (
    documents_named,
    forms_advice,
    missing_documents,
    other_forms,
    with_known_ids,
)
from adiabat.store.corpus_files import LOOKUP_SLICE, IdIndex, StringColumn, digest_documents, write_corpus
from adiabat.store.manifest import ID_FILE, INDEX_FILE, TEXT_FILE, plain_disk_errors
from adiabat.store.vector_store import Store

RowNumbers = Int64[np.ndarray, " n"]
"""Rows of the corpus; -1 where it lacks a document."""

Rows = Sequence[int] | Integer[np.ndarray, " n"]


@runtime_checkable
class Documents(Protocol):
    """A corpus as mining needs it: a `Store` or a `WrittenCorpus`."""

    @property
    def count(self) -> int:
        """Number of documents."""

    def rows(self, doc_ids: Sequence[str]) -> RowNumbers:
        """Row of each id; -1 for an unknown one."""

    def doc_ids(self, rows: Rows) -> list[str]:
        """Id of each row."""

    def texts(self, rows: Rows) -> list[str]:
        """Text of each row."""


class WrittenCorpus:
    """A corpus in a folder of its own, as `written_corpus` makes it."""

    def __init__(self, folder: Path) -> None:
        remedy = f"remove the folder {folder}, and {again()}"
        path = folder / CORPUS_FILE
        record = read_json(path, remedy=remedy)
        with layout_of(path, remedy=remedy):
            self.digest = str(record["digest"])
            files = rebuilt(dict[str, Digest], record["files"], path, remedy=remedy)
        require(files, folder, remedy=remedy)
        ids = StringColumn(folder / ID_FILE)
        self.count = len(ids)
        self.rows, self.doc_ids = IdIndex(folder / INDEX_FILE, ids).rows, ids.take
        self.texts = StringColumn(folder / TEXT_FILE).take


def written_corpus(
    documents: Callable[[], Iterator[Document]], folder: Path, *, source: str, replace: bool
) -> WrittenCorpus:
    """Write a corpus into a folder, unless the folder has it already; `replace` allows to overwrite another
    one.
    """
    if is_there(folder / CORPUS_FILE):
        former = WrittenCorpus(folder)
        if digest_documents(documents()) == former.digest:
            return former
        if not replace:
            raise DataError(
                f"{folder} must hold the current corpus {source}, it holds another; "
                "remove it, or name another folder"
            )
        # Without its record a corpus that is half overwritten is never read.
        remove(folder / CORPUS_FILE)
    with plain_disk_errors(folder):
        corpus = write_corpus(documents(), folder, source=source)
        if not corpus.count:
            raise DataError(f"{source} must hold at least one document, got none")
        files = {name: digest._asdict() for name, digest in corpus.files.items()}
        write_json({"digest": corpus.sha256, "source": source, "files": files}, folder / CORPUS_FILE)
    return WrittenCorpus(folder)


def all_texts(corpus: Documents) -> Iterator[str]:
    """Every text by row, a slice at a time."""
    return chain.from_iterable(corpus.texts(rows) for rows in row_slices(corpus.count))


def row_slices(count: int) -> Iterator[RowNumbers]:
    """All rows of a corpus in slices."""
    return (np.arange(start, min(start + LOOKUP_SLICE, count)) for start in range(0, count, LOOKUP_SLICE))


def rows_in_store(corpus: Documents, store: Store, *, source: str) -> Int64[np.ndarray, " documents"]:
    """Row in the store of each document of a corpus; the two must hold the same documents."""
    if corpus is store:
        return np.arange(store.count)
    slices, missing = [np.empty(0, dtype=np.int64)], Faults()
    for rows in row_slices(corpus.count):
        ids = corpus.doc_ids(rows)
        in_store = store.rows(ids)
        slices.append(in_store)
        missing.extend(f'"{ids[position]}"' for position in np.flatnonzero(in_store < 0))
    if missing.count:
        raise DataError(
            f"{store.path} must hold a vector of every document of {source}, it "
            f"lacks {missing.told('documents')}; "
            f"add them with {call_of('embed', append=True)}, or name the store of this corpus"
        )
    # Documents of the store alone would become negatives that have no text.
    if store.count > corpus.count:
        raise DataError(
            f"{store.path} must hold the documents of {source} alone, got "
            f"{store.count:,} and {corpus.count:,}; "
            "name the corpus that the store was built of, or the store itself in its place"
        )
    return np.concatenate(slices)


@dataclass(frozen=True, slots=True)
class MiningQueries:
    """A data set of queries.

    Attributes:
        holds_ids: Whether documents are ids of the corpus, or texts, which need not be in it.
        shared_answers: All positives of each query text that occurs in several examples.
        notes: What was left out of the data.
    """

    name: str
    examples: Sequence[Example]
    holds_ids: bool
    shared_answers: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.examples)

    def known_answers(self, example: Example) -> tuple[str, ...]:
        """All positives of an example's query, in that example or in another."""
        return self.shared_answers.get(example.query, example.positives)

    def digest(self) -> str:
        """SHA-256 over ids, queries, positives and negatives, in their order."""
        digest = hashlib.sha256()
        for example in self.examples:
            for texts in ((example.query_id, example.query), example.positives, example.negatives):
                # Lengths stand before texts, so that no two data sets give the same bytes.
                digest.update(len(texts).to_bytes(8, "little"))
                for text in texts:
                    content = text.encode("utf-8", "surrogatepass")
                    digest.update(len(content).to_bytes(8, "little") + content)
        return digest.hexdigest()


def read_queries(source: str, settings: DataSection) -> ExampleSet:
    """Read a data set, before any costly work."""
    examples = read_examples(
        source, split=settings.split, columns=settings.columns.given(), usual_split="train"
    )
    if isinstance(examples, LanguageGridSet):
        raise DataError(
            f"{source} must hold queries with positives, got a language grid; mine for a file of examples"
        )
    return examples


def queries_in_corpus(
    data: ExampleSet, corpus: Documents, settings: DataSection, *, corpus_name: str, keep_listed: bool
) -> MiningQueries:
    """Check that the corpus has the documents that a data set names.

    Documents are ids where any positive is the id of a document, and texts otherwise; texts need not be in
    the corpus.
    """
    # Ids in another Unicode form become those of the corpus.
    if settings.ids != "exact":
        data = with_known_ids(data, corpus.rows)
    shared = _shared_answers(data.examples)
    examples, notes = _without_contradictions(data.examples, shared)
    if not keep_listed:
        examples = [replace(example, negatives=()) for example in examples]
    data = replace(data, examples=tuple(examples))
    holds_ids = data.holds_texts is False or _are_ids(data, corpus)
    if holds_ids:
        documents = documents_named(data)
        row_of = dict(zip(documents, corpus.rows(documents).tolist(), strict=True))
        missing = missing_documents(data, row_of)
        if missing and settings.missing == "error":
            usual = "ids are case-sensitive: correct them, name the corpus that holds them, or set "
            raise DataError(
                f"{data.name}: every document must be in the corpus {corpus_name}, it lacks "
                f"{several(missing, of='documents')}; "
                f"{forms_advice(row_of, corpus.rows) or f'{usual}data.missing = drop'}"
            )
        if missing:
            examples, note = _without(examples, row_of, len(missing))
            notes.append(note)
    if not examples:
        raise DataError(
            f"{data.name} must hold at least one query whose positives the corpus "
            f"{corpus_name} has, got none; check both"
        )
    sentences = tuple(f"{data.name}: {note}" for note in notes)
    return MiningQueries(data.name, examples, holds_ids, shared, sentences)


def document_rows(documents: Sequence[str], corpus: Documents, *, holds_ids: bool) -> RowNumbers:
    """Row of each document that a data set names; -1 for a text outside a corpus that is addressed by
    texts.
    """
    return corpus.rows(documents if holds_ids else [text_id(document) for document in documents])


def _are_ids(data: ExampleSet, corpus: Documents) -> bool:
    """Whether positives are ids: at least one is, if in another Unicode form, or most are but for case; these
    must not count as texts.
    """
    positives = list(dict.fromkeys(chain.from_iterable(example.positives for example in data.examples)))
    if (corpus.rows(positives) >= 0).any() or other_forms(positives, corpus.rows):
        return True
    folded, in_other_case = {positive.casefold() for positive in positives}, set[str]()
    for rows in row_slices(corpus.count):
        in_other_case.update(folded.intersection(map(str.casefold, corpus.doc_ids(rows))))
    # A few texts may equal an id but for case by chance; most of them do not.
    return 2 * sum(positive.casefold() in in_other_case for positive in positives) > len(positives)


def _without(
    examples: Sequence[Example], row_of: Mapping[str, int], missing: int
) -> tuple[list[Example], str]:
    """Examples without missing documents, and without those that lose all positives."""
    answered = []
    for example in examples:
        positives = tuple(document for document in example.positives if row_of[document] >= 0)
        negatives = tuple(document for document in example.negatives if row_of[document] >= 0)
        if positives:
            answered.append(replace(example, positives=positives, negatives=negatives))
    dropped = len(examples) - len(answered)
    return answered, (
        f"{counted(missing, 'document')} missing from the corpus left out, and {counted(dropped, 'query')} "
        "without a positive"
    )


def _shared_answers(examples: Sequence[Example]) -> dict[str, tuple[str, ...]]:
    """All positives of each query text that several examples share."""
    positives: dict[str, list[tuple[str, ...]]] = {}
    for example in examples:
        positives.setdefault(example.query, []).append(example.positives)
    shared = {}
    for query, answers in positives.items():
        if len(answers) > 1:
            shared[query] = tuple(dict.fromkeys(chain.from_iterable(answers)))
    return shared


def _without_contradictions(
    examples: Sequence[Example], shared: Mapping[str, tuple[str, ...]]
) -> tuple[list[Example], list[str]]:
    """Examples without listed negatives that answer their query, and a note of their locations."""
    faults, consistent = Faults(shown=3), []
    for example in examples:
        answers = shared.get(example.query, example.positives)
        contradictions = set(example.negatives).intersection(answers)
        if contradictions:
            negatives = tuple(document for document in example.negatives if document not in contradictions)
            for _ in range(len(example.negatives) - len(negatives)):
                faults.add(example.location or example.query_id)
            example = replace(example, negatives=negatives)
        consistent.append(example)
    note = f"listed negatives that equal a positive of their query left out: {faults.told('of them')}"
    return consistent, [note] if faults.count else []
