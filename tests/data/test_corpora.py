from functools import partial
from pathlib import Path

import datasets
import pytest

from adiabat.core.errors import ConfigError, DataError
from adiabat.data import corpora
from adiabat.data.corpora import read_corpus
from adiabat.data.records import Document, text_id
from tests.data.files import refusal, table, write
from tests.refused import refused, require_facts


def pairs(source: str | Path, **options: object) -> list[tuple[str, str]]:
    return [(document.doc_id, document.text) for document in read_corpus(source, **options)]


fault = partial(refusal, pairs)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_beir_folder_joins_title_and_text(tmp_path, ending):
    write(
        tmp_path / f"corpus.jsonl{ending}",
        {"_id": "1", "title": "Tides", "text": " rise. ", "metadata": {}},
        {"_id": 2, "title": "", "text": "no title"},
        {"_id": "3", "title": "no text", "text": ""},
        {"_id": "4", "text": "neither key"},
        {"_id": "5", "title": None, "text": "null"},
    )
    wanted = [("1", "Tides  rise."), ("2", "no title"), ("3", "no text"), ("4", "neither key"), ("5", "null")]
    assert pairs(tmp_path) == pairs(tmp_path / f"corpus.jsonl{ending}") == wanted


@pytest.mark.parametrize(
    "columns",
    [("doc_id", "text"), ("docid", "passage"), ("pid", "contents"), ("id", "body"), ("_id", "abstract")],
)
def test_corpora_of_every_form_read_the_same(tmp_path, columns):
    wanted = [("a", "one"), ("b", "שתיים"), ("c", "三")]
    rows = [dict(zip(columns, pair, strict=True)) for pair in wanted]
    sources = [table(tmp_path / f"c.{ending}", rows) for ending in ("jsonl", "csv", "tsv", "parquet")]
    datasets.Dataset.from_list(rows).save_to_disk(str(tmp_path / "saved"))
    for source in [*sources, tmp_path / "saved"]:
        assert pairs(source) == wanted


def test_columns_are_mapped(tmp_path):
    path = write(tmp_path / "c.jsonl", {"key": 1, "id": "no", "words": "yes", "head": "Oh"})
    assert pairs(path, columns={"doc_id": "key", "text": "words", "title": "head"}) == [("1", "Oh yes")]


def test_a_source_is_checked_at_the_call(tmp_path):
    with refused(DataError, "must exist, got no such file"):
        read_corpus(tmp_path / "none.jsonl")
    with refused(DataError, 'must have "doc_id", "text" ', 'got "a"'):
        read_corpus(write(tmp_path / "c.jsonl", {"a": 1}))
    write(tmp_path / "beir" / "corpus.jsonl", {"_id": "1", "text": "a"})
    with refused(ConfigError, "split must be left out for the corpus of the BEIR folder"):
        read_corpus(tmp_path / "beir", split="test")


BLANKS = [
    {"_id": "1", "title": "", "text": "x"},
    {"_id": "2", "title": "", "text": ""},
    {"_id": "3", "title": " ", "text": "\n"},
    {"_id": "4", "title": "only", "text": ""},
    {"_id": "5", "title": None, "text": None},
    {"_id": "6", "text": " "},
]


def test_blank_documents_are_left_out_and_counted_in_one_warning(tmp_path):
    path = write(tmp_path / "corpus.jsonl", *BLANKS)
    with pytest.warns(UserWarning, match="left out") as caught:
        assert pairs(tmp_path, blank="drop") == [("1", "x"), ("4", "only")]
    assert [str(warning.message) for warning in caught] == [
        f"{path}: blank documents, with neither title nor text, are left out: "
        f'4 of 6 documents: "2" ({path}:2); "3" ({path}:3); "5" ({path}:5); and 1 more'
    ]


def test_examples_and_grids_have_no_blank_documents_to_leave_out(tmp_path):
    path = write(tmp_path / "t.jsonl", {"query": "q", "pos": ["p"]})
    with refused(ConfigError, 'blank must be "error" for ', 'which holds examples, got "drop"'):
        read_corpus(path, blank="drop")
    path = write(tmp_path / "g.jsonl", {"label": 0, "premise": {"en": "p"}, "hypothesis": {"en": "h"}})
    with refused(ConfigError, "which holds a language grid"):
        read_corpus(path, blank="drop")


def test_a_row_with_an_id_and_a_text_is_a_document_whatever_else_it_has(tmp_path):
    faq = {"id": "1", "text": "the document", "question": "q?", "answer": "yes"}
    path = write(tmp_path / "faq.jsonl", faq)
    assert pairs(path) == [("1", "the document")]
    assert pairs(path, columns={"query": "question"}) == [(text_id("yes"), "yes")]


@pytest.mark.parametrize(
    "row", [{"id": 1, "query": "q", "passage": "p"}, {"query": "q", "pos": "p", "text": "other"}]
)
def test_a_row_without_an_id_or_a_text_of_its_own_stays_an_example(tmp_path, row):
    assert pairs(write(tmp_path / "t.jsonl", row)) == [(text_id("p"), "p")]


def test_equal_hashes_of_different_ids_are_no_duplicates(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "hash", lambda _: 7, raising=False)
    path = write(tmp_path / "c.jsonl", *({"id": f"d{n}", "text": "x"} for n in range(5)))
    assert len(pairs(path)) == 5
    path = write(tmp_path / "c.jsonl", *({"id": f"d{n % 4}", "text": "x"} for n in range(5)))
    require_facts(fault(path), f'{path}:5: document id must be unique, got "d0" again, first at {path}:1')


def test_a_triplet_file_gives_its_unique_texts_in_order(tmp_path):
    path = write(
        tmp_path / "t.jsonl.gz",
        {"query": "q1", "pos": ["b", "a"], "neg": ["c", "b"]},
        {"query": "q2", "pos": "a ", "neg": ["d"]},
        {"query": "q3", "pos": ["d"]},
    )
    # "a " is another text than "a": tuning looks texts up as they stand in the file.
    assert pairs(path) == [(text_id(text), text) for text in ("b", "a", "c", "a ", "d")]


def test_a_language_grid_gives_its_hypotheses(tmp_path):
    hypotheses = ({"fr": f"non {n}", "en": f"no {n}"} for n in range(2))
    rows = ({"label": "neutral", "premise": {"en": "p"}, "hypothesis": one} for one in hypotheses)
    path = write(tmp_path / "g.jsonl", *rows)
    assert pairs(path) == [("0:en", "no 0"), ("0:fr", "non 0"), ("1:en", "no 1"), ("1:fr", "non 1")]


@pytest.mark.parametrize(
    ("blank", "facts"),
    [
        (
            "error",
            [
                "8 faults: ",
                ':2: "text" must not be empty',
                ':3: "doc_id"',
                ':4: must have "doc_id", "text"',
                ':5: "text" must be a text, got a number',
                ":6 must be one JSON object",
                ':7: document id must be unique, got "a" again, first at {path}:1',
                ':9: document id must be unique, got "a" again, first at {path}:1',
                ':11: document id must be unique, got "7" again, first at {path}:10',
                "set data.blank = drop",
            ],
        ),
        ("drop", ["8 faults: ", ':12: document id must be unique, got "b" again, first at {path}:2']),
    ],
)
def test_every_fault_is_reported_with_its_line(tmp_path, blank, facts):
    path = write(
        tmp_path / "c.jsonl",
        {"doc_id": "a", "text": "x"},
        {"doc_id": "b", "text": " "},
        {"doc_id": "", "text": "x"},
        {"doc_id": "c", "title": "x"},
        {"doc_id": "d", "text": 3},
        [],
        {"doc_id": "a", "text": "again"},
        {"doc_id": "e", "text": "fine"},
        {"doc_id": "a", "text": "and again"},
        {"doc_id": 7, "text": "x"},
        {"doc_id": "7", "text": "y"},
        *([{"doc_id": "b", "text": "y"}] if blank == "drop" else []),
    )
    documents = read_corpus(path, blank=blank)
    assert next(documents) == Document("a", "x")
    with refused(DataError, *(fact.format(path=path) for fact in facts)):
        list(documents)
