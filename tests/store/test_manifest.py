"""The files of a store that are damaged: each is refused by name."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.data.records import Document
from adiabat.errors import StoreError
from adiabat.store.build import build_store
from adiabat.store.embeddings import Store
from adiabat.store.manifest import HEADER_BYTES, VectorFile
from tests.fake_encoder import FakeEncoder


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("count", "6", "count is '6'"),
        ("count", True, "count is True"),
        ("width", None, "width is None"),
        ("has_texts", 1, "has_texts is 1"),
        ("fingerprint", "x", "fingerprint is 'x'"),
        ("dtype", ["float16"], r"dtype is \['float16'\]"),
    ],
)
def test_a_field_of_another_type_is_named(tmp_path: Path, field: str, value: Any, told: str) -> None:
    build_store(FakeEncoder(), lambda: iter([Document("a", "b")]), tmp_path / "s", source="x", encoder_name="x")
    path = tmp_path / "s" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: value}))
    with pytest.raises(StoreError, match=f"fields must be of their type, got {told}; rebuild the store"):
        Store.open(tmp_path / "s")


@pytest.mark.parametrize("size", [None, 0, HEADER_BYTES, HEADER_BYTES + 3 * 16 - 1])
def test_a_vector_file_shorter_than_its_good_rows_is_refused_and_left_as_it_is(tmp_path: Path, size: int | None) -> None:
    path = tmp_path / "vectors.npy"
    if size is not None:
        path.write_bytes(bytes(size))
    with pytest.raises(
        StoreError, match=rf"vectors\.npy must have at least 176 bytes for the 3 vectors .*, got {size or 0}; remove the folder"
    ):
        VectorFile(path, dtype="float16", width=8, rows=3)
    assert (path.stat().st_size if path.exists() else None) == size


def test_a_vector_file_is_cut_to_its_good_rows(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    rows = np.arange(24, dtype=np.float16).reshape(3, 8)
    with VectorFile(path, dtype="float16", width=8) as file:
        file.append(rows)
        file.commit()
    with VectorFile(path, dtype="float16", width=8, rows=2) as file:
        file.commit()
    assert np.array_equal(np.load(path), rows[:2])
