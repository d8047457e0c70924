import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adiabat.core.errors import DataError
from adiabat.data.labelled import (
    LabelledTexts,
    read_labelled_pairs,
    read_labelled_texts,
    read_parallel_texts,
    read_scored_pairs,
    require_separable,
)


def written(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def fault(read: Callable[..., object], source: Path, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        read(source, **options)
    return str(caught.value)


PAIRS = ({"set": "one", "a": "cat", "b": "dog", "score": 3}, {"set": "two", "a": "à", "b": "猫", "score": 0.5})
MORE = ({"set": "one", "a": "cat", "b": "car", "score": 1}, {"set": "two", "a": "à", "b": "β", "score": "4.5"})
LAST = ({"set": "one", "a": "cow", "b": "hen", "score": 1}, {"set": "two", "a": "ü", "b": "β", "score": " 4e-1"})


def test_scored_pairs_keep_their_order_texts_and_sets(tmp_path):
    pairs = read_scored_pairs(written(tmp_path, *PAIRS, *MORE, *LAST), sets="set")
    assert (list(pairs.a), list(pairs.b)) == (["cat", "à", "cat", "à", "cow", "ü"], ["dog", "猫", "car", "β", "hen", "β"])
    assert pairs.scores.tolist() == [3, 0.5, 1, 4.5, 1, 0.4]
    assert (pairs.name, list(pairs.sets), len(pairs)) == ("rows", ["one", "two"] * 3, 6)


def test_without_a_column_of_sets_all_pairs_are_one(tmp_path):
    pairs = read_scored_pairs(written(tmp_path, *PAIRS, *MORE))
    assert list(pairs.sets) == ["", "", "", ""]


def test_other_columns_and_a_filter_are_read_and_the_name_tells_the_filter(tmp_path):
    rows = [{"s1": "x", "s2": "y", "gold": score, "lang": lang} for score, lang in ((1, "en"), (2, "en"), (3, "de"), (4, "en"))]
    pairs = read_scored_pairs(written(tmp_path, *rows), a="s1", b="s2", score="gold", where={"lang": "en"})
    assert pairs.scores.tolist() == [1, 2, 4]
    assert pairs.name == "rows/en"


def test_scores_of_csv_are_numbers_too(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,score\nx,y,1.5\nx,z,2\nx,x,-1e1\n")
    assert read_scored_pairs(path).scores.tolist() == [1.5, 2, -10]


def test_every_faulty_score_and_text_is_told_at_once(tmp_path):
    bad = [{**PAIRS[0], "score": value} for value in ("high", None, float("nan"), True, [1], 10**400, "1_0")]
    blank = [{**PAIRS[0], "a": " "}, {**PAIRS[0], "b": 3}]
    path = written(tmp_path, *PAIRS, *bad, *blank)
    message = fault(read_scored_pairs, path)
    assert message.startswith("9 faults: ")
    assert f"{path}:3: \"score\" must be a finite number, got 'high'" in message
    assert f'{path}:4: "score" must be a finite number, got none' in message
    assert f'{path}:5: "score" must be a finite number, got nan' in message
    assert f'{path}:6: "score" must be a finite number, got true or false' in message
    assert f'{path}:7: "score" must be a finite number, got a list' in message
    assert f'{path}:8: "score" must be a finite number, got 1{"0" * 58}…; ' in message
    assert f"{path}:9: \"score\" must be a finite number, got '1_0'" in message
    assert f'{path}:10: "a" must not be empty' in message
    assert f'{path}:11: "b" must be a text, got a number' in message
    assert message.endswith("; give every pair a number, or name the column of numbers with score")


def test_every_set_needs_two_different_scores(tmp_path):
    path = written(tmp_path, *(3 * PAIRS))
    message = fault(read_scored_pairs, path, sets="set")
    assert message.startswith("2 faults: ")
    assert "must have two different scores in \"score\" for 'one', got 3 alone, 3 times;" in message
    assert "for 'two', got 0.5 alone, 3 times; a rank correlation has nothing to rank" in message
    assert 'in "score", got 3 alone, 3 times;' in fault(read_scored_pairs, written(tmp_path, *(3 * PAIRS[:1])))


def test_every_set_needs_three_pairs(tmp_path):
    assert " must have at least 3 pairs, got 2; add some, or leave the set out" in fault(read_scored_pairs, written(tmp_path, *PAIRS))
    message = fault(read_scored_pairs, written(tmp_path, *PAIRS, *MORE, *LAST[:1]), sets="set")
    assert " must have at least 3 pairs for 'two', got 2; add" in message
    assert "one" not in message.partition("rows.jsonl")[2]


def test_labels_are_compared_as_settings_write_them(tmp_path):
    rows = [{"a": "x", "b": str(i), "label": label} for i, label in enumerate((1, 0, "1", 1.0, 2, True))]
    pairs = read_labelled_pairs(written(tmp_path, *rows))
    assert pairs.together.tolist() == [True, False, True, True, False, False]
    assert read_labelled_pairs(written(tmp_path, *rows), positive="true").together.tolist() == [False] * 5 + [True]


def test_pairs_of_one_kind_alone_are_refused_with_the_labels_there_are(tmp_path):
    rows = [{"a": "x", "b": "y", "dup": label} for label in (False, True, True)]
    message = fault(read_labelled_pairs, written(tmp_path, *rows), label="dup")
    assert '"dup" is "1" and pairs where it is another, got "true" (2), "false" (1); set positive' in message
    assert 'got "1" (1)' in fault(read_labelled_pairs, written(tmp_path, {"a": "x", "b": "y", "label": 1}))


def test_labelled_texts_have_their_labels_as_texts(tmp_path):
    texts = read_labelled_texts(written(tmp_path, {"text": "x", "label": 3}, {"text": "y", "label": "sport"}, {"text": "x", "label": 3.0}))
    assert (list(texts.texts), list(texts.labels), texts.distinct) == (["x", "y", "x"], ["3", "sport", "3"], ["3", "sport"])


def test_a_missing_label_is_told_with_its_line(tmp_path):
    rows = [{"text": "x", "label": "l"}, {"text": "y", "label": None}, {"text": "z"}, {"text": "z", "label": {"en": 1}}]
    message = fault(read_labelled_texts, written(tmp_path, *rows))
    assert message.startswith("3 faults: ")
    assert 'rows.jsonl:2: "label" must not be empty' in message
    assert 'rows.jsonl:3 must have the column "label"' in message
    assert 'rows.jsonl:4: "label" must be a text or a number, got an object' in message
    assert message.endswith("; give every row a text or a number, or name another column")


def test_parallel_texts_remember_their_columns(tmp_path):
    path = written(tmp_path, *({"en": f"e{i}", "x": f"x{i}", "lang": lang} for i, lang in enumerate("ddf")))
    sentences = read_parallel_texts(path, a="en", b="x", where={"lang": "d"})
    assert (list(sentences.a), list(sentences.b)) == (["e0", "e1"], ["x0", "x1"])
    assert (sentences.columns, sentences.name, len(sentences)) == (("en", "x"), "rows/d", 2)


def test_sentences_that_could_not_be_confused_are_refused(tmp_path):
    path = written(tmp_path, {"en": "one", "de": "eins"}, {"en": "two", "de": "eins"})
    assert 'got 2 rows with the same in "de"' in fault(read_parallel_texts, path, a="en", b="de")
    path = written(tmp_path, {"en": "one", "de": "eins"})
    assert 'got 1 row with the same in "en", "de"' in fault(read_parallel_texts, path, a="en", b="de")


def labelled(name: str, *labels: str) -> LabelledTexts:
    return LabelledTexts(name, [f"text {i}" for i in range(len(labels))], labels)


def test_one_label_alone_cannot_be_told_apart():
    with pytest.raises(DataError, match='data must have texts of at least two labels, got only "x"'):
        require_separable(labelled("data", "x", "x"))
    require_separable(labelled("data", "x", "y"))


def test_labels_of_the_test_that_training_lacks_are_named():
    training = labelled("training", "x", "y", "z")
    with pytest.raises(DataError, match=r'training must have texts of every label of the test, got none for "u" \(2\), "v" \(1\)'):
        require_separable(training, labelled("test", "u", "x", "v", "u"))
    require_separable(training, labelled("test", "z"))
