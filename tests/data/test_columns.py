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


def test_a_grid_has_objects_by_language_and_a_mapping_overrides_aliases():
    grid = row(premise={"en": "x"}, hypothesis={"en": "y"}, label="neutral")
    assert Columns().layout(grid, wanted=ALL) == "grid"
    assert Columns().find("positive", row("answer", "positive", "passage")) == "positive"
    assert Columns({"positive": "answer"}).layout(row("question", "answer", "passage"), wanted=ALL) == "examples"


@pytest.mark.parametrize(
    ("mapping", "names", "facts"),
    [
        ({}, ("question", "answer", "passage"), ['found "passage" and "answer"', 'data.columns.positive = "passage" or "answer"']),
        ({}, ("premise", "hypothesis", "label"), ["premise and hypothesis by language, found one text each"]),
        ({}, ("query", "reply"), ['expected "query" and "positive", found "query" and "reply"', 'data.columns.positive = "reply"']),
        ({}, ("q", "p"), ['expected "q" and "positive"', 'map it with data.columns.positive = "p"']),
        ({}, ("query", "a", "b"), ['found "query", "a" and "b"', "say which it is with data.columns.positive"]),
        (
            {},
            ("lang", "en"),
            ['"doc_id" and "text" (a document), or "query" and "positive" (an example), or "premise"', "data.columns.NAME"],
        ),
        ({"positive": "answer"}, ("query", "pos"), ['expected "answer" (data.columns.positive)', 'found "query" and "pos"']),
    ],
)
def test_a_row_without_its_columns_is_refused_with_what_to_map(mapping, names, facts):
    with pytest.raises(DataError, match="^pairs.jsonl:1843: ") as caught:
        Columns(mapping).layout(row(*names), wanted=ALL)
    assert all(fact in str(caught.value) for fact in facts), caught.value


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"positve": "answer"}, r"unknown key data\.columns\.positve; did you mean data\.columns\.positive\?"),
        ({"zzz": "answer"}, r"unknown key data\.columns\.zzz; the names are doc_id, text, "),
        ({"doc_id": "a", "query": "b"}, "columns must map names of one kind of row, got doc_id, query;"),
        ({"doc_id": "a"}, "columns must map .*query, positive here, got doc_id; leave these out"),
    ],
)
def test_a_mapping_of_other_names_is_refused(mapping, message):
    with pytest.raises(ConfigError, match=message):
        Columns(mapping).layout(row("a"), wanted=("grid", "examples"))
