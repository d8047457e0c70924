"""Texts with their translations: every layout, what is passed over, and what is wrong with a file."""

from pathlib import Path
from typing import Any

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.parallel import ParallelSource, Translation, parallel_sources, read_parallel
from tests.data.files import write
from tests.refused import refused


def table(path: Path, *rows: dict[str, Any]) -> str:
    return str(write(path, *rows))


def found(path: str, **options: Any) -> list[tuple[str, str, str]]:
    return [(one.language, one.source, one.text) for one in read_parallel(ParallelSource(path, **options))]


def test_a_column_for_each_language(tmp_path: Path) -> None:
    path = table(
        tmp_path / "a.jsonl",
        {"en": "one", "de": "eins", "fr": "un"},
        {"en": "two", "de": "zwei", "fr": None, "note": "x", "id": 3},
    )
    assert found(path) == [("de", "one", "eins"), ("fr", "one", "un"), ("de", "two", "zwei")]


def test_columns_that_are_objects_by_language(tmp_path: Path) -> None:
    row = {
        "label": "neutral",
        "premise": {"en": "a", "sw": "b"},
        "hypothesis": {"en": "c", "sw": "d", "ur": " "},
    }
    assert found(table(tmp_path / "a.jsonl", row)) == [("sw", "a", "b"), ("sw", "c", "d")]


def test_one_translation_for_each_row_that_says_its_language(tmp_path: Path) -> None:
    path = table(
        tmp_path / "a.jsonl",
        {"lang": "ar", "en": "one", "x": "واحد"},
        {"lang": "zh_Hans", "en": "one", "x": "一"},
    )
    assert found(path) == [("ar", "one", "واحد"), ("zh_Hans", "one", "一")]
    assert found(path, languages=("ar",)) == [("ar", "one", "واحد")]


def test_a_language_that_looks_like_an_id_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path / "a.jsonl", {"en": "one", "de": "eins", "id": "satu"})
    assert found(path) == [("de", "one", "eins")]
    assert found(path, languages=("id",)) == [("id", "one", "satu")]


def test_columns_that_say_something_else_are_no_languages(tmp_path: Path) -> None:
    meta = {"doc_id": "x", "qid": "q", "pid": "p", "idx": 3, "sid": "s", "seg_id": "t"}
    row = {"en": "one", "de": "eins", "pt_BR": "um", **meta, "src_lang": "en", "url_en": "u"}
    assert found(table(tmp_path / "a.jsonl", row)) == [("de", "one", "eins"), ("pt_BR", "one", "um")]


def test_a_language_begins_anew_behind_a_gap(tmp_path: Path) -> None:
    rows = {"en": "1", "de": "a", "fr": "b"}, {"en": "2", "fr": "c"}, {"en": "3", "de": "d", "fr": "e"}
    wide = table(tmp_path / "a.jsonl", *rows)
    begun = [(one.language, one.source) for one in read_parallel(ParallelSource(wide)) if one.begins]
    assert begun == [("de", "1"), ("fr", "1"), ("de", "3")]
    nested = table(
        tmp_path / "n.jsonl", *[{"premise": {"en": "1", "de": "a"}, "hypothesis": {"en": "2", "de": "b"}}] * 2
    )
    assert [one.begins for one in read_parallel(ParallelSource(nested))] == [True, False, False, False]
    labelled = ({"lang": language, "en": "1", "x": "a"} for language in ("de", "fr", "de", "fr"))
    told = table(tmp_path / "b.jsonl", *labelled)
    assert [one.begins for one in read_parallel(ParallelSource(told))] == [True, True, False, False]
    own, its = files(tmp_path, "one\n\nthree\nfour\n", "eins\n\ndrei\nvier\n")
    assert [one.begins for one in read_parallel(ParallelSource(own, its))] == [True, True, False]


def test_languages_that_are_no_codes_are_told(tmp_path: Path) -> None:
    for label in ("pt/BR", "../../up", "validation", "corpus"):
        with refused(DataError, "a.jsonl:1: a language must be a code ", f"got '{label}'; "):
            found(table(tmp_path / "a.jsonl", {"lang": label, "en": "one", "x": "eins"}))
    with refused(ConfigError, "a language must be a code ", "got 2 faults: 'a/b'; 'German'; "):
        parallel_sources(["a.jsonl"], source="a/b", languages=["de", "German"])


def test_another_source_language(tmp_path: Path) -> None:
    path = table(tmp_path / "a.jsonl", {"en": "one", "de": "eins"})
    assert found(path, source="de") == [("en", "eins", "one")]


def test_csv_and_tsv_and_packed_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"en,de\none,eins\ntwo,\n")
    write(tmp_path / "a.tsv", b"en\tde\none\teins\n")
    write(tmp_path / "a.jsonl.gz", {"en": "one", "de": "eins"})
    for name in ("a.csv", "a.tsv", "a.jsonl.gz"):
        assert found(str(tmp_path / name)) == [("de", "one", "eins")]


def files(
    folder: Path, one: str, other: str, *, names: tuple[str, str] = ("text.en", "text.de")
) -> tuple[str, str]:
    for name, content in zip(names, (one, other), strict=True):
        (folder / name).write_text(content, encoding="utf-8")
    return str(folder / names[0]), str(folder / names[1])


def test_two_files_that_go_line_by_line(tmp_path: Path) -> None:
    own, its = files(tmp_path, "one\n\nthree\n", "eins\nzwei\ndrei")
    assert found(own, translation=its) == [("de", "one", "eins"), ("de", "three", "drei")]
    [source] = parallel_sources([f"{own},{its}"], source="en")
    assert list(read_parallel(source))[1] == Translation("three", "drei", "de", f"{its}:3", begins=True)
    assert found(own, translation=its, languages=("fr",)) == []


def test_the_language_of_a_file_is_told_by_its_name_or_by_the_user(tmp_path: Path) -> None:
    own, its = files(tmp_path, "one\n", "eins\n", names=("one.txt", "German.txt"))
    with refused(DataError, "German.txt must end in the code of its language", "got none"):
        found(own, translation=its)
    with refused(DataError, "the only language that is learned (languages)"):
        found(own, translation=its, languages=("de", "fr"))
    assert found(own, translation=its, languages=("de",)) == [("de", "one", "eins")]
    own, its = files(tmp_path, "one\n", "eins\n", names=("n.en.tok", "n.de.tok"))
    assert found(own, translation=its) == [("de", "one", "eins")]
    own, its = files(tmp_path, "one\n", "eins\n", names=("train_en.tsv", "train_de.tsv"))
    assert found(own, translation=its, languages=("de",)) == [("de", "one", "eins")]


def test_files_of_different_length_are_told_with_both_lengths(tmp_path: Path) -> None:
    own, its = files(tmp_path, "one\ntwo\nthree\n", "eins\nzwei\n")
    with refused(DataError, "text.de must have as many lines as ", "text.en, ", "got 2 beside 3"):
        found(own, translation=its)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [{"de": "eins", "fr": "un"}],
            'a.jsonl:1: must have a text in "en", the source language, got de, fr; ',
        ),
        ([{"en": "one", "title": "x"}], "a.jsonl:1: must have a translation beside en, got en, title; "),
        ([{"en": "one", "de": "eins"}, {"en": " ", "de": "zwei"}], 'a.jsonl:2: "en" must not be empty'),
        (
            [{"en": "one", "de": "eins"}, {"en": "two", "de": 2}],
            'a.jsonl:2: "de" must be a text, got a number',
        ),
        (
            [{"lang": "de", "en": "one", "gloss": "eins"}],
            "a.jsonl:1: a row with a language must have x or translation or target or text",
        ),
        ([{"lang": None, "en": "one", "x": "eins"}], 'a.jsonl:1: "lang" must not be empty'),
    ],
)
def test_faults_name_the_line(tmp_path: Path, rows: list[dict[str, Any]], told: str) -> None:
    path = table(tmp_path / "a.jsonl", *rows)
    with refused(DataError, told):
        found(path)


def test_columns_in_an_address_are_refused_since_languages_are_settings(tmp_path: Path) -> None:
    path = table(tmp_path / "a.jsonl", {"en": "one", "de": "eins"})
    with refused(ConfigError, "got text; settings name those"):
        found(f"{path}?text=de")
