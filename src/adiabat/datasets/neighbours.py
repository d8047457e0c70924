"""Which papers are hard to tell apart: those of the same categories whose abstracts use the most similar words (Vasilyev et al. 2024).

Pure arithmetic: lists of categories and counts of words go in, rows come out. With p and q the shares of words in two texts and
``f(x) = x ln x``, the Jensen-Shannon divergence is

``JS(p, q) = ln 2 + 1/2 sum over words of both texts of f(p) + f(q) - f(p + q)``

since a word of one text alone gives its share of ln 2. So only the postings of a text's own words are walked through, for a block of
candidates at a time. The distance, its square root, has the same order, whatever the base of the logarithm.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32, Int64, Shaped

from adiabat.core.progress import SILENT, Watch

WORD = re.compile(r"[^\W\d_]{2,}")
"""Two letters or more of any script, in lower case; TeX commands and stop words are words like others, numbers and formulas are none."""

RESOLUTION = 1e-12
"""Divergences are told apart by so much, in nats. Their last digits depend on the order of addition, and must not decide between ties."""

BLOCK_SIZE = 2048
"""Candidates turned into postings at once: what a query walks through then stays in a core's cache."""

ASKING_AT_A_TIME = 1024
"""Texts that share the postings of a block: enough to make them worth while, few enough to hear often how far it is."""

Categories = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bags:
    """Texts as counts of words, which are numbered in the order of their first mention.

    Attributes:
        words: Numbers of the words of one text after another, each once per text.
        counts: How often each stands there.
        offsets: Where each text starts; one more entry than texts.
    """

    words: Int32[np.ndarray, " entries"]
    counts: Int32[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " texts_and_one"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def shares(self, rows: Int64[np.ndarray, " n"]) -> tuple[Int32[np.ndarray, " e"], Float64[np.ndarray, " e"], Int64[np.ndarray, " n"]]:
        """Distributions of some of the texts."""
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        parts = _slices(starts, ends)
        totals = np.array([self.counts[part].sum() for part in parts], dtype=np.float64)
        lengths = ends - starts
        return _joined(self.words, parts), _joined(self.counts, parts) / np.repeat(totals, lengths), lengths


def count_words(texts: Iterable[str]) -> Bags:
    """Count the words of texts, by the rule of `WORD`."""
    numbers: dict[str, int] = {}
    words, counts, offsets = array("i"), array("i"), array("q", [0])
    for text in texts:
        found = Counter(WORD.findall(text.lower()))
        words.extend([numbers.setdefault(word, len(numbers)) for word in found])
        counts.extend(found.values())
        offsets.append(len(words))
    return Bags(np.array(words, dtype=np.int32), np.array(counts, dtype=np.int32), np.array(offsets, dtype=np.int64))


def from_small_to_large(categories: Iterable[str], sizes: Mapping[str, int]) -> Categories:
    """Sort the categories of a paper, so that the one that says most about it comes first."""
    return tuple(sorted(set(categories), key=lambda category: (sizes[category], category)))


@dataclass(frozen=True, slots=True)
class Group:
    """Papers whose closest match by categories is the same set of papers.

    Attributes:
        prefix: The longest beginning that each asking paper's list shares with that of any other paper.
        asking: Rows, ascending.
        candidates: Rows, ascending, the asking ones among them: all papers whose list begins so.
    """

    prefix: Categories
    asking: Int64[np.ndarray, " a"]
    candidates: Int64[np.ndarray, " c"]


def groups_of(categories: Sequence[Categories]) -> Iterator[Group]:
    """Find for each paper the papers that match it most closely by its categories: their lists share the longest beginning with its own.

    One such paper is enough. Papers whose first category is nobody else's first are matched by all (the empty prefix).
    """
    sharing: dict[Categories, list[int]] = {}
    for row, labels in enumerate(categories):
        for length in range(len(labels) + 1):
            sharing.setdefault(labels[:length], []).append(row)
    asking: dict[Categories, list[int]] = {}
    for row, labels in enumerate(categories):
        shared = (labels[:length] for length in range(len(labels), -1, -1) if len(sharing[labels[:length]]) > 1)
        asking.setdefault(next(shared, ()), []).append(row)
    for prefix, rows in sorted(asking.items()):
        yield Group(prefix, np.array(rows, dtype=np.int64), np.array(sharing[prefix], dtype=np.int64))


def nearest_of_groups(
    bags: Bags, groups: Iterable[Group], k: int, *, block_size: int = BLOCK_SIZE, watch: Watch = SILENT
) -> Int64[np.ndarray, "n k"]:
    """Find for every paper the `k` closest of its candidates by Jensen-Shannon distance, itself left out."""
    found = np.empty((len(bags), k), dtype=np.int64)
    done = 0
    for group in groups:
        for start in range(0, len(group.asking), ASKING_AT_A_TIME):
            asking = group.asking[start : start + ASKING_AT_A_TIME]
            found[asking] = nearest(bags, asking, group.candidates, k, block_size=block_size)
            done += len(asking)
            watch.progress("nearest papers", done, len(bags))
    return found


def nearest(
    bags: Bags, asking: Int64[np.ndarray, " a"], candidates: Int64[np.ndarray, " c"], k: int, *, block_size: int = BLOCK_SIZE
) -> Int64[np.ndarray, "a k"]:
    """Find for some texts the `k` closest candidates, none of them the text itself."""
    keys = best = np.empty((len(asking), 0), dtype=np.int64)
    for start in range(0, len(candidates), block_size):
        block = Postings.of(bags, candidates[start : start + block_size])
        near = [_nearest_of_block(bags, row, block, k) for row in asking.tolist()]
        # Lower rows come first among equal keys: blocks ascend, and the sort is stable.
        keys = np.concatenate([keys, np.stack([key for key, _ in near])], axis=1)
        best = np.concatenate([best, np.stack([row for _, row in near])], axis=1)
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        keys, best = np.take_along_axis(keys, order, axis=1), np.take_along_axis(best, order, axis=1)
    return _filled_up(best, keys, k)


_NONE = np.iinfo(np.int64).max
"""Key of the text itself: farther than anything."""


def _nearest_of_block(bags: Bags, row: int, block: "Postings", k: int) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Keys and rows of the closest candidates of a block, as many as `k` or the block has; a key is a divergence in `RESOLUTION`."""
    keys = np.rint(block.divergences(bags, row) / RESOLUTION).astype(np.int64)
    place = int(np.searchsorted(block.rows, row))
    if place < len(block.rows) and block.rows[place] == row:
        keys[place] = _NONE
    places = np.arange(len(keys))
    if k < len(keys):
        places = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
    places = places[np.argsort(keys[places], kind="stable")[:k]]
    return keys[places], block.rows[places]


def _filled_up(best: Int64[np.ndarray, "a m"], keys: Int64[np.ndarray, "a m"], k: int) -> Int64[np.ndarray, "a k"]:
    """Repeat the last one found; the text itself, where it is among them, comes last and is none."""
    last = (keys != _NONE).sum(axis=1) - 1
    columns = np.minimum(np.arange(k), last[:, None])
    return np.take_along_axis(best, columns, axis=1)


@dataclass(frozen=True, slots=True)
class Postings:
    """A block of candidates by their words: for each word the candidates that have it.

    Attributes:
        rows: Of the candidates, ascending.
        words: All words of the block, ascending, and -1 behind them, which a search for an unknown word may end at.
        starts: Where the postings of each word start, and where the last ones end.
        owners: Place of a candidate in `rows`, ascending for each word.
        shares: Of the word in that candidate.
        terms: ``f(share)``.
    """

    rows: Int64[np.ndarray, " c"]
    words: Int32[np.ndarray, " w"]
    starts: Int64[np.ndarray, " w"]
    owners: Int64[np.ndarray, " postings"]
    shares: Float64[np.ndarray, " postings"]
    terms: Float64[np.ndarray, " postings"]

    @classmethod
    def of(cls, bags: Bags, rows: Int64[np.ndarray, " c"]) -> "Postings":
        """Turn texts around."""
        words, shares, lengths = bags.shares(rows)
        order = np.argsort(words, kind="stable")
        words, shares, owners = words[order], shares[order], np.repeat(np.arange(len(rows)), lengths)[order]
        starts = np.flatnonzero(np.diff(words, prepend=-1, append=-1))
        return cls(rows, np.append(words, np.int32(-1))[starts], starts, owners, shares, _x_ln_x(shares))

    def divergences(self, bags: Bags, row: int) -> Float64[np.ndarray, " c"]:
        """Jensen-Shannon divergence of one text from each candidate."""
        words, shares, _ = bags.shares(np.array([row]))
        places = np.searchsorted(self.words[:-1], words)
        shared = np.flatnonzero(self.words[places] == words)
        starts, ends = self.starts[places[shared]], self.starts[places[shared] + 1]
        parts, lengths, mine = _slices(starts, ends), ends - starts, shares[shared]
        terms = np.repeat(_x_ln_x(mine), lengths) + _joined(self.terms, parts)
        terms -= _x_ln_x(np.repeat(mine, lengths) + _joined(self.shares, parts))
        sums = np.bincount(_joined(self.owners, parts), weights=terms, minlength=len(self.rows))
        return np.asarray(np.maximum(math.log(2) + 0.5 * sums, 0.0))


def _slices(starts: Int64[np.ndarray, " n"], ends: Int64[np.ndarray, " n"]) -> list[slice]:
    return [slice(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _joined(values: Shaped[np.ndarray, " n"], parts: Sequence[slice]) -> Shaped[np.ndarray, " m"]:
    """Cheaper than an index for each entry."""
    return np.concatenate([values[:0], *(values[part] for part in parts)])


def _x_ln_x(x: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    return np.asarray(x * np.log(x))
