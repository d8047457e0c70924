"""Imports that were killed or ran out of disk, lengths of imported vectors, and ids in forms that other programs give."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

from adiabat.core.errors import StoreError
from adiabat.core.files import write_json
from adiabat.data.records import Document, Side
from adiabat.store import imports as imports_module
from adiabat.store.append import append_documents
from adiabat.store.imports import import_vectors
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(7)]
IDS = [document.doc_id for document in DOCUMENTS]


def own_vectors() -> np.ndarray:
    return FakeEncoder().encode([document.text for document in DOCUMENTS], side="document")


def saved(folder: Path, vectors: np.ndarray | None = None) -> Path:
    np.save(folder / "v.npy", own_vectors() if vectors is None else vectors)
    return folder / "v.npy"


def names(folder: Path) -> list[str]:
    return sorted(child.name for child in folder.iterdir() if child.name[0] != ".")


@pytest.mark.parametrize(("scale", "told"), [(0.98, "0.9[78]"), (1.02, "1.0[12]")])
def test_one_vector_of_another_length_is_enough_and_named(tmp_path: Path, scale: float, told: str) -> None:
    vectors = own_vectors()
    vectors[4] *= scale
    with pytest.raises(StoreError, match=rf'got {told}\d* instead of 1 for "d4".*encoder\.normalize=false'):
        import_vectors(saved(tmp_path, vectors), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=FakeEncoder())


@pytest.mark.parametrize("scale", [0.992, 1, 1.008])
def test_lengths_within_one_percent_lend_the_fingerprint(tmp_path: Path, scale: float) -> None:
    store = import_vectors(saved(tmp_path, scale * own_vectors()), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=FakeEncoder())
    assert store.fingerprint == FakeEncoder().fingerprint("document")


class Long(FakeEncoder):
    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        return 7.5 * super().encode(texts, side=side)


def test_an_encoder_of_long_vectors_lends_its_fingerprint_and_appends_as_long_ones(tmp_path: Path) -> None:
    import_vectors(saved(tmp_path, 7.5 * own_vectors()), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=Long())
    store = append_documents(Long(), lambda: iter([Document("new", "new")]), tmp_path / "s", source="more").store
    assert np.allclose(np.linalg.norm(store.gather(range(8)), axis=1), 7.5, rtol=1e-3)


KILLED = """
import os, signal, sys
from adiabat.store.imports import import_vectors
def documents():
    os.kill(os.getpid(), signal.SIGKILL)
    yield
import_vectors(sys.argv[1], sys.argv[2], ids=[f"d{number}" for number in range(7)], documents=documents())
"""


def test_a_killed_import_can_be_run_again_as_advised(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run([sys.executable, "-c", KILLED, str(saved(tmp_path)), str(tmp_path / "s")], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert "ids.incoming" in names(tmp_path / "s.building")
    with pytest.raises(StoreError, match="run its command again"):
        Store.open(tmp_path / "s")
    store = import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=FakeEncoder())
    assert store.doc_ids(range(7)) == IDS
    assert names(tmp_path) == ["s", "v.npy"]
    assert names(tmp_path / "s") == ["id_index.npy", "ids.arrow", "manifest.json", "text_hashes.bin", "texts.arrow", "vectors.npy"]


def test_what_no_import_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s.building").mkdir()
    write_json({"import": "v.npy"}, tmp_path / "s.building" / "state.json")
    (tmp_path / "s.building" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match=r"must be empty, it holds thesis\.txt"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS)
    assert (tmp_path / "s.building" / "thesis.txt").exists()


def test_a_disk_that_fills_with_texts_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(path: Path) -> sqlite3.Connection:
        base = connect(path)
        base.execute("PRAGMA max_page_count = 3")
        return base

    monkeypatch.setattr(imports_module.sqlite3, "connect", small)
    documents = [Document(doc_id, "x" * 4000) for doc_id in IDS]
    with pytest.raises(StoreError, match="the disk must have room for the store, it is full; free some and run the same command"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=documents)
    assert names(tmp_path) == ["v.npy"]


def test_repeated_documents_are_counted_and_the_first_ten_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='got 14 repeats: "d0" again; "d1" again;.* and 4 more; remove the repeats'):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=DOCUMENTS * 3)


@pytest.mark.parametrize("ids", [list(range(7)), np.arange(7), np.arange(7).astype(str)])
def test_whole_numbers_and_numpy_arrays_are_ids(tmp_path: Path, ids: list[int] | np.ndarray) -> None:
    assert import_vectors(saved(tmp_path), tmp_path / "s", ids=ids).doc_ids(range(7)) == list("0123456")


def test_fractions_are_no_ids(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="ids given: ids must be strings or whole numbers, got 7 entries: entry 0 is"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=np.arange(7) + 0.5)


@pytest.mark.parametrize(("name", "content"), [("ids.txt", "\n".join(IDS)), ("ids.json", json.dumps(IDS))])
def test_a_byte_order_mark_is_no_part_of_an_id(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert import_vectors(saved(tmp_path), tmp_path / "s", ids=tmp_path / name).doc_ids(range(7)) == IDS
