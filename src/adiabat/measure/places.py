"""Ranking measures from where the relevant documents stand: all that they depend on.

A ranking is judged by ir-measures as ever. But rankings in which documents of equal grades stand in equal places have equal measures,
whatever documents these are, and there are few such patterns: with one relevant document and a depth of 100 at most 101. Each is judged
once.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int

from adiabat.data.ragged import Ragged
from adiabat.measure.metrics import untied_measures

Pattern = tuple[int, tuple[tuple[int, int], ...]]
"""Length of a ranking, and place and grade of each relevant document in order; those that are not in it have its length for a place."""


def measures_of_places(
    places: Ragged, grades: Ragged, found: Int[np.ndarray, " q"], measures: Sequence[str]
) -> dict[str, Float[np.ndarray, " q"]]:
    """Ranking measures of every query.

    Args:
        places: Of each query's relevant documents, each its own, from 0; one from `found` on is not in the ranking.
        grades: Of each of them, above 0.
        found: How many documents each query's ranking has.
        measures: Names as for `adiabat.measure.metrics.ranking_measures`.

    Returns:
        For each name, one value per query; 0 for an empty ranking.

    Raises:
        ConfigError: If a name is unknown or incomplete; all such names are listed.
        ValueError: If places, grades and lengths are not of equally many queries.

    Reference:
        Mission A6, C5.
    """
    if not len(places) == len(grades) == len(found):
        raise ValueError(f"places, grades and found must be of the same queries, got {len(places)}, {len(grades)} and {len(found)}")
    numbers: dict[Pattern, int] = {}
    pattern_of = [numbers.setdefault(pattern, len(numbers)) for pattern in _patterns(places, grades, found)]
    values = _judged(list(numbers), measures)
    return {name: each[pattern_of] for name, each in values.items()}


def _patterns(places: Ragged, grades: Ragged, found: Int[np.ndarray, " q"]) -> Iterator[Pattern]:
    """Of each query."""
    shown = np.minimum(places.values, np.repeat(found, places.lengths)).tolist()
    levels, bounds = grades.values.tolist(), places.offsets.tolist()
    for length, start, end in zip(found.tolist(), bounds, bounds[1:], strict=False):
        yield length, tuple(sorted(zip(shown[start:end], levels[start:end], strict=True)))


def _judged(patterns: Sequence[Pattern], measures: Sequence[str]) -> dict[str, Float[np.ndarray, " p"]]:
    """Documents go by their place; patterns of one length share one ranking."""
    rankings = {length: {str(place): float(length - place) for place in range(length)} for length in {length for length, _ in patterns}}
    run = {str(number): rankings[length] for number, (length, _) in enumerate(patterns)}
    qrels = {
        str(number): {str(place) if place < length else f"beyond {which}": grade for which, (place, grade) in enumerate(relevant)}
        for number, (length, relevant) in enumerate(patterns)
    }
    return untied_measures(run, qrels, measures)
