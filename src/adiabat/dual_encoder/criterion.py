"""From settings to the loss of one batch (Moiseev et al. 2023; Reimers 2021)."""

from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from adiabat.config.dual_training import TrainSection
from adiabat.config.training_choices import GuideSection, InBatchLoss
from adiabat.losses.embedded_pairs import Guide, Pairs
from adiabat.losses.in_batch import Criterion
from adiabat.losses.log_denominator import Temperature


def criterion_of(section: TrainSection, *, tile: int | None = None) -> Criterion:
    """The loss that settings describe."""
    loss = section.loss.criterion(tile)
    if isinstance(section.loss, InBatchLoss):
        loss = _compared(section.loss, loss)
    return loss if not section.matryoshka else partial(_over_widths, loss, section.matryoshka)


def _compared(settings: InBatchLoss, loss: Criterion) -> Criterion:
    """The loss by cosine or by product, under the model's own opinion where it is its own guide."""

    def compared(pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
        alike = pairs if settings.similarity == "dot" else pairs.unit()
        if settings.guide is not None and settings.guide.model == "self":
            alike = replace(alike, guide=_own_opinion(alike, settings.guide))
        return loss(alike, temperature)

    return compared


def _own_opinion(pairs: Pairs, settings: GuideSection) -> Guide:
    shared, own = (None if part is None else part.detach() for part in (pairs.shared, pairs.own))
    return Guide(pairs.query.detach(), pairs.positive.detach(), shared, own, margin=settings.margin, relative=settings.relative)


def _over_widths(loss: Criterion, widths: tuple[int, ...], pairs: Pairs, temperature: Temperature) -> Float[Tensor, ""]:
    """Mean of the loss over the first numbers of the embeddings and over all of them (Kusupati et al. 2022, equal weights)."""
    distinct = dict.fromkeys((*widths, pairs.query.shape[1]))
    return torch.stack([loss(pairs.first_numbers(width), temperature) for width in distinct]).mean()
