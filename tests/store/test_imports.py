"""Imports of each format, each way in which one can be faulty, and imports that were killed or ran out of
disk.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jaxtyping import Float

from adiabat.core.errors import MissingDependencyError, StoreError
from adiabat.core.files import write_json
from adiabat.data.records import Document, Side
from adiabat.store import imports as imports_module
from adiabat.store.append import add_documents
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder
from tests.forks import exit_code
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.crashes import DISK_IS_FULL, on_full_disk
from tests.store.worlds import DOCUMENTS, IDS, assert_holds, imported, names, own_vectors, vector_column


def write_arrow_ids(path: Path) -> None:
    with pa.ipc.new_file(str(path), pa.schema([("_id", pa.string())])) as writer:
        writer.write_table(pa.table({"_id": IDS}), max_chunksize=3)


ID_FILES: dict[str, Callable[[Path], object]] = {
    "ids.txt": lambda path: path.write_text("".join(f"{doc_id}\n" for doc_id in IDS), encoding="utf-8"),
    "bom.txt": lambda path: path.write_text("\n".join(IDS), encoding="utf-8-sig"),
    "ids.json": lambda path: path.write_text(json.dumps([*IDS[:-1], 7])),
    "bom.json": lambda path: path.write_text(json.dumps(IDS), encoding="utf-8-sig"),
    "ids.npy": lambda path: np.save(path, np.array(IDS)),
    "ids.arrow": write_arrow_ids,
    "ids.parquet": lambda path: pq.write_table(pa.table({"other": IDS, "id": IDS}), path),
}


@pytest.mark.parametrize("name", ID_FILES)
def test_numpy_vectors_with_ids_in_any_format(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    ID_FILES[name](tmp_path / name)
    store = imported(tmp_path, ids=tmp_path / name)
    assert_holds(store)
    assert store.fingerprint is None
    assert not store.has_texts
    assert store.manifest.source == "v.npy"
    assert not (tmp_path / "s.building").exists()


@pytest.mark.parametrize("ids", [list(range(7)), np.arange(7), np.arange(7).astype(str)])
def test_whole_numbers_and_numpy_arrays_are_ids(tmp_path: Path, ids: list[int] | np.ndarray) -> None:
    assert imported(tmp_path, ids=ids).doc_ids(range(7)) == list("0123456")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("stored", ["float16", "float32"])
def test_any_float_dtype_becomes_the_one_asked_for(tmp_path: Path, dtype: str, stored: Any) -> None:
    vectors = own_vectors().astype(dtype)
    store = imported(tmp_path, np.asfortranarray(vectors), dtype=stored)
    assert store.dtype == stored
    assert_holds(store, vectors)


def _typed(column: Any) -> pa.Array:
    """With its type, which pyarrow would take from the first value."""
    listed = isinstance(column, list) and any(isinstance(value, list) and value for value in column)
    if isinstance(column, list) and (listed or set(map(type, column)) == {type(None)}):
        first = next((value[0] for value in column if value), 1.0)
        return pa.array(column, pa.list_(pa.float64() if isinstance(first, float) else pa.int64()))
    return pa.array(column) if isinstance(column, list) else column


@pytest.mark.parametrize("kind", ["list", "large", "fixed"])
@pytest.mark.parametrize(
    ("id_name", "vector_name"), [("doc_id", "vector"), ("_id", "embedding"), ("id", "vec")]
)
def test_parquet(
    tmp_path: Path, kind: str, id_name: str, vector_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    pq.write_table(
        pa.table({id_name: IDS, "note": IDS, vector_name: vector_column(kind)}),
        tmp_path / "v.parquet",
        row_group_size=4,
    )
    assert_holds(import_vectors(tmp_path / "v.parquet", tmp_path / "s"))


def test_without_faiss_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "v.faiss").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "faiss", None)
    with refused(MissingDependencyError, "pip install 'adiabat[faiss]'"):
        import_vectors(tmp_path / "v.faiss", tmp_path / "s")


def test_texts_are_found_by_id_in_any_order(tmp_path: Path) -> None:
    store = imported(tmp_path, documents=[*DOCUMENTS[::-1], Document("extra", "not imported")])
    assert_holds(store)
    assert store.texts(range(7)) == [document.text for document in DOCUMENTS]
    assert store.fingerprint is None


@pytest.mark.parametrize(("sample", "scale"), [(1, 1), (3, 1), (16, 1), (16, 0.992), (16, 1.008)])
def test_an_encoder_of_the_same_vectors_and_lengths_within_one_percent_lends_its_fingerprint(
    tmp_path: Path, sample: int, scale: float
) -> None:
    encoder = FakeEncoder()
    store = imported(tmp_path, scale * own_vectors(), documents=DOCUMENTS, encoder=encoder, sample=sample)
    assert store.fingerprint == encoder.fingerprint("document")
    assert encoder.calls == [min(sample, 7)]


class Long(FakeEncoder):
    def encode(self, texts: Sequence[str], *, side: Side) -> Float[np.ndarray, "n e"]:
        return 7.5 * super().encode(texts, side=side)


def test_an_encoder_of_long_vectors_lends_its_fingerprint_and_appends_as_long_ones(tmp_path: Path) -> None:
    imported(tmp_path, 7.5 * own_vectors(), documents=DOCUMENTS, encoder=Long())
    store = add_documents(Long(), lambda: iter([Document("new", "new")]), tmp_path / "s", source="more").store
    assert np.allclose(np.linalg.norm(store.gather(range(8)), axis=1), 7.5, rtol=1e-3)


def test_an_encoder_that_gives_other_vectors_is_refused_with_the_worst_cosine(tmp_path: Path) -> None:
    other = FakeEncoder(prompt="passage: ")
    cosines = (own_vectors() * own_vectors(other)).sum(axis=1)
    facts = f"cosine >= 0.999, got {cosines.min():.2f}", f'"{IDS[cosines.argmin()]}"', "the worst of 7"
    with refused(StoreError, *facts):
        imported(tmp_path, documents=DOCUMENTS, encoder=other)
    assert names(tmp_path) == ["v.npy"]


def fifth_times(factor: float) -> np.ndarray:
    vectors = own_vectors()
    vectors[4] *= factor
    return vectors


MANY = {"ids": [f"d{row}" for row in range(35)]}


def many(value: float) -> np.ndarray:
    """Of 35 vectors 13 that cannot be used, from the fourth on."""
    vectors = np.repeat(own_vectors(), 5, axis=0)
    vectors[3:16] = value
    return vectors


ENCODED: dict[str, Any] = {"documents": DOCUMENTS, "encoder": FakeEncoder()}
NO_IDS = "ids given: ids must be strings or whole numbers, got "
LENGTH = 'instead of 1 for "e"'
REFUSED: list[tuple[np.ndarray | None, dict[str, Any], list[str]]] = [
    (None, {"documents": DOCUMENTS[:4] + DOCUMENTS[6:]}, ['none for 2 ids: "e"; "f"; ']),
    (None, {"documents": DOCUMENTS * 3}, ["documents: ", '7 ids: "a" 3 times; "ב" 3 times;']),
    (fifth_times(-1), ENCODED, ['got -1.000000 for "e"']),
    (fifth_times(0.98), ENCODED, ["got 0.9799", LENGTH, "encoder.normalize=false"]),
    (fifth_times(1.02), ENCODED, ["got 1.02", LENGTH, "encoder.normalize=false"]),
    (None, {"encoder": FakeEncoder(width=9)}, ["must have the encoder's width 9, got 8"]),
    *(
        (many(value), MANY, [f'got 13 vectors: "d3" {kind}', f'"d12" {kind}', "; and 3 more"])
        for value, kind in (
            (np.nan, "holds NaN"),
            (np.inf, "holds a number too large for float16"),
            (0, "is zero"),
            (1e-9, "is zero"),
            (1e5, "holds a number too large"),
        )
    ),
    (None, {"ids": IDS[:-1]}, ["equally many, got only 6 ids"]),
    (None, {"ids": [*IDS, "x", "y"]}, ["equally many, got 9 ids for 7 vectors"]),
    (None, {"ids": [*IDS[:-1], "\ud83d"]}, ["is not valid Unicode"]),
    (None, {"ids": None}, ["must come with ids, the file holds none"]),
    (None, {"ids": np.arange(7) + 0.5}, [f"{NO_IDS}7 entries: entry 0 is"]),
    (None, {"ids": [*IDS[:-1], ""]}, [f"{NO_IDS}entry 6 is ''; ", "none may be empty"]),
    (None, {"ids": np.array([*IDS[:-1], "\0z"])}, [f"{NO_IDS}entry 6 is ", r"\x00z'", "zero byte"]),
    (np.ones(8), {"ids": []}, ["float64 of shape (8,)"]),
    (np.ones((7, 8), dtype=np.int64), {"ids": []}, ["int64"]),
    (np.empty((0, 8)), {"ids": []}, ["at least one vector"]),
    (np.empty((7, 0), dtype=np.float32), {}, ["two dimensions, got float32 of shape (7, 0)"]),
    (np.array([{"a": 1}], dtype=object), {}, ["v.npy must be ", "Python objects in dtype", "numpy.save"]),
]


@pytest.mark.parametrize(("vectors", "options", "facts"), REFUSED)
def test_faulty_imports_are_refused_and_leave_nothing(
    tmp_path: Path, vectors: np.ndarray | None, options: dict[str, Any], facts: list[str]
) -> None:
    with refused(StoreError, *facts):
        imported(tmp_path, vectors, **options)
    assert names(tmp_path) == ["v.npy"]


def test_archives_ids_of_python_objects_and_ids_of_several_dimensions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ids.npy"
    for ids, facts in (
        (np.array(IDS, dtype=object), ["ids.npy must be ", "Object arrays ", "strings or numbers"]),
        (np.array([IDS, IDS]), ["one dimension, got one of shape (2, 7)"]),
    ):
        np.save(path, ids, allow_pickle=True)
        with refused(StoreError, *facts):
            imported(tmp_path, ids=path)
    np.savez(tmp_path / "a.npz", ids=np.array(IDS))
    path.write_bytes((tmp_path / "a.npz").read_bytes())
    with refused(StoreError, "one dimension, got an archive (npz)"):
        imported(tmp_path, ids=path)
    (tmp_path / "v.npy").write_bytes((tmp_path / "a.npz").read_bytes())
    with refused(StoreError, "must be an npy file, got an archive of several (npz)", "numpy.save"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)


@pytest.mark.parametrize("name", ["v.npy", "v.parquet", "v.faiss"])
@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(StoreError, name):
        import_vectors(tmp_path / name, tmp_path / "s", ids=IDS)


PAIR = [1.0, 2.0]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"id": IDS, "weights": vector_column("list")},
            "a column named vector or embedding or embeddings or vec, got id, weights",
        ),
        ({"id": IDS, "vec": list(range(7))}, "lists of floats, got a column of int64"),
        ({"id": IDS, "vec": [[1]] * 7}, "lists of floats"),
        (
            {"id": IDS, "vec": [PAIR] * 5 + [[1.0], None]},
            "2 numbers, got 2 rows: row 5 has 1 numbers; row 6 is null",
        ),
        ({"id": IDS, "vec": [PAIR] * 6 + [[1.0, None]]}, '"7" holds NaN'),
        ({"id": [*IDS[:-1], None], "vec": [PAIR] * 7}, "strings or whole numbers, got entry 6 is None"),
        ({"id": [], "vec": pa.array([], pa.list_(pa.float32()))}, "at least one vector, got none"),
        ({"id": IDS, "vec": [[], *[[1.0]] * 6]}, "1 numbers, got row 0 has 0 numbers"),
        ({"id": IDS, "vec": [None, *[PAIR] * 6]}, "2 numbers, got row 0 is null; "),
        (
            {"id": IDS, "vec": [None, None, [], *[PAIR] * 4]},
            "got 3 rows: row 0 is null; row 1 is null; row 2 has 0 numbers",
        ),
        ({"id": IDS, "vec": [None] * 7}, "at least one vector, got none"),
        ({"id": IDS, "vec": pa.array([None, *[PAIR] * 6], pa.list_(pa.float32(), 2))}, "got row 0 is null"),
        ({"id": IDS, "vec": pa.nulls(7)}, "lists of floats, got a column of null"),
        ({"id": IDS, "vec": [[np.inf, 1.0], *[PAIR] * 6]}, '"a" holds a number too large for float16'),
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
            "got 3 rows: row 0 is null; row 1 is null; row 2 has 0 numbers",
            "got 2 rows: row 0 is null; row 1 is null",
        )
        message = message.replace("got 2 rows: row 5 has 1 numbers; row 6 is null", "got row 5 has 1 numbers")
    table = pa.table({name: _typed(column) for name, column in columns.items()})
    pq.write_table(table, tmp_path / "v.parquet")
    with refused(StoreError, message):
        import_vectors(tmp_path / "v.parquet", tmp_path / "s")
    assert names(tmp_path) == ["v.parquet"]


UNDAMAGED = "must be undamaged, got "


@pytest.mark.parametrize(
    ("name", "content", "fact"),
    [
        ("ids.json", b"{", f"ids.json {UNDAMAGED}JSONDecodeError"),
        ("ids.json", b"", f"ids.json {UNDAMAGED}JSONDecodeError"),
        ("ids.json", b"[" * 100_000, f"ids.json {UNDAMAGED}RecursionError"),
        ("ids.json", b'["\xff"]', f"ids.json {UNDAMAGED}UnicodeDecodeError"),
        ("ids.txt", b"a\n\nc\n", "ids.txt:2 must be an id, got an empty line"),
        ("ids.json", b'[{"_id": 1}, [2]]', "2 entries: entry 0 is {'_id': 1}; entry 1 is [2]; "),
        ("ids.npy", b"", f"ids.npy {UNDAMAGED}"),
        ("ids.json", b'{"a": 1}', "one list, got dict"),
        ("ids.json", b'["a", 1.5, true]', "2 entries: entry 1 is 1.5; entry 2 is True"),
        ("ids.npy", b"x", f"ids.npy {UNDAMAGED}"),
        ("ids.arrow", b"x", f"ids.arrow {UNDAMAGED}"),
        ("ids.parquet", b"x", f"ids.parquet {UNDAMAGED}"),
        ("ids.txt", b"\xff\xfe\n", "must be UTF-8, got UTF-16"),
    ],
)
def test_faulty_id_files_are_refused(tmp_path: Path, name: str, content: bytes, fact: str) -> None:
    (tmp_path / name).write_bytes(content)
    with refused(StoreError, fact):
        imported(tmp_path, ids=tmp_path / name)


def test_missing_files_unknown_suffixes_and_other_columns_are_named(tmp_path: Path) -> None:
    with refused(StoreError, "v.npy: vectors must be a file, there is none"):
        import_vectors(tmp_path / "v.npy", tmp_path / "s", ids=IDS)
    (tmp_path / "v.csv").write_text("1,2")
    with refused(StoreError, ".npy, .parquet, .arrow, .feather, .faiss or .index, got .csv"):
        import_vectors(tmp_path / "v.csv", tmp_path / "s", ids=IDS)
    with refused(StoreError, "ids must be a file, there is none"):
        imported(tmp_path, ids=tmp_path / "nowhere.txt")
    pq.write_table(pa.table({"name": IDS}), tmp_path / "ids.parquet")
    with refused(StoreError, "must have a column named doc_id or _id or id, got name"):
        imported(tmp_path, ids=tmp_path / "ids.parquet")


@pytest.mark.parametrize("state", [{}, {"import": "v.npy"}])
def test_nothing_is_overwritten(tmp_path: Path, state: dict[str, str]) -> None:
    (tmp_path / "s.building").mkdir()
    if state:
        write_json(state, tmp_path / "s.building" / "state.json")
    (tmp_path / "s.building" / "thesis.txt").write_text("x")
    with refused(StoreError, "must be empty, it holds thesis.txt"):
        imported(tmp_path)
    (tmp_path / "s.building" / "thesis.txt").unlink()
    imported(tmp_path)
    with refused(StoreError, "it is a store; choose another out"):
        imported(tmp_path)


def test_a_killed_import_can_be_run_again_as_advised(tmp_path: Path) -> None:
    def documents() -> Iterator[Document]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield DOCUMENTS[0]

    killed = exit_code(lambda: imported(tmp_path, documents=documents(), encoder=FakeEncoder()))
    assert killed == -signal.SIGKILL
    assert "ids.incoming" in names(tmp_path / "s.building")
    with refused(StoreError, "run its command again"):
        Store.open(tmp_path / "s")
    assert_holds(imported(tmp_path, documents=DOCUMENTS, encoder=FakeEncoder()))
    assert names(tmp_path) == ["s", "v.npy"]


def test_a_disk_that_fills_with_texts_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "write_corpus", on_full_disk)
    with refused(StoreError, DISK_IS_FULL):
        imported(tmp_path, documents=DOCUMENTS)
    assert names(tmp_path) == ["v.npy"]
