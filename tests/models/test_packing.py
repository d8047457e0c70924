"""Packed batches against padded ones."""

import copy

import pytest
import torch

from adiabat.models.packing import PackedBackbone, is_packable
from tests.tiny import KINDS, Kind, tiny_backbone, tiny_encoder

TEXTS = ["", "a", "שלום עולם", "the longest of all the texts in this batch, which fills its row", "two words"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "t5"])
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[3:4], ["same", "same"]], ids=["mixed", "one", "twice"])
def test_packed_states_equal_padded_ones(kind: Kind, texts: list[str]):
    encoder = tiny_encoder(kind)
    batch = encoder.collate(encoder.tokenize(texts, side="query"), side="query")
    padded = encoder.backbone(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    packed = PackedBackbone(copy.deepcopy(encoder.backbone))(batch.input_ids, batch.attention_mask).last_hidden_state
    real = batch.attention_mask.bool()
    torch.testing.assert_close(packed[real], padded[real], rtol=1e-4, atol=1e-5)
    assert not packed[~real].any()


def test_a_padding_token_inside_a_text_keeps_its_position():
    encoder = tiny_encoder("xlm-roberta")
    batch = encoder.collate([[0, 7, 1, 8, 2], [0, 9, 2]], side="query")
    padded = encoder.backbone(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    packed = PackedBackbone(copy.deepcopy(encoder.backbone))(batch.input_ids, batch.attention_mask).last_hidden_state
    real = batch.attention_mask.bool()
    torch.testing.assert_close(packed[real], padded[real], rtol=1e-4, atol=1e-5)


def test_a_bias_inside_the_attention_is_not_packed():
    assert {kind for kind in KINDS if not is_packable(tiny_backbone(kind))} == {"t5"}


def test_wrapping_a_copy_leaves_the_original_as_it_was():
    backbone = tiny_backbone("bert")
    before = backbone.config._attn_implementation
    PackedBackbone(copy.deepcopy(backbone))
    assert backbone.config._attn_implementation == before
