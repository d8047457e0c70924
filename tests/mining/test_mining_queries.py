"""What is asked, and faults of what is given: missing ids, ids in other capitals, negatives that are
positives.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from adiabat.config.shared import DataSection
from adiabat.core.errors import DataError, StoreError
from adiabat.core.text import NO_BREAK
from adiabat.data.records import Document
from adiabat.mining.mine_checks import CORPUS_FILE
from adiabat.mining.mining_queries import (
    Documents,
    MiningQueries,
    WrittenCorpus,
    all_texts,
    document_rows,
    queries_in_corpus,
    read_queries,
    rows_in_store,
    written_corpus,
)
from tests.commands import lines
from tests.mining.world import store_of
from tests.refused import refused


@pytest.fixture
def corpus(tmp_path: Path) -> WrittenCorpus:
    folder = tmp_path / "corpus"
    folder.mkdir()
    documents = [Document(name, f"text of {name}") for name in ("D1", "D2", "d3", "D4")]
    return written_corpus(lambda: iter(documents), folder, source="c.jsonl", replace=False)


def asked(
    folder: Path,
    rows: Sequence[Mapping[str, object]],
    corpus: WrittenCorpus,
    *,
    listed: bool = True,
    **settings: str,
) -> MiningQueries:
    lines(folder / "data.jsonl", rows)
    section = DataSection.model_validate(settings)
    read = read_queries(str(folder / "data.jsonl"), section)
    return queries_in_corpus(read, corpus, section, corpus_name="c.jsonl", keep_listed=listed)


def test_ids_and_texts_are_told_apart_by_the_corpus(tmp_path: Path, corpus: WrittenCorpus) -> None:
    by_id = asked(tmp_path, [{"query": "a", "pos": ["D1", "D2"]}, {"query": "b", "pos": "d3"}], corpus)
    assert by_id.holds_ids
    assert document_rows(["d3", "D1"], corpus, holds_ids=True).tolist() == [2, 0]
    by_text = asked(tmp_path, [{"query": "a", "pos": "an answer"}], corpus)
    assert not by_text.holds_ids
    assert document_rows(["text of D1"], corpus, holds_ids=False).tolist() == [-1]
    assert not asked(tmp_path, [{"query": "a", "pos": ["d1", "an answer", "another"]}], corpus).holds_ids
    # A negative that is dropped need not be in the corpus.
    queries = asked(tmp_path, [{"query": "a", "pos": "D1", "neg": ["nowhere"]}], corpus, listed=False)
    assert queries.examples[0].negatives == ()


def test_missing_documents_may_be_left_out_with_their_queries(tmp_path: Path, corpus: WrittenCorpus) -> None:
    rows: list[dict[str, object]] = [
        {"query": "a", "pos": ["D1", "x"], "neg": ["y", "D2"]},
        {"query": "b", "pos": "x"},
    ]
    questions = asked(tmp_path, rows, corpus, missing="drop")
    assert [(one.positives, one.negatives) for one in questions.examples] == [(("D1",), ("D2",))]
    told = "data: 2 documents missing from the corpus left out, and 1 query without a positive"
    assert [note.replace(NO_BREAK, " ") for note in questions.notes] == [told]


@pytest.mark.parametrize("listed", [True, False])
def test_a_negative_that_equals_a_positive_is_said_and_left_out(
    tmp_path: Path, corpus: WrittenCorpus, listed: bool
) -> None:
    rows: list[dict[str, object]] = [
        {"query": "a", "pos": "D1", "neg": ["D2", "D1"]},
        {"query": "b", "pos": "d3", "neg": "D4"},
        {"query": "b", "pos": "D4"},
    ]
    questions = asked(tmp_path, rows, corpus, listed=listed)
    assert [one.negatives for one in questions.examples] == [("D2",) if listed else (), (), ()]
    (note,) = questions.notes
    assert "listed negatives that equal a positive of their query left out: 2 of them" in note
    assert "data.jsonl:1" in note
    assert "data.jsonl:2" in note


def test_equal_queries_know_each_others_answers(tmp_path: Path, corpus: WrittenCorpus) -> None:
    rows: list[dict[str, object]] = [
        {"query": "a", "pos": "D1"},
        {"query": "b", "pos": "D4"},
        {"query": "a", "pos": ["d3", "D1"]},
        {"query": "A", "pos": "D2"},
    ]
    questions = asked(tmp_path, rows, corpus)
    known = [questions.known_answers(one) for one in questions.examples]
    assert known == [("D1", "d3"), ("D4",), ("D1", "d3"), ("D2",)]


def test_the_digest_sees_every_part_and_every_border(tmp_path: Path, corpus: WrittenCorpus) -> None:
    rows = [
        ("1", "a", ["D1", "D2"], ["d3"]),
        ("2", "a", ["D1", "D2"], ["d3"]),
        ("1", "b", ["D1", "D2"], ["d3"]),
        ("1", "a", ["D1"], ["D2", "d3"]),
        ("1", "a", ["D2", "D1"], ["d3"]),
    ]
    named = [dict(zip(("query_id", "query", "pos", "neg"), row, strict=True)) for row in rows]
    digests = [asked(tmp_path, [row], corpus).digest() for row in named]
    assert len(set(digests)) == len(rows)
    assert asked(tmp_path, [named[0]], corpus).digest() == digests[0]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        (
            [("a", "D1", []), ("b", ["x", "D2"], []), ("c", "D4", ["y", "x"])],
            ["c.jsonl, it lacks 2 documents", "data.jsonl:2: 'x'", "data.jsonl:3: 'y'", "name the corpus"],
        ),
        (
            [("a", "D1", []), ("b", "d2", []), ("c", "D3", [])],
            ["data.jsonl:2: 'd2'", "data.jsonl:3: 'D3'", "case-sensitive"],
        ),
        # Ids that all differ in case do not pass for texts.
        ([("a", ["d1", "d2"], []), ("b", "x", [])], ["data.jsonl:1: 'd1'", "case-sensitive"]),
        ([("a", ["x", "D1"], []), ("a", "x", [])], ["data.jsonl:1: 'x'"]),
    ],
)
def test_missing_documents_are_named_with_their_location(
    tmp_path: Path, corpus: WrittenCorpus, rows: list[tuple[str, object, list[str]]], facts: list[str]
) -> None:
    given = [{"query": query, "pos": pos, "neg": neg} for query, pos, neg in rows]
    for stated in ({}, {"missing": "error"}):
        with refused(DataError, *facts):
            asked(tmp_path, given, corpus, **stated)


def test_data_without_usable_queries_are_refused(tmp_path: Path, corpus: WrittenCorpus) -> None:
    folder, section = tmp_path / "beir", DataSection(missing="drop")
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "question"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tgone\t1\n")
    read = read_queries(str(folder), section)
    with pytest.raises(DataError, match=r"at least one query whose positives the corpus c\.jsonl has"):
        queries_in_corpus(read, corpus, section, corpus_name="c.jsonl", keep_listed=False)
    (tmp_path / "grid.jsonl").write_text('{"premise": {"en": "a"}, "hypothesis": {"en": "c"}, "label": 0}\n')
    with pytest.raises(DataError, match="must hold queries with positives, got a language grid"):
        read_queries(str(tmp_path / "grid.jsonl"), section)


DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(9)]


def corpus_of(
    documents: Sequence[Document], folder: Path, *, source: str = "corpus", replace: bool = False
) -> WrittenCorpus:
    return written_corpus(lambda: iter(documents), folder, source=source, replace=replace)


def test_a_written_corpus_answers_as_a_store_does(tmp_path: Path) -> None:
    corpus, store = corpus_of(DOCUMENTS, tmp_path), store_of(DOCUMENTS, tmp_path / "s")
    assert isinstance(corpus, Documents)
    assert isinstance(store, Documents)
    assert corpus.count == store.count == 9
    assert corpus.rows(["d3", "x"]).tolist() == store.rows(["d3", "x"]).tolist() == [3, -1]
    assert corpus.doc_ids([8, 0]) == store.doc_ids([8, 0])
    assert corpus.texts([2, 2]) == store.texts([2, 2])
    assert list(all_texts(corpus)) == list(all_texts(store)) == [document.text for document in DOCUMENTS]


def test_a_corpus_is_written_once_and_another_is_refused_or_replaced(tmp_path: Path) -> None:
    first = corpus_of(DOCUMENTS, tmp_path)
    changed = (tmp_path / "texts.arrow").stat().st_mtime_ns
    assert corpus_of(DOCUMENTS, tmp_path).digest == first.digest
    assert (tmp_path / "texts.arrow").stat().st_mtime_ns == changed
    with pytest.raises(DataError, match="must hold the current corpus new, it holds another"):
        corpus_of(DOCUMENTS[:4], tmp_path, source="new")
    assert corpus_of(DOCUMENTS[:4], tmp_path, replace=True).count == 4


def test_a_faulty_or_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='"d0" 2 times'):
        corpus_of([*DOCUMENTS, DOCUMENTS[0]], tmp_path)
    with pytest.raises(DataError, match="corpus must hold at least one document, got none"):
        corpus_of((), tmp_path)
    assert not (tmp_path / CORPUS_FILE).exists()


def test_rows_in_a_store_of_the_same_documents_in_any_order(tmp_path: Path) -> None:
    corpus, store = corpus_of(DOCUMENTS, tmp_path), store_of(DOCUMENTS[::-1], tmp_path / "s")
    assert rows_in_store(corpus, store, source="corpus").tolist() == list(range(8, -1, -1))
    assert rows_in_store(store, store, source="corpus").tolist() == list(range(9))
    few, more = (
        store_of(documents, tmp_path / name)
        for name, documents in (("few", DOCUMENTS[:7]), ("more", [*DOCUMENTS, Document("more", "more")]))
    )
    with pytest.raises(DataError, match='every document of corpus, it lacks 2 documents: "d7"; "d8"'):
        rows_in_store(corpus, few, source="corpus")
    with pytest.raises(DataError, match="must hold the documents of corpus alone, got 10 and 9"):
        rows_in_store(corpus, more, source="corpus")
