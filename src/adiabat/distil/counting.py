"""How often tokens stand in a corpus, and in how many of its texts."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Int
from tokenizers import Tokenizer

from adiabat.watch import SILENT, Watch

BLOCK = 4_096
"""Texts that are split at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounts:
    """Of each row of a vocabulary.

    Attributes:
        times: How often it stands in the texts.
        containing: How many of the texts hold it.
        texts: How many there are.
    """

    times: Int[np.ndarray, " v"]
    containing: Int[np.ndarray, " v"]
    texts: int


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str], *, watch: Watch = SILENT) -> TokenCounts:
    """Count tokens."""
    rows = tokenizer.get_vocab_size()
    times, containing = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    left, done = iter(texts), 0
    while block := list(islice(left, BLOCK)):
        for encoding in tokenizer.encode_batch_fast(block, add_special_tokens=False):
            found, often = np.unique(np.asarray(encoding.ids, dtype=np.int64), return_counts=True)
            times[found] += often
            containing[found] += 1
        done += len(block)
        watch.progress("counting tokens of the corpus", done, done)
    return TokenCounts(times, containing, done)
