"""The resumable part of making a store: a folder that takes the corpus once and then its vectors, a whole chunk at a time."""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt64

from adiabat.data.records import Document, Side
from adiabat.errors import AdiabatError, Faults, StoreError, several
from adiabat.model.fingerprint import Fingerprint
from adiabat.store.ids import ID_BATCH, TEXT_BATCH, IdIndex, StringColumn, StringColumnWriter, hash_ids, refuse_duplicates, unwritable
from adiabat.store.manifest import (
    ID_FILE,
    INDEX_FILE,
    LONGEST,
    SHORTEST,
    STATE_FILE,
    TEXT_FILE,
    VECTOR_FILE,
    StoreDtype,
    VectorFile,
    read_json,
    write_json,
)

_STATE_NAMES = ("fingerprint", "dtype", "chunk_size", "corpus", "count", "encoded")

Progress = Callable[[int, int], None]
"""Called with (documents done, documents in all)."""


@runtime_checkable
class DocumentEncoder(Protocol):
    """What building a store asks of an encoder."""

    @property
    def width(self) -> int:
        """Numbers per vector (E)."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """What decides the vectors of one side.

        Args:
            side: Query or document.

        Returns:
            The fingerprint; equal for encoders that give equal vectors.
        """

    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        """Vectors of texts, in their order.

        Args:
            texts: Any number.
            side: Query or document.

        Returns:
            One row per text, float32.
        """


@dataclass(frozen=True, slots=True)
class Plan:
    """What must stay the same when a cut-short build goes on.

    Attributes:
        fingerprint: Of the encoder.
        dtype: Of the stored vectors.
    """

    fingerprint: Fingerprint
    dtype: StoreDtype

    def differences(self, other: "Plan") -> list[str]:
        """Name what differs.

        Args:
            other: The plan of the call at hand; `self` is what lies on disk.

        Returns:
            Phrases; empty where both agree.
        """
        dtype = [] if self.dtype == other.dtype else [f"dtype {self.dtype} in the store, {other.dtype} asked for"]
        return self.fingerprint.differences(other.fingerprint) + dtype


class Staging:
    """A folder in which a store, or an addition to one, is made.

    ``state.json`` holds the plan, and then, as they become true: the corpus is written (its digest and count), so many rows are encoded.
    Each is on disk before the state says so; therefore a killed process loses at most the chunk it was at.
    """

    def __init__(self, folder: Path, plan: Plan, state: dict[str, Any], remedy: str) -> None:
        """Take over a prepared folder; `Staging.prepare` is the way in.

        Args:
            folder: Where the files lie.
            plan: Of the call at hand.
            state: Content of ``state.json``.
            remedy: What to do about a folder that was begun otherwise, for messages.
        """
        self.folder, self.plan, self._state, self._remedy = folder, plan, state, remedy

    @classmethod
    def prepare(cls, folder: Path, plan: Plan, *, chunk_size: int, remedy: str) -> "Staging":
        """Create the folder, or go on in one that was left behind.

        Args:
            folder: Where to work; it exists.
            plan: What is to be made.
            chunk_size: Documents encoded between two commits; a resumed build keeps the size it began with, so that its chunks, and so its
                vectors, are the same.
            remedy: What to do about a folder that was begun otherwise, for messages.

        Returns:
            The staging.

        Raises:
            StoreError: If the folder was begun with another plan, or holds something else.
        """
        if (folder / STATE_FILE).exists():
            state = read_json(folder / STATE_FILE)
            if lacking := [name for name in _STATE_NAMES if name not in state]:
                raise StoreError(f"{folder} must be empty or a build cut short, its {STATE_FILE} lacks {', '.join(lacking)}; {remedy}")
            begun = Plan(Fingerprint.from_json(state["fingerprint"]), state["dtype"])
            if differences := begun.differences(plan):
                raise StoreError(f"{folder} was begun otherwise: {'; '.join(differences)}; {remedy}")
            return cls(folder, plan, state, remedy)
        strangers = sorted(child.name for child in folder.iterdir() if not child.name.startswith(STATE_FILE))
        if strangers:
            raise StoreError(f"{folder} must be empty or a build cut short, it holds {', '.join(strangers[:5])}; {remedy}")
        values = (plan.fingerprint.to_json(), plan.dtype, chunk_size, None, 0, 0)
        state = dict(zip(_STATE_NAMES, values, strict=True))
        write_json(folder / STATE_FILE, state)
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

    def take_corpus(self, documents: Iterable[Document], *, source: str) -> None:
        """Write ids and texts, or check that they are those written before.

        Args:
            documents: The whole corpus.
            source: Its name, for messages.

        Raises:
            StoreError: If ids repeat, texts are not Unicode, or the corpus is not the one the build began with.
        """
        if self._state["corpus"] is not None:
            if digest_documents(documents) != self.corpus:
                raise StoreError(f"{self.folder} was begun with another corpus than {source}; {self._remedy}")
            return
        try:
            digest, hashes = write_corpus(documents, self.folder, source=source)
        except AdiabatError:
            # The corpus is to be mended, and nothing was encoded yet: leave nothing half-written.
            self.discard()
            raise
        self._commit(corpus=digest, count=len(hashes))

    def encode(self, encoder: DocumentEncoder, on_progress: Progress | None) -> int:
        """Encode what is not yet encoded.

        Args:
            encoder: Of the plan.
            on_progress: Called at the start and after each chunk.

        Returns:
            Documents encoded by this call.

        Raises:
            StoreError: If a vector cannot be stored.
        """
        began, chunk = self.encoded, int(self._state["chunk_size"])
        ids, texts = StringColumn(self.folder / ID_FILE), _chunks(StringColumn(self.folder / TEXT_FILE), began, chunk)
        report = on_progress or (lambda done, total: None)
        report(began, self.count)
        with VectorFile(self.folder / VECTOR_FILE, dtype=self.plan.dtype, width=encoder.width, rows=began) as vectors:
            for part in texts:
                block = self._encode_chunk(encoder, part, ids)
                vectors.append(block)
                vectors.commit()
                self._commit(encoded=vectors.rows)
                report(vectors.rows, self.count)
        return self.encoded - began

    def _encode_chunk(self, encoder: DocumentEncoder, texts: list[str], ids: StringColumn) -> Float[np.ndarray, "n e"]:
        vectors = encoder.encode(texts, side="document")
        if vectors.shape != (len(texts), encoder.width):
            raise StoreError(f"encoder must give {len(texts)} vectors of width {encoder.width}, got shape {vectors.shape}")
        block = narrowed(vectors, self.plan.dtype)
        faulty, kinds = unusable(block)
        if len(faulty):
            names = ids.take(faulty + self.encoded)
            phrases = [f'"{name}" {kind}' for name, kind in zip(names, kinds, strict=True)]
            raise StoreError(
                f"vectors must be finite and of a length other than zero, got from the encoder: {several(phrases, of='vectors')}"
            )
        return block

    def _commit(self, **changes: str | int) -> None:
        self._state |= changes
        write_json(self.folder / STATE_FILE, self._state)

    def discard(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def narrowed(vectors: Float[np.ndarray, "n e"], dtype: StoreDtype) -> Float[np.ndarray, "n e"]:
    """Vectors in the store's dtype; what is too large for it becomes infinite, which `unusable` reports.

    Args:
        vectors: Any float dtype.
        dtype: Of the store.

    Returns:
        The converted vectors.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return vectors.astype(dtype, copy=False)


def unusable(vectors: Float[np.ndarray, "n e"]) -> tuple[np.ndarray, list[str]]:
    """Find rows that no similarity can be computed with.

    Args:
        vectors: As they are to be stored.

    Returns:
        Rows, ascending, and what each holds, in words.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ne,ne->n", vectors, vectors, dtype=np.float64))
        rows = np.flatnonzero(~((lengths >= SHORTEST) & (lengths <= LONGEST)))
    return rows, [_fault(vectors[row], float(lengths[row])) for row in rows]


def _fault(vector: Float[np.ndarray, " e"], length: float) -> str:
    if np.isnan(vector).any():
        return "holds NaN"
    if np.isinf(vector).any():
        return f"holds a number too large for {vector.dtype}"
    return "is zero" if length == 0 else f"has length {length:.1e}"


def digest_documents(documents: Iterable[Document]) -> str:
    """SHA-256 over ids and texts in order.

    Args:
        documents: The corpus.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for document in documents:
        digest.update(_digested(document))
    return digest.hexdigest()


def _digested(document: Document) -> bytes:
    """Id and text, each after its length, so that no two corpora give the same bytes."""
    parts = (string.encode("utf-8", "surrogatepass") for string in (document.doc_id, document.text))
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def write_corpus(documents: Iterable[Document], folder: Path, *, source: str) -> tuple[str, UInt64[np.ndarray, " n"]]:
    """Write the ids, the texts and the id index of a corpus.

    Args:
        documents: The corpus, read once.
        folder: Where the three files go.
        source: Name of the corpus, for messages.

    Returns:
        Digest of the corpus, and the hashes of its ids in order.

    Raises:
        StoreError: If ids repeat or strings are not Unicode.
    """
    digest, hashes, faults, stream = hashlib.sha256(), [], Faults(), iter(documents)
    with (
        StringColumnWriter(folder / ID_FILE, name="doc_id", batch_rows=ID_BATCH) as ids,
        StringColumnWriter(folder / TEXT_FILE, name="text", batch_rows=TEXT_BATCH) as texts,
    ):
        while part := list(islice(stream, ID_BATCH)):
            broken = unwritable(f"{document.doc_id}{document.text}" for document in part)
            faults.extend(f"document {part[place].doc_id!r}" for place in broken)
            if faults.count:
                continue
            for document in part:
                digest.update(_digested(document))
            hashes.append(hash_ids([document.doc_id for document in part]))
            ids.extend(document.doc_id for document in part)
            texts.extend(document.text for document in part)
    if faults.count:
        raise StoreError(
            f"{source}: ids and texts must be valid Unicode, got half a surrogate pair: {faults.told('documents')}; clean the corpus"
        )
    every = np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)
    refuse_duplicates(every, StringColumn(folder / ID_FILE), source)
    IdIndex.write(folder / INDEX_FILE, every)
    return digest.hexdigest(), every


def _chunks(column: StringColumn, start: int, size: int) -> Iterator[list[str]]:
    waiting: list[str] = []
    for part in column.slices(start):
        waiting += part
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting
