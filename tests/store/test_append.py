"""Adding documents to a store, and that no moment of a crash loses or doubles any."""

import os
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import InUseError, StoreError
from adiabat.core.files import sole_writer
from adiabat.data.records import Document, Fingerprint, Side
from adiabat.store import append as append_module
from adiabat.store import commit as commit_module
from adiabat.store.append import add_documents
from adiabat.store.commit import finish_change
from adiabat.store.manifest import HEADER_BYTES
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, files_of_store
from tests.refused import refused
from tests.store.crashes import CutError, crashes_of, raising
from tests.store.worlds import OLD, build, numbered

NEW = numbered(10, "n", "new")
LATER = [Document("later", "later")]


def append(path: Path, documents: list[Document] = NEW, *, encoder: FakeEncoder | None = None) -> Store:
    encoder = encoder or FakeEncoder()
    return add_documents(encoder, lambda: iter(documents), path, chunk_size=4, source="new").store


def test_an_appended_store_is_the_one_built_at_once(tmp_path: Path) -> None:
    build(tmp_path / "s")
    store = append(tmp_path / "s")
    together = build(tmp_path / "together", OLD + NEW)
    assert files_of_store(store.path) == files_of_store(together.path)
    assert store.manifest.sha256 == together.manifest.sha256
    assert store.manifest.corpus == together.manifest.corpus
    assert store.manifest.source == "old + new"
    assert store.rows(["d0", "n0", "n9"]).tolist() == [0, 7, 16]
    assert np.load(tmp_path / "s" / "vectors.npy", mmap_mode="r").shape == (17, 8)
    assert not (tmp_path / "s" / "appending").exists()


def test_a_store_without_texts_can_grow(tmp_path: Path) -> None:
    build(tmp_path / "s", keep_texts=False)
    store = append(tmp_path / "s")
    assert not store.has_texts
    assert store.manifest.corpus is None
    assert store.doc_ids([6, 7]) == ["d6", "n0"]
    store.verify()


def test_ids_already_there_or_repeated_and_another_encoder_are_refused(tmp_path: Path) -> None:
    before = files_of_store(build(tmp_path / "s").path)
    with refused(StoreError, 'holds 2 documents: "d2"; "d5"; '):
        append(tmp_path / "s", [NEW[0], OLD[2], NEW[1], OLD[5]])
    assert append(tmp_path / "s", []).count == 7
    assert files_of_store(tmp_path / "s") == before
    assert not (tmp_path / "s" / "appending").exists()
    with refused(StoreError, '"n1" 2 times'):
        append(tmp_path / "s", [*NEW, NEW[1]])
    assert Store.open(tmp_path / "s").count == 7
    with refused(StoreError, 'prompt "" in the store, "passage: " in the encoder'):
        append(tmp_path / "s", encoder=FakeEncoder(prompt="passage: "))
    assert append(tmp_path / "s").count == 17


def test_an_append_cut_while_encoding_leaves_the_store_usable_and_goes_on(tmp_path: Path) -> None:
    build(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        append(tmp_path / "s", encoder=FakeEncoder(stop_at=2))
    assert Store.open(tmp_path / "s").count == 7
    encoder = FakeEncoder()
    store = append(tmp_path / "s", encoder=encoder)
    assert encoder.calls == [2]
    assert files_of_store(store.path) == files_of_store(build(tmp_path / "together", OLD + NEW).path)


def test_other_documents_than_the_cut_short_append_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "s")
    monkeypatch.setattr(append_module, "merge", raising)
    with pytest.raises(CutError):
        append(tmp_path / "s")
    monkeypatch.undo()
    with refused(StoreError, "appending holds an interrupted build of another corpus than new; "):
        append(tmp_path / "s", NEW[:4])


def test_a_crash_before_any_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = build(tmp_path / "original").path
    wanted = files_of_store(build(tmp_path / "together", OLD + NEW).path)
    halves = 0
    for folder, is_half_done in crashes_of(append, original, monkeypatch, least=20):
        halves += is_half_done
        if is_half_done:
            assert finish_change(folder)
            assert not finish_change(folder)
        elif Store.open(folder).count == 7:
            assert files_of_store(folder) == files_of_store(original)
            append(folder)
        # Leftovers of a crash after the commit do not stand in the way of the next append.
        assert files_of_store(folder) == wanted
        assert append(folder, LATER).count == 18
    assert halves >= 8


@pytest.mark.parametrize("name", ["ids.arrow", "appending/vectors.npy", "appending/state.json"])
def test_damage_to_a_change_that_is_half_moved_in_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = build(tmp_path / "s").path
    move = commit_module._move

    def move_some(source: Path, target: Path) -> None:
        if target.name == "text_hashes.bin":
            raise CutError
        move(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_move", move_some)
        with pytest.raises(CutError):
            append(store)
    content = (store / name).read_bytes()
    (store / name).write_bytes(content[:-9])
    # The index was replaced, and is not what is damaged.
    with refused(StoreError, f"s/{name} must be undamaged, ", "rebuild the store"):
        append(store)
    (store / name).write_bytes(content)
    assert append(store).count == 17


def test_append_completes_what_was_cut_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_extend_vectors", raising)
        with pytest.raises(CutError):
            append(tmp_path / "s")
    assert append(tmp_path / "s", LATER).count == 18


def test_a_torn_write_into_the_vectors_is_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "s")
    with monkeypatch.context() as patch:
        patch.setattr(commit_module, "_move", raising)
        with pytest.raises(CutError):
            append(tmp_path / "s")
    os.truncate(tmp_path / "s" / "vectors.npy", HEADER_BYTES + 7 * 16 + 5)
    assert finish_change(tmp_path / "s")
    Store.open(tmp_path / "s").verify()
    assert files_of_store(tmp_path / "s") == files_of_store(build(tmp_path / "together", OLD + NEW).path)


class Late(FakeEncoder):
    """While its weights are hashed, another append comes to its end."""

    def __init__(self, path: Path, documents: list[Document]) -> None:
        super().__init__()
        self._other = [lambda: append(path, documents)]

    def fingerprint(self, side: Side) -> Fingerprint:
        while self._other:
            self._other.pop()()
        return super().fingerprint(side)


def test_an_append_that_ends_before_this_one_begins_is_built_upon(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    store = append(path, NEW[4:], encoder=Late(path, NEW[:4]))
    assert store.count == 17
    store.verify()
    assert files_of_store(path) == files_of_store(build(tmp_path / "together", OLD + NEW).path)


def test_two_appends_at_once_are_refused(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    with sole_writer(path), pytest.raises(InUseError, match="one writer at a time"):
        append(path)
    assert append(path).count == 17
