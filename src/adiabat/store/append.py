"""Adding documents to a store, or replacing some of its own: staged inside it, then moved in by a commit."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from adiabat.config.shared import IdForms
from adiabat.core.arrays import Mask
from adiabat.core.disk import AnyPath, remove, require_sole
from adiabat.core.errors import Faults, StoreError, several
from adiabat.core.wording import option
from adiabat.data.records import Document, Fingerprint
from adiabat.data.text_hashes import hash_texts
from adiabat.store.addressing import other_forms
from adiabat.store.build import CHUNK_SIZE, DocumentEncoder, EncodingChoice, Progress, Staging
from adiabat.store.commit import Added, Change, changing, cleared, commit, finish_change, merge
from adiabat.store.corpus_files import ID_BATCH
from adiabat.store.deletion import Deletion
from adiabat.store.manifest import APPENDING, VECTOR_FILE, StoreDtype
from adiabat.store.vector_store import Store


def add_documents(
    encoder: DocumentEncoder,
    documents: Callable[[], Iterator[Document]],
    path: AnyPath,
    *,
    replacing: bool = False,
    deletion: Deletion | None = None,
    chunk_size: int = CHUNK_SIZE,
    choice: EncodingChoice | None = None,
    on_progress: Progress | None = None,
    source: str,
    id_forms: IdForms = "exact",
) -> Change:
    """Encode new documents and add them at the end of a store; rows of old documents stay.

    Interrupted while encoding, the store is as it was, and the same call resumes. Interrupted within the
    commit, `Store.open` refuses the store until the next change, or `finish_change`, has completed it.

    Args:
        replacing: Whether documents of known ids replace those of the store where their text changed; an
            append refuses them.
        deletion: Documents that are deleted by the same commit.
        choice: What chooses how they are encoded, unless the store is quantised; None encodes as the encoder
            does.
        id_forms: Whether an id that differs in Unicode form alone from one of the store is refused, or is
            that one.
    """
    folder = Path(path)
    is_completed = finish_change(folder)
    # Outside of the lock, because hashing the weights of a large model takes seconds.
    fingerprint = encoder.fingerprint("document")
    _open_appendable(folder, fingerprint)
    with changing(folder) as completed_now:
        # Open again: another change may have finished, or been interrupted in its commit, before the lock was
        # taken.
        store = _open_appendable(folder, fingerprint)
        deleted = (deletion or Deletion()).mask(store)
        selection = Selection(store, source, is_completed or completed_now, deleted, ~deleted, id_forms)
        staging = _stage(folder, fingerprint, store.dtype, chunk_size)
        select = selection.changed if replacing else selection.new
        staging.write_corpus(select(selection.named(documents())), source=source)
        if staging.state.count:
            if choice is not None:
                staging.settle(choice, store)
            staging.encode(encoder, on_progress, store=store)
        return selection.commit(Added.of(staging))


@dataclass(slots=True)
class Selection:
    """The documents of a corpus that are added to a store, and which of its own remain beside them.

    Attributes:
        source: Name of the corpus, for messages and the manifest.
        is_completed: Whether an interrupted commit was completed just now; then the same command finds its
            own documents in the store.
        deleted: Documents of the store that are deleted.
        kept: Documents of the store that remain; the others are deleted, or replaced by those of their ids.
        unchanged: Number of documents that the store has already, with the same text.
        both: Documents that are given and to be deleted.
    """

    store: Store
    source: str
    is_completed: bool
    deleted: Mask
    kept: Mask
    id_forms: IdForms = "exact"
    unchanged: int = 0
    both: Faults = field(default_factory=Faults)

    def named(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Documents under the ids that the store has for them, where these differ in Unicode form alone;
        refused if ids are exact.
        """
        near = Faults()
        while block := list(islice(documents, ID_BATCH)):
            known = other_forms([document.doc_id for document in block], self.store.rows)
            if self.id_forms == "exact":
                near.extend(f'"{doc_id}"' for doc_id in known)
            elif known:
                block = [replace(each, doc_id=known.get(each.doc_id, each.doc_id)) for each in block]
            yield from block
        if near.count:
            raise StoreError(
                f"{self.source}: document ids must be new to {self.store.path} or equal its "
                "own, got ids that differ in Unicode form alone "
                f'(NFC, NFD): {near.told("documents")}; set data.ids = "nfc" to '
                "take them as the same, or rename them"
            )

    def new(self, documents: Iterator[Document]) -> Iterator[Document]:
        """All documents; ids that the store has are refused, all at once."""
        present = Faults()
        for block, rows, is_same in self._compared(documents):
            # The same command, whose commit was just completed.
            is_refused = (rows >= 0) & ~(is_same & self.is_completed)
            present.extend(f'"{document.doc_id}"' for document in compress(block, is_refused.tolist()))
            yield from compress(block, (rows < 0).tolist())
        if present.count:
            raise StoreError(
                f"{self.source}: document ids must be new to {self.store.path}, it "
                f"holds {present.told('documents')}; "
                f"remove them from the corpus, or replace those of the store with {option('update', True)}"
            )

    def changed(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Documents that the store lacks, or has with another text; one that has lost its text is deleted."""
        times = np.zeros(self.store.count, dtype=np.int64)
        for block, rows, is_same in self._compared(documents):
            np.add.at(times, rows[rows >= 0], 1)
            self.replace([document.doc_id for document in block], rows, is_same)
            has_text = np.array([bool(document.text) for document in block])
            self.deleted[rows[(rows >= 0) & ~has_text]] = True
            yield from compress(block, (~is_same & has_text).tolist())
        self.refuse_deleted()
        if len(repeated := np.flatnonzero(times > 1)):
            listed = several((f'"{doc_id}"' for doc_id in self.store.doc_ids(repeated)), of="ids")
            raise StoreError(
                f"{self.source}: document ids must be unique, got several documents "
                f"for {listed}; keep one of each"
            )

    def replace(
        self, doc_ids: list[str], rows: Int64[np.ndarray, " b"], is_same: Bool[np.ndarray, " b"]
    ) -> None:
        """Drop the documents of the store that others of their ids replace; note those that are to be deleted
        too.
        """
        is_known = rows >= 0
        self.both.extend(f'"{doc_ids[index]}"' for index in np.flatnonzero(is_known & self.deleted[rows]))
        self.kept[rows[is_known & ~is_same]] = False

    def refuse_deleted(self) -> None:
        """Refuse documents that are both given and to be deleted."""
        if self.both.count:
            listed = self.both.told("documents")
            raise StoreError(
                f"{self.source}: must hold no documents to delete, got {listed}; take "
                "them out of the corpus or of the ids"
            )

    def _compared(
        self, documents: Iterator[Document]
    ) -> Iterator[tuple[list[Document], Int64[np.ndarray, " b"], Bool[np.ndarray, " b"]]]:
        """Blocks of documents, their rows in the store, -1 for none, and whether the store has the same
        text.
        """
        while block := list(islice(documents, ID_BATCH)):
            rows = self.store.rows([document.doc_id for document in block])
            given = hash_texts([document.text for document in block])
            is_same = (rows >= 0) & (self.store.text_hashes(rows.clip(min=0)) == given)
            self.unchanged += int(np.count_nonzero(is_same))
            yield block, rows, is_same

    def commit(self, added: Added | None) -> Change:
        """Merge and commit what is selected, if it changes the store."""
        change = self._change(0 if added is None else added.count)
        if added is None and self.kept.all():
            remove(self.store.path / APPENDING)
            return change
        merge(self.store, self.kept, added, source=self.source)
        return replace(change, store=commit(self.store.path, added))

    def _change(self, added: int) -> Change:
        """The numbers of documents."""
        deleted = int(np.count_nonzero(self.deleted))
        replaced = int(np.count_nonzero(~self.kept)) - deleted
        return Change(self.store, added - replaced, replaced, self.unchanged, deleted)


def _open_appendable(folder: Path, fingerprint: Fingerprint) -> Store:
    """The store, if documents of this encoder can stand beside its own."""
    store = Store.open(folder)
    if store.fingerprint is None:
        advice = (
            f"import further vectors with {option('update', True)}, or all again with their model and texts"
        )
        raise StoreError(f"{folder} holds imported vectors whose encoder is unknown; {advice}")
    store.require_encoder(fingerprint)
    # The commit writes into this file; it replaces all others.
    require_sole(folder / VECTOR_FILE)
    return store


def _stage(folder: Path, fingerprint: Fingerprint, dtype: StoreDtype, chunk_size: int) -> Staging:
    """Start or resume in the staging folder."""
    remedy = "remove it to start again, or repeat the interrupted change first"
    return Staging.prepare(cleared(folder), fingerprint, dtype, chunk_size=chunk_size, remedy=remedy)
