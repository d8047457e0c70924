"""The core of every in-batch loss: the logarithm of a softmax's denominator, over the whole matrix of scores
or tile by tile.

Letters in shapes: b rows (queries, or documents where roles are exchanged), n candidates, k scores that stand
beside, e embedding width, r and c rows and columns of one tile.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Excluded = Callable[[slice, slice], Bool[Tensor, "r c"]]
"""Mask of excluded candidates for some rows and columns, evaluated tile by tile so that no full mask is
built."""

Temperature = float | Float[Tensor, ""]
"""Divisor of similarities, > 0, dimensionless; a tensor receives a gradient."""

EVERYTHING = slice(None)


@dataclass(frozen=True, slots=True)
class Block:
    """Candidates shared by all rows.

    Attributes:
        candidates: Embeddings, already scaled for the comparison.
        excluded: Candidates that are excluded, by row.
    """

    candidates: Float[Tensor, "n e"]
    excluded: Excluded


def log_denominator(
    rows: Float[Tensor, "b e"],
    blocks: Sequence[Block],
    *,
    beside: Float[Tensor, "b k"],
    temperature: Temperature,
    tile: int | None = None,
    hardness: float = 0.0,
) -> Float[Tensor, " b"]:
    """``ln( sum_k exp(beside_ik) + sum_j w_ij exp(x_i . y_j / T) )``, the second sum over all candidates that
    are not excluded, with ``w_ij = exp(a x_i . y_j)`` a constant without a gradient.

    Args:
        rows: ``x`` above.
        blocks: ``y`` above, in one or several parts.
        beside: Terms that are already in the sum, divided by the temperature; at least one, all finite.
        temperature: ``T`` above, > 0; a tensor gets a gradient.
        tile: Rows and columns scored at a time: memory grows with b + n instead of b x n, at the cost of one
            more matrix product. None scores everything at once.
        hardness: ``a`` above, >= 0, dimensionless; 0 weighs all candidates alike.

    Returns:
        One number per row, differentiable once (twice without tiles).

    Raises:
        ValueError: If `temperature` is a number not above 0, `tile` is below 1, or `hardness` is negative or
            not finite.

    Reference:
        Lan et al. 2025, equation 5 (weights).
    """
    check_temperature(temperature)
    if not (math.isfinite(hardness) and hardness >= 0):
        raise ValueError(f"hardness must be a finite number >= 0, got {hardness}; the source takes 9")
    # Half precision of an outer context would round sums over many candidates away.
    with torch.autocast(rows.device.type, enabled=False):
        return _log_denominator(rows, blocks, beside, temperature, tile, hardness)


def _log_denominator(
    rows: Float[Tensor, "b e"],
    blocks: Sequence[Block],
    beside: Float[Tensor, "b k"],
    temperature: Temperature,
    tile: int | None,
    hardness: float,
) -> Float[Tensor, " b"]:
    if tile is None:
        scores = [beside]
        for block in blocks:
            excluded = block.excluded(EVERYTHING, EVERYTHING)
            own = _scores(rows, block.candidates, excluded, temperature)
            scores.append(weighted(own, temperature, hardness))
        return torch.logsumexp(torch.cat(scores, dim=1), dim=1)
    if tile < 1:
        raise ValueError(f"tile must be at least 1 row, got {tile}; 1024 is a good start")
    divisor = temperature.to(rows.device) if isinstance(temperature, Tensor) else rows.new_tensor(temperature)
    masks = [block.excluded for block in blocks]
    candidates = [block.candidates for block in blocks]
    result: Tensor = _Tiled.apply(tile, hardness, masks, rows, beside, divisor, *candidates)  # type: ignore[no-untyped-call]
    return result


def scores_of(similarities: Float[Tensor, "*any"], temperature: Temperature) -> Float[Tensor, "*any"]:
    """Divide similarities of a batch by the temperature; no other function does.

    Args:
        similarities: Products of embeddings.
        temperature: > 0. A trained temperature (a tensor) is not checked here; `LearnedTemperature` clamps
            it.

    Returns:
        Arguments of the exponential.

    Raises:
        ValueError: If `temperature` is a number that is not above 0.
    """
    check_temperature(temperature)
    return similarities / temperature


def weighted(
    scores: Float[Tensor, "*any"], temperature: Temperature, hardness: float
) -> Float[Tensor, "*any"]:
    """Add the logarithms of the weights that grow with similarity.

    Args:
        scores: Similarities divided by the temperature; minus infinity stays.
        temperature: > 0.
        hardness: Factor of the similarities, >= 0; 0 returns the scores.

    Returns:
        ``s / T + a s``, where the second term has no gradient.

    Reference:
        Lan et al. 2025, equation 5.
    """
    if not hardness:
        return scores
    divisor = temperature.detach() if isinstance(temperature, Tensor) else temperature
    return scores + scores.detach() * (hardness * divisor)


def check_temperature(temperature: Temperature) -> None:
    """Raise if a temperature is a number not above 0.

    Args:
        temperature: Tensors are not checked, because reading one would make a GPU wait.

    Raises:
        ValueError: If it is such a number.
    """
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; typical values are 0.01 to 0.1")


def _scores(
    rows: Float[Tensor, "r e"],
    candidates: Float[Tensor, "c e"],
    excluded: Bool[Tensor, "r c"],
    temperature: Temperature,
) -> Float[Tensor, "r c"]:
    return scores_of(rows @ candidates.T, temperature).masked_fill(excluded, -math.inf)


def _tiles(length: int, tile: int) -> Iterator[slice]:
    return (slice(start, min(start + tile, length)) for start in range(0, length, tile))


class _Tiled(torch.autograd.Function):
    """`log_denominator` without the full matrix: the backward pass recomputes scores; the gradient is a
    softmax times two matrices.
    """

    @staticmethod
    def forward(
        ctx: Any,
        tile: int,
        hardness: float,
        masks: Sequence[Excluded],
        rows: Tensor,
        beside: Tensor,
        temperature: Tensor,
        *candidates: Tensor,
    ) -> Tensor:
        """Add tile after tile to each row's sum."""
        # The own score is finite, so no row starts at minus infinity, whose difference to itself is NaN.
        total = torch.logsumexp(beside, dim=1)
        for r in _tiles(len(rows), tile):
            for block, excluded in zip(candidates, masks, strict=True):
                for c in _tiles(len(block), tile):
                    # Sums are kept as logarithms: a score of 1/T = 100 would overflow float32's exp at T =
                    # 0.01.
                    scores = _scores(rows[r], block[c], excluded(r, c), temperature)
                    more = torch.logsumexp(weighted(scores, temperature, hardness), dim=1)
                    total[r] = torch.logaddexp(total[r], more)
        ctx.tile, ctx.hardness, ctx.masks = tile, hardness, masks
        ctx.save_for_backward(rows, beside, temperature, total, *candidates)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """``d/ds = g softmax(s)``, and from there to both factors of every score and to the temperature."""
        rows, beside, temperature, total, *candidates = ctx.saved_tensors
        # Only each row's total was kept of a tile, which suffices for its softmax.
        gradient = gradients[0][:, None]
        of_rows, of_temperature = torch.zeros_like(rows), torch.zeros_like(temperature)
        of_candidates = [torch.zeros_like(block) for block in candidates]
        for r in _tiles(len(rows), ctx.tile):
            for block, of_block, excluded in zip(candidates, of_candidates, ctx.masks, strict=True):
                for c in _tiles(len(block), ctx.tile):
                    scores = _scores(rows[r], block[c], excluded(r, c), temperature)
                    # At most 1 before the gradient: the total is at least as large as any score in it.
                    shares = (weighted(scores, temperature, ctx.hardness) - total[r, None]).exp_()
                    weights = gradient[r] * shares / temperature
                    of_rows[r].addmm_(weights, block[c])
                    of_block[c].addmm_(weights.T, rows[r])
                    # An excluded score is minus infinity, and its weight is 0.
                    finite = scores.nan_to_num(neginf=0.0)
                    of_temperature -= (weights * finite).sum()
        of_beside = gradient * (beside - total[:, None]).exp()
        return None, None, None, of_rows, of_beside, of_temperature, *of_candidates


COLDEST = 0.01
"""Lowest trained temperature: CLIP clips its inverse at 100, above which training was unstable."""


def scheduled_temperature(
    step: int, *, first: float = 1.0, last: float = 1 / 23, steps: int = 10_000
) -> float:
    """Temperature whose inverse, the factor on similarities, grows linearly: ``1/T = 1/T0 + (1/T1 - 1/T0)
    min(step / steps, 1)``.

    Args:
        step: Optimiser steps taken, >= 0.
        first: ``T0`` above, > 0: a factor of 1.
        last: ``T1`` above, > 0: a factor of 23.
        steps: Over which the factor grows, > 0; afterwards it stays.

    Returns:
        The temperature of this step.

    Raises:
        ValueError: If a temperature is not a finite number above 0, or `steps` is below 1.

    Reference:
        Reimers 2021 (factor from 1 to 23 over the first 10,000 steps).
    """
    _check(first=first, last=last)
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}; the source takes 10,000")
    # Linear in 1/T and not in T: similarities are multiplied by it, so that the hardness of the softmax grows
    # evenly.
    share = min(step / steps, 1.0)
    return 1.0 / ((1.0 - share) / first + share / last)


class LearnedTemperature(nn.Module):
    """A trained number, ``ln(1/T)``, which keeps ``T`` above 0 after any step.

    Exclude it from weight decay, which would pull the temperature towards 1.
    """

    def __init__(self, start: float, *, coldest: float = COLDEST) -> None:
        """Start at a temperature.

        Args:
            start: > 0, at least `coldest`.
            coldest: Lowest allowed temperature, > 0.

        Raises:
            ValueError: If a temperature is not a finite number above 0, or `start` is below `coldest`.
        """
        super().__init__()
        _check(start=start, coldest=coldest)
        if start < coldest:
            raise ValueError(
                f"start must be at least {coldest}, the coldest temperature, got {start}; begin at 0.05"
            )
        # The logarithm of the factor, as in CLIP: a step changes the temperature by a share, and never its
        # sign.
        self.log_factor = nn.Parameter(torch.tensor(-math.log(start)))
        self.coldest = coldest

    def forward(self) -> Float[Tensor, ""]:
        """The current temperature.

        Returns:
            ``T``, by which a loss divides.
        """
        return torch.exp(-self.log_factor)

    @torch.no_grad()
    def clamp_(self) -> None:
        """Clamp the temperature to its range; call it after each optimiser step."""
        self.log_factor.clamp_(max=-math.log(self.coldest))


def _check(**temperatures: float) -> None:
    for name, temperature in temperatures.items():
        if not (math.isfinite(temperature) and temperature > 0):
            raise ValueError(
                f"{name} must be a finite number above 0, got {temperature}; "
                "typical temperatures are 0.01 to 0.1"
            )
