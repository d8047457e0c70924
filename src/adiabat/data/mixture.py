"""Several sources as one: how much of each, and in which order (Reimers 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from adiabat.config.section import Exhausted, MixtureRule
from adiabat.core.ragged import compact
from adiabat.data.batch_sampler import MIXTURE, BatchSampler, ShuffledBatches

STEPS_COUNTED = 1_024
"""Together by `drawn_counts`."""


def source_weights(
    sizes: Sequence[int], *, rule: MixtureRule, temperature: float = 1.0, weights: Sequence[float] = ()
) -> Float[np.ndarray, " s"]:
    """Share of each source among the examples, as long as none has run out.

    ``proportional: w_s ~ n_s``; ``equal: w_s ~ 1``; ``temperature: w_s ~ n_s^(1/T)``; ``weights``: as given.

    Args:
        temperature: ``T``, > 0: 1 is proportional, infinity equal. Read by ``temperature``.
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


def window_quotas(number: int, size: int, weights: Float[np.ndarray, " s"], *, live: Sequence[bool] | None = None) -> Int[np.ndarray, " s"]:
    """How many examples of each source a window of a stream asks for.

    ``floor((k + 1) W w_s) - floor(k W w_s)``, so that what was asked for up to a window is never off by an example.

    Args:
        live: Which sources have not run out, at least one: the others get nothing, and their shares go to these. None takes all.
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
