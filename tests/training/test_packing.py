"""Packed batches against padded ones, and dropout whose numbers do not depend on other threads."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from adiabat.training.blocks import (
    PackedBackbone,
    ThreadDropout,
    attention,
    drawing_from,
    dropped,
    is_packable,
    thread_generator,
    use_thread_dropout,
)
from tests.tiny import KINDS, tiny_backbone, tiny_encoder


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_share_is_zero_and_the_rest_is_scaled_so_that_the_mean_stays() -> None:
    ones = torch.ones(200, 500)
    with drawing_from(seeded(0)):
        found = dropped(ones, 0.2)
    assert set(found.unique().tolist()) == {0.0, 1.25}
    assert (found == 0).float().mean().item() == pytest.approx(0.2, abs=0.01)
    assert found.mean().item() == pytest.approx(1.0, abs=0.01)


def test_the_same_seed_draws_the_same_and_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    with drawing_from(seeded(3)):
        one = dropped(torch.ones(64), 0.5)
    with drawing_from(seeded(3)):
        other = dropped(torch.ones(64), 0.5)
    with drawing_from(seeded(4)):
        third = dropped(torch.ones(64), 0.5)
    assert one.equal(other)
    assert not one.equal(third)
    assert torch.get_rng_state().equal(before)


def test_without_a_generator_torch_draws() -> None:
    torch.manual_seed(1)
    ours = dropped(torch.ones(64), 0.5)
    torch.manual_seed(1)
    assert ours.equal(nn.functional.dropout(torch.ones(64), 0.5))
    assert thread_generator() is None


def test_blocks_nest_and_end_where_they_began() -> None:
    outer, inner = seeded(0), seeded(1)
    with drawing_from(outer):
        with drawing_from(inner):
            assert thread_generator() is inner
        assert thread_generator() is outer
        with drawing_from(None):
            assert thread_generator() is None


def test_every_dropout_inside_a_module_is_replaced_in_its_mode() -> None:
    module = nn.Sequential(nn.Dropout(0.3), nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)).eval())
    use_thread_dropout(module)
    replaced = [part for part in module.modules() if isinstance(part, nn.Dropout)]
    assert [type(part) for part in replaced] == [ThreadDropout, ThreadDropout]
    assert [(part.p, part.training) for part in replaced] == [(0.3, True), (0.1, False)]
    assert module[1](torch.ones(1, 2)).equal(module[1][0](torch.ones(1, 2)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_without_dropout_is_torchs(causal: bool, heads: int) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, count, 5, 8, dtype=torch.float64) for count in (4, heads, heads))
    expected = scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(attention(query, key, value, scaling=8**-0.5, causal=causal, dropout=0.0), expected)


def test_attention_drops_weights_after_the_softmax_worked_in_plain_loops() -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 3, 4) for _ in range(3))
    with drawing_from(seeded(7)):
        found = attention(query, key, value, scaling=0.5, causal=False, dropout=0.4)
    with drawing_from(seeded(7)):
        kept = dropped(torch.ones(1, 2, 3, 3), 0.4)
    for head in range(2):
        for row in range(3):
            scores = torch.stack([0.5 * query[0, head, row] @ key[0, head, column] for column in range(3)])
            weights = scores.exp() / scores.exp().sum()
            expected = sum(weights[column] * kept[0, head, row, column] * value[0, head, column] for column in range(3))
            torch.testing.assert_close(found[0, row, head], expected)


def test_everything_dropped_is_zero_with_a_gradient_of_zero() -> None:
    states = torch.ones(4, requires_grad=True)
    with drawing_from(seeded(0)):
        dropped(states, 1.0).sum().backward()
    assert states.grad is not None
    assert states.grad.equal(torch.zeros(4))


TEXTS = ["", "a", "שלום עולם", "the longest of all the texts in this batch, which fills its row", "two words"]


def test_a_padding_token_inside_a_text_keeps_its_position():
    encoder = tiny_encoder("xlm-roberta")
    batch = encoder.collate([[0, 7, 1, 8, 2], [0, 9, 2]], side="query")
    padded = encoder.backbone(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    packed = PackedBackbone(copy.deepcopy(encoder.backbone))(batch.input_ids, batch.attention_mask).last_hidden_state
    real = batch.attention_mask.bool()
    torch.testing.assert_close(packed[real], padded[real], rtol=1e-4, atol=1e-5)


def test_a_bias_inside_the_attention_is_not_packed():
    assert {kind for kind in KINDS if not is_packable(tiny_backbone(kind))} == {"t5"}
