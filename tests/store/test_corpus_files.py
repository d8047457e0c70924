"""The id index and the Arrow columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from adiabat.core.errors import StoreError
from adiabat.store import corpus_files as ids_module
from adiabat.store.corpus_files import IdIndex, StringColumn, StringColumnWriter, hash_ids, refuse_duplicates
from tests.refused import refused

STRANGE = [
    "",
    "plain",
    "عربي",
    "שלום",
    "é",
    "e\u0301",
    "line\nbreak",
    "\u202eright to left",
    "🧭",
    "a b",
    "0",
    "00",
]


def column(path: Path, strings: list[str], batch_rows: int = 4) -> StringColumn:
    with StringColumnWriter(path, name="doc_id", batch_rows=batch_rows) as writer:
        writer.extend(strings)
    return StringColumn(path)


def index(folder: Path, strings: list[str]) -> IdIndex:
    IdIndex.write(folder / "index.npy", hash_ids(strings))
    return IdIndex(folder / "index.npy", column(folder / "ids.arrow", strings))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 33])
def test_strings_come_back_by_row_in_the_order_asked(tmp_path: Path, count: int) -> None:
    strings = [f"string {number}" for number in range(count)]
    kept = column(tmp_path / "c.arrow", strings)
    rows = np.random.default_rng(count).integers(0, count, 50)
    assert len(kept) == count
    assert kept.take(rows) == [strings[row] for row in rows]
    assert kept.take([]) == []


@pytest.mark.parametrize("start", [0, 1, 3, 4, 9, 10])
def test_slices_give_everything_from_a_row_on(tmp_path: Path, start: int) -> None:
    strings = [str(number) for number in range(10)]
    parts = list(column(tmp_path / "c.arrow", strings).slices(start))
    assert [string for part in parts for string in part] == strings[start:]
    assert all(parts)


def test_the_column_is_a_plain_arrow_file(tmp_path: Path) -> None:
    column(tmp_path / "c.arrow", STRANGE)
    assert pa.ipc.open_file(str(tmp_path / "c.arrow")).read_all().column("doc_id").to_pylist() == STRANGE


def test_every_id_finds_its_row_and_unknown_ids_none(tmp_path: Path) -> None:
    found = index(tmp_path, STRANGE).rows([*reversed(STRANGE), "unknown", "plain "])
    assert found.tolist() == [*reversed(range(len(STRANGE))), -1, -1]


def test_many_lookups_at_once_are_those_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "LOOKUP_SLICE", 7)
    strings = [f"d{number}" for number in range(100)]
    kept = index(tmp_path, strings)
    asked = [f"d{number}" for number in np.random.default_rng(0).integers(0, 150, 200)]
    assert kept.rows(asked).tolist() == [int(name[1:]) if int(name[1:]) < 100 else -1 for name in asked]


def test_colliding_hashes_still_find_the_right_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids_module, "hash_ids", lambda doc_ids: np.full(len(doc_ids), 7, dtype=np.uint64))
    strings = [f"d{number}" for number in range(20)]
    IdIndex.write(tmp_path / "index.npy", ids_module.hash_ids(strings))
    kept = IdIndex(tmp_path / "index.npy", column(tmp_path / "ids.arrow", strings))
    assert kept.rows([*strings, "d20", "d3"]).tolist() == [*range(20), -1, 3]


def test_duplicates_are_named_and_collisions_are_not(tmp_path: Path) -> None:
    constant = np.zeros(3, dtype=np.uint64)
    refuse_duplicates(constant, column(tmp_path / "a.arrow", ["x", "y", "z"]), "corpus")
    with refused(StoreError, 'corpus: document ids must be unique, got "x" 2 times'):
        refuse_duplicates(constant, column(tmp_path / "b.arrow", ["x", "y", "x"]), "corpus")


def test_an_index_of_another_length_is_an_error(tmp_path: Path) -> None:
    IdIndex.write(tmp_path / "index.npy", hash_ids(["a", "b"]))
    with refused(StoreError, "must index 1 ids"):
        IdIndex(tmp_path / "index.npy", column(tmp_path / "ids.arrow", ["a"]))


def test_the_index_is_a_plain_npy_file_in_ascending_order(tmp_path: Path) -> None:
    IdIndex.write(tmp_path / "index.npy", hash_ids(STRANGE))
    hashes, rows = np.load(tmp_path / "index.npy")
    assert (np.diff(hashes.astype(object)) > 0).all()
    assert sorted(rows.tolist()) == list(range(len(STRANGE)))
