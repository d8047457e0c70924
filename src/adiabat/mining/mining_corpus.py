"""The corpus while it is mined: ids and texts by row, on disk. A store has them already; other sources are written once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64, Integer

from adiabat.core.checksums import Digest, require
from adiabat.core.errors import DataError, several
from adiabat.core.files import read_json, reading, write_json
from adiabat.data.records import Document
from adiabat.store.corpus_files import LOOKUP_SLICE, IdIndex, StringColumn, digest_documents, write_corpus
from adiabat.store.manifest import ID_FILE, INDEX_FILE, TEXT_FILE, plain_disk_errors
from adiabat.store.vector_store import Store

CORPUS_FILE = "corpus.json"

Rows = Sequence[int] | Integer[np.ndarray, " n"]


@runtime_checkable
class Documents(Protocol):
    """A corpus as mining needs it: a `Store` or a `WrittenCorpus`."""

    @property
    def count(self) -> int:
        """Number of documents."""

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Row of each id; -1 for an unknown one."""

    def doc_ids(self, rows: Rows) -> list[str]:
        """Id of each row."""

    def texts(self, rows: Rows) -> list[str]:
        """Text of each row."""


class WrittenCorpus:
    """A corpus in a folder of its own, as `written_corpus` makes it."""

    def __init__(self, folder: Path) -> None:
        remedy = f"remove the folder {folder}, and run the same command again"
        with reading(folder / CORPUS_FILE, remedy=remedy):
            record = read_json(folder / CORPUS_FILE, remedy=remedy)
            self.digest = str(record["digest"])
            require({name: Digest(**digest) for name, digest in record["files"].items()}, folder, remedy=remedy)
        self._ids, self._texts = StringColumn(folder / ID_FILE), StringColumn(folder / TEXT_FILE)
        self._index = IdIndex(folder / INDEX_FILE, self._ids)

    @property
    def count(self) -> int:
        """Number of documents."""
        return len(self._ids)

    def rows(self, doc_ids: Sequence[str]) -> Int64[np.ndarray, " n"]:
        """Row of each id; -1 for an unknown one."""
        return self._index.rows(doc_ids)

    def doc_ids(self, rows: Rows) -> list[str]:
        """Id of each row."""
        return self._ids.take(np.asarray(rows, dtype=np.int64))

    def texts(self, rows: Rows) -> list[str]:
        """Text of each row."""
        return self._texts.take(np.asarray(rows, dtype=np.int64))


def written_corpus(documents: Callable[[], Iterator[Document]], folder: Path, *, source: str, replace: bool) -> WrittenCorpus:
    """Write a corpus into a folder, unless the folder has it already; `replace` allows to overwrite another one."""
    if (folder / CORPUS_FILE).exists():
        former = WrittenCorpus(folder)
        if digest_documents(documents()) == former.digest:
            return former
        if not replace:
            raise DataError(f"{folder} must hold the corpus {source} as it is now, it holds another; remove it, or name another folder")
        (folder / CORPUS_FILE).unlink()
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


def row_slices(count: int) -> Iterator[Int64[np.ndarray, " n"]]:
    """All rows of a corpus in slices."""
    return (np.arange(start, min(start + LOOKUP_SLICE, count)) for start in range(0, count, LOOKUP_SLICE))


def rows_in_store(corpus: Documents, store: Store, *, source: str) -> Int64[np.ndarray, " documents"]:
    """Row in the store of each document of a corpus; the two must hold the same documents."""
    if corpus is store:
        return np.arange(store.count)
    slices, missing = [np.empty(0, dtype=np.int64)], []
    for rows in row_slices(corpus.count):
        ids = corpus.doc_ids(rows)
        slices.append(store.rows(ids))
        missing += [f'"{ids[position]}"' for position in np.flatnonzero(slices[-1] < 0)]
    if missing:
        raise DataError(
            f"{store.path} must hold a vector of every document of {source}, it lacks {several(missing, of='documents')}; "
            "add them with adiabat embed --append, or name the store of this corpus"
        )
    if store.count > corpus.count:
        raise DataError(
            f"{store.path} must hold the documents of {source} alone, got {store.count:,} and {corpus.count:,}; "
            "name the corpus that the store was built of, or the store itself in its place"
        )
    return np.concatenate(slices)
