"""Opening and reading a store."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.core.files import read_json, write_json
from adiabat.data.records import Document
from adiabat.store import vector_store
from adiabat.store.manifest import HEADER_BYTES
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store
from tests.refused import refused
from tests.store.worlds import vectors_of

DOCUMENTS = [Document(doc_id, f"text of {doc_id}") for doc_id in ("a", "ב", "ج", "d e", "é", "🧭", "g")]


@pytest.fixture(params=["float16", "float32"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return fake_store(tmp_path / "stored", DOCUMENTS, dtype=request.param, source="seven").store


def expected(store: Store) -> np.ndarray:
    return vectors_of(DOCUMENTS).astype(store.dtype)


def test_documents_are_found_by_id(store: Store) -> None:
    rows = store.rows(["g", "ב", "unknown", "a"])
    assert rows.tolist() == [6, 1, -1, 0]
    assert store.doc_ids([6, 1]) == ["g", "ב"]
    assert store.texts(np.array([2, 2])) == ["text of ج"] * 2


def test_gather_gives_the_vectors_in_the_order_asked(store: Store) -> None:
    rows = [3, 0, 6, 3]
    gathered = store.gather(rows)
    assert gathered.dtype == np.float32
    assert np.array_equal(gathered, expected(store)[rows].astype(np.float32))
    assert store.gather([]).shape == (0, 8)


@pytest.mark.parametrize("block_rows", [1, 2, 3, 7, 100])
def test_blocks_together_are_the_store(store: Store, block_rows: int) -> None:
    parts = list(store.blocks(block_rows))
    assert [start for start, _ in parts] == list(range(0, 7, block_rows))
    assert np.array_equal(np.concatenate([block for _, block in parts]), expected(store))


def test_the_memory_map_and_numpy_see_the_same_vectors(store: Store) -> None:
    assert np.array_equal(store.vectors, expected(store))
    assert np.array_equal(np.load(store.path / "vectors.npy", mmap_mode="r"), expected(store))
    with pytest.raises(ValueError, match="read-only"):
        store.vectors[0, 0] = 1


@pytest.mark.parametrize("row", [-1, 7])
def test_rows_outside_blocks_of_none_and_buffers_of_another_kind_are_refused(store: Store, row: int) -> None:
    for read in (store.gather, store.doc_ids, store.texts):
        with refused(StoreError, f"rows must lie in 0..6, got {row}"):
            read([0, row])
    with refused(StoreError, "block_rows must be at least 1, got 0"):
        next(store.blocks(0))
    for buffer in (
        np.empty((2, 8), dtype=np.float64),
        np.empty((2, 7), dtype=store.dtype),
        np.empty((4, 8), dtype=store.dtype)[::2],
    ):
        with refused(StoreError, "buffer must be contiguous", "np.empty"):
            store.read_into(0, buffer)


def test_a_vector_file_cut_while_open_is_an_error_not_garbage(store: Store) -> None:
    os.truncate(store.path / "vectors.npy", HEADER_BYTES + 20)
    for read in (lambda: store.gather([6]), lambda: list(store.blocks(3))):
        with refused(StoreError, "became shorter"):
            read()


@pytest.mark.parametrize(
    "name", ["ids.arrow", "texts.arrow", "text_hashes.bin", "id_index.npy", "vectors.npy"]
)
def test_a_missing_file_is_named(store: Store, name: str) -> None:
    (store.path / name).unlink()
    with refused(StoreError, name):
        Store.open(store.path)


def test_a_missing_store_is_an_error_that_says_how_to_build_it(tmp_path: Path) -> None:
    with refused(StoreError, "no such directory", "adiabat.embed(model, corpus, out="):
        Store.open(tmp_path / "nowhere")
    with refused(StoreError, "holds no manifest.json"):
        Store.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"version": 4}, ["was written by adiabat ", "(format 4), this is adiabat ", "update adiabat"]),
        ({"version": 1}, ["was written by adiabat ", "(format 1), this is adiabat ", "adiabat.upgrade("]),
        ({"format": "other"}, ['format must be "adiabat-store"']),
        ({"surprise": 1}, ["unknown key surprise"]),
        ({"files": {"ids.arrow": {"bytes": 3}}}, ["3 faults: files", "unknown key files.ids.arrow.bytes;"]),
    ],
)
def test_an_unknown_manifest_is_refused(store: Store, change: dict[str, object], facts: list[str]) -> None:
    path = store.path / "manifest.json"
    write_json(read_json(path, remedy="") | change, path)
    with refused(StoreError, *facts):
        Store.open(store.path)


@pytest.mark.parametrize("content", ["{", "[]", "\xff", "{}", '{"version": 1, "format": "adiabat-store"}'])
def test_a_manifest_that_is_no_json_object_is_refused(store: Store, content: str) -> None:
    (store.path / "manifest.json").write_text(content, encoding="latin-1")
    with refused(StoreError, "manifest.json"):
        Store.open(store.path)


def test_another_prompt_is_named_and_an_imported_store_checks_the_width_only(store: Store) -> None:
    store.require_encoder(FakeEncoder().fingerprint("document"))
    other = FakeEncoder(prompt="passage: ").fingerprint("document")
    with refused(StoreError, 'prompt "" in the store, "passage: " in the encoder; ', "document_prompt"):
        store.require_encoder(other)
    unknown = Store(store.path, replace(store.manifest, fingerprint=None))
    unknown.require_encoder(other)
    with refused(StoreError, "width 8 in the store, 9 in the encoder"):
        unknown.require_encoder(FakeEncoder(width=9).fingerprint("document"))


def test_texts_of_a_store_without_texts_are_an_error(tmp_path: Path) -> None:
    bare = fake_store(tmp_path / "s", DOCUMENTS, keep_texts=False).store
    assert not bare.has_texts
    assert not (bare.path / "texts.arrow").exists()
    with refused(StoreError, "must keep texts"):
        bare.texts([0])


def test_a_store_is_closed_though_the_interpreter_has_cleared_the_modules_names(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Store.open(store.path)
    handle = opened._handle
    os.fstat(handle)
    monkeypatch.setattr(vector_store, "os", None)
    opened.__del__()
    opened._handle = opened._hash_handle = -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def run_apart(code: str) -> str:
    """What code prints in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    given = [sys.executable, "-c", code]
    return subprocess.run(given, check=True, env=environment, capture_output=True, text=True).stdout


def test_reading_a_store_does_not_import_torch(store: Store) -> None:
    code = f"""
import sys
from adiabat.store.vector_store import Store
Store.open({str(store.path)!r}).gather([0])
print('torch' in sys.modules)
"""
    assert run_apart(code) == "False\n"


def test_memory_does_not_grow_with_the_rows_read(tmp_path: Path) -> None:
    folder, count = tmp_path / "big", 100_000
    small = fake_store(folder, DOCUMENTS[:1], FakeEncoder(240)).store
    manifest = replace(small.manifest, count=count)
    # Ids play no part, so one document is opened and its vector file then grows, sparsely, to 48 MB.
    code = f"""
import os, resource
from dataclasses import replace
import numpy as np
from adiabat.store.vector_store import Store

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

store = Store.open({str(folder)!r})
os.truncate(store.path / "vectors.npy", {manifest.file_bytes})
store.manifest = replace(store.manifest, count={count})
before, read = peak(), 0
for _, block in store.blocks(2048):
    read += len(block)
for start in range(0, {count}, 5000):
    store.gather(np.arange(start, start + 50))
print(read, peak() - before)
"""
    read, grown_kib = map(int, run_apart(code).split())
    assert read == count
    assert grown_kib < 16_000
