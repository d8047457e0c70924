"""A BM25 index on disk, in the files of bm25s: built from a stream of texts, opened memory-mapped, with exact ties.

`adiabat.store.analysers` says what a word is; the index keeps whether words were cut to their stems, and does the same with queries.

``score(q, d) = sum over words w of q of idf(w) tf / (k1 (1 - b + b |d| / mean |d|) + tf)``,
``idf(w) = ln(1 + (N - df + 0.5) / (df + 0.5))``: bm25s's method ``lucene``, which leaves out the factor ``k1 + 1`` that changes no order.
"""

import json
import math
import mmap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from jaxtyping import Float, Float32, Float64, Int64, Integer

from adiabat.core.checksums import Digest, digest_of, require
from adiabat.core.errors import ConfigError, StoreError, several
from adiabat.core.files import read_json, reading, write_json
from adiabat.core.ragged import Ragged
from adiabat.store.analysers import Analyser, analyser_of
from adiabat.store.manifest import plain_disk_errors
from adiabat.store.search import Hits

LEXICAL_FILE = "lexical.json"
FORMAT = "adiabat-lexical"
VERSION = 3
"""Of the files, and of the rule for words. Version 2 held no single characters of scripts without spaces."""

DATA_FILE, ROW_FILE, START_FILE = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
VOCABULARY_FILE, PARAMETER_FILE = "vocab.index.json", "params.index.json"
FILES = (DATA_FILE, ROW_FILE, START_FILE, VOCABULARY_FILE, PARAMETER_FILE)
REMEDY = "remove the folder, and build the index again"
SPOOL_FILE = "postings.tmp"
SPOOL = np.dtype([("word", "<i4"), ("row", "<i4"), ("count", "<i4")])
DOCUMENTS_AT_ONCE = 1024
POSTINGS_AT_ONCE = 1 << 21
"""While the index is filled; some 150 MB of working memory."""

LexicalProgress = Callable[[int], None]
"""Called with the number of documents taken in."""


@dataclass(slots=True)
class _Spool:
    """What the first pass over the corpus learns; its postings lie in a file, in the order of the documents."""

    path: Path
    analyse: Analyser
    vocabulary: defaultdict[str, int] = field(default_factory=defaultdict)
    lengths: list[Int64[np.ndarray, " n"]] = field(default_factory=list)
    frequencies: Int64[np.ndarray, " v"] = field(default_factory=lambda: np.zeros(1 << 16, dtype=np.int64))
    count: int = 0

    def take(self, texts: Iterable[str], on_progress: LexicalProgress | None) -> None:
        """Read every text once."""
        self.vocabulary.default_factory = self.vocabulary.__len__
        stream = iter(texts)
        with self.path.open("wb") as file:
            while part := list(islice(stream, DOCUMENTS_AT_ONCE)):
                file.write(self._postings(list(map(self.analyse, part))).tobytes())
                self.count += len(part)
                if on_progress:
                    on_progress(self.count)

    def _postings(self, documents: Sequence[Sequence[str]]) -> np.ndarray:
        """How often each word stands in each document, by document and then by word."""
        lengths = np.array([len(document) for document in documents], dtype=np.int64)
        self.lengths.append(lengths)
        occurrences = chain.from_iterable(documents)
        numbers = np.fromiter(map(self.vocabulary.__getitem__, occurrences), dtype=np.int64, count=int(lengths.sum()))
        size = max(1, len(self.vocabulary))
        keys, counts = np.unique(np.repeat(np.arange(len(documents)), lengths) * size + numbers, return_counts=True)
        found = np.empty(len(keys), dtype=SPOOL)
        found["word"], found["row"], found["count"] = keys % size, keys // size + self.count, counts
        self._count_documents(found["word"])
        return found

    def _count_documents(self, found: np.ndarray) -> None:
        if len(self.vocabulary) > len(self.frequencies):
            self.frequencies = np.concatenate([self.frequencies, np.zeros(len(self.vocabulary), dtype=np.int64)])
        numbers, documents = np.unique(found, return_counts=True)
        self.frequencies[numbers] += documents


def build_lexical(
    texts: Iterable[str],
    folder: Path,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    stemmer: str | None = None,
    corpus: str = "",
    on_progress: LexicalProgress | None = None,
) -> "LexicalIndex":
    """Build the index of a corpus in two passes over it, of which the second reads numbers alone.

    Memory holds the vocabulary and 16 bytes per document; the postings go through a file. A build that is cut short leaves a folder that
    `LexicalIndex.open` refuses, and is begun anew.

    Args:
        stemmer: Language whose words are cut to their stems, as `analyser_of` knows it; None leaves words as they stand.
    """
    _require_parameters(k1, b)
    analyse = analyser_of(stemmer)
    with plain_disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LEXICAL_FILE).unlink(missing_ok=True)
        record = _build(texts, _Spool(folder / SPOOL_FILE, analyse), k1, b, on_progress)
        record |= {"format": FORMAT, "version": VERSION, "corpus": corpus, "stemmer": stemmer}
        record["files"] = {name: digest_of(folder / name)._asdict() for name in FILES}
        write_json(record, folder / LEXICAL_FILE)
    return LexicalIndex.open(folder)


def _require_parameters(k1: float, b: float) -> None:
    """By other numbers a document would score below zero, or NaN, and so never be found."""
    faults = [] if 0 < k1 < math.inf else [f"k1 must be above 0 and finite, got {k1}; take 0.9, as Anserini does"]
    faults += [] if 0 <= b <= 1 else [f"b must be from 0 to 1, got {b}; take 0.4, as Anserini does"]
    if faults:
        raise ConfigError(several(faults))


def _build(texts: Iterable[str], spool: _Spool, k1: float, b: float, on_progress: LexicalProgress | None) -> dict[str, Any]:
    """Write bm25s's files; what it holds in memory is gone before they are opened."""
    folder = spool.path.parent
    try:
        spool.take(texts, on_progress)
        if not spool.vocabulary:
            raise StoreError(f"a corpus must hold words for BM25, got {spool.count:,} documents without one; check its texts")
        weights = _Weights.of(spool, k1, b)
        _fill(spool, weights, folder)
    finally:
        spool.path.unlink(missing_ok=True)
    (folder / VOCABULARY_FILE).write_text(json.dumps(spool.vocabulary), encoding="ascii")
    numbers = {"k1": k1, "b": b, "delta": 0.5, "method": "lucene", "idf_method": "lucene", "dtype": "float32", "int_dtype": "int32"}
    parameters = {**numbers, "num_docs": spool.count, "version": bm25s.__version__, "backend": "numpy"}
    (folder / PARAMETER_FILE).write_text(json.dumps(parameters), encoding="ascii")
    return {"count": spool.count, "mean_length": weights.mean_length, "k1": k1, "b": b}


@dataclass(frozen=True, slots=True)
class _Weights:
    """The formula's numbers; computed as bm25s does, in float64 but for the idf, so that scores are equal to the last bit."""

    mean_length: float
    k1: float
    b: float
    idf: Float32[np.ndarray, " v"]

    @classmethod
    def of(cls, spool: _Spool, k1: float, b: float) -> "_Weights":
        frequencies = spool.frequencies[: len(spool.vocabulary)]
        return cls(float(np.concatenate(spool.lengths).mean()), k1, b, inverse_frequencies(frequencies, spool.count))

    def scores(
        self, word: Int64[np.ndarray, " p"], counts: Int64[np.ndarray, " p"], lengths: Int64[np.ndarray, " p"]
    ) -> Float32[np.ndarray, " p"]:
        """What each word adds to the score of its document."""
        saturation: Float64[np.ndarray, " p"] = self.k1 * ((1 - self.b) + self.b * lengths / self.mean_length)
        added: Float32[np.ndarray, " p"] = (self.idf[word] * (counts / (saturation + counts))).astype(np.float32)
        return added


def inverse_frequencies(frequencies: Int64[np.ndarray, " v"], count: int) -> Float32[np.ndarray, " v"]:
    """Inverse document frequencies, ``ln(1 + (N - df + 0.5) / (df + 0.5))``.

    Returns:
        One per word, above zero.
    """
    idf: Float32[np.ndarray, " v"] = np.log(1 + (count - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
    return idf


def _fill(spool: _Spool, weights: _Weights, folder: Path) -> None:
    """Sort the postings from by-document to by-word, a part at a time, into their places in the files."""
    starts = np.concatenate([[0], np.cumsum(spool.frequencies[: len(spool.vocabulary)])])
    np.save(folder / START_FILE, starts)
    lengths, free = np.concatenate(spool.lengths), starts[:-1].copy()
    data = np.lib.format.open_memmap(folder / DATA_FILE, mode="w+", dtype=np.float32, shape=(int(starts[-1]),))
    rows = np.lib.format.open_memmap(folder / ROW_FILE, mode="w+", dtype=np.int32, shape=(int(starts[-1]),))
    for part in _parts(spool.path):
        part = part[np.argsort(part["word"], kind="stable")]
        number, first, counts = np.unique(part["word"], return_index=True, return_counts=True)
        place = np.repeat(free[number] - first, counts) + np.arange(len(part))
        word = part["word"].astype(np.int64)
        data[place] = weights.scores(word, part["count"].astype(np.int64), lengths[part["row"]])
        rows[place] = part["row"]
        free[number] += counts
        _let_go(data, rows)
    data.flush()
    rows.flush()


def _parts(path: Path) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        while len(part := np.fromfile(file, dtype=SPOOL, count=POSTINGS_AT_ONCE)):
            yield part


def _let_go(*arrays: np.ndarray) -> None:
    """Pages of a file that were touched count as this process's memory until it lets go of them; their content stays."""
    for array in arrays:
        base: object = array.base
        if isinstance(base, mmap.mmap):
            base.madvise(mmap.MADV_DONTNEED)


class LexicalIndex:
    """A finished index; its postings stay on disk."""

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        """Open the files; `LexicalIndex.open` is the way in."""
        self.path = folder
        with reading(folder, remedy=REMEDY, error=StoreError):
            require({name: Digest(**digest) for name, digest in record["files"].items()}, folder, remedy=REMEDY, error=StoreError)
            self._index = bm25s.BM25.load(folder, mmap=True)
            self.corpus, self.count = str(record["corpus"]), int(record["count"])
            self.stemmer: str | None = record["stemmer"]
            self._analyse = analyser_of(self.stemmer)
            idf = inverse_frequencies(np.diff(self._index.scores["indptr"]), self.count)
            self._weights = _Weights(float(record["mean_length"]), float(record["k1"]), float(record["b"]), idf)

    @classmethod
    def open(cls, folder: Path) -> "LexicalIndex":
        """Open a finished index."""
        if not (folder / LEXICAL_FILE).exists():
            raise StoreError(f"{folder} must be a finished BM25 index, it holds no {LEXICAL_FILE}; build it again")
        if (version := _version(folder)) != VERSION:
            raise StoreError(f"{folder / LEXICAL_FILE}: format version must be {VERSION}, got {version}; {REMEDY}")
        return cls(folder, read_json(folder / LEXICAL_FILE, remedy=REMEDY, error=StoreError))

    @classmethod
    def at_hand(cls, folder: Path) -> "LexicalIndex | None":
        """Open an index that was kept for another use.

        Returns:
            The index; None where there is none, or one of another version, which is to be built again.
        """
        if not (folder / LEXICAL_FILE).exists() or _version(folder) != VERSION:
            return None
        return cls.open(folder)

    @property
    def parameters(self) -> tuple[float, float]:
        """The numbers k1 and b that it was built with."""
        return self._weights.k1, self._weights.b

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """Find the documents that share most with each query.

        Returns:
            Best first, of equal scores the lower row; -1 and minus infinity from where documents share no word with the query.
        """
        if k < 1:
            raise StoreError(f"k must be at least 1, got {k}; ask for the number of documents wanted")
        shape = (len(queries), min(k, self.count))
        hits = Hits(np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32))
        for place, scores in enumerate(self._tables(queries)):
            rows = _best(scores, shape[1])
            hits.rows[place, : len(rows)], hits.scores[place, : len(rows)] = rows, scores[rows]
        return hits

    def score_rows(self, queries: Sequence[str], rows: Integer[np.ndarray, "q r"]) -> Float32[np.ndarray, "q r"]:
        """Scores of given documents, bit for bit those of `search`.

        Returns:
            Scores, 0 where a document shares no word with the query; minus infinity at a row of -1.
        """
        scores = np.full(rows.shape, -np.inf, dtype=np.float32)
        for place, table in enumerate(self._tables(queries)):
            wanted = rows[place] >= 0
            scores[place, wanted] = table[rows[place, wanted]]
        return scores

    def count_at_least(self, queries: Sequence[str], thresholds: Float[np.ndarray, "q p"], excluded: Ragged) -> Int64[np.ndarray, "q p"]:
        """Count, for each query and threshold, the documents that score at least as high.

        Args:
            thresholds: Scores; plus infinity for "none".
        """
        counts = np.zeros(thresholds.shape, dtype=np.int64)
        for place, table in enumerate(self._tables(queries)):
            table[excluded[place]] = -np.inf
            for column in np.flatnonzero(thresholds[place] < np.inf):
                counts[place, column] = np.count_nonzero(table >= thresholds[place, column])
        return counts

    def _tables(self, queries: Sequence[str]) -> Iterator[Float32[np.ndarray, " n"]]:
        """Each query's scores of all documents."""
        for query in queries:
            yield self._index.get_scores_from_ids(self._asked(query))
        _let_go(self._index.scores["data"], self._index.scores["indices"])

    def _asked(self, query: str) -> list[int]:
        """Numbers of the words that a query is asked by, as far as documents hold them."""
        numbers: list[int] = self._index.get_tokens_ids(self._analyse(query, self._index.vocab_dict))
        return numbers

    def scores(self, query: str, texts: Sequence[str]) -> Float32[np.ndarray, " n"]:
        """Scores of texts that need not be in the corpus, bit for bit those of `search` where they are.

        Returns:
            One score per text; 0 where it shares no word with the query.
        """
        asked = np.array(self._asked(query), dtype=np.int64)
        found = np.zeros(len(texts), dtype=np.float32)
        for place, text in enumerate(texts):
            document = self._analyse(text)
            tally = Counter(self._index.get_tokens_ids(document))
            counts = np.array([tally[word] for word in asked.tolist()], dtype=np.int64)
            for part in self._weights.scores(asked, counts, np.full(len(asked), len(document))):
                found[place] += part
        return found


def _version(folder: Path) -> object:
    """Which format the files have; those of before version 3 have no checksum."""
    return read_json(folder / LEXICAL_FILE, remedy=REMEDY, error=StoreError, required=False).get("version")


def _best(scores: Float32[np.ndarray, " n"], k: int) -> Int64[np.ndarray, " best"]:
    """Rows of the k highest scores above zero, best first, of equals the lower row."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > k:
        found = scores[rows]
        rows = rows[found >= np.partition(found, len(rows) - k)[len(rows) - k]]
    return rows[np.lexsort((rows, -scores[rows]))][:k]
