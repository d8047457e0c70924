"""What a student is to come close to: vectors of teachers, each computed once, side by side and cut to a width."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD

import adiabat
from adiabat.config.distillation import DistillStaticSettings
from adiabat.config.reader import checked
from adiabat.core.errors import DataError, StoreError
from adiabat.data.records import text_id
from adiabat.distillation.teacher_targets import build_targets, cached_matrix, joined_rows, main_directions, unit
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store
from tests.distillation.test_vocabulary import wordpiece
from tests.tiny import tiny_dual

TEXTS = [f"a text of number {number} and colour {number * 7 % 11}" for number in range(80)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": text_id(text), "text": text}) + "\n" for text in TEXTS))
    return path


def targets_of(teachers: list[DualEncoder], corpus: Path, folder: Path, *, width: int | None = None) -> Store:
    return build_targets(teachers, corpus, folder / "made", side="query", width=width)


def rows_of(store: Any) -> np.ndarray:
    return store.gather(store.rows([text_id(text) for text in TEXTS])).astype(np.float32)


def test_the_vectors_of_one_teacher_are_its_own(tmp_path: Path, corpus: Path) -> None:
    teacher = tiny_dual()
    store = targets_of([teacher], corpus, tmp_path)
    np.testing.assert_allclose(rows_of(store), teacher.encode(TEXTS, side="query"), atol=1e-6)


def test_cosines_of_several_teachers_are_their_mean(tmp_path: Path, corpus: Path) -> None:
    teachers = [tiny_dual(seed=1), tiny_dual(seed=2)]
    store = targets_of(teachers, corpus, tmp_path)
    found = rows_of(store)
    assert found.shape[1] == sum(one.width for one in teachers)
    each = [one.encode(TEXTS, side="query") for one in teachers]
    wanted = np.mean([part @ part.T / np.outer(*[np.linalg.norm(part, axis=1)] * 2) for part in each], axis=0)
    np.testing.assert_allclose(found @ found.T, wanted, atol=1e-5)


def test_main_directions_are_those_of_a_truncated_singular_value_decomposition() -> None:
    rows = np.random.default_rng(1).normal(size=(200, 12)) * np.linspace(3, 0.1, 12) + 1.0

    def blocks() -> Iterator[np.ndarray]:
        yield from (rows[start : start + 64] for start in range(0, 200, 64))

    directions, kept = main_directions(blocks, 5)
    peer = TruncatedSVD(5, algorithm="arpack", random_state=0).fit(rows)
    np.testing.assert_allclose(np.abs(directions.T @ peer.components_.T), np.eye(5), atol=1e-5)
    assert kept == pytest.approx(((rows @ directions) ** 2).sum() / (rows**2).sum(), rel=1e-5)
    assert (directions[np.abs(directions).argmax(axis=0), np.arange(5)] > 0).all()


def test_a_narrower_student_gets_the_main_directions_at_unit_length(tmp_path: Path, corpus: Path) -> None:
    teacher = tiny_dual()
    store = targets_of([teacher], corpus, tmp_path, width=8)
    found, whole = rows_of(store), teacher.encode(TEXTS, side="query")
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
    before, after = (part @ part.T for part in (whole / np.linalg.norm(whole, axis=1, keepdims=True), found))
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.9


def test_no_vector_is_computed_twice(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []
    encode = Encoder.encode

    def noted(self: Encoder, texts: list[str], **options: Any) -> Any:
        seen.extend((self.weights_digest(), text) for text in texts)
        return encode(self, texts, **options)

    monkeypatch.setattr(Encoder, "encode", noted)
    teacher = tiny_dual()
    for width in (8, 8, None):
        targets_of([teacher], corpus, tmp_path, width=width)
    assert sorted(seen) == sorted((teacher.query.weights_digest(), text) for text in TEXTS)


def test_targets_go_on_with_the_directions_that_were_kept(tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = targets_of([tiny_dual()], corpus, tmp_path, width=8)
    before = rows_of(first)
    shutil.rmtree(tmp_path / "made" / "targets")
    monkeypatch.setattr("adiabat.distillation.teacher_targets.main_directions", lambda *given: pytest.fail("found anew"))
    again = targets_of([tiny_dual()], corpus, tmp_path, width=8)
    np.testing.assert_array_equal(rows_of(again), before)
    assert again.manifest.fingerprint == first.manifest.fingerprint


def test_joined_rows_are_of_unit_length_and_a_row_of_zeros_stays(tmp_path: Path, corpus: Path) -> None:
    store = targets_of([tiny_dual()], corpus, tmp_path)
    both = joined_rows([store, store], [text_id(TEXTS[0])])
    np.testing.assert_allclose(np.linalg.norm(both), 1.0, atol=1e-6)
    np.testing.assert_array_equal(unit(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0.0, 0.0], [0.6, 0.8]])


def test_a_text_that_a_teacher_gives_no_vector_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"_id": text_id(text), "text": text}) + "\n" for text in ("the cat", "日")), encoding="utf-8")
    tower = tiny_dual(width=24).document.with_settings(EncoderSettings(max_tokens=64), tokenizer=wordpiece())
    settings = checked(DistillStaticSettings, {"static": {"dims": 3}})
    adiabat.distill_static(DualEncoder(tower, tower, "words"), tmp_path / "static", settings=settings)
    said = r"a teacher must give every text a vector other than zero, .*static gives none to '日'; remove it, or take another teacher"
    with pytest.raises(DataError, match=said):
        targets_of([load(tmp_path / "static")], path, tmp_path)


def test_stores_of_another_teacher_are_refused(tmp_path: Path, corpus: Path) -> None:
    targets_of([tiny_dual(seed=1)], corpus, tmp_path)
    with pytest.raises(StoreError, match="weights"):
        targets_of([tiny_dual(seed=2)], corpus, tmp_path)


def test_fewer_texts_than_numbers_are_told(tmp_path: Path) -> None:
    path = tmp_path / "few.jsonl"
    path.write_text("".join(f'{{"_id": "{text_id(text)}", "text": "{text}"}}\n' for text in TEXTS[:5]))
    with pytest.raises(DataError, match=r"teachers must have at least 8 texts, as many as the student's numbers, got 5; add texts"):
        targets_of([tiny_dual()], path, tmp_path, width=8)
    assert [one.name for one in tmp_path.iterdir()] == ["few.jsonl"]


def test_a_matrix_that_was_kept_is_read_and_one_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "directions.npy"
    first = cached_matrix(path, lambda: np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(cached_matrix(path, lambda: np.zeros((3, 3), dtype=np.float32)), first)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=r"directions.npy must be undamaged, got .*; it is made again"):
        np.testing.assert_array_equal(cached_matrix(path, lambda: np.eye(3, dtype=np.float32)), first)
