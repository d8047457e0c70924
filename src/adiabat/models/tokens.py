"""Truncating texts before tokenisation, and batching token lists with little padding."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from adiabat.core.ragged import Ragged
from adiabat.models.device import on_device
from adiabat.models.embedding_head import TokenTensor

BUCKET_STEP = 128
"""Step between padded lengths above the largest bucket."""

FIRST_CHARACTERS, CHARACTERS_PER_TOKEN = 8_192, 32
"""Length of the first prefix to try: a constant, plus a number of characters per token of the limit."""

TAIL, WORDS = 4_096, 32
"""Characters and words that a prefix must hold after the last needed token: added tokens and combining marks
span a few."""

SPACES = ("\u2581", "\u0120")
"""Representations of a space in vocabularies: sentencepiece, and byte-level BPE."""

_LOCAL = frozenset(
    (
        "BertNormalizer",
        "Lowercase",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
        "Nmt",
        "Precompiled",
        "Prepend",
        "Strip",
        "StripAccents",
        "ByteLevel",
    )
)
"""Normalizers that depend only on a letter and the marks around it, or on the ends of a text."""


def cut_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int) -> list[str]:
    """Prefixes of texts far longer than their limit, because a tokenizer takes about 60 bytes for each byte
    of a text.

    The first tokens of a text are those of its prefix if no token spans two words. So a text is truncated
    only if the last needed token
    ends many words before the cut, and if the tokenizer splits texts into words: by its pre-tokenizer, or
    because no token of its vocabulary has letters on both sides of a space. Other texts stay whole.
    """
    size = FIRST_CHARACTERS + CHARACTERS_PER_TOKEN * limit
    if (
        all(len(text) <= 2 * size for text in texts)
        or tokenizer.truncation_side != "right"
        or not _is_local(tokenizer)
    ):
        return list(texts)
    return [_cut(tokenizer, text, limit, size) for text in texts]


def _cut(tokenizer: PreTrainedTokenizerBase, text: str, limit: int, size: int) -> str:
    """The shortest prefix tried, each twice as long as the one before, that holds all needed tokens."""
    while 2 * size < len(text):
        # A prefix that ends inside one endless word need not be tokenised.
        if _count_words(tokenizer, text[size - TAIL : size]) >= WORDS:
            encoded = tokenizer(
                text[:size],
                add_special_tokens=False,
                truncation=False,
                return_offsets_mapping=True,
                verbose=False,
            )
            ends = [end for _, end in encoded["offset_mapping"]]
            if len(ends) >= limit and ends[limit - 1] <= size - TAIL:
                return text[:size]
        size *= 2
    return text


def _count_words(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Number of pieces of a text such that no token spans two of them."""
    backend: Any = tokenizer.backend_tokenizer
    normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
    words = len(backend.pre_tokenizer.pre_tokenize_str(normal)) if backend.pre_tokenizer else 1
    if words >= WORDS or any(_spans_words(token) for token in backend.get_vocab(with_added_tokens=False)):
        return words
    return len(text.split(" "))


def _spans_words(token: str) -> bool:
    """Whether a token has letters on both sides of a space, or ends in one."""
    for space in SPACES:
        token = token.replace(space, " ")
    return " " in token.strip(" ") or (token.endswith(" ") and bool(token.strip(" ")))


def _is_local(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokens of a letter depend only on its neighbourhood."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    waiting: list[dict[str, Any]] = [] if normalizer is None else [json.loads(normalizer.__getstate__())]
    while waiting:
        record = waiting.pop()
        # A regular expression may match the end of the text, or look ahead to all that follows.
        pattern = record.get("pattern", {}).get("Regex", "")
        replaces_near = record["type"] == "Replace" and not any(sign in pattern for sign in ("$", "\\", "(?"))
        if record["type"] == "Sequence":
            waiting += record["normalizers"]
        elif record["type"] not in _LOCAL and not replaces_near:
            return False
    return True


def token_lists(tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int) -> list[list[int]]:
    """Token ids of texts with special tokens, cut at a limit."""
    if not _encodes_plainly(tokenizer):
        options = {"padding": False, "return_attention_mask": False, "return_token_type_ids": False}
        ids: list[list[int]] = tokenizer(texts, truncation=True, max_length=limit, **options)["input_ids"]
        return ids
    # What transformers does, without offsets and a dictionary for each text, which take twice the time of
    # everything else on 16 cores.
    backend = tokenizer.backend_tokenizer
    backend.no_padding()
    backend.enable_truncation(limit, direction=tokenizer.truncation_side)
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return [encoding.ids for encoding in backend.encode_batch_fast(texts)]


ENCODING_METHODS = frozenset(
    ("__call__", "_call_one", "_encode_plus", "_batch_encode_plus", "set_truncation_and_padding")
)


def _encodes_plainly(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether nothing but the tokenizers library decides a text's tokens: the tokenizer's class has no
    encoding of its own.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        return False
    own = type(tokenizer).__mro__[: type(tokenizer).__mro__.index(PreTrainedTokenizerFast)]
    return not any(ENCODING_METHODS & vars(kind).keys() for kind in own)


@dataclass(frozen=True, slots=True)
class TextLayout:
    """Where the texts of a padded batch lie, known to the host, so that no pass has to ask the device for it.

    Attributes:
        lengths: Tokens of each text.
        places: Places of all tokens in the flattened batch, text after text.
        starts: Where each text starts among these tokens, and where the last one ends.
        longest: The greatest of the lengths. A compiled block reads it alone, since it would be compiled anew
            for every list.
    """

    lengths: list[int]
    places: Int[Tensor, " tokens"]
    starts: Int[Tensor, " texts_and_one"]
    longest: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "longest", max(self.lengths, default=0))


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """One padded batch.

    Attributes:
        attention_mask: 1 for tokens, 0 for padding.
        pooling_mask: 1 for tokens that are pooled; differs from `attention_mask` only if prompt tokens are
            excluded.
    """

    input_ids: TokenTensor
    attention_mask: TokenTensor
    pooling_mask: TokenTensor
    layout: TextLayout

    def to(self, device: torch.device) -> "TokenBatch":
        """The batch on another device; a copy to a GPU does not wait."""
        if self.input_ids.device == device:
            return self
        ids, mask = on_device(self.input_ids, device), on_device(self.attention_mask, device)
        pooled = mask if self.pooling_mask is self.attention_mask else on_device(self.pooling_mask, device)
        places, starts = on_device(self.layout.places, device), on_device(self.layout.starts, device)
        return TokenBatch(ids, mask, pooled, TextLayout(self.layout.lengths, places, starts))

    def reaching(self, limit: int) -> int:
        """How many texts have as many tokens as a limit allows."""
        return sum(length >= limit for length in self.layout.lengths)

    def halves(self) -> tuple["TokenBatch", "TokenBatch"]:
        """The first and the second half of the texts, as padded as before."""
        layout, half = self.layout, len(self.layout.lengths) // 2
        width, tokens = self.input_ids.shape[1], sum(layout.lengths[:half])
        first = TextLayout(layout.lengths[:half], layout.places[:tokens], layout.starts[: half + 1])
        second = TextLayout(
            layout.lengths[half:], layout.places[tokens:] - half * width, layout.starts[half:] - tokens
        )
        return self._part(slice(half), first), self._part(slice(half, None), second)

    def _part(self, rows: slice, layout: TextLayout) -> "TokenBatch":
        """Some rows of the batch."""
        return TokenBatch(self.input_ids[rows], self.attention_mask[rows], self.pooling_mask[rows], layout)


def pad(
    tokens: Ragged, *, pad_token_id: int, length: int | None = None, skipped: int = 0, closing: int = 0
) -> TokenBatch:
    """Pad rows on the right.

    Args:
        tokens: One non-empty list of token ids per text.
        length: Length of the rows; None takes that of the longest.
        skipped: Tokens at the start of each text to exclude from pooling; at least one token of each text is
            pooled.
        closing: Tokens at the end of each text to exclude from pooling.
    """
    lengths = tokens.lengths
    filled = np.arange(length or lengths.max()) < lengths[:, None]
    ids = np.full(filled.shape, pad_token_id, dtype=np.int64)
    ids[filled] = tokens.values
    mask = torch.from_numpy(filled.astype(np.int64))
    layout = _layout(filled, lengths)
    if not (skipped or closing):
        return TokenBatch(torch.from_numpy(ids), mask, mask, layout)
    ends = np.maximum(lengths - closing, 1)
    positions = np.arange(filled.shape[1])
    pooled = (positions >= np.minimum(skipped, ends - 1)[:, None]) & (positions < ends[:, None])
    return TokenBatch(torch.from_numpy(ids), mask, torch.from_numpy(pooled.astype(np.int64)), layout)


def _layout(filled: Bool[np.ndarray, "b l"], lengths: Int[np.ndarray, " b"]) -> TextLayout:
    """The layout of a padded batch, from the places that hold tokens."""
    # The kernel of attention wants 32 bits.
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return TextLayout(lengths.tolist(), torch.from_numpy(np.flatnonzero(filled)), torch.from_numpy(starts))


def token_budget_batches(
    lengths: Sequence[int] | Int[np.ndarray, " rows"], budget: int
) -> Iterator[Int[np.ndarray, " some"]]:
    """Group texts of similar length so that rows times the longest row stays within a token budget, including
    padding.

    The longest come first: a batch that does not fit in memory then fails at once, not after an hour. The
    first text of a batch is thus its longest, and decides how many rows the budget allows. A text longer than
    the budget forms its own batch.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    ordered = np.argsort(-sizes, kind="stable")
    start = 0
    while start < len(ordered):
        rows = max(1, budget // int(sizes[ordered[start]]))
        yield ordered[start : start + rows]
        start += rows


def bucket_batches(
    lengths: Sequence[int] | Int[np.ndarray, " rows"], budget: int, buckets: Sequence[int], *, longest: int
) -> Iterator[tuple[Int[np.ndarray, " some"], tuple[int, int]]]:
    """Group texts by bucket, longest first, so that there are at most as many shapes as buckets.

    Args:
        budget: Tokens per batch, including padding; a longer bucket makes batches of one row.

    Row numbers of each batch, every row once, and the shape to pad it to: rows and length.
    """
    bucket_of = _buckets(np.asarray(lengths, dtype=np.int64), np.asarray(buckets, dtype=np.int64), longest)
    for length in np.unique(bucket_of)[::-1].tolist():
        rows = max(1, budget // length)
        members = np.flatnonzero(bucket_of == length)
        for start in range(0, len(members), rows):
            yield members[start : start + rows], (rows, length)


def _buckets(
    sizes: Int[np.ndarray, " rows"], buckets: Int[np.ndarray, " some"], longest: int
) -> Int[np.ndarray, " rows"]:
    """The bucket of each text: the smallest that holds it, beyond the largest one the next multiple of
    `BUCKET_STEP`, and never more than `longest`.
    """
    index = np.searchsorted(buckets, sizes)
    beyond = -(-sizes // BUCKET_STEP) * BUCKET_STEP
    return np.minimum(
        np.where(index < len(buckets), buckets[np.minimum(index, len(buckets) - 1)], beyond), longest
    )
