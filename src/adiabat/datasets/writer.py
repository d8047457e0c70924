"""The directory of a made data set: documents, examples, and a record of their source.

It appears whole or not at all.
"""

import errno
import json
import os
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import Documents
from adiabat.config.section import Section
from adiabat.core.disk import clear, make_folder, move, new_file, remove, remove_empty, sync
from adiabat.core.errors import DataError, disk_error_of, several
from adiabat.core.files import read_json, sealed_json, sole_writer, write_text
from adiabat.core.provenance import now, seal, versions
from adiabat.core.wording import option
from adiabat.data.records import text_id

CORPUS = "corpus"
RECORD = "made.json"
FORMAT = 1
"""Format of ``made.json``."""

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_COMPRESSION_LEVEL = 4
"""On passages 2.5 times as fast as zlib's usual 6, with files 4 % larger."""
_COMPRESSED_BYTES = 1 << 18
"""Bytes compressed together: a call for each line would cost more than the compression."""
_INITIAL_SLOTS = 1 << 10
_MASK_64 = (1 << 64) - 1


class HashSet:
    """A set of strings that stores 64 bits of each: 12 to 24 bytes an entry, a sixth of a Python set of ids.

    With ten million strings, the probability of a false match is 3e-6.
    """

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _INITIAL_SLOTS))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, string: str) -> bool:
        """Add a string; False if it is in the set already."""
        code = (hash(string) & _MASK_64) or 1  # Zero marks a free slot.
        slot = _slot_of(self._slots, code)
        if self._slots[slot]:
            return False
        self._slots[slot] = code
        self._count += 1
        # Probing is short while at most two thirds of the slots are taken.
        if 3 * self._count > 2 * len(self._slots):
            former, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
            for code in filter(None, former):
                self._slots[_slot_of(self._slots, code)] = code
        return True


def _slot_of(slots: "array[int]", code: int) -> int:
    """The slot of a code, or the free one where it belongs: linear probing, over a power of two of slots."""
    last = len(slots) - 1
    slot = code & last
    while slots[slot] and slots[slot] != code:
        slot = (slot + 1) & last
    return slot


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """A made data set: documents in ``corpus.jsonl.gz``, 0 if examples hold texts, and the rows of each file
    of examples.
    """

    folder: Path
    documents: int
    examples: Mapping[str, int]
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.folder)


class DatasetWriter:
    """Writes documents and examples one at a time and keeps none of them in memory; `create_dataset` makes
    one.
    """

    def __init__(self, folder: Path, *, out: Path, documents: Documents) -> None:
        self._folder = folder
        self._out = out
        self._documents = documents
        self._files: dict[str, _GzipLines] = {}
        self._doc_ids = HashSet()
        self._notes: list[str] = []

    @property
    def summary(self) -> DatasetSummary:
        """The rows written until now."""
        examples = {f"{stem}.jsonl.gz": lines.rows for stem, lines in self._files.items() if stem != CORPUS}
        return DatasetSummary(self._out, len(self._doc_ids), examples, tuple(self._notes))

    def document(self, doc_id: str, text: str, *, title: str = "") -> str:
        """Write a document once, however often it is added; returns its name in examples."""
        if self._documents == "texts":
            return f"{title} {text}".strip()
        # A document of many examples is written with the first.
        if self._doc_ids.add(doc_id):
            self._lines(CORPUS).add({"_id": doc_id, **({"title": title} if title else {}), "text": text})
        return doc_id

    def texts(self, texts: Iterable[str]) -> list[str]:
        """Write documents that have no ids; returns their names in examples."""
        return [self.document(text_id(text), text) for text in texts]

    def example(self, stem: str, row: Mapping[str, Any]) -> None:
        """Write one row of examples to ``STEM.jsonl.gz``."""
        if stem == CORPUS:
            raise ValueError(f"stem must be other than {CORPUS}, which documents are written to")
        self._lines(stem).add(row)

    def triplet(
        self,
        stems: Iterable[str],
        query_id: str,
        query: str,
        *,
        positives: Sequence[str],
        negatives: Sequence[str],
    ) -> None:
        """Write a query with its documents to one or several files."""
        address = {"query_id": query_id} if self._documents == "ids" else {}
        for stem in stems:
            self.example(stem, {**address, "query": query, "pos": positives, "neg": negatives})

    def note(self, sentence: str) -> None:
        """Report skipped or unusual rows in the summary."""
        self._notes.append(sentence)

    def finish(self) -> None:
        """Flush every file to disk and close it."""
        for lines in self._files.values():
            lines.finish()

    def abandon(self) -> None:
        """Close files that are still open."""
        for lines in self._files.values():
            lines.abandon()

    def _lines(self, stem: str) -> "_GzipLines":
        """The file of a stem, made with its first row."""
        if stem not in self._files:
            self._files[stem] = _GzipLines(self._folder / f"{stem}.jsonl.gz")
        return self._files[stem]


class SkipCounts:
    """Counts the rows that a maker skips, by reason.

    `unit` is what it counts, in the plural, as in "12 of 300 questions left out: without an answer".
    """

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._total = 0
        self._skipped: Counter[str] = Counter()

    def count(self) -> None:
        """Count one row, skipped or not."""
        self._total += 1

    def skip(self, reason: str) -> None:
        """Count one of them as skipped."""
        self._skipped[reason] += 1

    def write_notes(self, writer: DatasetWriter) -> None:
        """Write a note for each reason."""
        for reason, count in self._skipped.items():
            writer.note(f"{count:,} of {self._total:,} {self._unit} left out: {reason}")


@contextmanager
def create_dataset(
    out: Path,
    *,
    maker: str,
    source: Path,
    settings: Section,
    documents: Documents = "ids",
    checksums: bool = False,
) -> Iterator[DatasetWriter]:
    """Fill a new directory, which appears when the block ends and does not where the block fails.

    The work is done in a hidden directory beside it. The leftovers of a killed process are removed by the
    next one.
    """
    target = Path(os.path.realpath(out))
    _require_free(out, target)
    work = target.with_name(f".{target.name}.making")
    # Folders that this run makes, and removes again if it fails.
    missing = [parent for parent in work.parents if not parent.exists()]
    try:
        make_folder(work, parents=True)
    except OSError as error:
        _remove(work, missing)
        raise DataError(
            f"{option('out')} must be a directory that can be created, got "
            f"{out}: {error.strerror}; choose another"
        ) from error
    with sole_writer(work), _disk_full_as_data_error(out):
        writer = DatasetWriter(work, out=out, documents=documents)
        try:
            # Leftovers of a killed process.
            remove(*work.iterdir())
            yield writer
            _require_examples(writer.summary, source)
            writer.finish()
            write_text(_record(writer.summary, maker, source, settings), work / RECORD)
            if checksums:
                seal(work, sorted(path.name for path in work.iterdir() if path.suffix in (".gz", ".json")))
            _move(work, target, out)
        finally:
            writer.abandon()
            _remove(work, missing)


def _require_free(out: Path, target: Path) -> None:
    """Refuse an output that holds anything, or cannot be replaced by a rename."""
    is_replaceable = not os.path.ismount(target) and target != Path.cwd().resolve()
    if target.is_dir() and is_replaceable:
        names = sorted(child.name for child in target.iterdir())
        if names:
            raise DataError(
                f"{option('out')} must be a new or empty directory, {out} holds "
                f"{several(names, of='files', shown=3)}; choose another"
            )
    elif target.exists():
        raise DataError(
            f"{option('out')} must be a directory that can be replaced, {out} is a file, a mount point or "
            "the current directory; choose one within it or beside it"
        )


def _require_examples(summary: DatasetSummary, source: Path) -> None:
    """Refuse to finish a data set without examples, with the reasons why rows were skipped."""
    if not summary.examples:
        reasons = f" ({'; '.join(summary.notes)})" if summary.notes else ""
        raise DataError(
            f"{source} must give at least one example, got none{reasons}; check that it is the right file"
        )


def read_summary(folder: Path) -> DatasetSummary:
    """The summary of a finished data set."""
    record = read_json(folder / RECORD, remedy="make the data set again")
    return DatasetSummary(folder, record["documents"], record["examples"], tuple(record["notes"]))


def _record(summary: DatasetSummary, maker: str, source: Path, settings: Section) -> str:
    """The record of the source, the settings and the rows written."""
    files = sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]
    return sealed_json(
        {
            "format": FORMAT,
            "maker": maker,
            "source": str(source),
            "source_bytes": {path.name: path.stat().st_size for path in files},
            "settings": settings.model_dump(mode="json"),
            "documents": summary.documents,
            "examples": dict(summary.examples),
            "notes": list(summary.notes),
            "created": now(),
            "versions": versions("cpu"),
        }
    )


def _move(work: Path, target: Path, out: Path) -> None:
    """Rename the finished directory, and make the rename survive a power cut."""
    try:
        move(work, target)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        fault = f"must still be missing or empty when it is done, got {out}: {error.strerror}"
        raise DataError(f"{option('out')} {fault}; choose another") from error
    sync(target.parent)


def _remove(work: Path, parents: list[Path]) -> None:
    """Remove the working directory, where it still exists, and the parents made for it."""
    clear(work)
    remove_empty(*parents)


@contextmanager
def _disk_full_as_data_error(out: Path) -> Iterator[None]:
    """Report a full disk, in whatever class a library raises it; other errors pass."""
    try:
        yield
    except OSError as fault:
        error = disk_error_of(fault)
        if error is None or error.errno not in DISK_FULL:
            raise
        raise DataError(
            f"the disk of {out} is full: {error.strerror}; free some space, or choose another disk"
        ) from fault


class _GzipLines:
    """A gzip file of JSON lines. Equal rows give equal bytes: it holds neither a time nor a name."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        # Closed by `finish` or `abandon`: it outlives this call.
        self._file = new_file(path)
        self._compressor = zlib.compressobj(_COMPRESSION_LEVEL, wbits=31)  # 31: with a gzip header.
        self._buffer = bytearray()

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, which is compressed with others."""
        self._buffer += json.dumps(row, ensure_ascii=False).encode("utf-8")
        self._buffer += b"\n"
        self.rows += 1
        if len(self._buffer) >= _COMPRESSED_BYTES:
            self._compress()

    def _compress(self) -> None:
        """Write what waits to be compressed."""
        self._file.write(self._compressor.compress(self._buffer))
        self._buffer.clear()

    def finish(self) -> None:
        """Write the rest through to the disk, and close the file."""
        self._compress()
        self._file.write(self._compressor.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        """Close the file, whatever it holds."""
        with suppress(OSError):
            self._file.close()
