"""How long texts are, and what of them a model's limit cuts off."""

from collections.abc import Sequence
from math import sqrt
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from adiabat.data.records import Side
from adiabat.inspection.records import Lengths, Role, Truncation
from adiabat.inspection.sampling import Sample

PERCENTS = (0, 5, 25, 50, 75, 95, 99, 100)

_BLOCK_TEXTS = 256
_BLOCK_CHARACTERS = 1_000_000
"""Texts wait until there are so many, because tokenizers are quick only with many at once, but no longer, for the sake of memory."""

_Z = 1.959963985


@runtime_checkable
class TokenCounter(Protocol):
    """A model, as far as lengths go."""

    @property
    def name(self) -> str:
        """Of the model, for tables."""

    def limit(self, side: Side) -> int:
        """Where texts of a side are cut, in tokens."""

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        """Tokens of each text as they would be without a limit."""


class TokenSample:
    """Token counts of texts drawn at random from a stream; only texts that wait to be counted are held."""

    def __init__(self, role: Role, counter: TokenCounter, size: int, *, seed: int) -> None:
        """Begin with none."""
        self.side: Side = "query" if role == "query" else "document"
        self.counter = counter
        self._counts: Sample[int] = Sample(size, seed=f"{seed} tokens {role}")
        self._waiting: list[tuple[int, str]] = []
        self._characters = 0

    def add(self, text: str) -> None:
        """Offer one text."""
        place = self._counts.place()
        if place is None:
            return
        self._waiting.append((place, text))
        self._characters += len(text)
        if len(self._waiting) >= _BLOCK_TEXTS or self._characters >= _BLOCK_CHARACTERS:
            self._count()

    def counts(self) -> Int[np.ndarray, " drawn"]:
        """The counts of those drawn, in no meaningful order."""
        self._count()
        return np.array(self._counts.items, dtype=np.int64)

    def _count(self) -> None:
        counts = self.counter.count([text for _, text in self._waiting], side=self.side)
        for (place, _), count in zip(self._waiting, counts, strict=True):
            self._counts.keep(place, count)
        self._waiting.clear()
        self._characters = 0


def lengths(role: Role, unit: Literal["tokens", "words", "characters"], values: Int[np.ndarray, " measured"], *, texts: int) -> Lengths:
    """Sum up lengths.

    Args:
        values: One per text looked at, at least one.
    """
    quantiles = np.percentile(values, PERCENTS, method="inverted_cdf")
    pairs = tuple((percent, int(value)) for percent, value in zip(PERCENTS, quantiles, strict=True))
    return Lengths(role, unit, len(values), texts, float(values.mean()), pairs, histogram(values))


def histogram(values: Int[np.ndarray, " measured"]) -> tuple[tuple[int, int, int], ...]:
    """Count lengths in bars that double: 0, 1, 2, 3-4, 5-8, 9-16 and so on, because lengths of texts differ by factors.

    Returns:
        (shortest, longest, texts) of each bar, from the first to the last that is not empty.
    """
    # The bar of n > 0 is the number of bits of n - 1, plus one for the bar of zero.
    bars = np.where(values > 0, 1 + np.ceil(np.log2(np.maximum(values, 1))).astype(np.int64), 0)
    counts = np.bincount(bars)
    edges = [0, *(2**power for power in range(len(counts)))]
    rows = [(edges[bar - 1] + 1 if bar else 0, edges[bar], int(count)) for bar, count in enumerate(counts)]
    return tuple(rows[int(bars.min()) :])


def truncation(role: Role, counts: Int[np.ndarray, " measured"], limit: int, *, texts: int) -> Truncation:
    """What a limit cuts off."""
    cut = int((counts > limit).sum())
    lost = np.maximum(counts - limit, 0).sum() / max(counts.sum(), 1)
    interval = wilson(cut, len(counts)) if len(counts) < texts else None
    return Truncation(role, limit, len(counts), cut, cut / len(counts), interval, float(lost))


def wilson(count: int, of: int) -> tuple[float, float]:
    """95 % interval of a share that was counted in a sample; unlike the usual one it is right near 0 and 1.

    ``(p + z^2/2n +- z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n)``
    """
    share, square = count / of, _Z * _Z / of
    centre = share + square / 2
    reach = _Z * sqrt(share * (1 - share) / of + square / (4 * of))
    return max(0.0, (centre - reach) / (1 + square)), min(1.0, (centre + reach) / (1 + square))
