"""What goes into one step: rows in a random order that any step can be found in again; and into the batches of a validation."""

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from adiabat.core.ragged import compact
from adiabat.data.text_hashes import hash_texts

ORDER, NEGATIVES, DROPOUT, MIXTURE, ARRANGEMENT, WINDOW = range(6)
"""Streams of random numbers under one seed, told apart so that drawing from one never shifts another."""


@runtime_checkable
class BatchSampler(Protocol):
    """Batches of rows, each of which follows from the number of its step alone: a resumed run needs no saved state."""

    @property
    def pairs(self) -> int:
        """Rows of a pass, one that comes twice counting twice."""

    def rows(self, step: int) -> Int[np.ndarray, " b"]:
        """Rows of one step."""

    def batches(self, number: int) -> int:
        """Batches that end in a pass."""

    def left_out(self, number: int) -> int:
        """Rows of a pass that are in no batch."""


class ShuffledBatches:
    """Endless batches of one size out of one random permutation after another; one at the end of a permutation goes on in the next."""

    def __init__(self, count: int, batch_size: int, *, seed: int, stream: int = 0, first_step: int = 0) -> None:
        """Set up."""
        self.pairs = count
        self._size = batch_size
        self._seed = seed
        self._stream = stream
        self._first_step = first_step
        self._pass = -1
        self._order = np.empty(0, dtype=np.int64)

    def rows(self, step: int) -> Int[np.ndarray, " b"]:
        """Rows of one step."""
        first, end = ((step - self._first_step + more) * self._size for more in (0, 1))
        blocks = []
        while first < end:
            number, position = divmod(first, self.pairs)
            block = self._permutation(number)[position : position + end - first]
            blocks.append(block)
            first += len(block)
        return np.concatenate(blocks).astype(np.int64)

    def batches(self, number: int) -> int:
        """Batches that end in a pass."""
        return (number + 1) * self.pairs // self._size - number * self.pairs // self._size

    def left_out(self, number: int) -> int:
        """None: what is left of a pass begins the next batch."""
        del number
        return 0

    def _permutation(self, number: int) -> Int[np.ndarray, " n"]:
        if number != self._pass:
            order = np.random.default_rng([self._seed, ORDER, number, self._stream]).permutation(self.pairs)
            self._pass, self._order = number, compact(order)
        return self._order


def step_generator(seed: int, step: int) -> np.random.Generator:
    """Random numbers of one step, for drawing negatives."""
    return np.random.default_rng([seed, NEGATIVES, step])


def step_seed(seed: int, step: int) -> int:
    """What to seed torch's generator with before one step, for dropout."""
    return int(np.random.SeedSequence([seed, DROPOUT, step]).generate_state(1, np.uint64)[0])


def window_seed(seed: int, number: int) -> int:
    """What the orders of a window of a stream are drawn from."""
    return int(np.random.SeedSequence([seed, WINDOW, number]).generate_state(1, np.uint64)[0])


def text_order(texts: Iterable[str]) -> Int[np.ndarray, " n"]:
    """An order like a random one that follows from the texts alone, whatever order they come in.

    One text more, or less, leaves all others in their order.
    """
    return np.argsort(hash_texts(list(texts)), kind="stable")


def validation_batches(order: Int[np.ndarray, " n"], size: int, *, full: bool) -> Iterator[tuple[Int[np.ndarray, " b"], int]]:
    """Batches of a validation, whose loss is the mean of theirs, weighted.

    One row more, or less, anywhere in the order exchanges at most one row of each batch.
    """
    for start in range(0, len(order), size):
        end = min(start + size, len(order))
        yield order[max(0, end - size) if full else start : end], end - start
