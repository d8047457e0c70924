import numpy as np
import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.columns import Columns, RowError, entries_value, id_value, text_value
from adiabat.data.table_headers import COLUMN_ALIASES
from adiabat.data.table_rows import Row

ALL = ("grid", "examples", "corpus")


def row(*names: str, **values: object) -> Row:
    return Row("pairs.jsonl:1843", {**dict.fromkeys(names, "x"), **values})


@pytest.mark.parametrize("name", COLUMN_ALIASES)
def test_every_alias_is_found(name):
    for alias in COLUMN_ALIASES[name]:
        assert Columns().find(name, row(alias, "other")) == alias


def test_our_own_name_wins_over_aliases():
    assert Columns().find("positive", row("answer", "positive", "passage")) == "positive"


def test_two_aliases_at_once_are_an_error_that_asks():
    with pytest.raises(DataError) as caught:
        Columns().layout(row("question", "answer", "passage"), wanted=ALL)
    assert str(caught.value) == (
        'pairs.jsonl:1843: expected one column for positive, found "passage" and "answer"; '
        'choose with data.columns.positive = "passage" or "answer"'
    )
    assert Columns({"positive": "answer"}).layout(row("question", "answer", "passage"), wanted=ALL) == "examples"


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (("docid", "text"), "corpus"),
        (("pid", "passage"), "corpus"),
        (("_id", "title", "text"), "corpus"),
        (("id", "query", "pos"), "examples"),
        (("anchor", "positive", "negative_1"), "examples"),
        (("question", "passage"), "examples"),
    ],
)
def test_the_layout_is_told_by_the_columns(names, layout):
    assert Columns().layout(row(*names), wanted=ALL) == layout


def test_a_grid_has_objects_by_language():
    grid = row(premise={"en": "x"}, hypothesis={"en": "y"}, label="neutral")
    assert Columns().layout(grid, wanted=ALL) == "grid"
    with pytest.raises(DataError) as caught:
        Columns().layout(row("premise", "hypothesis", "label"), wanted=ALL)
    assert str(caught.value) == (
        "pairs.jsonl:1843: expected premise and hypothesis by language, found one text each; give objects by language"
    )


def test_a_missing_column_names_the_one_that_may_be_meant():
    with pytest.raises(DataError) as caught:
        Columns().layout(row("query", "reply"), wanted=("grid", "examples"))
    assert str(caught.value) == (
        'pairs.jsonl:1843: expected "query" and "positive", found "query" and "reply"; map it with data.columns.positive = "reply"'
    )


def test_a_column_that_is_there_under_another_name_is_asked_for_by_that_name() -> None:
    with pytest.raises(RowError) as caught:
        Columns().require("positive", Row("pairs.jsonl:1", {"q": "a", "p": "b"}), "examples")
    assert str(caught.value) == 'pairs.jsonl:1: expected "q" and "positive", found "q" and "p"; map it with data.columns.positive = "p"'


def test_a_missing_column_among_many_asks_which_it_is():
    with pytest.raises(DataError, match=r'found "query", "a" and "b"; say which it is with data\.columns\.positive$'):
        Columns().layout(row("query", "a", "b"), wanted=ALL)


def test_a_row_of_no_layout_is_told_all_of_them():
    with pytest.raises(DataError) as caught:
        Columns().layout(row("lang", "en"), wanted=ALL)
    assert str(caught.value) == (
        'pairs.jsonl:1843: expected "doc_id" and "text" (a document), or "query" and "positive" (an example), '
        'or "premise" and "hypothesis" (a sentence pair), found "lang" and "en"; map them with data.columns.NAME'
    )


def test_a_mapped_column_that_is_missing_is_an_error():
    with pytest.raises(DataError) as caught:
        Columns({"positive": "answer"}).layout(row("query", "pos"), wanted=ALL)
    assert str(caught.value) == (
        'pairs.jsonl:1843: expected "answer" (data.columns.positive), found "query" and "pos"; name a column that is there'
    )


def test_unknown_names_of_ours_are_refused():
    with pytest.raises(ConfigError, match=r"^unknown key data\.columns\.positve; did you mean data\.columns\.positive\?$"):
        Columns({"positve": "answer"})
    with pytest.raises(ConfigError, match=r"^unknown key data\.columns\.zzz; the names are doc_id, text, "):
        Columns({"zzz": "answer"})


def test_names_of_two_layouts_are_refused():
    with pytest.raises(ConfigError, match="columns must map names of one kind of row, got doc_id, query;"):
        Columns({"doc_id": "a", "query": "b"})


def test_names_of_a_layout_that_is_not_wanted_are_refused():
    with pytest.raises(ConfigError, match="columns must map .*query, positive here, got doc_id; leave these out"):
        Columns({"doc_id": "a"}).layout(row("a"), wanted=("grid", "examples"))


def test_negatives_are_taken_by_number():
    names = ("query", "negative_10", "negative_2", "negative", "negative_x")
    assert Columns().find_all("negative", row(*names)) == ["negative", "negative_2", "negative_10"]
    assert Columns({"negative": "negative_2"}).find_all("negative", row(*names)) == ["negative_2"]
    with pytest.raises(RowError, match=r'expected "bad" \(data\.columns\.negative\)'):
        Columns({"negative": "bad"}).find_all("negative", row(*names))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, 'f:1: "text" must not be empty'),
        (" \u2003\n", 'f:1: "text" must not be empty'),
        (3, 'f:1: "text" must be a text, got a number'),
        (True, 'f:1: "text" must be a text, got true or false'),
        (["a"], 'f:1: "text" must be a text, got a list'),
        ({"a": 1}, 'f:1: "text" must be a text, got an object'),
        ("half \ud83d of it", 'f:1: "text" must be Unicode text, got half of a surrogate pair'),
    ],
)
def test_a_text_must_be_a_text(value, message):
    with pytest.raises(RowError) as caught:
        text_value(value, "text", "f:1")
    assert str(caught.value) == message


def test_a_text_is_kept_as_it_is():
    assert text_value("  مرحبا \u202bעולם\u202c ", "text", "f:1") == "  مرحبا \u202bעולם\u202c "


def test_whole_numbers_are_ids_in_decimal():
    assert id_value(31715818, "id", "f:1") == "31715818"
    assert id_value(-1, "id", "f:1") == "-1"
    for value in (1.0, True, None, "", np.float32(1)):
        with pytest.raises(RowError, match='f:1: "id" must'):
            id_value(value, "id", "f:1")


def test_entries_are_one_or_a_list():
    assert entries_value("a", "pos", "f:1") == ("a",)
    assert entries_value(["a", 7], "pos", "f:1") == ("a", "7")
    assert entries_value(7, "pos", "f:1") == ("7",)
    assert entries_value(None, "pos", "f:1") == entries_value([], "pos", "f:1") == ()
    for value in ("", ["a", ""], ["a", None], [["a"]], {"a": 1}):
        with pytest.raises(RowError, match='f:1: "pos" must'):
            entries_value(value, "pos", "f:1")
