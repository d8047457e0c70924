"""What stands in a batch, who embeds what of it, and what the loss is told of its texts."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.core.errors import ConfigError, DataError
from adiabat.data.pair_sets import PairSet
from adiabat.dual_encoder.batches import Batch, Sides, check_negatives, draw_batch, pairs_of, share_of
from adiabat.losses.embedded_pairs import Pairs
from adiabat.losses.in_batch import in_batch_softmax
from adiabat.training.distributed import ALONE, Processes
from tests.dual_encoder.problem import HELD_OUT, ROWS, Row, both_sets, examples, pair_sets, section

SIX = np.array([0, 3, 6, 2, 8, 5])
WIDTH = 6
UNEVEN: tuple[Row, ...] = (("a", ["x"], ["u", "v"]), ("b", ["y"], ["u"]))


def paired(*rows: Row) -> PairSet:
    (pairs,) = pair_sets(examples(rows))
    return pairs


def drawn(pairs: PairSet, picked: Any = SIX, *, seed: int = 0, step: int = 0, **settings: Any) -> Batch:
    return draw_batch(pairs, np.asarray(picked), section(**settings), seed=seed, step=step)


def vectors(texts: int, *, seed: int) -> Tensor:
    """A vector for each text, so that equal texts have equal vectors."""
    return torch.randn(texts, WIDTH, generator=torch.Generator().manual_seed(seed))


def sides_of(batch: Batch, pairs: PairSet) -> Sides:
    query, document = (
        vectors(len(texts), seed=seed)
        for seed, texts in enumerate((pairs.texts.queries, pairs.texts.documents))
    )
    return Sides(query[torch.from_numpy(batch.query)], document[torch.from_numpy(batch.documents)])


def pairs_for(pairs: PairSet, batch: Batch, *, opinion: Sides | None = None, **settings: Any) -> Pairs:
    return pairs_of(batch, sides_of(batch, pairs), pairs, section(**settings), ALONE, guide=opinion)


def as_rows(batch: Batch) -> tuple[list[int], ...]:
    return tuple(rows.ravel().tolist() for rows in (batch.query, batch.positive, batch.shared, batch.own))


def excluded(block: Any) -> np.ndarray:
    return block.excluded(slice(None), slice(None)).numpy()


def counted_as_negatives(pairs: Pairs) -> list[set[int]]:
    """For each pair the numbers of the batch's positives that count against it."""
    return [set(np.flatnonzero(~row)) for row in excluded(pairs.block("query", "positive"))]


# --- Drawing ---


@pytest.mark.parametrize(
    "settings", [{}, {"loss": {"negatives_shared": False}}, {"loss": "triplet"}], ids=str
)
def test_a_batch_follows_from_the_seed_and_the_step_alone(settings: dict[str, Any]) -> None:
    pairs, _ = both_sets()
    many = {"negatives_per_query": 2, **settings}
    picked = np.flatnonzero(pairs.negatives.lengths[pairs.query] > 0)
    before = [as_rows(drawn(pairs, picked, step=step, **many)) for step in range(8)]
    assert [as_rows(drawn(pairs, picked, step=step, **many)) for step in reversed(range(8))] == before[::-1]
    assert len({str(rows) for rows in before}) > 1
    others = [as_rows(drawn(pairs, picked, seed=seed, **many)) for seed in (1, 2)]
    assert any(other != before[0] for other in others)


def test_shared_negatives_are_some_of_those_listed_each_once_and_no_more_than_asked_for() -> None:
    pairs, _ = both_sets()
    for step in range(20):
        batch = drawn(pairs, step=step, negatives_per_query=2)
        counts = np.minimum(pairs.negatives.lengths[batch.query], 2)
        parts = np.split(batch.shared, np.cumsum(counts)[:-1])
        for row, part in zip(batch.query.tolist(), parts, strict=True):
            assert set(part.tolist()) <= set(pairs.negatives[row].tolist())
            assert len(set(part.tolist())) == len(part)
        assert batch.own.shape == (6, 0)


def test_every_listed_negative_gets_its_turn() -> None:
    pairs, _ = both_sets()
    seen = {int(drawn(pairs, [0], step=step, negatives_per_query=1).shared[0]) for step in range(40)}
    assert seen == set(pairs.negatives[0].tolist())
    assert len(seen) == 3


def test_no_negatives_are_drawn_where_none_are_asked_for() -> None:
    pairs, _ = both_sets()
    batch = drawn(pairs, negatives_per_query=0)
    assert (batch.shared.size, batch.own.size) == (0, 0)
    assert batch.documents.tolist() == batch.positive.tolist()
    made = pairs_for(pairs, batch)
    assert made.shared is None
    assert made.own is None


def test_own_negatives_of_queries_that_list_few_are_filled_up_with_the_positive() -> None:
    pairs = paired(("a", ["x"], ["u", "v", "w"]), ("b", ["y"], ["u"]), ("c", ["z"], []))
    batch = drawn(pairs, np.arange(3), negatives_per_query=2, negatives_shared=False)
    x, u, v, w, y, z = range(6)
    assert set(batch.own[0].tolist()) < {u, v, w}
    assert batch.own[1:].tolist() == [[u, y], [z, z]]
    assert batch.documents.tolist() == [x, y, z, *batch.own.ravel().tolist()]
    assert batch.shared.size == 0


def test_triplets_take_what_is_listed_in_turn_until_there_are_enough() -> None:
    u, v = 1, 2
    own = drawn(paired(*UNEVEN), [0, 1], loss="triplet", negatives_per_query=5).own
    assert own.tolist() == [[u, v, u, v, u], [u] * 5]


# --- What is refused ---

NONE = "every query must list a negative if train.loss is triplet or listwise, or train.batch_size is 1"
FEW = "train.loss.mask_duplicates must be true where queries of set list fewer than 2 negatives of their own"
OWN = {"negatives_shared": False, "mask_duplicates": False}


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (ROWS, {"loss": "triplet"}, f"set: {NONE}"),
        (HELD_OUT, {"batch_size": 1}, f"set: {NONE}, got none for 1 of 5; list some"),
        ((("a", ["x"], ["u"]), ("a", ["y"], [])), {"loss": "triplet"}, None),
        # Filling up is refused where it would not be masked.
        (UNEVEN, {"loss": {**OWN, "negatives_per_query": 2}}, FEW),
        (UNEVEN, {"loss": {**OWN, "negatives_per_query": 1}}, None),
        (UNEVEN, {"loss": {"negatives_shared": False, "negatives_per_query": 2}}, None),
        (UNEVEN, {"loss": {"mask_duplicates": False, "negatives_per_query": 2}}, None),
    ],
)
def test_data_that_list_too_few_negatives_for_the_loss_are_refused(
    rows: Any, settings: dict[str, Any], message: str | None
) -> None:
    with pytest.raises((ConfigError, DataError), match=message) if message else nullcontext():
        check_negatives(paired(*rows), section(**settings))


# --- Sharing out ---


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss": {"negatives_shared": False}}, {"loss": "triplet"}, {"negatives_per_query": 0}],
    ids=str,
)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("most", [1, 3])
def test_the_parts_of_all_processes_make_up_the_batch_negatives_included(
    settings: dict[str, Any], count: int, most: int
) -> None:
    pairs, _ = both_sets()
    wanted = {"negatives_per_query": most, **settings}
    picked = (
        SIX if settings.get("loss") != "triplet" else np.flatnonzero(pairs.negatives.lengths[pairs.query])[:6]
    )
    whole = drawn(pairs, picked, step=3, **wanted)
    parts = [share_of(pairs, whole, section(**wanted), Processes(rank, count)) for rank in range(count)]
    assert all(len(part.query) == 6 // count for part in parts)
    for name in ("query", "positive", "shared", "own"):
        together = np.concatenate([getattr(part, name) for part in parts])
        assert together.tolist() == getattr(whole, name).tolist()
    for part in parts:
        listed = [row for query in part.query.tolist() for row in pairs.negatives[query]]
        assert set(part.shared.tolist()) <= set(listed)


# --- What the loss is told ---


@pytest.mark.parametrize("settings", [{}, {"loss": {"negatives_shared": False}}], ids=str)
def test_embeddings_stand_where_their_texts_do(settings: dict[str, Any]) -> None:
    pairs, _ = both_sets()
    batch = drawn(pairs, negatives_per_query=2, **settings)
    made = pairs_for(pairs, batch, **settings)
    query, document = vectors(len(pairs.texts.queries), seed=0), vectors(len(pairs.texts.documents), seed=1)
    assert torch.equal(made.query, query[torch.from_numpy(batch.query)])
    assert torch.equal(made.positive, document[torch.from_numpy(batch.positive)])
    for found, rows in ((made.shared, batch.shared), (made.own, batch.own)):
        assert (found is None) == (not rows.size)
        assert found is None or torch.equal(found, document[torch.from_numpy(rows)])


def test_a_place_that_was_filled_up_does_not_count() -> None:
    pairs = paired(("a", ["x"], ["u", "v", "w"]), ("b", ["y"], ["u"]), ("c", ["z"], []))
    own: dict[str, Any] = {"loss": {"negatives_shared": False}}
    made = pairs_for(pairs, drawn(pairs, range(3), negatives_per_query=3, **own), **own)
    filled = in_batch_softmax(made, temperature=0.7)
    query, document = vectors(3, seed=0), vectors(6, seed=1)
    # x, y and z are rows 0, 4 and 5; u, v and w are rows 1 to 3.
    expected, candidates_of = 0.0, {0: [0, 4, 5, 1, 2, 3], 4: [0, 4, 5, 1], 5: [0, 4, 5]}
    for place, (positive, candidates) in enumerate(candidates_of.items()):
        scores = [float(query[place] @ document[row]) / 0.7 for row in candidates]
        expected += float(np.log(np.sum(np.exp(scores)))) - scores[candidates.index(positive)]
    assert float(filled) == pytest.approx(expected / 3, rel=1e-5)


def test_an_answer_of_the_query_is_no_negative_of_it_wherever_it_stands() -> None:
    pairs = paired(("a", ["x", "y"], []), ("b", ["y"], ["x"]), ("c", ["z"], ["y"]))
    # Pairs: a-x, a-y, b-y, c-z. The second answer of "a" is the positive of "b".
    made = pairs_for(pairs, drawn(pairs, [0, 2, 3]))
    assert counted_as_negatives(made) == [{2}, {2}, {0, 1}]
    # Shared negatives: x of "b", y of "c"; both answer "a", and y answers "b".
    shared = excluded(made.shared_block())
    assert shared.tolist() == [[True, True], [False, True], [False, False]]


def test_an_answer_that_is_in_no_pair_of_the_batch_is_masked_where_it_is_listed_by_another() -> None:
    train, _ = both_sets()
    # "what barks" is answered by a hound in validation alone, and by "a dog in the yard" in another row.
    first, hard = (
        int(np.flatnonzero(train.query == train.texts.queries.index(text))[0])
        for text in ("what barks", "what is hard")
    )
    made = pairs_for(train, drawn(train, [first, hard], negatives_per_query=9))
    names = [train.texts.documents[key] for key in made.shared_keys]
    taken_out = excluded(made.shared_block())[0]
    assert [name for name, out in zip(names, taken_out, strict=True) if out] == ["a dog"]


def test_pairs_of_equal_queries_are_no_negatives_of_each_other_nor_is_a_pair_that_comes_twice() -> None:
    pairs = paired(("a", ["x", "y"], []), ("b", ["z"], []))
    made = pairs_for(pairs, drawn(pairs, [0, 1, 2, 0]))
    assert counted_as_negatives(made) == [{2}, {2}, {0, 1, 3}, {2}]


def test_nothing_is_masked_but_the_pair_itself_where_duplicates_are_not() -> None:
    pairs = paired(("a", ["x", "y"], ["z"]), ("b", ["y"], ["x"]))
    made = pairs_for(pairs, drawn(pairs, [0, 1, 2, 0]), mask_duplicates=False)
    assert counted_as_negatives(made) == [{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}]
    for keys in ("query_keys", "positive_keys", "answer_keys", "shared_keys", "own_keys"):
        assert getattr(made, keys) is None
    assert not excluded(made.shared_block()).any()


def test_a_query_of_many_answers_brings_only_those_of_the_batch() -> None:
    answers = [f"answer {number}" for number in range(500)]
    pairs = paired(("a", answers, []), ("b", ["answer 7"], ["answer 400", "u"]))
    made = pairs_for(pairs, drawn(pairs, [3, 500], negatives_per_query=2))
    assert made.answer_keys.shape == (2, 3)
    assert set(made.answer_keys[0].tolist()) == {3, 7, 400}
    # "answer 7" answers both queries, so the two pairs are no negatives of each other.
    assert counted_as_negatives(made) == [set(), set()]
    assert excluded(made.shared_block()).tolist() == [[True, False], [False, False]]


def test_the_loss_is_the_same_with_all_answers_as_with_those_of_the_batch() -> None:
    train, _ = both_sets()
    for step in range(4):
        picked = np.random.default_rng(step).permutation(len(train))[:6]
        batch = drawn(train, picked, step=step, negatives_per_query=2)
        made = pairs_for(train, batch)
        answers = [train.answers[row] for row in batch.query.tolist()]
        most = max(map(len, answers))
        keys = torch.from_numpy(np.stack([np.resize(rows, most) for rows in answers]))
        found, expected = (
            in_batch_softmax(pairs, temperature=0.3, symmetric=True)
            for pairs in (made, replace(made, answer_keys=keys))
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize("seen_by", ["all", "own"])
def test_a_guide_is_given_unit_vectors_in_step_with_the_texts_and_its_margin(seen_by: str) -> None:
    train, _ = both_sets()
    guiding = {"model": "other", "margin": 0.2, "relative": True}
    settings: dict[str, Any] = {"loss": {"negatives_shared": seen_by == "all", "guide": guiding}}
    batch = drawn(train, negatives_per_query=2, **settings)
    opinion = Sides(torch.randn(len(batch.query), 3), torch.randn(len(batch.documents), 3))
    guide = pairs_for(train, batch, opinion=opinion, **settings).guide
    assert (guide.margin, guide.relative) == (0.2, True)
    unit = opinion.documents / opinion.documents.norm(dim=1, keepdim=True)
    further = guide.shared if seen_by == "all" else guide.own
    torch.testing.assert_close(torch.cat([guide.positive, further.reshape(-1, 3)]), unit)
    torch.testing.assert_close(guide.query, opinion.query / opinion.query.norm(dim=1, keepdim=True))
    assert (guide.own if seen_by == "all" else guide.shared) is None
