"""The core of every in-batch loss: the logarithm of a softmax's denominator, over the whole matrix of scores or tile by tile.

Letters in shapes: b rows (queries, or documents where roles are exchanged), n candidates, k scores that stand beside, e embedding width,
r and c rows and columns of one tile.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Excluded = Callable[[slice, slice], Bool[Tensor, "r c"]]
"""Which candidates do not count, for some rows and some columns: asked tile by tile, so that no whole mask need ever exist."""

Temperature = float | Float[Tensor, ""]
"""Divides similarities, > 0, dimensionless; a tensor gets a gradient."""

EVERYTHING = slice(None)


@dataclass(frozen=True, slots=True)
class Block:
    """Candidates that every row is compared with.

    Attributes:
        candidates: Embeddings as they are to be compared.
        excluded: Which of them do not count for which row.
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
) -> Float[Tensor, " b"]:
    """``ln( sum_k exp(beside_ik) + sum_j exp(x_i . y_j / T) )``, the second sum over all candidates that are not excluded.

    Args:
        rows: ``x`` above.
        blocks: ``y`` above, in one or several parts.
        beside: Terms of the sum that are there already, divided by the temperature; at least one, which must be finite.
        temperature: ``T`` above, > 0; a tensor gets a gradient.
        tile: Rows and columns scored at a time: memory then grows with b + n instead of b x n, for one more matrix product. None scores
            everything at once.

    Returns:
        One number per row, differentiable once (twice without tiles).

    Raises:
        ValueError: If `temperature` is a number not above 0, or `tile` is below 1.
    """
    check_temperature(temperature)
    # Half precision of an outer context would round sums over many candidates away.
    with torch.autocast(rows.device.type, enabled=False):
        return _log_denominator(rows, blocks, beside, temperature, tile)


def _log_denominator(
    rows: Float[Tensor, "b e"], blocks: Sequence[Block], beside: Float[Tensor, "b k"], temperature: Temperature, tile: int | None
) -> Float[Tensor, " b"]:
    if tile is None:
        scores = [_scores(rows, block.candidates, block.excluded(EVERYTHING, EVERYTHING), temperature) for block in blocks]
        return torch.logsumexp(torch.cat([beside, *scores], dim=1), dim=1)
    if tile < 1:
        raise ValueError(f"tile must be at least 1 row, got {tile}; 1024 is a good start")
    divisor = temperature.to(rows.device) if isinstance(temperature, Tensor) else rows.new_tensor(temperature)
    masks = [block.excluded for block in blocks]
    result: Tensor = _Tiled.apply(tile, masks, rows, beside, divisor, *(block.candidates for block in blocks))  # type: ignore[no-untyped-call]
    return result


def scores_of(similarities: Float[Tensor, "*any"], temperature: Temperature) -> Float[Tensor, "*any"]:
    """Similarities divided by the temperature: the one place that does it.

    Args:
        similarities: Products of embeddings.
        temperature: > 0; one that is learned, a tensor, is clamped where it is kept, and not looked at here.

    Returns:
        What stands in the exponent.

    Raises:
        ValueError: If `temperature` is a number that is not above 0.
    """
    check_temperature(temperature)
    return similarities / temperature


def check_temperature(temperature: Temperature) -> None:
    """Refuse a number that is not above 0.

    Args:
        temperature: A tensor passes: looking at it would make a GPU wait.

    Raises:
        ValueError: If it is such a number.
    """
    if not isinstance(temperature, Tensor) and not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}; typical values are 0.01 to 0.1")


def _scores(
    rows: Float[Tensor, "r e"], candidates: Float[Tensor, "c e"], excluded: Bool[Tensor, "r c"], temperature: Temperature
) -> Float[Tensor, "r c"]:
    return scores_of(rows @ candidates.T, temperature).masked_fill(excluded, -math.inf)


def _tiles(length: int, tile: int) -> Iterator[slice]:
    return (slice(start, min(start + tile, length)) for start in range(0, length, tile))


class _Tiled(torch.autograd.Function):
    """`log_denominator` without the matrix: scores are computed again for the gradient, which is a softmax times two matrices."""

    @staticmethod
    def forward(
        ctx: Any, tile: int, masks: Sequence[Excluded], rows: Tensor, beside: Tensor, temperature: Tensor, *candidates: Tensor
    ) -> Tensor:
        """Add tile after tile to each row's sum."""
        total = torch.logsumexp(beside, dim=1)
        for r in _tiles(len(rows), tile):
            for block, excluded in zip(candidates, masks, strict=True):
                for c in _tiles(len(block), tile):
                    more = torch.logsumexp(_scores(rows[r], block[c], excluded(r, c), temperature), dim=1)
                    total[r] = torch.logaddexp(total[r], more)
        ctx.tile, ctx.masks = tile, masks
        ctx.save_for_backward(rows, beside, temperature, total, *candidates)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """``d/ds = g softmax(s)``, and from there to both factors of every score and to the temperature."""
        rows, beside, temperature, total, *candidates = ctx.saved_tensors
        gradient = gradients[0][:, None]
        of_rows, of_temperature = torch.zeros_like(rows), torch.zeros_like(temperature)
        of_candidates = [torch.zeros_like(block) for block in candidates]
        for r in _tiles(len(rows), ctx.tile):
            for block, of_block, excluded in zip(candidates, of_candidates, ctx.masks, strict=True):
                for c in _tiles(len(block), ctx.tile):
                    scores = _scores(rows[r], block[c], excluded(r, c), temperature)
                    weights = gradient[r] * (scores - total[r, None]).exp_() / temperature
                    of_rows[r].addmm_(weights, block[c])
                    of_block[c].addmm_(weights.T, rows[r])
                    # An excluded score is minus infinity, and its weight is 0.
                    of_temperature -= (weights * scores.nan_to_num(neginf=0.0)).sum()
        of_beside = gradient * (beside - total[:, None]).exp()
        return None, None, of_rows, of_beside, of_temperature, *of_candidates
