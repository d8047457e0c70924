"""A store that another process changes while a run reads it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.data.records import Document
from adiabat.store.append import add_documents
from adiabat.store.deletion import Deletion, compact_store, delete_documents
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder, fake_store
from tests.refused import refused
from tests.store.worlds import numbered

DOCUMENTS = numbered(7)
OTHERS = numbered(7, text="another text")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return fake_store(tmp_path / "store", DOCUMENTS).store


def rebuilt(folder: Path) -> None:
    shutil.rmtree(folder)
    fake_store(folder, OTHERS)


def renamed_into_place(folder: Path) -> None:
    other = fake_store(folder.with_name("other"), OTHERS).store.path
    folder.rename(folder.with_name("former"))
    other.rename(folder)


def copied_over(folder: Path) -> None:
    """As ``cp other/* store``: the files keep their inodes."""
    other = fake_store(folder.with_name("other"), OTHERS).store.path
    for file in other.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())


def vectors_alone_copied_over(folder: Path) -> None:
    other = fake_store(folder.with_name("other"), OTHERS).store.path
    (folder / "vectors.npy").write_bytes((other / "vectors.npy").read_bytes())


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "change", [rebuilt, renamed_into_place, copied_over, vectors_alone_copied_over, removed]
)
def test_a_store_written_anew_while_it_is_read_is_refused_by_name(
    store: Store, change: Callable[[Path], None]
) -> None:
    blocks = store.blocks(3)
    next(blocks)
    change(store.path)
    changed = r"another process changed its (vectors\.npy|manifest)"
    with pytest.raises(StoreError, match=f"store must stay as it is while it is read, {changed}"):
        list(blocks)
    with refused(StoreError, "put the former store back"):
        store.require_unchanged()


def test_a_store_that_is_put_back_can_be_read_on(store: Store) -> None:
    renamed_into_place(store.path)
    with pytest.raises(StoreError):
        store.require_unchanged()
    store.path.rename(store.path.with_name("wrong"))
    store.path.with_name("former").rename(store.path)
    store.require_unchanged()


def appended(folder: Path) -> None:
    new = [Document("new", "a new text"), Document("z", "text 3")]
    add_documents(FakeEncoder(), lambda: iter(new), folder, source="more")


def deleted(folder: Path) -> None:
    delete_documents(folder, Deletion(["d0", "d5"]))


@pytest.mark.parametrize("change", [appended, deleted])
def test_rows_of_a_reader_stay_valid_while_documents_are_added_or_deleted(
    store: Store, change: Callable[[Path], None]
) -> None:
    before = store.gather(range(7))
    change(store.path)
    store.require_unchanged()
    assert np.array_equal(store.gather(range(7)), before)
    assert np.array_equal(np.concatenate([block for _, block in store.blocks(3)]), before.astype(store.dtype))
    assert np.array_equal(np.asarray(store.vectors), before.astype(store.dtype))
    assert store.doc_ids(range(7)) == [document.doc_id for document in DOCUMENTS]
    assert store.texts(np.arange(7)) == [document.text for document in DOCUMENTS]
    # Hashes are read later than the other files, and from the file that was open.
    assert store.rows_of_texts(["text 6", "a new text", "text 3"]) == {"text 6": 6, "text 3": 3}
    assert store.rows(["d6", "new"]).tolist() == [6, -1]
    assert len(store.text_hashes(np.arange(7))) == 7


def test_a_compacted_store_is_another_one_for_its_readers(store: Store) -> None:
    deleted(store.path)
    reader = Store.open(store.path)
    compact_store(store.path)
    with pytest.raises(StoreError, match=r"another process changed its (vectors\.npy|manifest\.json)"):
        reader.require_unchanged()


def test_a_file_of_equal_content_with_another_date_is_the_same(store: Store) -> None:
    for file in store.path.iterdir():
        os.utime(file, (1, 1))
    store.require_unchanged()
    # What was compared once is not read again.
    assert store._watched._states == store._watched._now()
