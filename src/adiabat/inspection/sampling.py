"""A uniform sample of a stream whose length nobody knows."""

import math
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")

_BELOW_ONE = 1 - 2**-53


class Sample(Generic[T]):
    """Up to `size` items drawn without replacement: every set of items of the stream is as likely as any other.

    The items between two that are kept are skipped without a draw, so that a stream of n costs about ``size (1 + ln(n / size))`` draws.

    Reference:
        Li 1994, algorithm L.
    """

    def __init__(self, size: int, *, seed: str) -> None:
        """Begin with none."""
        self.items: list[T] = []
        self.seen = 0
        self._size = size
        self._random = Random(seed)
        self._weight = 1.0
        self._next = 0

    def place(self) -> int | None:
        """Ask about the next item of the stream, once for each.

        Returns:
            Where `keep` is to put it, or None where it is not drawn.
        """
        number, self.seen = self.seen, self.seen + 1
        if number < self._size:
            if self.seen == self._size:
                self._skip(number)
            return number
        if not self._size or number < self._next:
            return None
        self._skip(number)
        return self._random.randrange(self._size)

    def keep(self, place: int, item: T) -> None:
        """Put an item where `place` said."""
        if place == len(self.items):
            self.items.append(item)
        else:
            self.items[place] = item

    def _skip(self, number: int) -> None:
        self._weight = min(self._weight * math.exp(math.log(self._drawn()) / self._size), _BELOW_ONE)
        self._next = number + 1 + math.floor(math.log(self._drawn()) / math.log1p(-self._weight))

    def _drawn(self) -> float:
        """Above 0, at most 1."""
        return 1 - self._random.random()
