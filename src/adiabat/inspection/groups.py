"""Topics and tags: how many pairs each has, counted as training counts them."""

from array import array
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Int

from adiabat.config.train import TrainSection
from adiabat.inspection.records import GroupKind, Groups, NamedGroup, SmallGroups

NAMES = ("topic", "tag")
"""Columns that say what a row is about, for batches of one kind; the coarser first."""

USUAL_BATCH: int = TrainSection.model_fields["batch_size"].default
"""Pairs of a batch where training is told nothing else."""

BATCH_SIZES = (USUAL_BATCH, 256)
"""For which it is said how many groups are too small: the usual one, and one of a GPU."""

LISTED = 8
"""Largest groups that are named, and tags of each."""

KEPT_CHARACTERS = 100
"""Of a name, so that a column of whole texts that is taken for topics costs little."""


class NameTally:
    """The topic or the tag of each row by its number: 0 is none, the others count from 1 as they first come."""

    def __init__(self) -> None:
        self.names = [""]
        self._numbers = {hash(""): 0}
        self._each = array("i")

    def add(self, name: str) -> None:
        """Note that of one more row.

        Args:
            name: "" where the row has none.
        """
        number = self._numbers.setdefault(hash(name), len(self.names))
        if number == len(self.names):
            self.names.append(name[:KEPT_CHARACTERS])
        self._each.append(number)

    @property
    def numbers(self) -> Int[np.ndarray, " rows"]:
        """Of each row."""
        return np.array(self._each, dtype=np.int64)


def groups_of(read: frozenset[str], topics: NameTally, tags: NameTally, rows: Int[np.ndarray, " pairs"]) -> Iterator[Groups]:
    """Count pairs by what the data says of them.

    Equal tags of different topics are different groups, as they are where batches are made.
    """
    topic, tag, width = topics.numbers[rows], tags.numbers[rows], len(tags.names)

    def named_topic(number: int, size: int) -> NamedGroup:
        inner = tag[(topic == number) & (tag > 0)]
        found, sizes = _largest_first(inner)
        named = tuple((tags.names[one], count) for one, count in zip(found[:LISTED], sizes[:LISTED], strict=True))
        return NamedGroup(topics.names[number], size, tags=named, tag_count=len(found))

    def named_tag(number: int, size: int) -> NamedGroup:
        return NamedGroup(tags.names[number % width], size, within=topics.names[number // width])

    if "topic" in read:
        yield _groups("topic", topic, topic, named_topic)
    if "tag" in read:
        yield _groups("tag", topic * width + tag, tag, named_tag)


def _groups(
    kind: GroupKind, keys: Int[np.ndarray, " pairs"], names: Int[np.ndarray, " pairs"], named: Callable[[int, int], NamedGroup]
) -> Groups:
    """Groups by their keys; a pair whose name is 0 is in none."""
    found, sizes = _largest_first(keys[names > 0])
    return Groups(
        kind=kind,
        pairs=len(keys),
        without=int((names == 0).sum()),
        groups=len(found),
        names=len(np.unique(names[names > 0])),
        largest=tuple(named(key, size) for key, size in zip(found[:LISTED], sizes[:LISTED], strict=True)),
        smallest=named(found[-1], sizes[-1]) if found else None,
        small=tuple(_small(sizes, batch_size) for batch_size in BATCH_SIZES),
    )


def _largest_first(numbers: Int[np.ndarray, " pairs"]) -> tuple[list[int], list[int]]:
    """Each number and how often it stands there; of equally frequent ones the least first."""
    found, counts = np.unique(numbers, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return found[order].tolist(), counts[order].tolist()


def _small(sizes: list[int], batch_size: int) -> SmallGroups:
    small = [size for size in sizes if size < batch_size]
    return SmallGroups(batch_size, len(small), sum(small))
