"""What is held out: by the hash of the query, so that it stays the same."""

from hashlib import sha256

import pytest

from adiabat.data.text_hashes import held_out_queries

QUERIES = [f"question {number}" for number in range(2000)]


def held_out(queries: list[str], fraction: float = 0.1, most: int = 10**6) -> set[str]:
    return {queries[row] for row in held_out_queries(queries, fraction, most)}


def test_added_data_moves_no_query_to_the_other_side() -> None:
    before = held_out(QUERIES[:700])
    assert held_out(QUERIES) & set(QUERIES[:700]) == before
    assert held_out(QUERIES[::-1]) == held_out(QUERIES)


def test_under_a_limit_added_data_moves_no_query_from_training_to_validation() -> None:
    before = held_out(QUERIES[:700], most=40)
    assert len(before) == 40
    assert held_out(QUERIES, most=40) & set(QUERIES[:700]) <= before


def test_a_larger_share_contains_the_smaller_one() -> None:
    assert held_out(QUERIES, 0.05) < held_out(QUERIES, 0.1) < held_out(QUERIES, 0.999)


@pytest.mark.parametrize("most", range(1, 30))
def test_equal_queries_are_on_one_side_wherever_the_limit_falls(most: int) -> None:
    queries = [f"question {number % 40}" for number in range(120)]
    rows = set(held_out_queries(queries, 0.5, most).tolist())
    assert len(rows) <= most
    assert not {queries[row] for row in rows} & {queries[row] for row in range(120) if row not in rows}
    assert len(rows) >= most - 2 or len(rows) == len(held_out_queries(queries, 0.5, 10**6))


def test_the_choice_is_the_lowest_hashes_worked_by_hand() -> None:
    # First bytes of SHA-256: "a" ca, "b" 3e, "c" 2e, "d" 18.
    assert held_out(["a", "b", "c", "d"], 0x40 / 256) == {"b", "c", "d"}
    assert held_out(["a", "b", "c", "d"], 0x3E / 256) == {"c", "d"}
    assert held_out(["a", "b", "c", "d"], 0.1) == {"d"}
    assert held_out(["a", "b", "c", "d"], 0.9, most=1) == {"d"}


def test_hashes_are_the_first_eight_bytes_by_a_plain_loop() -> None:
    below = [row for row, query in enumerate(QUERIES) if int(sha256(query.encode()).hexdigest()[:16], 16) < 2**64 // 10]
    assert held_out_queries(QUERIES, 0.1, 10**6).tolist() == below
