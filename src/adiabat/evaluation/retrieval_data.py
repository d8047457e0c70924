"""Queries and corpora of retrieval tasks, read to the end and checked before any model is loaded."""

import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from adiabat.config.section import DropSameId
from adiabat.config.tasks import TaskSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, several
from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.core.text import cut
from adiabat.data.corpora import Blank, read_corpus
from adiabat.data.examples import is_beir_examples, read_examples
from adiabat.data.records import Document, ExampleSet, is_own_document, text_id
from adiabat.data.table_headers import OF_DOCUMENTS
from adiabat.evaluation.systems import BM25System
from adiabat.store.addressing import AddressedSet, Addresses, address
from adiabat.store.corpus_files import digest_documents
from adiabat.store.vector_store import Store


@dataclass(frozen=True, slots=True)
class Corpus:
    """Source of the documents of tasks; tasks with equal corpora share a store."""

    source: str
    split: str | None
    columns: tuple[tuple[str, str], ...]
    blank: Blank

    @classmethod
    def of(cls, section: TaskSection) -> "Corpus":
        """The corpus of a task."""
        columns = section.columns.given()
        if section.corpus is None:
            # The split of a BEIR folder selects judgements; its corpus has no splits.
            split = None if is_beir_examples(section.data) else section.split
            return cls(section.data, split, tuple(columns.items()), section.blank)
        document_columns = {name: column for name, column in columns.items() if name in OF_DOCUMENTS}
        return cls(section.corpus, section.corpus_split, tuple(document_columns.items()), section.blank)

    def documents(self) -> Iterator[Document]:
        """Read it."""
        return read_corpus(self.source, columns=dict(self.columns), split=self.split, blank=self.blank)


@dataclass(frozen=True, slots=True)
class RetrievalTaskData:
    """One task, read once and checked.

    Attributes:
        name: Unique among the tasks.
        section: Its settings.
        corpus: Its documents.
        examples_sha256: Of queries, positives, grades and negatives.
        corpus_sha256: Of ids and texts.
    """

    name: str
    section: TaskSection
    corpus: Corpus
    examples_sha256: str
    corpus_sha256: str

    def addressed(self, documents: Addresses) -> AddressedSet:
        """Queries with the rows of their documents."""
        return address(_examples_of(self.section), documents, missing=self.section.missing, merge_equal=True)


def read_retrieval_tasks(sections: Sequence[TaskSection], watch: Watch) -> list[RetrievalTaskData]:
    """Read all tasks to the end, so that faults appear before any model is loaded."""
    faults: list[str] = []
    examples: dict[int, ExampleSet] = {}
    for number, section in enumerate(sections):
        with _gathering(faults, section):
            examples[number] = _examples_of(section)
    digests: dict[Corpus, str] = {}
    missing = {number: _entries(example_set) for number, example_set in examples.items()}
    for corpus in dict.fromkeys(Corpus.of(sections[number]) for number in examples):
        watch.progress("reading corpora", len(digests), len(examples))
        asking = [number for number in examples if Corpus.of(sections[number]) == corpus]
        with _gathering(faults, sections[asking[0]]):
            documents = _struck_off(corpus.documents(), [missing[number] for number in asking])
            digests[corpus] = digest_documents(documents)
            faults += [message for number in asking for message in _lacking(sections[number], examples[number], missing[number], corpus)]
    if faults:
        raise DataError(several(faults))
    tasks = [
        RetrievalTaskData(
            section.name or examples[number].name, section, Corpus.of(section), _digest(examples[number]), digests[Corpus.of(section)]
        )
        for number, section in enumerate(sections)
    ]
    names = [task.name for task in tasks]
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"tasks must have names of their own, got {', '.join(again)} more than once; give them tasks.name")
    return tasks


@contextmanager
def _gathering(faults: list[str], section: TaskSection) -> Iterator[None]:
    """Collect a fault of a task; the readers' advice takes the names of task settings."""
    try:
        yield
    except AdiabatError as fault:
        message = re.sub(r"\bdata\.(blank|missing|columns|split)\b", r"tasks.\1", str(fault))
        faults.append(f"task {section.name or section.data}: {message}")


def _entries(examples: ExampleSet) -> dict[str, str]:
    """Every name of a document of the examples: its id, its text, or the id of its text, each with the entry."""
    entry_of: dict[str, str] = {}
    for example in examples.examples:
        for entry in (*example.positives, *example.negatives):
            entry_of[entry] = entry
            if examples.holds_texts is not False:
                entry_of[text_id(entry)] = entry
    return entry_of


def _struck_off(documents: Iterator[Document], missing_of: Sequence[dict[str, str]]) -> Iterator[Document]:
    """Pass documents on, and remove them from the missing ones."""
    for document in documents:
        for names in missing_of:
            # Where examples hold ids alone, removing a text that looks like an id is harmless: the store checks again.
            for name in (document.doc_id, document.text):
                entry = names.pop(name, None)
                if entry is not None:
                    names.pop(entry, None)
                    names.pop(text_id(entry), None)
        yield document


def _lacking(section: TaskSection, examples: ExampleSet, missing: Mapping[str, str], corpus: Corpus) -> list[str]:
    """Faults for documents that a corpus lacks, unless they are dropped."""
    absent = set(missing.values())
    if section.missing == "drop" or not absent:
        return []
    place_of: dict[str, str] = {}
    for example in examples.examples:
        for entry in absent.intersection((*example.positives, *example.negatives)):
            place_of.setdefault(entry, example.location or examples.name)
    lacking = [f'{location}: "{cut(entry, limit=60)}"' for entry, location in place_of.items()]
    return [
        f"task {section.name or section.data}: every document must be in the corpus {corpus.source}, it lacks "
        f"{several(lacking, of='documents')}; name the corpus that holds them (tasks.corpus), or set tasks.missing = drop"
    ]


def _examples_of(section: TaskSection) -> ExampleSet:
    # Where a task names a corpus, columns of documents are the corpus's.
    columns = {name: column for name, column in section.columns.given().items() if section.corpus is None or name not in OF_DOCUMENTS}
    examples = read_examples(section.data, split=section.split, columns=columns)
    if not isinstance(examples, ExampleSet):
        raise DataError(f"{section.data} must hold queries with positives, got a language grid; measure it with adiabat evaluate")
    return examples


def _digest(examples: ExampleSet) -> str:
    digest = hashlib.sha256()
    for example in examples.examples:
        fields = [example.query_id, example.query, example.positives, example.grades, example.negatives]
        digest.update(json.dumps(fields).encode() + b"\n")
    return digest.hexdigest()


@contextmanager
def without_skip_warnings() -> Iterator[None]:
    """Silence warnings of left-out rows while a corpus is read again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).* left out", category=UserWarning)
        yield


@dataclass(frozen=True, slots=True)
class IdenticalDocuments:
    """Documents that are queries themselves, left out of the ranking of that query.

    Attributes:
        rows: Of each query, at most one.
        notes: How many, and how many share an id with a query but not its text.
    """

    rows: Ragged
    notes: list[str]


def identical_documents(
    documents: Store | BM25System,
    query_ids: Sequence[str],
    queries: Sequence[str],
    positives: Ragged | Int64[np.ndarray, "q p"],
    *,
    drop: DropSameId,
) -> IdenticalDocuments:
    """Find documents that are queries themselves, by id and text (`is_own_document`), or by id alone with ``drop = true``."""
    ids = documents.rows(query_ids) if drop is not False else np.full(len(queries), -1, dtype=np.int64)
    shared = np.array([row if row >= 0 and row not in positives[query] else -1 for query, row in enumerate(ids.tolist())], dtype=np.int64)
    rows = shared if drop is True else _of_equal_text(documents, queries, shared)
    left_out, others = int((rows >= 0).sum()), int(((shared >= 0) & (rows < 0)).sum())
    notes = []
    if left_out:
        by = "id" if drop is True else "id and text"
        notes.append(f"{_documents(left_out)} left out of the ranking of the query that has the same {by}")
    if others:
        why = "another text" if documents.has_texts else "a text that is not known, since the store keeps none"
        advice = "drop_same_id = true leaves documents out by their id alone"
        notes.append(f"{_documents(others)} with the id of a query and {why}, ranked like all others; {advice}")
    return IdenticalDocuments(Ragged.of([row] if row >= 0 else [] for row in rows.tolist()), notes)


def _of_equal_text(documents: Store | BM25System, queries: Sequence[str], rows: Int64[np.ndarray, " q"]) -> Int64[np.ndarray, " q"]:
    """Rows of documents that read as their queries, with or without a title; -1 elsewhere."""
    identical = np.full(len(rows), -1, dtype=np.int64)
    candidates = np.flatnonzero(rows >= 0)
    if not documents.has_texts or not len(candidates):
        return identical
    for query, text in zip(candidates.tolist(), documents.texts(rows[candidates]), strict=True):
        if is_own_document(queries[query], text):
            identical[query] = rows[query]
    return identical


def _documents(count: int) -> str:
    return "1 document" if count == 1 else f"{count:,} documents"
