"""The resumable part of making a store: a folder to which the corpus is written once, and then its vectors, a whole chunk at a time."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64

from adiabat.core.checksums import Digest, require
from adiabat.core.errors import AdiabatError, StoreError, several
from adiabat.core.files import read_json, write_json
from adiabat.data.records import Document, Side
from adiabat.models.fingerprint import Fingerprint
from adiabat.store.corpus_files import DuplicateTexts, digest_documents, write_corpus
from adiabat.store.id_index import StringColumn
from adiabat.store.manifest import HASH_FILE, ID_FILE, LONGEST, SHORTEST, STATE_FILE, TEXT_FILE, VECTOR_FILE, StoreDtype, VectorFile
from adiabat.store.vector_store import Store

_STATE_NAMES = ("fingerprint", "dtype", "chunk_size", "corpus", "count", "files", "encoded", "sha256")

Progress = Callable[[int, int], None]
"""Called with (documents encoded, documents in all)."""


@runtime_checkable
class DocumentEncoder(Protocol):
    """What building a store asks of an encoder."""

    @property
    def width(self) -> int:
        """Numbers per vector (E)."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """What decides the vectors of one side."""

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        """Vectors of texts, in their order, float32."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What must stay the same when an interrupted build is resumed."""

    fingerprint: Fingerprint
    dtype: StoreDtype

    def differences(self, other: "BuildPlan") -> list[str]:
        """Phrases that name each difference."""
        dtype = [] if self.dtype == other.dtype else [f"dtype {self.dtype} in the store, {other.dtype} requested"]
        return self.fingerprint.differences(other.fingerprint) + dtype


class Staging:
    """A folder in which a store, or an addition to one, is made.

    ``state.json`` holds the plan. Later it says that the corpus is written (its digest and count, and the digest of each file), and how
    many rows are encoded (and the digest of their vectors). Each is on disk before the state says so, so a killed process loses at most
    one chunk. All digests are of the bytes that were computed, not of those that the disk gives back.
    """

    def __init__(self, folder: Path, plan: BuildPlan, state: dict[str, Any], remedy: str) -> None:
        """Take over a prepared folder; `Staging.prepare` is the way in."""
        self.folder, self.plan, self._state, self._remedy = folder, plan, state, remedy

    @classmethod
    def prepare(cls, folder: Path, plan: BuildPlan, *, chunk_size: int, remedy: str) -> "Staging":
        """Begin in an empty folder, or resume in one that an interrupted build left."""
        if (folder / STATE_FILE).exists():
            state = read_json(folder / STATE_FILE, remedy=remedy, error=StoreError)
            if lacking := [name for name in _STATE_NAMES if name not in state]:
                raise StoreError(f"{folder} must be empty or an interrupted build, its {STATE_FILE} lacks {', '.join(lacking)}; {remedy}")
            former = BuildPlan(Fingerprint.from_json(state["fingerprint"]), state["dtype"])
            if differences := former.differences(plan):
                raise StoreError(f"{folder} holds an interrupted build with other settings: {'; '.join(differences)}; {remedy}")
            return cls(folder, plan, state, remedy)
        # A killed write of the state may have left its temporary file, which begins with a dot.
        strangers = sorted(child.name for child in folder.iterdir() if not child.name.startswith(f".{STATE_FILE}"))
        if strangers:
            raise StoreError(f"{folder} must be empty or an interrupted build, it holds {', '.join(strangers[:5])}; {remedy}")
        # A resumed build keeps the chunk size of its beginning: other chunks would change the last bits of vectors.
        values: tuple[object, ...] = (plan.fingerprint.to_json(), plan.dtype, chunk_size, None, 0, {}, 0, "")
        state = dict(zip(_STATE_NAMES, values, strict=True))
        write_json(state, folder / STATE_FILE)
        return cls(folder, plan, state, remedy)

    @property
    def count(self) -> int:
        """Documents of the corpus."""
        return int(self._state["count"])

    @property
    def encoded(self) -> int:
        """Documents whose vectors are on disk."""
        return int(self._state["encoded"])

    @property
    def corpus(self) -> str:
        """Digest of the corpus."""
        return str(self._state["corpus"])

    @property
    def files(self) -> dict[str, Digest]:
        """Digest of each file of the corpus, by name."""
        return {name: Digest(**digest) for name, digest in self._state["files"].items()}

    @property
    def sha256(self) -> str:
        """Over the vectors that are on disk, header left out."""
        return str(self._state["sha256"])

    def write_corpus(self, documents: Iterable[Document], *, source: str) -> None:
        """Write ids and texts, or check that they are those written before."""
        if self._state["corpus"] is not None:
            if digest_documents(documents) != self.corpus:
                raise StoreError(f"{self.folder} holds an interrupted build of another corpus than {source}; {self._remedy}")
            require(self.files, self.folder, remedy=f"remove the folder {self.folder} and run the command again", error=StoreError)
            return
        try:
            corpus = write_corpus(documents, self.folder, source=source)
        except AdiabatError:
            # The corpus must be corrected, and nothing was encoded yet: leave nothing half-written.
            self.discard()
            raise
        self._commit(corpus=corpus.sha256, count=corpus.count, files={name: digest._asdict() for name, digest in corpus.files.items()})

    def encode(self, encoder: DocumentEncoder, on_progress: Progress | None, *, store: Store | None = None) -> int:
        """Encode the rest: each distinct text once, for the last bits of a vector depend on what is encoded beside it."""
        began, chunk_size = self.encoded, int(self._state["chunk_size"])
        ids, chunks = StringColumn(self.folder / ID_FILE), _chunks(StringColumn(self.folder / TEXT_FILE), began, chunk_size)
        report = on_progress or (lambda count, total: None)
        report(began, self.count)
        with VectorFile(self.folder / VECTOR_FILE, dtype=self.plan.dtype, width=encoder.width, rows=began, sha256=self.sha256) as vectors:
            before, offset = (None, 0) if store is None else (store.path / HASH_FILE, store.count)
            duplicates = DuplicateTexts.of(self.folder / HASH_FILE, after=before, offset=offset)
            chunk_encoder = _ChunkEncoder(encoder, vectors, ids, store, duplicates, self.plan.dtype)
            for texts in chunks:
                vectors.append(chunk_encoder.next_rows(texts))
                # Vectors are on disk before the state counts them.
                vectors.commit()
                self._commit(encoded=vectors.rows, sha256=vectors.sha256)
                report(vectors.rows, self.count)
        return self.encoded - began

    def _commit(self, **changes: object) -> None:
        self._state |= changes
        write_json(self._state, self.folder / STATE_FILE)

    def discard(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class _ChunkEncoder:
    """Makes the next rows of a vector file: encoded, or copied from an earlier row of equal text."""

    encoder: DocumentEncoder
    vectors: VectorFile
    ids: StringColumn
    store: Store | None
    duplicates: DuplicateTexts
    dtype: StoreDtype

    def next_rows(self, texts: list[str]) -> Float[np.ndarray, "n e"]:
        """Vectors of the next documents, as they are to be stored."""
        offset = 0 if self.store is None else self.store.count
        start = offset + self.vectors.rows
        duplicates = self.duplicates.between(start, start + len(texts))
        new = np.setdiff1d(np.arange(len(texts)), duplicates.rows - start)
        block = np.empty((len(texts), self.encoder.width), dtype=self.dtype)
        if len(new):
            block[new] = self._encoded([texts[index] for index in new], self.vectors.rows + new)
        # An original is a row of the store, of the file that is being written, or of this block, in that order of row numbers.
        readers = ((0, offset, self._stored), (offset, start, self.vectors.take), (start, start + len(texts), block.__getitem__))
        for low, high, read in readers:
            mask = (duplicates.originals >= low) & (duplicates.originals < high)
            if mask.any():
                block[duplicates.rows[mask] - start] = read(duplicates.originals[mask] - low)
        return block

    def _stored(self, rows: Int64[np.ndarray, " n"]) -> Float[np.ndarray, "n e"]:
        assert self.store is not None
        return self.store.gather(rows)

    def _encoded(self, texts: list[str], rows: Int64[np.ndarray, " n"]) -> Float[np.ndarray, "n e"]:
        vectors = self.encoder.encode(texts, side="document")
        if vectors.shape != (len(texts), self.encoder.width):
            raise StoreError(f"encoder must give {len(texts)} vectors of width {self.encoder.width}, got shape {vectors.shape}")
        block = to_dtype(vectors, self.dtype)
        faulty, faults = unusable_rows(block)
        if len(faulty):
            phrases = [f'"{doc_id}" {fault}' for doc_id, fault in zip(self.ids.take(rows[faulty]), faults, strict=True)]
            raise StoreError(
                f"vectors must be finite and of a length other than zero, got from the encoder: {several(phrases, of='vectors')}"
            )
        return block


def to_dtype(vectors: Float[np.ndarray, "n e"], dtype: StoreDtype) -> Float[np.ndarray, "n e"]:
    """Vectors in the store's dtype; a number too large for it becomes infinite, which `unusable_rows` reports."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return vectors.astype(dtype, copy=False)


def unusable_rows(vectors: Float[np.ndarray, "n e"]) -> tuple[np.ndarray, list[str]]:
    """Rows that no similarity can be computed with, and the fault of each."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ne,ne->n", vectors, vectors, dtype=np.float64))
        rows = np.flatnonzero(~((lengths >= SHORTEST) & (lengths <= LONGEST)))  # NaN is neither.
    return rows, [_fault(vectors[row], float(lengths[row])) for row in rows]


def _fault(vector: Float[np.ndarray, " e"], length: float) -> str:
    if np.isnan(vector).any():
        return "holds NaN"
    if np.isinf(vector).any():
        return f"holds a number too large for {vector.dtype}"
    return "is zero" if length == 0 else f"has length {length:.1e}"


def _chunks(column: StringColumn, start: int, size: int) -> Iterator[list[str]]:
    """Chunks of one size from a row on, whatever the batches of the file."""
    waiting: list[str] = []
    for batch in column.slices(start):
        waiting += batch
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting
