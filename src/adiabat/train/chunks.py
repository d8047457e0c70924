"""A chunk's passes: once with its graph kept, or once without and a second time for its gradient."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.model.batches import filled_up
from adiabat.model.dropout import drawing_from
from adiabat.model.encoder import Encoder
from adiabat.model.precision import Precision, autocast
from adiabat.model.tokens import TokenTable
from adiabat.train.blocks import BlockOutput, checkpointed, recorded, replayed
from adiabat.train.randomness import RandomState


@dataclass(frozen=True, slots=True)
class Manner:
    """How the chunks of one tower pass, in one step.

    Attributes:
        precision: Of both passes.
        trained: Whether there is a gradient to carry on.
        cached: Whether a second pass computes it.
        checkpointed: Whether blocks keep only their input.
        draws: Whether random numbers may be drawn, so that their state has to be kept.
        prefix: Leading blocks that the second pass takes from the first.
    """

    precision: Precision
    trained: bool
    cached: bool
    checkpointed: bool
    draws: bool
    prefix: int


@dataclass(slots=True)
class Chunk:
    """Texts that pass together, and what their first pass leaves for the gradient.

    Attributes:
        encoder: The thread's own copy of the tower.
        blocks: Its blocks, where the manner makes use of them.
        group: Number of the group that the texts belong to.
        places: Where they stand in it.
        table: Their tokens.
        picked: Which texts of the table.
        shape: Rows and length to which they are padded; None goes by the texts.
        manner: How they pass.
        seed: Of dropout from a generator of the chunk's own; None draws from torch's.
    """

    encoder: Encoder
    blocks: list[nn.Module]
    group: int
    places: Int[np.ndarray, " p"]
    table: TokenTable
    picked: Int[np.ndarray, " p"]
    shape: tuple[int, int] | None
    manner: Manner
    seed: int | None = None
    _graph: Tensor | None = None
    _start: RandomState | None = None
    _record: list[BlockOutput] = field(default_factory=list)

    def embed(self) -> Float[Tensor, "p e"]:
        """Embed the texts, and keep what the gradient will need."""
        manner = self.manner
        if not manner.trained:
            return self.pass_through(graph=False)
        if not manner.cached:
            self._graph = self.pass_through(graph=True)
            return self._graph.detach()
        device = self.encoder.device if manner.draws else None
        # A seed of its own tells where a chunk begins.
        self._start = RandomState.now(device) if device and self.seed is None else None
        if not manner.prefix:
            return self.pass_through(graph=False)
        with recorded(self.blocks[manner.prefix - 1], self._record, device=device):
            return self.pass_through(graph=False)

    def carry_on(self, gradient: Float[Tensor, "p e"]) -> None:
        """Add to the gradients of the weights; what was kept is let go."""
        graph = self._graph if self._graph is not None else self._again()
        self.forget()
        torch.autograd.backward(graph, gradient)

    def forget(self) -> None:
        """Let go of what the first pass left."""
        self._graph = self._start = None
        self._record.clear()

    def pass_through(self, *, graph: bool) -> Float[Tensor, "p e"]:
        """Embed the texts, and keep nothing."""
        with ExitStack() as stack:
            if self.seed is not None:
                stack.enter_context(drawing_from(torch.Generator().manual_seed(self.seed)))
            stack.enter_context(torch.set_grad_enabled(graph))
            stack.enter_context(autocast(self.encoder.device, self.manner.precision))
            if graph and self.manner.checkpointed:
                # Blocks of a prefix have nothing to compute again.
                stack.enter_context(checkpointed(self.blocks[self.manner.prefix :], draws=self.manner.draws))
            return self._embeddings()

    def _again(self) -> Float[Tensor, "p e"]:
        """The pass once more, with the same dropout, from where the record ends."""
        with ExitStack() as stack:
            if self._start is not None:
                stack.enter_context(self._start.replayed())
            for output in self._record:
                stack.enter_context(replayed(self.blocks[: self.manner.prefix], output))
            return self.pass_through(graph=True)

    def _embeddings(self) -> Float[Tensor, "p e"]:
        tokens = self.encoder.collate(self.table.lists(self.picked), side=self.table.side)
        if self.shape is not None:
            tokens = filled_up(tokens, rows=self.shape[0], length=self.shape[1], pad_token_id=self.encoder.pad_token_id)
        embeddings: Tensor = self.encoder(tokens)
        return embeddings[: len(self.picked)]
