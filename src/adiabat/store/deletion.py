"""Deleting documents of a store, whose vectors stay on disk, and compacting it, which removes them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Literal

import numpy as np

from adiabat.config.shared import IdForms
from adiabat.core.arrays import Mask, RowNumbers
from adiabat.core.disk import AnyPath, make_folder, remove
from adiabat.core.errors import Faults, StoreError
from adiabat.core.files import read_json, write_json
from adiabat.core.formats import rebuilt
from adiabat.core.progress import ignored
from adiabat.core.text import amount
from adiabat.core.wording import again, option
from adiabat.store.addressing import forms_advice, other_forms
from adiabat.store.build import Progress
from adiabat.store.commit import MERGED, Change, changing, cleared, commit, merge
from adiabat.store.manifest import (
    APPENDING,
    COMPACTION_FILE,
    REBUILD,
    STATE_FILE,
    TOMBSTONE_FILE,
    VECTOR_FILE,
    Manifest,
    VectorFile,
    exists,
)
from adiabat.store.vector_store import Store

Missing = Literal["error", "drop"]

COMPACTION_BYTES = 1 << 26
"""Bytes between two commits of a compaction: 64 MiB take less than a second to write."""


@dataclass(frozen=True, slots=True)
class CompactionState:
    """Vectors of an interrupted compaction that are on disk, and their SHA-256."""

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """Documents to delete.

    Attributes:
        missing: Treatment of ids that the store lacks.
        id_forms: Whether ids must be exact, or may differ in their Unicode form.
    """

    ids: Sequence[str] = ()
    missing: Missing = "error"
    id_forms: IdForms = "exact"

    def mask(self, store: Store) -> Mask:
        """Which documents of the store are deleted; an id that a former change deleted is not refused, since
        commands are repeated.
        """
        ids = self._named(store)
        rows, unknown = store.rows(ids), Faults()
        absent = [ids[index] for index in np.flatnonzero(rows < 0).tolist()]
        never_there = list(compress(absent, (~store.tombstones.hold(absent)).tolist()))
        unknown.extend(f'"{doc_id}"' for doc_id in never_there)
        # An id in another form is no id that the store never had.
        advice = forms_advice(never_there, store.rows)
        if unknown.count and (advice or self.missing == "error"):
            usual = (
                f"correct them, or pass over them with {option('missing', 'drop')}, as "
                "those of an earlier deletion after a compaction"
            )
            raise StoreError(
                f"ids to delete must be in {store.path}, it lacks {unknown.told('ids')}; {advice or usual}"
            )
        deleted = np.zeros(store.count, dtype=np.bool_)
        deleted[rows[rows >= 0]] = True
        return deleted

    def _named(self, store: Store) -> list[str]:
        """The ids as the store has or had them."""
        if self.id_forms == "exact":
            return list(self.ids)

        def find(ids: Sequence[str]) -> RowNumbers:
            # Ids of deleted documents are found too: a repeated command deletes nothing else.
            return np.where(store.tombstones.hold(ids), 0, store.rows(ids))

        known = other_forms(self.ids, find)
        return [known.get(doc_id, doc_id) for doc_id in self.ids]


def delete_documents(path: AnyPath, deletion: Deletion) -> Change:
    """Delete documents: their ids, texts and hashes go, and their vectors stay in the file as tombstones,
    which no reader sees.
    """
    folder = Path(path)
    with changing(folder):
        store = Store.open(folder)
        deleted = deletion.mask(store)
        require_idle(folder)
        if not deleted.any():
            remove(cleared(folder))
            return Change(store)
        cleared(folder)
        merge(store, ~deleted, None)
        return Change(commit(folder), deleted=int(np.count_nonzero(deleted)))


def compact_store(path: AnyPath, *, on_progress: Progress | None = None) -> Change:
    """Write the vectors of a store without tombstones; the files are then those of a store built of its
    documents in their order.

    Vectors are copied `COMPACTION_BYTES` at a time, which are on disk before the state counts them. Their
    SHA-256 must be the one that the manifest has of all documents. An interrupted call leaves the store as it
    was, and the same call resumes.
    """
    folder = Path(path)
    # An interrupted deletion adds tombstones when it is completed; an interrupted compaction removes them.
    before = Manifest.read(folder).tombstones
    with changing(folder):
        store = Store.open(folder)
        require_idle(folder)
        removed = max(before, store.manifest.tombstones)
        if not store.manifest.tombstones:
            remove(cleared(folder))
            return Change(store, removed=removed)
        merged = _begin_compaction(folder)
        _write_documents(store, merged, on_progress or ignored)
        files = {name: digest for name, digest in store.manifest.files.items() if name != TOMBSTONE_FILE}
        replace(store.manifest, files=files, tombstones=0, file_sha256="").write(merged)
        return Change(commit(folder), removed=removed)


def require_idle(folder: Path) -> None:
    """Refuse a change that would give up another, which is interrupted and can be resumed."""
    staging = folder / APPENDING
    if exists(staging / STATE_FILE):
        raise StoreError(
            f"{staging} holds an interrupted append or update; repeat that first, "
            "or remove the folder to give it up"
        )


def _begin_compaction(folder: Path) -> Path:
    """The folder of merged files, with what an interrupted compaction wrote."""
    if not exists(folder / APPENDING / COMPACTION_FILE):
        write_json({"rows": 0, "sha256": ""}, cleared(folder) / COMPACTION_FILE)
    merged = folder / APPENDING / MERGED
    make_folder(merged)
    return merged


def _write_documents(store: Store, merged: Path, on_progress: Progress) -> None:
    """Copy the vectors of all documents into one file."""
    state_file = merged.parent / COMPACTION_FILE
    remedy = f"remove the folder {merged.parent} and {again()}"
    record = read_json(state_file, remedy=remedy, error=StoreError)
    state = rebuilt(CompactionState, record, state_file, remedy=remedy, error=StoreError)
    _require_room(store, written=state.rows)
    with VectorFile(
        merged / VECTOR_FILE, dtype=store.dtype, width=store.width, rows=state.rows, sha256=state.sha256
    ) as vectors:
        while vectors.rows < store.count:
            on_progress(vectors.rows, store.count)
            rows = min(max(1, COMPACTION_BYTES // store.manifest.row_bytes), store.count - vectors.rows)
            block = np.empty((rows, store.width), dtype=store.dtype)
            store.read_into(vectors.rows, block)
            vectors.append(block)
            # Vectors reach the disk before the state counts them.
            vectors.commit()
            write_json({"rows": vectors.rows, "sha256": vectors.sha256}, state_file)
        on_progress(vectors.rows, store.count)
        if vectors.sha256 != store.manifest.sha256:
            raise StoreError(
                f"{store.path / VECTOR_FILE} is damaged: its SHA-256 is not the manifest's; {REBUILD}"
            )


def _require_room(store: Store, *, written: int) -> None:
    """Refuse a compaction for which the disk has too little space left."""
    needed, free = (store.count - written) * store.manifest.row_bytes, shutil.disk_usage(store.path).free
    if needed > free:
        raise StoreError(
            f"{store.path}: compaction writes the vectors anew, which needs {amount(needed)}, "
            f"and the disk has {amount(free) or 'nothing'} left; free some space and {again()}"
        )
