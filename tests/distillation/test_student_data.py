"""What a student is to learn: files by language, passages of neighbours, and what is held out."""

import gzip
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD

import adiabat
from adiabat.config.distillation import DistillStaticSettings, ParallelDataSection
from adiabat.config.reader import checked
from adiabat.core.errors import DataError, JobError, StoreError
from adiabat.data.corpora import read_corpus
from adiabat.data.parallel import Translation
from adiabat.data.records import text_id
from adiabat.distillation.student_data import (
    Lessons,
    build_targets,
    cached_matrix,
    joined_rows,
    main_directions,
    unit,
    write_lessons,
)
from adiabat.models.encoder import Encoder
from adiabat.models.loading import load
from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store
from tests.commands import lines
from tests.distillation.worlds import TEXTS, of_words, rows_of
from tests.refused import refused
from tests.tiny import tiny_dual

COUNT = 60
SETTINGS = ParallelDataSection(validation_fraction=0.2, max_validation=100)
SENTENCES = [f"sentence {number}" for number in range(COUNT)]


def in_languages(*languages: str) -> list[Translation]:
    pairs = [(text, language) for text in SENTENCES for language in languages]
    return [Translation(text, f"{language}: {text}", language, "file:1") for text, language in pairs]


def written(folder: Path, translations: list[Translation], **options: Any) -> Lessons:
    usual: dict[str, Any] = {"settings": SETTINGS, "sources": [], "own": "en"}
    return write_lessons(lambda: iter(translations), folder, **{**usual, **options})


def rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def test_each_language_has_a_file_and_the_teachers_own_texts_stand_once(tmp_path: Path) -> None:
    lessons = written(tmp_path / "new", in_languages("de", "fr"))
    assert set(lessons.counts) == {"en", "de", "fr"}
    assert lessons.counts["en"] == lessons.counts["de"] == len(rows(lessons.path("de")))
    texts = {row["_id"]: row["text"] for row in rows(lessons.folder / "corpus.jsonl.gz")}
    assert sorted(texts.values()) == sorted(SENTENCES)
    assert all(row["query"] == f"de: {texts[row['positive']]}" for row in rows(lessons.path("de")))
    assert all(row["query"] == texts[row["positive"]] for row in rows(lessons.path("en")))


def test_a_text_is_held_out_with_its_translations_and_its_passages(tmp_path: Path) -> None:
    lessons = written(tmp_path / "new", in_languages("de", "fr"), passages=3)
    held_out = rows(lessons.path("validation"))
    texts = {row["query"] for row in held_out if row["positive"] == text_id(row["query"])}
    assert 0 < len(texts) < COUNT / 2
    assert {row["query"] for row in held_out} == texts | {
        f"{language}: {text}" for text in texts for language in ("de", "fr")
    }
    for name in ("en", "de", "fr"):
        for row in rows(lessons.path(name)):
            assert not any(row["query"].removeprefix(f"{name}: ") == text for text in texts)
            assert all(f"sentence {number}" not in texts for number in _numbers(row["query"]))


def _numbers(query: str) -> list[int]:
    return [int(word) for word in query.split() if word.isdigit()]


def passages_of(lessons: Lessons) -> list[list[int]]:
    """The numbers of the sentences of each German passage."""
    every = [_numbers(row["query"]) for row in rows(lessons.path("de"))]
    return [numbers for numbers in every if len(numbers) > 1]


def test_passages_are_neighbours_of_lengths_that_take_turns(tmp_path: Path) -> None:
    few = ParallelDataSection(validation_fraction=0.5, max_validation=1)
    lessons = written(tmp_path / "new", in_languages("de"), passages=4, settings=few)
    passages = passages_of(lessons)
    assert all(later == earlier + 1 for one in passages for earlier, later in pairwise(one))
    # One of them ends early, where a sentence is held out, and one with the texts.
    lengths = [len(one) for one in passages]
    assert [lengths.count(length) for length in (2, 3, 4)] == pytest.approx([COUNT / 9] * 3, abs=2)
    own = {row["query"] for row in rows(lessons.path("en"))}
    joined = [row for row in rows(lessons.path("de")) if len(_numbers(row["query"])) > 1]
    assert {" ".join(f"sentence {number}" for number in one) for one in passages} <= own
    assert {row["positive"] for row in joined} == {text_id(text) for text in own if len(_numbers(text)) > 1}


def test_passages_end_at_gaps(tmp_path: Path) -> None:
    gaps = (0, 2, 9, 30)
    told = [replace(one, begins=number in gaps) for number, one in enumerate(in_languages("de"))]
    lessons = written(tmp_path / "new", told, passages=4)
    passages = passages_of(lessons)
    pairs = [pair for one in passages for pair in pairwise(one)]
    assert all(later == earlier + 1 and later not in gaps for earlier, later in pairs)
    held_out = {number for row in rows(lessons.path("validation")) for number in _numbers(row["query"])}
    assert ([0, 1] in passages) == (not held_out & {0, 1})
    # No sentence stands by itself where its neighbour does.
    alone = set(range(COUNT)) - held_out - {number for one in passages for number in one}
    assert not any(number + 1 in alone and number + 1 not in gaps for number in alone)


def test_as_many_texts_are_held_out_as_are_wanted(tmp_path: Path) -> None:
    few = ParallelDataSection(validation_fraction=0.5, max_validation=1)
    assert len(rows(written(tmp_path / "one", in_languages("de"), settings=few).path("validation"))) == 2
    with refused(DataError, "2 or more texts for validation", "got 1 of 60 held out"):
        written(tmp_path / "two", in_languages("de"), settings=few, least=2)
    five = ParallelDataSection(validation_fraction=0.9, max_validation=5)
    assert len(rows(written(tmp_path / "five", in_languages("de"), settings=five).path("validation"))) == 10
    none = ParallelDataSection(validation_fraction=1e-9)
    with refused(DataError, "= 1e-09 ", "1 or more texts for validation", "got 0 of 60 held"):
        written(tmp_path / "none", in_languages("de"), settings=none)
    assert not (tmp_path / "none").exists()


def test_repeated_texts_are_embedded_once_and_learned_as_often_as_they_are_translated(tmp_path: Path) -> None:
    twice = [*in_languages("de"), *[Translation(text, f"noch einmal {text}", "de", "") for text in SENTENCES]]
    lessons = written(tmp_path / "new", twice)
    assert len(rows(lessons.folder / "corpus.jsonl.gz")) == COUNT
    assert lessons.counts["de"] == 2 * lessons.counts["en"]


def test_texts_of_a_corpus_are_found_by_their_ids_whatever_stands_around_them(tmp_path: Path) -> None:
    spaced = [
        Translation(f" {one.source}\u00a0\n", f"\t{one.text} ", one.language, one.location)
        for one in in_languages("de")
    ]
    lessons = written(tmp_path / "new", spaced, passages=3)
    found = list(read_corpus(lessons.folder / "corpus.jsonl.gz"))
    assert [one.doc_id for one in found] == [text_id(one.text) for one in found]
    every = [row["query"] for name in ("en", "de", "validation") for row in rows(lessons.path(name))]
    assert every == [query.strip() for query in every]


def test_what_is_written_is_not_written_again(tmp_path: Path) -> None:
    first = written(tmp_path / "new", in_languages("de"))

    def none() -> Any:
        raise AssertionError("nothing is to be read")

    again = write_lessons(none, tmp_path / "new", settings=SETTINGS, sources=[], own="en")
    assert again == first


@pytest.mark.parametrize("name", ["corpus.jsonl.gz", "de.jsonl.gz", "made.json", "checksums.json"])
def test_lessons_that_were_damaged_are_refused_by_name(tmp_path: Path, name: str) -> None:
    written(tmp_path / "new", in_languages("de"))
    file = tmp_path / "new" / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with refused(JobError, f"{file} must be undamaged, got ", "remove the folder"):
        written(tmp_path / "new", in_languages("de"))


def test_lessons_of_other_settings_or_files_are_refused_and_it_is_said_which(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a.jsonl", "b.jsonl"))
    first.write_text("a")
    second.write_text("b")
    folder, sources = tmp_path / "new", [str(first), str(second)]
    written(folder, in_languages("de"), sources=sources)
    passages = SETTINGS.model_copy(update={"passages": 2})
    with refused(JobError, f"{folder} was made from other texts or settings (data.passages); "):
        written(folder, in_languages("de"), sources=sources, settings=passages)
    second.write_text("c")
    for given in (sources, sources[:1]):
        with refused(JobError, f"other texts or settings ({second});"):
            written(folder, in_languages("de"), sources=given)


def test_lessons_stand_where_a_file_has_another_date_alone(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("a")
    first = written(tmp_path / "new", in_languages("de"), sources=[str(source)])
    os.utime(source, (0, 0))
    assert written(tmp_path / "new", in_languages("de"), sources=[str(source)]) == first


def corpus_of(texts: list[str], folder: Path) -> Path:
    lines(folder / "corpus.jsonl", [{"_id": text_id(text), "text": text} for text in texts])
    return folder / "corpus.jsonl"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return corpus_of(TEXTS, tmp_path)


def targets_of(teachers: list[DualEncoder], corpus: Path, folder: Path, *, width: int | None = None) -> Store:
    return build_targets(teachers, corpus, folder / "made", side="query", width=width)


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


def test_targets_go_on_with_the_directions_that_were_kept(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = targets_of([tiny_dual()], corpus, tmp_path, width=8)
    before = rows_of(first)
    shutil.rmtree(tmp_path / "made" / "targets")
    monkeypatch.setattr(
        "adiabat.distillation.student_data.main_directions", lambda *given: pytest.fail("found anew")
    )
    again = targets_of([tiny_dual()], corpus, tmp_path, width=8)
    np.testing.assert_array_equal(rows_of(again), before)
    assert again.manifest.fingerprint == first.manifest.fingerprint


def test_joined_rows_are_of_unit_length_and_a_row_of_zeros_stays(tmp_path: Path, corpus: Path) -> None:
    store = targets_of([tiny_dual()], corpus, tmp_path)
    both = joined_rows([store, store], [text_id(TEXTS[0])])
    np.testing.assert_allclose(np.linalg.norm(both), 1.0, atol=1e-6)
    np.testing.assert_array_equal(unit(np.array([[0.0, 0.0], [3.0, 4.0]])), [[0.0, 0.0], [0.6, 0.8]])


def test_a_text_that_a_teacher_gives_no_vector_is_named(tmp_path: Path) -> None:
    path = corpus_of(["the cat", "日"], tmp_path)
    settings = checked(DistillStaticSettings, {"static": {"reduction": {"dims": 3}}})
    adiabat.distill_static(of_words(), tmp_path / "static", settings=settings)
    with refused(DataError, "static gives none to '日'; "):
        targets_of([load(tmp_path / "static")], path, tmp_path)


def test_stores_of_another_teacher_are_refused(tmp_path: Path, corpus: Path) -> None:
    targets_of([tiny_dual(seed=1)], corpus, tmp_path)
    with refused(StoreError, "weights"):
        targets_of([tiny_dual(seed=2)], corpus, tmp_path)


def test_fewer_texts_than_numbers_are_told(tmp_path: Path) -> None:
    path = corpus_of(TEXTS[:5], tmp_path)
    with refused(DataError, "teachers must have at least 8 texts", "got 5; "):
        targets_of([tiny_dual()], path, tmp_path, width=8)
    assert list(tmp_path.iterdir()) == [path]


def test_a_matrix_that_was_kept_is_read_and_one_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "directions.npy"
    first = cached_matrix(path, lambda: np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(cached_matrix(path, lambda: np.zeros((3, 3), dtype=np.float32)), first)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.warns(UserWarning, match=r"directions.npy must be undamaged, got .*; it is rebuilt"):
        np.testing.assert_array_equal(cached_matrix(path, lambda: np.eye(3, dtype=np.float32)), first)
