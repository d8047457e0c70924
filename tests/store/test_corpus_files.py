"""The id index and the Arrow columns."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

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


@given(
    strings=some.lists(some.text(), min_size=1, max_size=20),
    rows=some.lists(some.integers(0, 99)),
    start=some.integers(0, 20),
)
@example(strings=STRANGE, rows=[7, 7, 0], start=3)
@example(strings=[f"string {number}" for number in range(8)], rows=[], start=8)
def test_strings_come_back_by_row_from_a_row_on_and_as_a_plain_arrow_file(
    tmp_path_factory: pytest.TempPathFactory, strings: list[str], rows: list[int], start: int
) -> None:
    path = tmp_path_factory.mktemp("column") / "c.arrow"
    kept, rows, start = column(path, strings), [row % len(strings) for row in rows], min(start, len(strings))
    assert len(kept) == len(strings)
    assert kept.take(rows) == [strings[row] for row in rows]
    parts = list(kept.slices(start))
    assert [string for part in parts for string in part] == strings[start:]
    assert all(parts)
    assert pa.ipc.open_file(str(path)).read_all().column("doc_id").to_pylist() == strings


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
