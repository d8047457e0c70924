"""Lengths of texts, what a model's limit cuts off, and uniform samples of a stream."""

import math
from collections.abc import Sequence
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int

from adiabat.data.records import Side
from adiabat.profiling.profile_record import Lengths, Role, Truncation

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder

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


def percent(share: float) -> str:
    """A share with one decimal."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return "> 99.9 %" if 0.999 < share < 1 else f"{100 * share:.1f} %"


def share_of(count: int, of: int) -> str:
    """A count as a share."""
    return percent(count / of if of else 0.0)


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


class ModelTokens:
    """The two tokenizers of a model with their prompts and limits, as `adiabat.profiling.text_lengths.TokenCounter` wants them."""

    def __init__(self, model: "DualEncoder") -> None:
        """Take the tokenizers."""
        self._model = model

    @property
    def name(self) -> str:
        """Of the model."""
        return self._model.name

    def limit(self, side: Side) -> int:
        """Where texts are cut."""
        return self._model.tower(side).settings.limit(side)

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        """Tokens of each text with prompt and special tokens, cut nowhere.

        Returns:
            One count per text.
        """
        if not texts:
            return []
        tower = self._model.tower(side)
        prompt = tower.settings.prompt(side)
        encoded = tower.tokenizer(
            [prompt + text for text in texts],
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # or it would warn of every text beyond its limit, which is what is counted here
        )["input_ids"]
        return [len(ids) for ids in encoded]
