"""Errors by difficulty: one pass over all against a loop over each, ties, repetitions, and examples that are no ladder."""

from collections.abc import Callable

import numpy as np
import pytest

from adiabat.data.records import Example, ExampleSet
from adiabat.errors import DataError, StoreError
from adiabat.measure.difficulty import against_hardest, changes_by_difficulty, errors_by_difficulty
from adiabat.model.towers import DualEncoder
from adiabat.store.embeddings import Store
from adiabat.watch import Watch
from tests.measure.brute_force import all_scores
from tests.tiny import tiny_dual

TEXTS = [f"document {number} on {'abcdefg'[number % 7] * 4}" for number in range(12)]
TEXTS[7] = TEXTS[3]
# The positive of the third query is one text with document 7: a tie, which is an error.
LADDERS = [(0, (1, 2, 3)), (5, (4, 11, 11)), (3, (7, 6, 8)), (9, (10, 0, 7))]


@pytest.fixture(scope="module")
def model() -> DualEncoder:
    return tiny_dual(seed=1)


@pytest.fixture(scope="module")
def store(model: DualEncoder, make_store: Callable[..., Store]) -> Store:
    return make_store(model, TEXTS)


def ladder(positive: int, negatives: tuple[int, ...], number: int = 0) -> Example:
    return Example(
        f"q{number}", f"what is {'abcd'[number]}", (f"d{positive}",), tuple(f"d{n}" for n in negatives), where=f"test:{number + 1}"
    )


EXAMPLES = ExampleSet("papers", [ladder(positive, negatives, number) for number, (positive, negatives) in enumerate(LADDERS)])


def test_errors_of_one_pass_are_those_of_every_pair_on_its_own(model: DualEncoder, store: Store) -> None:
    scores = all_scores(model, store, [one.query for one in EXAMPLES.examples])
    expected = [[scores[row][far] >= scores[row][near] for far in negatives] for row, (near, negatives) in enumerate(LADDERS)]
    found = errors_by_difficulty(model, store, EXAMPLES)
    assert found.tolist() == expected
    assert found[2, 0]
    assert found[1, 1] == found[1, 2]
    assert 0 < found.sum() < found.size


def test_the_number_of_queries_at_a_time_changes_nothing(model: DualEncoder, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = errors_by_difficulty(model, store, EXAMPLES).tolist()
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr("adiabat.measure.difficulty.QUERIES_AT_A_TIME", 3)
    watch = Watch(progress=lambda label, done, total: seen.append((done, total)))
    assert errors_by_difficulty(model, store, EXAMPLES, watch=watch).tolist() == expected
    assert seen == [(3, 4), (4, 4)]


def test_changes_worked_by_hand() -> None:
    errors = np.array([[1, 0], [1, 0], [1, 0], [0, 0]], dtype=bool)
    before = np.array([[1, 1], [1, 0], [1, 0], [1, 0]], dtype=bool)
    hardest, easiest = changes_by_difficulty(errors, before, resamples=200)
    assert (hardest.measure, hardest.after, hardest.before, hardest.improvement) == ("PND, difficulty 1", 0.75, 1.0, 25.0)
    assert (easiest.measure, easiest.after, easiest.before, easiest.improvement) == ("PND, difficulty 2", 0.0, 0.25, 100.0)
    assert hardest.difference == -0.25
    assert hardest.verdict == "no evidence"


def test_without_a_baseline_there_is_the_value_with_its_interval_alone() -> None:
    errors = np.random.default_rng(0).random((300, 3)) < [0.6, 0.3, 0.1]
    changes = changes_by_difficulty(errors, resamples=500)
    assert [change.after for change in changes] == pytest.approx(errors.mean(axis=0).tolist())
    assert all(change.before is None and change.after_interval[0] < change.after < change.after_interval[1] for change in changes)


def test_against_the_hardest_an_easier_difficulty_is_better_and_the_hardest_is_itself() -> None:
    errors = np.random.default_rng(0).random((300, 3)) < [0.6, 0.3, 0.1]
    changes = changes_by_difficulty(errors, against_hardest(errors), resamples=500)
    assert [change.verdict for change in changes] == ["no evidence", "better", "better"]
    assert list(changes[0].difference_interval or ()) == [0, 0]
    assert {change.before for change in changes} == {changes[0].after}


def test_examples_that_are_no_ladder_are_told_all_at_once(model: DualEncoder, store: Store) -> None:
    two = Example("q", "?", ("d0", "d1"), ("d2", "d3", "d4"), where="test:2")
    data = ExampleSet("papers", [EXAMPLES.examples[0], two, ladder(0, (1,), 2)])
    with pytest.raises(DataError) as caught:
        errors_by_difficulty(model, store, data)
    assert str(caught.value) == (
        "2 faults: test:2: an example must have one positive, got 2; test:3: an example must have 3 negatives as the first has, got 1; "
        "name a file such as test.jsonl.gz of arxiv-negatives"
    )
    with pytest.raises(DataError, match=r"^papers: negatives must be listed from hard to easy, got none in the first example; name"):
        errors_by_difficulty(model, store, ExampleSet("papers", [ladder(0, ())]))


def test_documents_that_are_not_in_the_store_are_named(model: DualEncoder, store: Store) -> None:
    with pytest.raises(DataError, match=r"papers: every document must be in the store .*, it lacks 2 documents: 'd77'; 'd78'; embed them$"):
        errors_by_difficulty(model, store, ExampleSet("papers", [ladder(0, (77, 78, 1))]))


def test_a_store_of_another_document_tower_is_refused(store: Store) -> None:
    with pytest.raises(StoreError):
        errors_by_difficulty(tiny_dual(seed=5), store, EXAMPLES)
