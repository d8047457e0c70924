"""The directory that a maker fills: documents, examples, and what they were made from. It appears whole or not at all."""

import errno
import json
import os
import shutil
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adiabat.config.dataset_settings import Documents
from adiabat.config.section import Section
from adiabat.core.checksums import seal
from adiabat.core.errors import DataError
from adiabat.core.files import sealed_json, sole_writer, write_text
from adiabat.core.provenance import now, versions

_FIRST_SLOTS = 1 << 10
_WORD = (1 << 64) - 1


class Seen:
    """A set of strings that keeps 64 bits of each and no string: 12 to 24 bytes an entry, a sixth of what a Python set of ids takes.

    Two of ten million strings share their 64 bits with a probability of 3e-6; then the second counts as seen.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, string: str) -> bool:
        """Remember a string."""
        code = (hash(string) & _WORD) or 1  # Zero marks a free slot.
        place = _place(self._slots, code)
        if self._slots[place]:
            return False
        self._slots[place] = code
        self._count += 1
        if 3 * self._count > 2 * len(self._slots):
            self._grow()
        return True

    def _grow(self) -> None:
        slots = array("Q", bytes(16 * len(self._slots)))
        for code in self._slots:
            if code:
                slots[_place(slots, code)] = code
        self._slots = slots


def _place(slots: "array[int]", code: int) -> int:
    """Where a code stands, or the free slot where it belongs: the first from its own on, which a power of two of slots makes quick."""
    last = len(slots) - 1
    place = code & last
    while slots[place] and slots[place] != code:
        place = (place + 1) & last
    return place


CORPUS = "corpus"
MADE = "made.json"
FORMAT = 1
"""Of ``made.json``."""

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PACKING_LEVEL = 4
"""Of passages: 2.5 times as fast as zlib's usual 6, and files 4 % larger."""
_PACKED_AT_A_TIME = 1 << 18
"""Bytes gathered before they are packed, since a call for each line would cost more than the packing."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a maker made.

    Attributes:
        folder: Where it lies.
        documents: Rows of ``corpus.jsonl.gz``; 0 where examples hold texts.
        examples: Name of each file of examples to its rows, in the order in which they were begun.
        notes: Sentences on what was left out or looks odd; empty where there is nothing to say.
    """

    folder: Path
    documents: int
    examples: Mapping[str, int]
    notes: tuple[str, ...] = ()


class Output:
    """Takes documents and examples one at a time and keeps none of them in memory."""

    def __init__(self, folder: Path, *, out: Path, documents: Documents) -> None:
        """Begin without files; `writing` is the way in."""
        self._folder = folder
        self._out = out
        self._documents = documents
        self._files: dict[str, _PackedLines] = {}
        self._seen = Seen()
        self._notes: list[str] = []

    @property
    def made(self) -> Made:
        """What was written until now."""
        examples = {f"{name}.jsonl.gz": lines.rows for name, lines in self._files.items() if name != CORPUS}
        return Made(self._out, len(self._seen), examples, tuple(self._notes))

    def document(self, doc_id: str, text: str, *, title: str = "") -> str:
        """Give a document, as often as examples name it; it is written once."""
        if self._documents == "texts":
            return f"{title} {text}".strip()
        if self._seen.add(doc_id):
            self._lines(CORPUS).add({"_id": doc_id, **({"title": title} if title else {}), "text": text})
        return doc_id

    def example(self, stem: str, row: Mapping[str, Any]) -> None:
        """Write one row of examples."""
        if stem == CORPUS:
            raise ValueError(f"stem must be other than {CORPUS}, which documents are written to")
        self._lines(stem).add(row)

    def triplet(self, stem: str, query_id: str, query: str, *, positives: Sequence[str], negatives: Sequence[str]) -> None:
        """Write a query with its documents."""
        address = {"query_id": query_id} if self._documents == "ids" else {}
        self.example(stem, {**address, "query": query, "pos": positives, "neg": negatives})

    def note(self, sentence: str) -> None:
        """Say what was left out, or looks odd."""
        self._notes.append(sentence)

    def finish(self) -> None:
        """Bring every file to the disk."""
        for lines in self._files.values():
            lines.finish()

    def abandon(self) -> None:
        """Let go of files that are still open."""
        for lines in self._files.values():
            lines.abandon()

    def _lines(self, stem: str) -> "_PackedLines":
        if stem not in self._files:
            self._files[stem] = _PackedLines(self._folder / f"{stem}.jsonl.gz")
        return self._files[stem]


@contextmanager
def writing(
    out: Path, *, maker: str, source: Path, settings: Section, documents: Documents = "ids", sealed: bool = False
) -> Iterator[Output]:
    """Fill a directory that appears when the block ends, and does not where the block fails.

    The work is done in a hidden directory beside it. What a killed process left there is thrown away by the next one.

    Args:
        out: Missing, or an empty directory.
    """
    target = Path(os.path.realpath(out))
    _require_free(out, target)
    work = target.with_name(f".{target.name}.making")
    missing = [place for place in work.parents if not place.exists()]
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove(work, missing)
        raise DataError(f"--out must be a directory that can be made, got {out}: {error.strerror}; choose another") from error
    with sole_writer(work), _disk_full_is_plain(out):
        output = Output(work, out=out, documents=documents)
        try:
            _empty(work)
            yield output
            _require_examples(output.made, source)
            output.finish()
            write_text(_told(output.made, maker, source, settings), work / MADE)
            if sealed:
                seal(work, sorted(path.name for path in work.iterdir() if path.suffix in (".gz", ".json")))
            _move(work, target, out)
        finally:
            output.abandon()
            _remove(work, missing)


def _require_free(out: Path, target: Path) -> None:
    if target.is_dir() and not os.path.ismount(target) and target != Path.cwd().resolve():
        held = sorted(child.name for child in target.iterdir())
        if held:
            more = f" and {len(held) - 3} more" if len(held) > 3 else ""
            raise DataError(f"--out must be a new or empty directory, {out} holds {', '.join(held[:3])}{more}; choose another")
    elif target.exists():
        kind = "a mount point or the current directory" if target.is_dir() else "a file"
        raise DataError(f"--out must be a directory that can be replaced, {out} is {kind}; choose one within it or beside it")


def _require_examples(made: Made, source: Path) -> None:
    if not made.examples:
        reasons = f" ({'; '.join(made.notes)})" if made.notes else ""
        raise DataError(f"{source} must give at least one example, got none{reasons}; check that it is the file meant")


def _told(made: Made, maker: str, source: Path, settings: Section) -> str:
    plain = {
        "format": FORMAT,
        "maker": maker,
        "source": str(source),
        "source_bytes": {path.name: path.stat().st_size for path in _source_files(source)},
        "settings": settings.model_dump(mode="json"),
        "documents": made.documents,
        "examples": dict(made.examples),
        "notes": list(made.notes),
        "created": now(),
        "versions": versions("cpu"),
    }
    return sealed_json(plain)


def _source_files(source: Path) -> list[Path]:
    return sorted(path for path in source.iterdir() if path.is_file()) if source.is_dir() else [source]


def _move(work: Path, target: Path, out: Path) -> None:
    """Put the finished directory into its place, and make the move last through a power cut."""
    try:
        work.replace(target)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise DataError(f"--out must still be missing or empty when it is done, got {out}: {error.strerror}; choose another") from error
    handle = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _empty(folder: Path) -> None:
    for child in folder.iterdir():
        child.unlink()


def _remove(work: Path, parents: list[Path]) -> None:
    """Leave nothing of a maker that failed; of one that succeeded there is nothing to remove."""
    shutil.rmtree(work, ignore_errors=True)
    for place in parents:
        with suppress(OSError):  # One that holds something stays.
            place.rmdir()


@contextmanager
def _disk_full_is_plain(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise DataError(f"--out must have room, {out} has none: {error.strerror}; free some, or choose another disk") from error


class _PackedLines:
    """A gzip file of JSON lines; equal rows give equal bytes, for no time and no name is written into it."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        # Closed by `finish` or `abandon`: it lives as long as the block of `writing`.
        self._file = path.open("wb")
        self._packer = zlib.compressobj(_PACKING_LEVEL, wbits=31)  # 31: with gzip's header around it.
        self._waiting = bytearray()

    def add(self, row: Mapping[str, Any]) -> None:
        self._waiting += json.dumps(row, ensure_ascii=False).encode("utf-8")
        self._waiting += b"\n"
        self.rows += 1
        if len(self._waiting) >= _PACKED_AT_A_TIME:
            self._pack()

    def _pack(self) -> None:
        self._file.write(self._packer.compress(self._waiting))
        self._waiting.clear()

    def finish(self) -> None:
        self._pack()
        self._file.write(self._packer.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self) -> None:
        with suppress(OSError):
            self._file.close()


class Tally:
    """Counts of what was taken and what was left out."""

    def __init__(self, things: str) -> None:
        """Begin at zero."""
        self._things = things
        self._total = 0
        self._dropped: Counter[str] = Counter()

    def take(self) -> None:
        """Count one that is looked at."""
        self._total += 1

    def drop(self, reason: str) -> None:
        """Count one of those looked at as left out."""
        self._dropped[reason] += 1

    def tell(self, output: Output) -> None:
        """Write a note for each reason."""
        for reason, count in self._dropped.items():
            output.note(f"{count:,} of {self._total:,} {self._things} left out: {reason}")
