"""Where the first answer of each query stands among all candidates."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

QUERIES_AT_A_TIME = 512
"""Bounds the scores in memory."""

EXACT = "donot_use_mm_for_euclid_dist"
"""The sum of squared differences: through products, torch's choice for many rows, distances of near texts drown in rounding."""


def ranks_of_answers(
    query: Float[Tensor, "q e"], documents: Float[Tensor, "d e"], answers: Sequence[Int[np.ndarray, " _"]], *, distance: bool
) -> Int[np.ndarray, " q"]:
    """``1 + #{documents that do not answer and score at least as much as the best answer}``.

    Args:
        query: Embeddings as they are to be compared.
        documents: The candidates.
        answers: For each query the rows of the candidates that answer it, at least one.
        distance: Score by minus the Euclidean distance; False scores by the product.

    Returns:
        Ranks from 1; a tie counts against the answer.

    Reference:
        Missions A6 (ties), C5.
    """
    ranks = []
    for start in range(0, len(query), QUERIES_AT_A_TIME):
        rows = query[start : start + QUERIES_AT_A_TIME]
        scores = -torch.cdist(rows, documents, compute_mode=EXACT) if distance else rows @ documents.T
        answered = torch.zeros(scores.shape, dtype=torch.bool, device=scores.device)
        for row, found in enumerate(answers[start : start + QUERIES_AT_A_TIME]):
            answered[row, torch.from_numpy(found)] = True
        best = scores.masked_fill(~answered, -torch.inf).amax(dim=1, keepdim=True)
        # So that what is no number counts as a tie.
        ranks.append(1 + (~(scores < best) & ~answered).sum(dim=1))
    return torch.cat(ranks).cpu().numpy()
