"""Where a store may be put: links, the current directory, mount points, and what appears there while the store is made."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.data.records import Document
from adiabat.store.build import BuildResult
from adiabat.store.imports import import_vectors
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(6)]
FILES = ["id_index.npy", "ids.arrow", "manifest.json", "text_hashes.bin", "vectors.npy"]


def build(out: Path | str, encoder: FakeEncoder | None = None, *, keep_texts: bool = False, **options: Any) -> BuildResult:
    return fake_store(out, DOCUMENTS, encoder, keep_texts=keep_texts, **options)


def names(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.name[0] != ".")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_leads_to_where_the_store_is_put(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "disk").mkdir()
    if exists:
        (tmp_path / "disk" / "big").mkdir()
    (tmp_path / "s").symlink_to(tmp_path / "disk" / "big")
    store = build(tmp_path / "s").store
    assert (store.path, store.count) == (tmp_path / "s", 6)
    assert (tmp_path / "s").is_symlink()
    assert names(tmp_path / "disk") == ["big"]
    assert names(tmp_path / "disk" / "big") == FILES


def test_the_current_directory_is_refused_before_anything_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    encoder = FakeEncoder()
    for out in (".", tmp_path / "here"):
        with pytest.raises(StoreError, match="it is the current directory; choose one within it, as --out .*store"):
            build(out, encoder)
    assert (encoder.calls, names(tmp_path)) == ([], ["here"])


def test_a_mount_point_is_refused_before_anything_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path / "disk")
    encoder = FakeEncoder()
    with pytest.raises(StoreError, match="it is a mount point; choose one within it, as --out .*disk/store"):
        build(tmp_path / "disk", encoder)
    assert (encoder.calls, names(tmp_path)) == ([], ["disk"])
    assert build(tmp_path / "disk" / "store").encoded == 6


def occupy(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "notes.txt").write_text("x")


@pytest.mark.parametrize("keep_texts", [True, False])
def test_work_is_kept_when_something_appears_in_the_place_of_the_store(tmp_path: Path, keep_texts: bool) -> None:
    with pytest.raises(
        StoreError, match=r"must be missing or empty .*, got: .*; the work is kept in .*s\.building: clear .*s and run the same"
    ):
        build(tmp_path / "s", keep_texts=keep_texts, on_progress=lambda done, total: occupy(tmp_path / "s"))
    assert names(tmp_path / "s") == ["notes.txt"]
    (tmp_path / "s" / "notes.txt").unlink()
    encoder = FakeEncoder()
    again = build(tmp_path / "s", encoder, keep_texts=keep_texts)
    assert (again.encoded, again.resumed, encoder.calls) == (0, 6, [])
    assert names(tmp_path / "s") == (sorted([*FILES, "texts.arrow"]) if keep_texts else FILES)


def test_an_import_whose_place_was_taken_says_so_and_can_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "v.npy", np.eye(8, dtype=np.float32))
    monkeypatch.setattr("adiabat.store.imports.now", lambda: [occupy(tmp_path / "s"), "2020-01-01T00:00:00+00:00"][1])
    with pytest.raises(StoreError, match=r"the work is kept in .*s\.building"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=list("abcdefgh"))
    assert names(tmp_path / "s.building") == sorted([*FILES, "state.json", "texts.arrow"])
    monkeypatch.undo()
    (tmp_path / "s" / "notes.txt").unlink()
    assert import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=list("abcdefgh")).count == 8
    assert names(tmp_path) == ["s", "v.npy"]


def test_texts_that_a_crash_left_in_a_store_without_are_removed_when_it_is_met(tmp_path: Path) -> None:
    build(tmp_path / "s")
    (tmp_path / "s" / "texts.arrow").write_bytes(b"left behind")
    (tmp_path / "s" / "state.json").write_text("{}")
    assert build(tmp_path / "s").encoded == 0
    assert names(tmp_path / "s") == FILES


def test_a_store_with_texts_is_not_taken_for_one_without(tmp_path: Path) -> None:
    build(tmp_path / "s", keep_texts=True)
    with pytest.raises(StoreError, match="texts kept: yes in the store, no requested; remove it, or choose another --out"):
        build(tmp_path / "s", keep_texts=False)
    assert Store.open(tmp_path / "s").texts([0]) == ["text 0"]


def test_a_disk_that_is_full_at_the_last_rename_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.replace

    def full(self: Path, target: Path) -> Path:
        if self.name.endswith(".building"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(StoreError, match="the disk must have room for the store"):
        build(tmp_path / "s")
