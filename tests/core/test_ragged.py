"""Laws of lists in one array, each against plain Python lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.strategies import DataObject

from adiabat.core.ragged import Ragged, compact, connected

NUMBERS = some.integers(0, 2**31 - 1)
LISTS = some.lists(some.lists(NUMBERS, max_size=4), max_size=6)
FEW_NUMBERS = some.lists(some.integers(0, 8), max_size=3)


def as_lists(ragged: Ragged) -> list[list[int]]:
    return [ragged[number].tolist() for number in range(len(ragged))]


@given(LISTS)
def test_packed_lists_are_those_that_were_given(lists: list[list[int]]) -> None:
    for packed in (Ragged.of(lists), Ragged.joined(lists), Ragged.joined(lists, dtype=np.int32)):
        assert as_lists(packed) == lists
        assert packed.lengths.tolist() == list(map(len, lists))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_joined_and_chosen_lists_keep_the_type_asked_for(dtype: type[np.integer]) -> None:
    joined = Ragged.joined([[4], [], [5, 6]], dtype=dtype)
    assert joined.values.dtype == joined.take(np.array([2, 0])).values.dtype == dtype


@given(LISTS.filter(len), some.data())
def test_chosen_lists_are_those_of_plain_indexing(lists: list[list[int]], data: DataObject) -> None:
    chosen = data.draw(some.lists(some.integers(0, len(lists) - 1), max_size=8))
    taken = Ragged.of(lists).take(np.array(chosen, dtype=np.int64))
    assert as_lists(taken) == [lists[number] for number in chosen]
    assert taken.offsets[0] == 0


@given(LISTS, NUMBERS)
def test_an_empty_list_is_filled_and_no_other(lists: list[list[int]], number: int) -> None:
    assert as_lists(Ragged.of(lists).filled(number)) == [one or [number] for one in lists]


@given(LISTS, some.integers(0, 4), NUMBERS)
def test_further_lists_hold_one_number_each(lists: list[list[int]], more: int, number: int) -> None:
    assert as_lists(Ragged.of(lists).extended(len(lists) + more, number)) == lists + [[number]] * more


@given(LISTS, LISTS)
def test_lists_follow_each_other(first: list[list[int]], second: list[list[int]]) -> None:
    assert as_lists(Ragged.of(first).followed_by(Ragged.of(second))) == first + second


@given(LISTS, some.data())
def test_entries_left_out_leave_the_others_in_their_lists(lists: list[list[int]], data: DataObject) -> None:
    entries = sum(map(len, lists))
    keep = data.draw(some.lists(some.booleans(), min_size=entries, max_size=entries))
    left, flags = [], iter(keep)
    for one in lists:
        left.append([value for value in one if next(flags)])
    assert as_lists(Ragged.of(lists).where(np.array(keep, dtype=bool))) == left


@given(LISTS)
def test_an_entry_tells_its_list_past_empty_ones(lists: list[list[int]]) -> None:
    owners = [number for number, one in enumerate(lists) for _ in one]
    assert [Ragged.of(lists).list_of(entry) for entry in range(len(owners))] == owners


def test_numbers_take_32_bits_as_long_as_all_fit() -> None:
    largest = 2**31 - 1
    assert compact(np.array([0, largest])).dtype == np.int32
    assert compact(np.array([0, largest + 1])).dtype == np.int64


@given(some.lists(some.tuples(FEW_NUMBERS, FEW_NUMBERS), min_size=1, max_size=6))
def test_connected_units_are_those_that_a_plain_loop_joins(units: list[tuple[list[int], list[int]]]) -> None:
    """Numbers of one kind of list connect, equal numbers of two kinds do not."""
    groups = list(range(len(units)))
    for first, unit in enumerate(units):
        for second, other in enumerate(units):
            if any(set(mine) & set(theirs) for mine, theirs in zip(unit, other, strict=True)):
                joined, left = groups[second], groups[first]
                groups = [left if group == joined else group for group in groups]
    found = connected(*(Ragged.of(kind) for kind in zip(*units, strict=True)))
    same_group = [[one == other for other in groups] for one in groups]
    assert (found[:, None] == found).tolist() == same_group
