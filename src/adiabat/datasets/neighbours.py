"""Hard negatives among papers: those of the same categories whose abstracts use the most similar words
(Vasilyev et al. 2024).

With p and q the shares of words in two texts and ``f(x) = x ln x``, the Jensen-Shannon divergence is

``JS(p, q) = ln 2 + 1/2 sum over shared words of f(p) + f(q) - f(p + q)``

since a word of one text alone contributes its share of ln 2. Hence only the postings of a text's own words
are read, for a block of candidates at a time. The distance, the square root of the divergence, has the same
order in every base of the logarithm.
"""

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.sparse import csc_array, csr_array

from adiabat.core.progress import SILENT, Watch

CandidateRows = Int64[np.ndarray, " c"]
"""Numbers of the candidates of a block or a group."""

WORD = re.compile(r"[^\W\d_]{2,}")
"""Two letters or more of any script; TeX commands and stop words count as words, numbers and formulas do
not."""

RESOLUTION = 1e-12
"""Divergences, in nats, are rounded to this: their last digits depend on the order of addition and must not
decide between ties."""

BLOCK_SIZE = 2048
"""Candidates whose postings are built together, so that they stay in a core's cache."""

QUERY_BATCH = 1024
"""Texts compared with one block: enough to repay building it, few enough for frequent progress reports."""

_SELF = np.iinfo(np.int64).max
"""Key of the text itself: farther than any other text."""

Categories = tuple[str, ...]


def count_words(texts: Iterable[str]) -> csr_array:
    """The share of each word in each text, in lower case: a row for each text, a column for each word, in the
    order of first appearance.
    """
    numbers: dict[str, int] = {}
    words, shares, offsets = array("i"), array("d"), array("q", [0])
    for text in texts:
        bag = Counter(WORD.findall(text.lower()))
        words.extend([numbers.setdefault(word, len(numbers)) for word in bag])
        shares.extend([count / bag.total() for count in bag.values()])
        offsets.append(len(words))
    shape = len(offsets) - 1, len(numbers)
    return csr_array((np.array(shares), np.array(words, dtype=np.int32), np.array(offsets)), shape=shape)


def sort_by_size(categories: Iterable[str], sizes: Mapping[str, int]) -> Categories:
    """Sort the categories of a paper from small to large: the smallest says most about it."""
    return tuple(sorted(set(categories), key=lambda category: (sizes[category], category)))


@dataclass(frozen=True, slots=True)
class Group:
    """Papers (`queries`) with the same closest match by categories: all papers (`candidates`) whose list
    begins with `prefix`.
    """

    prefix: Categories
    queries: Int64[np.ndarray, " q"]
    candidates: CandidateRows


def groups_of(categories: Sequence[Categories]) -> Iterator[Group]:
    """Group papers by the longest prefix of their category list that another paper's list shares.

    A paper that shares its first category with no other gets the empty prefix, which matches all papers.
    """
    with_prefix: dict[Categories, list[int]] = {}
    for row, names in enumerate(categories):
        # The empty prefix holds every paper.
        for length in range(len(names) + 1):
            with_prefix.setdefault(names[:length], []).append(row)
    queries: dict[Categories, list[int]] = {}
    for row, names in enumerate(categories):
        shared = (
            names[:length] for length in range(len(names), -1, -1) if len(with_prefix[names[:length]]) > 1
        )
        queries.setdefault(next(shared, ()), []).append(row)
    for prefix, rows in sorted(queries.items()):
        yield Group(prefix, np.array(rows, dtype=np.int64), np.array(with_prefix[prefix], dtype=np.int64))


def nearest_of_groups(
    bags: csr_array, groups: Iterable[Group], k: int, *, block_size: int = BLOCK_SIZE, watch: Watch = SILENT
) -> Int64[np.ndarray, "n k"]:
    """Find for every paper the `k` closest of its candidates by Jensen-Shannon distance, the paper itself
    excluded.
    """
    neighbours = np.empty((bags.shape[0], k), dtype=np.int64)
    done = 0
    for group in groups:
        for start in range(0, len(group.queries), QUERY_BATCH):
            queries = group.queries[start : start + QUERY_BATCH]
            neighbours[queries] = nearest(bags, queries, group.candidates, k, block_size=block_size)
            done += len(queries)
            watch.progress("nearest papers", done, bags.shape[0])
    return neighbours


def nearest(
    bags: csr_array,
    queries: Int64[np.ndarray, " q"],
    candidates: CandidateRows,
    k: int,
    *,
    block_size: int = BLOCK_SIZE,
) -> Int64[np.ndarray, "q k"]:
    """Find for some texts the `k` closest candidates, the text itself excluded; where there are fewer, the
    last is repeated.
    """
    keys = rows = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(candidates), block_size):
        block_rows = candidates[start : start + block_size]
        block = bags[block_rows].tocsc()
        closest = [_nearest_in_block(bags, row, block, block_rows, k) for row in queries.tolist()]
        # Equal keys keep ascending rows: blocks ascend, and the sort is stable.
        keys = np.concatenate([keys, np.stack([block_keys for block_keys, _ in closest])], axis=1)
        rows = np.concatenate([rows, np.stack([row_numbers for _, row_numbers in closest])], axis=1)
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        keys, rows = np.take_along_axis(keys, order, axis=1), np.take_along_axis(rows, order, axis=1)
    # The text itself, where it is a candidate, sorts last and is never taken.
    last = (keys != _SELF).sum(axis=1) - 1
    return np.take_along_axis(rows, np.minimum(np.arange(k), last[:, None]), axis=1)


def _nearest_in_block(
    bags: csr_array, row: int, block: csc_array, block_rows: CandidateRows, k: int
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " m"]]:
    """Keys and rows of the closest candidates, as many as `k` or the block has; a key is a divergence in
    units of `RESOLUTION`.
    """
    keys = np.rint(divergences(bags, row, block) / RESOLUTION).astype(np.int64)
    # A text is its own closest candidate, and must not be its negative.
    keys[block_rows == row] = _SELF
    positions = np.arange(len(keys))
    if k < len(keys):
        # All candidates up to the k-th closest, ties among them; sorting these few is cheap.
        positions = np.flatnonzero(keys <= np.partition(keys, k - 1)[k - 1])
    positions = positions[np.argsort(keys[positions], kind="stable")[:k]]
    return keys[positions], block_rows[positions]


def divergences(bags: csr_array, row: int, block: csc_array) -> Float64[np.ndarray, " c"]:
    """Jensen-Shannon divergence of one text from each candidate of a block, in nats."""
    own = slice(bags.indptr[row], bags.indptr[row + 1])
    # The shares in all candidates of each word of the text.
    postings = block[:, bags.indices[own]]
    shares, theirs = np.repeat(bags.data[own], np.diff(postings.indptr)), postings.data
    # The term of each shared word: f(p) + f(q) - f(p + q).
    terms = _x_ln_x(shares) + _x_ln_x(theirs) - _x_ln_x(shares + theirs)
    sums = np.bincount(postings.indices, weights=terms, minlength=block.shape[0])
    return np.asarray(np.maximum(math.log(2) + 0.5 * sums, 0.0))


def _x_ln_x(x: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    """``x ln x`` of shares above zero."""
    return np.asarray(x * np.log(x))
