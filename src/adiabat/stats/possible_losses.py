"""The most that a query can lose under any judgement, from its two rankings alone.

Nobody needs to have judged the query: whatever its relevant documents are, they stand somewhere in both
rankings. With D(r) the gain at rank r (0 below the cutoff), document d has lost

    delta_d = max(0, D(rank before) - D(rank after))

nDCG with gains g_d >= 0 loses at most ``sum g_d delta_d / IDCG(g)``, where ``IDCG(g) = sum_i g_(i) D(i)``
over the gains in descending order. By summation by parts g is a sum of c_m >= 0 times the indicator of its m
largest gains, so that IDCG is ``sum_m c_m H(m)`` with ``H(m) = D(1) + ... + D(m)``, and the loss above is at
most ``sum_m c_m Delta(m)`` with Delta(m) the sum of the m largest delta. A ratio of sums is at most the
largest ratio of their terms:

    L = max_m Delta(m) / H(m)

which m equal gains on the m largest delta attain. The reciprocal rank, success and recall lose at most the
largest delta (with one relevant document), and precision the sum of all.

Documents of equal scores: a relevant one counts as the last of its ties (`adiabat.evaluation.ranking`). So
the rank before is the first of its ties, the rank after the last, and delta is 0 where both rankings hold its
ties in the same places.

Reference:
    Järvelin and Kekäläinen 2002 (nDCG); Hardy, Littlewood and Pólya 1934, section 10.2 (rearrangement).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int64

from adiabat.stats.ranking_measures import name_and_cutoff
from adiabat.stats.unit_arrays import Values

_QUERIES = 256
"""Queries at a time: each compares all pairs of two lists."""

Losses = Float[np.ndarray, "q k"]
"""What each document of the lists before has lost."""


def _of_gains(losses: Losses) -> Values:
    """Several relevant documents of any grades share the ideal gain: ``max_m Delta(m) / H(m)``."""
    ideal = np.cumsum(_logarithmic(np.arange(1.0, losses.shape[1] + 1)))
    return np.asarray((np.cumsum(losses, axis=1) / ideal).max(axis=1))


def _of_one(losses: Losses) -> Values:
    """One relevant document loses the most."""
    return np.asarray(losses[:, 0])


def _of_all(losses: Losses) -> Values:
    """Each relevant document counts alike, whatever their number: a share of the cutoff."""
    return np.asarray(losses.mean(axis=1))


def _logarithmic(ranks: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return np.asarray(1 / np.log2(1 + ranks))


_FOUND = np.ones_like
"""A document counts alike at all ranks down to the cutoff."""

BOUNDED: dict[str, tuple[Callable[[Values], Values], Callable[[Losses], Values]]] = {
    "nDCG": (_logarithmic, _of_gains),
    "RR": (np.reciprocal, _of_one),
    "Success": (_FOUND, _of_one),
    "R": (_FOUND, _of_one),
    "P": (_FOUND, _of_all),
}
"""By the name in ir-measures, the gain at a rank, and the loss of a query from those of its documents, the
largest first."""


@dataclass(frozen=True, slots=True)
class TopLists:
    """The best documents of each query by one model.

    Attributes:
        rows: Numbers of the documents, best first, the same numbers for all models; -1 for none.
        scores: Higher is closer; minus infinity for a row of -1.
    """

    rows: Int64[np.ndarray, "q k"]
    scores: Float32[np.ndarray, "q k"]

    def take(self, queries: slice, length: int) -> "TopLists":
        """The beginnings of the lists of some queries."""
        return TopLists(self.rows[queries, :length], self.scores[queries, :length])

    def ties(self) -> tuple[Int64[np.ndarray, "q k"], Int64[np.ndarray, "q k"]]:
        """The first and the last rank, from 1, among the documents that tie with each one."""
        mine, others = self.scores[:, :, None], self.scores[:, None, :]
        return (others > mine).sum(axis=2) + 1, (others >= mine).sum(axis=2)


def length_of_lists(measure: str, depth: int) -> int:
    """Length of the lists that bound a measure's losses: its cutoff, or `depth` without one, and one more to
    see the ties there; 0 for a measure without such a bound.
    """
    name, cutoff = name_and_cutoff(measure)
    return (cutoff or depth) + 1 if name in BOUNDED else 0


def possible_losses(measure: str, before: TopLists, after: TopLists, *, depth: int) -> Values:
    """The most that each query can lose of a measure, whatever its relevant documents are.

    Args:
        measure: Name of the ir-measures grammar that has lists of some length (`length_of_lists`).
        before: Lists of at least that length, padded where there are fewer documents.
        after: Lists of the same length and queries.
        depth: Depth of a measure without a cutoff.

    Returns:
        Losses L in the measure's unit, 0 to 1.
    """
    length = length_of_lists(measure, depth)
    gain_at, of_documents = BOUNDED[name_and_cutoff(measure)[0]]
    # By rank: no document has rank 0, and behind the cutoff there is no gain.
    gains = np.zeros(length + 1)
    gains[1:length] = gain_at(np.arange(1.0, length))
    losses = [np.empty(0)]
    for start in range(0, len(before.rows), _QUERIES):
        block = slice(start, start + _QUERIES)
        lost = _lost(before.take(block, length), after.take(block, length), gains)
        losses.append(of_documents(-np.sort(-lost, axis=1)[:, : length - 1]))
    return np.concatenate(losses)


def _lost(before: TopLists, after: TopLists, gains: Values) -> Losses:
    """What each document of the lists before has lost."""
    length = before.rows.shape[1]
    same = (before.rows[:, :, None] == after.rows[:, None, :]) & (before.rows >= 0)[:, :, None]
    first, last = before.ties()
    # A document that is not listed stands behind all that are.
    later_first, later_last = (
        np.where(same.any(axis=2), (same * ranks[:, None, :]).sum(axis=2), length) for ranks in after.ties()
    )
    # Ties that reach the end of the lists may go on behind it.
    stays = (first == later_first) & (last == later_last) & (last < length)
    lost = np.maximum(gains[first] - gains[later_last], 0.0)
    return np.where(stays | (before.rows < 0), 0.0, lost)
