"""Documents replaced and deleted: nothing finds them any more, no crash loses one, and compaction gives the
store built of the rest.
"""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from adiabat.core.errors import InUseError, StoreError
from adiabat.core.files import sole_writer
from adiabat.data.records import Document
from adiabat.store import commit as commit_module
from adiabat.store import deletion as deletion_module
from adiabat.store.append import add_documents
from adiabat.store.commit import Change
from adiabat.store.deletion import Deletion, compact_store, delete_documents
from adiabat.store.vector_store import Store
from tests.commands import listing
from tests.fake_encoder import FakeEncoder, files_of_store
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.crashes import CutError, crashes_of, files_of_at_most, raising, require_half_done
from tests.store.worlds import CORPUS, FINAL, GONE, OLD, build, content, numbers, vectors_of

# The first readers of version 2 take these keys alone, and call a store with any other damaged.
KEYS_OF_VERSION_2 = {
    *("format", "version", "checksum", "fingerprint", "files", "dtype", "width", "count", "sha256"),
    *("corpus", "encoder", "source", "created"),
}
FINGERPRINT_OF_VERSION_2 = {
    *("backbone", "weights", "tokenizer", "prompt", "pooling", "max_tokens", "normalize", "width"),
}
FILES_OF_VERSION_2 = {
    name: {"size", "sha256", "start"}
    for name in ("ids.arrow", "id_index.npy", "texts.arrow", "text_hashes.bin")
}


def update(
    path: Path,
    documents: list[Document] = CORPUS,
    deletion: Deletion | None = GONE,
    encoder: FakeEncoder | None = None,
) -> Change:
    return add_documents(
        encoder or FakeEncoder(),
        lambda: iter(documents),
        path,
        replacing=True,
        deletion=deletion,
        chunk_size=4,
        source="new",
    )


@pytest.mark.parametrize("keep_texts", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_an_updated_store_reads_as_the_one_built_of_its_documents(
    tmp_path: Path, dtype: Any, keep_texts: bool
) -> None:
    build(tmp_path / "s", dtype=dtype, keep_texts=keep_texts)
    encoder = FakeEncoder()
    change = update(tmp_path / "s", encoder=encoder)
    built = build(tmp_path / "built", FINAL, dtype=dtype, keep_texts=keep_texts)
    assert numbers(change) == (2, 2, 1, 2)
    # "text 2" has a vector, which is copied, although its document is deleted.
    assert encoder.calls == [3]
    assert content(change.store) == content(built) == content(Store.open(tmp_path / "s"))
    if keep_texts:
        assert change.store.manifest.corpus == built.manifest.corpus
    assert change.store.rows(["d1", "d2", "d6", "n1"]).tolist() == [3, -1, -1, 6]
    change.store.verify()
    assert np.load(tmp_path / "s" / "vectors.npy").shape == (11, 8)
    compacted = compact_store(tmp_path / "s").store
    assert content(compacted) == content(built)
    assert files_of_store(compacted.path) == files_of_store(built.path)
    compacted.verify()


def test_changes_follow_one_another(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    documents = {document.doc_id: document for document in OLD}
    draw = np.random.default_rng(0)
    for turn in range(12):
        deleted = draw.choice(list(documents), size=1).tolist()
        changed = [
            Document(doc_id, f"turn {turn}")
            for doc_id in draw.choice([*documents, f"n{turn}", f"m{turn}"], size=4, replace=False)
        ]
        changed = [document for document in changed if document.doc_id not in deleted]
        update(path, changed, Deletion(deleted))
        for doc_id in [*deleted, *(document.doc_id for document in changed)]:
            documents.pop(doc_id, None)
        documents |= {document.doc_id: document for document in changed}
        if turn % 4 == 2:
            new = Document(f"a{turn}", f"appended {turn}")
            add_documents(FakeEncoder(), lambda new=new: iter([new]), path, source="appended")
            documents[new.doc_id] = new
        if turn % 5 == 4:
            compact_store(path)
        store = Store.open(path)
        assert content(store) == content(build(tmp_path / f"built{turn}", list(documents.values())))
        store.verify()


def test_vectors_imported_without_an_encoder_can_be_deleted(tmp_path: Path) -> None:
    vectors = vectors_of(OLD)
    np.save(tmp_path / "v.npy", vectors)
    path = import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=[document.doc_id for document in OLD]).path
    np.save(tmp_path / "v.npy", vectors[[0, 2, 4, 5, 6]])
    kept = import_vectors(tmp_path / "v.npy", tmp_path / "kept", ids=["d0", "d2", "d4", "d5", "d6"])
    change = delete_documents(path, Deletion(("d1", "d3")))
    assert numbers(change) == (0, 0, 0, 2)
    assert content(change.store) == content(kept)
    assert files_of_store(compact_store(path).store.path) == files_of_store(kept.path)


def test_an_open_store_reads_on_while_it_is_changed_until_it_is_compacted(tmp_path: Path) -> None:
    store = build(tmp_path / "s")
    before = content(store)
    for change in (update, partial(update, documents=[], deletion=Deletion(("d0",)))):
        change(tmp_path / "s")
        # The map of all vectors may have been made before or after.
        del store.vectors
        assert content(store) == before
        assert store.rows(["d2", "d6", "n0"]).tolist() == [2, 6, -1]
    compact_store(tmp_path / "s")
    with pytest.raises(StoreError, match=r"another process changed its vectors\.npy"):
        content(store)


def test_an_update_without_changes_writes_nothing(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    before = listing(path)
    assert numbers(update(path, OLD[2:4], None)) == (0, 0, 2, 0)
    assert listing(path) == before
    assert compact_store(path).store.manifest == Store.open(path).manifest
    assert listing(path) == before


def test_unknown_ids_are_refused_or_left_out(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    with refused(StoreError, 'lacks 2 ids: "x"; "y"; ', 'missing="drop"'):
        delete_documents(path, Deletion(("x", "d1", "y")))
    assert Store.open(path).count == 7
    assert delete_documents(path, Deletion(("x", "d1", "d1", "y"), missing="drop")).deleted == 1
    assert Store.open(path).rows(["d1"]).tolist() == [-1]
    assert delete_documents(path, Deletion(("d1",), missing="drop")).deleted == 0


def test_a_store_keeps_at_least_one_document(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    everything = Deletion([document.doc_id for document in OLD])
    with refused(StoreError, "at least one document", "delete all 7"):
        delete_documents(path, everything)
    assert Store.open(path).count == 7
    assert update(path, [Document("n", "the only one")], everything).store.count == 1


def test_a_document_is_not_both_added_and_deleted(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    with refused(StoreError, 'no documents to delete, got "d2"'):
        update(path, [OLD[2], Document("n", "new")])
    assert not (path / "appending").exists()
    assert numbers(update(path)) == (2, 2, 1, 2)


def test_an_interrupted_update_must_end_before_another_change(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    with pytest.raises(KeyboardInterrupt):
        update(path, encoder=FakeEncoder(stop_at=0))
    with refused(StoreError, "appending holds an interrupted append or update"):
        delete_documents(path, GONE)
    with refused(StoreError, "interrupted build of another corpus"):
        update(path, CORPUS[:3])
    assert content(update(path).store) == content(build(tmp_path / "built", FINAL))


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    changes: list[Callable[[], object]] = [
        partial(update, path),
        partial(delete_documents, path, GONE),
        partial(compact_store, path),
    ]
    for change in changes:
        with sole_writer(path), pytest.raises(InUseError, match="one writer at a time"):
            change()


def _deleting(path: Path) -> None:
    delete_documents(path, GONE)


@pytest.mark.parametrize("change", [update, _deleting, compact_store])
def test_a_crash_before_any_step_loses_and_revives_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(deletion_module, "COMPACTION_BYTES", 2 * 16)
    original = build(tmp_path / "original").path
    if change is compact_store:
        update(original)
    shutil.copytree(original, tmp_path / "wanted")
    change(tmp_path / "wanted")
    wanted, before = content(Store.open(tmp_path / "wanted")), content(Store.open(original))
    halves = 0
    for folder, is_half_done in crashes_of(change, original, monkeypatch, least=10):
        halves += is_half_done
        assert is_half_done or content(Store.open(folder)) in (before, wanted)
        # The same command again completes what it began, also where it was done.
        change(folder)
        assert content(Store.open(folder)) == wanted
        assert files_of_store(folder) == files_of_store(tmp_path / "wanted")
        assert not (folder / "appending").exists()
    assert halves >= 4


@pytest.mark.parametrize(
    "change", [partial(update, encoder=FakeEncoder(width=128)), _deleting, compact_store]
)
def test_where_files_find_no_room_nothing_is_lost_and_the_change_is_repeated(
    tmp_path: Path, change: Callable[[Path], object]
) -> None:
    original = build(tmp_path / "original", encoder=FakeEncoder(width=128)).path
    if change is compact_store:
        update(original, encoder=FakeEncoder(width=128))
    shutil.copytree(original, tmp_path / "wanted")
    change(tmp_path / "wanted")
    wanted, before = content(Store.open(tmp_path / "wanted")), content(Store.open(original))
    told: list[str] = []
    for size in range(0, 5000, 400):
        folder = tmp_path / f"s{size}"
        shutil.copytree(original, folder)
        try:
            with files_of_at_most(size):
                change(folder)
        except StoreError as fault:
            told.append(str(fault))
            if (folder / "appending" / "commit.json").exists():
                require_half_done(folder)
            else:
                assert content(Store.open(folder)) == before
        change(folder)
        assert content(Store.open(folder)) == wanted
        assert not (folder / "appending").exists()
    assert 2 < len(told) < 13
    facts = r".*/s\d+: .* file size .* to resume"
    assert [line for line in told if not re.fullmatch(facts, line)] == []


def test_a_compaction_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "COMPACTION_BYTES", 2 * 16)
    path = build(tmp_path / "s").path
    update(path)
    seen: list[tuple[int, int]] = []

    def cut(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 4:
            raise CutError

    with pytest.raises(CutError):
        compact_store(path, on_progress=cut)
    assert Store.open(path).count == 7
    seen.clear()
    compact_store(path, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 7), (6, 7), (7, 7)]
    assert files_of_store(path) == files_of_store(build(tmp_path / "built", FINAL).path)


def test_a_compaction_counts_what_it_removed_also_where_it_completes_another_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(tmp_path / "s").path
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_redo", raising)
        with pytest.raises(CutError):
            delete_documents(path, Deletion(("d0",)))
    assert compact_store(path).told == f"{path}: 1\N{NO-BREAK SPACE}vector of former documents removed"
    assert compact_store(path).told == f"{path} is as it was: nothing to change"


def test_a_change_gives_up_an_interrupted_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "COMPACTION_BYTES", 2 * 16)
    path = build(tmp_path / "s").path
    update(path)
    with monkeypatch.context() as patch:
        patch.setattr(deletion_module, "commit", raising)
        with pytest.raises(CutError):
            compact_store(path)
    delete_documents(path, Deletion(("d0",)))
    built = build(tmp_path / "built", FINAL[1:])
    assert content(Store.open(path)) == content(built)
    assert files_of_store(compact_store(path).store.path) == files_of_store(built.path)


@pytest.mark.parametrize(("free", "told"), [(10, "10\N{NO-BREAK SPACE}bytes"), (0, "nothing")])
def test_a_compaction_asks_for_room_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, told: str
) -> None:
    path = build(tmp_path / "s").path
    update(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    with refused(StoreError, "112\N{NO-BREAK SPACE}bytes", f"the disk has {told} left"):
        compact_store(path)
    assert Store.open(path).count == 7


def test_a_store_with_tombstones_is_of_a_later_format(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    plain = json.loads((path / "manifest.json").read_text())
    assert plain["version"] == 2
    assert set(plain) == KEYS_OF_VERSION_2
    assert set(plain["fingerprint"]) == FINGERPRINT_OF_VERSION_2
    assert {name: set(digest) for name, digest in plain["files"].items()} == FILES_OF_VERSION_2
    update(path)
    changed = json.loads((path / "manifest.json").read_text())
    # A reader of version 2 would find deleted documents; it refuses version 3.
    assert changed["version"] == 3
    assert changed.keys() - plain.keys() == {"tombstones", "file_sha256", "written_by"}
    assert (changed["count"], changed["tombstones"]) == (7, 4)
    compact_store(path)
    compacted = json.loads((path / "manifest.json").read_text())
    assert compacted["version"] == 2
    assert compacted.keys() == plain.keys()
    assert not (path / "tombstones.bin").exists()
