"""Stores updated with vectors of other programs."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import StoreError
from adiabat.data.records import Document
from adiabat.store import imports
from adiabat.store.append import add_documents
from adiabat.store.commit import Change
from adiabat.store.deletion import Deletion, compact_store
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, files_of_store
from tests.imported import import_vectors, update_from_vectors
from tests.refused import refused
from tests.store.crashes import crashes_of
from tests.store.worlds import CORPUS, FINAL, GONE, OLD, build, content, numbers, vectors_of

USUAL: dict[str, Any] = {
    "documents": CORPUS,
    "encoder": FakeEncoder(),
    "deletion": GONE,
    "source": "new",
}


def update(
    path: Path, corpus: list[Document] = CORPUS, vectors: np.ndarray | None = None, **options: Any
) -> Change:
    file = path.with_suffix(".npy")
    np.save(file, vectors_of(corpus) if vectors is None else vectors)
    ids = [document.doc_id for document in corpus]
    return update_from_vectors(file, path, **{**USUAL, "ids": ids, "documents": corpus, **options})


def without_texts(path: Path, documents: list[Document] = OLD) -> Store:
    file = path.with_suffix(".npy")
    np.save(file, vectors_of(documents))
    return import_vectors(file, path, ids=[document.doc_id for document in documents])


@pytest.mark.parametrize("block_rows", [2, 100])
def test_an_update_with_vectors_is_one_by_the_encoder(
    tmp_path: Path, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BLOCK_ROWS", block_rows)
    path, built = build(tmp_path / "s").path, build(tmp_path / "built", FINAL)
    change = update(path)
    assert numbers(change) == (2, 2, 1, 2)
    assert content(change.store) == content(built)
    assert change.store.manifest.corpus == built.manifest.corpus
    change.store.verify()
    assert numbers(update(path, deletion=None)) == (0, 0, 5, 0)
    assert files_of_store(compact_store(path).store.path) == files_of_store(built.path)


def test_vectors_without_texts_update_a_store_without_texts(tmp_path: Path) -> None:
    path = without_texts(tmp_path / "s").path
    change = update(path, documents=None, encoder=None)
    assert numbers(change) == (2, 2, 1, 2)
    assert content(change.store) == content(without_texts(tmp_path / "built", FINAL))
    assert change.store.fingerprint is None


def test_a_store_of_an_unknown_encoder_takes_no_texts_and_says_what_it_takes(tmp_path: Path) -> None:
    path = without_texts(tmp_path / "s").path
    with refused(StoreError, "encoder is unknown", "update=True"):
        add_documents(FakeEncoder(), lambda: iter(CORPUS), path, replacing=True, source="new")


def test_a_new_text_replaces_a_document_of_equal_vector(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    changed = [Document("d3", "text 3, longer than the encoder reads"), OLD[4]]
    reading = Reading(changed[0].text, OLD[3].text)
    change = update(path, changed, vectors_of([OLD[3], OLD[4]]), deletion=None, encoder=reading)
    assert numbers(change) == (0, 1, 1, 0)
    assert change.store.texts(change.store.rows(["d3"])) == [changed[0].text]


class Reading(FakeEncoder):
    """Takes one text for another, as an encoder that reads the beginnings of texts does."""

    def __init__(self, text: str, other: str) -> None:
        super().__init__()
        self._texts = {text: other}

    def _vector(self, text: str) -> np.ndarray:
        return super()._vector(self._texts.get(text, text))


def test_what_does_not_fit_the_store_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    path = build(tmp_path / "s").path
    before = files_of_store(path)
    faults: list[tuple[dict[str, Any], str]] = [
        ({"vectors": np.ones((5, 9), dtype=np.float32)}, "must have the store's width 8, got 9"),
        ({"documents": None}, "knows its texts, and vectors for it must come with theirs"),
        ({"encoder": None}, "holds vectors of a known model, which must check others"),
        ({"encoder": FakeEncoder(prompt="passage: ")}, 'prompt "" in the store'),
        ({"vectors": -vectors_of(CORPUS)}, "must agree with the encoder's at cosine"),
        ({"ids": ["d3", "d1", "n0", "d5", "d5"]}, '"d5" 2 times'),
        ({"ids": ["d3", "d1", "n0", "d5", "x"]}, 'the text of every vector, got none for "x"'),
        ({"deletion": Deletion(("d1",))}, 'must hold no documents to delete, got "d1"'),
        ({"deletion": Deletion(("z",))}, 'it lacks "z"'),
    ]
    for options, fact in faults:
        with refused(StoreError, fact):
            update(path, **options)
        assert files_of_store(path) == before
        assert not (path / "appending").exists()


def test_a_crash_before_any_step_of_an_update_with_vectors_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = build(tmp_path / "original").path
    shutil.copytree(original, tmp_path / "wanted")
    update(tmp_path / "wanted")
    wanted, before = content(Store.open(tmp_path / "wanted")), content(Store.open(original))
    for folder, is_half_done in crashes_of(update, original, monkeypatch, least=20):
        assert is_half_done or content(Store.open(folder)) in (before, wanted)
        update(folder)
        assert content(Store.open(folder)) == wanted
        assert not (folder / "appending").exists()


def test_an_update_with_vectors_through_the_door(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    store = adiabat.import_vectors(
        vectors, tmp_path / "s", ids=list("abcd"), texts=["A", "B", "C", "D"], dtype="float32"
    )
    vectors[1] += 1
    changed = adiabat.import_vectors(
        vectors[:2], store, ids=["a", "b"], texts=["A", "B"], update=True, delete=["d"]
    )
    assert changed.doc_ids(range(3)) == ["a", "c", "b"]
    np.testing.assert_array_equal(changed.gather([2])[0], vectors[1])
    with refused(StoreError, "it is a store", "update=True"):
        adiabat.import_vectors(vectors, store, ids=list("abcd"))
    with refused(adiabat.ConfigError, "update=True", "adiabat.delete"):
        adiabat.import_vectors(vectors, tmp_path / "new", ids=list("abcd"), delete=["a"])
