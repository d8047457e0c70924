"""Parameters that a token passes, counted by hand for every way to train a tiny tower."""

from collections.abc import Callable

import pytest
import torch
from transformers import AlbertConfig, AlbertModel

from adiabat.models.adapters import add_lora, train_biases_only
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.models.towers import trainable_copy
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.training.flop_count import passed_parameters
from tests.tiny import KINDS, VOCABULARY, Kind, tiny_encoder, tiny_tokenizer

D, INNER, OUT = 16, 32, 5
NORM = 2 * D
"""Gain and bias."""
ATTENTION = 4 * (D * D + D) + NORM
BLOCK = ATTENTION + (D * INNER + INNER) + (INNER * D + D) + NORM
PROJECTION = D * OUT + OUT
WHOLE = NORM + 2 * BLOCK + PROJECTION
"""The norm of the embeddings, two blocks and the projection: no table."""


def tower(kind: Kind = "bert", *, layers: int = 2, projection: int | None = OUT) -> Encoder:
    return trainable_copy(tiny_encoder(kind, width=D, layers=layers, projection=projection))


def counted(prepare: Callable[[Encoder], object] = lambda encoder: None) -> PassedParameters:
    encoder = tower()
    prepare(encoder)
    return passed_parameters(encoder)


def frozen(*patterns: str) -> Callable[[Encoder], object]:
    return lambda encoder: freeze(encoder.backbone, patterns)


def test_everything_is_passed_both_ways_and_updated_but_tables_and_the_pooler() -> None:
    assert counted() == PassedParameters(WHOLE, WHOLE, WHOLE)


def test_frozen_tables_change_nothing_but_the_norm_behind_them() -> None:
    assert counted(frozen("embeddings.base")) == PassedParameters(WHOLE, WHOLE, WHOLE)
    assert counted(frozen("embeddings")) == PassedParameters(WHOLE, WHOLE - NORM, WHOLE - NORM)


def test_the_gradient_stops_behind_frozen_leading_blocks() -> None:
    trained = BLOCK + PROJECTION
    assert counted(frozen("embeddings", "blocks[0]")) == PassedParameters(WHOLE, trained, trained)
    projection_alone = counted(lambda encoder: encoder.backbone.requires_grad_(False))
    assert projection_alone == PassedParameters(WHOLE, PROJECTION, PROJECTION)


def test_the_gradient_passes_frozen_blocks_behind_something_trained() -> None:
    assert counted(frozen("embeddings", "blocks[1]")) == PassedParameters(WHOLE, WHOLE - NORM, WHOLE - NORM - BLOCK)
    assert counted(frozen("blocks")) == PassedParameters(WHOLE, WHOLE, NORM + PROJECTION)


def test_a_frozen_part_of_the_first_block_that_is_trained_is_passed() -> None:
    assert counted(frozen("embeddings", "blocks[0].attention")) == PassedParameters(WHOLE, WHOLE - NORM, WHOLE - NORM - ATTENTION)


def test_biases_alone_are_updated_and_everything_is_passed() -> None:
    biases = D + 2 * (4 * D + D + INNER + D + D)
    found = counted(lambda encoder: train_biases_only(encoder.backbone))
    assert found == PassedParameters(WHOLE, WHOLE, biases + PROJECTION)


@pytest.mark.parametrize("rank", [1, 4])
def test_adapters_are_passed_beside_the_layers_that_they_stand_at(rank: int) -> None:
    adapters = 2 * rank * (4 * (D + D) + (D + INNER) + (INNER + D))
    found = counted(lambda encoder: add_lora(encoder.backbone, rank=rank))
    whole = WHOLE + adapters
    # No gradient comes to the norm of the embeddings, in front of the first adapter.
    assert found == PassedParameters(whole, whole - NORM, adapters + PROJECTION)


def test_adapters_and_frozen_blocks_go_together() -> None:
    def prepare(encoder: Encoder) -> None:
        add_lora(encoder.backbone, rank=2)
        freeze(encoder.backbone, ["blocks[0]"])

    each = 2 * (4 * (D + D) + (D + INNER) + (INNER + D))
    assert counted(prepare) == PassedParameters(WHOLE + 2 * each, BLOCK + each + PROJECTION, each + PROJECTION)


def test_a_tower_that_is_not_trained_is_passed_forwards_alone() -> None:
    assert counted(lambda encoder: encoder.requires_grad_(False)) == PassedParameters(WHOLE, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_counts_all_but_its_tables(kind: Kind) -> None:
    encoder = tower(kind)
    tables = {id(part.weight) for part in encoder.modules() if isinstance(part, torch.nn.Embedding)}
    whole = sum(weights.numel() for weights in encoder.used_parameters().values() if id(weights) not in tables)
    assert passed_parameters(encoder) == PassedParameters(whole, whole, whole)
    freeze(encoder.backbone, ["embeddings", "blocks[0]"])
    found = passed_parameters(encoder)
    assert found.forward == whole
    assert 0 < found.backward == found.updated < whole


def test_weights_of_repeated_layers_count_as_often_as_a_token_passes_them() -> None:
    config = AlbertConfig(
        vocab_size=VOCABULARY,
        embedding_size=8,
        hidden_size=D,
        num_hidden_layers=6,
        num_attention_heads=2,
        intermediate_size=INNER,
        max_position_embeddings=600,
    )
    encoder = trainable_copy(Encoder(AlbertModel(config), tiny_tokenizer(), EncoderSettings()))
    # The norm of the embeddings and the layer that makes them as wide as the rest are passed once.
    whole = 2 * 8 + (8 * D + D) + 6 * BLOCK
    assert passed_parameters(encoder) == PassedParameters(whole, whole, whole)
    assert passed_parameters(encoder.requires_grad_(False)) == PassedParameters(whole, 0, 0)


def test_a_frozen_norm_behind_the_blocks_is_passed() -> None:
    encoder = tower("llama")
    freeze(encoder.backbone, ["embeddings", "blocks[0]", r"^norm\."])
    found = passed_parameters(encoder)
    assert found.backward - found.updated == D


def test_counting_leaves_mode_gradients_and_random_numbers_alone() -> None:
    encoder = tower().train()
    state = torch.get_rng_state()
    passed_parameters(encoder)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.backbone.training
    assert all(weights.grad is None for weights in encoder.parameters())
    assert not any(part._forward_hooks for part in encoder.modules())
