"""The BM25 index of a store's own texts: where it lies, and when it is built again."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import adiabat
from adiabat.core.errors import AdiabatError, StoreError
from adiabat.core.files import sole_writer
from adiabat.store import own_bm25 as module
from adiabat.store.manifest import DATA_FILE
from adiabat.store.own_bm25 import own_bm25
from adiabat.store.vector_store import Store
from tests.store.worlds import store_of

TEXTS = ["ash and birch", "birches", "cedar"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with texts."""
    vectors, ids = np.eye(3, 4, dtype=np.float32), ["d0", "d1", "d2"]
    return adiabat.import_vectors(vectors, tmp_path / "store", ids=ids, texts=TEXTS)


def written(folder: Path) -> int:
    return (folder / DATA_FILE).stat().st_mtime_ns


def test_an_index_is_built_once_in_the_store_and_again_for_other_texts(store: Store) -> None:
    index = own_bm25(store)
    assert (index.path, index.count) == (Path(store.path) / "bm25", 3)
    assert index.search(["birch"], 3).rows.tolist() == [[0, -1, -1]]
    first = written(index.path)
    assert written(own_bm25(Store.open(store.path)).path) == first
    # Stems are another index beside it.
    assert own_bm25(store, stemmer="english").search(["birch"], 3).rows.tolist() == [[1, 0, -1]]
    assert written(index.path) == first
    store.verify()
    adiabat.delete(store, ["d0"])
    after = Store.open(store.path)
    assert own_bm25(after).count == 2
    assert own_bm25(after).search(["birches"], 2).rows.tolist() == [[0, -1]]


def test_a_store_that_cannot_be_written_has_its_index_in_the_cache(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_writable", lambda folder: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index = own_bm25(store)
    assert index.path.parent == tmp_path / "cache" / "adiabat" / "bm25"
    assert not (Path(store.path) / "bm25").exists()
    first = written(index.path)
    assert written(own_bm25(store).path) == first


def test_an_index_in_a_store_that_cannot_be_written_serves_until_the_texts_change(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_bm25(store).path
    monkeypatch.setattr(module, "is_writable", lambda folder: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert own_bm25(store).path == own
    adiabat.delete(store, ["d0"])
    after = own_bm25(Store.open(store.path))
    assert (after.path.parent, after.count) == (tmp_path / "cache" / "adiabat" / "bm25", 2)


def test_an_index_that_another_process_builds_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = ExitStack()
    (Path(store.path) / "bm25").mkdir()
    locked.enter_context(sole_writer(Path(store.path) / "bm25"))
    waited = []

    def end_of_the_other(seconds: float) -> None:
        waited.append(seconds)
        locked.close()

    monkeypatch.setattr(module.time, "sleep", end_of_the_other)
    assert own_bm25(store).count == 3
    assert waited == [module.PAUSE]


def test_what_lies_in_the_way_of_an_index_is_named(store: Store) -> None:
    (Path(store.path) / "bm25").write_text("a file")
    with pytest.raises(AdiabatError, match=r"store/bm25.* File exists"):
        own_bm25(store)
    assert (Path(store.path) / "bm25").read_text() == "a file"


def test_a_store_without_texts_says_what_is_missing(tmp_path: Path) -> None:
    store = store_of(np.eye(2, dtype=np.float32), tmp_path / "store")
    with pytest.raises(StoreError, match=r"must keep its texts .* embed the corpus again"):
        own_bm25(store)
