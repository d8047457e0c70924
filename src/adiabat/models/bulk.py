"""Processing many texts: embedding, where one thread prepares batches for all cores or a GPU; and tokenising once for repeated use."""

import hashlib
import json
import os
import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.core.files import writing_whole
from adiabat.core.provenance import is_whole, seal
from adiabat.data.records import Side
from adiabat.models.device import MAX_WORKERS, Precision, autocast, parallel_map, thread_replicas
from adiabat.models.static import StaticBackbone
from adiabat.models.tokens import TokenBatch, token_budget_batches

if TYPE_CHECKING:
    from adiabat.models.encoder import Encoder

TOKENIZE_BLOCK = 4096
"""Number of texts tokenised at a time: it bounds the memory of Python lists and is far larger than a batch."""

BAG_BLOCK = 2048
"""The same for a static model, where 1,024 and 4,096 are 4 and 2 % slower."""

PreparedBatch = tuple[Int[np.ndarray, " b"], TokenBatch]
"""Row numbers of texts, with their tokens."""

EmbeddedBatch = tuple[Int[np.ndarray, " b"], Float[np.ndarray, "b e"], int]
"""Row numbers of texts, their embeddings, and how many of them reach the token limit."""

TokenLists = Sequence[Sequence[int]]


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


@dataclass(frozen=True, slots=True)
class TokenSource:
    """Texts as tokens, tokenised block by block.

    Attributes:
        block: Returns the tokens of consecutive texts.
        fill: Makes a padded batch of token lists.
        total: Number of texts.
        whole: Whether pooling uses all tokens of a text.
        limit: Token limit at which texts are truncated.
    """

    block: Callable[[slice], TokenLists]
    fill: Callable[[TokenLists], TokenBatch]
    total: int
    whole: bool
    limit: int


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
    on_progress: Callable[[Progress], None] | None = None,
) -> Float[np.ndarray, "n e"]:
    """Embed texts in batches within a budget of tokens, including padding."""

    def prepared(start: int) -> list[PreparedBatch]:
        token_ids = source.block(slice(start, start + TOKENIZE_BLOCK))
        grouped = token_budget_batches([len(ids) for ids in token_ids], budget)
        return [(start + rows, source.fill([token_ids[row] for row in rows])) for rows in grouped]

    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    done = full = 0
    with ExitStack() as stack:
        # One thread tokenises ahead of the others.
        prepare = stack.enter_context(parallel_map([prepared]))
        batches = chain.from_iterable(prepare(range(0, total, TOKENIZE_BLOCK)))
        first = list(islice(batches, MAX_WORKERS))
        # On a CPU, a replica of the encoder per core, but no more than batches; on other devices only the encoder.
        count = min(torch.get_num_threads(), len(first)) if encoder.device.type == "cpu" else 1
        encoders = [encoder] if count <= 1 else thread_replicas(encoder, count, precision=precision, shared=[encoder.tokenizer])
        embed = stack.enter_context(parallel_map([partial(_embedded, replica, precision, source.limit) for replica in encoders]))
        for rows, embeddings, limited in embed(chain(first, batches)):
            vectors[rows] = embeddings
            done, full = done + len(rows), full + limited
            if on_progress:
                on_progress(Progress(done, total, full))
    return vectors


def embed_bags(
    encoder: "Encoder", backbone: StaticBackbone, source: TokenSource, *, on_progress: Callable[[Progress], None] | None = None
) -> Float[np.ndarray, "n e"]:
    """Embed texts by a static model with mean pooling, as bags of rows, without padding or token states."""
    total = source.total
    vectors = np.empty((total, encoder.width), dtype=np.float32)
    full = 0

    # Sequentially: tokenisation uses all cores already, and parallel pooling would slow down both.
    for start in range(0, total, BAG_BLOCK):
        token_ids = source.block(slice(start, start + BAG_BLOCK))
        end = start + len(token_ids)
        with torch.inference_mode():
            vectors[start:end] = encoder.head(backbone.bag_means(token_ids)).cpu().numpy()
        full += sum(len(ids) >= source.limit for ids in token_ids)
        if on_progress:
            on_progress(Progress(end, total, full))
    return vectors


def _embedded(encoder: "Encoder", precision: Precision, limit: int, batch: PreparedBatch) -> EmbeddedBatch:
    """Embed one batch; each thread enters the contexts itself."""
    rows, tokens = batch
    with torch.inference_mode(), autocast(encoder.device, precision):
        embeddings: Tensor = encoder(tokens.to(encoder.device))
    full = tokens.attention_mask.sum(dim=1) >= limit
    return rows, embeddings.cpu().numpy(), int(full.sum())


class TokenFile:
    """Token ids in a file of 4 bytes per token, read piece by piece; the pages of a memory map would count as memory of the process."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, stretch: slice) -> Int[np.ndarray, " tokens"]:
        return np.frombuffer(os.pread(self._file, 4 * (stretch.stop - stretch.start), 4 * stretch.start), dtype="<i4")


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
        decides = json.dumps([encoder.tokenizer_digest(), encoder.pad_token_id, settings.prompt(side), settings.limit(side)])
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
        # Avoids an intermediate difference in 64 bits.
        lengths: Int[np.ndarray, " texts"] = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")
        return lengths

    def lists(self, rows: Int[np.ndarray, " b"]) -> list[list[int]]:
        """Token ids of some of the texts."""
        return [self.ids[self.offsets[row] : self.offsets[row + 1]].tolist() for row in rows]


def _write_tokens(encoder: "Encoder", texts: Iterable[str], side: Side, file: BinaryIO) -> Int[np.ndarray, " texts_and_one"]:
    """Write the tokens of all texts, 4 bytes each; returns the offset of each text."""
    lengths, remaining = array("q", [0]), iter(texts)
    while block := list(islice(remaining, TOKENIZE_BLOCK)):
        token_ids = encoder.tokenize(block, side=side)
        lengths.extend(map(len, token_ids))
        file.write(np.fromiter(chain.from_iterable(token_ids), dtype="<i4").data)
    return np.cumsum(lengths)


def embed_rows(encoder: "Encoder", table: TokenTable, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
    """Embed some texts of a table as one batch, with gradients."""
    embeddings: Tensor = encoder(encoder.collate(table.lists(rows), side=table.side))
    return embeddings


@torch.no_grad()
def embed_all(encoder: "Encoder", table: TokenTable, *, token_budget: int) -> Float[Tensor, "n e"]:
    """Embed every text of a table in float32 without gradients, longest first, within a budget of tokens that includes padding."""
    embeddings = torch.empty(len(table), encoder.width, device=encoder.device)
    for rows in token_budget_batches(table.lengths, token_budget):
        embeddings[torch.from_numpy(rows).to(encoder.device)] = embed_rows(encoder, table, rows)
    return embeddings
