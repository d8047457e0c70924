"""Teachers of words, and texts to embed, for several tests of distillation."""

from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from adiabat.data.records import text_id
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.towers import DualEncoder
from adiabat.store.vector_store import Store
from tests.tiny import tiny_dual

TEXTS = [f"a text of number {number} and colour {number * 7 % 11}" for number in range(80)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["the", "cat", "sat", "##s", "##at", "c", "new", "york", "[unused1]", "[unused2]"]


def rows_of(store: Store, texts: list[str] = TEXTS) -> np.ndarray:
    return store.gather(store.rows([text_id(text) for text in texts])).astype(np.float32)


def wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    first, last = ("[CLS]", backend.token_to_id("[CLS]")), ("[SEP]", backend.token_to_id("[SEP]"))
    backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[first, last])
    names: dict[str, Any] = {f"{token.strip('[]').lower()}_token": token for token in SPECIAL}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def wordpiece() -> PreTrainedTokenizerFast:
    pieces = {piece: row for row, piece in enumerate([*SPECIAL, *PIECES])}
    backend = Tokenizer(WordPiece(pieces, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = Lowercase(), Whitespace()
    return wrapped(backend)


def of_words() -> DualEncoder:
    """A tiny model that reads pieces of words, and knows no others."""
    tower = tiny_dual(width=24).document
    tower = tower.with_settings(EncoderSettings(max_tokens=64), tokenizer=wordpiece())
    return DualEncoder(tower, tower, "words")
