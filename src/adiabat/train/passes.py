"""Forward and backward passes of a tower over one batch, in chunks of like length that two threads share on a CPU.

The texts of a batch are few and short, so one pass cut over all cores mostly waits for its slowest core after every operation. Passes
side by side wait for nothing, and on a CPU they are packed: no padding is computed. Gradient caching (Gao et al. 2021) is the same with
one difference: a chunk's activations are thrown away and computed again when its gradient is known.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.model.batches import token_budget_batches
from adiabat.model.encoder import Encoder
from adiabat.model.packing import PackedBackbone, is_packable
from adiabat.model.precision import Precision, autocast
from adiabat.model.tokens import TokenTable, embed_rows
from adiabat.model.workers import side_by_side, working_copies

WORKERS = 2
"""Threads that share a batch on a CPU; each adds up gradients of its own, so that no sum depends on which is faster."""

Job = Callable[[], list[Tensor]]
Runner = Callable[[Iterable[Job]], Iterator[list[Tensor]]]
Places = Int[np.ndarray, " _"]
_State = tuple[Tensor, Tensor | None]
"""Of torch's random numbers before a pass: on the CPU, and on a GPU where the tower is on one."""


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a batch is cut.

    Attributes:
        tokens: Tokens of one chunk, padding counted; None makes one chunk for each thread.
        cached: Whether a chunk is computed a second time for its gradient: memory then follows the chunk, not the batch.
    """

    tokens: int | None = None
    cached: bool = False

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise ValueError(f"tokens must be at least 1, got {self.tokens}; 4096 is a good start")


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Texts that pass together.

    Attributes:
        encoder: The thread's own copy of the tower.
        table: Tokens of all texts.
        picked: Which texts of the table.
        places: Where they stand in the batch.
        precision: Of the pass.
    """

    encoder: Encoder
    table: TokenTable
    picked: Int[np.ndarray, " p"]
    places: Int[np.ndarray, " p"]
    precision: Precision

    def forward(self) -> Float[Tensor, "p e"]:
        with autocast(self.encoder.device, self.precision):
            return embed_rows(self.encoder, self.table, self.picked)


class Passes:
    """Embeds batches of one tower, differentiably; `side_passes` makes one that uses two threads."""

    def __init__(
        self,
        encoder: Encoder,
        *,
        precision: Precision,
        copies: Sequence[Encoder] = (),
        run: Runner | None = None,
        chunking: Chunking | None = None,
    ) -> None:
        """Set up.

        Args:
            encoder: The tower.
            precision: Of the forward pass.
            copies: One for each thread, with the tower's weights and gradients of their own (`_copies`); none makes the tower itself the
                only one.
            run: Carries out jobs side by side and gives their results in order; None runs them one after the other.
            chunking: None makes one chunk for each copy.
        """
        self._encoder = encoder
        self._copies = list(copies) or [encoder]
        self._precision = precision
        self._run: Runner = run or (lambda jobs: (job() for job in jobs))
        self._chunking = chunking or Chunking()

    def embed(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embed some texts of a table.

        Args:
            table: Tokenised by the encoder.
            picked: Which texts.

        Returns:
            Their embeddings; differentiating a function of them adds to the gradients of the weights, and may be done once. A tower
            without trainable weights is passed through once, without a graph.

        Raises:
            RuntimeError: When they are differentiated a second time.
        """
        if not len(picked):
            return torch.zeros(0, self._encoder.width, device=self._encoder.device)
        for weights, twin in self._twins():
            # What is trained may have changed since the copies were made.
            twin.requires_grad_(weights.requires_grad)
        shares = self._shares(table, picked)
        trained = torch.is_grad_enabled() and any(weights.requires_grad for weights in self._encoder.parameters())
        if trained and not self._chunking.cached and sum(map(len, shares)) == 1:
            (chunk,) = (chunk for share in shares for chunk in share)
            return _in_place(chunk.forward(), chunk.places)
        anchor = torch.empty(0, requires_grad=trained)
        joined: Tensor = _Joined.apply(anchor, self, shares, trained)  # type: ignore[no-untyped-call]
        return joined

    def _shares(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> list[list[_Chunk]]:
        """Chunks of each thread, in a fixed order."""
        lengths = table.lengths[picked]
        threads = len(self._copies)
        if self._chunking.tokens is None:
            cut = [[part] for part in shared_out(lengths, threads, packed=is_packed(self._copies[0]))]
        else:
            pieces = list(token_budget_batches(lengths, self._chunking.tokens))
            costs = np.array([int(lengths[piece].sum()) for piece in pieces])
            cut = [[pieces[number] for number in numbers] for numbers in evenly(costs, threads)]
        return [
            [_Chunk(encoder, table, picked[places], places, self._precision) for places in share]
            for encoder, share in zip(self._copies, cut, strict=False)
        ]

    def _twins(self) -> Iterator[tuple[nn.Parameter, nn.Parameter]]:
        """Each of the tower's parameters with that of every thread but the first."""
        own = list(self._encoder.parameters())
        return chain.from_iterable(zip(own, copy.parameters(), strict=True) for copy in self._copies[1:])

    def _collect(self) -> None:
        """Add the gradients of every thread but the first to the tower's own, and forget them."""
        for weights, twin in self._twins():
            if twin.grad is not None:
                weights.grad = twin.grad if weights.grad is None else weights.grad.add_(twin.grad)
        self._forget()

    def _forget(self) -> None:
        for _, twin in self._twins():
            twin.grad = None


class _Joined(torch.autograd.Function):
    """Chunks of a batch put together; the gradient is carried on into each chunk's own graph, side by side."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, passes: Passes, shares: Sequence[Sequence[_Chunk]], trained: bool) -> Tensor:
        """Put the chunks in the order of the batch; `anchor` only makes autograd call `backward`."""
        kept = trained and not passes._chunking.cached
        states: list[list[_State]] = [[] for _ in shares]
        jobs = [partial(_pass_through, share, kept, state) for share, state in zip(shares, states, strict=True)]
        ctx.passes, ctx.shares, ctx.states, ctx.done = passes, shares, states, False
        ctx.outputs = list(passes._run(jobs))
        chunks = [chunk for share in shares for chunk in share]
        parts = [part for outputs in ctx.outputs for part in outputs]
        joined: Tensor = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1])
        for chunk, part in zip(chunks, parts, strict=True):
            joined[torch.from_numpy(chunk.places)] = part.detach()
        if not kept:
            ctx.outputs = [[] for _ in shares]
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        """Differentiate all chunks."""
        if ctx.done:
            raise RuntimeError("a batch must be differentiated once, got a second time; embed it again")
        ctx.done = True
        jobs = [partial(_carry_on, gradients[0], *work) for work in zip(ctx.shares, ctx.outputs, ctx.states, strict=True)]
        try:
            for _ in ctx.passes._run(jobs):
                pass
        except BaseException:
            ctx.passes._forget()
            raise
        ctx.passes._collect()
        return None, None, None, None


def _pass_through(share: Sequence[_Chunk], kept: bool, states: list[_State]) -> list[Tensor]:
    """Embed a thread's chunks, with their graphs or without; a pass that will be repeated notes what random numbers it began with."""
    parts = []
    for chunk in share:
        if not kept and _draws(chunk.encoder):
            states.append(_random_state(chunk.encoder.device))
        with torch.set_grad_enabled(kept):
            parts.append(chunk.forward())
    return parts


def _carry_on(gradient: Tensor, share: Sequence[_Chunk], outputs: Sequence[Tensor], states: Sequence[_State]) -> list[Tensor]:
    """Differentiate a thread's chunks, computing again those whose graphs were not kept."""
    for number, chunk in enumerate(share):
        part = outputs[number] if outputs else _again(chunk, states[number] if states else None)
        torch.autograd.backward(part, gradient[torch.from_numpy(chunk.places).to(gradient.device)])
    return []


def _again(chunk: _Chunk, state: _State | None) -> Float[Tensor, "p e"]:
    """The pass once more, with the same dropout."""
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        if state is not None:
            device = chunk.encoder.device
            stack.enter_context(torch.random.fork_rng([device] if device.type == "cuda" else []))
            torch.set_rng_state(state[0])
            if state[1] is not None:
                torch.cuda.set_rng_state(state[1], device)
        return chunk.forward()


def _draws(encoder: Encoder) -> bool:
    """Whether a pass may draw random numbers: in any part, for dropout may be on in a part alone."""
    return any(part.training for part in encoder.modules())


def _random_state(device: torch.device) -> _State:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _in_place(part: Float[Tensor, "b e"], places: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
    """Rows of the only chunk in the order of the batch."""
    order = torch.from_numpy(np.argsort(places)).to(part.device)
    return part[order]


@contextmanager
def side_passes(encoder: Encoder, *, precision: Precision, chunking: Chunking | None = None) -> Iterator[Passes]:
    """Two threads for the passes of one tower, while the block lasts.

    With one thread, or with dropout on (whose random numbers two threads would draw in no fixed order), chunks pass one after the other.
    On a GPU chunks are padded: attention text by text would leave it idle.

    Args:
        encoder: The tower, in the mode it will be trained in.
        precision: Of the forward pass.
        chunking: See `Chunking`.

    Yields:
        What runs them.
    """
    if encoder.device.type != "cpu":
        yield Passes(encoder, precision=precision, chunking=chunking)
        return
    count = 1 if _draws(encoder) or torch.get_num_threads() < WORKERS else WORKERS
    copies = _copies(encoder, count)
    if count == 1:
        yield Passes(encoder, precision=precision, copies=copies, chunking=chunking)
        return
    with side_by_side([_call] * count) as run:
        yield Passes(encoder, precision=precision, copies=copies, run=run, chunking=chunking)


def _call(job: Job) -> list[Tensor]:
    return job()


def _copies(encoder: Encoder, count: int) -> list[Encoder]:
    """Copies that compute no padding where the backbone can: the first has the tower's own parameters, the others only their values."""
    copies = working_copies(encoder, count, precision="fp32", shared=[encoder.tokenizer])
    for copy in copies[1:]:
        _give_own_gradients(copy)
    for copy in copies:
        if is_packable(copy.backbone):
            copy.backbone = PackedBackbone(copy.backbone)  # type: ignore[assignment]
    return copies


def _give_own_gradients(module: nn.Module) -> None:
    """Replace each parameter by one that has the same memory, and a gradient of its own."""
    twins: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for name, weights in part.named_parameters(recurse=False, remove_duplicate=False):
            twin = twins.setdefault(id(weights), nn.Parameter(weights.detach(), requires_grad=weights.requires_grad))
            setattr(part, name, twin)


def is_packed(encoder: Encoder) -> bool:
    """Whether an encoder computes no padding.

    Args:
        encoder: Any.

    Returns:
        True where its backbone packs.
    """
    return isinstance(encoder.backbone, PackedBackbone)


def shared_out(lengths: Int[np.ndarray, " b"], threads: int, *, packed: bool) -> list[Places]:
    """Cut a batch into one part per thread so that the longest pass is short.

    Args:
        lengths: Tokens of each text, at least one text.
        threads: One or two.
        packed: Whether padding costs nothing.

    Returns:
        Places in the batch; as many parts as threads or as texts, none empty.
    """
    if threads == 1 or len(lengths) == 1:
        return [np.arange(len(lengths))]
    return evenly(lengths, threads) if packed else _cut(lengths)


def evenly(costs: Int[np.ndarray, " n"], threads: int) -> list[Places]:
    """Longest first, each piece to the thread that has least so far.

    Args:
        costs: Of each piece.
        threads: > 0.

    Returns:
        Pieces of each thread that has any.
    """
    parts: list[list[int]] = [[] for _ in range(threads)]
    sums = [0] * threads
    for piece in np.argsort(-costs, kind="stable").tolist():
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
