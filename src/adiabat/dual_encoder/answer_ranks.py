"""Where the first answer of each query stands among all candidates, and how many listed pairs are in the wrong order."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.data.pair_sets import PairSet
from adiabat.losses.in_batch import triplet_errors

QUERIES_AT_A_TIME = 512
"""Bounds the scores in memory."""
PAIRS_AT_A_TIME = 4_096
"""Bounds the vectors in memory."""

EXACT = "donot_use_mm_for_euclid_dist"
"""The sum of squared differences: through products, torch's choice for many rows, distances of near texts drown in rounding."""


def ranks_of_answers(
    query: Float[Tensor, "q e"], documents: Float[Tensor, "d e"], answers: Sequence[Int[np.ndarray, " _"]], *, distance: bool
) -> Int[np.ndarray, " q"]:
    """``1 + #{documents that do not answer and score at least as much as the best answer}``."""
    ranks = []
    for start in range(0, len(query), QUERIES_AT_A_TIME):
        rows = query[start : start + QUERIES_AT_A_TIME]
        scores = -torch.cdist(rows, documents, compute_mode=EXACT) if distance else rows @ documents.T
        answered = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        for row, listed in enumerate(answers[start : start + QUERIES_AT_A_TIME]):
            answered[row, torch.from_numpy(listed)] = True
        best = scores.masked_fill(~answered, -torch.inf).amax(dim=1, keepdim=True)
        # So that what is no number counts as a tie.
        ranks.append(1 + (~(scores < best) & ~answered).sum(dim=1))
    return torch.cat(ranks).cpu().numpy()


def listed_pairs(pairs: PairSet) -> int:
    """How many (positive, listed negative) pairs there are."""
    return int(pairs.negatives.lengths[pairs.query].sum())


Vectors = Callable[[Int[np.ndarray, " k"]], Float[Tensor, "k e"]]
"""Gives embeddings of texts by their rows, as they are compared."""


def pair_errors(pairs: PairSet, query: Vectors, document: Vectors, *, distance: bool) -> int:
    """How many (positive, listed negative) pairs are in the wrong order; a tie is an error."""
    negatives = pairs.negatives.take(pairs.query)
    pair, errors = np.repeat(np.arange(len(pairs)), negatives.lengths), 0
    for start in range(0, len(pair), PAIRS_AT_A_TIME):
        block = pair[start : start + PAIRS_AT_A_TIME]
        queries, near = query(pairs.query[block]), document(pairs.positive[block])
        far = document(negatives.values[start : start + PAIRS_AT_A_TIME])
        if distance:
            errors += int(triplet_errors(queries, near, far, distance="euclidean"))
        else:
            errors += int((~((queries * near).sum(dim=1) > (queries * far).sum(dim=1))).sum())
    return errors
