"""Lists of unequal length as flat arrays, what they connect, and integers in the smallest type that holds
them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import numpy as np
from jaxtyping import Bool, Int


@dataclass(frozen=True, slots=True)
class Ragged:
    """Lists of numbers as one array of values, with the offsets of each list and of the end.

    List ``i`` is ``values[offsets[i] : offsets[i + 1]]``. Millions of short lists thus take two arrays.
    """

    values: Int[np.ndarray, " entries"]
    offsets: Int[np.ndarray, " lists_and_one"]

    @classmethod
    def of(cls, lists: Iterable[Sequence[int] | Int[np.ndarray, " _"]]) -> Self:
        """Pack lists into one array."""
        arrays = [np.asarray(numbers, dtype=np.int64) for numbers in lists]
        return cls(np.concatenate([np.empty(0, dtype=np.int64), *arrays]), np.cumsum([0, *map(len, arrays)]))

    @classmethod
    def joined(cls, lists: Sequence[Sequence[int]], *, dtype: type[np.integer] = np.int64) -> Self:
        """Pack lists of Python integers into one array of a type, without an array for each."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        values = np.fromiter(chain.from_iterable(lists), dtype=dtype, count=int(lengths.sum()))
        return cls(values, np.concatenate([[0], np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int[np.ndarray, " n"]:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, " lists"]:
        """Length of each list."""
        return np.diff(self.offsets)

    def list_of(self, entry: int) -> int:
        """Number of the list that holds an entry."""
        return int(np.searchsorted(self.offsets, entry, side="right")) - 1

    def filled(self, number: int) -> "Ragged":
        """The lists, each empty one with a number in it."""
        # Each number that is put in moves the ends of its list and of all later ones by one.
        empty = self.lengths == 0
        values = np.insert(self.values, self.offsets[:-1][empty], number)
        return Ragged(values, self.offsets + np.concatenate([[0], np.cumsum(empty)]))

    def extended(self, count: int, number: int) -> "Ragged":
        """These lists, and further ones with a number in each, `count` lists in all."""
        added = np.full(count - len(self), number, dtype=self.values.dtype)
        ends = self.offsets[-1] + np.arange(1, len(added) + 1)
        return Ragged(np.concatenate([self.values, added]), np.concatenate([self.offsets, ends]))

    def where(self, keep: Bool[np.ndarray, " entries"]) -> "Ragged":
        """The lists without some entries."""
        # An entry's new place is the number of kept entries before it, and so is the start of a list.
        return Ragged(self.values[keep], np.concatenate([[0], np.cumsum(keep)])[self.offsets])

    def followed_by(self, other: "Ragged") -> "Ragged":
        """These lists, then those of another."""
        values = np.concatenate([self.values, other.values])
        return Ragged(values, np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]))

    def take(self, lists: Int[np.ndarray, " n"]) -> "Ragged":
        """A selection of the lists."""
        lengths = self.offsets[lists + 1] - self.offsets[lists]
        ends = np.cumsum(lengths)
        # Each entry's place in its list, plus where the list starts.
        places = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
        entries = places + np.repeat(self.offsets[lists], lengths)
        return Ragged(self.values[entries], np.concatenate([[0], ends]))


def compact(numbers: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    """Convert to 32 bits if all numbers fit."""
    return numbers.astype(np.int32) if numbers.max(initial=0) <= np.iinfo(np.int32).max else numbers


def connected(*lists: Ragged) -> Int[np.ndarray, " n"]:
    """Number of each unit's connected group: units are connected if their lists of the same argument share a
    number.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # A graph of two kinds of nodes: units, and behind them the numbers that lists share, each kind of lists
    # with numbers of its own. A unit is joined to each of its numbers.
    units, keys = len(lists[0]), 0
    ends: list[Int[np.ndarray, " _"]] = []
    for shared in lists:
        distinct, numbers = np.unique(shared.values, return_inverse=True)
        ends.append(np.stack([np.repeat(np.arange(units), shared.lengths), units + keys + numbers]))
        keys += distinct.size
    rows, columns = np.concatenate(ends, axis=1)
    graph = coo_array(
        (np.ones(rows.size, dtype=np.bool_), (rows, columns)), shape=(units + keys, units + keys)
    )
    components = connected_components(graph, directed=False)[1][:units]
    return np.unique(components, return_inverse=True)[1]
