"""A corpus written once, and its place in a store."""

from pathlib import Path

import pytest

from adiabat.core.errors import DataError, StoreError
from adiabat.data.records import Document
from adiabat.mining.mining_corpus import CORPUS_FILE, Documents, all_texts, rows_in_store, written_corpus
from adiabat.store.build import build_store
from adiabat.store.vector_store import Store
from tests.fake_encoder import FakeEncoder

DOCUMENTS = [Document(f"d{number}", f"text {number}") for number in range(9)]


def store_of(documents: list[Document], path: Path) -> Store:
    return build_store(FakeEncoder(), lambda: iter(documents), path, source="corpus", encoder_name="fake").store


def test_a_written_corpus_answers_as_a_store_does(tmp_path: Path) -> None:
    corpus, store = written_corpus(lambda: iter(DOCUMENTS), tmp_path, source="corpus", replace=False), store_of(DOCUMENTS, tmp_path / "s")
    assert isinstance(corpus, Documents)
    assert isinstance(store, Documents)
    assert corpus.count == store.count == 9
    assert corpus.rows(["d3", "x"]).tolist() == store.rows(["d3", "x"]).tolist() == [3, -1]
    assert corpus.doc_ids([8, 0]) == store.doc_ids([8, 0])
    assert corpus.texts([2, 2]) == store.texts([2, 2])
    assert list(all_texts(corpus)) == list(all_texts(store)) == [document.text for document in DOCUMENTS]


def test_a_corpus_is_written_once_and_another_is_refused_or_replaced(tmp_path: Path) -> None:
    first = written_corpus(lambda: iter(DOCUMENTS), tmp_path, source="corpus", replace=False)
    changed = (tmp_path / "texts.arrow").stat().st_mtime_ns
    assert written_corpus(lambda: iter(DOCUMENTS), tmp_path, source="corpus", replace=False).digest == first.digest
    assert (tmp_path / "texts.arrow").stat().st_mtime_ns == changed
    with pytest.raises(DataError, match="must hold the corpus new as it is now, it holds another"):
        written_corpus(lambda: iter(DOCUMENTS[:4]), tmp_path, source="new", replace=False)
    assert written_corpus(lambda: iter(DOCUMENTS[:4]), tmp_path, source="new", replace=True).count == 4


def test_a_faulty_or_empty_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='"d0" 2 times'):
        written_corpus(lambda: iter([*DOCUMENTS, DOCUMENTS[0]]), tmp_path, source="corpus", replace=False)
    with pytest.raises(DataError, match="corpus must hold at least one document, got none"):
        written_corpus(lambda: iter(()), tmp_path, source="corpus", replace=False)
    assert not (tmp_path / CORPUS_FILE).exists()


def test_rows_in_a_store_of_the_same_documents_in_any_order(tmp_path: Path) -> None:
    corpus = written_corpus(lambda: iter(DOCUMENTS), tmp_path, source="corpus", replace=False)
    store = store_of(DOCUMENTS[::-1], tmp_path / "s")
    assert rows_in_store(corpus, store, source="corpus").tolist() == list(range(8, -1, -1))
    assert rows_in_store(store, store, source="corpus").tolist() == list(range(9))
    with pytest.raises(DataError, match='every document of corpus, it lacks 2 documents: "d7"; "d8"'):
        rows_in_store(corpus, store_of(DOCUMENTS[:7], tmp_path / "few"), source="corpus")
    with pytest.raises(DataError, match="must hold the documents of corpus alone, got 10 and 9"):
        rows_in_store(corpus, store_of([*DOCUMENTS, Document("more", "more")], tmp_path / "more"), source="corpus")
