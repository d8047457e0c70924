"""Ranking measures from where the relevant documents stand, for measures that depend on nothing else.

A ranking is judged by ir-measures as ever. But rankings in which documents of equal grades stand in equal places have equal measures,
whatever documents these are, and there are few such patterns: with one relevant document and a depth of 100 at most 101. Each is judged
once.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from adiabat.core.ragged import Ragged
from adiabat.stats.ranking_measures import PairCounts, pnd_shares, require_relevant_only, untied_measures
from adiabat.stats.samples import SHARE, Sample

Pattern = tuple[int, tuple[tuple[int, int], ...]]
"""Length of a ranking, and place and grade of each relevant document in order; those that are not in it have its length for a place."""


def measures_of_ranks(
    ranks: Ragged, grades: Ragged, retrieved: Int[np.ndarray, " q"], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query.

    Args:
        ranks: Of each query's relevant documents, each its own, from 0; one from `retrieved` on is not in the ranking.
        grades: Of each of them, above 0.
        retrieved: How many documents each query's ranking has.
        measures: Names as for `adiabat.stats.ranking_measures.ranking_measures`.

    Returns:
        For each name, one value per query; 0 for an empty ranking.

    Raises:
        ConfigError: If a name is unknown or incomplete, or of a measure that also counts documents judged not relevant, of which nothing is
            known here; all such names are listed.
        ValueError: If places, grades and lengths are not of equally many queries.

    Reference:
        Vasilyev et al. 2024; Moiseev et al. 2023.
    """
    require_relevant_only(measures)
    if not len(ranks) == len(grades) == len(retrieved):
        raise ValueError(f"places, grades and found must be of the same queries, got {len(ranks)}, {len(grades)} and {len(retrieved)}")
    patterns, pattern_of = _patterns(ranks, grades, retrieved)
    values = _judged(patterns, measures)
    return {name: each[pattern_of] for name, each in values.items()}


def _patterns(ranks: Ragged, grades: Ragged, retrieved: Int[np.ndarray, " q"]) -> tuple[list[Pattern], Int[np.ndarray, " q"]]:
    """Those that there are, and which of them each query has."""
    patterns: list[Pattern] = []
    pattern_of = np.zeros(len(retrieved), dtype=np.int64)
    capped = np.minimum(ranks.values, np.repeat(retrieved, ranks.lengths))
    for length in np.unique(ranks.lengths).tolist():
        queries = np.flatnonzero(ranks.lengths == length)
        entries = ranks.offsets[queries][:, None] + np.arange(length)
        order = np.lexsort((grades.values[entries], capped[entries]), axis=1)
        entries = np.take_along_axis(entries, order, axis=1)
        rows = np.concatenate([retrieved[queries][:, None], capped[entries], grades.values[entries]], axis=1)
        distinct, number = np.unique(rows, axis=0, return_inverse=True)
        pattern_of[queries] = len(patterns) + number.ravel()
        patterns += [(row[0], tuple(zip(row[1 : length + 1], row[length + 1 :], strict=True))) for row in distinct.tolist()]
    return patterns, pattern_of


def _judged(patterns: Sequence[Pattern], measures: Sequence[str]) -> dict[str, Float[np.ndarray, " p"]]:
    """Documents go by their place; patterns of one length share one ranking."""
    rankings = {length: {str(rank): float(length - rank) for rank in range(length)} for length in {length for length, _ in patterns}}
    run = {str(number): rankings[length] for number, (length, _) in enumerate(patterns)}
    qrels = {
        str(number): {str(rank) if rank < length else f"beyond {which}": grade for which, (rank, grade) in enumerate(relevant)}
        for number, (length, relevant) in enumerate(patterns)
    }
    return untied_measures(run, qrels, measures)


def pnd_samples(counts: PairCounts, *, similarity: str) -> list[Sample]:
    """The two forms of the positive-negative discrepancy, ``PND`` (mean over queries) and ``PND pooled``.

    Only the pooled one counts pairs as the two-proportion test does: the mean over queries weighs them otherwise, and may even change the
    other way.

    Args:
        counts: Of every query.
        similarity: What ranked the documents.

    Returns:
        The mean first; a query without pairs weighs nothing in either.

    Raises:
        ValueError: If a query has fewer pairs than errors.

    Reference:
        Vasilyev et al. 2024.
    """
    compared = (counts.pairs > 0).astype(np.float64)
    shares = pnd_shares(counts.errors, counts.pairs)
    mean = Sample("PND", shares, similarity, reference=compared, lower_is_better=True, bounds=SHARE)
    errors, pairs = counts.errors.astype(np.float64), counts.pairs.astype(np.float64)
    return [mean, Sample("PND pooled", errors, similarity, reference=pairs, lower_is_better=True, proportion=True, bounds=SHARE)]
