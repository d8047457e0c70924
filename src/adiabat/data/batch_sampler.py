"""Rows of each step, of one source or a mixture (Reimers 2021), in a random order that any step can be found in again."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from adiabat.config.section import Exhausted, MixtureRule
from adiabat.core.ragged import compact
from adiabat.data.text_hashes import hash_texts

ORDER, NEGATIVES, DROPOUT, MIXTURE, ARRANGEMENT, SHARD = range(6)
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


def shard_seed(seed: int, number: int) -> int:
    """Seed of the random orders in a shard of a stream."""
    return int(np.random.SeedSequence([seed, SHARD, number]).generate_state(1, np.uint64)[0])


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


STEPS_COUNTED = 1_024
"""Together by `drawn_counts`."""


def source_weights(
    sizes: Sequence[int], *, rule: MixtureRule, temperature: float = 1.0, weights: Sequence[float] = ()
) -> Float[np.ndarray, " s"]:
    """Share of each source among the examples, as long as none has run out.

    ``proportional: w_s ~ n_s``; ``equal: w_s ~ 1``; ``temperature: w_s ~ n_s^(1/T)``, ``T`` > 0, of which 1 is proportional and infinity
    equal; ``weights``: as given.
    """
    if rule == "weights":
        shares = np.asarray(weights, dtype=np.float64)
    elif rule == "equal":
        shares = np.ones(len(sizes))
    else:
        shares = np.asarray(sizes, dtype=np.float64) ** (1.0 if rule == "proportional" else 1.0 / temperature)
    normalised: Float[np.ndarray, " s"] = shares / shares.sum()
    return normalised


def pass_counts(sizes: Sequence[int], weights: Float[np.ndarray, " s"], *, exhausted: Exhausted) -> Int[np.ndarray, " s"]:
    """How many examples of each source one pass takes.

    ``stop``: until the first source has run out, ``floor(w_s min_r n_r / w_r)``; ``cycle``: until the last one has, the others beginning
    anew, ``round(w_s max_r n_r / w_r)``; ``drop``: all of each, a source that has run out being left out from there on.
    """
    available = np.asarray(sizes, dtype=np.int64)
    if exhausted == "drop":
        return available
    lengths = available / weights
    if exhausted == "stop":
        # A length that is whole but for rounding must not lose its last example.
        counts: Int[np.ndarray, " s"] = np.minimum(np.floor(weights * lengths.min() + 1e-6).astype(np.int64), available)
        return counts
    longest: Int[np.ndarray, " s"] = np.rint(weights * lengths.max()).astype(np.int64)
    return longest


def shard_quotas(number: int, size: int, weights: Float[np.ndarray, " s"], *, live: Sequence[bool] | None = None) -> Int[np.ndarray, " s"]:
    """Number of examples of each source that a shard of a stream should hold.

    ``floor((k + 1) W w_s) - floor(k W w_s)``, so that what was asked for up to a shard is never off by an example. Sources that are not
    `live` have run out: they get nothing, and their shares go to the others, of which there is at least one. None takes all.
    """
    shares = weights if live is None else weights * np.asarray(live)
    shares = shares / shares.sum()
    # A whole number that rounding left just below itself stays whole.
    before, after = (np.floor(count * size * shares + 1e-6).astype(np.int64) for count in (number, number + 1))
    quotas: Int[np.ndarray, " s"] = after - before
    return quotas


def interleaved(counts: Sequence[int], weights: Float[np.ndarray, " s"], random: np.random.Generator) -> Int[np.ndarray, " n"]:
    """An order in which every stretch holds sources in the ratio of their weights, as long as none has run out.

    The ``i``-th example of source ``s`` comes at time ``(i + u) / w_s``, ``u`` drawn from [0, 1): what is drawn decides the order within
    a stretch, and no source falls behind or runs ahead by more than one example.
    """
    times = [(np.arange(count) + random.random(count)) / weight for count, weight in zip(counts, weights, strict=True)]
    sources = np.repeat(np.arange(len(counts)), counts)
    order: Int[np.ndarray, " n"] = sources[np.argsort(np.concatenate(times), kind="stable")]
    return order


def drawn_counts(sampler: BatchSampler, sources: Int[np.ndarray, " n"], *, steps: range, count: int) -> Int[np.ndarray, " s"]:
    """How many examples of each source the batches of some steps took, one that was drawn twice counting twice."""
    counts = np.zeros(count, dtype=np.int64)
    for first in range(steps.start, steps.stop, STEPS_COUNTED):
        rows = np.concatenate([sampler.rows(step) for step in range(first, min(first + STEPS_COUNTED, steps.stop))])
        counts += np.bincount(sources[rows], minlength=count)
    return counts


@dataclass(frozen=True)
class Mixture:
    """Passes over several sources whose examples stand one source after another.

    Over the passes each example of a source is taken equally often: a pass that takes a part of a source goes on where the one before
    ended, in an order that is drawn anew whenever the source begins anew.
    """

    sizes: tuple[int, ...]
    weights: Float[np.ndarray, " s"]
    counts: Int[np.ndarray, " s"]
    seed: int

    def order(self, number: int) -> Int[np.ndarray, " n"]:
        """The examples of one pass, which depend on its number and the seed alone."""
        first = np.concatenate([[0], np.cumsum(self.sizes)])
        orders = [
            first[source] + ShuffledBatches(size, int(count), seed=self.seed, stream=source).rows(number)
            for source, (size, count) in enumerate(zip(self.sizes, self.counts, strict=True))
            if count
        ]
        if len(orders) == 1:
            return compact(orders[0])
        random = np.random.default_rng([self.seed, MIXTURE, number])
        sources = interleaved(self.counts.tolist(), self.weights, random)
        rows: Int[np.ndarray, " n"] = np.empty(len(sources), dtype=np.int64)
        rows[np.argsort(sources, kind="stable")] = np.concatenate(orders)
        return compact(rows)
