"""Rows of each training step, from one source or a mixture (Reimers 2021); the order is random and each step
is computed directly.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from adiabat.config.section import Exhausted, MixtureRule
from adiabat.core.ragged import compact
from adiabat.data.text_hashes import hash_texts

Order = Int[np.ndarray, " n"]
"""Rows in the order in which they are drawn."""

Counts = Int[np.ndarray, " s"]
"""Examples of each source."""

Shares = Float[np.ndarray, " s"]
"""Share of each source among the examples; they sum to 1."""

BatchRows = Int[np.ndarray, " b"]
"""Rows of one batch."""

ORDER, NEGATIVES, DROPOUT, MIXTURE, ARRANGEMENT, SHARD = range(6)
"""Random streams under one seed, separate so that draws from one never shift another."""


@runtime_checkable
class BatchSampler(Protocol):
    """Batches of rows that follow from the step number alone, so that a resumed run needs no saved state."""

    @property
    def pairs(self) -> int:
        """Number of rows in a pass; repeated rows count each time."""

    def rows(self, step: int) -> BatchRows:
        """Rows of one step."""

    def batches(self, number: int) -> int:
        """Number of batches that end in a pass."""

    def left_out(self, number: int) -> int:
        """Number of rows of a pass in no batch."""


@dataclass(eq=False, repr=False)
class ShuffledBatches:
    """Endless batches of one size from successive random permutations; a batch may span two permutations.

    Sources of a mixture have a `stream` each, so that their orders differ under one seed.
    """

    pairs: int
    size: int
    _: KW_ONLY
    seed: int
    stream: int = 0
    first_step: int = 0
    _pass: int = field(default=-1, init=False)
    _order: Order = field(init=False)

    def rows(self, step: int) -> BatchRows:
        """Rows of one step."""
        # Counted from the first row of the first pass.
        first = (step - self.first_step) * self.size
        end = first + self.size
        blocks = []
        while first < end:
            number, position = divmod(first, self.pairs)
            block = self._permutation(number)[position : position + end - first]
            blocks.append(block)
            first += len(block)
        return np.concatenate(blocks).astype(np.int64)

    def batches(self, number: int) -> int:
        """Number of batches that end in a pass."""
        return (number + 1) * self.pairs // self.size - number * self.pairs // self.size

    def left_out(self, number: int) -> int:
        """Always 0: the rest of a pass starts the next batch."""
        del number
        return 0

    def _permutation(self, number: int) -> Order:
        """The order of a pass; only that of the latest one is in memory."""
        if number != self._pass:
            # A pass has a generator of its own, so that it can be drawn without those before it.
            order = np.random.default_rng([self.seed, ORDER, number, self.stream]).permutation(self.pairs)
            self._pass, self._order = number, compact(order)
        return self._order


def step_generator(seed: int, step: int) -> np.random.Generator:
    """Random generator of a step, for drawing negatives."""
    return np.random.default_rng([seed, NEGATIVES, step])


def step_seed(seed: int, step: int) -> int:
    """Seed of torch's generator before a step, for dropout."""
    return int(np.random.SeedSequence([seed, DROPOUT, step]).generate_state(1, np.uint64)[0])


def shard_seed(seed: int, number: int) -> int:
    """Seed of the random orders in a shard of a stream."""
    return int(np.random.SeedSequence([seed, SHARD, number]).generate_state(1, np.uint64)[0])


def text_order(texts: Iterable[str]) -> Order:
    """A pseudo-random order that follows from the texts alone, independent of their input order.

    Adding or removing a text leaves the order of all others unchanged.
    """
    return np.argsort(hash_texts(list(texts)), kind="stable")


def validation_batches(order: Order, size: int, *, full: bool) -> Iterator[tuple[BatchRows, int]]:
    """Validation batches; the validation loss is their weighted mean.

    Adding or removing a row changes at most one row of each batch.
    """
    for start in range(0, len(order), size):
        end = min(start + size, len(order))
        # A full last batch repeats rows, which its weight does not count.
        first = max(0, end - size) if full else start
        yield order[first:end], end - start


STEPS_COUNTED = 1_024
"""Rows counted at a time by `drawn_counts`."""


def source_weights(
    sizes: Sequence[int], *, rule: MixtureRule, temperature: float = 1.0, weights: Sequence[float] = ()
) -> Shares:
    """Share of each source among the examples while none has run out.

    ``proportional: w_s ~ n_s``; ``equal: w_s ~ 1``; ``temperature: w_s ~ n_s^(1/T)``, ``T`` > 0, of which 1
    is proportional and infinity equal; ``weights``: as given.
    """
    shares = np.asarray(weights if rule == "weights" else sizes, dtype=np.float64)
    if rule == "equal":
        shares = np.ones(len(sizes))
    elif rule == "temperature":
        shares = shares ** (1.0 / temperature)
    normalised: Shares = shares / shares.sum()
    return normalised


def pass_counts(sizes: Sequence[int], weights: Shares, *, exhausted: Exhausted) -> Counts:
    """Number of examples of each source in a pass.

    ``stop``: until the first source runs out, ``floor(w_s min_r n_r / w_r)``; ``cycle``: until the last
    source does, while others repeat, ``round(w_s max_r n_r / w_r)``; ``drop``: all of each source, where
    sources that run out are left out from then on.
    """
    available = np.asarray(sizes, dtype=np.int64)
    if exhausted == "drop":
        return available
    lengths = available / weights
    if exhausted == "cycle":
        longest: Counts = np.rint(weights * lengths.max()).astype(np.int64)
        return longest
    # A length that is whole except for rounding must not lose its last example.
    whole = np.floor(weights * lengths.min() + 1e-6).astype(np.int64)
    counts: Counts = np.minimum(whole, available)
    return counts


def shard_quotas(number: int, size: int, weights: Shares, *, live: Sequence[bool] | None = None) -> Counts:
    """Number of examples of each source that a shard of a stream should hold.

    ``floor((k + 1) W w_s) - floor(k W w_s)`` for shards of ``W`` examples, so that the total up to any shard
    is exact to one example. Sources that are not `live` have run out and get nothing; the others, at least
    one, share their part. None means all are live.
    """
    shares = weights if live is None else weights * np.asarray(live)
    shares = shares / shares.sum()
    # A whole number that rounding put just below itself must stay whole.
    until = [np.floor(count * size * shares + 1e-6).astype(np.int64) for count in (number, number + 1)]
    quotas: Counts = until[1] - until[0]
    return quotas


def interleaved(counts: Sequence[int], weights: Shares, random: np.random.Generator) -> Order:
    """An order in which every stretch holds sources in the ratio of their weights while none has run out.

    The ``i``-th example of source ``s`` comes at time ``(i + u) / w_s``, ``u`` drawn from [0, 1): the draw
    decides the order within a stretch, and no source is off by more than one example.
    """
    times = []
    for count, weight in zip(counts, weights, strict=True):
        times.append((np.arange(count) + random.random(count)) / weight)
    sources = np.repeat(np.arange(len(counts)), counts)
    order: Order = sources[np.argsort(np.concatenate(times), kind="stable")]
    return order


def drawn_counts(sampler: BatchSampler, sources: Order, *, steps: range, count: int) -> Counts:
    """Number of examples of each source in the batches of some steps; an example drawn twice counts twice."""
    counts = np.zeros(count, dtype=np.int64)
    for start in range(0, len(steps), STEPS_COUNTED):
        rows = np.concatenate([sampler.rows(step) for step in steps[start : start + STEPS_COUNTED]])
        counts += np.bincount(sources[rows], minlength=count)
    return counts


@dataclass(frozen=True)
class Mixture:
    """Passes over several sources whose examples are stored source by source.

    Over the passes, each example of a source is drawn equally often: a pass that draws a part of a source
    continues where the one before ended, in an order that is redrawn whenever the source starts over.
    """

    sizes: tuple[int, ...]
    weights: Shares
    counts: Counts
    seed: int

    def order(self, number: int) -> Order:
        """The examples of a pass, which depend only on its number and the seed."""
        orders, first = [], 0
        for source, (size, count) in enumerate(zip(self.sizes, self.counts.tolist(), strict=True)):
            if count:
                batches = ShuffledBatches(size, count, seed=self.seed, stream=source)
                orders.append(first + batches.rows(number))
            first += size
        if len(orders) == 1:
            return compact(orders[0])
        random = np.random.default_rng([self.seed, MIXTURE, number])
        sources = interleaved(self.counts.tolist(), self.weights, random)
        rows: Order = np.empty(len(sources), dtype=np.int64)
        # The places of each source, in order, take that source's examples in their own order.
        rows[np.argsort(sources, kind="stable")] = np.concatenate(orders)
        return compact(rows)
