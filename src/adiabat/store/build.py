"""Building a store from a corpus, in a folder beside it: the build can be resumed at any point, and ends in
one rename.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int64

from adiabat.core.arrays import RowNumbers, VectorArray
from adiabat.core.disk import AnyPath, clear, is_part, make_folder, move, real, remove, sync
from adiabat.core.errors import AdiabatError, StoreError, several
from adiabat.core.files import is_store, read_json, sole_writer, write_json
from adiabat.core.formats import FORMAT, Format, rebuilt
from adiabat.core.progress import ignored
from adiabat.core.provenance import Digest, now, require
from adiabat.core.wording import again, option
from adiabat.data.records import Document, Fingerprint, Side
from adiabat.store.corpus_files import StringColumn, digest_documents, duplicate_texts, write_corpus
from adiabat.store.manifest import (
    DISK_FULL,
    GRAPH_FILES,
    HASH_FILE,
    ID_FILE,
    LONGEST,
    SHORTEST,
    STATE_FILE,
    TEXT_FILE,
    VECTOR_FILE,
    Manifest,
    Quantisation,
    StoreDtype,
    VectorFile,
    building_of,
    exists,
    plain_disk_errors,
)
from adiabat.store.vector_store import Store

CHUNK_SIZE = 2048
"""Documents per commit: enough to sort by length, few enough to lose little."""

Progress = Callable[[int, int], None]
"""Called with (documents encoded, documents in all)."""


@runtime_checkable
class DocumentEncoder(Protocol):
    """Interface that building a store needs of an encoder."""

    @property
    def width(self) -> int:
        """Width of a vector (E)."""

    def fingerprint(self, side: Side) -> Fingerprint:
        """Fingerprint of everything that decides the vectors of one side."""

    def encode(self, texts: Sequence[str], *, side: Side) -> VectorArray:
        """Vectors of texts, in their order, float32."""


INT8 = "openvino int8"
"""How a quantised graph is named as what encodes."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """What encodes the documents of a build in place of torch.

    Attributes:
        by: ``openvino fp32``, ``openvino bf16`` or `INT8`; "" for torch.
        quantised: `Fingerprint.quantised` of the vectors.
        files: Digests of the files of a quantised graph, by name, which stay in the store.
        quantisation: What it changes; None for others.
    """

    by: str = ""
    quantised: str = ""
    files: Mapping[str, Digest] = field(default_factory=dict)
    quantisation: Quantisation | None = None


@runtime_checkable
class EncodingChoice(Protocol):
    """What chooses how a corpus is encoded, once it is on disk.

    A build goes on as it began: other bits, or other roundings, in the rest of a store would be neither's.
    """

    @property
    def quantises(self) -> bool:
        """Whether the settings ask for int8."""

    def choose(self, texts: StringColumn, distinct: int, folder: Path) -> Encoding:
        """Choose for a corpus of so many distinct texts; what must stay is written into a folder."""

    def resume(self, by: str, folder: Path) -> None:
        """Encode as an interrupted build began, whose folder has its quantised graph, or refuse to."""

    def follow(self, store: Store) -> None:
        """Encode by the quantised graph of a store that is extended."""


STATE = Format(1, oldest=1)
"""Format of the state of a build."""


@dataclass(frozen=True, slots=True)
class BuildState:
    """State of a build, as in ``state.json``.

    Attributes:
        chunk_size: Documents between two commits.
        corpus: Digest of the corpus; None until it is written.
        count: Documents of the corpus.
        files: Digest of each file of the corpus, by name.
        encoded: Documents whose vectors are on disk.
        sha256: SHA-256 of these vectors, without header.
        encoding: `Encoding.by` of the build.
        quantisation: What int8 changes in its vectors.
    """

    fingerprint: Fingerprint
    dtype: StoreDtype
    chunk_size: int
    corpus: str | None = None
    count: int = 0
    files: Mapping[str, Digest] = field(default_factory=dict)
    encoded: int = 0
    sha256: str = ""
    encoding: str = ""
    quantisation: Quantisation | None = None

    @classmethod
    def read(cls, folder: Path, remedy: str) -> "BuildState":
        """The inverse of `write`."""
        path = folder / STATE_FILE
        record = read_json(path, remedy=remedy, error=StoreError)
        STATE.require(record.pop(FORMAT, STATE.oldest), path, older=remedy, error=StoreError)
        optional = ("encoding", "quantisation", "quantised")
        needed = [name for name in cls.__dataclass_fields__ if name not in optional]
        if lacking := [name for name in needed if name not in record]:
            raise StoreError(
                f"{folder} must be empty or an interrupted build, its {STATE_FILE} "
                f"lacks {', '.join(lacking)}; {remedy}"
            )
        return rebuilt(cls, record, path, remedy=remedy, error=StoreError, optional=optional)

    def write(self, folder: Path) -> None:
        """Write the state into `folder` atomically; a build by torch has the keys of earlier versions."""
        record = {**STATE.stamp(), **asdict(self), "fingerprint": self.fingerprint.to_json()}
        record["files"] = {name: digest._asdict() for name, digest in self.files.items()}
        if not self.encoding:
            del record["encoding"]
        if self.quantisation is None:
            del record["quantisation"]
        write_json(record, folder / STATE_FILE)


def differences(former: BuildState | Manifest, fingerprint: Fingerprint, dtype: StoreDtype) -> list[str]:
    """Phrases for each difference between the encoder of a build and the requested one."""
    assert former.fingerprint is not None
    dtypes = [] if former.dtype == dtype else [f"dtype {former.dtype} in the store, {dtype} requested"]
    return former.fingerprint.differences(fingerprint) + dtypes


Duplicates = tuple[Int64[np.ndarray, " d"], Int64[np.ndarray, " d"]]


class Staging:
    """A folder in which a store, or an addition to one, is built, so that a killed process can go on.

    Its state first holds the settings, then that the corpus is written, then how many rows are encoded. Each
    is on disk before the state records it, so a killed process loses at most one chunk. All digests are of
    the computed bytes, not of those read back from disk.
    """

    def __init__(self, folder: Path, state: BuildState, remedy: str) -> None:
        """Use a prepared folder; `Staging.prepare` creates it."""
        self.folder, self.state, self._remedy = folder, state, remedy

    @classmethod
    def prepare(
        cls, folder: Path, fingerprint: Fingerprint, dtype: StoreDtype, *, chunk_size: int, remedy: str
    ) -> "Staging":
        """Start in an empty folder, or resume in that of an interrupted build."""
        if exists(folder / STATE_FILE):
            # A resumed build keeps its original chunk size: other chunks would change the last bits of
            # vectors.
            state = BuildState.read(folder, remedy)
            if changes := differences(state, fingerprint, dtype):
                raise StoreError(
                    f"{folder} holds an interrupted build with other settings: {'; '.join(changes)}; {remedy}"
                )
            return cls(folder, state, remedy)
        refuse_files(folder, parts_too=False, demand="empty or an interrupted build", remedy=remedy)
        state = BuildState(fingerprint, dtype, chunk_size)
        state.write(folder)
        return cls(folder, state, remedy)

    def write_corpus(self, documents: Iterable[Document], *, source: str) -> None:
        """Write ids and texts, or check that they equal those written before."""
        if self.state.corpus is not None:
            if digest_documents(documents) != self.state.corpus:
                raise StoreError(
                    f"{self.folder} holds an interrupted build of another corpus "
                    f"than {source}; {self._remedy}"
                )
            remedy = f"remove the folder {self.folder} and {again()}"
            require(self.state.files, self.folder, remedy=remedy, error=StoreError)
            return
        try:
            corpus = write_corpus(documents, self.folder, source=source)
        except AdiabatError:
            # The corpus must be corrected, and nothing is encoded yet, so leave nothing behind.
            self.discard()
            raise
        self._commit(replace(self.state, corpus=corpus.sha256, count=corpus.count, files=corpus.files))

    def settle(self, choice: EncodingChoice, store: Store | None = None) -> None:
        """Settle what encodes the documents: what an interrupted build began with, or the quantised graph of
        the store that is extended, or else what is chosen now.
        """
        state = self.state
        if store is not None and store.manifest.is_quantised:
            choice.follow(store)
            return
        if state.encoding or state.encoded:
            choice.resume(state.encoding, self.folder)
            return
        distinct = state.count - len(self._duplicates(store)[0])
        chosen = choice.choose(StringColumn(self.folder / TEXT_FILE), distinct, self.folder)
        self._commit(
            replace(
                state,
                fingerprint=replace(state.fingerprint, quantised=chosen.quantised),
                files={**state.files, **chosen.files},
                encoding=chosen.by,
                quantisation=chosen.quantisation,
            )
        )

    def _duplicates(self, store: Store | None) -> Duplicates:
        """Rows whose text occurred before, counted on from those of the store that the corpus extends, and
        the first row of each such text.
        """
        offset, before = 0, None
        if store is not None:
            offset = store.count
            before = store.path / HASH_FILE if HASH_FILE in store.manifest.files else None
        return duplicate_texts(self.folder / HASH_FILE, after=before, offset=offset)

    def encode(
        self, encoder: DocumentEncoder, on_progress: Progress | None, *, store: Store | None = None
    ) -> int:
        """Encode the remaining documents: each distinct text once, because the last bits of a vector depend
        on its batch.
        """
        state = self.state
        duplicates = self._duplicates(store)
        report = on_progress or ignored
        report(state.encoded, state.count)
        file, dtype = self.folder / VECTOR_FILE, state.dtype
        written = VectorFile(file, dtype=dtype, width=encoder.width, rows=state.encoded, sha256=state.sha256)
        with written as vectors:
            for texts in _chunks(StringColumn(self.folder / TEXT_FILE), state.encoded, state.chunk_size):
                vectors.append(self._next_rows(texts, encoder, vectors, store, duplicates))
                # Write vectors to disk before the state counts them.
                vectors.commit()
                self._commit(replace(state, encoded=vectors.rows, sha256=vectors.sha256))
                report(vectors.rows, state.count)
        return self.state.encoded - state.encoded

    def _next_rows(
        self,
        texts: list[str],
        encoder: DocumentEncoder,
        vectors: VectorFile,
        store: Store | None,
        duplicates: Duplicates,
    ) -> VectorArray:
        """Vectors of the next documents, in the stored dtype: encoded, or copied from an earlier row with the
        same text.

        `duplicates` are rows whose text occurred before, ascending, and the first row of each such text. Rows
        count on from those of the store that the corpus extends.
        """
        offset = 0 if store is None else store.count
        start = offset + vectors.rows
        of_these = slice(*np.searchsorted(duplicates[0], [start, start + len(texts)]))
        rows, originals = (column[of_these] for column in duplicates)
        new = np.setdiff1d(np.arange(len(texts)), rows - start)
        block = np.empty((len(texts), encoder.width), dtype=self.state.dtype)
        if len(new):
            block[new] = self._encoded(encoder, [texts[index] for index in new], vectors.rows + new)
        # The original is a row of the store, of the file being written, or of this block, in that order of
        # row numbers.
        stored = vectors.take if store is None else store.gather
        for low, high, read in (
            (0, offset, stored),
            (offset, start, vectors.take),
            (start, start + len(texts), block.__getitem__),
        ):
            inside = (originals >= low) & (originals < high)
            if inside.any():
                block[rows[inside] - start] = read(originals[inside] - low)
        return block

    def _encoded(self, encoder: DocumentEncoder, texts: list[str], rows: RowNumbers) -> VectorArray:
        """Vectors of texts in the store's dtype; unusable ones are reported with their ids."""
        vectors = encoder.encode(texts, side="document")
        if vectors.shape != (len(texts), encoder.width):
            raise StoreError(
                f"encoder must give {len(texts)} vectors of width {encoder.width}, got shape {vectors.shape}"
            )
        block = to_dtype(vectors, self.state.dtype)
        faulty, faults = unusable_rows(block)
        if len(faulty):
            ids = StringColumn(self.folder / ID_FILE).take(rows[faulty])
            phrases = [f'"{doc_id}" {fault}' for doc_id, fault in zip(ids, faults, strict=True)]
            raise StoreError(
                "vectors must be finite and of a length other than zero, got from the "
                f"encoder: {several(phrases, of='vectors')}"
            )
        return block

    def _commit(self, state: BuildState) -> None:
        self.state = state
        state.write(self.folder)

    def discard(self) -> None:
        """Remove the folder."""
        clear(self.folder)


def to_dtype(vectors: VectorArray, dtype: StoreDtype) -> VectorArray:
    """Vectors in the store's dtype; a number beyond its range becomes infinite, which `unusable_rows`
    reports.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        return vectors.astype(dtype, copy=False)


def unusable_rows(vectors: VectorArray) -> tuple[np.ndarray, list[str]]:
    """Rows for which no similarity can be computed, with the fault of each."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(np.einsum("ne,ne->n", vectors, vectors, dtype=np.float64))
        rows = np.flatnonzero(~((lengths >= SHORTEST) & (lengths <= LONGEST)))  # NaN is neither.
    return rows, [_fault(vectors[row], float(lengths[row])) for row in rows]


def _fault(vector: Float[np.ndarray, " e"], length: float) -> str:
    """Why no similarity can be computed for a vector."""
    if np.isnan(vector).any():
        return "holds NaN"
    if np.isinf(vector).any():
        return f"holds a number too large for {vector.dtype}"
    return "is zero" if length == 0 else f"has length {length:.1e}"


def _chunks(column: StringColumn, start: int, size: int) -> Iterator[list[str]]:
    """Chunks of one size from a row on, independent of the batches of the file."""
    waiting: list[str] = []
    for batch in column.slices(start):
        waiting += batch
        while len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting


@dataclass(frozen=True, slots=True)
class BuildResult:
    """Outcome of `build_store`.

    Attributes:
        encoded: Number of documents that this call encoded.
        resumed: Number of documents that an earlier, interrupted call had encoded.
        note: A note for the user; "" for none.
    """

    store: Store
    encoded: int
    resumed: int
    note: str = ""


def build_store(
    encoder: DocumentEncoder,
    documents: Callable[[], Iterator[Document]],
    out: AnyPath,
    *,
    dtype: StoreDtype = "float16",
    keep_texts: bool = True,
    chunk_size: int = CHUNK_SIZE,
    choice: EncodingChoice | None = None,
    on_progress: Progress | None = None,
    source: str,
    encoder_name: str,
) -> BuildResult:
    """Encode a corpus into a store; without a `choice`, as the encoder does.

    An interrupted call leaves ``<out>.building``. The same call resumes from its last whole chunk, and writes
    the same bytes as an uninterrupted call. A finished store of the same encoder and corpus is returned
    unchanged; any other content of `out` is refused.
    """
    target, fingerprint = Path(out), encoder.fingerprint("document")
    if is_store(target):
        quantises = choice is not None and choice.quantises
        return _finished(target, fingerprint, dtype, documents, keep_texts, source, quantises=quantises)
    building = begin(target)
    with plain_disk_errors(building), sole_writer(building):
        staging = Staging.prepare(
            building,
            fingerprint,
            dtype,
            chunk_size=chunk_size,
            remedy=f"remove it, or choose another {option('out')}",
        )
        resumed = staging.state.encoded
        staging.write_corpus(documents(), source=source)
        if not staging.state.count:
            staging.discard()
            raise StoreError(f"{source} must hold at least one document, got none")
        if choice is not None:
            staging.settle(choice)
        encoded = staging.encode(encoder, on_progress)
        state = staging.state
        manifest = Manifest(
            fingerprint=state.fingerprint,
            dtype=dtype,
            width=encoder.width,
            count=state.count,
            sha256=state.sha256,
            files={name: digest for name, digest in state.files.items() if keep_texts or name != TEXT_FILE},
            corpus=state.corpus,
            encoder=encoder_name,
            source=source,
            created=now(),
            quantisation=state.quantisation,
        )
        note = f"resumed after {resumed} documents" if resumed else ""
        return BuildResult(finish(building, target, manifest), encoded, resumed, note)


def require_target(target: Path) -> None:
    """Refuse a place in which no store can be built."""
    other = f"choose another {option('out')}"
    if target.exists():
        if not target.is_dir():
            raise StoreError(f"{target} must be a directory, it is a file; {other}")
        refuse_files(target, parts_too=True, demand="empty or a store", remedy=other)
    # The last step renames the building folder to the target, which neither of these allows.
    place = os.path.realpath(target)
    if os.path.ismount(place) or place == os.path.realpath(os.curdir):
        raise StoreError(
            f"{target} must be a directory that can be replaced, it is the current directory or a mount "
            f"point; choose one within it, as {option('out', target / 'store')}"
        )


def refuse_files(folder: Path, *, parts_too: bool, demand: str, remedy: str) -> None:
    """Refuse a folder that is not empty; temporary files of killed processes are passed over unless
    `parts_too`.
    """
    names = sorted(child.name for child in folder.iterdir() if parts_too or not is_part(child))
    if names:
        raise StoreError(f"{folder} must be {demand}, it holds {', '.join(names[:5])}; {remedy}")


def begin(target: Path) -> Path:
    """Prepare the folder in which the store for `target` is built."""
    require_target(target)
    building = building_of(target)
    try:
        make_folder(building, parents=True)
    except OSError as error:
        raise StoreError(
            f"{target} must be a directory that can be created, got: {error.strerror}; "
            f"choose another {option('out')}"
        ) from error
    return building


def finish(building: Path, target: Path, manifest: Manifest) -> Store:
    """Write the manifest and rename the folder to the target, which is missing or empty, or a link to such a
    directory.
    """
    manifest.write(building)
    place = Path(os.path.realpath(target))
    try:
        move(building, place)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise StoreError(
            f"{target} must be missing or empty when its store is moved there, got: {error.strerror}; the "
            f"work is kept in {building}: clear {target} and {again()}, or move the store from there yourself"
        ) from error
    sync(place.parent)
    clear_traces(target, manifest)
    return Store.open(target)


def clear_traces(target: Path, manifest: Manifest) -> None:
    """Remove the files that only building needed, once the store is in place; until then, a call may resume
    from them.
    """
    # A graph that is not of this store was left by a build that was killed while it was quantised.
    for name in {TEXT_FILE, HASH_FILE, STATE_FILE, *GRAPH_FILES} - set(manifest.files):
        remove(real(target) / name)


def _finished(
    target: Path,
    fingerprint: Fingerprint,
    dtype: StoreDtype,
    documents: Callable[[], Iterator[Document]],
    keep_texts: bool,
    source: str,
    *,
    quantises: bool,
) -> BuildResult:
    """The store at the target, if its encoder, texts and corpus are those of this call."""
    store = Store.open(target)
    if store.fingerprint is None:
        raise StoreError(
            f"{target} holds imported vectors whose encoder is unknown; choose another {option('out')}"
        )
    changes = differences(store.manifest, fingerprint, dtype)
    if quantises != store.manifest.is_quantised:
        stored, requested = ("int8", "none") if store.manifest.is_quantised else ("none", "int8")
        changes.append(f"quantisation {stored} in the store, {requested} requested")
    if keep_texts != store.has_texts:
        changes.append(f"texts kept: {store.has_texts} in the store, {keep_texts} requested")
    if changes:
        advice = f"remove it, or choose another {option('out')}"
        raise StoreError(f"{target} is a store with other settings: {'; '.join(changes)}; {advice}")
    if store.manifest.corpus != digest_documents(documents()):
        advice = f"encode what changed with {option('update', True)}, or choose another {option('out')}"
        raise StoreError(f"{target} is a store of another corpus than {source}; {advice}")
    clear_traces(target, store.manifest)
    note = f"{target} was finished before: the same encoder and corpus, {store.count} documents"
    return BuildResult(store, encoded=0, resumed=0, note=note)
