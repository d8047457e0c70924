"""A store's documents, block by block, on the device that scores them; and how a search is divided to fit
into memory.

On a CPU, one pair of buffers serves all blocks, and threads share the queries. A GPU scores many queries and
documents at a time, while the next block is read and copied. Where half of its free memory holds the vectors,
they stay on it for further searches.
"""

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float32, Integer

from adiabat.core.errors import ConfigError, StoreError, several
from adiabat.models.device import free_memory, parallel_map, retried
from adiabat.store.scoring import CPU, Block, is_cpu, on_host, pair_slices
from adiabat.store.vector_store import Store

SearchProgress = Callable[[int, int], None]
"""Called with (rows searched, rows in all)."""

BLOCK_ROWS = 4096
TILE_SCORES = 1 << 20
"""Maximum scores in memory per block and tile of queries."""
SMALLEST_TILE = 64
"""Minimum number of queries per tile, if there are as many."""

DEVICE_TILE = 4096
"""Maximum number of queries per tile on a GPU."""
DEVICE_SCORES = 1 << 27
"""Maximum scores in a GPU's memory: half a GB, and 4 GB where every pair of a block is undecided."""
SCORE_BYTES = 32
"""Memory of a score on a GPU with its copy, its masks and the numbers of an undecided pair."""
DEVICE_BLOCK_BYTES = 1 << 28
"""Maximum size of a block that is copied to a GPU; a few are under way."""


@dataclass(slots=True)
class BlockPlan:
    """Division of a search: consecutive queries that are scored together, against blocks of documents.

    A tile of queries and a block of documents give a table of scores, which is what takes memory: at most
    `TILE_SCORES` numbers on a CPU, and `SCORE_BYTES` for each of at most `DEVICE_SCORES` on a GPU.

    Attributes:
        block_rows: Documents of a block.
        tiles: Queries of each tile.
        is_halved: Whether blocks became half as large, because memory ran out.
    """

    device: torch.device
    block_rows: int
    tiles: list[slice]
    is_halved: bool = False

    @classmethod
    def of(
        cls, store: Store, queries: int, device: torch.device, block_rows: int | None, *, threads: int
    ) -> "BlockPlan":
        """Choose sizes for the device."""
        if is_cpu(device):
            # Vectors that stay in memory need no buffer: few queries then score many documents at a time.
            usual = BLOCK_ROWS if str(device) not in store.kept else TILE_SCORES // max(1, queries)
            rows = block_rows or max(BLOCK_ROWS, usual)
            # A tile per thread or more, but none smaller than `SMALLEST_TILE`.
            shared = max(SMALLEST_TILE, -(-queries // threads))
            size = max(1, min(TILE_SCORES // min(rows, store.count), shared))
        else:
            free = free_memory(device)
            scores = max(1, min(DEVICE_SCORES, free // 4 // SCORE_BYTES))
            size = max(1, min(queries, DEVICE_TILE, scores))
            copied = min(DEVICE_BLOCK_BYTES, free // 16) // (4 * store.width)
            # Vectors that stay on the device need no memory for copies.
            most = store.count if str(device) in store.kept else copied
            rows = block_rows or max(1, min(store.count, most, scores // size))
        return cls(device, rows, list(pair_slices(queries, size)) or [slice(0, 0)])

    def within_memory(self, score: Callable[[Block], None], block: Block) -> None:
        """Score a block; once a GPU's memory did not suffice, in halves."""
        retried(partial(self._by_parts, score, block), partial(self._halve, len(block)))

    def _by_parts(self, score: Callable[[Block], None], block: Block) -> None:
        """Score a block, at most `block_rows` documents at a time."""
        for part in block.parts(self.block_rows):
            score(part)

    def _halve(self, rows: int) -> bool:
        """Score half as many documents at a time from here on; an error where that was done before."""
        if is_cpu(self.device):
            return False
        if self.is_halved or rows < 2:
            raise _too_little_memory(self.device)
        self.is_halved, self.block_rows = True, -(-rows // 2)
        warnings.warn(
            f"{self.device} has too little memory for {rows:,} documents at a time, so they are halved",
            stacklevel=2,
        )
        return True


def _too_little_memory(device: torch.device) -> ConfigError:
    """The error for a device that cannot hold the smallest part of a search."""
    return ConfigError(
        f"run.device must have free memory to score documents, got {device}, where it ran out; "
        "end other processes on it, or set run.device = cpu"
    )


def each_block(store: Store, plan: BlockPlan, on_progress: SearchProgress | None) -> Generator[Block]:
    """The store, block by block, on the device of the plan."""
    for block in _in_buffers(store, plan) if is_cpu(plan.device) else _on_device(store, plan):
        yield block
        if on_progress:
            on_progress(block.start + len(block), store.count)
    store.require_unchanged()


def _in_buffers(store: Store, plan: BlockPlan) -> Iterator[Block]:
    """Blocks of the vectors that stay in memory, or in one pair of buffers."""
    kept = store.kept.get(str(plan.device))
    if isinstance(kept, Block):
        yield from kept.parts(plan.block_rows)
        return
    buffer = np.empty((min(plan.block_rows, store.count), store.width), dtype=store.dtype)
    stored, wide = torch.from_numpy(buffer), torch.empty(buffer.shape, dtype=torch.float32)
    for start in range(0, store.count, plan.block_rows):
        rows = store.read_into(start, buffer)
        vectors = wide[:rows].copy_(stored[:rows])
        lengths = torch.linalg.vector_norm(vectors, dim=1)
        require_finite(store, lengths.numpy(), np.arange(start, start + rows))
        yield Block(start, vectors, lengths)


def keep_in_memory(store: Store) -> bool:
    """Keep all vectors in memory in float32 with their lengths, for many searches on a CPU; False where half
    of the free memory does not hold them.
    """
    room = _room_for(store, CPU)
    if room is None:
        return False
    for block in each_block(store, BlockPlan.of(store, 1, CPU, None, threads=1), None):
        rows = slice(block.start, block.start + len(block))
        room.vectors[rows], room.lengths[rows] = block.vectors, block.lengths
    store.kept[str(CPU)] = room
    return True


def _on_device(store: Store, plan: BlockPlan) -> Iterator[Block]:
    """Blocks of the vectors that stay on the device, or copied to it, each while the one before is scored."""
    device, size = plan.device, plan.block_rows
    kept = store.kept.get(str(device))
    if isinstance(kept, Block):
        yield from kept.parts(size)
        return
    room = _room_for(store, device)
    # Pinned, so that copies run beside kernels.
    shape, dtype = (min(size, store.count), store.width), getattr(torch, store.dtype)
    buffer = torch.empty(shape, dtype=dtype, pin_memory=device.type == "cuda")
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    if stream is not None:
        # The room may have been memory of work that still runs.
        stream.wait_stream(torch.cuda.current_stream(device))

    def load(start: int) -> Block:
        rows = store.read_into(start, buffer.numpy())
        try:
            with _running_on(stream):
                vectors = buffer[:rows].to(device, non_blocking=True, copy=True).float()
                lengths = torch.linalg.vector_norm(vectors, dim=1)
                if room is not None:
                    room.vectors[start : start + rows] = vectors
                    room.lengths[start : start + rows] = lengths
                # This waits for the copy, so that the buffer may be filled again.
                require_finite(store, on_host(lengths), np.arange(start, start + rows))
        except torch.OutOfMemoryError as fault:
            raise _too_little_memory(device) from fault
        return Block(start, vectors, lengths)

    # One thread, which is a few blocks ahead.
    with parallel_map([load]) as loaded:
        for block in loaded(range(0, store.count, size)):
            if stream is not None:
                for tensor in (block.vectors, block.lengths):
                    # Its memory belongs to the stream of the copy: it must not be filled again before the
                    # score is computed.
                    tensor.record_stream(torch.cuda.current_stream(device))
            yield block
    if room is not None:
        store.kept[str(device)] = room


def all_on(store: Store, device: torch.device) -> Block | None:
    """All documents on a device, which keeps them with the store; None if half of its free memory does not
    hold them.
    """
    if str(device) not in store.kept and _fits(store, device):
        for _ in _on_device(store, BlockPlan.of(store, 1, device, None, threads=1)):
            pass
        store.require_unchanged()
    kept = store.kept.get(str(device))
    return kept if isinstance(kept, Block) else None


def _fits(store: Store, device: torch.device) -> bool:
    """Whether half of a device's free memory holds all vectors and their lengths, in float32."""
    return 4 * store.count * (store.width + 1) <= free_memory(device) // 2


def _room_for(store: Store, device: torch.device) -> Block | None:
    """Memory for all vectors, if half of what is free on the device suffices."""
    if not _fits(store, device):
        return None
    # Written in another thread, where a tensor of the caller's inference mode could not be.
    with torch.inference_mode(False):
        try:
            vectors = torch.empty(store.count, store.width, device=device)
            return Block(0, vectors, torch.empty(store.count, device=device))
        except torch.OutOfMemoryError:
            # Free memory may lie in pieces, or another process was quicker.
            return None


def _running_on(stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
    """A context whose work runs on a stream of a GPU, if there is one."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def require_finite(store: Store, sizes: Float32[np.ndarray, " n"], rows: Integer[np.ndarray, " n"]) -> None:
    """Refuse NaN and infinity: no store is built with them, so the file is damaged, and they would rank
    last.
    """
    broken = rows[~np.isfinite(sizes)]
    if len(broken):
        ids = several((f'"{doc_id}"' for doc_id in store.doc_ids(broken)), of="documents")
        raise StoreError(
            f"{store.path} must hold finite vectors, got NaN or infinity for "
            f"{ids}; it is damaged: rebuild the store"
        )
