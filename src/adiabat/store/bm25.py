"""A BM25 index on disk, in the files of bm25s: built from a stream of texts, opened memory-mapped, with exact
ties.

`adiabat.store.analysers` defines a word. The index records whether words were stemmed, and treats queries
alike.

``score(q, d) = sum over words w of q of idf(w) tf / (k1 (1 - b + b |d| / mean |d|) + tf)``,
``idf(w) = ln(1 + (N - df + 0.5) / (df + 0.5))``: bm25s's method ``lucene``, which leaves out the factor ``k1
+ 1`` that changes no order.
"""

import json
import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int64, Integer

from adiabat.core.disk import fresh_folder, make_folder, move, new_file, open_in_place, remove
from adiabat.core.errors import StoreError
from adiabat.core.files import read_json, reading, write_json
from adiabat.core.formats import Format, layout_of, rebuilt
from adiabat.core.provenance import Digest, digest_of, require
from adiabat.core.ragged import Ragged
from adiabat.store.analysers import Analyser, analyser_of
from adiabat.store.bm25s_without_jax import bm25s
from adiabat.store.manifest import (
    DATA_FILE,
    LEXICAL_FILE,
    PARAMETER_FILE,
    ROW_FILE,
    SPOOL_FILE,
    START_FILE,
    VOCABULARY_FILE,
    exists,
    plain_disk_errors,
)
from adiabat.store.search import Excluded, Hits, Removed

FORMAT = "adiabat-lexical"
VERSION = 3
INDEX = Format(VERSION, oldest=VERSION, writers={1: "0.1", 2: "0.1"})
"""Version of the files and of the definition of a word. Version 2 lacked single characters of scripts without
spaces."""

FILES = (DATA_FILE, ROW_FILE, START_FILE, VOCABULARY_FILE, PARAMETER_FILE)
REMEDY = "remove the folder, and build the index again"
BUILDING = ".building"
"""Folder in which an index is built."""
SPOOL = np.dtype([("word", "<i4"), ("row", "<i4"), ("count", "<i4")])
DOCUMENTS_PER_BLOCK = 1024
POSTINGS_PER_BLOCK = 1 << 21
"""Number of postings sorted at a time; needs some 150 MB of working memory."""

Postings = Int64[np.ndarray, " p"]
"""A number for each posting: a word of a document."""

BM25Progress = Callable[[int], None]
"""Called with the number of documents read."""


@dataclass(slots=True)
class _Spool:
    """The first pass over the corpus: vocabulary, lengths and frequencies; the postings are written to a
    file, by document.
    """

    path: Path
    analyse: Analyser
    vocabulary: defaultdict[str, int] = field(default_factory=defaultdict)
    lengths: list[Int64[np.ndarray, " n"]] = field(default_factory=list)
    frequencies: Int64[np.ndarray, " v"] = field(default_factory=lambda: np.zeros(1 << 16, dtype=np.int64))
    count: int = 0

    def read(self, texts: Iterable[str], on_progress: BM25Progress | None) -> None:
        """Read every text once."""
        # A new word gets the next number when it is looked up.
        self.vocabulary.default_factory = self.vocabulary.__len__
        stream = iter(texts)
        with new_file(self.path) as file:
            while block := list(islice(stream, DOCUMENTS_PER_BLOCK)):
                file.write(self._postings(list(map(self.analyse, block))).tobytes())
                self.count += len(block)
                if on_progress:
                    on_progress(self.count)

    def _postings(self, documents: Sequence[Sequence[str]]) -> np.ndarray:
        """Counts of each word in each document, by document and then by word."""
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        self.lengths.append(lengths)
        numbers = np.fromiter(
            map(self.vocabulary.__getitem__, chain.from_iterable(documents)), np.int64, int(lengths.sum())
        )
        size = max(1, len(self.vocabulary))
        # One number for each pair of document and word: row * size + word.
        rows = np.repeat(np.arange(len(documents)), lengths)
        keys, counts = np.unique(rows * size + numbers, return_counts=True)
        postings = np.empty(len(keys), dtype=SPOOL)
        postings["word"], postings["row"], postings["count"] = keys % size, keys // size + self.count, counts
        if len(self.vocabulary) > len(self.frequencies):
            # At least doubled, so that few words cause a copy.
            self.frequencies = np.pad(self.frequencies, (0, len(self.vocabulary)))
        present, frequencies = np.unique(postings["word"], return_counts=True)
        self.frequencies[present] += frequencies
        return postings


def build_bm25(
    texts: Iterable[str],
    folder: Path,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    stemmer: str | None = None,
    corpus: str = "",
    on_progress: BM25Progress | None = None,
) -> "BM25Index":
    """Build the index of a corpus: one pass over the texts, one over the numbers of their words.

    Memory holds the vocabulary and 16 bytes per document; the postings go through a file. An interrupted
    build leaves a folder that `BM25Index.open` refuses, and starts again.

    Args:
        k1: Saturation of word counts, above 0 and finite: others could score a document below zero or NaN.
        b: Share of the normalisation by document length, from 0 to 1.
        stemmer: Language of the stemmer; see `analyser_of`.
        corpus: Digest of the corpus, for later checks.
    """
    analyse = analyser_of(stemmer)
    with plain_disk_errors(folder):
        make_folder(folder, parents=True)
        # The record is removed first and written last: a folder without it is no finished index.
        remove(folder / LEXICAL_FILE)
        building = fresh_folder(folder / BUILDING)
        try:
            record = _build(texts, _Spool(building / SPOOL_FILE, analyse), k1, b, on_progress)
            for name in FILES:
                move(building / name, folder / name)
        finally:
            remove(building)
        record |= {"format": FORMAT, "version": VERSION, "corpus": corpus, "stemmer": stemmer}
        record["files"] = {name: digest_of(folder / name)._asdict() for name in FILES}
        write_json(record, folder / LEXICAL_FILE)
    return BM25Index.open(folder)


def _build(
    texts: Iterable[str], spool: _Spool, k1: float, b: float, on_progress: BM25Progress | None
) -> dict[str, Any]:
    """Write bm25s's files; their memory is freed before the index is opened."""
    spool.read(texts, on_progress)
    if not spool.vocabulary:
        raise StoreError(
            f"BM25 needs a corpus with words, got {spool.count:,} documents without any; check its texts"
        )
    folder, weights = spool.path.parent, _Weights.of(spool, k1, b)
    _fill(spool, weights, folder)
    _write_json(spool.vocabulary, folder / VOCABULARY_FILE)
    parameters = {
        "k1": k1,
        "b": b,
        "delta": 0.5,
        "method": "lucene",
        "idf_method": "lucene",
        "dtype": "float32",
        "int_dtype": "int32",
        "num_docs": spool.count,
        "version": bm25s.__version__,
        "backend": "numpy",
    }
    _write_json(parameters, folder / PARAMETER_FILE)
    return {"count": spool.count, "mean_length": weights.mean_length, "k1": k1, "b": b}


def _write_json(content: Any, path: Path) -> None:
    """Write a file of bm25s's, which has no checksum of its own."""
    with new_file(path) as file:
        file.write(json.dumps(content).encode("ascii"))


@dataclass(frozen=True, slots=True)
class _Weights:
    """The numbers of the formula; computed as in bm25s, the idf in float32 and all else in float64, for equal
    scores to the last bit.
    """

    mean_length: float
    k1: float
    b: float
    idf: Float32[np.ndarray, " v"]

    @classmethod
    def of(cls, spool: _Spool, k1: float, b: float) -> "_Weights":
        frequencies = spool.frequencies[: len(spool.vocabulary)]
        mean_length = float(np.concatenate(spool.lengths).mean())
        return cls(mean_length, k1, b, inverse_frequencies(frequencies, spool.count))

    def scores(self, word: Postings, counts: Postings, lengths: Postings) -> Float32[np.ndarray, " p"]:
        """The score that each word adds to its document: the formula of the module's first lines."""
        saturation = self.k1 * ((1 - self.b) + self.b * lengths / self.mean_length)
        added: np.ndarray = self.idf[word] * (counts / (saturation + counts))
        return added.astype(np.float32)


def inverse_frequencies(frequencies: Int64[np.ndarray, " v"], count: int) -> Float32[np.ndarray, " v"]:
    """Inverse document frequencies, ``ln(1 + (N - df + 0.5) / (df + 0.5))``, above zero."""
    idf: np.ndarray = np.log(1 + (count - frequencies + 0.5) / (frequencies + 0.5))
    return idf.astype(np.float32)


def _fill(spool: _Spool, weights: _Weights, folder: Path) -> None:
    """Sort the postings from by-document to by-word, a block at a time, into their positions in the files.

    The files hold a sparse matrix by columns, as scipy's CSC: word ``w`` has the entries ``starts[w]`` to
    ``starts[w + 1]`` of scores and rows. The numbers of postings of all words are known from the first pass,
    so each posting has its place before it is read.
    """
    starts = np.concatenate([[0], np.cumsum(spool.frequencies[: len(spool.vocabulary)])])
    with new_file(folder / START_FILE) as file:
        np.save(file, starts)
    lengths, free = np.concatenate(spool.lengths), starts[:-1].copy()
    data = _new_mapped(folder / DATA_FILE, np.float32, int(starts[-1]))
    rows = _new_mapped(folder / ROW_FILE, np.int32, int(starts[-1]))
    with spool.path.open("rb") as file:
        while len(block := np.fromfile(file, dtype=SPOOL, count=POSTINGS_PER_BLOCK)):
            block = block[np.argsort(block["word"], kind="stable")]
            number, first, counts = np.unique(block["word"], return_index=True, return_counts=True)
            # The next free position of each word, where its postings in this block start.
            positions = np.repeat(free[number] - first, counts) + np.arange(len(block))
            word = block["word"].astype(np.int64)
            data[positions] = weights.scores(word, block["count"].astype(np.int64), lengths[block["row"]])
            rows[positions] = block["row"]
            free[number] += counts
            _release_pages(data, rows)
    data.flush()
    rows.flush()


def _new_mapped(path: Path, dtype: type[np.generic], count: int) -> np.memmap[Any, Any]:
    """A new npy file, mapped for writing."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(count,))
    with os.fdopen(open_in_place(path), "r+b") as file:
        # Writing to a page without disk space would kill the process.
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _release_pages(*arrays: np.ndarray) -> None:
    """Release touched pages of mapped files, which count as this process's memory; their content stays on
    disk.
    """
    for array in arrays:
        base: object = array.base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


class BM25Index:
    """A finished index; its postings stay on disk."""

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        """Use the files; open an index with `BM25Index.open`."""
        self.path = folder
        path = folder / LEXICAL_FILE
        with layout_of(path, remedy=REMEDY, error=StoreError):
            files = rebuilt(dict[str, Digest], record["files"], path, remedy=REMEDY, error=StoreError)
        require(files, folder, remedy=REMEDY, error=StoreError)
        with reading(path, remedy=REMEDY, error=StoreError):
            self._index = bm25s.BM25.load(folder, mmap=True)
            self.corpus, self.count = str(record["corpus"]), int(record["count"])
            self.stemmer: str | None = record["stemmer"]
            self._analyse = analyser_of(self.stemmer)
            idf = inverse_frequencies(np.diff(self._index.scores["indptr"]), self.count)
            mean_length, k1, b = (float(record[name]) for name in ("mean_length", "k1", "b"))
            self._weights = _Weights(mean_length, k1, b, idf)

    @classmethod
    def open(cls, folder: Path) -> "BM25Index":
        """Open a finished index."""
        if not exists(folder / LEXICAL_FILE):
            raise StoreError(
                f"{folder} must be a finished BM25 index, it holds no {LEXICAL_FILE}; build it again"
            )
        INDEX.require(_version(folder), folder / LEXICAL_FILE, older=REMEDY, error=StoreError)
        return cls(folder, read_json(folder / LEXICAL_FILE, remedy=REMEDY, error=StoreError))

    @classmethod
    def at_hand(cls, folder: Path) -> "BM25Index | None":
        """Open the index of an earlier run; None if there is none, or of another version."""
        if not exists(folder / LEXICAL_FILE) or _version(folder) != VERSION:
            return None
        return cls.open(folder)

    @property
    def parameters(self) -> tuple[float, float]:
        """The parameters k1 and b of the index."""
        return self._weights.k1, self._weights.b

    def search(
        self,
        queries: Sequence[str],
        k: int,
        *,
        excluded: Excluded | None = None,
        removed: Removed | None = None,
    ) -> Hits:
        """The best documents of each query; of equal scores, the lower row first; -1 and minus infinity pad
        the rest.

        Args:
            excluded: Rows that are never returned, per query; None for no exclusions.
            removed: Rows that are returned for no query.
        """
        hits = Hits.none(len(queries), min(k, self.count))
        for query, scores in enumerate(self._tables(queries)):
            for rows in (None if excluded is None else excluded[query], removed):
                if rows is not None:
                    scores[rows] = 0
            rows = _best(scores, k)
            hits.rows[query, : len(rows)], hits.scores[query, : len(rows)] = rows, scores[rows]
        return hits

    def score_rows(
        self, queries: Sequence[str], rows: Integer[np.ndarray, "q r"]
    ) -> Float32[np.ndarray, "q r"]:
        """Scores of chosen documents, bit for bit those of `search`; 0 without a shared word, minus infinity
        at a row of -1.
        """
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        for query, table in enumerate(self._tables(queries)):
            columns = rows[query] >= 0
            scores[query, columns] = table[rows[query, columns]]
        return scores

    def count_at_least(
        self,
        queries: Sequence[str],
        thresholds: Float[np.ndarray, "q p"],
        excluded: Ragged,
        removed: Removed,
    ) -> tuple[Int64[np.ndarray, "q p"], Int64[np.ndarray, "q p"]]:
        """Count, for each query and threshold (plus infinity for none), the documents that score at least as
        high: others, and removed.
        """
        counts, apart = np.zeros((2, *thresholds.shape), dtype=np.int64)
        for query, table in enumerate(self._tables(queries)):
            table[excluded[query]] = -np.inf
            for column in np.flatnonzero(thresholds[query] < np.inf):
                reached = table >= thresholds[query, column]
                counts[query, column] = np.count_nonzero(reached)
                apart[query, column] = np.count_nonzero(reached[removed])
        return counts - apart, apart

    def _tables(self, queries: Sequence[str]) -> Iterator[Float32[np.ndarray, " n"]]:
        """Each query's scores of all documents."""
        for query in queries:
            yield self._index.get_scores_from_ids(self._query_words(query))
        _release_pages(self._index.scores["data"], self._index.scores["indices"])

    def _query_words(self, query: str) -> list[int]:
        """Numbers of the query's words that occur in documents."""
        words = self._analyse(query, self._index.vocab_dict)
        return list(self._index.get_tokens_ids(words))

    def scores(self, query: str, texts: Sequence[str]) -> Float32[np.ndarray, " n"]:
        """Scores of texts that need not be in the corpus, bit for bit those of `search` where they are."""
        query_words = np.array(self._query_words(query), dtype=np.int64)
        scores = np.zeros(len(texts), dtype=np.float32)
        for index, text in enumerate(texts):
            document = self._analyse(text)
            count_of = Counter(self._index.get_tokens_ids(document))
            counts = np.array([count_of[word] for word in query_words.tolist()], dtype=np.int64)
            # Added one by one, as in bm25s: a sum of the array could round differently.
            for score in self._weights.scores(query_words, counts, np.full(len(query_words), len(document))):
                scores[index] += score
        return scores


def _version(folder: Path) -> object:
    """The format version of the files, read without a checksum: those before version 3 have none."""
    return read_json(folder / LEXICAL_FILE, remedy=REMEDY, error=StoreError, required=False).get("version")


def _best(scores: Float32[np.ndarray, " n"], k: int) -> Int64[np.ndarray, " best"]:
    """Rows of the k highest scores above zero, best first; of equal scores, the lower row first.

    A partition finds the k-th highest score in linear time; only what reaches it is sorted.
    """
    rows = np.flatnonzero(scores > 0)
    # Keep all that tie with the k-th until rows decide among them.
    if len(rows) > k:
        positive = scores[rows]
        kth = np.partition(positive, len(rows) - k)[len(rows) - k]
        rows = rows[positive >= kth]
    return rows[np.lexsort((rows, -scores[rows]))][:k]
