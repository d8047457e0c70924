"""Pairs of texts out of examples: numbering, answers, negatives, and the parting of training from
validation.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adiabat.config.dual_training_data import TrainDataSection
from adiabat.core.errors import DataError
from adiabat.core.ragged import Ragged
from adiabat.data.corpora import read_corpus
from adiabat.data.pair_sets import PairSet, TextList, joined, text_numbers
from adiabat.data.records import Example, ExampleSet
from adiabat.data.text_hashes import held_out_queries
from adiabat.dual_encoder.pair_data import read_pairs
from tests.dual_encoder.problem import HELD_OUT, ROWS, both_sets, examples, pair_sets, settings_of, write_rows


def data_section(**settings: Any) -> TrainDataSection:
    return settings_of(data=settings).data


def told(pairs: PairSet) -> list[tuple[str, str]]:
    """Pairs as texts."""
    texts, pairs = pairs.texts, zip(pairs.query, pairs.positive, strict=True)
    return [(texts.queries[query], texts.documents[document]) for query, document in pairs]


def listed_texts(lists: Ragged, pairs: PairSet, query: str) -> list[str]:
    return [pairs.texts.documents[row] for row in lists[pairs.texts.queries.index(query)]]


def write_beir(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    write_rows(folder / "queries.jsonl", [{"_id": f"q{n}", "text": f"question {n}"} for n in range(4)])
    judged = ["q0\td0\t1", "q0\td1\t0", "q1\td1\t2", "q2\td2\t1", "q2\td3\t1"]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td4\t1\n")
    corpus = [{"_id": f"d{n}", "title": f"Title {n}.", "text": f"Text {n}."} for n in range(6)]
    write_rows(folder / "corpus.jsonl", corpus)


# --- Numbering ---


def test_texts_are_numbered_once_in_the_order_in_which_they_come() -> None:
    (pairs,) = pair_sets(examples([("b", ["y", "x"], ["z"]), ("a", ["x"], []), ("b", ["w"], ["y"])]))
    assert pairs.texts.queries == ["b", "a"]
    assert pairs.texts.documents == ["y", "x", "z", "w"]
    assert pairs.texts.query_ids == ["set 0", "set 1"]
    assert told(pairs) == [("b", "y"), ("b", "x"), ("a", "x"), ("b", "w")]


def test_pairs_answers_and_negatives_equal_plain_loops_over_the_rows() -> None:
    train, validation = both_sets()
    for pairs, rows in ((train, ROWS), (validation, HELD_OUT)):
        assert told(pairs) == [(query, near) for query, positives, _ in rows for near in positives]
    every = (*ROWS, *HELD_OUT)
    for query in train.texts.queries:
        answers = {near for asked, positives, _ in every if asked == query for near in positives}
        listed = {far for asked, _, negatives in every if asked == query for far in negatives}
        assert set(listed_texts(train.answers, train, query)) == answers
        assert set(listed_texts(train.negatives, train, query)) == listed - answers
    assert train.texts is validation.texts


def test_a_pair_that_is_given_twice_counts_once() -> None:
    (pairs,) = pair_sets(examples([("a", ["x", "x"], []), ("b", ["x"], []), ("a", ["x", "y"], [])]))
    assert told(pairs) == [("a", "x"), ("b", "x"), ("a", "y")]
    assert pairs.answers[0].tolist() == [0, 1]
    assert pairs.notes == ("set: 2 of 5 pairs left out as duplicates",)
    twice = examples([("a", ["x"], []), ("a", ["x"], [])], name="dev")
    train, validation = pair_sets(examples([("a", ["x"], [])]), twice)
    assert (train.notes, validation.notes) == ((), ("dev: 1 of 2 pairs left out as duplicates",))


def test_negatives_that_another_row_lists_as_positive_are_left_out_and_counted_in_one_note() -> None:
    rows = examples([("a", ["x"], ["y", "z", "x"]), ("a", ["y"], ["z", "u"]), ("b", ["z"], ["x"])])
    (pairs,) = pair_sets(rows)
    assert listed_texts(pairs.negatives, pairs, "a") == ["z", "u"]
    assert listed_texts(pairs.negatives, pairs, "b") == ["x"]
    (note,) = pairs.notes
    assert "2 of 5 listed negatives left out" in note
    train, validation = pair_sets(examples([("a", ["x"], ["y"])]), examples([("a", ["y"], ["z"])]))
    assert listed_texts(train.negatives, train, "a") == ["z"]
    assert (len(train.notes), len(validation.notes)) == (1, 0)


def test_what_is_asked_and_what_is_ranked_are_each_once() -> None:
    (pairs,) = pair_sets(examples([("a", ["x", "y"], ["z"]), ("b", ["x"], ["z", "y"]), ("a", ["y"], [])]))
    assert pairs.query_rows.tolist() == [0, 1]
    assert [pairs.texts.documents[row] for row in pairs.candidates] == ["x", "y", "z"]
    _, validation = both_sets()
    _, nothing = pair_sets(examples(ROWS), examples([]))
    assert (len(nothing), nothing.candidates.tolist(), nothing.query_rows.tolist()) == (0, [], [])
    listed = {text for _, near, far in HELD_OUT for text in (*near, *far)}
    # "what barks" is asked in training too, and what it lists there is ranked with the rest.
    assert {validation.texts.documents[row] for row in validation.candidates} == listed | {"a cat", "rain"}


def test_topics_and_tags_are_numbered_and_a_pair_keeps_its_first() -> None:
    rows = [
        Example("1", "a", ("x",), topic="cooking", tag="fish"),
        Example("2", "b", ("y", "z"), ("x",), topic="travel", tag="fish"),
        Example("3", "a", ("x",), topic="travel"),
        Example("4", "c", ("x",)),
    ]
    (pairs,) = pair_sets(ExampleSet("set", rows))
    assert told(pairs) == [("a", "x"), ("b", "y"), ("b", "z"), ("c", "x")]
    assert [number for number, topic in enumerate(pairs.topics) if topic == pairs.topics[0]] == [0]
    assert pairs.topics[1] == pairs.topics[2] != 0
    assert pairs.tags[0] == pairs.tags[1] == pairs.tags[2] != 0
    assert (pairs.topics[3], pairs.tags[3]) == (0, 0)


def test_sources_stand_one_after_another_and_share_what_they_know() -> None:
    one = examples([("a", ["x"], ["y"]), ("b", ["z"], [])], name="one")
    both = joined(pair_sets(one, examples([("a", ["y"], ["x", "z"])], name="two")))
    assert (both.name, told(both)) == ("one + two", [("a", "x"), ("b", "z"), ("a", "y")])
    assert both.sources.tolist() == [0, 0, 1]
    assert listed_texts(both.answers, both, "a") == ["x", "y"]
    assert listed_texts(both.negatives, both, "a") == ["z"]
    (note,) = both.notes
    assert "2 of 3 listed negatives left out" in note


def test_texts_are_numbered_over_both_sides() -> None:
    (pairs,) = pair_sets(examples([("a", ["b"], []), ("b", ["c"], ["a"]), ("d", ["e"], [])]))
    queries, documents = text_numbers(pairs.texts)
    texts = [*pairs.texts.queries, *pairs.texts.documents]
    numbers = dict(zip(texts, [*queries.tolist(), *documents.tolist()], strict=True))
    assert sorted(numbers.values()) == [0, 1, 2, 3, 4]
    assert queries[1] == documents[pairs.texts.documents.index("b")]


# --- The digest ---


def changed(pairs: PairSet) -> dict[str, PairSet]:
    texts, first = pairs.texts, pairs.negatives.values.copy()
    first[0] = first[1]
    one, two, *others = texts.queries
    moved = TextList([one[:-1], one[-1] + two, *others])
    offsets = np.roll(pairs.negatives.offsets, 1)
    return {
        "a query": replace(pairs, texts=replace(texts, queries=TextList(["other", two, *others]))),
        "a document": replace(
            pairs, texts=replace(texts, documents=TextList([*texts.documents[:-1], "other"]))
        ),
        "a letter that moves to the next text": replace(pairs, texts=replace(texts, queries=moved)),
        "the order of pairs": replace(pairs, query=pairs.query[::-1], positive=pairs.positive[::-1]),
        "a topic": replace(pairs, topics=np.arange(len(pairs))),
        "a tag": replace(pairs, tags=np.arange(len(pairs))),
        "a source": replace(pairs, sources=np.arange(len(pairs))),
        "which query": replace(pairs, query=np.roll(pairs.query, 1)),
        "which positive": replace(pairs, positive=np.roll(pairs.positive, 1)),
        "a pair less": pairs.subset(np.arange(len(pairs)) < len(pairs) - 1),
        "a negative": replace(pairs, negatives=Ragged(first, pairs.negatives.offsets)),
        "whose negative": replace(pairs, negatives=Ragged(pairs.negatives.values, offsets)),
    }


def test_the_digest_changes_with_any_part_and_with_nothing_else() -> None:
    train, validation = both_sets()
    again, _ = both_sets()
    assert train.digest() == again.digest() == replace(train, name="other", notes=("said",)).digest()
    digests = [train.digest(), validation.digest(), *(other.digest() for other in changed(train).values())]
    assert len(set(digests)) == len(digests)
    assert all(len(digest) == 64 for digest in digests)


# --- Reading ---


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [
        {"query": f"question {n % 25}", "positive": f"answer {n}", "negative": f"answer {(n + 1) % 30}"}
        for n in range(30)
    ]
    write_rows(tmp_path / "pairs.jsonl", rows)
    return tmp_path / "pairs.jsonl"


def test_validation_is_held_out_by_the_hash_of_the_query_and_no_query_is_on_both_sides(data: Path) -> None:
    train, validation = read_pairs(str(data), data_section(validation_fraction=0.3))
    queries = train.texts.queries
    assert validation.query_rows.tolist() == held_out_queries(queries, 0.3, 1000).tolist()
    assert set(train.query_rows.tolist()) | set(validation.query_rows.tolist()) == set(range(25))
    assert not set(train.query_rows.tolist()) & set(validation.query_rows.tolist())
    given = sorted((f"question {n % 25}", f"answer {n}") for n in range(30))
    assert sorted(told(train) + told(validation)) == given


def test_adding_data_moves_no_query_to_the_other_side(data: Path) -> None:
    def held_out() -> tuple[set[str], set[str]]:
        train, validation = read_pairs(str(data), data_section(validation_fraction=0.3))
        texts = train.texts.queries
        return {texts[row] for row in train.query_rows}, {texts[row] for row in validation.query_rows}

    _, before = held_out()
    more = [{"query": f"later {number}", "positive": f"more {number}"} for number in range(20)]
    write_rows(data, [*more, *map(json.loads, data.read_text().splitlines())])
    trained, after = held_out()
    assert before == {query for query in after if query.startswith("question")}
    assert not after & trained


def test_no_more_than_the_limit_are_held_out_and_no_share_leaves_a_side_empty(
    data: Path,
) -> None:
    _, validation = read_pairs(str(data), data_section(validation_fraction=0.9, max_validation=3))
    assert len(validation.query_rows) == 3
    for fraction, count in ((1e-9, 0), (0.999999, 25)):
        with pytest.raises(DataError, match=f"= {fraction} must .*, got {count} of 25 held out"):
            read_pairs(str(data), data_section(validation_fraction=fraction))
    write_rows(data, [{"query": "a", "positive": ["x", "y"]}])
    with pytest.raises(DataError, match=r"pairs.jsonl: .* of 1 held out; .* a data.validation file"):
        read_pairs(str(data), data_section())


def test_a_validation_file_is_taken_whole_and_an_overlap_is_told(data: Path, tmp_path: Path) -> None:
    dev = [
        {"query": "question 3", "positive": "answer 99"},
        {"query": "new", "positive": "answer 1"},
        {"query": "newer", "positive": "b"},
    ]
    write_rows(tmp_path / "dev.jsonl", dev)
    train, validation = read_pairs(str(data), data_section(validation=str(tmp_path / "dev.jsonl")))
    assert len(train) == 30
    assert told(validation) == [("question 3", "answer 99"), ("new", "answer 1"), ("newer", "b")]
    (note,) = validation.notes
    assert "1 of 3 validation queries are also trained on" in note
    assert "answer 99" in listed_texts(train.answers, train, "question 3")
    write_rows(tmp_path / "dev.jsonl", dev[1:])
    assert read_pairs(str(data), data_section(validation=str(tmp_path / "dev.jsonl")))[1].notes == ()
    (note,) = read_pairs(str(data), data_section(validation=str(data)))[1].notes
    assert "25 of 25 validation queries are also trained on" in note
    assert "name other data as" in note


def test_a_beir_folder_brings_its_own_texts_and_trains_on_its_train_split(tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    here = str(tmp_path / "set")
    train, validation = read_pairs(here, data_section(validation=here))
    texts = [f"Title {number}. Text {number}." for number in range(6)]
    answers = [("question 0", 0), ("question 1", 1), ("question 2", 2), ("question 2", 3)]
    assert told(train) == [(query, texts[number]) for query, number in answers]
    assert listed_texts(train.negatives, train, "question 0") == [texts[1]]
    assert told(validation) == [("question 3", texts[4])]
    train, _ = read_pairs(here, data_section(split="dev", validation=here, validation_split="train"))
    assert told(train) == [("question 3", texts[4])]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"query": "frage", "positive": "antwort", "negative": "falsch", "doc_id": "number", "text": "words"},
    ],
    ids=str,
)
def test_ids_are_looked_up_in_the_corpus_that_is_named_whose_columns_may_be_too(
    tmp_path: Path, columns: dict[str, str]
) -> None:
    query, positive, negative, key, text = columns.values() or ("query", "pos", "neg", "_id", "text")
    corpus, pairs = tmp_path / "corpus.jsonl", tmp_path / "pairs.jsonl"
    write_rows(corpus, [{key: f"d{n}", text: f"text {n}"} for n in range(9)])
    write_rows(pairs, [{query: f"q {n}", positive: [f"d{n}"], negative: [f"d{n + 1}"]} for n in range(8)])
    settings = data_section(corpus=str(corpus), validation=str(pairs), columns=columns)
    train, _ = read_pairs(str(pairs), settings)
    assert told(train) == [(f"q {number}", f"text {number}") for number in range(8)]
    assert listed_texts(train.negatives, train, "q 3") == ["text 4"]


def test_ids_that_are_taken_for_texts_are_warned_of(tmp_path: Path) -> None:
    rows = [{"query": f"q {number}", "pos": [f"d{number}"]} for number in range(40)]
    path = str(tmp_path / "pairs.jsonl")
    write_rows(tmp_path / "pairs.jsonl", rows)
    write_rows(tmp_path / "texts.jsonl", [*rows, {"query": "q", "pos": ["d1 is a text"]}])
    with pytest.warns(UserWarning, match=r"pairs.jsonl: every positive is one word with a digit"):
        read_pairs(path, data_section())
    with pytest.warns(UserWarning, match=r"name the corpus that holds their texts$"):
        assert len(list(read_corpus(path))) == 40
    # Ids are what is wanted beside a store, and one text among them shows that they are none.
    read_pairs(path, data_section(), stored=True)
    read_pairs(str(tmp_path / "texts.jsonl"), data_section())


def test_documents_that_the_corpus_lacks_are_all_named_with_their_lines(tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    rows = [
        {"query": "a", "pos": ["d0", "gone"], "neg": ["lost"]},
        {"query": "b", "pos": ["gone"], "neg": ["x" * 500]},
    ]
    write_rows(tmp_path / "pairs.jsonl", rows)
    with pytest.raises(DataError) as fault:
        read_pairs(str(tmp_path / "pairs.jsonl"), data_section(corpus=str(tmp_path / "set")))
    said = str(fault.value)
    pairs = tmp_path / "pairs.jsonl"
    assert f"the corpus {tmp_path / 'set'}, it lacks 3 documents: " in said
    assert f'{pairs}:1: "gone"; {pairs}:1: "lost"; {pairs}:2: "xxx' in said
    assert "name the corpus that holds them (data.corpus)" in said
    assert len(said) < 500 + 3 * len(str(tmp_path))


def test_a_blank_document_that_no_example_names_does_no_harm(tmp_path: Path) -> None:
    write_beir(tmp_path / "set")
    with (tmp_path / "set" / "corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"_id": "blank", "title": "", "text": ""}) + "\n")
    with pytest.warns(UserWarning, match="blank documents, with neither title nor text, are left out"):
        train, _ = read_pairs(str(tmp_path / "set"), data_section(split="train", validation_fraction=0.5))
    assert "" not in train.texts.documents


@pytest.mark.parametrize("place", ["data", "validation"])
def test_a_language_grid_is_refused(data: Path, tmp_path: Path, place: str) -> None:
    row = {"premise": {"en": "a", "de": "b"}, "hypothesis": {"en": "c", "de": "d"}, "label": 0}
    grid = str(tmp_path / "grid.jsonl")
    write_rows(tmp_path / "grid.jsonl", [row])
    source, section = (str(data), {"validation": grid}) if place == "validation" else (grid, {})
    with pytest.raises(DataError, match=r"grid.jsonl must .*, got a language grid; .* adiabat\.evaluate"):
        read_pairs(source, data_section(**section))
