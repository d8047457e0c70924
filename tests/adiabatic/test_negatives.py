"""Where negatives come from, against plain loops over the whole store."""

import math
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adiabat.adiabatic.negatives import (
    listed_negatives,
    mined_negatives_note,
    negative_chooser,
    short_lists_note,
)
from adiabat.core.errors import ConfigError, DataError, JobError
from adiabat.core.ragged import Ragged
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store
from tests.adiabatic.problem import addressed, random_vectors, section, store_of

NO_QUERIES = torch.empty(0, 16)
SOFTMAX = {"loss": "in_batch_softmax"}


def lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[index].tolist() for index in range(len(ragged))]


def chosen(
    examples: AddressedSet, store: Store, *, step: int = 0, seed: int = 0, **settings: Any
) -> list[list[int]]:
    choose = negative_chooser(section(**settings), examples, store, seed=seed)
    return lists(choose(np.arange(len(examples)), step, NO_QUERIES))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return store_of(tmp_path, random_vectors(6))


def test_difficulty_says_which_of_the_listed_negatives_comes_first() -> None:
    def found(rows: list[int], examples: AddressedSet, **settings: Any) -> list[list[int]]:
        return lists(listed_negatives(examples, np.array(rows), section(**settings)))

    examples = addressed([[0], [1]], [[5, 6, 7], [8, 9, 4]])
    assert found([1, 0], examples, difficulty=2) == [[9], [6]]
    assert found([0], examples, difficulty=3, per_query=2) == [[7, 7]]
    # A validation list may be shorter, even empty.
    assert found([0], addressed([[0]], [[5, 6]]), difficulty=9) == [[6]]
    assert found([0], addressed([[0]], [[]]), difficulty=9, **SOFTMAX) == [[]]


def short_lists(queries: str, per_query: int, difficulty: int = 1, told: str = "theirs are repeated") -> str:
    """The note that lists are short."""
    return (
        f"{queries} queries list fewer than tune.negatives.per_query = {per_query} negatives from "
        f"tune.negatives.difficulty = {difficulty} on: {told}"
    )


def test_queries_that_list_too_few_for_the_difficulty_are_refused(store: Store) -> None:
    examples = addressed([[0], [1]], [[5, 6, 7], [8]], name="papers")
    message = r"papers: .* at least tune.negatives.difficulty = 2 negatives, 1 of 2 do not; lower it"
    with pytest.raises(DataError, match=message):
        negative_chooser(section(difficulty=2), examples, store, seed=0)
    note = short_lists_note(examples, section(difficulty=2, per_query=3))
    assert note == short_lists("2 of 2", 3, difficulty=2)


def test_listed_negatives_are_the_first_of_the_list(store: Store) -> None:
    examples = addressed([[0], [1]], [[5, 3, 2], [4, 2, 3]])
    assert chosen(examples, store, per_query=2) == [[5, 3], [4, 2]]
    choose = negative_chooser(section(), examples, store, seed=0)
    assert lists(choose(np.array([1, 0, 1]), 7, NO_QUERIES)) == [[4], [5], [4]]


def test_a_short_list_is_repeated_for_triplets_and_stays_short_for_the_softmax(
    store: Store,
) -> None:
    """Every query weighs the same in triplets; negatives of the softmax serve every query."""
    assert chosen(addressed([[0], [1]], [[5, 3], [4]]), store, per_query=3) == [[5, 3, 5], [4, 4, 4]]
    examples = addressed([[0], [1], [2]], [[5, 3, 1, 0], [4], []])
    assert chosen(examples, store, per_query=3, **SOFTMAX) == [[5, 3, 1], [4], []]
    assert lists(listed_negatives(examples, np.array([2, 0]), section(**SOFTMAX))) == [[], [5]]


@pytest.mark.parametrize("negatives", [[[], [3], []], [[], [], []]], ids=["some list none", "a BEIR folder"])
def test_triplets_take_the_stores_hardest_for_queries_that_list_none_and_say_so(
    store: Store, negatives: list[list[int]]
) -> None:
    examples, settings = addressed([[0], [1], [2]], negatives), section(per_query=2)
    query, picked = torch.from_numpy(random_vectors(4, seed=3)), np.array([2, 1, 0, 2])
    found, hardest = (
        lists(negative_chooser(regime, examples, store, seed=0)(picked, 5, query))
        for regime in (settings, section(negatives="hardest", per_query=2))
    )
    assert found == [[3, 3] if negatives[row] else rows for row, rows in zip(picked, hardest, strict=True)]
    bare = sum(not one for one in negatives)
    told = mined_negatives_note(examples, settings)
    assert told.startswith(f"{bare} of 3 queries list no negatives")
    assert told.endswith("tune.negatives = hardest")
    assert mined_negatives_note(examples, section(**SOFTMAX)) is None
    # That lists are short is said of those that list some.
    assert short_lists_note(examples, settings) == (short_lists("1 of 3", 2) if bare < 3 else None)


def test_a_store_too_small_for_queries_that_list_none_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match=r"must hold at least 7 documents for tune.negatives.per_query = 6"):
        negative_chooser(section(per_query=6), addressed([[0], [1]], [[], [3]]), store, seed=0)


def test_random_negatives_never_hit_a_known_positive_and_never_repeat(store: Store) -> None:
    examples = addressed([[0], [2, 4], [5, 1, 3], []])
    for step in range(300):
        drawn = chosen(examples, store, step=step, negatives="random", per_query=3)
        for known, found in zip(lists(examples.positives), drawn, strict=True):
            assert len(set(found)) == 3
            assert not set(found) & set(known)
            assert set(found) <= set(range(6))


@pytest.mark.parametrize("known", [[0], [5], [1, 3], [3, 1, 3], [0, 5], []])
def test_random_negatives_are_uniform_over_sets_of_other_documents(store: Store, known: list[int]) -> None:
    examples = addressed([known] * 10)
    wanted = 2
    counts: Counter[tuple[int, ...]] = Counter()
    for step in range(150):
        found = chosen(examples, store, step=step, seed=1, negatives="random", per_query=wanted)
        counts.update(tuple(sorted(one)) for one in found)
    possible = list(combinations(sorted(set(range(6)) - set(known)), wanted))
    expected = 1500 / len(possible)
    assert set(counts) == set(possible)
    freedom = len(possible) - 1
    chi_square = sum((counts[one] - expected) ** 2 / expected for one in possible)
    # The limit is the mean of a chi-square plus five times its spread.
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


def test_random_negatives_follow_from_seed_and_step_alone(store: Store) -> None:
    examples = addressed([[0], [1], [2]])

    def drawn(**where: int) -> list[list[int]]:
        return chosen(examples, store, negatives="random", per_query=3, **where)

    assert drawn(step=4, seed=2) == drawn(step=4, seed=2)
    assert drawn(step=4, seed=2) != drawn(step=5, seed=2)
    assert drawn(step=4, seed=2) != drawn(step=4, seed=3)


def test_all_other_documents_may_be_drawn(store: Store) -> None:
    found = chosen(addressed([[1, 4]]), store, negatives="random", per_query=4)
    assert sorted(found[0]) == [0, 2, 3, 5]


@pytest.mark.parametrize(
    ("loss", "distance"), [("triplet", "cosine"), ("triplet", "euclidean"), ("in_batch_softmax", "cosine")]
)
@pytest.mark.parametrize("wanted", [1, 4])
def test_hardest_negatives_equal_a_loop_over_the_whole_store(
    tmp_path: Path, loss: str, distance: str, wanted: int
) -> None:
    vectors = random_vectors(80)
    store = store_of(tmp_path, vectors)
    rng = np.random.default_rng(1)
    examples = addressed([rng.choice(80, size=1 + n % 4, replace=False).tolist() for n in range(12)])
    query = torch.from_numpy(random_vectors(5, seed=2)).requires_grad_()
    picked = np.array([3, 11, 0, 7, 3])
    settings = section(negatives="hardest", per_query=wanted, loss=loss, distance=distance)
    found = negative_chooser(settings, examples, store, seed=0)(picked, 9, query)

    for place, row in enumerate(picked):
        asked = query[place].detach().double().numpy()
        score = {}
        for document, vector in enumerate(vectors.astype(np.float64)):
            if document in examples.positives[int(row)]:
                continue
            score[document] = -np.linalg.norm(asked - vector)
            if distance == "cosine":
                score[document] = asked @ vector / np.linalg.norm(asked) / np.linalg.norm(vector)
        assert found[place].tolist() == sorted(score, key=lambda document: -score[document])[:wanted]


def test_each_similarity_finds_other_hardest_negatives(tmp_path: Path) -> None:
    """One document in the query's direction but far, one near but at an angle, one at an angle and the
    farthest along.
    """
    store = store_of(tmp_path, np.array([[0, 1], [9, 0], [1, 0.5], [10, 8]], dtype=np.float32))
    found = {}
    for distance in ("cosine", "euclidean", "dot"):
        regime = section(negatives="hardest", distance=distance)
        choose = negative_chooser(regime, addressed([[0]]), store, seed=0)
        found[distance] = lists(choose(np.array([0]), 0, torch.tensor([[1.0, 0.0]])))
    assert found == {"cosine": [[1]], "euclidean": [[2]], "dot": [[3]]}


@pytest.mark.parametrize("source", ["random", "hardest"])
def test_a_store_that_is_too_small_is_refused(store: Store, source: str) -> None:
    examples = addressed([[0], [1, 2, 3]])
    assert len(chosen(examples, store, negatives="random", per_query=3)[1]) == 3
    with pytest.raises(DataError, match=r"at least 7 documents for tune.negatives.per_query = 4 .* got 6"):
        negative_chooser(section(negatives=source, per_query=4), examples, store, seed=0)


@pytest.mark.parametrize("source", ["random", "hardest"])
def test_answers_of_the_same_question_in_other_rows_are_never_negatives(store: Store, source: Any) -> None:
    examples = addressed([[0], [1], [2]], answers=[[0, 1, 2], [0, 1, 2], [2, 5]])
    choose = negative_chooser(section(negatives=source, per_query=3), examples, store, seed=0)
    # Each query stands where a document of another row does.
    found = lists(choose(np.arange(3), 0, torch.from_numpy(store.gather([1, 2, 5]))))
    assert [sorted(rows) for rows in found[:2]] == [[3, 4, 5]] * 2
    assert not {2, 5} & set(found[2])
    with pytest.raises(DataError, match="must hold at least 7 documents"):
        negative_chooser(section(negatives=source, per_query=4), examples, store, seed=0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_diverged_tower_that_looks_for_negatives_is_told_to_go_slower(store: Store, value: float) -> None:
    choose = negative_chooser(section(negatives="hardest"), addressed([[0]]), store, seed=0)
    with pytest.raises(JobError, match="query embeddings must be finite numbers .*; lower the learning rate"):
        choose(np.array([0]), 0, torch.full((1, 16), value))


def test_a_batch_of_one_query_needs_a_negative(store: Store) -> None:
    softmax = section(loss="in_batch_softmax", batch_size=1)
    with pytest.raises(ConfigError, match=r"tune.batch_size must be at least 2 .* got 1: set lists none"):
        negative_chooser(softmax, addressed([[0], [1]]), store, seed=0)
    choose = negative_chooser(softmax, addressed([[0], [1]], [[2], []]), store, seed=0)
    assert lists(choose(np.array([0]), 0, NO_QUERIES)) == [[2]]


def test_short_lists_are_counted_in_a_note() -> None:
    examples = addressed([[0], [1], [2]], [[5, 3, 1], [4], []])
    assert short_lists_note(examples, section(per_query=3)) == short_lists("1 of 3", 3)
    of_softmax = short_lists_note(examples, section(per_query=2, **SOFTMAX))
    assert of_softmax == short_lists("2 of 3", 2, told="they use those they list")
    assert short_lists_note(addressed([[0]], [[1, 2]]), section(per_query=2)) is None
    assert short_lists_note(addressed([[0], [1]]), section(**SOFTMAX)) is None
    assert short_lists_note(examples, section(negatives="random", per_query=3)) is None
