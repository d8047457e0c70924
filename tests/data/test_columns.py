import csv
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from adiabat.config.dual_training_data import TrainDataSection
from adiabat.core.errors import ConfigError, DataError
from adiabat.data.columns import Columns, entries_value, id_value, text_value
from adiabat.data.corpora import read_corpus
from adiabat.data.examples import ExampleReader, SourcePosition, parse_list, read_examples, stream_examples
from adiabat.data.labelled import read_labelled_texts
from adiabat.data.lines import COLUMN_ALIASES
from adiabat.data.parallel import ParallelSource, read_parallel
from adiabat.data.records import ExampleSet
from adiabat.data.table_rows import Row, RowError
from adiabat.dual_encoder.pair_data import read_pairs
from tests.data.files import refusal, write
from tests.refused import refused, require_facts

fault = partial(refusal, read_examples)

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
    with refused(RowError, '"bad" (negative)'):
        Columns({"negative": "bad"}).find_all("negative", row(*names))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "must not be empty"),
        (" \u2003\n", "must not be empty"),
        (3, "must be a text, got a number"),
        (True, "must be a text, got true or false"),
        (["a"], "must be a text, got a list"),
        ({"a": 1}, "must be a text, got an object"),
        ("half \ud83d of it", "must be Unicode text, got half of a surrogate pair"),
    ],
)
def test_a_text_must_be_a_text(value, fault):
    with refused(RowError, f'f:1: "text" {fault}'):
        text_value(value, "text", "f:1")


def test_whole_numbers_are_ids_in_decimal():
    assert id_value(31715818, "id", "f:1") == "31715818"
    assert id_value(-1, "id", "f:1") == "-1"
    for value in (1.0, True, None, "", np.float32(1)):
        with refused(RowError, 'f:1: "id" must'):
            id_value(value, "id", "f:1")


def test_entries_are_one_or_a_list():
    assert entries_value("a", "pos", "f:1") == ("a",)
    assert entries_value(["a", 7], "pos", "f:1") == ("a", "7")
    assert entries_value(7, "pos", "f:1") == ("7",)
    assert entries_value(None, "pos", "f:1") == entries_value([], "pos", "f:1") == ()
    for value in ("", ["a", ""], ["a", None], [["a"]], {"a": 1}):
        with refused(RowError, 'f:1: "pos" must'):
            entries_value(value, "pos", "f:1")


def test_a_grid_has_objects_by_language_and_a_mapping_overrides_aliases():
    grid = row(premise={"en": "x"}, hypothesis={"en": "y"}, label="neutral")
    assert Columns().layout(grid, wanted=ALL) == "grid"
    assert Columns().find("positive", row("answer", "positive", "passage")) == "positive"
    mapped = Columns({"positive": "answer"})
    assert mapped.layout(row("question", "answer", "passage"), wanted=ALL) == "examples"


@pytest.mark.parametrize(
    ("mapping", "names", "facts"),
    [
        ({}, ("question", "answer", "passage"), ['got "passage", "answer"', "one column for positive"]),
        (
            {},
            ("premise", "hypothesis", "label"),
            ["premise and hypothesis as objects by language", "got one text each"],
        ),
        (
            {},
            ("query", "reply"),
            ['"query", "positive" (an example)', 'got "query", "reply"', "?NAME=COLUMN"],
        ),
        ({}, ("q", "p"), ['"q", "positive" (an example)', "map what is missing in columns"]),
        ({}, ("lang", "en"), ['"doc_id", "text" (a document)', '"query", "positive"', '"premise"']),
        ({"positive": "answer"}, ("query", "pos"), ['"answer" (positive)', 'got "query", "pos"']),
    ],
)
def test_a_row_without_its_columns_is_refused_with_what_to_map(mapping, names, facts):
    with refused(DataError, "pairs.jsonl:1843: must have ", *facts):
        Columns(mapping).layout(row(*names), wanted=ALL)


@pytest.mark.parametrize(
    ("mapping", "facts"),
    [
        ({"positve": "answer"}, ["got positve; did you mean positive"]),
        ({"doc_id": "a", "query": "b"}, ["columns must map names of one kind", "got doc_id, query;"]),
        ({"doc_id": "a"}, ["columns must map ", "query, positive here, got doc_id;"]),
    ],
)
def test_a_mapping_of_other_names_is_refused(mapping, facts):
    with refused(ConfigError, *facts):
        Columns(mapping).layout(row("a"), wanted=("grid", "examples"))


Listed = list[tuple[str, tuple[str, ...], tuple[str, ...]]]


def table(path: Path, *rows: Sequence[object]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


def listed(source: Path, *, columns: Mapping[str, str] | None = None) -> tuple[Listed, list[str]]:
    """Query, positives and negatives of each example, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_examples(source, columns=columns)
    assert isinstance(found, ExampleSet)
    sentences = [str(one.message).removeprefix(f"{source}: ") for one in caught]
    return [(one.query, one.positives, one.negatives) for one in found.examples], sentences


LABELLED = (
    {"query": "a", "passage": "a 1", "label": 1},
    {"query": "a", "passage": "a 2", "label": 0},
    {"query": "b", "passage": "b 1", "label": False},
    {"query": "a", "passage": "a 3", "label": "1"},
    {"query": "b", "passage": "b 2", "label": 1.0},
    {"query": "c", "passage": "c 1", "label": 0},
)
SAID = '"label" is a label: documents with 0 are negatives, in 3 rows'


def test_rows_with_label_0_are_negatives_of_their_query(tmp_path: Path) -> None:
    found, said = listed(write(tmp_path / "t.jsonl", *LABELLED))
    assert found == [("a", ("a 1", "a 3"), ("a 2",)), ("b", ("b 2",), ("b 1",))]
    assert said == ["1 of 3 queries have no row with label 1 and are left out", SAID]


def test_training_takes_labels_as_measuring_does(tmp_path: Path) -> None:
    more = ({"query": f"q{n}", "passage": f"d {n}", "label": 1} for n in range(20))
    source = write(tmp_path / "t.jsonl", *LABELLED, *more)
    pairs, validation = read_pairs(str(source), TrainDataSection(validation_fraction=0.2))
    documents, queries = list(pairs.texts.documents), list(pairs.texts.queries)
    asked = {"a": {"a 1", "a 3"}, "b": {"b 2"}} | {f"q{n}": {f"d {n}"} for n in range(20)}
    trained = [*zip(pairs.query, pairs.positive, strict=True)]
    trained += zip(validation.query, validation.positive, strict=True)
    found = {(queries[query], documents[positive]) for query, positive in trained}
    assert found == {(query, answer) for query, answers in asked.items() for answer in answers}
    negatives = {
        query: {documents[row] for row in pairs.negatives[place]} for place, query in enumerate(queries)
    }
    assert negatives == {query: set() for query in asked} | {"a": {"a 2"}, "b": {"b 1"}, "c": {"c 1"}}
    assert pairs.notes == (
        f"t: {SAID}",
        "1 of 23 queries left out, because no row gives them a positive (label 1)",
    )


def test_a_stream_takes_labels_too(tmp_path: Path) -> None:
    tape = ExampleReader(str(write(tmp_path / "t.jsonl", *LABELLED)))
    found = [(one.query, one.positives, one.negatives) for one in tape.read(SourcePosition(), 3)]
    assert found == [("a", ("a 1",), ()), ("a", (), ("a 2",)), ("b", (), ("b 1",))]
    assert tape.remarks() == ['t: "label" is a label: documents with 0 are negatives, in 2 rows']


def test_a_list_of_labels_goes_with_a_list_of_documents(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "a", "positives": ["x", "y", "z"], "labels": [0, 1, 0]})
    assert listed(path)[0] == [("a", ("y",), ("x", "z"))]
    short = write(tmp_path / "s.jsonl", {"query": "a", "positives": ["x", "y"], "labels": [0]})
    require_facts(fault(short), f'{short}:1: "labels" ', "each of 2 documents, got 1; ")


@pytest.mark.parametrize(
    ("value", "shown"), [(0.7, "0.7"), (3, "3"), (-1, "-1"), ("maybe", "'maybe'"), (None, "none"), ("", "''")]
)
def test_graded_labels_are_refused_with_what_to_do(tmp_path: Path, value: object, shown: str) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "a", "passage": "x", "score": value})
    facts = f'{path}:1: "score" must be 0 or 1', f"got {shown}; ", "data.columns.label = ''"
    require_facts(fault(path), *facts)
    found, said = listed(path, columns={"label": ""})
    assert (found, said) == ([("a", ("x",), ())], ['ignored columns: "score"'])


def test_labels_that_are_0_throughout_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", *({"query": one, "passage": "x", "label": 0} for one in "ab"))
    require_facts(fault(path), str(path), "a row with label 1, got label 0 in all 2; ")


def test_a_score_beside_negatives_is_no_label_unless_it_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "a", "positive": "x", "negative": "y", "score": 0})
    assert listed(path) == ([("a", ("x",), ("y",))], ['ignored columns: "score"'])
    other = write(tmp_path / "o.jsonl", {"query": "a", "positive": "x", "negative": "y", "good": 1})
    assert listed(other, columns={"label": "good"}) == ([("a", ("x",), ("y",))], [])


@pytest.mark.parametrize(
    ("names", "positives", "negatives"),
    [
        (("positive", "hard_negative"), "x", "y"),
        (("positive", "hard_negatives"), "x", "y"),
        (("positive", "hard_neg"), "x", "y"),
        (("positive", "negative1", "negative2"), "x", "yz"),
        (("positive", "neg_2", "neg_1"), "x", "zy"),
        (("positive", "negative", "hard_negative_1"), "x", "yz"),
        (("positive_1", "positive_2"), "xy", ""),
        (("positive", "pos2", "negative_1"), "xy", "z"),
    ],
)
def test_columns_that_people_write_are_read(
    tmp_path: Path, names: Sequence[str], positives: str, negatives: str
) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "a", **dict(zip(names, "xyz", strict=False))})
    assert listed(path) == ([("a", tuple(positives), tuple(negatives))], [])


def test_columns_that_are_not_read_are_named_once_with_the_nearest_known_name(tmp_path: Path) -> None:
    unread = {"negs": "y", "url": "u"}, {"negs": "y", "Topics": "u"}
    path = write(tmp_path / "t.jsonl", *({"query": "a", "positive": "x", **more} for more in unread))
    told = (
        'ignored columns: "negs" (nearest known name: "neg"), "url", "Topics" (nearest known name: "topic")'
    )
    assert listed(path)[1] == [told]
    stream = stream_examples(path)
    assert len(list(stream.examples)) == 2
    assert stream.remarks() == [told]


def test_many_columns_are_named_in_a_short_line(tmp_path: Path) -> None:
    many = {f"u{'v' * n}": 0 for n in range(5_000)}
    path = write(tmp_path / "t.jsonl", {"query": "a", "positive": "x", **many})
    (said,) = listed(path)[1]
    assert said.endswith(" and others")
    assert len(said) < 500


def test_every_reader_names_what_it_does_not_read(tmp_path: Path) -> None:
    corpus = write(tmp_path / "c.jsonl", {"_id": "1", "text": "x", "Title": "y", "metadata": {}})
    with pytest.warns(
        UserWarning, match=r'c.jsonl: ignored columns: "Title" \(nearest known name: "title"\)$'
    ):
        assert [one.text for one in read_corpus(corpus)] == ["x"]
    labelled = write(tmp_path / "l.jsonl", {"text": "x", "label": "y", "genre": "z"})
    with pytest.warns(UserWarning, match=r'l.jsonl: ignored columns: "genre"$'):
        read_labelled_texts(labelled)
    parallel = write(tmp_path / "p.jsonl", {"en": "x", "de": "y", "source": "z"})
    with pytest.warns(UserWarning, match=r'p.jsonl: ignored columns: "source"$'):
        assert len(list(read_parallel(ParallelSource(str(parallel))))) == 1


def test_lists_that_went_through_csv_are_the_lists_of_the_same_json(tmp_path: Path) -> None:
    rows = [("a", ["x, 'y'", 'z "q"'], ["u"]), ("b", ["v"], [])]
    cells = table(tmp_path / "c.csv", ("query", "positive", "negative"), *rows)
    objects = write(tmp_path / "o.jsonl", *({"query": q, "positive": p, "negative": n} for q, p, n in rows))
    found, said = listed(cells)
    assert (found, []) == listed(objects)
    assert said[0] == f'"positive" looks like a list in 2 rows (first {cells}:2) and is read as one'


def test_a_text_that_looks_like_a_list_stays_one_where_the_format_has_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", {"query": "a", "positive": "['x', 'y']"})
    said = (
        f'"positive" looks like a list in 1 row (first {path}:1) and is taken '
        "for one text; write a JSON list if it is one"
    )
    assert listed(path) == ([("a", ("['x', 'y']",), ())], [said])


def test_a_list_that_could_be_misread_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", ("query", "positive"), ("a", "['x' 'y']"))
    require_facts(fault(path), f'{path}:2: "positive" ', "looks like a list: \"['x' 'y']\"; ")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("['a', 'b']", ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ("['it\\'s']", None),
        ("[1, 2]", [1, 2]),
        ("[]", []),
        ("['a' 'b']", None),
        ("[1.5]", None),
        ("[true]", None),
        ("[see note]", None),
        ("[" * 100_000, None),
    ],
)
def test_a_list_is_one_that_json_or_python_writes(text: str, entries: list[str | int] | None) -> None:
    assert parse_list(text) == entries
