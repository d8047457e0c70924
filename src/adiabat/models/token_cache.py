"""Texts tokenised once and kept as flat arrays, for jobs that encode the same texts many times."""

import hashlib
import json
import os
import weakref
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from adiabat.core.checksums import is_whole, seal
from adiabat.core.files import writing_whole
from adiabat.data.records import Side
from adiabat.models.bulk import TOKENIZE_BLOCK
from adiabat.models.encoder import Encoder
from adiabat.models.tokens import token_budget_batches


class TokenFile:
    """Token ids in a file, read stretch by stretch: a memory map's pages would count as the process's own."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Args:
            path: Of 4 bytes a token.
        """
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, stretch: slice) -> Int[np.ndarray, " tokens"]:
        return np.frombuffer(os.pread(self._file, 4 * (stretch.stop - stretch.start), 4 * stretch.start), dtype="<i4")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Token ids of many texts: 4 bytes a token and 8 a text, however many texts there are.

    Attributes:
        ids: All token ids, one text after another, in memory or in a file.
        offsets: Where each text starts in `ids`; one more entry than texts.
        side: The tower they are for.
    """

    ids: Int[np.ndarray, " tokens"] | TokenFile
    offsets: Int[np.ndarray, " texts_and_one"]
    side: Side

    @classmethod
    def of(cls, encoder: Encoder, texts: Iterable[str], *, side: Side, folder: Path | None = None) -> Self:
        """Tokenise texts.

        Args:
            folder: For files of the tokens, which are opened where they lie there already; None keeps tokens in memory.
        """
        if folder is not None:
            return cls._in_files(encoder, texts, side, folder)
        blocks, lengths = [np.empty(0, dtype=np.int32)], [0]
        for rows in _token_blocks(encoder, texts, side):
            lengths += map(len, rows)
            blocks.append(np.fromiter(chain.from_iterable(rows), dtype=np.int32))
        return cls(np.concatenate(blocks), np.cumsum(lengths), side)

    @classmethod
    def _in_files(cls, encoder: Encoder, texts: Iterable[str], side: Side, folder: Path) -> Self:
        settings = encoder.settings
        decides = json.dumps([encoder.tokenizer_digest(), encoder.pad_token_id, settings.prompt(side), settings.limit(side)])
        name = f"tokens-{side}-{hashlib.sha256(decides.encode()).hexdigest()[:16]}"
        ids, offsets, checksums = folder / f"{name}.i32", folder / f"{name}.npy", f"{name}.json"
        if not is_whole(folder, checksums):
            _tokenise_into(encoder, texts, side, ids, offsets)
            seal(folder, [ids.name, offsets.name], into=checksums)
        return cls(TokenFile(ids), np.load(offsets), side)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int[np.ndarray, " texts"]:
        """Tokens of each text."""
        # Without a difference in 64 bits on the way.
        lengths: Int[np.ndarray, " texts"] = np.subtract(self.offsets[1:], self.offsets[:-1], dtype=np.int32, casting="unsafe")
        return lengths

    def lists(self, rows: Int[np.ndarray, " b"]) -> list[list[int]]:
        """Token ids of some texts.

        Returns:
            One list per row.
        """
        return [self.ids[self.offsets[row] : self.offsets[row + 1]].tolist() for row in rows]


def _tokenise_into(encoder: Encoder, texts: Iterable[str], side: Side, ids: Path, offsets: Path) -> None:
    """Write both files; other processes may do the same at the same time."""
    lengths = array("q", [0])
    with writing_whole(ids) as file, writing_whole(offsets) as ends:
        for rows in _token_blocks(encoder, texts, side):
            lengths.extend(map(len, rows))
            file.write(np.fromiter(chain.from_iterable(rows), dtype="<i4").data)
        np.save(ends, np.cumsum(lengths))


def _token_blocks(encoder: Encoder, texts: Iterable[str], side: Side) -> Iterator[list[list[int]]]:
    remaining = iter(texts)
    while block := list(islice(remaining, TOKENIZE_BLOCK)):
        yield encoder.tokenize(block, side=side)


def embed_rows(encoder: Encoder, table: TokenTable, rows: Int[np.ndarray, " b"]) -> Float[Tensor, "b e"]:
    """Embed some texts of a table with gradients, as one batch."""
    embeddings: Tensor = encoder(encoder.collate(table.lists(rows), side=table.side))
    return embeddings


@torch.no_grad()
def embed_all(encoder: Encoder, table: TokenTable, *, token_budget: int) -> Float[Tensor, "n e"]:
    """Embed every text of a table without gradients, in float32, sorted by length.

    Args:
        token_budget: Tokens per forward pass, padding counted; a longer text goes alone.
    """
    embeddings = torch.empty(len(table), encoder.width, device=encoder.device)
    for rows in token_budget_batches(table.lengths, token_budget):
        embeddings[torch.from_numpy(rows).to(encoder.device)] = embed_rows(encoder, table, rows)
    return embeddings
