"""Near duplicates among texts that are no longer there: signatures of 64 bytes that estimate the Jaccard
similarity of word 3-grams.

Each byte is the lowest eight bits of the least of one random hash over the 3-grams of a text. Two texts of
similarity J share a byte with probability ``J + (1 - J) / 256``, so the share m of equal bytes estimates ``J
= (m - 1/256) / (1 - 1/256)``, with a standard error of 0.04
at 0.9. Candidates share one of eight bands of eight bytes: at 0.9, 99 of 100 pairs do.

Reference:
    Broder 1997 (MinHash); Li and König 2010 (few bits); Leskovec, Rajaraman and Ullman 2014, chapter 3
    (bands).
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, UInt8, UInt64

from adiabat.data.text_hashes import blocks, folded

SIGNATURE_BYTES = 64
THRESHOLD = 0.9
"""Similarity from which two texts are near duplicates."""

MOST_SIGNATURES = 1_000_000
"""Most signatures of a job: 64 MB."""

_BANDS = 8
_BLOCK = 2_048
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORDS = re.compile(rf"[{_CJK}]|[^\s—–{_CJK}]+")
"""Words between white space and dashes; in scripts without spaces, characters."""

_PUNCTUATION = """.,;:!?"'()[]{}…“”„‟‘’‚‛«»‹›「」『』《》〈〉【】。、¿¡।؟،؛"""
"""Punctuation of sentences, at the ends of words; symbols, such as those of ``C++`` and ``-5``, belong to
words."""

Signatures = UInt8[np.ndarray, "n 64"]


def signatures(texts: Iterable[str]) -> Signatures:
    """Signatures of texts."""
    signed = map(_signed, blocks(texts, _BLOCK))
    return np.concatenate([np.empty((0, SIGNATURE_BYTES), dtype=np.uint8), *signed])


def near(texts: Sequence[str], known: Signatures) -> Bool[np.ndarray, " n"]:
    """Which texts are near duplicates of a text whose signature is known."""
    signed = signatures(texts)
    similar = np.zeros(len(signed), dtype=np.bool_)
    # Unrelated bytes are equal by chance in one of 256 cases.
    equal_bytes = np.ceil(SIGNATURE_BYTES * (THRESHOLD + (1 - THRESHOLD) / 256))
    for ours, theirs in zip(_bands(signed), _bands(known), strict=True):
        order = np.argsort(theirs, kind="stable")
        first, last = (np.searchsorted(theirs[order], ours, side=side) for side in ("left", "right"))
        for text in np.flatnonzero((last > first) & ~similar):
            candidates = known[order[first[text] : last[text]]]
            equal = (candidates == signed[text]).sum(axis=1)
            similar[text] = bool((equal >= equal_bytes).any())
    return similar


def grams(text: str) -> list[str]:
    """Word 3-grams of the normal form of a text, without punctuation around words; a shorter text is one
    gram.
    """
    normal = " ".join(folded(text)).replace("’", "'")
    words = list(filter(None, map(_without_punctuation, _WORDS.findall(normal))))
    if not words:  # A text of punctuation alone.
        return [normal]
    return [" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))]


def _without_punctuation(word: str) -> str:
    """A word without punctuation at its ends; the point of ``.5`` stays."""
    rest = word.lstrip(_PUNCTUATION)
    before = word[: len(word) - len(rest)]
    has_point = before.endswith(".") and not before.endswith("..") and rest[:1].isalnum()
    return ("." * has_point + rest).rstrip(_PUNCTUATION)


def _signed(texts: Sequence[str]) -> Signatures:
    """Signatures of a block of texts: each byte is of the least of one random hash over the 3-grams."""
    hashes, starts = bytearray(), list[int]()
    for text in texts:
        starts.append(len(hashes) // 8)
        for gram in dict.fromkeys(grams(text)):
            hashes += hashlib.blake2b(gram.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    columns = []
    for values in _permuted(np.frombuffer(hashes, dtype="<u8")):
        # Eight bits of the least hash of each text.
        least = np.minimum.reduceat(values >> np.uint64(16), starts)
        columns.append(least.astype(np.uint8))
    return np.stack(columns, axis=1)


def _permuted(hashes: UInt64[np.ndarray, " g"]) -> Iterator[UInt64[np.ndarray, " g"]]:
    """The hashes under random functions, always the same ones: ``a h + b`` modulo 2^64 with an odd ``a``,
    whose high bits, which are the more random ones, are then mixed into the low ones.
    """
    generator = np.random.default_rng(0)
    factors, summands = generator.integers(0, 2**64, size=(2, SIGNATURE_BYTES), dtype=np.uint64)
    for factor, summand in zip(factors | np.uint64(1), summands, strict=True):
        mixed = hashes * factor + summand
        yield mixed ^ (mixed >> np.uint64(32))


def _bands(signed: Signatures) -> list[UInt64[np.ndarray, " n"]]:
    """Each band of the signatures as one number a text."""
    numbers = np.ascontiguousarray(signed).view("<u8").reshape(len(signed), _BANDS)
    return list(numbers.T)
