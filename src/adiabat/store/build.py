"""Building a store from a corpus, in a folder beside the store: it can be resumed at any moment, and ends in one rename."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from adiabat.core.errors import StoreError
from adiabat.core.files import is_store, sole_writer
from adiabat.core.provenance import now
from adiabat.data.records import Document
from adiabat.store.corpus_files import digest_documents
from adiabat.store.manifest import (
    DISK_FULL,
    DTYPES,
    HASH_FILE,
    STATE_FILE,
    TEXT_FILE,
    Manifest,
    StoreDtype,
    building_of,
    plain_disk_errors,
    sync_folder,
)
from adiabat.store.staging import BuildPlan, DocumentEncoder, Progress, Staging
from adiabat.store.vector_store import Store

CHUNK_SIZE = 2048
"""Documents between two commits: enough to sort by length within, few enough to lose little."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """What a call of `build_store` did.

    Attributes:
        encoded: Documents that this call encoded.
        resumed: Documents that an earlier, interrupted call had encoded.
        note: One line for people, "" for none.
    """

    store: Store
    encoded: int
    resumed: int
    note: str = ""


def build_store(
    encoder: DocumentEncoder,
    documents: Callable[[], Iterator[Document]],
    out: str | os.PathLike[str],
    *,
    dtype: StoreDtype = "float16",
    keep_texts: bool = True,
    chunk_size: int = CHUNK_SIZE,
    on_progress: Progress | None = None,
    source: str,
    encoder_name: str,
) -> BuildResult:
    """Encode a corpus into a store.

    An interrupted call leaves ``<out>.building``. The same call resumes from its last whole chunk, and writes the bytes of a call that ran
    through. A finished store of the same encoder and corpus is returned as it is.

    Args:
        out: Directory of the store; must not exist, be empty, or be the store of an earlier call.
    """
    if dtype not in DTYPES:
        raise StoreError(f"dtype must be float16 or float32, got {dtype}")
    if chunk_size < 1:
        raise StoreError(f"chunk_size must be at least 1, got {chunk_size}")
    target = Path(out)
    plan = BuildPlan(encoder.fingerprint("document"), dtype)
    if is_store(target):
        return _finished(target, plan, documents, keep_texts, source)
    building = begin(target)
    with plain_disk_errors(building), sole_writer(building):
        staging = Staging.prepare(building, plan, chunk_size=chunk_size, remedy="remove it, or choose another --out")
        resumed = staging.encoded
        staging.write_corpus(documents(), source=source)
        if not staging.count:
            staging.discard()
            raise StoreError(f"{source} must hold at least one document, got none")
        encoded = staging.encode(encoder, on_progress)
        manifest = _manifest(staging, encoder.width, keep_texts=keep_texts, encoder=encoder_name, source=source)
        note = f"resumed after {resumed} documents" if resumed else ""
        return BuildResult(finish(building, target, manifest), encoded, resumed, note)


def begin(target: Path) -> Path:
    """Prepare the folder in which the store for `target` is built."""
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} must be a directory, it is a file; choose another --out")
    if names := sorted(child.name for child in target.iterdir())[:5] if target.exists() else []:
        raise StoreError(f"{target} must be empty or a store, it holds {', '.join(names)}; choose another --out")
    # The last step renames the building folder to the target, which neither of these allows.
    real, kind = os.path.realpath(target), ""
    if os.path.ismount(real):
        kind = "a mount point"
    elif real == os.path.realpath(os.curdir):
        kind = "the current directory"
    if kind:
        raise StoreError(
            f"{target} must be a directory that can be replaced, it is {kind}; choose one within it, as --out {target / 'store'}"
        )
    building = building_of(target)
    try:
        building.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{target} must be a directory that can be made, got: {error.strerror}; choose another --out") from error
    return building


def finish(building: Path, target: Path, manifest: Manifest) -> Store:
    """Write the manifest and rename the folder to the target, which is missing or empty, or a link to such a directory."""
    manifest.write(building)
    real = Path(os.path.realpath(target))
    try:
        building.replace(real)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise StoreError(
            f"{target} must be missing or empty when its store is moved there, got: {error.strerror}; "
            f"the work is kept in {building}: clear {target} and run the same command again, or move that folder where the store may lie"
        ) from error
    sync_folder(real.parent)
    _clear_traces(target, manifest)
    return Store.open(target)


def _clear_traces(target: Path, manifest: Manifest) -> None:
    """Remove the files that only building needed; once the store is in place, for until then a call may resume from them."""
    for name in {TEXT_FILE, HASH_FILE, STATE_FILE} - set(manifest.files):
        (target / name).unlink(missing_ok=True)


def _manifest(staging: Staging, width: int, *, keep_texts: bool, encoder: str, source: str) -> Manifest:
    return Manifest(
        fingerprint=staging.plan.fingerprint,
        dtype=staging.plan.dtype,
        width=width,
        count=staging.count,
        sha256=staging.sha256,
        files={name: digest for name, digest in staging.files.items() if keep_texts or name != TEXT_FILE},
        corpus=staging.corpus,
        encoder=encoder,
        source=source,
        created=now(),
    )


def _finished(target: Path, plan: BuildPlan, documents: Callable[[], Iterator[Document]], keep_texts: bool, source: str) -> BuildResult:
    """The store at the target, if it has the encoder, texts and corpus of this call."""
    store = Store.open(target)
    if store.fingerprint is None:
        raise StoreError(f"{target} holds imported vectors whose encoder is unknown; choose another --out")
    differences = BuildPlan(store.fingerprint, store.dtype).differences(plan)
    if keep_texts != store.has_texts:
        stored, requested = ("yes", "no") if store.has_texts else ("no", "yes")
        differences.append(f"texts kept: {stored} in the store, {requested} requested")
    if differences:
        raise StoreError(f"{target} is a store with other settings: {'; '.join(differences)}; remove it, or choose another --out")
    if store.manifest.corpus != digest_documents(documents()):
        raise StoreError(f"{target} is a store of another corpus than {source}; append to it, remove it, or choose another --out")
    _clear_traces(target, store.manifest)
    note = f"{target} was finished before: the same encoder and corpus, {store.count} documents"
    return BuildResult(store, encoded=0, resumed=0, note=note)
