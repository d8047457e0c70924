"""Processing many texts: embedding, where one thread prepares batches for all cores or a GPU; and tokenising
once for repeated use.
"""

import hashlib
import json
import os
import warnings
import weakref
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, Self, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.core.arrays import VectorArray
from adiabat.core.files import writing_whole
from adiabat.core.provenance import is_whole, seal
from adiabat.core.ragged import Ragged
from adiabat.data.records import Side
from adiabat.models.compilation import compile_blocks, enough_graphs
from adiabat.models.device import (
    MAX_WORKERS,
    Precision,
    autocast,
    on_device,
    parallel_map,
    retried,
    thread_replicas,
)
from adiabat.models.packing import gains_by_packing, pack
from adiabat.models.static import StaticBackbone
from adiabat.models.tokens import TokenBatch, token_budget_batches

if TYPE_CHECKING:
    from adiabat.models.encoder import Encoder

TOKENIZE_BLOCK = 4096
"""Number of texts tokenised at a time: it bounds the memory of Python lists and is far larger than a
batch."""

BAG_BLOCK = 2048
"""The same for a static model, where 1,024 and 4,096 are 4 and 2 % slower."""

PreparedBatch = tuple[Int[np.ndarray, " b"], TokenBatch]
"""Row numbers of texts, with their tokens on the encoder's device."""


@dataclass(frozen=True, slots=True)
class EmbeddedBatch:
    """A batch of texts whose embeddings are on their way to the host.

    Attributes:
        rows: Row numbers of the texts.
        full: How many of them reach the token limit.
        sent: The embeddings on the host, complete once `arrived`.
        arrived: Event after the copy; None if there was nothing to copy.
    """

    rows: Int[np.ndarray, " b"]
    full: int
    sent: Tensor
    arrived: torch.cuda.Event | None

    def embeddings(self) -> Float[np.ndarray, "b e"]:
        """The embeddings, as soon as they are there."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.sent.numpy()


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of `adiabat.models.encoder.Encoder.encode`, reported after each batch.

    Attributes:
        done: Texts embedded so far.
        total: Number of all texts.
        full: Number of embedded texts that reach `EncoderSettings.limit` and may have been truncated.
    """

    done: int
    total: int
    full: int


@runtime_checkable
class Runtime(Protocol):
    """What embeds padded batches in place of torch.

    Attributes:
        budget: Tokens of a batch that suit it, padding included.
    """

    budget: int

    def embedded(self, batches: Iterable[PreparedBatch], limit: int) -> Generator[EmbeddedBatch]:
        """Embed batches in any order, with the number of their texts that reach a token limit.

        A generator that is closed early leaves nothing running.
        """


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Texts as tokens, tokenised block by block.

    Attributes:
        block: Returns the tokens of consecutive texts.
        fill: Makes a padded batch of token lists.
        total: Number of texts.
        whole: Whether pooling uses all tokens of a text.
        limit: Token limit at which texts are truncated.
        runtime: What embeds them in place of torch; None for torch.
    """

    block: Callable[[slice], Ragged]
    fill: Callable[[Ragged], TokenBatch]
    total: int
    whole: bool
    limit: int
    runtime: Runtime | None = None


def default_budget(device: torch.device) -> int:
    """Tokens per forward pass."""
    return 1_024 if device.type == "cpu" else 65_536


def distinct_texts(texts: Sequence[str]) -> tuple[Sequence[str], slice | Int[np.ndarray, " n"]]:
    """The distinct texts, and the index of each text among them."""
    index_of: dict[str, int] = {}
    indices = [] if isinstance(texts, str) else [index_of.setdefault(text, len(index_of)) for text in texts]
    return (texts, slice(None)) if len(index_of) == len(indices) else (list(index_of), np.array(indices))


def embed_blocks(
    encoder: "Encoder",
    source: TokenSource,
    *,
    precision: Precision,
    budget: int,
    compiled: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> VectorArray:
    """Embed texts in batches within a budget of tokens, including padding.

    One thread tokenises `TOKENIZE_BLOCK` texts and sorts them into batches; others embed these, on a CPU one
    per core. A single batch needs no further threads where torch has one. On a GPU, three batches are under
    way at a time: their tokens and embeddings are copied while it computes. A runtime of the source passes
    all batches itself.
    """

    def prepared(start: int) -> list[PreparedBatch]:
        tokens = source.block(slice(start, start + TOKENIZE_BLOCK))
        grouped = token_budget_batches(tokens.lengths, budget)
        return [(start + rows, source.fill(tokens.take(rows)).to(encoder.device)) for rows in grouped]

    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    done = full = 0
    with ExitStack() as stack:
        if total <= TOKENIZE_BLOCK:
            batches: Iterator[PreparedBatch] = iter(prepared(0))
        else:
            # One thread tokenises ahead of the others.
            prepare = stack.enter_context(parallel_map([prepared]))
            batches = chain.from_iterable(prepare(range(0, total, TOKENIZE_BLOCK)))
        embedded: Iterator[EmbeddedBatch]
        if source.runtime is not None:
            embedded = stack.enter_context(closing(source.runtime.embedded(batches, source.limit)))
        else:
            embedded = stack.enter_context(
                _passes(encoder, batches, source.limit, precision=precision, compiled=compiled)
            )
        for batch in embedded:
            vectors[batch.rows] = batch.embeddings()
            done, full = done + len(batch.rows), full + batch.full
            if on_progress:
                on_progress(Progress(done, total, full))
    return vectors


@contextmanager
def _passes(
    encoder: "Encoder", batches: Iterator[PreparedBatch], limit: int, *, precision: Precision, compiled: bool
) -> Iterator[Iterator[EmbeddedBatch]]:
    """The embedded batches of an encoder: one batch alone in this thread, several in threads of their own."""
    first = list(islice(batches, MAX_WORKERS))
    changes_module = compiled or _packs(encoder, precision)
    # Several threads of OpenMP wait for each other spinning: where other programs hold a processor, a query
    # then takes 190 ms in place of 30. Beside a pool of more threads they sleep.
    may_spin = encoder.device.type == "cpu" and torch.get_num_threads() > 1
    if len(first) == 1 and not changes_module and not may_spin:
        # Threads take milliseconds to begin, as long as a query takes.
        yield map(_Pass(encoder, precision, limit), first)
        return
    encoders = _replicas(encoder, precision, batches=len(first), compiled=compiled)
    workers = [_Pass(replica, precision, limit, compiled) for replica in encoders]
    with parallel_map(workers) as embed:
        yield embed(chain(first, batches))


def embed_bags(
    encoder: "Encoder",
    backbone: StaticBackbone,
    source: TokenSource,
    *,
    on_progress: Callable[[Progress], None] | None = None,
) -> VectorArray:
    """Embed texts by a static model with mean pooling, as bags of rows, without padding or token states."""
    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    full = 0

    # Sequentially: tokenisation uses all cores already, and parallel pooling would slow down both.
    for start in range(0, total, BAG_BLOCK):
        tokens = source.block(slice(start, start + BAG_BLOCK))
        end = start + len(tokens)
        with torch.inference_mode():
            vectors[start:end] = encoder.head(backbone.bag_means(tokens)).cpu().numpy()
        full += int((tokens.lengths >= source.limit).sum())
        if on_progress:
            on_progress(Progress(end, total, full))
    return vectors


def _replicas(encoder: "Encoder", precision: Precision, *, batches: int, compiled: bool) -> list["Encoder"]:
    """Encoders that pass batches at the same time: on a CPU one per core, but no more than batches; compiled
    or on a GPU one.
    """
    on_cpu = encoder.device.type == "cpu"
    count = min(torch.get_num_threads(), batches) if on_cpu and not compiled else 1
    if on_cpu and count <= 1 and not compiled:
        return [encoder]
    replicas = thread_replicas(encoder, count, precision=precision, shared=[encoder.tokenizer])
    for replica in replicas:
        if _packs(replica, precision):
            pack(replica)
        if compiled:
            compile_blocks(replica.backbone)
    return replicas


def _packs(encoder: "Encoder", precision: Precision) -> bool:
    """Whether batches pass without padding: on a CPU, padded ones of texts of one length are as quick."""
    return encoder.device.type != "cpu" and gains_by_packing(encoder.backbone, encoder.device, precision)


@dataclass(slots=True)
class _Pass:
    """Embeds one batch at a time.

    Attributes:
        limit: Token limit at which texts are truncated.
        compiled: Whether blocks are compiled.
        halved: Whether batches pass in halves, because one did not fit in the GPU's memory.
    """

    encoder: "Encoder"
    precision: Precision
    limit: int
    compiled: bool = False
    halved: bool = False

    def __call__(self, batch: PreparedBatch) -> EmbeddedBatch:
        """Embed a batch; each thread enters the contexts itself."""
        rows, tokens = batch
        graphs = enough_graphs() if self.compiled else nullcontext()
        with graphs, torch.inference_mode(), autocast(self.encoder.device, self.precision):
            embeddings = self._embeddings(tokens)
            full = tokens.reaching(self.limit)
            if embeddings.device.type != "cuda":
                return EmbeddedBatch(rows, full, embeddings.cpu(), None)
            # The host reads pinned memory while the GPU goes on with the next batch.
            host = torch.empty(embeddings.shape, pin_memory=True).copy_(embeddings, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            # Of the device itself: another thread has another current one.
            arrived.record(torch.cuda.current_stream(embeddings.device))
            return EmbeddedBatch(rows, full, host, arrived)

    def _embeddings(self, tokens: TokenBatch) -> Float[Tensor, "b e"]:
        """Embed a batch, in halves if it does not fit in a GPU's memory."""
        if len(tokens.layout.lengths) > 1:
            return retried(partial(self._by_parts, tokens), self._halve)
        return self._by_parts(tokens)

    def _by_parts(self, tokens: TokenBatch) -> Float[Tensor, "b e"]:
        """Embed a batch in one pass or two."""
        parts = tokens.halves() if self.halved and len(tokens.layout.lengths) > 1 else (tokens,)
        return torch.cat([self.encoder(part) for part in parts])

    def _halve(self) -> bool:
        """Pass batches in halves from here on; False where that cannot help."""
        if self.halved or self.encoder.device.type == "cpu":
            return False
        warnings.warn(
            "a batch of texts does not fit in the free memory of the GPU: all batches pass in halves",
            stacklevel=2,
        )
        self.halved = True
        return True


class TokenFile:
    """Token ids in a file of 4 bytes per token, read piece by piece; the pages of a memory map would count as
    memory of the process.
    """

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, stretch: slice) -> Int[np.ndarray, " tokens"]:
        return np.frombuffer(
            os.pread(self._file, 4 * (stretch.stop - stretch.start), 4 * stretch.start), dtype="<i4"
        )


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token ids of many texts: 4 bytes per token and 8 per text.

    Attributes:
        ids: All token ids, one text after another, in memory or in a file.
        offsets: Where each text starts in `ids`; one more entry than texts.
        side: Tower whose prompt and limit the tokens follow.
    """

    ids: Int[np.ndarray, " tokens"] | TokenFile
    offsets: Int[np.ndarray, " texts_and_one"]
    side: Side

    @classmethod
    def of(cls, encoder: "Encoder", texts: Iterable[str], *, side: Side, folder: Path | None = None) -> Self:
        """Tokenise texts into memory, or into files of a folder, which are reused if they exist."""
        if folder is None:
            memory = BytesIO()
            offsets = _write_tokens(encoder, texts, side, memory)
            return cls(np.frombuffer(memory.getbuffer(), dtype="<i4"), offsets, side)
        settings = encoder.settings
        decides = json.dumps(
            [encoder.tokenizer_digest(), encoder.pad_token_id, settings.prompt(side), settings.limit(side)]
        )
        name = f"tokens-{side}-{hashlib.sha256(decides.encode()).hexdigest()[:16]}"
        ids, ends, checksums = folder / f"{name}.i32", folder / f"{name}.npy", f"{name}.json"
        if not is_whole(folder, checksums):
            # Other processes may write the same files at the same time.
            with writing_whole(ids) as ids_file, writing_whole(ends) as ends_file:
                np.save(ends_file, _write_tokens(encoder, texts, side, ids_file))
            seal(folder, [ids.name, ends.name], into=checksums)
        return cls(TokenFile(ids), np.load(ends), side)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """Number of tokens of each text."""
        # Avoids an intermediate difference in 64 bits; a text has far fewer than 2^31 tokens.
        lengths: Int[np.ndarray, " texts"] = np.subtract(
            self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe"
        )
        return lengths

    def take(self, rows: Int[np.ndarray, " b"]) -> Ragged:
        """Token ids of some of the texts."""
        if not isinstance(self.ids, TokenFile):
            return Ragged(self.ids, self.offsets).take(rows)
        lists = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        lengths = [len(ids) for ids in lists]
        return Ragged(np.concatenate([np.empty(0, dtype=np.int32), *lists]), np.cumsum([0, *lengths]))


def _write_tokens(
    encoder: "Encoder", texts: Iterable[str], side: Side, file: BinaryIO | BytesIO
) -> Int[np.ndarray, " texts_and_one"]:
    """Write the tokens of all texts, 4 bytes each; returns the offset of each text."""
    lengths, remaining = array("q", [0]), iter(texts)
    while block := list(islice(remaining, TOKENIZE_BLOCK)):
        tokens = encoder.tokenize(block, side=side)
        lengths.extend(tokens.lengths.tolist())
        file.write(tokens.values.astype("<i4", copy=False).data)
    return np.cumsum(lengths, dtype=np.int64)


def embed_rows(encoder: "Encoder", table: TokenTable, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
    """Embed some texts of a table as one batch, with gradients."""
    embeddings: Tensor = encoder(encoder.collate(table.take(rows), side=table.side))
    return embeddings


@torch.no_grad()
def embed_all(encoder: "Encoder", table: TokenTable, *, token_budget: int) -> Float[Tensor, "n e"]:
    """Embed every text of a table in float32 without gradients, longest first, within a budget of tokens that
    includes padding.
    """
    embeddings = torch.empty(len(table), encoder.width, device=encoder.device)
    for rows in token_budget_batches(table.lengths, token_budget):
        embeddings[on_device(torch.from_numpy(rows), encoder.device)] = embed_rows(encoder, table, rows)
    return embeddings
