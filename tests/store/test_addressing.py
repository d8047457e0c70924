"""From examples to rows of a store."""

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from adiabat.core.errors import DataError
from adiabat.core.ragged import Ragged
from adiabat.data.records import Document, Example, ExampleSet, text_id
from adiabat.store.addressing import AddressedSet, address, sharing_answers
from adiabat.store.vector_store import Store
from tests.fake_encoder import fake_store


def store_of(folder: Path, documents: dict[str, str]) -> Store:
    corpus = [Document(doc_id, text) for doc_id, text in documents.items()]
    return fake_store(folder / "store", corpus).store


@pytest.fixture
def by_id(tmp_path: Path) -> Store:
    return store_of(tmp_path, {"d0": "zero", "d1": "one", "d2": "two", "d3": "three"})


@pytest.fixture
def by_text(tmp_path: Path) -> Store:
    return store_of(tmp_path, {text_id(text): text for text in ("zero", "one", "two", "three")})


def examples_of(*examples: Example) -> ExampleSet:
    return ExampleSet("set", examples)


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[index].tolist() for index in range(len(ragged))]


def test_documents_are_found_by_id(by_id: Store) -> None:
    found = address(
        examples_of(Example("q0", "ask", ("d2", "d0"), ("d3", "d1"), (2, 1)), Example("q1", "more", ("d1",))),
        by_id,
    )
    assert (found.name, found.query_ids, found.queries, len(found)) == (
        "set",
        ["q0", "q1"],
        ["ask", "more"],
        2,
    )
    assert lists(found.positives) == [[2, 0], [1]]
    assert lists(found.grades) == [[2, 1], [1]]
    assert lists(found.negatives) == [[3, 1], []]
    assert found.notes == ()


def test_documents_of_a_store_with_ids_of_its_own_are_found_by_their_text(tmp_path: Path) -> None:
    store = store_of(tmp_path, {"d0": "zero", "d1": "one", "d2": "zero", "three": "two"})
    found = address(examples_of(Example("q0", "ask", ("zero",), ("two", "three", "one"))), store)
    # An id goes before a text, and of equal texts the first is taken.
    assert (lists(found.positives), lists(found.negatives)) == ([[0]], [[3, 1]])
    bare = fake_store(tmp_path / "bare", [Document("d0", "zero")], keep_texts=False).store
    # Hashes of texts stay where the texts do not.
    assert lists(address(examples_of(Example("q0", "ask", ("zero",))), bare).positives) == [[0]]


def test_white_space_around_a_text_makes_no_other_document(tmp_path: Path) -> None:
    store = store_of(tmp_path, {"d0": "zero", "d1": "one", "d2": "one "})
    found = address(examples_of(Example("q0", "ask", (" zero\n", "one "), ("one  ",))), store)
    assert (lists(found.positives), lists(found.negatives)) == ([[0, 2]], [[1]])


def test_ids_of_a_set_that_holds_no_texts_are_never_taken_for_texts(tmp_path: Path) -> None:
    store = store_of(tmp_path, {"d0": "Paris"})
    judged = ExampleSet("set", (Example("q0", "ask", ("Paris",)),), holds_texts=False)
    with pytest.raises(DataError, match="it lacks set: 'Paris'"):
        address(judged, store)


def test_ids_and_texts_may_be_mixed_and_an_id_goes_before_a_text(tmp_path: Path) -> None:
    store = store_of(
        tmp_path, {"one": "a document whose id is a word", text_id("one"): "one", text_id("two"): "two"}
    )
    found = address(examples_of(Example("q0", "ask", ("one",), ("two", text_id("one")))), store)
    assert lists(found.positives) == [[0]]
    assert lists(found.negatives) == [[2, 1]]


def test_missing_documents_are_counted_and_named_once_with_their_place(by_id: Store) -> None:
    examples = examples_of(
        Example("q0", "ask", ("d0", "gone"), ("lost",), location="train.jsonl:1"),
        Example("q1", "more", ("gone",), ("x" * 100,), location="train.jsonl:2"),
        Example("q2", "again", ("nowhere",)),
    )
    with pytest.raises(DataError) as caught:
        address(examples, by_id)
    message = str(caught.value)
    assert message.startswith(
        f"set: every document must be in the store {by_id.path}, it lacks "
        "4 documents: train.jsonl:1: 'gone'; "
    )
    assert "train.jsonl:1: 'lost'; train.jsonl:2: '" + "x" * 59 + "…'; set: 'nowhere'; embed them" in message


def test_missing_documents_are_dropped_with_a_note_and_queries_without_a_positive_with_them(
    by_id: Store,
) -> None:
    examples = examples_of(
        Example("q0", "kept", ("gone", "d1"), ("d2", "lost"), (3, 2)),
        Example("q1", "dropped", ("gone",), ("d0",)),
        Example("q2", "without negatives", ("d3",), ("lost",)),
    )
    found = address(examples, by_id, missing="drop")
    assert found.queries == ["kept", "without negatives"]
    assert (lists(found.positives), lists(found.grades), lists(found.negatives)) == (
        [[1], [3]],
        [[2], [1]],
        [[2], []],
    )
    assert found.notes == (
        "set: 2 documents missing from the store left out, and 1 query without a positive",
    )


def test_dropping_that_leaves_no_query_is_an_error(by_id: Store) -> None:
    with pytest.raises(
        DataError, match="at least one query must have .* got none; name the corpus that they were judged on$"
    ):
        address(examples_of(Example("q0", "ask", ("gone",), ("d0",))), by_id, missing="drop")


def test_a_document_listed_twice_counts_once_with_its_highest_grade(by_text: Store) -> None:
    positives = ("one", "two", text_id("one"), text_id("two"))
    found = address(
        examples_of(Example("q0", "ask", positives, ("zero", text_id("zero")), (1, 2, 3, 1))), by_text
    )
    assert (lists(found.positives), lists(found.grades), lists(found.negatives)) == (
        [[1, 2]],
        [[3, 2]],
        [[0]],
    )


def test_some_of_the_queries_keep_what_belongs_to_them(by_id: Store) -> None:
    whole = address(
        examples_of(
            *(Example(f"q{n}", f"ask {n}", (f"d{n}",), (f"d{(n + 1) % 4}",), (n + 1,)) for n in range(4))
        ),
        by_id,
    )
    part: AddressedSet = whole.take(np.array([3, 1]))
    assert (part.query_ids, part.queries) == (["q3", "q1"], ["ask 3", "ask 1"])
    assert (lists(part.positives), lists(part.grades), lists(part.negatives)) == (
        [[3], [1]],
        [[4], [2]],
        [[0], [2]],
    )


def test_packed_lists_come_back_as_they_were() -> None:
    packed = Ragged.of([[3, 1], [], np.array([7])])
    assert (lists(packed), packed.lengths.tolist(), packed.offsets.tolist()) == (
        [[3, 1], [], [7]],
        [2, 0, 1],
        [0, 2, 2, 3],
    )
    assert lists(packed.take(np.array([2, 2, 0]))) == [[7], [7], [3, 1]]
    assert len(Ragged.of([])) == 0


PAIRS = (
    Example("q0", "ask", ("d0",), ("d1", "d3"), (1,)),
    Example("q1", "other", ("d3",), ("d0",), (1,)),
    Example("q2", "ask", ("d1", "d0"), ("d2", "d3"), (1, 2)),
)


def test_entries_of_one_question_know_each_other_s_positives_and_list_none_of_them(by_id: Store) -> None:
    found = address(examples_of(*PAIRS), by_id)
    assert (lists(found.positives), lists(found.known)) == ([[0], [3], [1, 0]], [[0, 1], [3], [0, 1]])
    assert lists(found.negatives) == [[3], [0], [2, 3]]
    assert found.notes == (
        "set: 1 listed negative left out, because another entry of the same question has it as a positive",
    )
    part = found.take(np.array([2, 1]))
    assert (lists(part.positives), lists(part.known)) == ([[1, 0], [3]], [[0, 1], [3]])


def test_where_no_question_is_asked_twice_its_positives_are_what_is_known(by_id: Store) -> None:
    found = address(examples_of(*PAIRS[:2]), by_id)
    assert found.known is found.positives
    assert (lists(found.negatives), found.notes) == ([[1, 3], [0]], ())


def test_entries_of_one_question_are_merged_where_that_is_wanted(by_id: Store) -> None:
    found = address(examples_of(*PAIRS), by_id, merge_equal=True)
    assert (found.query_ids, found.queries) == (["q0", "q1"], ["ask", "other"])
    assert (lists(found.positives), lists(found.grades)) == ([[0, 1], [3]], [[2, 1], [1]])
    assert (lists(found.negatives), lists(found.known)) == ([[3, 2], [0]], lists(found.positives))
    assert found.notes == ("set: 2 rows share their question with another; merged to 1 query",)
    assert address(examples_of(*PAIRS[:2]), by_id, merge_equal=True).notes == ()


def test_a_missing_document_of_a_merged_question_is_named_with_its_own_line(by_id: Store) -> None:
    examples = examples_of(
        Example("q0", "ask", ("d0",), location="set:1"), Example("q1", "ask", ("gone",), location="set:2")
    )
    with pytest.raises(DataError, match=r"it lacks set:2: 'gone'"):
        address(examples, by_id, merge_equal=True)


def test_sets_over_one_store_share_their_answers(by_id: Store) -> None:
    train, validation = (address(examples_of(example), by_id) for example in (PAIRS[0], PAIRS[2]))
    one, other = sharing_answers(train, validation)
    assert (lists(one.known), lists(other.known)) == ([[0, 1]], [[0, 1]])
    assert (lists(one.negatives), lists(other.negatives)) == ([[3]], [[2, 3]])
    assert sharing_answers(train) == (train,)


def test_a_negative_equal_to_a_positive_is_taken_out(by_text: Store) -> None:
    found = address(
        examples_of(Example("q0", "ask", ("one", "two"), (text_id("two"), "zero", "one"))), by_text
    )
    assert lists(found.positives) == [[1, 2]]
    assert lists(found.negatives) == [[0]]


def test_ids_that_differ_in_unicode_form_only_are_named_and_found_on_request(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "café-über") for form in ("NFC", "NFD"))
    assert composed != decomposed
    for stored, asked in ((composed, decomposed), (decomposed, composed)):
        folder = tmp_path / str(len(stored))
        folder.mkdir()
        store = store_of(folder, {stored: "a text", "b": "another"})
        examples = ExampleSet("set", (Example("q", "a question", (asked,), ("b", asked)),), holds_texts=False)
        with pytest.raises(
            DataError, match=r'1 of them differ in Unicode form alone \(NFC, NFD\): set data.ids = "nfc"'
        ):
            address(examples, store)
        found = address(examples, store, ids="nfc")
        # A negative that is also a positive is dropped, whatever its form.
        assert (found.positives[0].tolist(), found.negatives[0].tolist()) == ([0], [1])
