from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.language_grids import (
    QuestionGridSet,
    chosen_languages,
    read_question_grid,
    require_every_label,
    select_languages,
)
from adiabat.data.records import LanguageGridSet
from tests.data.files import write
from tests.refused import refused

LANGUAGES = ("ar", "de", "en")


def grid() -> LanguageGridSet:
    premises = tuple({language: f"{language} {n}" for language in LANGUAGES} for n in range(2))
    hypotheses = tuple({language: f"{language} so {n}" for language in LANGUAGES} for n in range(2))
    return LanguageGridSet("pairs", LANGUAGES, ("entailment", "neutral"), premises, hypotheses)


def test_languages_are_taken_in_the_order_asked_for_and_each_once():
    assert chosen_languages(["en", "ar", "en"], ["ar", "de", "en"], source="here") == ("en", "ar")
    assert chosen_languages([], {"en", "de"}, source="here") == ("de", "en")


def test_languages_are_left_out_of_a_grid_of_sentence_pairs():
    kept = select_languages(grid(), ["en", "ar"])
    assert (kept.languages, kept.labels, kept.name) == (("en", "ar"), grid().labels, "pairs")
    assert [list(texts) for texts in (*kept.premises, *kept.hypotheses)] == [["en", "ar"]] * 4
    assert (kept.premises[1]["ar"], kept.hypotheses[0]["en"]) == ("ar 1", "en so 0")
    assert select_languages(grid(), []) == grid()


def test_nothing_is_said_of_other_languages_where_some_are_named():
    partial = replace(grid(), incomplete={"zh": "g.jsonl:4"})
    assert select_languages(partial, []).notes == partial.notes != ()
    assert select_languages(partial, ["de"]).notes == ()


@pytest.mark.parametrize(
    ("languages", "facts"),
    [
        (
            ["de", "zh"],
            [
                "pairs, in which every sentence pair is (ar, de, en), got zh (missing in g.jsonl:4)",
                "complete these rows",
            ],
        ),
        (["da"], ["got da; name others"]),
        ([f"q{letter}" for letter in "abcdefghijkl"], ["got 12 others: qa", "; qj; and 2 more; name others"]),
    ],
)
def test_unknown_languages_are_refused_with_near_ones(languages: list[str], facts: list[str]) -> None:
    with refused(ConfigError, *facts):
        select_languages(replace(grid(), incomplete={"zh": "g.jsonl:4"}), languages)


def test_every_label_is_needed() -> None:
    with refused(
        DataError, "g.jsonl must have sentence pairs of every label ", "got none of contradiction; "
    ):
        require_every_label(grid(), source="g.jsonl")
    require_every_label(replace(grid(), labels=("contradiction", "neutral", "entailment")), source="g.jsonl")


Rows = Sequence[Mapping[str, object]]

QUESTIONS: Rows = [
    {"id": "a", "para": "0-0", "de": "wer?", "en": "who?"},
    {"id": "b", "para": "0-1", "de": "wie?", "en": "how?"},
    {"id": "c", "para": "0-0", "de": "wo?", "en": "where?"},
]
PARAGRAPHS: Rows = [
    {"para": "0-1", "de": "so und so", "en": "like this"},
    {"para": "0-0", "de": "der da", "en": "him there"},
]


def read(
    folder: Path, questions: Rows = QUESTIONS, paragraphs: Rows = PARAGRAPHS, *, languages: Sequence[str] = ()
) -> QuestionGridSet:
    return read_question_grid(
        write(folder / "q.jsonl", *questions), write(folder / "p.jsonl", *paragraphs), languages=languages
    )


def changed(rows: Rows, place: int, **changes: object) -> list[dict[str, object]]:
    """With other values in one row; None takes a column away."""
    copies = [dict(row) for row in rows]
    copies[place] = {name: value for name, value in {**copies[place], **changes}.items() if value is not None}
    return copies


def test_questions_find_their_paragraphs_by_the_key(tmp_path):
    grid = read(tmp_path)
    assert (grid.name, grid.languages, grid.ids, len(grid)) == ("q", ("de", "en"), ("a", "b", "c"), 3)
    assert grid.questions[2] == {"de": "wo?", "en": "where?"}
    assert [grid.paragraphs[row]["en"] for row in grid.answers] == ["him there", "like this", "him there"]
    assert grid.notes == ()


def test_languages_of_only_one_table_are_left_out_and_named(tmp_path):
    questions = [{**row, "fr": "?", "pt-BR": "?"} for row in QUESTIONS]
    grid = read(tmp_path, questions, [{**row, "zh": row["en"]} for row in PARAGRAPHS])
    assert grid.languages == ("de", "en")
    assert grid.notes == (
        f"fr, pt-BR left out: only {tmp_path / 'q.jsonl'} has them",
        f"zh left out: only {tmp_path / 'p.jsonl'} has them",
    )


def test_a_subset_of_languages_may_be_incomplete_elsewhere(tmp_path):
    grid = read(tmp_path, changed(QUESTIONS, 1, de=None), languages=["en"])
    assert (grid.languages, grid.questions[1]) == (("en",), {"en": "how?"})


def test_indonesian_is_a_language_where_it_is_asked_for(tmp_path):
    questions = [{**row, "qid": row["id"], "id": f"apa {row['id']}"} for row in QUESTIONS]
    paragraphs = [{**row, "id": f"itu {row['para']}"} for row in PARAGRAPHS]
    grid = read(tmp_path, questions, paragraphs, languages=["en", "id"])
    assert (grid.languages, grid.ids, grid.questions[0]["id"]) == (("en", "id"), ("a", "b", "c"), "apa a")


def test_an_unknown_language_is_refused_with_near_ones(tmp_path):
    questions, paragraphs = ([{**row, "title": "T"} for row in rows] for rows in (QUESTIONS, PARAGRAPHS))
    with refused(ConfigError, "q.jsonl and ", "p.jsonl (de, en, title), got da;"):
        read(tmp_path, questions, paragraphs, languages=["en", "da"])


def test_texts_missing_in_a_row_are_all_told_with_their_lines(tmp_path):
    paragraphs = changed(changed(PARAGRAPHS, 0, de=None, en=None), 1, en=" ")
    faults = (
        "3 faults: ",
        f"{tmp_path}/q.jsonl:2: a text must be there in every language, got none in de; ",
        f"{tmp_path}/p.jsonl:1: a text must be there in every language, got none in de, en; ",
        f'{tmp_path}/p.jsonl:2: "en" must not be empty; ',
    )
    with refused(DataError, *faults):
        read(tmp_path, changed(QUESTIONS, 1, de=None), paragraphs)


@pytest.mark.parametrize(
    ("questions", "paragraphs", "facts"),
    [
        (
            changed(QUESTIONS, 2, para="9-9"),
            PARAGRAPHS,
            ['q.jsonl:3: "para" must name a paragraph of ', 'p.jsonl, got unknown "9-9"; '],
        ),
        (
            [{**row, "para": "x"} for row in QUESTIONS],
            PARAGRAPHS,
            ["3 faults: ", *(f'q.jsonl:{line}: "para" ' for line in (1, 2, 3))],
        ),
        (
            changed(QUESTIONS, 2, id="a"),
            PARAGRAPHS,
            ["q.jsonl:3: the name of a question must be unique", 'got "a" again, first at ', "q.jsonl:1; "],
        ),
        (
            QUESTIONS,
            changed(PARAGRAPHS, 1, para="0-1"),
            ['p.jsonl:2: "para" must be unique, got "0-1" again, first at ', "p.jsonl:1; "],
        ),
        (
            changed(QUESTIONS, 0, para=None),
            PARAGRAPHS,
            ['q.jsonl:1 must have the column "para", got "id", "de", "en"; ', "key"],
        ),
        (
            QUESTIONS,
            [*PARAGRAPHS[:1], {**PARAGRAPHS[0], "para": "0-0"}],
            ["2 faults: ", "two different paragraphs in de, got one; ", " in en"],
        ),
        (QUESTIONS, PARAGRAPHS[:0], ["p.jsonl must hold at least one row, got none"]),
        (
            QUESTIONS,
            [{"para": row["para"], "zh": "x"} for row in PARAGRAPHS],
            ["named by the code of a language, got de, en and zh; ", "languages"],
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, questions, paragraphs, facts):
    with refused(DataError, *facts):
        read(tmp_path, questions, paragraphs)


def test_lines_that_are_no_rows_are_told_with_the_rest(tmp_path):
    path = write(tmp_path / "q.jsonl", *QUESTIONS, b"nonsense\n")
    paragraphs = write(tmp_path / "p.jsonl", *changed(PARAGRAPHS, 0, de=None))
    facts = "2 faults: ", "q.jsonl:4 must be one JSON object", "p.jsonl:1: a text must be there"
    with refused(DataError, *facts):
        read_question_grid(path, paragraphs)


def test_columns_in_an_address_of_questions_are_refused_since_settings_name_them(tmp_path: Path) -> None:
    questions, paragraphs = write(tmp_path / "q.jsonl", *QUESTIONS), write(tmp_path / "p.jsonl", *PARAGRAPHS)
    with refused(ConfigError, "got query; settings name those"):
        read_question_grid(f"{questions}?query=en", paragraphs)
