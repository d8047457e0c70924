"""Losses, pure functions over embeddings: no texts, no devices, no ranks (missions A3, A14, C2).

What there is of each idea, once: `cosine_similarity` normalises, `softmax_cross_entropy` divides by the temperature and leaves out
excluded candidates. A loss with more candidates (hard negatives, other queries) puts more columns into the same score matrix.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Distance = Literal["cosine", "euclidean"]
"""How far two embeddings are apart: ``1 - cos``, or the length of their difference."""


def _unit(embeddings: Float[Tensor, "*rows e"]) -> Float[Tensor, "*rows e"]:
    """Rows scaled to length 1; a row of zeros stays zero, so that its cosine with anything is 0."""
    return functional.normalize(embeddings, dim=-1)


def cosine_similarity(left: Float[Tensor, "b e"], right: Float[Tensor, "n e"]) -> Float[Tensor, "b n"]:
    """Cosine of every left row with every right row, ``cos(x, y) = x.y / (|x| |y|)``.

    Args:
        left: Embeddings of any length; a row of zeros has cosine 0 with everything.
        right: Embeddings of any length.

    Returns:
        Cosines in [-1, 1], dimensionless.
    """
    return _unit(left) @ _unit(right).T


def euclidean_distance(left: Float[Tensor, "b e"], right: Float[Tensor, "n e"]) -> Float[Tensor, "b n"]:
    """Length of the difference between every left row and every right row, ``|x - y|``.

    Args:
        left: Embeddings.
        right: Embeddings.

    Returns:
        Distances >= 0, exact for near rows too: differences are taken before squaring, and equal rows are at 0.
    """
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")


def triplet_distances(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    distance: Distance,
) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b h"]]:
    """Distance of each query from its own positive and from each of its own negatives.

    Both come from the same operation on rows of the same layout, so a negative that equals the positive is exactly as far.

    Args:
        query: Embeddings as the encoder gives them; cosine normalises here.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        distance: ``cosine`` for ``1 - cos``, in [0, 2]; ``euclidean`` for the length of the difference, whose gradient is taken as zero
            where two embeddings are equal.

    Returns:
        The distances from the positives, and those from the negatives.

    Raises:
        ValueError: If `distance` is neither of the two.
    """
    negatives = negative.unsqueeze(1) if negative.dim() == 2 else negative
    documents = torch.cat([positive.unsqueeze(1), negatives], dim=1)
    if distance == "cosine":
        apart = 1.0 - (_unit(query).unsqueeze(1) * _unit(documents)).sum(dim=-1)
    elif distance == "euclidean":
        # `vector_norm` has gradient 0 at 0, where the square root of a sum of squares would give NaN.
        apart = torch.linalg.vector_norm(query.unsqueeze(1) - documents, dim=-1)
    else:
        raise ValueError(f'distance must be "cosine" or "euclidean", got "{distance}"; choose one of them')
    return apart[:, :1], apart[:, 1:]


def triplet_margin(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    margin: float,
    distance: Distance,
) -> Float[Tensor, ""]:
    """How far positives fail to be closer than negatives by the margin.

    ``loss = mean_{i,h} max(0, d(q_i, p_i) - d(q_i, n_ih) + margin)`` with ``d = 1 - cos`` or ``d = |x - y|``.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        margin: Added to the difference, >= 0, in the unit of the distance.
        distance: ``cosine`` or ``euclidean``; see `triplet_distances`. A query that equals its positive under ``euclidean`` gets no pull
            from it, and the push of its negative all the same.

    Returns:
        The loss, in the unit of the distance, averaged over all triplets.

    Raises:
        ValueError: If `margin` is negative or not finite, or `distance` is neither of the two.

    Reference:
        Schroff et al. 2015, equation 2, with plain distances; source 000; mission A3.
    """
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError(f"margin must be a finite number >= 0, got {margin}; the default regime uses 0.1")
    near, far = triplet_distances(query, positive, negative, distance=distance)
    return functional.relu(near - far + margin).mean()


def triplet_errors(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    distance: Distance,
) -> Int[Tensor, ""]:
    """Number of triplets whose positive is not strictly closer than the negative: ``#{(i, h): d(q_i, p_i) >= d(q_i, n_ih)}``.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        distance: ``cosine`` or ``euclidean``; see `triplet_distances`.

    Returns:
        The count. A tie is an error, and so is a distance that is not a number.

    Raises:
        ValueError: If `distance` is neither of the two.

    Reference:
        Source 000; missions A3 (second stopping signal) and A6.
    """
    near, far = triplet_distances(query, positive, negative, distance=distance)
    return (~(near < far)).sum()


def softmax_cross_entropy(
    scores: Float[Tensor, "b n"],
    *,
    temperature: float,
    excluded: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, " b"]:
    """Cross-entropy of each row against the column of the same number, the core of every in-batch loss.

    ``loss_i = -ln( exp(s_ii / T) / sum_j exp(s_ij / T) )``, the sum without excluded ``j``; ``j = i`` always stays in.

    Args:
        scores: Similarities before the temperature; column ``i`` is the positive of row ``i``, all other columns are candidates.
        temperature: ``T`` above, > 0, dimensionless.
        excluded: True where a column must not count as a negative of that row; on the diagonal it has no effect. None excludes nothing.

    Returns:
        One loss per row in nats, >= 0; a row all of whose negatives are excluded has loss and gradient 0.

    Raises:
        ValueError: If there are fewer columns than rows, `temperature` is not above 0, or `excluded` has another shape.
    """
    rows, columns = scores.shape
    if columns < rows:
        raise ValueError(f"documents must be at least as many as queries, got {columns} for {rows}; give each query its positive")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; typical values are 0.01 to 0.1")
    logits = scores / temperature
    if excluded is not None:
        if excluded.shape != scores.shape:
            raise ValueError(f"excluded must have one entry per score, {rows} x {columns}, got {' x '.join(map(str, excluded.shape))}")
        positive = torch.eye(rows, columns, dtype=torch.bool, device=scores.device)
        logits = logits.masked_fill(excluded & ~positive, -math.inf)
    return torch.logsumexp(logits, dim=1) - logits.diagonal()


def in_batch_softmax(
    query: Float[Tensor, "b e"],
    document: Float[Tensor, "n e"],
    *,
    temperature: float,
    excluded: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy of each query against its own document among all documents of the batch.

    ``loss = -mean_i ln( exp(s_ii / T) / sum_j exp(s_ij / T) )`` with ``s = query @ document.T``.

    Args:
        query: Embeddings as they are to be compared (unit length for cosine).
        document: Row ``i`` is the positive of query ``i``; rows from ``b`` on are hard negatives, shared by every query.
        temperature: ``T`` above, > 0, dimensionless.
        excluded: True where a document must not count as a negative of that query; its own positive always counts.

    Returns:
        The loss in nats, averaged over queries.

    Raises:
        ValueError: If there are fewer documents than queries, `temperature` is not above 0, or `excluded` has another shape.

    Reference:
        Henderson et al. 2017; mission C2.
    """
    return softmax_cross_entropy(query @ document.T, temperature=temperature, excluded=excluded).mean()
