"""How a batch is cut into chunks, and how threads share them out: numbers alone, no tower passes here."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from adiabat.model.batches import bucket_batches, token_budget_batches

BUCKETS = (64, 128, 196, 256)
"""Lengths that most texts of retrieval fit; longer ones go by multiples of 128."""

Places = Int[np.ndarray, " _"]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a batch passes.

    Attributes:
        tokens: Tokens of one chunk at most, padding counted, and no fewer chunks than threads; None makes one chunk for each thread.
        cached: Whether a chunk is computed a second time for its gradient: memory then follows the chunk, not the batch. Where leading
            blocks are frozen with all that comes before them, they are computed once, and what they gave is kept: as many numbers as
            the batch's tokens times the width.
        checkpointed: Whether a block keeps nothing but its input, and is computed a second time for its gradient: memory then follows one
            block of a chunk, not all of them. With `cached`, both hold, and a block is computed three times.
        buckets: Lengths, ascending, to which chunks are padded, with `tokens` / length rows each, so that shapes are few. A longer
            text goes to the next multiple of 128, none beyond the tower's limit. Nothing is packed then. None: as long as the longest text.
        compiled: Whether the backbone is compiled (`torch.compile`), once for each bucket, and run in one thread. It needs `buckets`.
            A frozen prefix is then computed a second time by `cached`.
    """

    tokens: int | None = None
    cached: bool = False
    _: KW_ONLY
    checkpointed: bool = False
    buckets: tuple[int, ...] = ()
    compiled: bool = False

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"tokens must be at least 1, got {self.tokens}; 4096 is a good start")
        if self.buckets and (self.buckets[0] < 1 or any(one >= other for one, other in pairwise(self.buckets))):
            raise ValueError(f"buckets must be ascending lengths of at least 1, got {self.buckets}; {BUCKETS} is a good start")
        if self.buckets and self.tokens is None:
            raise ValueError("tokens must be a number where there are buckets, got None; 4096 is a good start")
        if self.compiled and not self.buckets:
            raise ValueError(
                f"compiled must go with buckets, got none, so that every length would be compiled anew; {BUCKETS} is a good start"
            )
        if self.compiled and self.checkpointed:
            raise ValueError(
                "checkpointed must be False with compiled: the compiler decides what is computed again, got True; use one of them"
            )


@dataclass(frozen=True, slots=True)
class Piece:
    """Texts of one group that pass together.

    Attributes:
        places: Where they stand in the group.
        tokens: What is computed for them, padding included where there is any.
        shape: Rows and length to which they are padded; None goes by the texts.
    """

    places: Places
    tokens: int
    shape: tuple[int, int] | None = None


def pieces_of(lengths: Int[np.ndarray, " b"], chunking: Chunking, *, threads: int, packed: bool, longest: int) -> list[Piece]:
    """Cut a group of texts."""
    if not len(lengths):
        return []
    if chunking.buckets and chunking.tokens:
        shaped = bucket_batches(lengths, chunking.tokens, chunking.buckets, longest=longest)
        return [Piece(places, shape[0] * shape[1], shape) for places, shape in shaped]
    cut = list(token_budget_batches(lengths, chunking.tokens)) if chunking.tokens else []
    if len(cut) < threads:
        cut = shared_out(lengths, threads, packed=packed)
    return [Piece(places, int(padded_lengths(lengths[places], packed=packed).sum())) for places in cut]


def padded_lengths(lengths: Int[np.ndarray, " p"], *, packed: bool, shape: tuple[int, int] | None = None) -> Int[np.ndarray, " _"]:
    """What is computed of texts that pass together.

    Args:
        shape: Rows and length to which they are padded; None goes by the texts.
    """
    if shape is not None:
        return np.full(*shape, dtype=np.int64)
    return lengths if packed else np.full(len(lengths), lengths.max())


def shared_out(lengths: Int[np.ndarray, " b"], threads: int, *, packed: bool) -> list[Places]:
    """Cut a batch into one part per thread so that the longest pass is short.

    Returns:
        Places in the batch; as many parts as threads or as texts, none empty.
    """
    if threads == 1 or len(lengths) == 1:
        return [np.arange(len(lengths))]
    return evenly(lengths, threads) if packed else _cut(lengths)


def evenly(costs: Sequence[int] | Int[np.ndarray, " n"], threads: int) -> list[Places]:
    """Longest first, each piece to the thread that has least so far."""
    parts: list[list[int]] = [[] for _ in range(threads)]
    sums = [0] * threads
    for piece in np.argsort(-np.asarray(costs, dtype=np.int64), kind="stable").tolist():
        thread = sums.index(min(sums))
        parts[thread].append(piece)
        sums[thread] += int(costs[piece])
    return [np.array(part) for part in parts if part]


def _cut(lengths: Int[np.ndarray, " b"]) -> list[Places]:
    """The cut in two, in order of length, where the longer of two padded passes is shortest."""
    order = np.argsort(lengths, kind="stable")
    ascending = lengths[order]
    cuts = np.arange(1, len(order))
    longer = np.maximum(cuts * ascending[cuts - 1], (len(order) - cuts) * ascending[-1])
    cut = int(cuts[np.argmin(longer)])
    return [order[:cut], order[cut:]]
