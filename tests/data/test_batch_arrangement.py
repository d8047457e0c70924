from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from jaxtyping import Int

from adiabat.core.errors import DataError
from adiabat.data.batch_arrangement import ArrangedBatches, Rules, arranged
from adiabat.data.batch_sampler import ShuffledBatches
from tests.refused import refused

SEEDS = some.integers(0, 2**32)


def of_one(count: int) -> list[Int[np.ndarray, " n"]]:
    return [np.zeros(count, dtype=np.int64)]


def arrange(
    order: Int[np.ndarray, " n"], rules: Rules, *, seed: int = 0, first_step: int = 0
) -> tuple[list[list[int]], list[int]]:
    batches, left = arranged(order, rules, np.random.default_rng(seed), first_step=first_step)
    return [batch.tolist() for batch in batches], left.tolist()


def test_without_rules_an_order_is_cut_as_it_stands() -> None:
    order = np.array([4, 1, 3, 0, 2])
    assert arrange(order, Rules(batch_size=2, levels=of_one(5))) == ([[4, 1], [3, 0]], [2])


def rows_of(batches: list[list[int]], left: list[int]) -> list[int]:
    return sorted([*(row for batch in batches for row in batch), *left])


@given(some.integers(0, 150), some.integers(1, 20), some.integers(1, 9), some.integers(2, 200), SEEDS)
@example(count=1_000, batch_size=16, topics=9, texts=200, seed=0)
@example(count=10, batch_size=2, topics=1, texts=1, seed=0)
def test_every_example_is_in_one_full_batch_or_left_and_no_text_stands_twice_in_a_batch(
    count: int, batch_size: int, topics: int, texts: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    order, topic = random.permutation(count), random.integers(0, topics, count)
    keys = random.integers(0, texts, (count, 2))
    rules = Rules(batch_size=batch_size, levels=[topic, topic * 0], random_share=0.2, keys=keys)
    batches, left = arrange(order, rules)
    assert rows_of(batches, left) == list(range(count))
    assert {len(batch) for batch in batches} <= {batch_size}
    assert repeats(batches, keys) == 0
    if texts == 1:
        assert batches == []


def test_batches_are_of_one_tag_then_of_one_topic_then_random_by_hand() -> None:
    # Tags: three of 0, two of 1 (both topic 0), three of 2 (topic 1).
    tag = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    topic = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    batches, left = arrange(np.arange(8), Rules(batch_size=2, levels=[tag, topic, topic * 0]))
    assert sorted(batches) == [[0, 1], [2, 7], [3, 4], [5, 6]]
    assert left == []


def test_sources_never_share_a_batch() -> None:
    source = np.repeat([0, 1, 2], [30, 50, 70])
    order = np.random.default_rng(1).permutation(150)
    batches, left = arrange(order, Rules(batch_size=8, levels=[source]))
    assert all(len(set(source[batch])) == 1 for batch in batches)
    assert len(left) == 30 % 8 + 50 % 8 + 70 % 8


def test_batches_stand_where_their_examples_stand() -> None:
    source = np.repeat([0, 1], [40, 40])
    order = np.arange(80)
    batches, _ = arrange(order, Rules(batch_size=8, levels=[source]))
    assert [int(source[batch[0]]) for batch in batches] == [0] * 5 + [1] * 5


def test_a_share_of_batches_is_random() -> None:
    topic = np.random.default_rng(2).integers(0, 4, 20_000)
    order = np.random.default_rng(3).permutation(20_000)
    batches, _ = arrange(order, Rules(batch_size=10, levels=[topic, topic * 0], random_share=0.1))
    mixed = [len(set(topic[batch])) > 1 for batch in batches]
    assert np.mean(mixed) == pytest.approx(0.1, abs=0.01)
    # They are not all at one end.
    assert np.mean(mixed[: len(mixed) // 2]) == pytest.approx(0.1, abs=0.03)


def test_a_curriculum_goes_from_random_to_alike() -> None:
    topic = np.random.default_rng(2).integers(0, 4, 40_000)
    order = np.random.default_rng(3).permutation(40_000)
    rules = Rules(batch_size=10, levels=[topic, topic * 0], random_share=0.1, curriculum_steps=4_000)
    batches, _ = arrange(order, rules)
    mixed = np.array([len(set(topic[batch])) > 1 for batch in batches])
    # 1 - 0.9 t / 4,000, averaged over each quarter of the 4,000 steps.
    assert [quarter.mean() for quarter in np.split(mixed, 4)] == pytest.approx(
        [0.8875, 0.6625, 0.4375, 0.2125], abs=0.06
    )
    later, _ = arrange(order, rules, first_step=4_000)
    assert np.mean([len(set(topic[batch])) > 1 for batch in later]) == pytest.approx(0.1, abs=0.02)


def test_the_share_of_random_batches_by_hand() -> None:
    rules = Rules(batch_size=2, levels=of_one(2), random_share=0.2, curriculum_steps=10)
    assert rules.random_shares(np.array([0, 5, 10, 99])).tolist() == pytest.approx([1.0, 0.6, 0.2, 0.2])


def repeats(batches: list[list[int]], keys: Int[np.ndarray, "n k"]) -> int:
    """Texts that two examples of a batch have in common, by a plain loop."""
    found = 0
    for batch in batches:
        counts = Counter(key for row in batch for key in set(keys[row].tolist()))
        found += sum(count - 1 for count in counts.values())
    return found


@pytest.mark.parametrize("distinct", [40, 200, 1_000, 100_000])
def test_no_text_stands_twice_in_a_batch(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    keys = random.integers(0, distinct, (2_000, 2))
    order = random.permutation(2_000)
    plain, _ = arrange(order, Rules(batch_size=32, levels=of_one(2_000)))
    assert repeats(plain, keys) > 0 or distinct > 50_000
    batches, left = arrange(order, Rules(batch_size=32, levels=of_one(2_000), keys=keys))
    assert repeats(batches, keys) == 0
    # Forty texts allow twenty examples with two texts each: no batch of 32.
    assert len(batches) == 0 if distinct == 40 else len(left) < (2_000 if distinct == 200 else 100)


def test_a_text_in_half_of_the_examples_is_in_every_batch_once_and_costs_no_more() -> None:
    keys = np.stack(
        [np.arange(50_000), np.where(np.arange(50_000) % 2, 10**6, 10**6 + 1 + np.arange(50_000))], axis=1
    )
    order = np.random.default_rng(0).permutation(50_000)
    batches, left = arrange(order, Rules(batch_size=50, levels=of_one(50_000), keys=keys))
    assert repeats(batches, keys) == 0
    # 25,000 others, 49 of them beside one of the rest.
    assert len(batches) == 25_000 // 49
    assert len(left) == 50_000 - 50 * len(batches)


def test_a_query_that_is_its_own_answer_is_no_repetition() -> None:
    keys = np.repeat(np.arange(6), 2).reshape(6, 2)
    batches, left = arrange(np.arange(6), Rules(batch_size=3, levels=of_one(6), keys=keys))
    assert batches == [[0, 1, 2], [3, 4, 5]]
    assert left == []


def test_examples_that_a_batch_refuses_come_in_the_next_by_hand() -> None:
    # The second asks as the first, the fourth answers as the third.
    keys = np.array([[1, 10], [1, 11], [2, 12], [3, 12], [4, 13], [5, 14]])
    batches, left = arrange(np.arange(6), Rules(batch_size=3, levels=of_one(6), keys=keys))
    assert repeats(batches, keys) == 0
    assert [len(set(batch) & {0, 1}) for batch in batches] == [1, 1]
    assert [len(set(batch) & {2, 3}) for batch in batches] == [1, 1]
    assert left == []


def test_repeats_across_several_windows_leave_out_no_more_than_the_remainder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("adiabat.data.batch_arrangement.WINDOW", 4)
    random = np.random.default_rng(0)
    # Four rows ask each question, and four on average share an answer.
    keys = np.stack([np.repeat(np.arange(500), 4), 10_000 + random.integers(0, 500, 2_000)], axis=1)
    batches, left = arrange(random.permutation(2_000), Rules(batch_size=32, levels=of_one(2_000), keys=keys))
    assert repeats(batches, keys) == 0
    assert rows_of(batches, left) == list(range(2_000))
    assert len(left) == 2_000 % 32


def test_batches_that_stay_partly_filled_are_given_up_to_fill_others() -> None:
    # Forty answers and batches of 32: there is little to choose from.
    random = np.random.default_rng(1)
    keys = np.stack([np.arange(1_600) + 100, random.permutation(np.repeat(np.arange(40), 40))], axis=1)
    batches, left = arrange(random.permutation(1_600), Rules(batch_size=32, levels=of_one(1_600), keys=keys))
    assert repeats(batches, keys) == 0
    # Each answer can stand in 40 of the 50 batches at most, so that all 50 could be full.
    assert len(batches) >= 48
    assert len(left) == 1_600 - 32 * len(batches)


def test_texts_that_crowd_out_others_end_a_pass_early_and_leave_the_order_as_it_was() -> None:
    random = np.random.default_rng(2)
    keys = np.stack([np.arange(5_000) + 10**6, random.zipf(1.3, 5_000) % 5_000], axis=1)
    order = random.permutation(5_000)
    before = order.copy()
    batches, left = arrange(order, Rules(batch_size=32, levels=of_one(5_000), keys=keys))
    assert repeats(batches, keys) == 0
    assert batches
    assert rows_of(batches, left) == list(range(5_000))
    assert order.tolist() == before.tolist()


def test_without_repeats_every_example_keeps_its_place() -> None:
    order = np.random.default_rng(3).permutation(100)
    keys = np.arange(200).reshape(100, 2)
    plain = arrange(order, Rules(batch_size=8, levels=of_one(100)))
    assert arrange(order, Rules(batch_size=8, levels=of_one(100), keys=keys)) == plain


def test_a_budget_parts_batches_by_length_by_hand() -> None:
    tokens = np.array([5, 1, 6, 2, 3, 99])
    rules = Rules(batch_size=6, levels=of_one(6), tokens=tokens, token_budget=11)
    # Ascending 1 2 3 5 | 6 | 99: eleven, then six alone, then one above the budget alone.
    assert arrange(np.arange(6), rules) == ([[1, 3, 4, 0]], [2, 5])


def padding(batches: list[list[int]] | list[Int[np.ndarray, " n"]], tokens: Int[np.ndarray, " n"]) -> float:
    """Tokens of batches as they are padded, over those that they hold."""
    return sum(len(batch) * tokens[batch].max() for batch in batches) / sum(
        tokens[batch].sum() for batch in batches
    )


def test_no_batch_is_above_its_budget_and_padding_is_less() -> None:
    random = np.random.default_rng(0)
    tokens = random.integers(3, 200, 5_000)
    order = random.permutation(5_000)
    rules = Rules(batch_size=64, levels=of_one(5_000), tokens=tokens, token_budget=2_000)
    batches, left = arrange(order, rules)
    assert max(int(tokens[batch].sum()) for batch in batches) <= 2_000
    assert rows_of(batches, left) == list(range(5_000))
    by_chance = np.split(order[:4_980], 4_980 // 20)
    assert padding(batches, tokens) < 0.75 * padding(by_chance, tokens)


def stream(rules: Rules, count: int, *, seed: int = 5) -> ArrangedBatches:
    return ArrangedBatches(ShuffledBatches(count, count, seed=seed).rows, rules, pairs=count, seed=seed)


def test_a_step_is_the_same_whatever_was_asked_before() -> None:
    random = np.random.default_rng(0)
    keys, topic = random.integers(0, 300, (400, 2)), random.integers(0, 3, 400)
    rules = Rules(batch_size=16, levels=[topic, topic * 0], random_share=0.3, curriculum_steps=60, keys=keys)
    forwards = stream(rules, 400)
    expected = [forwards.rows(step).tolist() for step in range(90)]
    assert [stream(rules, 400).rows(step).tolist() for step in (89, 0, 44)] == [
        expected[step] for step in (89, 0, 44)
    ]
    backwards = stream(rules, 400)
    assert [backwards.rows(step).tolist() for step in reversed(range(90))] == expected[::-1]


def test_passes_differ_and_what_each_leaves_out_is_counted() -> None:
    one = stream(Rules(batch_size=30, levels=of_one(100)), 100)
    passes = [[one.rows(step).tolist() for step in (start, start + 1, start + 2)] for start in (0, 3)]
    assert passes[0] != passes[1]
    assert [one.left_out(number) for number in range(2)] == [10, 10]
    assert all(len({row for batch in taken for row in batch}) == 90 for taken in passes)


def test_rules_that_leave_no_batch_are_refused() -> None:
    rules = Rules(batch_size=2, levels=of_one(10), keys=np.zeros((10, 2), dtype=np.int64))
    with refused(DataError, "10 examples must fill a batch of 2 ", "[batches]"):
        stream(rules, 10).rows(0)


@pytest.mark.parametrize("empty", [0, 1])
def test_a_pass_without_a_batch_ends_the_steps_whoever_planned_it(empty: int) -> None:
    rules = Rules(batch_size=2, levels=of_one(10))
    made = ArrangedBatches(lambda number: np.arange(1 if number == empty else 10), rules, pairs=10, seed=0)
    # As a note on what a run left out plans all its passes.
    assert [made.batches(number) for number in range(3)] == [0 if one == empty else 5 for one in range(3)]
    for _ in range(2):
        with refused(DataError, "1 examples must fill a batch of 2 "):
            made.rows(5 * empty)
    assert all(len(made.rows(step)) == 2 for step in range(5 * empty))


def test_steps_cross_passes_without_a_gap() -> None:
    one = stream(Rules(batch_size=25, levels=of_one(100)), 100)
    rows = [one.rows(step) for step in range(12)]
    for start, end in pairwise(range(0, 13, 4)):
        assert sorted(np.concatenate(rows[start:end]).tolist()) == list(range(100))
