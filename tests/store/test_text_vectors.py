"""Vectors that outlive the process: what is read again, and what is not believed."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.progress import SILENT, Watch
from adiabat.store.text_vectors import EmbeddingCache, embed_texts, require_directions, zero_rows
from tests.evaluation.given_vectors import give
from tests.tiny import tiny_dual


def kept_at(place: Path, *, rows: int = 4, width: int = 3) -> EmbeddingCache:
    kept = EmbeddingCache(rows, width)
    kept.keep_in(place, resume=True)
    return kept


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where two of four rows are known."""
    kept = kept_at(tmp_path / "new" / "rows")
    kept.vectors[[1, 3]], kept.known[[1, 3]] = [[1.0], [2.0]], True
    kept.save()
    return tmp_path / "new" / "rows"


def test_rows_are_read_again_and_those_that_were_not_noted_are_not_known(place: Path) -> None:
    kept = kept_at(place)
    assert kept.known.tolist() == [False, True, False, True]
    assert np.array_equal(kept.vectors[[1, 3]], [[1.0] * 3, [2.0] * 3])
    kept.vectors[0], kept.known[0] = 7.0, True
    assert kept_at(place).known.tolist() == [False, True, False, True]


@pytest.mark.parametrize("flags", [b"", b"no array", None])
def test_flags_that_are_damaged_or_of_other_rows_say_nothing(place: Path, flags: bytes | None) -> None:
    path = place.with_suffix(".npy")
    if flags is None:
        np.save(path, np.ones(5, dtype=np.bool_))
    else:
        path.write_bytes(flags)
    assert not kept_at(place).known.any()


def test_a_row_that_was_damaged_is_not_known(place: Path) -> None:
    content = bytearray(place.with_suffix(".f32").read_bytes())
    content[1 * 12 + 5] ^= 1
    place.with_suffix(".f32").write_bytes(content)
    kept = kept_at(place)
    assert kept.known.tolist() == [False, False, False, True]
    kept.vectors[1], kept.known[1] = 1.0, True
    kept.save()
    assert kept_at(place).known.tolist() == [False, True, False, True]


@pytest.mark.parametrize("at", [0, 60, 130, 140, 155, 165, -1])
def test_no_row_is_known_by_a_damaged_list_of_checksums(place: Path, at: int) -> None:
    content = bytearray(place.with_suffix(".npy").read_bytes())
    content[at] ^= 1
    place.with_suffix(".npy").write_bytes(content)
    assert not kept_at(place).known.any()


def test_a_row_whose_checksum_is_zero_is_known(tmp_path: Path) -> None:
    # CRC-32 of the four bytes 9d 0a d9 6d is 0.
    kept = kept_at(tmp_path / "rows", rows=1, width=1)
    kept.vectors.view(np.uint8)[0], kept.known[0] = [0x9D, 0x0A, 0xD9, 0x6D], True
    assert zlib.crc32(kept.vectors[0].data) == 0
    kept.save()
    assert kept_at(tmp_path / "rows", rows=1, width=1).known.tolist() == [True]


def test_a_file_of_another_size_is_begun_anew(place: Path) -> None:
    assert not kept_at(place, rows=5).known.any()
    assert place.with_suffix(".f32").stat().st_size == 5 * 3 * 4


def test_in_memory_nothing_is_written(tmp_path: Path) -> None:
    kept = EmbeddingCache(2, 3)
    kept.known[:] = True
    kept.save()
    assert list(tmp_path.iterdir()) == []


def test_each_text_goes_through_the_model_once_and_in_full_precision(monkeypatch):
    asked = give(monkeypatch, {"x": [1, 0], "y": [0, 2]})
    told: list[tuple[str, int, int]] = []
    watch = Watch(progress=lambda *state: told.append(state))
    vectors = embed_texts(tiny_dual(), ["y", "x", "y", "y"], side="document", name="task", watch=watch)
    assert vectors.tolist() == [[0, 2], [1, 0], [0, 2], [0, 2]]
    assert asked == [("document", "fp32", ["y", "x"])]
    assert told == [("encoding task", 2, 2)]


def test_vectors_are_those_of_the_model_and_of_the_side_asked_for():
    model = tiny_dual(shared=False)
    texts = ["one", "another", "one"]
    for side in ("query", "document"):
        vectors = embed_texts(model, texts, side=side, name="task", watch=SILENT)
        np.testing.assert_allclose(vectors, model.encode(texts, side=side, precision="fp32"), atol=1e-6)
        np.testing.assert_array_equal(vectors[0], vectors[2])
    assert not np.allclose(
        vectors, embed_texts(model, texts, side="query", name="task", watch=SILENT), atol=1e-3
    )


def test_a_vector_that_is_not_finite_is_refused_with_its_text(monkeypatch):
    give(monkeypatch, {"x": [1, 0], "nan": [0, np.nan], "w" * 99: [np.inf, 0]})
    with pytest.raises(DataError) as caught:
        embed_texts(tiny_dual(), ["x", "nan", "nan", "w" * 99], side="query", name="task", watch=SILENT)
    assert str(caught.value) == (
        "task: vectors must be finite, got NaN or infinity for 2 texts: 'nan'; "
        f"'{'w' * 59}…'; the model's weights are damaged"
    )


def test_zero_vectors_are_found_and_refused_with_their_texts():
    vectors = np.array([[0, 0], [0, -1e-30], [0, 0]])
    assert zero_rows(vectors).tolist() == [True, False, True]
    require_directions(vectors[1:2], ["b"], name="task")
    with pytest.raises(
        DataError, match="task: vectors must not be zero, which have no cosine, got one for 'a'; leave"
    ):
        require_directions(vectors, ["a", "b", "a"], name="task")
