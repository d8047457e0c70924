"""Forward and backward passes of a tower over one batch, cut in two so that two threads share the work of a CPU.

The texts of a batch are few and short, so one pass cut over all cores mostly waits for its slowest core after every operation. Two passes
of half the work each wait for nothing, and they are packed: no padding is computed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.model.encoder import Encoder
from adiabat.model.packing import PackedBackbone, is_packable
from adiabat.model.precision import Precision, autocast
from adiabat.model.tokens import TokenTable, embed_rows
from adiabat.model.workers import side_by_side, working_copies

HALVES = 2
"""More would make a weight's gradient depend on which thread adds to it first; of two summands the order does not matter."""

Job = Callable[[Encoder], Tensor]
Runner = Callable[[Iterable[Job]], Iterator[Tensor]]


class Passes:
    """Embeds batches of one tower, differentiably; `in_halves` makes one that uses two threads."""

    def __init__(self, encoder: Encoder, *, precision: Precision, run: Runner | None = None) -> None:
        """Set up.

        Args:
            encoder: The tower, or a copy of it that shares its weights.
            precision: Of the forward pass.
            run: Carries out jobs side by side and gives their results in order; None makes every batch one pass.
        """
        self._encoder = encoder
        self._precision = precision
        self._run = run

    def embed(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
        """Embed some texts of a table.

        Args:
            table: Tokenised by the encoder.
            picked: Which texts.

        Returns:
            Their embeddings; differentiating a function of them adds to the gradients of the weights, and may be done once.
        """
        if self._run is None or len(picked) < HALVES:
            return self._forward(table, picked, self._encoder)
        places = halves(table.lengths[picked], packed=is_packed(self._encoder))
        parts = list(self._run([partial(self._forward, table, picked[place]) for place in places]))
        anchor = torch.empty(0, requires_grad=torch.is_grad_enabled())
        joined: Tensor = _Joined.apply(anchor, self._run, places, parts)  # type: ignore[no-untyped-call]
        return joined

    def _forward(self, table: TokenTable, rows: Int[np.ndarray, " p"], encoder: Encoder) -> Float[Tensor, "p e"]:
        with autocast(encoder.device, self._precision):
            return embed_rows(encoder, table, rows)


class _Joined(torch.autograd.Function):
    """Parts of a batch put together; its gradient is carried on into each part's own graph, side by side."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, run: Runner, places: Sequence[Int[np.ndarray, " _"]], parts: Sequence[Tensor]) -> Tensor:
        """Put the parts in the order of the batch; `anchor` only makes autograd call `backward`."""
        ctx.run, ctx.places, ctx.parts = run, [torch.from_numpy(place) for place in places], parts
        joined = parts[0].new_empty(sum(map(len, parts)), parts[0].shape[1])
        for place, part in zip(ctx.places, parts, strict=True):
            joined[place] = part.detach()
        return joined

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        """Differentiate both parts at once."""
        gradient = gradients[0]
        jobs = [partial(_differentiate, part, gradient[place]) for place, part in zip(ctx.places, ctx.parts, strict=True)]
        for _ in ctx.run(jobs):
            pass
        return None, None, None, None


def _differentiate(part: Float[Tensor, "p e"], gradient: Float[Tensor, "p e"], encoder: Encoder) -> Tensor:
    """A job: the graph of `part` knows its own encoder, so the one it is given is of no use to it."""
    del encoder
    torch.autograd.backward(part, gradient)
    return part


@contextmanager
def in_halves(encoder: Encoder, *, precision: Precision) -> Iterator[Passes]:
    """Two threads for the passes of one tower, while the block lasts.

    With one thread, or with dropout on (whose random numbers two threads would draw in no fixed order), a batch is one pass. On a GPU a
    batch is one padded pass: attention text by text would leave it idle.

    Args:
        encoder: The tower, in the mode it will be trained in.
        precision: Of the forward pass.

    Yields:
        What runs them.
    """
    if encoder.device.type != "cpu":
        yield Passes(encoder, precision=precision)
        return
    count = 1 if encoder.training or torch.get_num_threads() < HALVES else HALVES
    copies = [_packed(copy) for copy in working_copies(encoder, count, precision="fp32", shared=[encoder.tokenizer])]
    if count == 1:
        yield Passes(copies[0], precision=precision)
        return
    with side_by_side([_caller(copy) for copy in copies]) as run:
        yield Passes(copies[0], precision=precision, run=run)


def _packed(encoder: Encoder) -> Encoder:
    """The encoder, changed to compute no padding where its backbone can."""
    if is_packable(encoder.backbone):
        encoder.backbone = PackedBackbone(encoder.backbone)  # type: ignore[assignment]
    return encoder


def is_packed(encoder: Encoder) -> bool:
    """Whether an encoder computes no padding.

    Args:
        encoder: Any.

    Returns:
        True where its backbone packs.
    """
    return isinstance(encoder.backbone, PackedBackbone)


def _caller(encoder: Encoder) -> Callable[[Job], Tensor]:
    return lambda job: job(encoder)


def halves(lengths: Int[np.ndarray, " b"], *, packed: bool) -> list[Int[np.ndarray, " _"]]:
    """Cut a batch in two so that the longer pass is short.

    Args:
        lengths: Tokens of each text, two texts or more.
        packed: Whether padding costs nothing.

    Returns:
        Places in the batch, twice; neither is empty.
    """
    order = np.argsort(lengths, kind="stable")
    return _even(lengths, order) if packed else _cut(lengths, order)


def _even(lengths: Int[np.ndarray, " b"], order: Int[np.ndarray, " b"]) -> list[Int[np.ndarray, " _"]]:
    """Longest first, each text to the half that has fewer tokens so far."""
    parts: list[list[int]] = [[], []]
    tokens = [0, 0]
    for place in order[::-1].tolist():
        half = int(tokens[1] < tokens[0])
        parts[half].append(place)
        tokens[half] += int(lengths[place])
    return [np.array(part) for part in parts]


def _cut(lengths: Int[np.ndarray, " b"], order: Int[np.ndarray, " b"]) -> list[Int[np.ndarray, " _"]]:
    """The cut, in order of length, where the longer of two padded passes is shortest."""
    ascending = lengths[order]
    cuts = np.arange(1, len(order))
    longer = np.maximum(cuts * ascending[cuts - 1], (len(order) - cuts) * ascending[-1])
    cut = int(cuts[np.argmin(longer)])
    return [order[:cut], order[cut:]]
