"""The endless stream of rows, and the random numbers of a step; and the batches of a validation."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from adiabat.config.section import Exhausted, MixtureRule
from adiabat.data.batch_arrangement import ArrangedBatches, Rules
from adiabat.data.batch_sampler import (
    STEPS_COUNTED,
    Mixture,
    ShuffledBatches,
    drawn_counts,
    interleaved,
    pass_counts,
    source_weights,
    step_generator,
    step_seed,
    text_order,
    validation_batches,
)


def drawn(stream: ShuffledBatches, steps: int) -> list[int]:
    return [int(row) for step in range(steps) for row in stream.rows(step)]


SIZES, SEEDS = some.integers(1, 30), some.integers(0, 2**32)


@given(SIZES, SIZES, SEEDS)
def test_each_pass_is_a_permutation_of_all_rows(count: int, batch_size: int, seed: int) -> None:
    rows = drawn(ShuffledBatches(count, batch_size, seed=seed), 4 * count // batch_size + 1)
    for start in range(0, 4 * count, count):
        assert sorted(rows[start : start + count]) == list(range(count))


def test_passes_are_in_different_orders() -> None:
    rows = drawn(ShuffledBatches(50, 50, seed=0), 2)
    assert rows[:50] != rows[50:]


@given(SIZES, SIZES, SEEDS, some.lists(some.integers(0, 40), max_size=10))
def test_any_step_is_found_again_alone_and_in_any_order(
    count: int, batch_size: int, seed: int, steps: list[int]
) -> None:
    """A resumed run begins at any step, with a stream that has drawn nothing yet."""
    stream = ShuffledBatches(count, batch_size, seed=seed)
    forward = [stream.rows(step).tolist() for step in range(41)]
    for step in steps:
        assert stream.rows(step).tolist() == forward[step]
        assert ShuffledBatches(count, batch_size, seed=seed).rows(step).tolist() == forward[step]


@given(SIZES, SIZES, SIZES, SEEDS)
def test_the_batch_size_cuts_the_same_order_differently(
    count: int, one_size: int, other_size: int, seed: int
) -> None:
    one = drawn(ShuffledBatches(count, one_size, seed=seed), 2 * other_size)
    other = drawn(ShuffledBatches(count, other_size, seed=seed), 2 * one_size)
    assert one == other


@given(SIZES, SIZES, SEEDS, some.integers(0, 50))
def test_batches_of_passes_add_up_and_a_later_first_step_moves_them(
    count: int, batch_size: int, seed: int, first: int
) -> None:
    plain = ShuffledBatches(count, batch_size, seed=seed)
    moved = ShuffledBatches(count, batch_size, seed=seed, first_step=first)
    ended = 0
    for number in range(20):
        ended += plain.batches(number)
        assert ended == count * (number + 1) // batch_size
        assert moved.rows(first + number).tolist() == plain.rows(number).tolist()


def test_a_batch_larger_than_the_data_goes_through_it_several_times() -> None:
    rows = ShuffledBatches(3, 12, seed=0).rows(2)
    assert Counter(rows.tolist()) == {0: 4, 1: 4, 2: 4}
    assert ShuffledBatches(1, 4, seed=0).rows(5).tolist() == [0, 0, 0, 0]


def test_seeds_give_different_orders_and_every_order_is_about_as_frequent() -> None:
    orders = Counter(tuple(ShuffledBatches(3, 3, seed=seed).rows(0).tolist()) for seed in range(600))
    assert len(orders) == 6
    assert (
        sum((count - 100) ** 2 / 100 for count in orders.values()) < 20.5
    )  # chi-square, 5 degrees of freedom, p = 0.001


def test_random_numbers_of_a_step_depend_on_seed_and_step_alone() -> None:
    def numbers(seed: int, step: int) -> list[int]:
        return [int(number) for number in step_generator(seed, step).integers(1_000_000, size=5)]

    assert numbers(1, 2) == numbers(1, 2)
    assert len({tuple(numbers(seed, step)) for seed in range(5) for step in range(5)}) == 25


def test_dropout_is_seeded_apart_from_the_order_and_the_negatives() -> None:
    seeds = {step_seed(seed, step) for seed in range(20) for step in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert step_seed(4, 7) == step_seed(4, 7)
    same_words = np.random.SeedSequence([4, 7]).generate_state(1, np.uint64)[0]
    assert step_seed(4, 7) != int(same_words)


TEXTS = [f"topic {number // 20}, question {number}" for number in range(200)]


def in_order(texts: list[str]) -> list[str]:
    return [texts[row] for row in text_order(texts)]


def test_texts_have_one_order_whatever_order_they_come_in_and_whatever_others_there_are() -> None:
    order = in_order(TEXTS)
    assert order != TEXTS
    assert in_order(TEXTS[::-1]) == order
    assert in_order(TEXTS[:50] + TEXTS[51:]) == [text for text in order if text != TEXTS[50]]
    assert [text for text in in_order([*TEXTS, "another", "\ud800"]) if text in TEXTS] == order
    assert text_order([]).tolist() == []
    # Equal texts stay as they come.
    assert text_order(["b", "a", "b"]).tolist() in ([0, 2, 1], [1, 0, 2])


def test_neighbours_in_the_file_are_spread_over_the_batches_of_a_validation() -> None:
    for rows, _ in validation_batches(text_order(TEXTS), 40, full=True):
        # Of ten topics with 20 texts each, a batch of 40 holds 4 of each on average.
        assert np.bincount(rows // 20, minlength=10).max() < 12


@given(SIZES, SIZES)
def test_each_row_comes_once_but_for_those_that_fill_the_last_batch_up(count: int, size: int) -> None:
    order = np.random.default_rng(0).permutation(count)
    full, plain = (list(validation_batches(order, size, full=full)) for full in (True, False))
    weights = [min(size, count - start) for start in range(0, count, size)]
    assert [weight for _, weight in full] == [weight for _, weight in plain] == weights
    assert [len(rows) for rows, _ in full] == [min(size, count)] * len(weights)
    assert np.concatenate([rows[-weight:] for rows, weight in full]).tolist() == order.tolist()
    assert np.concatenate([rows for rows, _ in plain]).tolist() == order.tolist()


@pytest.mark.parametrize("gone", [0, 57, 199])
def test_one_text_less_exchanges_at_most_one_row_of_each_batch(gone: int) -> None:
    left = TEXTS[:gone] + TEXTS[gone + 1 :]
    before, after = (
        [{texts[row] for row in rows} for rows, _ in validation_batches(text_order(texts), 16, full=True)]
        for texts in (TEXTS, left)
    )
    assert all(len(one - other) <= 1 for one, other in zip(before[:-1], after[:-1], strict=True))


@pytest.mark.parametrize(
    ("sizes", "rule", "options", "shares"),
    [
        ([100, 900], "proportional", {}, [0.1, 0.9]),
        ([100, 900], "equal", {}, [0.5, 0.5]),
        # 100^(1/2) = 10 and 900^(1/2) = 30.
        ([100, 900], "temperature", {"temperature": 2.0}, [0.25, 0.75]),
        ([100, 900], "temperature", {"temperature": 1.0}, [0.1, 0.9]),
        # (10^9)^(10^-6) = exp(2.0723e-5), and 1 / (1 + exp(x)) is about 1 / 2 - x / 4.
        ([1, 10**9], "temperature", {"temperature": 1e6}, [0.5 - 5.1808e-6, 0.5 + 5.1808e-6]),
        # Weights that are given need not add up to one.
        ([5, 5, 5], "weights", {"weights": [2.0, 1.0, 1.0]}, [0.5, 0.25, 0.25]),
    ],
)
def test_shares_by_hand(
    sizes: list[int], rule: MixtureRule, options: dict[str, Any], shares: list[float]
) -> None:
    assert source_weights(sizes, rule=rule, **options).tolist() == pytest.approx(shares, rel=1e-9)


def test_how_much_of_each_source_a_pass_takes_by_hand() -> None:
    weights = np.array([0.5, 0.5])
    assert pass_counts([10, 100], weights, exhausted="stop").tolist() == [10, 10]
    assert pass_counts([10, 100], weights, exhausted="cycle").tolist() == [100, 100]
    assert pass_counts([10, 100], weights, exhausted="drop").tolist() == [10, 100]


@given(
    some.lists(some.integers(1, 10**6), min_size=1, max_size=5), some.sampled_from(["stop", "cycle", "drop"])
)
def test_a_proportional_pass_takes_everything_once_whatever_happens_at_its_end(
    sizes: list[int], exhausted: Exhausted
) -> None:
    weights = source_weights(sizes, rule="proportional")
    assert pass_counts(sizes, weights, exhausted=exhausted).tolist() == sizes


@given(some.lists(some.integers(1, 40), min_size=1, max_size=5), SEEDS)
def test_every_stretch_keeps_the_ratio_to_within_one_example(counts: list[int], seed: int) -> None:
    """At time t, source s has given w_s t examples to within one, so n examples came at t = n to within S."""
    weights = source_weights(counts, rule="proportional")
    order = interleaved(counts, weights, np.random.default_rng(seed))
    for length in range(1, len(order) + 1):
        taken = np.bincount(order[:length], minlength=len(counts))
        assert (np.abs(taken - length * weights) <= 1 + len(counts) * weights).all(), length


def test_a_source_that_has_run_out_leaves_the_rest_to_the_others() -> None:
    order = interleaved([10, 100], np.array([0.5, 0.5]), np.random.default_rng(0))
    assert set(order[22:].tolist()) == {1}
    assert Counter(order[:20].tolist())[0] >= 9


def mixture(sizes: tuple[int, ...], rule: MixtureRule, exhausted: str, *, seed: int = 3) -> Mixture:
    weights = source_weights(sizes, rule=rule)
    return Mixture(sizes, weights, pass_counts(sizes, weights, exhausted=exhausted), seed)  # type: ignore[arg-type]


def test_one_source_comes_in_the_order_of_a_shuffled_stream() -> None:
    one = mixture((50,), "proportional", "drop")
    for number in range(3):
        assert one.order(number).tolist() == ShuffledBatches(50, 50, seed=3).rows(number).tolist()


def test_a_part_of_a_source_goes_on_where_the_pass_before_ended() -> None:
    mixed = mixture((4, 12), "equal", "stop")
    passes = [mixed.order(number) for number in range(3)]
    assert [sorted(rows[rows < 4].tolist()) for rows in passes] == [[0, 1, 2, 3]] * 3
    # Three passes of four are the other source, each example once.
    assert sorted(np.concatenate([rows[rows >= 4] for rows in passes]).tolist()) == list(range(4, 16))


def test_a_source_that_begins_anew_takes_every_example_as_often() -> None:
    rows = mixture((4, 12), "equal", "cycle").order(0)
    assert Counter(rows[rows < 4].tolist()) == dict.fromkeys(range(4), 3)
    assert sorted(rows[rows >= 4].tolist()) == list(range(4, 16))


def test_a_pass_follows_from_its_number_and_the_seed_alone() -> None:
    mixed = mixture((30, 70), "equal", "drop")
    again = mixture((30, 70), "equal", "drop")
    assert again.order(5).tolist() == mixed.order(5).tolist()
    assert mixed.order(4).tolist() != mixed.order(5).tolist()
    assert mixture((30, 70), "equal", "drop", seed=4).order(5).tolist() != mixed.order(5).tolist()


def test_sources_of_one_size_are_not_in_the_same_order() -> None:
    rows = mixture((40, 40), "equal", "drop").order(0)
    assert rows[rows < 40].tolist() != (rows[rows >= 40] - 40).tolist()


@pytest.mark.parametrize("steps", [0, 1, 7, STEPS_COUNTED, STEPS_COUNTED + 1])
def test_what_a_run_drew_of_each_source_is_what_a_plain_loop_counts(steps: int) -> None:
    mixed = mixture((5, 20), "equal", "cycle")
    sampler = ArrangedBatches(
        mixed.order, Rules(batch_size=3, levels=[np.zeros(25, dtype=np.int64)]), pairs=40, seed=0
    )
    # The last source never comes.
    sources = np.array([0] * 5 + [1] * 20)
    plain = [0, 0, 0]
    for step in range(steps):
        for row in sampler.rows(step).tolist():
            plain[0 if row < 5 else 1] += 1
    assert drawn_counts(sampler, sources, steps=range(steps), count=3).tolist() == plain
    assert sum(plain) == 3 * steps
