from collections import Counter

import pytest

from adiabat.profiling.text_lengths import Sample


def drawn(count: int, size: int, seed: str) -> list[int]:
    sample: Sample[int] = Sample(size, seed=seed)
    for number in range(count):
        if (place := sample.offer()) is not None:
            sample.put(place, number)
    assert sample.offered == count
    return sample.items


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_a_stream_no_longer_than_the_sample_is_kept_whole_and_in_order(count: int):
    assert drawn(count, 5, "s") == list(range(count))


def test_equal_seeds_draw_alike_and_others_do_not():
    assert drawn(500, 10, "one") == drawn(500, 10, "one") != drawn(500, 10, "two")


@pytest.mark.parametrize(("count", "size"), [(12, 1), (12, 4), (12, 11)])
def test_every_item_is_drawn_equally_often(count: int, size: int):
    rounds = 1_500
    times = Counter(item for seed in range(rounds) for item in drawn(count, size, str(seed)))
    share = size / count
    spread = (rounds * share * (1 - share)) ** 0.5
    assert all(abs(times[item] - rounds * share) < 4.5 * spread for item in range(count)), times


def test_few_items_of_a_long_stream_are_inspected():
    sample: Sample[int] = Sample(10, seed="s")
    kept = sum(sample.offer() is not None for _ in range(50_000))
    # 10 (1 + ln 5000) = 95 on average.
    assert 50 < kept < 170
