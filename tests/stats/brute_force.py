"""Measures from their definitions, one pair of vectors at a time."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store

Vector = Float[np.ndarray, " e"]


def pair_score(query: Vector, document: Vector, similarity: str) -> float:
    if similarity == "distance":
        return -math.sqrt(float(((query - document) ** 2).sum()))
    if similarity == "dot":
        return float(query @ document)
    return float(query @ document) / (math.sqrt(query @ query) * math.sqrt(document @ document))


def all_scores(
    model: DualEncoder, store: Store, queries: Sequence[str], similarity: str = "cosine"
) -> list[list[float]]:
    """Score of every query with every document, one pair at a time."""
    vectors = model.encode(queries, side="query", precision="fp32").astype(np.float64)
    documents = store.gather(range(store.count)).astype(np.float64)
    return [[pair_score(query, document, similarity) for document in documents] for query in vectors]


def discrepancy_by_loops(errors: Sequence[int], pairs: Sequence[int]) -> tuple[float, float]:
    """The positive-negative discrepancy as the mean of each query's share, queries without pairs left out;
    and of all pairs together.
    """
    shares = [wrong / of for wrong, of in zip(errors, pairs, strict=True) if of]
    return sum(shares) / len(shares), sum(errors) / sum(pairs)


def errors_and_pairs(
    scores: Sequence[float], positives: Sequence[int], others: Sequence[int]
) -> tuple[int, int]:
    wrong = sum(scores[other] >= scores[positive] for positive in positives for other in others)
    return wrong, len(positives) * len(others)


def rank_measures_by_loops(
    scores: Sequence[float], grades: dict[int, int], candidates: Sequence[int]
) -> dict[str, float]:
    """The four measures of one query, tied documents from the least to the most relevant."""
    ranked = [
        grades.get(row, 0) for row in sorted(candidates, key=lambda row: (-scores[row], grades.get(row, 0)))
    ]
    places = [place for place, grade in enumerate(ranked, 1) if grade > 0]
    gain = sum(grade / math.log2(place + 1) for place, grade in enumerate(ranked[:10], 1))
    ideal = sum(
        grade / math.log2(place + 1)
        for place, grade in enumerate(sorted(grades.values(), reverse=True)[:10], 1)
    )
    return {
        "nDCG@10": gain / ideal,
        "RR": 1 / places[0],
        "AP": sum(found / place for found, place in enumerate(places, 1)) / len(grades),
        "P@1": float(ranked[0] > 0),
    }
