"""From settings to the loss of one batch (Moiseev et al. 2023; Reimers 2021)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from adiabat.config.dual_training import REGRESSIONS, TrainSection
from adiabat.losses.embedded_pairs import Guide, Pairs
from adiabat.losses.in_batch import cosine_distance, in_batch_softmax, mean_squared_error, pair, samtone, triplet_margin
from adiabat.losses.log_denominator import Temperature

Criterion = Callable[[Pairs, Temperature], Float[Tensor, ""]]
"""The loss of a batch whose embeddings are as the encoder gives them, at a temperature."""

TRIPLET_MARGIN = 0.1


def criterion_of(section: TrainSection, *, tile: int | None = None) -> Criterion:
    """The loss that settings describe."""
    if section.loss in REGRESSIONS:
        alone = _regression(section)
    else:
        alone = _triplets(section) if section.loss == "triplet" else _compared(section, _in_batch(section, tile))
    return alone if not section.matryoshka else partial(_over_widths, alone, section.matryoshka)


def _in_batch(section: TrainSection, tile: int | None) -> Callable[[Pairs, Temperature], Float[Tensor, ""]]:
    margin, symmetric = section.margin or 0.0, section.symmetric
    if section.loss == "samtone":
        side = section.same_tower
        return lambda pairs, t: samtone(pairs, temperature=t, side=side, margin=margin, symmetric=symmetric, tile=tile)
    if section.loss == "pair":
        weight, printed = section.pair_weight, section.pair_printed
        return lambda pairs, t: pair(pairs, temperature=t, weight=weight, printed=printed, margin=margin, symmetric=symmetric, tile=tile)
    return lambda pairs, t: in_batch_softmax(pairs, temperature=t, margin=margin, symmetric=symmetric, tile=tile)


def _compared(section: TrainSection, loss: Criterion) -> Criterion:
    """The loss by cosine or by product, under the model's own opinion where it is its own guide."""

    def compared(pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
        scaled = pairs if section.similarity == "dot" else pairs.unit()
        if section.guide == "self":
            scaled = replace(scaled, guide=_own_opinion(scaled, section))
        return loss(scaled, temperature)

    return compared


def _own_opinion(pairs: Pairs, section: TrainSection) -> Guide:
    shared, own = (None if vectors is None else vectors.detach() for vectors in (pairs.shared, pairs.own))
    margin, relative = section.guide_margin, section.guide_relative
    return Guide(pairs.query.detach(), pairs.positive.detach(), shared, own, margin=margin, relative=relative)


def _triplets(section: TrainSection) -> Criterion:
    margin = TRIPLET_MARGIN if section.margin is None else section.margin

    def loss(pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
        del temperature
        assert pairs.own is not None
        rows = pairs.rows
        return triplet_margin(pairs.query[rows], pairs.positive[rows], pairs.own[rows], margin=margin, distance=section.distance)

    return loss


def _regression(section: TrainSection) -> Criterion:
    apart = mean_squared_error if section.loss == "mse" else cosine_distance

    def loss(pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
        del temperature
        return apart(pairs.query[pairs.rows], pairs.positive[pairs.rows])

    return loss


def _over_widths(loss: Criterion, widths: tuple[int, ...], pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
    """Mean of the loss over the first numbers of the embeddings and over all of them (Kusupati et al. 2022, equal weights)."""
    distinct = dict.fromkeys((*widths, pairs.query.shape[1]))
    return torch.stack([loss(pairs.first_numbers(width), temperature) for width in distinct]).mean()
