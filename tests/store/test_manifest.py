"""The vector file while it is written."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import StoreError
from adiabat.store.manifest import HEADER_BYTES, VectorFile


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


def test_rows_that_are_not_those_written_before_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    rows = np.arange(24, dtype=np.float16).reshape(3, 8)
    with VectorFile(path, dtype="float16", width=8) as file:
        file.append(rows)
        file.commit()
        sha256 = file.sha256
    assert sha256 == hashlib.sha256(rows.tobytes()).hexdigest()
    with VectorFile(path, dtype="float16", width=8, rows=3, sha256=sha256) as file:
        file.append(rows)
        assert file.sha256 == hashlib.sha256(rows.tobytes() * 2).hexdigest()
    with path.open("r+b") as damaged:
        damaged.seek(HEADER_BYTES + 5)
        damaged.write(b"x")
    with pytest.raises(StoreError, match=r"vectors\.npy must be undamaged, got other vectors than were written before; remove the folder"):
        VectorFile(path, dtype="float16", width=8, rows=3, sha256=sha256)
