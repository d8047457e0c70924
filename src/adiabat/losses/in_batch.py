"""Losses, pure functions over embeddings: no texts, no devices, no ranks (Vasilyev et al. 2024; Moiseev et
al. 2023).

`adiabat.losses.log_denominator` computes the denominator, whole or in tiles; `adiabat.losses.embedded_pairs`
excludes candidates; this module decides which scores enter which denominator.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from adiabat.losses.embedded_pairs import OTHER, Pairs, Tower, unit_rows
from adiabat.losses.log_denominator import Temperature, log_denominator, scores_of, weighted

Criterion = Callable[[Pairs, Temperature], Float[Tensor, ""]]
"""The loss of a batch at a temperature; embeddings are as the encoder returns them."""

Distance = Literal["cosine", "dot", "euclidean"]
"""Distance of two embeddings: ``1 - cos``, the length of their difference, or minus their dot product."""


def triplet_distances(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    distance: Distance,
) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b h"]]:
    """Distance of each query from its own positive and from each of its own negatives.

    Both use the same operation on rows of the same layout, so a negative equal to the positive has exactly
    the same distance.

    Args:
        query: Embeddings as the encoder gives them; cosine normalises here.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        distance: ``cosine`` for ``1 - cos``, in [0, 2]; ``euclidean`` for the length of the difference, whose
            gradient is taken as zero where two embeddings are equal; ``dot`` for minus the dot product.

    Returns:
        The distances from the positives, and those from the negatives.

    Raises:
        ValueError: If `distance` is none of the three.
    """
    negatives = negative.unsqueeze(1) if negative.dim() == 2 else negative
    # Use one operation for both: different layouts may round differently and break ties.
    documents = torch.cat([positive.unsqueeze(1), negatives], dim=1)
    if distance == "cosine":
        cosines = (unit_rows(query).unsqueeze(1) * unit_rows(documents)).sum(dim=-1)
        apart = 1.0 - cosines
    elif distance == "euclidean":
        # `vector_norm` has gradient 0 at 0, where the square root of a sum of squares would give NaN.
        apart = torch.linalg.vector_norm(query.unsqueeze(1) - documents, dim=-1)
    elif distance == "dot":
        apart = -(query.unsqueeze(1) * documents).sum(dim=-1)
    else:
        raise ValueError(
            f'distance must be "cosine", "euclidean" or "dot", got "{distance}"; choose one of them'
        )
    return apart[:, :1], apart[:, 1:]


def triplet_margin(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    margin: float,
    distance: Distance,
) -> Float[Tensor, ""]:
    """Triplet loss: the mean amount by which positives fail to be closer than negatives by the margin.

    ``loss = mean_{i,h} max(0, d(q_i, p_i) - d(q_i, n_ih) + margin)`` with ``d = 1 - cos``, ``|x - y|`` or
    ``-x y``.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        margin: Added to the difference, >= 0, in the unit of the distance.
        distance: ``cosine``, ``euclidean`` or ``dot``; see `triplet_distances`. A query that equals its
            positive under ``euclidean`` gets no pull from it, and the push of its negative all the same.

    Returns:
        The loss, in the unit of the distance, averaged over all triplets.

    Raises:
        ValueError: If `margin` is negative or not finite, or `distance` is none of the three.

    Reference:
        Schroff et al. 2015, equation 2, with plain distances; Vasilyev et al. 2024.
    """
    _check_margin(margin)
    near, far = triplet_distances(query, positive, negative, distance=distance)
    return functional.relu(near - far + margin).mean()


def triplet_errors(
    query: Float[Tensor, "b e"],
    positive: Float[Tensor, "b e"],
    negative: Float[Tensor, "b e"] | Float[Tensor, "b h e"],
    *,
    distance: Distance,
) -> Int[Tensor, ""]:
    """Number of triplets whose positive is not strictly closer than the negative: ``#{(i, h): d(q_i, p_i) >=
    d(q_i, n_ih)}``.

    Args:
        query: Embeddings as the encoder gives them.
        positive: Row ``i`` answers query ``i``.
        negative: Row ``i`` holds the one negative, or the ``h`` negatives, of query ``i``.
        distance: ``cosine``, ``euclidean`` or ``dot``; see `triplet_distances`.

    Returns:
        The count. A tie is an error, and so is a distance that is not a number.

    Raises:
        ValueError: If `distance` is none of the three.

    Reference:
        Vasilyev et al. 2024.
    """
    near, far = triplet_distances(query, positive, negative, distance=distance)
    return (~(near < far)).sum()


def mean_squared_error(query: Float[Tensor, "b e"], target: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
    """Mean squared error of embeddings against their targets: ``mean_{i,k} (q_ik - t_ik)^2``.

    Args:
        query: Embeddings as the encoder gives them.
        target: Row ``i`` is the target of query ``i``.

    Returns:
        The loss, averaged over numbers and rows, so that for vectors of unit length it is ``2 / e`` times
        their cosine distance.

    Reference:
        Reimers and Gurevych 2020, equation 1; Reimers 2021.
    """
    return functional.mse_loss(query, target)


def cosine_distance(query: Float[Tensor, "b e"], target: Float[Tensor, "b e"]) -> Float[Tensor, ""]:
    """Mean cosine distance of embeddings from their targets: ``mean_i (1 - cos(q_i, t_i))``.

    Args:
        query: Embeddings as the encoder gives them.
        target: Row ``i`` is the target of query ``i``.

    Returns:
        The loss, in [0, 2]; a row of zeros is at 1 from anything.

    Reference:
        Reimers and Gurevych 2020.
    """
    return (1.0 - (unit_rows(query) * unit_rows(target)).sum(dim=-1)).mean()


def _check_margin(margin: float) -> None:
    if not (math.isfinite(margin) and margin >= 0):
        raise ValueError(
            f"margin must be a finite number >= 0, got {margin}; triplets commonly use 0.1, a softmax 0.3"
        )


def in_batch_softmax(
    pairs: Pairs,
    *,
    temperature: Temperature,
    margin: float = 0.0,
    symmetric: bool = False,
    tile: int | None = None,
    hardness: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross-entropy of each query against its own document among all documents of the batch.

    ``loss = -mean_i ln( exp(s'_ii) / (exp(s'_ii) + sum_j exp(s_ij)) )`` with ``s_ij = q_i . d_j / T``,
    ``s'_ii = (q_i . p_i - m) / T`` and the sum over positives of other pairs and all negatives that ``i``
    sees, without what `Pairs` excludes.

    Args:
        pairs: The batch.
        temperature: ``T`` above, > 0, dimensionless; a tensor is learned.
        margin: ``m`` above, >= 0, in the unit of the similarity: LaBSE takes 0.3 from a cosine.
        symmetric: Average it with the same loss of each positive among all queries.
        tile: As in `log_denominator`.
        hardness: Growth of the weights of negatives with their similarity, as in `log_denominator`.

    Returns:
        The loss in nats, averaged over `Pairs.rows`; a row without negatives has loss and gradient 0.

    Raises:
        ValueError: If `temperature`, `margin` or `hardness` is out of range.

    Reference:
        Henderson et al. 2017; Yang et al. 2019 (margin, both directions); Lan et al. 2025 (hardness).
    """
    return _contrast(pairs, temperature, margin, _directions(symmetric), set(), tile, hardness)


def samtone(
    pairs: Pairs,
    *,
    temperature: Temperature,
    side: Literal["query", "document", "both"] = "query",
    margin: float = 0.0,
    symmetric: bool = True,
    tile: int | None = None,
    hardness: float = 0.0,
) -> Float[Tensor, ""]:
    """In-batch softmax whose denominators also hold the other texts of the row's own tower.

    On the query side, the denominator of query ``i`` gains ``sum_{j != i} exp(q_i . q_j / T)``; on the
    document side, that of positive ``i`` in the reverse direction gains ``sum_{j != i} exp(p_i . p_j / T)``.

    Args:
        pairs: The batch.
        temperature: As in `in_batch_softmax`.
        side: Tower whose texts are added as negatives.
        margin: As in `in_batch_softmax`.
        symmetric: Average both directions, as the source does; False leaves the reverse direction out.
        tile: As in `log_denominator`.
        hardness: As in `log_denominator`, for texts of both towers.

    Returns:
        The loss in nats, averaged over `Pairs.rows` and directions.

    Raises:
        ValueError: If the document side is requested without the reverse direction, or a number is out of
            range.

    Reference:
        Moiseev et al. 2023, equation 2 and section 3.4.
    """
    if side != "query" and not symmetric:
        raise ValueError(
            f'side must be "query" where symmetric is False, got "{side}"; documents '
            "have no direction of their own then"
        )
    towers: dict[str, set[Tower]] = {
        "query": {"query"},
        "document": {"positive"},
        "both": {"query", "positive"},
    }
    return _contrast(pairs, temperature, margin, _directions(symmetric), towers[side], tile, hardness)


def pair(
    pairs: Pairs,
    *,
    temperature: Temperature,
    weight: float = 0.1,
    printed: bool = False,
    margin: float = 0.0,
    symmetric: bool = False,
    tile: int | None = None,
    hardness: float = 0.0,
) -> Float[Tensor, ""]:
    """In-batch softmax plus a second term that contrasts each pair's similarity with those of its positive to
    other positives.

    ``loss = (1 - a) L_c + a L_P`` with ``L_P = -mean_i ln( exp(q_i . p_i / T) / (exp(q_i . p_i / T) + sum_{j
    != i} exp(p_i . p_j / T)) )``.

    Args:
        pairs: The batch.
        temperature: As in `in_batch_softmax`.
        weight: ``a`` above, in [0, 1].
        printed: Leave the pair's own term out of the denominator of ``L_P``, as the SamToNe paper prints it;
            it can then be below 0.
        margin: Of ``L_c``.
        symmetric: Of ``L_c``.
        tile: As in `log_denominator`.
        hardness: Of ``L_c``, as in `log_denominator`.

    Returns:
        The loss in nats, averaged over `Pairs.rows`.

    Raises:
        ValueError: If a number is out of range.

    Reference:
        Ren et al. 2021; the printed form: Moiseev et al. 2023, equation 3.
    """
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must be between 0 and 1, got {weight}; PAIR uses 0.1")
    between = in_batch_softmax(
        pairs, temperature=temperature, margin=margin, symmetric=symmetric, tile=tile, hardness=hardness
    )
    among_positives = _passage_centric(pairs, temperature, printed, tile)
    return (1 - weight) * between + weight * among_positives


def listwise_divergence(
    pairs: Pairs, *, temperature: Temperature, teacher_temperature: float = 1.0
) -> Float[Tensor, ""]:
    """Divergence of a teacher's distribution over the documents of each query from that of the embeddings.

    ``loss = mean_i sum_j p_ij ln(p_ij / q_ij)`` with ``p_i = softmax(t_i / T')`` over the teacher's scores,
    ``q_i = softmax(s_i / T)`` and ``s_ij = q_i . d_ij``, over the positive and the own negatives of query
    ``i``.

    Args:
        pairs: The batch, with own negatives and `Pairs.scores`.
        temperature: ``T`` above, > 0, dimensionless; a tensor is learned.
        teacher_temperature: ``T'`` above, > 0, in the unit of the teacher's scores.

    Returns:
        The loss in nats, averaged over `Pairs.rows`; 0 where both distributions are equal, so that a constant
        added to the scores of a query changes nothing.

    Raises:
        ValueError: If a temperature is not above 0, or the batch has no scores.

    Reference:
        Hinton et al. 2015 (temperatures); Lin et al. 2020 (scores of documents).
    """
    student, teacher = _student_and_teacher(pairs, temperature, teacher_temperature)
    logarithms = functional.log_softmax(student, dim=1)
    target = functional.log_softmax(teacher, dim=1)
    return functional.kl_div(logarithms, target, log_target=True, reduction="batchmean")


def margin_mse(
    pairs: Pairs, *, temperature: Temperature, teacher_temperature: float = 1.0
) -> Float[Tensor, ""]:
    """Squared error of the margins between each query's positive and its own negatives.

    ``loss = mean_{i,h} ((s_ip - s_ih) / T - (t_ip - t_ih) / T')^2`` with ``s_ij = q_i . d_ij`` and the
    teacher's scores ``t``.

    Args:
        pairs: The batch, with own negatives and `Pairs.scores`.
        temperature: ``T`` above, > 0, dimensionless; a tensor is learned. The source takes dot products and
            1.
        teacher_temperature: ``T'`` above, > 0, in the unit of the teacher's scores.

    Returns:
        The loss, averaged over the own negatives of `Pairs.rows`.

    Raises:
        ValueError: If a temperature is not above 0, or the batch has no scores.

    Reference:
        Hofstätter et al. 2020, equation 6.
    """
    student, teacher = _student_and_teacher(pairs, temperature, teacher_temperature)
    margins = student[:, :1] - student[:, 1:]
    return functional.mse_loss(margins, teacher[:, :1] - teacher[:, 1:])


def _student_and_teacher(
    pairs: Pairs, temperature: Temperature, teacher_temperature: float
) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k"]]:
    """Scores of the positive and of the own negatives, each divided by its temperature."""
    if pairs.scores is None:
        raise ValueError("scores of a teacher must be given to learn from them, got none; add them to pairs")
    student = torch.cat([_own_scores(pairs, temperature), _own_negatives(pairs, temperature)], dim=1)
    return student, scores_of(pairs.scores[pairs.rows], teacher_temperature)


def _directions(symmetric: bool) -> set[Tower]:
    """Sides whose texts are rows of the loss; the texts of the other side are their candidates."""
    return {"query", "positive"} if symmetric else {"query"}


def _contrast(
    pairs: Pairs,
    temperature: Temperature,
    margin: float,
    directions: set[Tower],
    same_tower: set[Tower],
    tile: int | None,
    hardness: float,
) -> Float[Tensor, ""]:
    """Mean over directions and rows of ``ln(denominator) - own score``."""
    _check_margin(margin)
    losses = []
    # Sorted, because sets have no order: losses must be summed in the same order in every process.
    for side in sorted(directions):
        blocks = [pairs.block(side, OTHER[side])]
        if side in same_tower:
            blocks.append(pairs.block(side, side))
        # The pair's own score is added separately, with its margin, and masked among the candidates
        # (`Pairs._same_pair`).
        beside = target = _own_scores(pairs, temperature, margin)
        if side == "query":
            if pairs.shared is not None:
                blocks.append(pairs.shared_block())
            negatives = weighted(_own_negatives(pairs, temperature), temperature, hardness)
            beside = torch.cat([target, negatives], dim=1)
        # Rows of this process against candidates of all: the mean over processes is the loss of the whole
        # batch.
        rows = getattr(pairs, side)[pairs.rows]
        total = log_denominator(
            rows, blocks, beside=beside, temperature=temperature, tile=tile, hardness=hardness
        )
        losses.append((total - target[:, 0]).mean())
    return torch.stack(losses).mean()


def _own_scores(pairs: Pairs, temperature: Temperature, margin: float = 0.0) -> Float[Tensor, "b 1"]:
    query, positive = pairs.query[pairs.rows], pairs.positive[pairs.rows]
    similarity = (query * positive).sum(dim=1, keepdim=True)
    return scores_of(similarity - margin, temperature)


def _own_negatives(pairs: Pairs, temperature: Temperature) -> Float[Tensor, "b h"]:
    query = pairs.query[pairs.rows]
    if pairs.own is None:
        return query.new_empty(len(query), 0)
    negatives = pairs.own[pairs.rows]
    similarity = (query.unsqueeze(1) * negatives).sum(dim=-1)
    # exp(-inf) = 0: an excluded negative adds nothing to the sum, and gets no gradient.
    return scores_of(similarity, temperature).masked_fill(pairs.own_excluded(), -math.inf)


def _passage_centric(
    pairs: Pairs, temperature: Temperature, printed: bool, tile: int | None
) -> Float[Tensor, ""]:
    """``L_P`` of `pair`."""
    target = _own_scores(pairs, temperature)
    # The printed form has no term beside the sum; a zero term keeps rows without candidates finite.
    nothing = torch.finfo(target.dtype).min
    beside = torch.full_like(target, nothing) if printed else target
    block = pairs.block("positive", "positive")
    rows = pairs.positive[pairs.rows]
    total = log_denominator(rows, [block], beside=beside, temperature=temperature, tile=tile)
    # Where a positive has no other to be told from, the printed form is ln(0); the loss of such a row is 0.
    return torch.where(total > nothing, total - target[:, 0], 0.0).mean()
