"""Gradient caching: the chunks of a batch, their passes, and copies of a tower for threads."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from adiabat.core.errors import ModelError
from adiabat.models.bulk import TokenTable
from adiabat.models.compilation import blocks_of, compile_blocks, enough_graphs
from adiabat.models.device import Precision, autocast, linear_weights, thread_replicas
from adiabat.models.encoder import Encoder
from adiabat.models.packing import drawing_from, gains_by_packing, pack, use_thread_dropout
from adiabat.models.tokens import bucket_batches, token_budget_batches
from adiabat.training.blocks import (
    BlockOutput,
    RandomState,
    checkpointed,
    recorded,
    replayed,
)

Positions = Int[np.ndarray, " _"]


@dataclass(frozen=True, slots=True)
class Chunking:
    """How a batch is passed; the settings check that the options are compatible.

    Attributes:
        tokens: Maximum tokens of a chunk, including padding, with at least one chunk per thread; None makes
            one chunk for each thread.
        cached: Whether each chunk is recomputed for its gradient: memory then depends on the chunk, not the
            batch. A frozen prefix of blocks is computed once and its output is kept: the batch's tokens times
            the width.
        checkpointed: Whether blocks store only their input and are recomputed for their gradient: memory then
            depends on one block of a chunk. Combined with `cached`, a block is computed three times.
        buckets: Ascending lengths to which chunks are padded, with `tokens` / length rows each, so that there
            are few shapes. A longer text is padded to the next multiple of 128, at most the tower's limit.
            Nothing is packed then. None pads to the longest text. Buckets require `tokens`.
        kept_bytes: Bytes of graphs that `cached` keeps instead of recomputing their chunks; None takes what a
            GPU has free.
        compiled: Whether each block is compiled (`torch.compile`), once for all shapes, and run in one
            thread. It excludes `checkpointed`.
    """

    tokens: int | None = None
    cached: bool = False
    _: KW_ONLY
    checkpointed: bool = False
    buckets: tuple[int, ...] = ()
    kept_bytes: int | None = 0
    compiled: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Positions of texts of one group that pass together.

    Attributes:
        tokens: Number of tokens computed for them, including padding.
        shape: Rows and length to which they are padded; None follows the texts.
    """

    positions: Positions
    tokens: int
    shape: tuple[int, int] | None = None


def pieces_of(
    lengths: Int[np.ndarray, " b"], chunking: Chunking, *, threads: int, packed: bool, longest: int
) -> list[Piece]:
    """Cut a group of texts."""
    if not len(lengths):
        return []
    if chunking.buckets and chunking.tokens:
        shaped = bucket_batches(lengths, chunking.tokens, chunking.buckets, longest=longest)
        return [Piece(positions, shape[0] * shape[1], shape) for positions, shape in shaped]
    cut = list(token_budget_batches(lengths, chunking.tokens)) if chunking.tokens else []
    # A batch that fits one chunk would leave all threads but one idle.
    if len(cut) < threads:
        cut = shared_out(lengths, threads, packed=packed)
    costs = [int(padded_lengths(lengths[positions], packed=packed).sum()) for positions in cut]
    return list(map(Piece, cut, costs))


def padded_lengths(
    lengths: Int[np.ndarray, " p"], *, packed: bool, shape: tuple[int, int] | None = None
) -> Int[np.ndarray, " _"]:
    """Number of tokens computed for texts that pass together, padded to a shape if one is given."""
    # Filler rows of a bucket are computed too.
    if shape is not None:
        return np.full(*shape, dtype=np.int64)
    return lengths if packed else np.full(len(lengths), lengths.max())


def shared_out(lengths: Int[np.ndarray, " b"], threads: int, *, packed: bool) -> list[Positions]:
    """Split a batch into one non-empty part per thread, so that the longest pass is short."""
    if threads == 1 or len(lengths) == 1:
        return [np.arange(len(lengths))]
    return evenly(lengths, threads) if packed else _cut(lengths)


def evenly(costs: Sequence[int] | Int[np.ndarray, " n"], threads: int) -> list[Positions]:
    """Assign pieces to threads, longest first, each to the thread with the least work."""
    shares: list[list[int]] = [[] for _ in range(threads)]
    sums = [0] * threads
    # Longest first is within 4/3 of the shortest schedule there is (Graham 1969), and a stable sort gives
    # every run the same one.
    for piece in np.argsort(-np.asarray(costs, dtype=np.int64), kind="stable").tolist():
        thread = sums.index(min(sums))
        shares[thread].append(piece)
        sums[thread] += int(costs[piece])
    return [np.array(share) for share in shares if share]


def _cut(lengths: Int[np.ndarray, " b"]) -> list[Positions]:
    """Split into two by length so that the longer of the two padded passes is shortest."""
    # In order of length, a padded pass costs its size times its last length, so only len - 1 cuts must be
    # compared.
    order = np.argsort(lengths, kind="stable")
    ascending = lengths[order]
    cuts = np.arange(1, len(order))
    longer = np.maximum(cuts * ascending[cuts - 1], (len(order) - cuts) * ascending[-1])
    cut = int(cuts[np.argmin(longer)])
    return [order[:cut], order[cut:]]


@dataclass(frozen=True, slots=True)
class Manner:
    """How the chunks of one tower are passed in one step.

    Attributes:
        draws: Whether random numbers may be drawn, so that their state must be kept.
        prefix: Leading blocks whose output the second pass takes from the first.
    """

    precision: Precision
    chunking: Chunking
    trained: bool
    draws: bool
    prefix: int

    @property
    def cached(self) -> bool:
        """Whether chunks are recomputed for their gradient, unless their graph is kept."""
        return self.trained and self.chunking.cached


@dataclass(slots=True)
class Chunk:
    """Texts that pass together, and the state that their first pass keeps for the gradient.

    Attributes:
        encoder: The thread's own copy of the tower, with its blocks.
        group: Number of the group that the piece belongs to.
        rows: Rows of the texts in the table.
        seed: Dropout seed of the chunk's own generator; None draws from torch's.
        kept: Whether the graph of the first pass is kept until the gradient is known.
    """

    encoder: Encoder
    blocks: list[nn.Module]
    group: int
    piece: Piece
    table: TokenTable
    rows: Int[np.ndarray, " p"]
    manner: Manner
    seed: int | None
    kept: bool
    _graph: Tensor | None = None
    _start: RandomState | None = None
    _record: list[BlockOutput] = field(default_factory=list)

    def embed(self) -> Float[Tensor, "p e"]:
        """Embed the texts, and keep the state for the gradient."""
        manner = self.manner
        if not manner.trained:
            return self.pass_through(graph=False)
        # Without caching, the graphs of a batch take as much memory as all of its activations.
        if self.kept:
            self._graph = self.pass_through(graph=True)
            return self._graph.detach()
        device = self.encoder.device if manner.draws else None
        # A chunk with its own seed needs no saved random state.
        self._start = RandomState.now(device) if device and self.seed is None else None
        if not manner.prefix:
            return self.pass_through(graph=False)
        # Only the last block of the prefix is recorded, because the blocks before it are not needed again.
        with recorded(self.blocks[manner.prefix - 1], self._record, device=device):
            return self.pass_through(graph=False)

    def carry_on(self, gradient: Float[Tensor, "p e"]) -> None:
        """Add to the gradients of the weights, and release the kept state."""
        graph = self._graph if self._graph is not None else self._again()
        # Release the record before the gradient is computed, when memory peaks.
        self._graph = self._start = None
        self._record.clear()
        torch.autograd.backward(graph, gradient)

    def pass_through(self, *, graph: bool) -> Float[Tensor, "p e"]:
        """Embed the texts without keeping state."""
        with ExitStack() as stack:
            if self.seed is not None:
                stack.enter_context(drawing_from(torch.Generator().manual_seed(self.seed)))
            stack.enter_context(torch.set_grad_enabled(graph))
            if self.manner.chunking.compiled:
                # Here, since the setting belongs to a thread: a chunk that is computed again passes in
                # another one.
                stack.enter_context(enough_graphs())
            stack.enter_context(autocast(self.encoder.device, self.manner.precision))
            if graph and self.manner.chunking.checkpointed:
                # Blocks of a prefix have nothing to recompute.
                stack.enter_context(checkpointed(self.blocks[self.manner.prefix :], draws=self.manner.draws))
            return self._embeddings()

    def _again(self) -> Float[Tensor, "p e"]:
        """Repeat the pass with the same dropout, from the end of the record."""
        with ExitStack() as stack:
            if self._start is not None:
                stack.enter_context(self._start.replayed())
            # Blocks of the prefix return their recorded output, and restore the random state after it.
            for output in self._record:
                stack.enter_context(replayed(self.blocks[: self.manner.prefix], output))
            return self.pass_through(graph=True)

    def _embeddings(self) -> Float[Tensor, "p e"]:
        tokens = self.table.take(self.rows)
        batch = self.encoder.collate(tokens, side=self.table.side, shape=self.piece.shape)
        embeddings: Tensor = self.encoder(batch)
        # Rows that fill a bucket up come last; without them in the result they get no gradient.
        return embeddings[: len(self.rows)]


def training_copies(
    encoders: Sequence[Encoder], count: int, chunking: Chunking, precision: Precision
) -> list[list[Encoder]]:
    """Copies of each tower for passes in several threads, without padding if backbone and device allow
    that.
    """
    copies = [
        thread_replicas(encoder, count, precision="fp32", shared=[encoder.tokenizer]) for encoder in encoders
    ]
    for of_tower in copies:
        for number, copy in enumerate(of_tower):
            if number:
                _give_own_gradients(copy)
            _prepare(copy, chunking, precision)
    return copies


def _prepare(copy: Encoder, chunking: Chunking, precision: Precision) -> None:
    """Configure a copy's backbone for packing or compilation."""
    if chunking.checkpointed and not blocks_of(copy.backbone):
        raise ModelError(
            f"checkpointed must be False for {type(copy.backbone).__name__}, which "
            "has no blocks that could be checkpointed"
        )
    if packs(copy, chunking, precision):
        use_thread_dropout(copy)
        pack(copy)
    if chunking.compiled:
        compile_blocks(copy.backbone)


def packs(encoder: Encoder, chunking: Chunking, precision: Precision) -> bool:
    """Whether copies of an encoder pass texts without padding."""
    # Compiled, attention text by text would be compiled anew for every list of lengths.
    by_text = chunking.compiled and encoder.device.type == "cpu"
    gains = gains_by_packing(encoder.backbone, encoder.device, precision)
    return gains and not chunking.buckets and not by_text


class RoundedWeights:
    """The weights of plain linear layers in bfloat16, rounded once a step.

    Autocast would round them in each chunk, twice under gradient caching, to the same bits.
    """

    def __init__(self, copy: Encoder) -> None:
        """Find the layers; `copy` passes rounded weights from the first `renew` on."""
        alone = {id(weights) for weights in linear_weights(copy)}
        self._places: list[tuple[nn.Module, str, nn.Parameter]] = []
        for layer in copy.modules():
            if type(layer) is nn.Linear:
                own = layer.named_parameters(recurse=False)
                self._places += [(layer, name, weights) for name, weights in own if id(weights) in alone]

    @torch.enable_grad()
    def renew(self) -> None:
        """Round the weights as they are now; gradients of the rounded ones reach them."""
        for layer, name, weights in self._places:
            # Found before the parameter of that name, which stays the layer's.
            vars(layer)[name] = weights.bfloat16()


def _give_own_gradients(module: nn.Module) -> None:
    """Replace each parameter by one with the same memory and its own gradient."""
    twins: dict[int, nn.Parameter] = {}
    # Tied parameters stay tied: one twin for each.
    for submodule in module.modules():
        for name, weights in submodule.named_parameters(recurse=False, remove_duplicate=False):
            twin = twins.setdefault(
                id(weights), nn.Parameter(weights.detach(), requires_grad=weights.requires_grad)
            )
            setattr(submodule, name, twin)


def size_of(encoder: Encoder) -> int:
    """Cost of a token, up to a factor."""
    size = 0
    for module in encoder.modules():
        # A token looks up one row of a table, and is multiplied by all other weights.
        if not isinstance(module, nn.Embedding):
            size += sum(weights.numel() for weights in module.parameters(recurse=False))
    return max(1, size)
