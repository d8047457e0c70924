"""A ranker of scores that a test makes up, and data sets over it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from adiabat.core.ragged import Ragged
from adiabat.evaluation.ranking import Counts, ShareProgress
from adiabat.store.addressing import AddressedSet


@dataclass(frozen=True)
class GivenRanker:
    """Scores of every query and document, written down."""

    table: Float32[np.ndarray, "q n"]
    min_score: float = -math.inf
    similarity: str = "given"

    @property
    def count(self) -> int:
        return self.table.shape[1]

    def scores(self, queries: slice, rows: Int64[np.ndarray, "q r"]) -> Float32[np.ndarray, "q r"]:
        found = np.take_along_axis(self.table[queries], np.maximum(rows, 0), axis=1)
        return np.where(rows < 0, np.float32(-np.inf), found)

    def count_at_least(
        self,
        queries: slice,
        thresholds: Float32[np.ndarray, "q p"],
        excluded: Ragged,
        removed: Int64[np.ndarray, " r"],
        on_progress: ShareProgress | None = None,
    ) -> Counts:
        if on_progress:
            on_progress(1.0)
        reached = self.table[queries][:, None] >= thresholds[:, :, None]
        for place, rows in enumerate(excluded[number] for number in range(len(excluded))):
            reached[place][:, rows] = False
        apart = reached[:, :, removed].sum(axis=2)
        return reached.sum(axis=2) - apart, apart


Rows = Sequence[Sequence[int]]


def asked(
    positives: Rows,
    *,
    grades: Rows | None = None,
    negatives: Rows | None = None,
    ids: Sequence[str] | None = None,
    queries: Sequence[str] | None = None,
    name: str = "set",
) -> AddressedSet:
    """Queries over rows."""
    numbers = range(len(positives))
    return AddressedSet(
        name,
        list(ids or [f"q{number}" for number in numbers]),
        list(queries or [f"question {number}" for number in numbers])[: len(positives)],
        Ragged.of(positives),
        Ragged.of(grades or [[1] * len(rows) for rows in positives]),
        Ragged.of(negatives or [[]] * len(positives)),
    )
