"""Forward and backward passes of towers over a batch, in chunks of similar length that two threads share on a
CPU.

The texts of a batch are few and short, so one pass split over all cores mostly waits for its slowest core
after every operation. Parallel passes do not wait, and on a CPU they are packed, without padding. Gradient
caching (Gao et al. 2021) is the same except that a chunk's activations are discarded and recomputed once its
gradient is known.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.models.bulk import TokenTable
from adiabat.models.compilation import blocks_of
from adiabat.models.device import Precision, call, on_device, parallel_map
from adiabat.models.encoder import Encoder
from adiabat.models.packing import is_packed
from adiabat.scaling_laws.flops import TowerOperations
from adiabat.training.blocks import RandomState, draws, frozen_prefix
from adiabat.training.flop_count import operations_of
from adiabat.training.gradient_cache import (
    Chunk,
    Chunking,
    Manner,
    Piece,
    RoundedWeights,
    evenly,
    packs,
    padded_lengths,
    pieces_of,
    size_of,
    training_copies,
)
from adiabat.training.kept_graphs import first_that_fit, free_bytes, graph_bytes

WORKERS = 2
"""Threads that share a batch on a CPU; each sums its own gradients, so that no sum depends on timing."""

GRADIENT_COST = 3
"""Cost of training a chunk, in forward passes: the gradient of a product takes two more."""

Job = Callable[[], list[Tensor]]
Runner = Callable[[Iterable[Job]], Iterator[list[Tensor]]]


@dataclass(frozen=True, slots=True)
class Group:
    """Texts of one table, tokenised by the tower of that number."""

    table: TokenTable
    rows: Int[np.ndarray, " b"]
    tower: int = 0


class _Tower:
    """A tower with its copies for threads, and what is found out about its passes once.

    Some of that depends on which weights are trained, and is stored by their `flags`.
    """

    def __init__(self, encoder: Encoder, copies: Sequence[Encoder]) -> None:
        self.encoder = encoder
        self.copies = copies
        self.blocks = [blocks_of(copy.backbone) for copy in copies]
        self.size = size_of(encoder)
        self.packed = is_packed(copies[0])
        self.graph_bytes: dict[tuple[bool, ...], float] = {}
        self._weights = list(encoder.parameters())
        self._prefixes: dict[tuple[bool, ...], int] = {}
        self._operations: dict[tuple[bool, ...], TowerOperations] = {}

    @property
    def flags(self) -> tuple[bool, ...]:
        """Which weights are trained; methods may freeze or free some between steps."""
        return tuple(weights.requires_grad for weights in self._weights)

    def prefix(self) -> int:
        """Leading blocks that need not be recomputed."""
        flags = self.flags
        if all(flags):
            return 0
        if flags not in self._prefixes:
            self._prefixes[flags] = frozen_prefix(self.copies[0], self.blocks[0])
        return self._prefixes[flags]

    def operations(self) -> TowerOperations:
        """The cost of passes, counted operation by operation."""
        flags = self.flags
        if flags not in self._operations:
            self._operations[flags] = operations_of(self.encoder)
        return self._operations[flags]

    def twins(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each parameter with that of every thread but the first, which has the tower's own parameters."""
        for copy in self.copies[1:]:
            yield from zip(self.encoder.parameters(), copy.parameters(), strict=True)


class Passes:
    """Embeds batches differentiably; `side_passes` makes one that uses two threads."""

    def __init__(
        self,
        *encoders: Encoder,
        precision: Precision,
        copies: Sequence[Sequence[Encoder]] = (),
        run: Runner | None = None,
        chunking: Chunking | None = None,
    ) -> None:
        """Set up.

        Args:
            copies: Copies of each encoder, one for each thread; none passes the encoders themselves.
            run: Runs jobs in parallel and returns their results in order; None runs them one after the other.
            chunking: None makes one chunk for each thread.
        """
        of_each = copies or [[encoder] for encoder in encoders]
        self._towers = list(map(_Tower, encoders, of_each))
        self._threads = len(copies[0]) if copies else 1
        self._precision = precision
        self._run: Runner = run or partial(map, call)
        self._chunking = chunking or Chunking()
        self._room = self._chunking.kept_bytes
        self._relieved = False
        # Only in copies: a tower must not keep rounded weights of an earlier step.
        rounded = chain.from_iterable(copies) if precision == "bf16" else ()
        self._rounded = [RoundedWeights(copy) for copy in rounded]

    def embed(
        self, table: TokenTable, rows: Int[np.ndarray, " b"], *, tower: int = 0
    ) -> Float[Tensor, "b e"]:
        """Embed some texts of a table: `embed_all` for one group."""
        return self.embed_all([Group(table, rows, tower)])[0]

    def embed_all(self, groups: Sequence[Group]) -> list[Float[Tensor, "_ _"]]:
        """Embed groups of texts, with their chunks divided among the threads.

        Args:
            groups: Any number of groups, of any tower; they may be empty.
        """
        for weights, twin in self._twins():
            # The set of trained weights may have changed since the copies were made.
            twin.requires_grad_(weights.requires_grad)
        for rounded in self._rounded:
            rounded.renew()
        manners = [self._manner(tower) for tower in self._towers]
        shares = self._shares(groups, manners)
        trained = [manners[group.tower].trained for group in groups]
        # One chunk needs no joining: its own graph is that of the batch.
        if trained == [True] and not self._chunking.cached and sum(map(len, shares)) == 1:
            return [_in_place(shares[0][0])]
        # Autograd calls the backward of a function only if an input needs a gradient; weights are reached
        # through the chunks' own graphs.
        root = torch.empty(0, requires_grad=any(trained))
        joined: tuple[Tensor, ...] = _Joined.apply(root, self, groups, shares, trained)  # type: ignore[no-untyped-call]
        return list(joined)

    def relieve(self) -> int | None:
        """Halve the tokens of a pass and keep no graph, so that a step takes less memory; None if that was
        done before.

        Returns:
            The tokens of a pass.
        """
        if self._relieved or self._chunking.tokens is None:
            return None
        self._relieved, self._room = True, 0
        tokens = max(1, self._chunking.tokens // 2)
        self._chunking = replace(self._chunking, tokens=tokens, cached=True)
        return tokens

    def operations(self, groups: Sequence[Group]) -> float:
        """Cost of passing groups forward and backward, counted operation by operation."""
        manners = [self._manner(tower) for tower in self._towers]
        pieces = self._pieces(groups)
        kept = self._kept(groups, pieces, manners)
        return sum(
            self._operations(groups[number], piece, manners[groups[number].tower], recomputed=not keeps)
            for (number, piece), keeps in zip(pieces, kept, strict=True)
        )

    def _operations(self, group: Group, piece: Piece, manner: Manner, *, recomputed: bool) -> float:
        tower = self._towers[group.tower]
        lengths = group.table.lengths[group.rows[piece.positions]]
        computed = padded_lengths(lengths, packed=tower.packed, shape=piece.shape)
        cached, checkpointed = manner.cached and recomputed, manner.chunking.checkpointed
        return tower.operations().of(
            computed, trained=manner.trained, cached=cached, checkpointed=checkpointed
        )

    def _manner(self, tower: _Tower) -> Manner:
        """How a tower is passed, which may change from step to step."""
        trained = torch.is_grad_enabled() and any(tower.flags)
        prefix = tower.prefix() if trained and self._chunking.cached else 0
        return Manner(self._precision, self._chunking, trained, draws(tower.copies[0]), prefix)

    def _shares(self, groups: Sequence[Group], manners: Sequence[Manner]) -> list[list[Chunk]]:
        """Chunks of each thread, in a fixed order."""
        pieces = self._pieces(groups)
        kept = self._kept(groups, pieces, manners)
        factors = [
            tower.size * (GRADIENT_COST if manner.trained else 1)
            for tower, manner in zip(self._towers, manners, strict=True)
        ]
        # Tokens times parameters, since attention is a small part of short texts.
        costs = [piece.tokens * factors[groups[number].tower] for number, piece in pieces]
        seeds = _seeds(len(pieces)) if any(manner.draws for manner in manners) else [None] * len(pieces)

        def chunk(thread: int, at: int) -> Chunk:
            number, piece = pieces[at]
            group = groups[number]
            tower, manner = self._towers[group.tower], manners[group.tower]
            # Other passes draw from torch's generator, one after the other.
            seed = seeds[at] if manner.draws and tower.packed else None
            copy, blocks, rows = tower.copies[thread], tower.blocks[thread], group.rows[piece.positions]
            return Chunk(copy, blocks, number, piece, group.table, rows, manner, seed, kept[at])

        # The assignment to threads depends only on lengths, so that gradients are summed in the same order in
        # every run.
        shares = enumerate(evenly(costs, self._threads))
        return [[chunk(thread, at) for at in share.tolist()] for thread, share in shares]

    def _pieces(self, groups: Sequence[Group]) -> list[tuple[int, Piece]]:
        """The pieces of all groups, each with the number of its group."""
        pieces = []
        for number, group in enumerate(groups):
            lengths = group.table.lengths[group.rows]
            tower = self._towers[group.tower]
            limit = tower.encoder.settings.limit(group.table.side)
            cut = pieces_of(
                lengths, self._chunking, threads=self._threads, packed=tower.packed, longest=limit
            )
            pieces += [(number, piece) for piece in cut]
        return pieces

    def _kept(
        self, groups: Sequence[Group], pieces: Sequence[tuple[int, Piece]], manners: Sequence[Manner]
    ) -> list[bool]:
        """Whether each piece keeps its graph until the gradient is known."""
        groups_of = [groups[number] for number, _ in pieces]
        # Without a gradient or caching, nothing is computed twice.
        recomputed = [manners[group.tower].cached for group in groups_of]
        room = self._room_for_graphs() if any(recomputed) else 0
        if not room:
            return [not again for again in recomputed]
        sizes = []
        for group, (_, piece), again in zip(groups_of, pieces, recomputed, strict=True):
            size = self._bytes_per_token(group, piece, manners[group.tower]) if again else 0.0
            sizes.append(piece.tokens * size)
        # In what is free, there must be room for a graph that is made again beside those that are held.
        beside = max(sizes) if self._chunking.kept_bytes is None and sum(sizes) > room else 0.0
        return first_that_fit(sizes, room - beside)

    def _room_for_graphs(self) -> int:
        """Bytes that kept graphs may take, the same in all steps of a run."""
        if self._room is None:
            every = chain.from_iterable(tower.encoder.parameters() for tower in self._towers)
            self._room = free_bytes(self._towers[0].encoder.device, every)
        return self._room

    def _bytes_per_token(self, group: Group, piece: Piece, manner: Manner) -> float:
        """Bytes of a graph for each token of a tower, measured on the first piece that asks, which is the
        longest of its batch.
        """
        tower = self._towers[group.tower]
        flags = tower.flags
        if flags not in tower.graph_bytes:
            encoder, rows = tower.copies[0], group.rows[piece.positions]
            chunk = Chunk(encoder, tower.blocks[0], 0, piece, group.table, rows, manner, 0, kept=True)
            with RandomState.now(encoder.device).replayed():
                total = graph_bytes(partial(chunk.pass_through, graph=True), encoder.parameters())
            tower.graph_bytes[flags] = total / piece.tokens
        return tower.graph_bytes[flags]

    def _twins(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        return chain.from_iterable(tower.twins() for tower in self._towers)

    def _collect(self) -> None:
        """Add the gradients of every other thread to those of the first, and clear them."""
        for weights, twin in self._twins():
            if twin.grad is not None:
                weights.grad = twin.grad if weights.grad is None else weights.grad.add_(twin.grad)
        self._forget()

    def _forget(self) -> None:
        for _, twin in self._twins():
            twin.grad = None


class _Joined(torch.autograd.Function):
    """Joins the chunks of groups; the backward pass runs the graph of each chunk in parallel."""

    @staticmethod
    def forward(
        ctx: Any,
        root: Tensor,
        passes: Passes,
        groups: Sequence[Group],
        shares: list[list[Chunk]],
        trained: Sequence[bool],
    ) -> tuple[Tensor, ...]:
        """Arrange the chunks in the order of their groups; `root` makes autograd call `backward`."""
        towers = [passes._towers[group.tower].encoder for group in groups]
        joined = [
            torch.empty(len(group.rows), tower.width, device=tower.device)
            for group, tower in zip(groups, towers, strict=True)
        ]
        results = passes._run([partial(_embed, share) for share in shares])
        for share, outputs in zip(shares, results, strict=True):
            for chunk, output in zip(share, outputs, strict=True):
                room = joined[chunk.group]
                room[on_device(torch.from_numpy(chunk.piece.positions), room.device)] = output
        ctx.passes, ctx.shares, ctx.once = passes, shares, _Once()
        # A group without gradient is not passed again; a zero gradient would cause that.
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*compress(joined, [not needs for needs in trained]))
        return tuple(joined)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[None, None, None, None, None]:
        """Differentiate all chunks that the loss depends on."""
        ctx.once(gradients)
        shares, ctx.shares = ctx.shares, []
        try:
            for _ in ctx.passes._run([partial(_carry_on, share, gradients) for share in shares]):
                pass
        # A partial gradient must not remain for the next step.
        except BaseException:
            ctx.passes._forget()
            raise
        ctx.passes._collect()
        return None, None, None, None, None


class _Once:
    """Runs a single backward pass."""

    def __init__(self) -> None:
        self._done = False

    def __call__(self, gradients: Sequence[Tensor | None]) -> None:
        if self._done:
            raise RuntimeError("a batch must be differentiated only once; embed it again")
        self._done = True


def _in_place(chunk: Chunk) -> Float[Tensor, "b e"]:
    """Embeddings of a single chunk in the order of the batch, with autograd's own graph."""
    # The inverse of a permutation is its argsort.
    order = on_device(torch.from_numpy(np.argsort(chunk.piece.positions)), chunk.encoder.device)
    embeddings = chunk.pass_through(graph=True)[order]
    assert embeddings.grad_fn is not None
    embeddings.grad_fn.register_prehook(_Once())
    return embeddings


def _seeds(count: int) -> list[int]:
    """A seed for each chunk's dropout, from one number of torch's generator."""
    # One draw for the whole batch advances torch's generator equally, however the batch is cut.
    first = int(torch.randint(2**63 - 1, ()))
    return [(first + number) % 2**63 for number in range(count)]


def _embed(share: Sequence[Chunk]) -> list[Tensor]:
    return [chunk.embed() for chunk in share]


def _carry_on(share: Sequence[Chunk], gradients: Sequence[Tensor | None]) -> list[Tensor]:
    """Differentiate a thread's chunks; a group that is frozen, or that the loss does not depend on, has no
    gradient.
    """
    for chunk in share:
        gradient = gradients[chunk.group]
        if gradient is not None:
            chunk.carry_on(gradient[on_device(torch.from_numpy(chunk.piece.positions), gradient.device)])
    return []


@contextmanager
def side_passes(
    *encoders: Encoder, precision: Precision, chunking: Chunking | None = None
) -> Iterator[Passes]:
    """Two threads for the passes of all given towers within the block.

    Chunks run one after the other in one thread: on a GPU, with a compiled backbone, and with dropout in a
    backbone that cannot be packed, where two threads would draw random numbers in no fixed order.
    """
    chunking = chunking or Chunking()
    count = _threads(encoders, chunking, precision)
    copies = training_copies(encoders, count, chunking, precision)
    with ExitStack() as stack:
        run = stack.enter_context(parallel_map([call] * count)) if count > 1 else None
        yield Passes(*encoders, precision=precision, copies=copies, run=run, chunking=chunking)


def _threads(encoders: Sequence[Encoder], chunking: Chunking, precision: Precision) -> int:
    # Packed passes draw dropout from their own generators; others from torch's, in no fixed order if threads
    # run in parallel.
    ordered = all(not draws(encoder) or packs(encoder, chunking, precision) for encoder in encoders)
    apart = ordered and not chunking.compiled and all(encoder.device.type == "cpu" for encoder in encoders)
    # Two threads of one core each beat one pass on two cores: an operation on so few tokens is over before
    # the cores are in step.
    return WORKERS if apart and torch.get_num_threads() >= WORKERS else 1
