"""Tiny random encoders made in memory, so that tests need no network and no saved weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from adiabat.core.ragged import Ragged
from adiabat.models.embedding_head import EncoderSettings, Projection
from adiabat.models.encoder import Encoder
from adiabat.models.saving import save
from adiabat.models.towers import DualEncoder

Kind = Literal["bert", "xlm-roberta", "t5", "gpt-neox", "llama"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# The order of XLM-R, whose position ids depend on the padding id.
SPECIAL = ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
CLS, PAD, SEP = range(3)
POSITIONS = 600
SPREAD = 0.2
"""Standard deviation of the weights: ten times the usual, so that different texts get clearly different
vectors."""

# What each family puts around a text, as its real tokenizers do.
TEMPLATES: Mapping[Kind, str] = {
    "bert": "[CLS] $A [SEP]",
    "xlm-roberta": "[CLS] $A [SEP]",
    "t5": "$A [SEP]",
    "gpt-neox": "$A",
    "llama": "[CLS] $A",
}


def lists(tokens: Ragged) -> list[list[int]]:
    """Token ids as lists."""
    return [tokens[number].tolist() for number in range(len(tokens))]


def tiny_tokenizer(kind: Kind = "bert") -> PreTrainedTokenizerFast:
    """Byte-level tokenizer: one token per UTF-8 byte, so that different texts get different ids in any
    script.

    The decoders (``gpt-neox``, ``llama``) pad with their end-of-text token, as is usual for them.
    """
    letters = sorted(ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*SPECIAL, *letters])}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token="[UNK]"))
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = ByteLevelDecoder()
    backend.post_processor = TemplateProcessing(
        single=TEMPLATES[kind], special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    decoder = kind in ("gpt-neox", "llama")
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend,
        model_max_length=512,
        cls_token="[CLS]",
        bos_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        pad_token="[SEP]" if decoder else "[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )


VOCABULARY = 256 + len(SPECIAL)


def tiny_backbone(kind: Kind = "bert", *, seed: int = 0, width: int = 32, layers: int = 1) -> PreTrainedModel:
    """Random transformer of one family; the same seed gives the same weights, and the global random state is
    left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        backbone = _built(kind, width, layers)
    backbone.train(False)
    return backbone


def _built(kind: Kind, width: int, layers: int) -> PreTrainedModel:
    heads = 4
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    usual = {
        **shape,
        "intermediate_size": 2 * width,
        "max_position_embeddings": POSITIONS,
        "initializer_range": SPREAD,
    }
    ends = {"bos_token_id": CLS, "eos_token_id": SEP}
    match kind:
        case "bert":
            return BertModel(BertConfig(**usual, pad_token_id=PAD))
        case "xlm-roberta":
            return XLMRobertaModel(XLMRobertaConfig(**usual, **ends, pad_token_id=PAD))
        case "t5":
            sizes = {
                "d_model": width,
                "d_kv": width // heads,
                "d_ff": 2 * width,
                "num_layers": layers,
                "num_heads": heads,
            }
            return T5EncoderModel(
                T5Config(vocab_size=VOCABULARY, **sizes, pad_token_id=PAD, eos_token_id=SEP)
            )
        case "gpt-neox":
            return GPTNeoXModel(GPTNeoXConfig(**usual, **ends))
        case "llama":
            return LlamaModel(LlamaConfig(**usual, **ends, num_key_value_heads=heads // 2))


def tiny_encoder(
    kind: Kind = "bert",
    *,
    seed: int = 0,
    width: int = 32,
    layers: int = 1,
    settings: EncoderSettings | None = None,
    projection: int | None = None,
) -> Encoder:
    """Random encoder of one family, in evaluation mode; `projection` adds a linear layer with tanh to that
    width.
    """
    settings = settings or EncoderSettings(max_tokens=128)
    projections = [_projection(width, projection, seed)] if projection else []
    return Encoder(
        tiny_backbone(kind, seed=seed, width=width, layers=layers),
        tiny_tokenizer(kind),
        settings,
        projections,
    ).eval()


def _projection(width: int, out: int, seed: int) -> Projection:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed + 1)
        return Projection(nn.Linear(width, out), nn.Tanh())


def tiny_dual(
    kind: Kind = "bert",
    *,
    seed: int = 0,
    width: int = 32,
    layers: int = 1,
    settings: EncoderSettings | None = None,
    projection: int | None = None,
    shared: bool = True,
) -> DualEncoder:
    """Two towers: one encoder for both sides, or, where not `shared`, a query tower of the next seed beside
    the document tower.
    """
    document = tiny_encoder(
        kind, seed=seed, width=width, layers=layers, settings=settings, projection=projection
    )
    if shared:
        return DualEncoder(document, document, "tiny")
    query = tiny_encoder(
        kind, seed=seed + 1, width=width, layers=layers, settings=settings, projection=projection
    )
    return DualEncoder(query, document, "tiny")


def save_tiny(
    folder: Path,
    kind: Kind = "bert",
    *,
    seed: int = 0,
    width: int = 32,
    layers: int = 1,
    settings: EncoderSettings | None = None,
    projection: int | None = None,
    shared: bool = True,
) -> Path:
    """Write the model of `tiny_dual` to a directory that `adiabat.models.loading.load` loads; returns the
    directory.
    """
    model = tiny_dual(
        kind, seed=seed, width=width, layers=layers, settings=settings, projection=projection, shared=shared
    )
    save(model, folder)
    return folder


def save_plain(folder: Path, kind: Kind = "bert") -> Path:
    """Write a Hugging Face directory without sentence-transformers files; returns the directory."""
    tiny_backbone(kind).save_pretrained(folder)
    tiny_tokenizer(kind).save_pretrained(folder)
    return folder


def write(folder: Path, name: str, content: object) -> None:
    """Write a text as it is, anything else as JSON."""
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def edit(folder: Path, name: str, **changes: object) -> None:
    """Change keys of a JSON file."""
    write(folder, name, {**json.loads((folder / name).read_text(encoding="utf-8")), **changes})


def files_of(folder: Path) -> dict[str, bytes]:
    """Content of every file below a directory."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def save_tiny_reranker(folder: Path, *, seed: int = 0, labels: int = 1) -> Path:
    """A random cross-encoder in a directory, with a tokenizer that marks the second text of a pair."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=POSITIONS,
        initializer_range=SPREAD,
        pad_token_id=PAD,
        num_labels=labels,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.save_pretrained(folder)
    return folder
