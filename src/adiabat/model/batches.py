"""Token lists into padded batches, with as little padding as their lengths allow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


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
        """The batch on another device.

        Args:
            device: Where to.

        Returns:
            A batch; this one where it is there already.
        """
        if self.input_ids.device == device:
            return self
        return TokenBatch(*(part.to(device, non_blocking=True) for part in (self.input_ids, self.attention_mask, self.pooling_mask)))


def pad(token_ids: Sequence[Sequence[int]], *, pad_token_id: int, skipped: int = 0) -> TokenBatch:
    """Fill rows on the right to the longest.

    Args:
        token_ids: One non-empty list per text.
        pad_token_id: What fills the rows.
        skipped: How many leading tokens are left out of pooling; a row keeps at least its last token.

    Returns:
        The batch, on the CPU.
    """
    lengths = np.fromiter(map(len, token_ids), dtype=np.int64, count=len(token_ids))
    filled = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(filled.shape, pad_token_id, dtype=np.int64)
    ids[filled] = np.fromiter(chain.from_iterable(token_ids), dtype=np.int64, count=int(lengths.sum()))
    mask = torch.from_numpy(filled.astype(np.int64))
    if not skipped:
        return TokenBatch(torch.from_numpy(ids), mask, mask)
    pooled = filled & (np.arange(filled.shape[1]) >= np.minimum(skipped, lengths - 1)[:, None])
    return TokenBatch(torch.from_numpy(ids), mask, torch.from_numpy(pooled.astype(np.int64)))


def token_budget_batches(lengths: Sequence[int] | Int[np.ndarray, " rows"], budget: int) -> Iterator[Int[np.ndarray, " some"]]:
    """Group texts of like length so that rows times the longest row stays within a budget.

    Longest first: a batch that does not fit in memory then fails at once, not after an hour.

    Args:
        lengths: Tokens of each text, >= 1.
        budget: Tokens per batch, padding counted; a single text longer than it makes a batch of its own.

    Yields:
        Row numbers of each batch; every row once.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    ordered = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(ordered):
        rows = max(1, budget // int(sizes[ordered[start]]))
        yield ordered[start : start + rows]
        start += rows
