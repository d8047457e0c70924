from collections import Counter

import numpy as np
import pytest

from adiabat.config.section import MixtureRule
from adiabat.data.batch_arrangement import ArrangedBatches, Rules
from adiabat.data.batch_sampler import ShuffledBatches
from adiabat.data.mixture import STEPS_COUNTED, Mixture, drawn_counts, interleaved, pass_counts, source_weights


@pytest.mark.parametrize(
    ("rule", "temperature", "shares"),
    [
        ("proportional", 1.0, [0.1, 0.9]),
        ("equal", 1.0, [0.5, 0.5]),
        # 100^(1/2) = 10 and 900^(1/2) = 30.
        ("temperature", 2.0, [0.25, 0.75]),
        ("temperature", 1.0, [0.1, 0.9]),
    ],
)
def test_shares_by_hand(rule: MixtureRule, temperature: float, shares: list[float]) -> None:
    assert source_weights([100, 900], rule=rule, temperature=temperature).tolist() == pytest.approx(shares)


def test_a_hot_temperature_is_nearly_equal() -> None:
    assert source_weights([1, 10**9], rule="temperature", temperature=1e6).tolist() == pytest.approx([0.5, 0.5], abs=1e-5)


def test_given_weights_need_not_add_up_to_one() -> None:
    assert source_weights([5, 5, 5], rule="weights", weights=[2.0, 1.0, 1.0]).tolist() == [0.5, 0.25, 0.25]


def test_how_much_of_each_source_a_pass_takes_by_hand() -> None:
    weights = np.array([0.5, 0.5])
    assert pass_counts([10, 100], weights, exhausted="stop").tolist() == [10, 10]
    assert pass_counts([10, 100], weights, exhausted="cycle").tolist() == [100, 100]
    assert pass_counts([10, 100], weights, exhausted="drop").tolist() == [10, 100]


@pytest.mark.parametrize("exhausted", ["stop", "cycle", "drop"])
def test_a_proportional_pass_takes_everything_once_whatever_happens_at_its_end(exhausted: str) -> None:
    sizes = [3, 7, 1_001, 333]
    weights = source_weights(sizes, rule="proportional")
    assert pass_counts(sizes, weights, exhausted=exhausted).tolist() == sizes  # type: ignore[arg-type]


def test_every_stretch_keeps_the_ratio_to_within_one_example() -> None:
    weights = np.array([0.2, 0.3, 0.5])
    order = interleaved([200, 300, 500], weights, np.random.default_rng(0))
    for length in range(1, 1001):
        counts = np.bincount(order[:length], minlength=3)
        assert np.abs(counts - length * weights).max() < 2.0, length


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
    sampler = ArrangedBatches(mixed.order, Rules(batch_size=3, levels=[np.zeros(25, dtype=np.int64)]), pairs=40, seed=0)
    # The last source never comes.
    sources = np.array([0] * 5 + [1] * 20)
    plain = [0, 0, 0]
    for step in range(steps):
        for row in sampler.rows(step).tolist():
            plain[0 if row < 5 else 1] += 1
    assert drawn_counts(sampler, sources, steps=range(steps), count=3).tolist() == plain
    assert sum(plain) == 3 * steps
