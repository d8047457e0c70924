"""Biases alone: which are trained, which are added, and that what is saved is a plain model."""

import copy
from pathlib import Path

import pytest
import torch
import transformers as tf
from torch import nn

from adiabat.core.errors import ModelError
from adiabat.models.adapters import train_biases_only
from adiabat.models.freezing import freeze
from adiabat.training.gradient_cache import Chunking
from tests.models.test_adapters import assert_saved_as_a_plain_model, assert_side_passes_agree, embed, trainable_names, trained
from tests.tiny import Kind, tiny_backbone, tiny_encoder

WITH_BIASES: tuple[Kind, ...] = ("bert", "xlm-roberta", "gpt-neox", "llama")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 50, "intermediate_size": 64, "num_attention_heads": 2}
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@pytest.mark.parametrize("kind", WITH_BIASES)
def test_only_biases_are_trained(kind: Kind) -> None:
    encoder = tiny_encoder(kind)
    count = train_biases_only(encoder.backbone)
    embed(encoder).square().sum(dim=0)[0].backward()
    with_gradient = {name: weights for name, weights in encoder.backbone.named_parameters() if weights.grad is not None}
    assert set(with_gradient) == trainable_names(encoder.backbone)
    assert all(name.endswith(".bias") and not name.startswith("pooler.") for name in with_gradient)
    assert count == sum(weights.numel() for weights in with_gradient.values())


def test_the_biases_of_bert_are_as_counted_by_hand() -> None:
    # Norm of the embeddings; per block four of attention, 64 and 32 of the feed-forward, two norms.
    assert train_biases_only(tiny_backbone("bert")) == 32 + 2 * (4 * 32 + 64 + 32 + 2 * 32)


def test_biases_of_any_name_are_biases() -> None:
    backbone = tiny_backbone()
    backbone.encoder.register_parameter("q_bias", nn.Parameter(torch.zeros(3)))
    backbone.encoder.register_parameter("bias_table", nn.Parameter(torch.zeros(3)))
    train_biases_only(backbone)
    assert "encoder.q_bias" in trainable_names(backbone)
    assert "encoder.bias_table" not in trainable_names(backbone)


def test_llama_is_given_zero_biases_and_computes_what_it_did_bit_for_bit() -> None:
    encoder = tiny_encoder("llama")
    before, names, state = embed(encoder), {name for name, _ in encoder.backbone.named_parameters()}, torch.get_rng_state()
    count = train_biases_only(encoder.backbone)
    added = {name for name, _ in encoder.backbone.named_parameters()} - names
    layers = [f"self_attn.{one}_proj" for one in "qkvo"] + [f"mlp.{one}_proj" for one in ("gate", "up", "down")]
    assert added == {f"layers.{block}.{layer}.bias" for block in range(2) for layer in layers}
    assert count == 2 * (32 + 16 + 16 + 32 + 64 + 64 + 32)
    assert torch.equal(embed(encoder), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.backbone.config.attention_bias
    assert encoder.backbone.config.mlp_bias


@pytest.mark.parametrize("kind", WITH_BIASES)
def test_what_is_saved_after_training_biases_loads_with_them(kind: Kind, tmp_path: Path) -> None:
    encoder = tiny_encoder(kind)
    train_biases_only(encoder.backbone)
    assert_saved_as_a_plain_model(trained(encoder), tmp_path)


def test_two_threads_train_the_biases_of_llama_as_one_pass_does() -> None:
    encoder = tiny_encoder("llama")
    train_biases_only(encoder.backbone)
    assert_side_passes_agree(trained(encoder), Chunking())


@pytest.mark.parametrize(
    ("family", "config", "ends"),
    [
        (tf.Qwen3Model, tf.Qwen3Config(**GROUPED), {"_proj"}),
        (tf.ModernBertModel, tf.ModernBertConfig(**{**GROUPED, "cls_token_id": 1, "sep_token_id": 2}), {"Wqkv", "Wo", "Wi", "norm"}),
    ],
)
def test_other_families_are_given_the_biases_that_their_configuration_knows(
    family: type[tf.PreTrainedModel], config: tf.PretrainedConfig, ends: set[str]
) -> None:
    backbone = family(copy.deepcopy(config)).eval()
    tokens = torch.arange(5, 15).reshape(2, 5)
    before = backbone(input_ids=tokens).last_hidden_state
    assert train_biases_only(backbone) > 0
    assert torch.equal(backbone(input_ids=tokens).last_hidden_state, before)
    assert {name for name, _ in backbone.named_parameters()} == {name for name, _ in family(backbone.config).named_parameters()}
    stems = {name.removesuffix(".bias") for name in trainable_names(backbone)}
    assert {end for end in ends if any(stem.endswith(end) for stem in stems)} == ends


@pytest.mark.parametrize("kind", ["t5", "mistral"])
def test_a_family_without_biases_says_what_to_do_instead(kind: str) -> None:
    backbone = tiny_backbone("t5") if kind == "t5" else tf.MistralModel(tf.MistralConfig(**GROUPED))
    with pytest.raises(ModelError, match=f"must have biases where they alone are trained, got one of type {kind}.*; use LoRA") as caught:
        train_biases_only(backbone)
    assert "\n" not in str(caught.value)
    assert all(weights.requires_grad for weights in backbone.parameters())


@pytest.mark.parametrize("kind", WITH_BIASES)
def test_freezing_first_or_afterwards_is_the_same_for_biases(kind: Kind) -> None:
    first, last = tiny_backbone(kind), tiny_backbone(kind)
    patterns = ["embeddings", "blocks[0]", "output.dense"]
    freeze(first, patterns)
    count = train_biases_only(first)
    train_biases_only(last)
    assert count == freeze(last, patterns).trainable > 0
    assert trainable_names(first) == trainable_names(last)
