"""Forward and backward passes of a tower over one batch, cut in two so that two threads share the work of a CPU.

The texts of a batch are few and short, so that one pass cut over all cores mostly waits for its slowest core after every operation. Two
passes of half the texts each wait for nothing. The halves are cut from the texts in order of length, which saves padding as well.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.model.encoder import Encoder
from adiabat.model.precision import Precision, autocast
from adiabat.model.tokens import TokenTable, embed_rows
from adiabat.model.workers import side_by_side, working_copies

HALVES = 2
"""More would make a weight's gradient depend on which thread adds to it first; of two summands the order does not matter."""

Job = Callable[[Encoder], Tensor | None]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Embeddings of one batch, and the passes they came from.

    Attributes:
        embeddings: In the order of the batch, without a graph; a loss of them is differentiated first.
        parts: For each pass, the places of its texts in the batch, and their embeddings with their graph.
    """

    embeddings: Float[Tensor, "b e"]
    parts: Sequence[tuple[Int[np.ndarray, " p"], Float[Tensor, "p e"]]]


class Passes:
    """Runs the passes of one tower; get one from `passes`."""

    def __init__(self, run: Callable[[Iterable[Job]], Iterator[Tensor | None]], encoder: Encoder, *, count: int, precision: Precision) -> None:
        """Set up; see `passes`.

        Args:
            run: Carries out jobs and gives their results in order.
            encoder: The tower.
            count: Passes per batch.
            precision: Of the forward pass.
        """
        self._run = run
        self._encoder = encoder
        self._count = count
        self._precision = precision

    def embed(self, table: TokenTable, picked: Int[np.ndarray, " b"]) -> Embedded:
        """Embed some texts of a table, keeping what a backward pass needs.

        Args:
            table: Tokenised by the encoder.
            picked: Which texts.

        Returns:
            Their embeddings.
        """
        places = halves(table.lengths[picked], self._count)
        jobs = [partial(self._forward, table, picked[part]) for part in places]
        made = [embeddings for embeddings in self._run(jobs) if embeddings is not None]
        whole = torch.empty(len(picked), self._encoder.width, device=self._encoder.device)
        for part, embeddings in zip(places, made, strict=True):
            whole[torch.from_numpy(part).to(whole.device)] = embeddings.detach()
        return Embedded(whole.requires_grad_(), list(zip(places, made, strict=True)))

    def _forward(self, table: TokenTable, rows: Int[np.ndarray, " p"], encoder: Encoder) -> Tensor:
        with autocast(encoder.device, self._precision):
            return embed_rows(encoder, table, rows)

    def backward(self, embedded: Embedded) -> None:
        """Carry the gradient of the embeddings on into the weights, where it is added to what is there.

        Args:
            embedded: Its ``embeddings.grad`` was made by differentiating a loss.

        Raises:
            ValueError: If there is no such gradient.
        """
        gradient = embedded.embeddings.grad
        if gradient is None:
            raise ValueError("the loss must be differentiated before the passes, got embeddings without a gradient; call loss.backward() first")
        places = [torch.from_numpy(part).to(gradient.device) for part, _ in embedded.parts]
        jobs = [partial(_backward, embeddings, gradient[place]) for place, (_, embeddings) in zip(places, embedded.parts, strict=True)]
        for _ in self._run(jobs):
            pass


def _backward(embeddings: Float[Tensor, "p e"], gradient: Float[Tensor, "p e"], encoder: Encoder) -> None:
    torch.autograd.backward(embeddings, gradient)


@contextmanager
def passes(encoder: Encoder, *, precision: Precision) -> Iterator[Passes]:
    """Threads for the passes of one tower, while the block lasts.

    On a GPU, with one thread, or with dropout on (whose random numbers two threads would draw in no fixed order), a batch is one pass.

    Args:
        encoder: The tower, in the mode it will be trained in.
        precision: Of the forward pass.

    Yields:
        What runs them.
    """
    if encoder.device.type != "cpu" or torch.get_num_threads() < HALVES or encoder.training:
        yield Passes(lambda jobs: (job(encoder) for job in jobs), encoder, count=1, precision=precision)
        return
    copies = working_copies(encoder, HALVES, precision="fp32", shared=[encoder.tokenizer])
    with side_by_side([_caller(copy) for copy in copies]) as run:
        yield Passes(run, encoder, count=HALVES, precision=precision)


def _caller(encoder: Encoder) -> Callable[[Job], Tensor | None]:
    return lambda job: job(encoder)


def halves(lengths: Int[np.ndarray, " b"], count: int) -> list[Int[np.ndarray, " p"]]:
    """Cut a batch, in order of length, into parts of about equally many tokens, padding counted.

    Args:
        lengths: Tokens of each text.
        count: 1, or 2.

    Returns:
        Places in the batch; one part where there is only one text.
    """
    order = np.argsort(lengths, kind="stable")
    if count == 1 or len(order) == 1:
        return [order]
    ascending = lengths[order]
    cuts = np.arange(1, len(order))
    longer = np.maximum(cuts * ascending[cuts - 1], (len(order) - cuts) * ascending[-1])
    cut = int(cuts[np.argmin(longer)])
    return [order[:cut], order[cut:]]
