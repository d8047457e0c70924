"""What a student is to learn: files by language, passages of neighbours, and what is held out."""

import gzip
import json
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from adiabat.config.distillation import ParallelLessonsSection
from adiabat.core.errors import DataError, JobError
from adiabat.data.corpora import read_corpus
from adiabat.data.parallel import Translation
from adiabat.data.records import text_id
from adiabat.distillation.student_data import Lessons, write_lessons

COUNT = 60
SETTINGS = ParallelLessonsSection(validation_fraction=0.2, max_validation=100)
SENTENCES = [f"sentence {number}" for number in range(COUNT)]


def in_languages(*languages: str) -> list[Translation]:
    return [Translation(text, f"{language}: {text}", language, "file:1") for text in SENTENCES for language in languages]


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
    assert {row["query"] for row in held_out} == texts | {f"{language}: {text}" for text in texts for language in ("de", "fr")}
    for name in ("en", "de", "fr"):
        for row in rows(lessons.path(name)):
            assert not any(row["query"].removeprefix(f"{name}: ") == text for text in texts)
            assert all(f"sentence {number}" not in texts for number in _numbers(row["query"]))


def _numbers(query: str) -> list[int]:
    return [int(word) for word in query.split() if word.isdigit()]


def test_passages_are_neighbours_of_lengths_that_take_turns(tmp_path: Path) -> None:
    few = ParallelLessonsSection(validation_fraction=0.5, max_validation=1)
    lessons = written(tmp_path / "new", in_languages("de"), passages=4, settings=few)
    passages = [_numbers(row["query"]) for row in rows(lessons.path("de")) if len(_numbers(row["query"])) > 1]
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
    passages = [_numbers(row["query"]) for row in rows(lessons.path("de")) if len(_numbers(row["query"])) > 1]
    assert all(later == earlier + 1 and later not in gaps for one in passages for earlier, later in pairwise(one))
    held_out = {number for row in rows(lessons.path("validation")) for number in _numbers(row["query"])}
    assert ([0, 1] in passages) == (not held_out & {0, 1})
    # No sentence stands by itself where its neighbour does.
    alone = set(range(COUNT)) - held_out - {number for one in passages for number in one}
    assert not any(number + 1 in alone and number + 1 not in gaps for number in alone)


def test_as_many_texts_are_held_out_as_are_wanted(tmp_path: Path) -> None:
    few = ParallelLessonsSection(validation_fraction=0.5, max_validation=1)
    assert len(rows(written(tmp_path / "one", in_languages("de"), settings=few).path("validation"))) == 2
    with pytest.raises(DataError, match="must leave 2 texts to tell apart on one side, and some on the other, got 1 of 60 held out"):
        written(tmp_path / "two", in_languages("de"), settings=few, least=2)


def test_repeated_texts_are_embedded_once_and_learned_as_often_as_they_are_translated(tmp_path: Path) -> None:
    twice = [*in_languages("de"), *[Translation(text, f"noch einmal {text}", "de", "") for text in SENTENCES]]
    lessons = written(tmp_path / "new", twice)
    assert len(rows(lessons.folder / "corpus.jsonl.gz")) == COUNT
    assert lessons.counts["de"] == 2 * lessons.counts["en"]


def test_texts_of_a_corpus_are_found_by_their_ids_whatever_stands_around_them(tmp_path: Path) -> None:
    spaced = [Translation(f" {one.source}\u00a0\n", f"\t{one.text} ", one.language, one.location) for one in in_languages("de")]
    lessons = written(tmp_path / "new", spaced, passages=3)
    found = list(read_corpus(lessons.folder / "corpus.jsonl.gz"))
    assert [one.doc_id for one in found] == [text_id(one.text) for one in found]
    assert all(row["query"] == row["query"].strip() for name in ("en", "de", "validation") for row in rows(lessons.path(name)))


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
    with pytest.raises(JobError, match=rf"{file} must be undamaged, got .*; remove the folder, so that it is made again"):
        written(tmp_path / "new", in_languages("de"))


def test_lessons_of_other_settings_or_files_are_refused_and_it_is_said_which(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("a.jsonl", "b.jsonl"))
    first.write_text("a")
    second.write_text("b")
    folder, sources = tmp_path / "new", [str(first), str(second)]
    written(folder, in_languages("de"), sources=sources)
    told = f"{folder} was made from other texts or settings (lessons.passages); choose another --out, or remove it"
    with pytest.raises(JobError, match=f"^{re.escape(told)}$"):
        written(folder, in_languages("de"), sources=sources, settings=SETTINGS.model_copy(update={"passages": 2}))
    second.write_text("c")
    with pytest.raises(JobError, match=re.escape(f"other texts or settings ({second});")):
        written(folder, in_languages("de"), sources=sources)
    with pytest.raises(JobError, match=re.escape(f"other texts or settings ({second});")):
        written(folder, in_languages("de"), sources=sources[:1])


def test_lessons_stand_where_a_file_has_another_date_alone(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text("a")
    first = written(tmp_path / "new", in_languages("de"), sources=[str(source)])
    os.utime(source, (0, 0))
    assert written(tmp_path / "new", in_languages("de"), sources=[str(source)]) == first


def test_a_fraction_that_holds_nothing_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"= 1e-09 and lessons.max_validation = 1000 must leave texts on both sides, got 0 of 60 held"):
        written(tmp_path / "new", in_languages("de"), settings=ParallelLessonsSection(validation_fraction=1e-9))
    assert not (tmp_path / "new").exists()


def test_at_most_so_many_texts_are_held_out(tmp_path: Path) -> None:
    lessons = written(tmp_path / "new", in_languages("de"), settings=ParallelLessonsSection(validation_fraction=0.9, max_validation=5))
    assert len(rows(lessons.path("validation"))) == 10
