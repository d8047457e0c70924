"""What goes into one step: rows in a random order that any step can be found in again; and into the batches of a validation."""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Int

from adiabat.core.ragged import compact
from adiabat.data.text_hashes import hash_texts

ORDER, NEGATIVES, DROPOUT, MIXTURE, ARRANGEMENT, WINDOW = range(6)
"""Streams of random numbers under one seed, told apart so that drawing from one never shifts another."""


class ShuffledStream:
    """An endless stream of rows: one random permutation after another.

    The rows of a step follow from the seed and the step alone, so a resumed run needs no saved state and reads nothing from the start.
    """

    def __init__(self, count: int, *, seed: int, stream: int = 0) -> None:
        """Set the stream up."""
        self.count = count
        self.seed = seed
        self.stream = stream
        self._pass = -1
        self._order = np.empty(0, dtype=np.int64)

    def rows(self, step: int, batch_size: int) -> Int[np.ndarray, " b"]:
        """Rows of one step; a step at the end of a permutation goes on in the next.

        Args:
            batch_size: Rows per step, > 0; may exceed `count`.
        """
        first = step * batch_size
        parts = []
        while first < (step + 1) * batch_size:
            number, position = divmod(first, self.count)
            taken = self._permutation(number)[position : position + (step + 1) * batch_size - first]
            parts.append(taken)
            first += len(taken)
        return np.concatenate(parts).astype(np.int64)

    def _permutation(self, number: int) -> Int[np.ndarray, " n"]:
        if number != self._pass:
            order = np.random.default_rng([self.seed, ORDER, number, self.stream]).permutation(self.count)
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
