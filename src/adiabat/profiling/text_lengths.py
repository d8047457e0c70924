"""Lengths, truncation, languages and scripts of texts, and uniform samples of a stream.

Scripts come from the Unicode names of letters and are certain. Languages are identified by py3langid where it
is installed (extra ``languages``), and are guesses: short texts say too little, and names, formulas and code
belong to no language.
"""

import importlib.util
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from itertools import takewhile
from math import sqrt
from random import Random
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Int

from adiabat.data.records import Side
from adiabat.profiling.profile_record import Languages, Lengths, Role, Truncation, Unit

if TYPE_CHECKING:
    from adiabat.models.towers import DualEncoder

Measured = Int[np.ndarray, " measured"]
"""The length of each text that was measured."""

Item = TypeVar("Item")

PERCENTS = (0, 5, 25, 50, 75, 95, 99, 100)
"""Quantiles of lengths in a record."""

_BELOW_ONE = 1 - 2**-53
"""The largest number below 1: a weight of 1 would have no finite logarithm of ``1 - w``."""
_BATCH_TEXTS = 256
_BATCH_CHARACTERS = 1_000_000
"""Number of texts tokenised at a time: tokenizers are fast only in batches, and larger ones would take
memory."""
_Z_95 = 1.959963985
"""97.5 % quantile of the normal distribution: 95 % lie between its negative and it."""


class Sample(Generic[Item]):
    """Up to `size` items drawn without replacement from a stream: every set of items is equally likely.

    The items between two that are drawn are skipped without a random number, so that a stream of n items
    costs about ``size (1 + ln(n / size))`` draws.

    Reference:
        Li 1994, algorithm L.
    """

    def __init__(self, size: int, *, seed: str) -> None:
        self.items: list[Item] = []
        self.offered = 0
        self._size = size
        self._random = Random(seed)
        self._weight = 1.0
        self._next = 0

    def offer(self) -> int | None:
        """Offer the next item of the stream; returns its slot for `put`, or None if it is not drawn."""
        number, self.offered = self.offered, self.offered + 1
        # The first items fill the sample.
        if number < self._size:
            if self.offered == self._size:
                self._skip(number)
            return number
        if not self._size or number < self._next:
            return None
        self._skip(number)
        return self._random.randrange(self._size)

    def put(self, slot: int, item: Item) -> None:
        """Store a drawn item."""
        if slot == len(self.items):
            self.items.append(item)
        else:
            self.items[slot] = item

    def _skip(self, number: int) -> None:
        """Decide which item behind that number is drawn next."""
        # The largest random key of the drawn items shrinks with each one, as in algorithm L.
        self._weight = min(self._weight * math.exp(math.log(self._uniform()) / self._size), _BELOW_ONE)
        self._next = number + 1 + math.floor(math.log(self._uniform()) / math.log1p(-self._weight))

    def _uniform(self) -> float:
        """Above 0, at most 1."""
        return 1 - self._random.random()


def percent(share: float) -> str:
    """A share with one decimal; neither 0 nor 100 % unless it is exactly that."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def share_of(count: int, total: int) -> str:
    """A count as a share, 0 of an empty total."""
    return percent(count / total if total else 0.0)


@runtime_checkable
class TokenCounter(Protocol):
    """A model, as far as lengths are concerned."""

    @property
    def name(self) -> str:
        """Name of the model."""

    def limit(self, side: Side) -> int:
        """Tokens to which texts of a side are truncated."""

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        """Tokens of each text with prompt and special tokens, before truncation."""


class ModelTokens:
    """The `TokenCounter` of a dual encoder: each side by the tokenizer, prompt and limit of its own tower."""

    def __init__(self, model: "DualEncoder") -> None:
        self._model = model

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._model.name

    def limit(self, side: Side) -> int:
        """Tokens to which texts of a side are truncated."""
        return self._model.tower(side).settings.limit(side)

    def count(self, texts: Sequence[str], *, side: Side) -> list[int]:
        """Tokens of each text with prompt and special tokens, before truncation."""
        if not texts:
            return []
        tower = self._model.tower(side)
        prompt = tower.settings.prompt(side)
        token_ids = tower.tokenizer(
            [prompt + text for text in texts],
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # No warnings on texts beyond the limit, which are counted here.
        )["input_ids"]
        return [len(ids) for ids in token_ids]


class TokenSample:
    """Token counts of texts drawn at random from a stream; only texts of the next batch are in memory."""

    def __init__(self, role: Role, counter: TokenCounter, size: int, *, seed: int) -> None:
        self.side: Side = "query" if role == "query" else "document"
        self.counter = counter
        self._counts: Sample[int] = Sample(size, seed=f"{seed} tokens {role}")
        self._batch: list[tuple[int, str]] = []
        self._characters = 0

    def add(self, text: str) -> None:
        """Offer one text."""
        slot = self._counts.offer()
        if slot is None:
            return
        self._batch.append((slot, text))
        self._characters += len(text)
        if len(self._batch) >= _BATCH_TEXTS or self._characters >= _BATCH_CHARACTERS:
            self._count_batch()

    def counts(self) -> Int[np.ndarray, " sample"]:
        """The counts of the drawn texts, in no particular order."""
        self._count_batch()
        return np.array(self._counts.items, dtype=np.int64)

    def _count_batch(self) -> None:
        """Count the tokens of the waiting texts."""
        counts = self.counter.count([text for _, text in self._batch], side=self.side)
        for (slot, _), count in zip(self._batch, counts, strict=True):
            self._counts.put(slot, count)
        self._batch.clear()
        self._characters = 0


def lengths(role: Role, unit: Unit, values: Measured, *, texts: int) -> Lengths:
    """Summarise the lengths of at least one text."""
    quantiles = np.percentile(values, PERCENTS, method="inverted_cdf").astype(int).tolist()
    pairs = tuple(zip(PERCENTS, quantiles, strict=True))
    return Lengths(role, unit, len(values), texts, float(values.mean()), pairs, histogram(values))


def histogram(values: Measured) -> tuple[tuple[int, int, int], ...]:
    """Count lengths in bars that double: 0, 1, 2, 3-4, 5-8, 9-16 and so on, because lengths of texts differ
    by factors.

    Returns (shortest, longest, texts) of each bar, from the first to the last that is not empty.
    """
    # The bar of n > 0 is the number of bits of n - 1, plus one for the bar of zero.
    bars = np.where(values > 0, 1 + np.ceil(np.log2(np.maximum(values, 1))).astype(np.int64), 0)
    rows, longest_before = [], -1
    for bar, count in enumerate(np.bincount(bars).tolist()):
        longest = 2 ** (bar - 1) if bar else 0
        rows.append((longest_before + 1, longest, count))
        longest_before = longest
    return tuple(rows[int(bars.min()) :])


def truncation(role: Role, counts: Measured, limit: int, *, texts: int) -> Truncation:
    """Count the texts that a limit truncates, and the tokens lost."""
    cut = int((counts > limit).sum())
    # Tokens beyond the limit, as a share of all tokens.
    lost = np.maximum(counts - limit, 0).sum() / max(counts.sum(), 1)
    # A share that was counted among all texts is exact.
    interval = wilson(cut, len(counts)) if len(counts) < texts else None
    return Truncation(role, limit, len(counts), cut, cut / len(counts), interval, float(lost))


def wilson(count: int, sample: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share that was counted in a sample, which also holds near 0 and 1.

    ``(p + z^2/2n +- z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n)``
    """
    share, square = count / sample, _Z_95 * _Z_95 / sample
    centre = share + square / 2
    margin = _Z_95 * sqrt(share * (1 - share) / sample + square / (4 * sample))
    low, high = (centre - margin) / (1 + square), (centre + margin) / (1 + square)
    return max(0.0, low), min(1.0, high)


SAMPLED_CHARACTERS = 300
"""First characters of a text by which its language is identified: the sample of a data set of books must fit
into memory."""

MIN_PROBABILITY = 0.5
"""Below this a text counts as unsure. Among texts in 20 languages (XNLI, XQuAD, TyDi QA) that py3langid 0.4
identifies with more, 97.8 % are right below 20 letters and 99.5 % above; among English headlines, two in
three of which stay unsure, 97.7 %. A higher bar makes fewer
errors but biases the shares: more texts stay unsure in languages that have near relatives."""

Identifier = Callable[[str], tuple[str, float]]
"""Text to the code of its language and the probability of it."""

_NO_SCRIPT = "none"

_NAME_ENDS = (
    "LETTER",
    "SYLLABLE",
    "SYLLABICS",
    "CHARACTER",
    "CAPITAL",
    "SMALL",
    "UNIFIED",
    "COMPATIBILITY",
    "IDEOGRAPH",
    "SIGN",
    "VOWEL",
)
"""Words that follow the script in the name of a letter: ``LATIN`` SMALL LETTER A, ``CJK`` UNIFIED
IDEOGRAPH-4E00."""


def script_of(text: str) -> str:
    """The script of most of a text's letters.

    A text with kana is Japanese, whose ideographs do not make it Chinese: kana and Han together are ``Han and
    kana``.
    """
    if text.isascii():
        return "Latin" if any(map(str.isalpha, text)) else _NO_SCRIPT
    letters = map(_script_of_letter, unicodedata.normalize("NFKC", text))
    counts: Counter[str] = Counter(filter(None, letters))
    kana = counts["Hiragana"] + counts["Katakana"]
    if kana and counts["Han"]:
        counts["Han and kana"] = kana + counts["Han"]
    if not counts.total():
        return _NO_SCRIPT
    return _most_frequent_first(counts)[0][0]


@lru_cache(maxsize=1 << 16)
def _script_of_letter(letter: str) -> str:
    """Script of a letter, "" for characters other than letters, such as digits, marks and punctuation, or
    whose name has no script.
    """
    words = unicodedata.name(letter, "").split() if letter.isalpha() else []
    script = list(takewhile(lambda word: word.partition("-")[0] not in _NAME_ENDS, words))
    if len(script) == len(words):
        return ""
    name = " ".join(script)
    return {"MODIFIER": "", "CJK": "Han"}.get(name, name.title())


def installed_identifier() -> tuple[str, Identifier] | None:
    """Name with version, and function, of the installed identifier; None without the extra ``languages``."""
    if importlib.util.find_spec("py3langid") is None:
        return None
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    classify: Identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True).classify
    return f"py3langid {version('py3langid')}", classify


def count_languages(
    role: Role,
    sample: Sequence[str],
    *,
    texts: int,
    identifier: tuple[str, Identifier] | None,
    known: Mapping[str, int] | None = None,
) -> Languages:
    """Count languages and scripts; languages that the data names (`known`) are not identified again."""
    scripts = Counter(map(script_of, sample))
    languages: Counter[str] = Counter(known or {})
    name = "the data" if languages else None
    unsure = 0
    # What the data says goes before what a model guesses.
    if not languages and identifier is not None:
        name, identify = identifier
        for code, probability in map(identify, sample):
            if probability >= MIN_PROBABILITY:
                languages[code] += 1
            else:
                unsure += 1
    return Languages(
        role, name, len(sample), texts, _most_frequent_first(languages), unsure, _most_frequent_first(scripts)
    )


def _most_frequent_first(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Names with their counts; equal counts by name."""
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
