"""Tiny static models, in memory and as the directories of both libraries."""

from pathlib import Path

import torch
from jaxtyping import Float
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.static import StaticBackbone, StaticTokenizer
from tests.tiny import write

UNKNOWN = 0
WORDS = ("[UNK]", "[PAD]", "[CLS]", "[SEP]", "cat", "dog", "sea", "salt", "moon", "a", "the", "on")
WIDTH = 8
OLD = "sentence_transformers.models.{}"
NEW = "sentence_transformers.sentence_transformer.modules.{}"

CORNERS = [
    "",
    "   ",
    "cat",
    "cat cat cat",
    "the cat on the moon",
    "zebra",
    "zebra cat",
    "cat zebra",
    "a dog " * 40,
    "salt sea salt",
    "cat",
]
"""No token, one, repeated, unknown, more than any limit here, twice the same."""


def word_tokenizer(*, limit: int | None = None, side: str = "right") -> Tokenizer:
    """A token for each known word, and special tokens around a text where they are asked for."""
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = WhitespaceSplit()
    backend.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_padding(pad_id=1, pad_token="[PAD]")
    if limit is not None:
        backend.enable_truncation(limit, direction=side)
    return backend


def word_table(*, rows: int = len(WORDS), width: int = WIDTH, seed: int = 0) -> Float[Tensor, "v d"]:
    """Random vectors."""
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def static_encoder(
    table: Float[Tensor, "v d"] | None = None, *, settings: EncoderSettings | None = None, side: str = "right"
) -> Encoder:
    """An encoder over the words above."""
    table = word_table() if table is None else table
    return Encoder(
        StaticBackbone(table),
        StaticTokenizer(word_tokenizer(), rows=len(table), side=side),
        settings or EncoderSettings(),
    )


def write_embedding(folder: Path, tensors: dict[str, Tensor], backend: Tokenizer | None = None) -> Path:
    """Write the two files that both libraries have; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (backend or word_tokenizer()).save(str(folder / "tokenizer.json"))
    return folder


def write_modules(folder: Path, *modules: tuple[str, str]) -> None:
    """List modules by path and dotted type."""
    write(
        folder,
        "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)],
    )
    for path, _ in modules:
        (folder / path).mkdir(exist_ok=True)
    write(folder, "config_sentence_transformers.json", {})


def write_model2vec(
    folder: Path, tensors: dict[str, Tensor], backend: Tokenizer | None = None, **config: object
) -> Path:
    """Write a directory of model2vec that lists no modules."""
    write_embedding(folder, tensors, backend)
    write(folder, "config.json", {"model_type": "model2vec", "architectures": ["StaticModel"], **config})
    return folder


def write_static(
    folder: Path, table: Float[Tensor, "v d"] | None = None, *, limit: int | None = None
) -> Path:
    """Write a directory of sentence-transformers as it writes one itself."""
    table = word_table() if table is None else table
    write_embedding(folder / "0_StaticEmbedding", {"embedding.weight": table}, word_tokenizer(limit=limit))
    embedding = ("0_StaticEmbedding", NEW.format("static_embedding.StaticEmbedding"))
    write_modules(folder, embedding, ("1_Normalize", NEW.format("normalize.Normalize")))
    return folder
