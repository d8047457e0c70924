"""Imports of each format, and each way in which one can be faulty."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from adiabat.core.checksums import CHECKED
from adiabat.core.errors import MissingDependencyError, StoreError
from adiabat.data.records import Document
from adiabat.store import imports as imports_module
from adiabat.store.imports import import_vectors
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder

IDS = ["a", "ב", "ج d", "🧭", "e", "f", "7"]
DOCUMENTS = [Document(doc_id, f"text of {doc_id}") for doc_id in IDS]


def own_vectors(encoder: FakeEncoder | None = None) -> np.ndarray:
    return (encoder or FakeEncoder()).encode([document.text for document in DOCUMENTS], side="document")


def saved(folder: Path, vectors: np.ndarray | None = None) -> Path:
    np.save(folder / "v.npy", own_vectors() if vectors is None else vectors)
    return folder / "v.npy"


def write_text_ids(folder: Path) -> Path:
    (folder / "ids.txt").write_text("".join(f"{doc_id}\n" for doc_id in IDS), encoding="utf-8")
    return folder / "ids.txt"


def write_json_ids(folder: Path) -> Path:
    (folder / "ids.json").write_text(json.dumps([*IDS[:-1], 7]))
    return folder / "ids.json"


def write_numpy_ids(folder: Path) -> Path:
    np.save(folder / "ids.npy", np.array(IDS))
    return folder / "ids.npy"


def write_arrow_ids(folder: Path) -> Path:
    with pa.ipc.new_file(str(folder / "ids.arrow"), pa.schema([("_id", pa.string())])) as writer:
        writer.write_table(pa.table({"_id": IDS}), max_chunksize=3)
    return folder / "ids.arrow"


def write_parquet_ids(folder: Path) -> Path:
    pq.write_table(pa.table({"other": IDS, "id": IDS}), folder / "ids.parquet")
    return folder / "ids.parquet"


def assert_holds(store: Store, vectors: np.ndarray | None = None) -> None:
    assert store.doc_ids(range(store.count)) == IDS
    assert store.rows([*IDS, "unknown"]).tolist() == [*range(7), -1]
    wanted = own_vectors() if vectors is None else vectors
    assert np.array_equal(store.gather(range(7)), wanted.astype(store.dtype).astype(np.float32))
    store.verify()
    wanted = {"id_index.npy", "ids.arrow", "manifest.json", "vectors.npy", *(["texts.arrow", "text_hashes.bin"] if store.has_texts else [])}
    assert {path.name for path in store.path.iterdir()} - {CHECKED} == wanted


@pytest.mark.parametrize("write", [write_text_ids, write_json_ids, write_numpy_ids, write_arrow_ids, write_parquet_ids])
def test_numpy_vectors_with_ids_in_any_format(tmp_path: Path, write: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    store = import_vectors(saved(tmp_path), tmp_path / "s", ids=write(tmp_path))
    assert_holds(store)
    assert store.fingerprint is None
    assert not store.has_texts
    assert store.manifest.source == "v.npy"
    assert not (tmp_path / "s.building").exists()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_any_float_dtype_becomes_the_one_asked_for(tmp_path: Path, dtype: str, stored: Any) -> None:
    vectors = own_vectors().astype(dtype)
    store = import_vectors(saved(tmp_path, np.asfortranarray(vectors)), tmp_path / "s", ids=IDS, dtype=stored)
    assert store.dtype == stored
    assert_holds(store, vectors)


def _typed(column: Any) -> pa.Array:
    """With its type, which pyarrow would take from the first value."""
    listed = isinstance(column, list) and any(isinstance(value, list) and value for value in column)
    if isinstance(column, list) and (listed or set(map(type, column)) == {type(None)}):
        first = next((value[0] for value in column if value), 1.0)
        return pa.array(column, pa.list_(pa.float64() if isinstance(first, float) else pa.int64()))
    return pa.array(column) if isinstance(column, list) else column


def vector_column(kind: str) -> pa.Array:
    flat = pa.array(own_vectors().ravel())
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, 8)
    if kind == "large":
        return pa.LargeListArray.from_arrays(np.arange(0, 57, 8), flat)
    return pa.ListArray.from_arrays(np.arange(0, 57, 8, dtype=np.int32), flat)


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize(("id_name", "vector_name"), [("doc_id", "vector"), ("_id", "embedding"), ("id", "vec")])
def test_parquet(tmp_path: Path, kind: str, id_name: str, vector_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    pq.write_table(pa.table({id_name: IDS, "note": IDS, vector_name: vector_column(kind)}), tmp_path / "v.parquet", row_group_size=4)
    assert_holds(import_vectors(tmp_path / "v.parquet", tmp_path / "s"))


def test_without_faiss_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "v.faiss").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'adiabat\[faiss\]'"):
        import_vectors(tmp_path / "v.faiss", tmp_path / "s")


def test_texts_are_found_by_id_in_any_order(tmp_path: Path) -> None:
    shuffled = [*DOCUMENTS[::-1], Document("extra", "not imported")]
    store = import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=shuffled)
    assert_holds(store)
    assert store.texts(range(7)) == [document.text for document in DOCUMENTS]
    assert store.fingerprint is None


def test_missing_texts_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r'got none for 2 ids: "e"; "f"; add them, or import without texts'):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=DOCUMENTS[:4] + DOCUMENTS[6:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy"]


@pytest.mark.parametrize("sample", [1, 3, 16])
def test_an_encoder_that_gives_the_same_vectors_lends_its_fingerprint(tmp_path: Path, sample: int) -> None:
    encoder = FakeEncoder()
    store = import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=encoder, sample=sample)
    assert store.fingerprint == encoder.fingerprint("document")
    assert encoder.calls == [min(sample, 7)]


def test_an_encoder_that_gives_other_vectors_is_refused_with_the_worst_cosine(tmp_path: Path) -> None:
    other = FakeEncoder(prompt="passage: ")
    cosines = (own_vectors() * own_vectors(other)).sum(axis=1)
    with pytest.raises(
        StoreError, match=rf'at cosine >= 0.999, got {cosines.min():.2f}.* for "{IDS[cosines.argmin()]}" \(the worst of 7\)'
    ):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=other)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy"]


def test_one_wrong_vector_in_the_sample_is_enough(tmp_path: Path) -> None:
    vectors = own_vectors()
    vectors[4] = -vectors[4]
    with pytest.raises(StoreError, match='got -1.0000 for "e"'):
        import_vectors(saved(tmp_path, vectors), tmp_path / "s", ids=IDS, documents=DOCUMENTS, encoder=FakeEncoder())


def test_an_encoder_of_another_width_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must have the encoder's width 9, got 8"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS, encoder=FakeEncoder(width=9))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.nan, "holds NaN"),
        (np.inf, "holds a number too large for float16"),
        (0, "is zero"),
        (1e-9, "is zero"),
        (1e5, "holds a number too large"),
    ],
)
def test_unusable_vectors_are_counted_and_the_first_ten_named(tmp_path: Path, value: float, kind: str) -> None:
    vectors = np.repeat(own_vectors(), 5, axis=0)
    vectors[3:16] = value
    ids = [f"d{row}" for row in range(35)]
    with pytest.raises(StoreError, match=rf'got 13 vectors: "d3" {kind}.*; "d12" {kind}[^"]*; and 3 more'):
        import_vectors(saved(tmp_path, vectors), tmp_path / "s", ids=ids)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.npy"]


@pytest.mark.parametrize(("ids", "counts"), [(IDS[:-1], "got only 6 ids"), ([*IDS, "x", "y"], "got 9 ids for 7 vectors")])
def test_ids_and_vectors_must_be_equally_many(tmp_path: Path, ids: list[str], counts: str) -> None:
    with pytest.raises(StoreError, match=f"must be equally many, {counts}"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=ids)


def test_ids_of_half_a_surrogate_pair_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not valid Unicode"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=[*IDS[:-1], "\ud83d"])


def test_vectors_without_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must come with ids, the file holds none; name a file of them"):
        import_vectors(saved(tmp_path), tmp_path / "s")


@pytest.mark.parametrize(
    ("array", "found"),
    [(np.ones(8), r"float64 of shape \(8,\)"), (np.ones((7, 8), dtype=np.int64), "int64"), (np.empty((0, 8)), "at least one vector")],
)
def test_arrays_of_another_kind_are_refused(tmp_path: Path, array: np.ndarray, found: str) -> None:
    with pytest.raises(StoreError, match=found):
        import_vectors(saved(tmp_path, array), tmp_path / "s", ids=[])


def test_pickled_arrays_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(StoreError, match="v.npy must be .* Python objects in dtype.*; write it again with numpy.save, as numbers"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)


def test_archives_and_arrays_without_a_number_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", one=own_vectors())
    (tmp_path / "v.npz").rename(tmp_path / "v.npy")
    with pytest.raises(StoreError, match=r"must be an npy file, got an archive of several \(npz\); write the one array with numpy\.save"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)
    with pytest.raises(StoreError, match=r"must be a float array of two dimensions, got float32 of shape \(7, 0\)"):
        import_vectors(saved(tmp_path, np.empty((7, 0), dtype=np.float32)), tmp_path / "s", ids=IDS)


def test_ids_of_python_objects_of_several_dimensions_or_in_an_archive_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    for ids, message in (
        (np.array(IDS, dtype=object), r"ids must be an npy file of strings or numbers, got: .*; save them with astype\(str\)"),
        (np.array([IDS, IDS]), r"must be an array of one dimension, got one of shape \(2, 7\)"),
    ):
        np.save(path, ids, allow_pickle=True)
        with pytest.raises(StoreError, match=message):
            import_vectors(saved(tmp_path), tmp_path / "s", ids=path)
    np.savez(tmp_path / "ids.npz", ids=np.array(IDS))
    (tmp_path / "ids.npz").rename(path)
    with pytest.raises(StoreError, match=r"must be an array of one dimension, got an archive \(npz\)"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=path)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.faiss"])
@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=name):
        import_vectors(tmp_path / name, tmp_path / "s", ids=IDS)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"id": IDS, "weights": vector_column("list")},
            "must have a column named vector or embedding or embeddings or vec, got id, weights",
        ),
        ({"id": IDS, "vec": list(range(7))}, "must be lists of floats, got a column of int64"),
        ({"id": IDS, "vec": [[1]] * 7}, "must be lists of floats"),
        ({"id": IDS, "vec": [[1.0, 2.0]] * 5 + [[1.0], None]}, "must all have 2 numbers, got 2 rows: row 5 has 1 numbers; row 6 is null"),
        ({"id": IDS, "vec": [[1.0, 2.0]] * 6 + [[1.0, None]]}, '"7" holds NaN'),
        ({"id": [*IDS[:-1], None], "vec": [[1.0, 2.0]] * 7}, "ids must be strings or whole numbers, got entry 6 is None"),
        ({"id": [], "vec": pa.array([], pa.list_(pa.float32()))}, "at least one vector, got none"),
        ({"id": IDS, "vec": [[], *[[1.0]] * 6]}, "must all have 1 numbers, got row 0 has 0 numbers"),
        ({"id": IDS, "vec": [None, *[[1.0, 2.0]] * 6]}, "must all have 2 numbers, got row 0 is null; correct or drop them"),
        ({"id": IDS, "vec": [None, None, [], *[[1.0, 2.0]] * 4]}, "got 3 rows: row 0 is null; row 1 is null; row 2 has 0 numbers"),
        ({"id": IDS, "vec": [None] * 7}, "at least one vector, got none"),
        ({"id": IDS, "vec": pa.array([None, *[[1.0, 2.0]] * 6], pa.list_(pa.float32(), 2))}, "got row 0 is null"),
        ({"id": IDS, "vec": pa.nulls(7)}, "must be lists of floats, got a column of null"),
        ({"id": IDS, "vec": [[np.inf, 1.0], *[[1.0, 2.0]] * 6]}, '"a" holds a number too large for float16'),
    ],
)
@pytest.mark.parametrize("block_rows", [2, 100])
def test_faulty_parquet_files_are_refused(
    tmp_path: Path, columns: dict[str, Any], message: str, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", block_rows)
    if block_rows == 2:
        # Faults are told of a block at a time, by their number in the file.
        message = message.replace(
            "got 3 rows: row 0 is null; row 1 is null; row 2 has 0 numbers", "got 2 rows: row 0 is null; row 1 is null"
        )
        message = message.replace("got 2 rows: row 5 has 1 numbers; row 6 is null", "got row 5 has 1 numbers")
    table = pa.table({name: _typed(column) for name, column in columns.items()})
    pq.write_table(table, tmp_path / "v.parquet")
    with pytest.raises(StoreError, match=message):
        import_vectors(tmp_path / "v.parquet", tmp_path / "s")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.parquet"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ids.json", b"{", r"ids\.json must be undamaged, got JSONDecodeError"),
        ("ids.json", b"", r"ids\.json must be undamaged, got JSONDecodeError"),
        ("ids.json", b"[" * 100_000, r"ids\.json must be undamaged, got RecursionError"),
        ("ids.json", b'["\xff"]', r"ids\.json must be undamaged, got UnicodeDecodeError"),
        ("ids.json", b'[{"_id": 1}, [2]]', r"got 2 entries: entry 0 is \{'_id': 1\}; entry 1 is \[2\]; correct them"),
        ("ids.npy", b"", "must be an npy file of strings or numbers|must be undamaged"),
        ("ids.json", b'{"a": 1}', "must be a JSON list, got dict"),
        ("ids.json", b'["a", 1.5, true]', "got 2 entries: entry 1 is 1.5; entry 2 is True"),
        ("ids.npy", b"x", "must be an npy file of strings or numbers, got"),
        ("ids.arrow", b"x", r"ids\.arrow must be undamaged"),
        ("ids.parquet", b"x", r"ids\.parquet must be undamaged"),
        ("ids.txt", b"\xff\xfe\n", "must be UTF-8 text"),
    ],
)
def test_faulty_id_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StoreError, match=message):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=tmp_path / name)


def test_an_id_column_under_another_name_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": IDS}), tmp_path / "ids.parquet")
    with pytest.raises(StoreError, match="must have a column named doc_id or _id or id, got name"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=tmp_path / "ids.parquet")


def test_missing_files_and_unknown_suffixes_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"v\.npy: vectors must be a file, there is none"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)
    (tmp_path / "v.csv").write_text("1,2")
    with pytest.raises(StoreError, match=r"must end in \.npy, \.parquet, \.faiss or \.index, got \.csv"):
        import_vectors(tmp_path / "v.csv", tmp_path / "s", ids=IDS)
    with pytest.raises(StoreError, match="ids must be a file, there is none"):
        import_vectors(saved(tmp_path), tmp_path / "s", ids=tmp_path / "nowhere.txt")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    import_vectors(saved(tmp_path), tmp_path / "s", ids=IDS)
    with pytest.raises(StoreError, match="it is a store; choose another --out"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)
    (tmp_path / "t.building").mkdir()
    (tmp_path / "t.building" / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match=r"must be empty, it holds thesis\.txt"):
        import_vectors(tmp_path / "v.npy", tmp_path / "t", ids=IDS)
    assert (tmp_path / "t.building" / "thesis.txt").exists()
