"""Vectors and ids in Parquet and Arrow files, and numbers that are no vectors yet."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adiabat
from adiabat.core.errors import StoreError
from adiabat.store import imports as imports_module
from tests.imported import import_vectors
from tests.refused import refused
from tests.store.worlds import IDS, assert_holds, imported, own_vectors, vector_column


def tensors(*shape: int, dtype: Any = np.float32) -> pa.Array:
    flat = pa.array(own_vectors().ravel().astype(dtype))
    kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(dtype), shape)
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(flat, 8))


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


def write_file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


@pytest.mark.parametrize(
    "column", [tensors(8), tensors(1, 8), tensors(8, 1, dtype=np.float16), vector_column("fixed")]
)
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("v.parquet", pq.write_table),
        ("v.arrow", write_file),
        ("v.feather", write_file),
        ("v.arrow", write_stream),
    ],
)
def test_tensors_and_arrow_files(
    tmp_path: Path, column: pa.Array, name: str, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_module, "BLOCK_ROWS", 3)
    write(pa.table({"note": IDS, "id": IDS, "vector": column}), tmp_path / name)
    assert_holds(import_vectors(tmp_path / name, tmp_path / "s"))
    # A file of ids may be a stream too.
    np.save(tmp_path / "v.npy", own_vectors())
    assert_holds(import_vectors(tmp_path / "v.npy", tmp_path / "again", ids=tmp_path / name))


def test_tensors_of_several_vectors_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": IDS, "vector": tensors(2, 4)}), tmp_path / "v.parquet")
    with refused(StoreError, "one vector in each row, got tensors of 2 x 4"):
        import_vectors(tmp_path / "v.parquet", tmp_path / "s")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_])
def test_codes_of_vectors_are_told_that_their_scale_is_missing(tmp_path: Path, dtype: Any) -> None:
    codes, name = (own_vectors() * 40).astype(dtype), str(np.dtype(dtype))
    with refused(StoreError, "v.npy", f"got {name} of shape (7, 8)", "scale is missing", "codes * scale"):
        imported(tmp_path, codes)
    with refused(TypeError, "vectors must be a path, an array ", "scale is missing"):
        adiabat.import_vectors(codes.tolist(), tmp_path / "s", ids=IDS)
    if dtype is not np.bool_:
        column = pa.array(codes.tolist(), pa.list_(pa.from_numpy_dtype(dtype)))
        pq.write_table(pa.table({"id": IDS, "vector": column}), tmp_path / "v.parquet")
        with refused(StoreError, "lists of floats, got a column of ", name, "scale is missing"):
            import_vectors(tmp_path / "v.parquet", tmp_path / "s")


def test_bfloat16_and_structs_are_told_what_to_save(tmp_path: Path) -> None:
    with refused(StoreError, "save bfloat16 as float32"):
        imported(tmp_path, own_vectors().astype(np.float16).view("V2"))
    rows = [{"values": row, "width": 8} for row in own_vectors().tolist()]
    pq.write_table(pa.table({"id": IDS, "vector": rows}), tmp_path / "v.parquet")
    with refused(StoreError, "numbers: values, width"):
        import_vectors(tmp_path / "v.parquet", tmp_path / "s")
