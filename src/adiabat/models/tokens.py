"""Token lists into padded batches, with as little padding as their lengths allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad as pad_values

BUCKET_STEP = 128
"""Between the lengths to which texts are padded that are longer than every bucket."""


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """One padded batch.

    Attributes:
        input_ids: Token ids.
        attention_mask: 1 at tokens, 0 at padding.
        pooling_mask: 1 at tokens that are pooled; differs from `attention_mask` only where prompt tokens are left out.
    """

    input_ids: Int[Tensor, "b l"]
    attention_mask: Int[Tensor, "b l"]
    pooling_mask: Int[Tensor, "b l"]

    def to(self, device: torch.device) -> "TokenBatch":
        """The batch on another device."""
        if self.input_ids.device == device:
            return self
        return TokenBatch(*(part.to(device, non_blocking=True) for part in (self.input_ids, self.attention_mask, self.pooling_mask)))


def pad(token_ids: Sequence[Sequence[int]], *, pad_token_id: int, skipped: int = 0, closing: int = 0) -> TokenBatch:
    """Fill rows on the right to the longest.

    Args:
        token_ids: One non-empty list per text.
    """
    lengths = np.fromiter(map(len, token_ids), dtype=np.int64, count=len(token_ids))
    filled = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(filled.shape, pad_token_id, dtype=np.int64)
    ids[filled] = np.fromiter(chain.from_iterable(token_ids), dtype=np.int64, count=int(lengths.sum()))
    mask = torch.from_numpy(filled.astype(np.int64))
    if not (skipped or closing):
        return TokenBatch(torch.from_numpy(ids), mask, mask)
    ends = np.maximum(lengths - closing, 1)
    places = np.arange(filled.shape[1])
    pooled = (places >= np.minimum(skipped, ends - 1)[:, None]) & (places < ends[:, None])
    return TokenBatch(torch.from_numpy(ids), mask, torch.from_numpy(pooled.astype(np.int64)))


def token_budget_batches(lengths: Sequence[int] | Int[np.ndarray, " rows"], budget: int) -> Iterator[Int[np.ndarray, " some"]]:
    """Group texts of like length so that rows times the longest row stays within a budget.

    Longest first: a batch that does not fit in memory then fails at once, not after an hour.

    Args:
        budget: Tokens per batch, padding counted; a single text longer than it makes a batch of its own.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    ordered = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(ordered):
        rows = max(1, budget // int(sizes[ordered[start]]))
        yield ordered[start : start + rows]
        start += rows


def filled_up(batch: TokenBatch, *, rows: int, length: int, pad_token_id: int) -> TokenBatch:
    """Give a batch a fixed shape.

    A row that is added is a text of one padding token: a row in which nothing may be attended to would make some attention kernels give
    NaN, which the gradient would then spread.

    Returns:
        A batch of that shape, whose first rows are those of `batch`.
    """
    found = batch.input_ids.shape
    if found[0] > rows or found[1] > length:
        raise ValueError(f"a batch must fit {rows} rows of {length} tokens, got {found[0]} of {found[1]}; raise max_tokens of the encoder")
    margins = (0, length - found[1], 0, rows - found[0])
    filled = TokenBatch(
        pad_values(batch.input_ids, margins, value=pad_token_id),
        pad_values(batch.attention_mask, margins),
        pad_values(batch.pooling_mask, margins),
    )
    for mask in (filled.attention_mask, filled.pooling_mask):
        mask[found[0] :, 0] = 1
    return filled


def bucket_batches(
    lengths: Sequence[int] | Int[np.ndarray, " rows"], budget: int, buckets: Sequence[int], *, longest: int
) -> Iterator[tuple[Int[np.ndarray, " some"], tuple[int, int]]]:
    """Group texts by bucket, so that there are no more shapes than buckets, whatever the texts.

    Longest first, as in `token_budget_batches`.

    Args:
        budget: Tokens per batch, padding counted; a bucket longer than it makes batches of one row.

    Yields:
        Row numbers of each batch, every row once, and the shape to fill it up to: rows and length.
    """
    chosen = _buckets(np.asarray(lengths, dtype=np.int64), np.asarray(buckets, dtype=np.int64), longest)
    for length in np.unique(chosen)[::-1].tolist():
        rows = max(1, budget // length)
        members = np.flatnonzero(chosen == length)
        for start in range(0, len(members), rows):
            yield members[start : start + rows], (rows, length)


def _buckets(sizes: Int[np.ndarray, " rows"], buckets: Int[np.ndarray, " some"], longest: int) -> Int[np.ndarray, " rows"]:
    """The bucket of each text."""
    found = np.searchsorted(buckets, sizes)
    beyond = -(-sizes // BUCKET_STEP) * BUCKET_STEP
    return np.minimum(np.where(found < len(buckets), buckets[np.minimum(found, len(buckets) - 1)], beyond), longest)
