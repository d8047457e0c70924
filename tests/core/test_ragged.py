"""Lists in one array: joined, chosen, filled, and found by an entry."""

import numpy as np
import pytest

from adiabat.core.ragged import Ragged

LISTS = [[4, 5], [], [6], [], [7, 8, 9]]


def as_lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[number].tolist() for number in range(len(ragged))]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_joined_lists_are_those_that_were_given_in_the_type_asked_for(dtype: type[np.integer]) -> None:
    joined = Ragged.joined(LISTS, dtype=dtype)
    assert as_lists(joined) == LISTS
    assert joined.values.dtype == dtype
    assert as_lists(Ragged.joined([], dtype=dtype)) == []


@pytest.mark.parametrize("chosen", [[4, 0, 0, 1], [], [3], [2, 4, 1, 0]])
def test_chosen_lists_are_those_of_plain_indexing(chosen: list[int]) -> None:
    taken = Ragged.joined(LISTS, dtype=np.int32).take(np.array(chosen, dtype=np.int64))
    assert as_lists(taken) == [LISTS[number] for number in chosen]
    assert taken.values.dtype == np.int32
    assert taken.offsets[0] == 0


def test_an_empty_list_is_filled_and_no_other() -> None:
    assert as_lists(Ragged.of(LISTS).filled(0)) == [[4, 5], [0], [6], [0], [7, 8, 9]]
    assert as_lists(Ragged.of([[], []]).filled(3)) == [[3], [3]]


def test_an_entry_tells_its_list_past_empty_ones() -> None:
    ragged = Ragged.of(LISTS)
    assert [ragged.list_of(entry) for entry in range(6)] == [0, 0, 2, 4, 4, 4]
