"""Tiny random models of the architectures of transformers that people embed texts with."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import torch
import transformers as t
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedConfig, PreTrainedModel

from tests.tiny import CLS, PAD, POSITIONS, SEP, SPREAD, VOCABULARY

SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": PAD,
    "bos_token_id": CLS,
    "eos_token_id": SEP,
}
GROUPED = {"num_key_value_heads": 2}
DISTANCE = 5
"""How far attention of a sliding window sees: shorter than most texts of a test."""
WINDOWS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": DISTANCE}
TABLE = {"vocab_size": VOCABULARY, "pad_token_id": PAD, "bos_token_id": CLS, "eos_token_id": SEP}
T5 = {**TABLE, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
FALCON = {**TABLE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OPT = {**FALCON, "ffn_dim": 64, "max_position_embeddings": POSITIONS}
NEO = {
    **TABLE,
    **{"hidden_size": 32, "num_layers": 2, "num_heads": 4},
    **{"window_size": DISTANCE, "max_position_embeddings": POSITIONS},
}
MODERN = {"cls_token_id": CLS, "sep_token_id": SEP, "local_attention": 2 * DISTANCE}
DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}

Made = tuple[type[PreTrainedModel], PreTrainedConfig]

ARCHITECTURES: Mapping[str, Callable[[], Made]] = {
    "bert": lambda: (t.BertModel, t.BertConfig(**SIZES)),
    "roberta": lambda: (t.RobertaModel, t.RobertaConfig(**SIZES, type_vocab_size=1)),
    "xlm-roberta": lambda: (t.XLMRobertaModel, t.XLMRobertaConfig(**SIZES, type_vocab_size=1)),
    "camembert": lambda: (t.CamembertModel, t.CamembertConfig(**SIZES, type_vocab_size=1)),
    "distilbert": lambda: (
        t.DistilBertModel,
        t.DistilBertConfig(
            **TABLE, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=POSITIONS
        ),
    ),
    "mpnet": lambda: (t.MPNetModel, t.MPNetConfig(**SIZES)),
    "albert": lambda: (t.AlbertModel, t.AlbertConfig(**SIZES, embedding_size=16)),
    "electra": lambda: (t.ElectraModel, t.ElectraConfig(**SIZES, embedding_size=16)),
    "deberta": lambda: (t.DebertaModel, t.DebertaConfig(**SIZES, **DEBERTA)),
    "deberta-v2": lambda: (t.DebertaV2Model, t.DebertaV2Config(**SIZES, **DEBERTA)),
    "deberta-v3": lambda: (
        t.DebertaV2Model,
        t.DebertaV2Config(
            **SIZES, **DEBERTA, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm"
        ),
    ),
    "modernbert": lambda: (
        t.ModernBertModel,
        t.ModernBertConfig(**SIZES, **MODERN, layer_types=["full_attention", "sliding_attention"]),
    ),
    "nomic-bert": lambda: (t.NomicBertModel, t.NomicBertConfig(**SIZES)),
    "eurobert": lambda: (t.EuroBertModel, t.EuroBertConfig(**SIZES, **GROUPED)),
    "t5": lambda: (t.T5EncoderModel, t.T5Config(**T5)),
    "t5-gated": lambda: (t.T5EncoderModel, t.T5Config(**T5, feed_forward_proj="gated-gelu")),
    "mt5": lambda: (t.MT5EncoderModel, t.MT5Config(**T5)),
    "umt5": lambda: (t.UMT5EncoderModel, t.UMT5Config(**T5)),
    "gpt2": lambda: (
        t.GPT2Model,
        t.GPT2Config(**TABLE, n_positions=POSITIONS, n_embd=32, n_layer=2, n_head=4),
    ),
    "gpt-neo": lambda: (t.GPTNeoModel, t.GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]])),
    "gpt-neox": lambda: (t.GPTNeoXModel, t.GPTNeoXConfig(**SIZES)),
    "gptj": lambda: (
        t.GPTJModel,
        t.GPTJConfig(**TABLE, n_positions=POSITIONS, n_embd=32, n_layer=2, n_head=4, rotary_dim=4),
    ),
    "opt": lambda: (t.OPTModel, t.OPTConfig(**OPT, word_embed_proj_dim=16)),
    "bloom": lambda: (t.BloomModel, t.BloomConfig(**TABLE, hidden_size=32, n_layer=2, n_head=4)),
    "mpt": lambda: (t.MptModel, t.MptConfig(**TABLE, d_model=32, n_heads=4, n_layers=2)),
    "falcon": lambda: (t.FalconModel, t.FalconConfig(**FALCON)),
    "falcon-alibi": lambda: (t.FalconModel, t.FalconConfig(**FALCON, alibi=True)),
    "llama": lambda: (t.LlamaModel, t.LlamaConfig(**SIZES, **GROUPED)),
    "mistral": lambda: (t.MistralModel, t.MistralConfig(**SIZES, **GROUPED, sliding_window=DISTANCE)),
    "qwen2": lambda: (t.Qwen2Model, t.Qwen2Config(**SIZES, **GROUPED)),
    "qwen3": lambda: (t.Qwen3Model, t.Qwen3Config(**SIZES, **GROUPED, head_dim=8)),
    "gemma": lambda: (t.GemmaModel, t.GemmaConfig(**SIZES, **GROUPED, head_dim=8)),
    "gemma2": lambda: (t.Gemma2Model, t.Gemma2Config(**SIZES, **GROUPED, **WINDOWS, head_dim=8)),
    "gemma3": lambda: (t.Gemma3TextModel, t.Gemma3TextConfig(**SIZES, **GROUPED, **WINDOWS, head_dim=8)),
    "phi3": lambda: (t.Phi3Model, t.Phi3Config(**SIZES, **GROUPED)),
    "stablelm": lambda: (t.StableLmModel, t.StableLmConfig(**SIZES, **GROUPED)),
    "smollm3": lambda: (t.SmolLM3Model, t.SmolLM3Config(**SIZES, **GROUPED)),
    "olmo2": lambda: (t.Olmo2Model, t.Olmo2Config(**SIZES, **GROUPED)),
    "granite": lambda: (t.GraniteModel, t.GraniteConfig(**SIZES, **GROUPED)),
    "bert-decoder": lambda: (t.BertModel, t.BertConfig(**SIZES, is_decoder=True)),
    "llama-bidirectional": lambda: (t.LlamaModel, t.LlamaConfig(**SIZES, **GROUPED, is_causal=False)),
    "llama-bidirectional-dropout": lambda: (
        t.LlamaModel,
        t.LlamaConfig(**SIZES, **GROUPED, is_causal=False, attention_dropout=1e-9),
    ),
    "mistral-bidirectional": lambda: (
        t.MistralModel,
        t.MistralConfig(**SIZES, **GROUPED, sliding_window=DISTANCE, is_causal=False),
    ),
    "qwen2-bidirectional": lambda: (t.Qwen2Model, t.Qwen2Config(**SIZES, **GROUPED, is_causal=False)),
    "gpt-neox-bidirectional": lambda: (t.GPTNeoXModel, t.GPTNeoXConfig(**SIZES, is_causal=False)),
    "gemma3-bidirectional": lambda: (
        t.Gemma3TextModel,
        t.Gemma3TextConfig(**SIZES, **GROUPED, **WINDOWS, head_dim=8, use_bidirectional_attention=True),
    ),
}


def tiny_architecture(name: str) -> PreTrainedModel:
    """A random model; its matrices are drawn wide, so that different texts get clearly different vectors."""
    kind, config = ARCHITECTURES[name]()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = kind(config)
        for weights in model.parameters():
            if weights.ndim >= 2:
                weights.normal_(std=SPREAD)
    return model.eval()


def flop_counter() -> FlopCounterMode:
    """Torch's own counter, without its table by modules, which takes most of its time."""
    counter, anywhere = FlopCounterMode(display=False), nullcontext()
    anywhere.parents = {"Global"}  # type: ignore[attr-defined]
    counter.mod_tracker = anywhere  # type: ignore[assignment]
    return counter
