"""What pairs of a query and its document have in common with one another: arithmetic on the numbers of their texts."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, UInt64

from adiabat.inspection.digests import numbered
from adiabat.inspection.records import PairCounts


@dataclass(frozen=True, slots=True)
class Listed:
    """The documents that rows list, row after row.

    Attributes:
        digests: Of each document.
        per_row: How many each row lists.
        missing: Of which there is no text in the corpus.
    """

    digests: UInt64[np.ndarray, "listed 2"]
    per_row: Int[np.ndarray, " rows"]
    missing: Bool[np.ndarray, " listed"]

    @property
    def row(self) -> Int[np.ndarray, " listed"]:
        """The row that lists each."""
        return np.repeat(np.arange(len(self.per_row)), self.per_row)


@dataclass(frozen=True, slots=True)
class PairRows:
    """Rows to quote, and to go by.

    Attributes:
        own_answer: Whose document is their query.
        negatives_that_answer: That list a negative which is a positive of the same query.
        missing: That name a document which the corpus does not have.
        most_repeated: The first that has the most repeated positive.
        each: Of each different pair the first that lists it, not to quote but to count by.
    """

    own_answer: list[int]
    negatives_that_answer: list[int]
    missing: list[int]
    most_repeated: int
    each: Int[np.ndarray, " pairs"]


def count_pairs(query: UInt64[np.ndarray, "rows 2"], positives: Listed, negatives: Listed) -> tuple[PairCounts, PairRows]:
    """Count pairs and what repeats in them."""
    numbers = numbered(np.concatenate([query, positives.digests, negatives.digests]))
    asked, near, far = np.split(numbers, [len(query), len(query) + len(positives.digests)])
    # One number for a pair of texts; below 2^63 up to three thousand million texts.
    width = int(numbers.max()) + 1
    pair = asked[positives.row] * width + near
    distinct, came_first = np.unique(pair, return_index=True)
    documents, times = np.unique(near, return_counts=True)
    own = asked[positives.row] == near
    answers = np.isin(asked[negatives.row] * width + far, distinct)
    counts = PairCounts(
        pairs=len(pair),
        distinct_pairs=len(distinct),
        unique_documents=len(documents) / len(pair),
        documents_once=int((times == 1).sum()),
        most_repeated=int(times.max()),
        queries_asked_again=len(asked) - len(np.unique(asked)),
        queries_with_several=int((np.unique(distinct // width, return_counts=True)[1] > 1).sum()),
        on_both_sides=len(np.intersect1d(asked, np.concatenate([near, far]))),
        own_answer=int(own.sum()),
        negatives=len(far),
        rows_without_negatives=int((negatives.per_row == 0).sum()),
        negatives_that_answer=int(answers.sum()),
        missing_documents=int(positives.missing.sum() + negatives.missing.sum()),
    )
    first = int(positives.row[np.argmax(near == documents[np.argmax(times)])])
    absent = sorted({*_rows(positives, positives.missing), *_rows(negatives, negatives.missing)})
    each = positives.row[came_first]
    return counts, PairRows(_rows(positives, own), _rows(negatives, answers), absent, first, each)


def _rows(listed: Listed, chosen: Bool[np.ndarray, " listed"]) -> list[int]:
    rows: list[int] = np.unique(listed.row[chosen]).tolist()
    return rows


def in_corpus(listed: Listed, ids: UInt64[np.ndarray, "documents 2"], texts: UInt64[np.ndarray, "documents 2"]) -> Listed:
    """Put texts in the place of ids."""
    numbers = numbered(np.concatenate([ids, listed.digests]))
    distinct, first = np.unique(numbers[: len(ids)], return_index=True)
    row_of = np.full(int(numbers.max(initial=-1)) + 1, -1)
    row_of[distinct] = first
    rows = row_of[numbers[len(ids) :]]
    digests = np.where((rows >= 0)[:, None], texts[rows], listed.digests)
    return Listed(digests, listed.per_row, rows < 0)
