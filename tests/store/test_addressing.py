"""From examples to rows of a store."""

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest

from adiabat.core.errors import DataError, StoreError
from adiabat.data.records import Document, Example, ExampleSet, text_id
from adiabat.store.addressing import AddressedSet, address, require_inputs, sharing_answers
from adiabat.store.vector_store import Store
from tests.fake_encoder import fake_store
from tests.refused import one_line, refused
from tests.tiny import lists

WORDS = ("zero", "one", "two", "three")
BY_ID = {f"d{number}": word for number, word in enumerate(WORDS)}
BY_TEXT = {text_id(word): word for word in WORDS}


def store_of(folder: Path, documents: dict[str, str]) -> Store:
    corpus = [Document(doc_id, text) for doc_id, text in documents.items()]
    return fake_store(folder / "store", corpus).store


@pytest.fixture
def by_id(tmp_path: Path) -> Store:
    return store_of(tmp_path, BY_ID)


def examples_of(*examples: Example, holds_texts: bool | None = None) -> ExampleSet:
    return ExampleSet("set", examples, holds_texts=holds_texts)


Rows = list[list[int]]


def rows_of(found: AddressedSet) -> tuple[Rows, Rows, Rows]:
    """Positives, their grades, and negatives."""
    return lists(found.positives), lists(found.grades), lists(found.negatives)


def test_documents_are_found_by_id(by_id: Store) -> None:
    examples = Example("q0", "ask", ("d2", "d0"), ("d3", "d1"), (2, 1)), Example("q1", "more", ("d1",))
    found = address(examples_of(*examples), by_id)
    assert (found.name, len(found), found.notes) == ("set", 2, ())
    assert (found.query_ids, found.queries) == (["q0", "q1"], ["ask", "more"])
    assert rows_of(found) == ([[2, 0], [1]], [[2, 1], [1]], [[3, 1], []])


@pytest.mark.parametrize(
    ("documents", "positives", "negatives", "rows"),
    [
        pytest.param(
            {"d0": "zero", "d1": "one", "d2": "zero", "three": "two"},
            ("zero",),
            ("two", "three", "one"),
            ([0], [3, 1]),
            id="an id goes before a text, and of equal texts the first is taken",
        ),
        pytest.param(
            {"one": "a document whose id is a word", text_id("one"): "one", text_id("two"): "two"},
            ("one",),
            ("two", text_id("one")),
            ([0], [2, 1]),
            id="ids and texts are mixed",
        ),
        pytest.param(
            {"d0": "zero", "d1": "one", "d2": "one "},
            (" zero\n", "one "),
            ("one  ",),
            ([0, 2], [1]),
            id="white space around a text",
        ),
        pytest.param(
            BY_TEXT,
            ("one", "two"),
            (text_id("two"), "zero", "one"),
            ([1, 2], [0]),
            id="negatives that are positives are taken out",
        ),
    ],
)
def test_documents_are_found_by_their_ids_and_by_their_texts(
    tmp_path: Path,
    documents: dict[str, str],
    positives: tuple[str, ...],
    negatives: tuple[str, ...],
    rows: tuple[list[int], list[int]],
) -> None:
    found = address(examples_of(Example("q0", "ask", positives, negatives)), store_of(tmp_path, documents))
    assert (lists(found.positives), lists(found.negatives)) == ([rows[0]], [rows[1]])


def test_hashes_of_texts_stay_where_the_texts_do_not(tmp_path: Path) -> None:
    bare = fake_store(tmp_path / "bare", [Document("d0", "zero")], keep_texts=False).store
    assert lists(address(examples_of(Example("q0", "ask", ("zero",))), bare).positives) == [[0]]


def test_missing_documents_are_counted_and_named_once_with_their_place(by_id: Store) -> None:
    examples = examples_of(
        Example("q0", "ask", ("d0", "gone"), ("lost",), location="train.jsonl:1"),
        Example("q1", "more", ("gone",), ("x" * 100,), location="train.jsonl:2"),
        Example("q2", "again", ("nowhere",)),
    )
    long = f"train.jsonl:2: '{'x' * 59}…'"
    named = f"4 documents: train.jsonl:1: 'gone'; train.jsonl:1: 'lost'; {long}; set: 'nowhere'; "
    with refused(DataError, "set: ", str(by_id.path), named):
        address(examples, by_id)
    with refused(DataError, "at least one query", "none"):
        address(examples_of(Example("q0", "ask", ("gone",), ("d0",))), by_id, missing="drop")
    # The question of both is one, and the second lacks its document.
    equal = Example("q0", "ask", ("d0",), location="set:1"), Example("q1", "ask", ("gone",), location="set:2")
    with refused(DataError, "lacks set:2: 'gone'"):
        address(examples_of(*equal), by_id, merge_equal=True)
    # Ids of a set that holds no texts are never taken for texts.
    with refused(DataError, "lacks set: 'zero'"):
        address(examples_of(Example("q0", "ask", ("zero",)), holds_texts=False), by_id)


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
    assert rows_of(found) == ([[1], [3]], [[2], [1]], [[2], []])
    assert found.notes == (
        "set: 2 documents missing from the store left out, and 1 query without a positive",
    )


def test_a_document_listed_twice_counts_once_with_its_highest_grade(tmp_path: Path) -> None:
    positives, negatives = ("one", "two", text_id("one"), text_id("two")), ("zero", text_id("zero"))
    examples = examples_of(Example("q0", "ask", positives, negatives, (1, 2, 3, 1)))
    assert rows_of(address(examples, store_of(tmp_path, BY_TEXT))) == ([[1, 2]], [[3, 2]], [[0]])


def test_some_of_the_queries_keep_what_belongs_to_them(by_id: Store) -> None:
    examples = (Example(f"q{n}", f"ask {n}", (f"d{n}",), (f"d{(n + 1) % 4}",), (n + 1,)) for n in range(4))
    part = address(examples_of(*examples), by_id).take(np.array([3, 1]))
    assert (part.query_ids, part.queries) == (["q3", "q1"], ["ask 3", "ask 1"])
    assert rows_of(part) == ([[3], [1]], [[4], [2]], [[0], [2]])


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
    assert rows_of(found) == ([[0, 1], [3]], [[2, 1], [1]], [[3, 2], [0]])
    assert lists(found.known) == lists(found.positives)
    assert found.notes == ("set: 2 rows share their question with another; merged to 1 query",)
    assert address(examples_of(*PAIRS[:2]), by_id, merge_equal=True).notes == ()


def test_sets_over_one_store_share_their_answers(by_id: Store) -> None:
    train, validation = (address(examples_of(example), by_id) for example in (PAIRS[0], PAIRS[2]))
    one, other = sharing_answers(train, validation)
    assert (lists(one.known), lists(other.known)) == ([[0, 1]], [[0, 1]])
    assert (lists(one.negatives), lists(other.negatives)) == ([[3]], [[2, 3]])
    assert sharing_answers(train) == (train,)


def test_ids_that_differ_in_unicode_form_only_are_named_and_found_on_request(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "café-über") for form in ("NFC", "NFD"))
    assert composed != decomposed
    for stored, asked in ((composed, decomposed), (decomposed, composed)):
        folder = tmp_path / str(len(stored))
        folder.mkdir()
        store = store_of(folder, {stored: "a text", "b": "another"})
        examples = examples_of(Example("q", "a question", (asked,), ("b", asked)), holds_texts=False)
        with refused(DataError, "1 of them", "NFC, NFD", 'data.ids = "nfc"'):
            address(examples, store)
        found = address(examples, store, ids="nfc")
        # A negative that is also a positive is dropped, whatever its form.
        assert (lists(found.positives), lists(found.negatives)) == ([[0]], [[1]])


def test_an_id_of_the_first_row_is_its_own_where_its_other_form_is_known_too(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "café") for form in ("NFC", "NFD"))
    store = store_of(tmp_path, {decomposed: "a text", composed: "another"})
    examples = examples_of(Example("q", "a question", (decomposed,), (composed,)), holds_texts=False)
    found = address(examples, store, ids="nfc")
    assert (lists(found.positives), lists(found.negatives)) == ([[0]], [[1]])


def test_what_is_there_passes_unread(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text("no JSON")
    (tmp_path / "beir" / "qrels").mkdir(parents=True)
    for name in ("queries", "corpus"):
        (tmp_path / "beir" / f"{name}.jsonl").touch()
    pairs, folder = str(tmp_path / "pairs.jsonl"), str(tmp_path / "beir")
    require_inputs([pairs, folder, "hf:some/set"], corpora=[pairs, folder, "hf:some/corpus"])


def test_every_fault_is_told_once_as_its_reader_tells_it(tmp_path: Path) -> None:
    gone, notes, store = (str(tmp_path / name) for name in ("gone.jsonl", "notes.txt", "s"))
    Path(notes).touch()
    with one_line(DataError, "gone.jsonl must exist", "no such file", "check the path"):
        require_inputs([], corpora=[gone])
    with one_line(StoreError, f"{store} must be a store", "no such directory"):
        require_inputs([], stores=[store])
    told = (f"{store} must be a store", f"{gone} must exist", f"{notes} must end in")
    with one_line(DataError, "3 faults: ", *told):
        require_inputs([gone, gone, notes], stores=[store])
