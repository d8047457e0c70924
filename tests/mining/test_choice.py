"""The choice among what is left."""

import numpy as np

from adiabat.mining.miner import in_order_of_choice, query_generator, query_number


def test_ranked_takes_the_best_first() -> None:
    assert in_order_of_choice(np.array([1, 4, 6]), "ranked", query_generator(0, "q", "text")).tolist() == [1, 4, 6]


def test_random_takes_all_in_an_order_that_seed_and_query_decide() -> None:
    kept = np.arange(50)
    orders = [
        in_order_of_choice(kept, "random", query_generator(seed, name, text)).tolist()
        for seed, name, text in ((0, "q", "t"), (0, "q", "t"), (1, "q", "t"), (0, "r", "t"), (0, "q", "u"))
    ]
    assert all(sorted(order) == kept.tolist() for order in orders)
    assert orders[0] == orders[1]
    assert len({tuple(order) for order in orders}) == 4


def test_every_candidate_is_first_about_equally_often() -> None:
    firsts = [in_order_of_choice(np.arange(4), "random", query_generator(0, str(number), ""))[0] for number in range(2000)]
    assert np.abs(np.bincount(firsts) - 500).max() < 80  # four standard deviations


def test_id_and_text_are_told_apart() -> None:
    assert query_number("ab", "c") != query_number("a", "bc")
