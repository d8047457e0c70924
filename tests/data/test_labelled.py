from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.columns import plain_value
from adiabat.data.labelled import (
    LabelledTexts,
    read_labelled_pairs,
    read_labelled_texts,
    read_parallel_texts,
    read_scored_pairs,
    require_separable,
    selected_rows,
    value_counts,
)
from adiabat.data.table_rows import Row, RowError
from tests.data.files import refusal, write
from tests.refused import refused, require_facts

PAIRS = (
    {"set": "one", "a": "cat", "b": "dog", "score": 3},
    {"set": "two", "a": "à", "b": "猫", "score": 0.5},
)
MORE = (
    {"set": "one", "a": "cat", "b": "car", "score": 1},
    {"set": "two", "a": "à", "b": "β", "score": "4.5"},
)
LAST = (
    {"set": "one", "a": "cow", "b": "hen", "score": 1},
    {"set": "two", "a": "ü", "b": "β", "score": " 4e-1"},
)


def test_scored_pairs_keep_their_order_texts_and_sets(tmp_path):
    pairs = read_scored_pairs(write(tmp_path / "rows.jsonl", *PAIRS, *MORE, *LAST), sets="set")
    assert (list(pairs.a), list(pairs.b)) == (
        ["cat", "à", "cat", "à", "cow", "ü"],
        ["dog", "猫", "car", "β", "hen", "β"],
    )
    assert pairs.scores.tolist() == [3, 0.5, 1, 4.5, 1, 0.4]
    assert (pairs.name, list(pairs.sets), len(pairs)) == ("rows", ["one", "two"] * 3, 6)


def test_other_columns_and_a_filter_are_read_and_the_name_tells_the_filter(tmp_path):
    scored = ((1, "en"), (2, "en"), (3, "de"), (4, "en"))
    rows = ({"s1": "x", "s2": "y", "gold": score, "lang": lang} for score, lang in scored)
    path = write(tmp_path / "rows.jsonl", *rows)
    pairs = read_scored_pairs(path, a="s1", b="s2", score="gold", where={"lang": "en"})
    assert pairs.scores.tolist() == [1, 2, 4]
    assert pairs.name == "rows/en"


def test_labels_are_compared_as_settings_write_them(tmp_path):
    rows = [{"a": "x", "b": str(i), "label": label} for i, label in enumerate((1, 0, "1", 1.0, 2, True))]
    path = write(tmp_path / "rows.jsonl", *rows)
    assert read_labelled_pairs(path).together.tolist() == [True, False, True, True, False, False]
    assert read_labelled_pairs(path, positive="true").together.tolist() == [False] * 5 + [True]


def test_labelled_texts_have_their_labels_as_texts(tmp_path):
    labelled = ("x", 3), ("y", "sport"), ("x", 3.0)
    rows = ({"text": text, "label": label} for text, label in labelled)
    texts = read_labelled_texts(write(tmp_path / "rows.jsonl", *rows))
    assert (list(texts.texts), list(texts.labels)) == (["x", "y", "x"], ["3", "sport", "3"])
    assert texts.distinct == ["3", "sport"]


def test_parallel_texts_remember_their_columns(tmp_path):
    rows = ({"en": f"e{i}", "x": f"x{i}", "lang": lang} for i, lang in enumerate("ddf"))
    path = write(tmp_path / "rows.jsonl", *rows)
    sentences = read_parallel_texts(path, a="en", b="x", where={"lang": "d"})
    assert (list(sentences.a), list(sentences.b)) == (["e0", "e1"], ["x0", "x1"])
    assert (sentences.columns, sentences.name, len(sentences)) == (("en", "x"), "rows/d", 2)


BAD_SCORES = [
    {**PAIRS[0], "score": value} for value in ("high", None, float("nan"), True, [1], 10**400, "1_0")
]
DUPLICATES = [{"a": "x", "b": "y", "dup": label} for label in (False, True, True)]


@pytest.mark.parametrize(
    ("read", "rows", "options", "facts"),
    [
        (
            read_scored_pairs,
            [*PAIRS, *BAD_SCORES, {**PAIRS[0], "a": " "}, {**PAIRS[0], "b": 3}],
            {},
            [
                "9 faults: ",
                ":3: \"score\" must be a finite number, got 'high'",
                ':4: "score" must be a finite number, got None',
                ':5: "score" must be a finite number, got nan',
                ':6: "score" must be a finite number, got True',
                ':7: "score" must be a finite number, got [1]',
                f':8: "score" must be a finite number, got 1{"0" * 58}…; ',
                ":9: \"score\" must be a finite number, got '1_0'",
                ':10: "a" must not be empty',
                ':11: "b" must be a text, got a number',
            ],
        ),
        (
            read_scored_pairs,
            3 * PAIRS,
            {"sets": "set"},
            [
                "2 faults: ",
                "3 with 1 different scores in the set 'one'",
                "3 with 1 different scores in the set 'two'",
            ],
        ),
        (read_scored_pairs, 3 * PAIRS[:1], {}, ['different scores in "score" in each set, got 3 with 1']),
        (read_scored_pairs, PAIRS, {}, ["must have at least 3 pairs", "got 2 with 2"]),
        (
            read_scored_pairs,
            [*PAIRS, *MORE, *LAST[:1]],
            {"sets": "set"},
            ["must have at least 3 pairs", "got 2 with 2 different scores in the set 'two'"],
        ),
        (
            read_labelled_pairs,
            DUPLICATES,
            {"label": "dup"},
            ['"dup" is "1"', 'got "true" (2), "false" (1); set positive'],
        ),
        (
            read_labelled_texts,
            [
                {"text": "x", "label": "l"},
                {"text": "y", "label": None},
                {"text": "z"},
                {"text": "z", "label": {"en": 1}},
            ],
            {},
            [
                "3 faults: ",
                ':2: "label" must not be empty',
                ':3 must have the columns "label" (label)',
                ':4: "label" must be a text or a number',
            ],
        ),
        (
            read_parallel_texts,
            [{"en": "one", "de": "eins"}, {"en": "two", "de": "eins"}],
            {"a": "en", "b": "de"},
            ['got only one in "de"'],
        ),
    ],
)
def test_rows_that_no_task_can_use_are_refused(
    tmp_path: Path, read: Callable[..., object], rows: list[object], options: dict[str, str], facts: list[str]
) -> None:
    require_facts(refusal(read, write(tmp_path / "rows.jsonl", *rows), **options), *facts)


def test_labels_must_be_separable() -> None:
    def labelled(name: str, *labels: str) -> LabelledTexts:
        return LabelledTexts(name, [f"text {i}" for i in range(len(labels))], labels)

    training = labelled("training", "x", "y", "z")
    require_separable(training, labelled("test", "z"))
    with refused(DataError, "data must have texts of at least two labels", 'only "x"'):
        require_separable(labelled("data", "x", "x"))
    with refused(DataError, "training must have texts of every label", 'none for "u" (2), "v" (1)'):
        require_separable(training, labelled("test", "u", "x", "v", "u"))


ROWS: list[dict[str, object]] = [
    {"lang": "de", "split": "test", "i": 0, "a": "x"},
    {"lang": "en", "split": "dev", "i": 1.0, "a": "y"},
    {"lang": "en", "split": "test", "i": 1, "a": "z", "seen": True},
]


def texts(source: Path, **where: str) -> list[object]:
    return selected_rows(source, {"a": "a"}, lambda row: row.values["a"], split=None, where=where)


def test_only_rows_that_pass_the_whole_filter_come_back_in_file_order(tmp_path):
    path = write(tmp_path / "rows.jsonl", *ROWS)
    assert texts(path) == ["x", "y", "z"]
    assert texts(path, lang="en") == ["y", "z"]
    assert texts(path, lang="en", split="test") == ["z"]


def test_a_filter_compares_numbers_and_truth_values_as_settings_write_them(tmp_path):
    path = write(tmp_path / "rows.jsonl", *ROWS)
    assert texts(path, i="1") == ["y", "z"]
    assert texts(path, seen="true") == ["z"]
    values = [None, True, 3, 3.0, 0.5, "t"]
    assert [plain_value(value) for value in values] == ["", "true", "3", "3", "0.5", "t"]


def test_a_filter_that_leaves_nothing_tells_what_there_is(tmp_path):
    path = write(tmp_path / "rows.jsonl", *ROWS)
    facts = f"{path} must have rows where ", '"lang" is "de" and "split" is "dev", got none; '
    require_facts(refusal(texts, path, lang="de", split="dev"), *facts)
    require_facts(refusal(texts, path, langs="en"), '"split": ')


def test_of_many_values_the_ten_most_frequent_are_named():
    values = [str(number) for number in range(12) for _ in range(12 - number)]
    assert value_counts(values).startswith('"0" (12), "1" (11)')
    assert value_counts(values).endswith('"9" (3) and 2 more')
    assert value_counts(["x" * 1000]) == f'"{"x" * 59}…" (1)'


def test_columns_that_the_first_wanted_row_lacks_are_asked_for_together(tmp_path):
    path = write(tmp_path / "rows.jsonl", {"lang": "en"}, {"lang": "de", "sentence1": "x", "gold": 3})
    columns = {"a": "sentence", "score": "similarity"}
    facts = (
        f'{path}:2 must have the columns "sentence" (a), "similarity" (score)',
        '"lang", "sentence1", "gold"; ',
    )
    with refused(DataError, *facts):
        selected_rows(path, columns, dict, split=None, where={"lang": "de"})


def test_faults_of_later_rows_are_told_at_once_and_other_rows_are_not_looked_at(tmp_path):
    rows = [{"lang": "en", "a": "x"}, {"lang": "en", "A": "x"}, {"lang": "de"}, 7, {"lang": "en", "a": "bad"}]
    path = write(tmp_path / "rows.jsonl", *rows)

    def parse(row: Row) -> object:
        if row.values["a"] == "bad":
            raise RowError(f"{row.location}: bad")
        return row.values["a"]

    with pytest.raises(DataError) as caught:
        selected_rows(path, {"a": "a"}, parse, split=None, where={"lang": "en"})
    message = str(caught.value)
    assert message.startswith("3 faults: ")
    assert f'{path}:2 must have the columns "a"' in message
    assert f"{path}:4 must be one JSON object" in message
    assert f"{path}:5: bad" in message
    assert f"{path}:3" not in message


def test_a_table_of_faulty_lines_alone_is_told_by_its_lines(tmp_path):
    for rows, fact in (
        ([7], "rows.jsonl:1 must be one JSON object"),
        ([], "must hold at least one row"),
        # One line is at fault, and no other passes the filter: the fault may be why.
        ([7, {"lang": "de", "a": "x"}], "rows.jsonl:1 must be one JSON object"),
    ):
        require_facts(refusal(texts, write(tmp_path / "rows.jsonl", *rows), lang="en"), fact)


def test_the_address_names_the_columns_of_its_own_table(tmp_path):
    path = write(tmp_path / "rows.jsonl", *({"body": f"x{i}", "class": i % 2} for i in range(3)))
    texts = read_labelled_texts(f"{path}?text=body&label=class")
    assert (list(texts.texts), list(texts.labels)) == (["x0", "x1", "x2"], ["0", "1", "0"])
    assert texts.name == "rows"
    # Settings name those of tables whose address names none.
    other = read_labelled_texts(f"{path}?label=class", text="body", label="label")
    assert list(other.labels) == ["0", "1", "0"]
    with refused(ConfigError, "must not name query in its address", "reads text, label, "):
        read_labelled_texts(f"{path}?query=body")
    with refused(ConfigError, "must not name text in its address", "reads a, b, score"):
        read_scored_pairs(f"{path}?text=body")
    facts = 'must have the columns "kind" (label)', 'got "body", "class"'
    require_facts(refusal(read_labelled_texts, f"{path}?text=body&label=kind"), *facts)
