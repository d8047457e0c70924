"""Texts far longer than their limit of tokens, cut before they are tokenised: a tokenizer takes about 60 bytes for each byte of a text.

The first tokens of a text are those of its beginning, where tokens cannot reach over from one word into the next. So a beginning is
taken only where the last token that counts ends many words before its end, and where the tokenizer splits texts into words at all: by
its pre-tokenizer, or because no token of its vocabulary has letters on both sides of a space. Other texts are tokenised whole.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

FIRST_CHARACTERS, CHARACTERS_PER_TOKEN = 8_192, 32
"""Of the first beginning that is tried; a longer one has twice as many."""

TAIL, WORDS = 4_096, 32
"""Characters between the last token that counts and the end of a beginning, and the words that must stand there: added tokens and marks
that combine reach over a few."""

SPACES = ("\u2581", "\u0120")
"""How vocabularies write a space: sentencepiece, and byte-level BPE."""

_LOCAL = frozenset(
    ("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled", "Prepend", "Strip", "StripAccents", "ByteLevel")
)
"""Normalizers that look at a letter and the marks around it, or at the very ends of a text."""


def cut_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int) -> list[str]:
    """Texts whose first tokens are those of the whole ones."""
    size = FIRST_CHARACTERS + CHARACTERS_PER_TOKEN * limit
    if all(len(text) <= 2 * size for text in texts) or tokenizer.truncation_side != "right" or not _is_local(tokenizer):
        return list(texts)
    return [_cut(tokenizer, text, limit, size) for text in texts]


def _cut(tokenizer: PreTrainedTokenizerBase, text: str, limit: int, size: int) -> str:
    while 2 * size < len(text):
        # A beginning that ends within one endless word would be tokenised in vain.
        if _words(tokenizer, text[size - TAIL : size]) >= WORDS:
            encoded = tokenizer(text[:size], add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
            ends = [end for _, end in encoded["offset_mapping"]]
            if len(ends) >= limit and ends[limit - 1] <= size - TAIL:
                return text[:size]
        size *= 2
    return text


def _words(tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Parts of a text that tokens cannot reach out of."""
    backend: Any = tokenizer.backend_tokenizer
    normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
    parts = len(backend.pre_tokenizer.pre_tokenize_str(normal)) if backend.pre_tokenizer else 1
    if parts >= WORDS or any(_spans_words(token) for token in backend.get_vocab(with_added_tokens=False)):
        return parts
    return len(text.split(" "))


def _spans_words(token: str) -> bool:
    for space in SPACES:
        token = token.replace(space, " ")
    return " " in token.strip(" ") or (token.endswith(" ") and bool(token.strip(" ")))


def _is_local(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether what a tokenizer makes of a letter depends on what is near it alone."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer is None or all(_looks_near(part) for part in _parts(json.loads(normalizer.__getstate__())))


def _parts(normalizer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part in normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]:
        yield from _parts(part) if part["type"] == "Sequence" else [part]


def _looks_near(part: dict[str, Any]) -> bool:
    pattern = part.get("pattern", {})
    # Of a regular expression, the end of the text may be part, and so may all that follows.
    return part["type"] in _LOCAL or (part["type"] == "Replace" and not any(sign in pattern.get("Regex", "") for sign in ("$", "\\", "(?")))
