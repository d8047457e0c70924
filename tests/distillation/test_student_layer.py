"""Where a student starts: the layer that ridge regression gives, by hand, by brute force, with few texts and
between two widths.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.data.records import text_id
from adiabat.distillation import student as layer
from adiabat.distillation.student import STRENGTHS, fitted_layer, write_layer
from adiabat.distillation.student_data import Lessons, build_targets, unit
from tests.distillation.worlds import TEXTS, rows_of
from tests.refused import refused
from tests.tiny import tiny_dual

HELD_OUT = TEXTS[:5]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(1 - (unit(found) * unit(wanted)).sum(axis=1).mean())


def ridge(rows: np.ndarray, towards: np.ndarray, strength: float) -> np.ndarray:
    return np.linalg.solve(rows.T @ rows + strength * np.eye(rows.shape[1]), rows.T @ towards)


@pytest.mark.parametrize("width", [3, 4, 6])
def test_a_map_that_there_is_is_found(width: int) -> None:
    rows, weights = drawn(50, 4), drawn(4, width, seed=1)
    np.testing.assert_allclose(fitted_layer(rows, rows @ weights), weights, atol=1e-4)


@pytest.mark.parametrize("width", [3, 6])
def test_the_unit_of_vectors_changes_nothing(width: int) -> None:
    rows, towards = drawn(20, 4), drawn(20, width, seed=1)
    for scale in (1e-3, 1e3):
        scaled = scale * rows @ fitted_layer(scale * rows, towards)
        np.testing.assert_allclose(rows @ fitted_layer(rows, towards), scaled, rtol=1e-3, atol=1e-5)


def test_the_strength_is_that_of_the_least_error_of_texts_left_out_one_by_one() -> None:
    rows, noise = drawn(20, 4).astype(np.float64), drawn(20, 6, seed=2)
    towards = rows @ drawn(4, 6, seed=1) + 2 * noise

    def error(strength: float) -> float:
        left = [np.delete(np.arange(20), one) for one in range(20)]
        return sum(
            float(((rows[one] @ ridge(rows[rest], towards[rest], strength) - towards[one]) ** 2).sum())
            for one, rest in enumerate(left)
        )

    # Of rows of unit length, in the quadratic mean.
    strengths = [one * float((rows**2).sum(axis=1).mean()) for one in STRENGTHS]
    best = min(strengths, key=error)
    assert strengths[0] < best < strengths[-1]
    np.testing.assert_allclose(fitted_layer(rows, towards), ridge(rows, towards, best), rtol=1e-4, atol=1e-6)


def test_a_student_in_its_teachers_space_stays_there_however_few_its_texts_are() -> None:
    towards = drawn(300, 32)
    rows = towards + 0.1 * drawn(300, 32, seed=1)
    for count in (1, 8, 40):
        found = fitted_layer(rows[:count], towards[:count])
        assert distance(rows[40:] @ found, towards[40:]) < 1.1 * distance(rows[40:], towards[40:])


def test_few_texts_lose_no_direction_of_the_student() -> None:
    assert np.linalg.matrix_rank(fitted_layer(drawn(10, 32), drawn(10, 32, seed=1))) == 32


def lessons_of(folder: Path) -> Lessons:
    folder.mkdir()
    for name, rows in {
        "corpus": [{"_id": text_id(text), "text": text} for text in TEXTS],
        "validation": [{"query": text, "positive": text_id(text)} for text in HELD_OUT],
    }.items():
        with gzip.open(folder / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return Lessons(folder, {"texts": 75})


@pytest.mark.parametrize("width", [16, 32, 48])
def test_a_layer_is_fitted_to_texts_that_are_not_held_out_and_kept(width: int, tmp_path: Path) -> None:
    teacher, student = tiny_dual(seed=1), tiny_dual(seed=2, width=width)
    lessons = lessons_of(tmp_path / "lessons")
    targets = build_targets([teacher], lessons.folder, tmp_path, side="query")
    path = write_layer(student, targets, lessons, tmp_path)
    embedded = student.encode(TEXTS[5:], side="query")
    np.testing.assert_allclose(np.load(path), fitted_layer(embedded, rows_of(targets, TEXTS[5:])), atol=1e-4)
    held_out = student.encode(HELD_OUT, side="query") @ np.load(path)
    assert distance(held_out, rows_of(targets, HELD_OUT)) < 0.05
    before = path.stat().st_mtime_ns
    assert write_layer(student, targets, lessons, tmp_path) == path
    assert path.stat().st_mtime_ns == before
    other = tiny_dual(seed=3, width=width)
    assert write_layer(other, targets, lessons, tmp_path) != path


def test_a_layer_between_two_widths_needs_as_many_texts_as_the_student_has_numbers(tmp_path: Path) -> None:
    lessons, student = lessons_of(tmp_path / "lessons"), tiny_dual(width=96)
    targets = build_targets([tiny_dual()], lessons.folder, tmp_path, side="query")
    with refused(DataError, "teachers must have at least 96 texts", "got 75 beside those held out; "):
        write_layer(student, targets, lessons, tmp_path)
    assert not list(tmp_path.glob("layer-*"))


def test_of_many_texts_a_layer_is_fitted_to_those_of_the_smallest_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "SAMPLE", 40)
    teacher, student, lessons = tiny_dual(seed=1), tiny_dual(seed=2), lessons_of(tmp_path / "lessons")
    targets = build_targets([teacher], lessons.folder, tmp_path, side="query")
    chosen = sorted(TEXTS[5:], key=text_id)[:40]
    # Not those that come first.
    assert len(set(chosen) & set(TEXTS[5:45])) < 40
    found = np.load(write_layer(student, targets, lessons, tmp_path))
    wanted = fitted_layer(student.encode(chosen, side="query"), rows_of(targets, chosen))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
