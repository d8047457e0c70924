"""Towers in one stack against the same towers by themselves."""

import gc
import math
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from adiabat.errors import ModelError
from adiabat.model.building import trainable_copy
from adiabat.model.encoder import Encoder, EncoderSettings
from adiabat.model.freezing import freeze
from adiabat.model.precision import Precision
from adiabat.model.static import StaticBackbone
from adiabat.model.tokens import TokenTable
from adiabat.train import stacked
from adiabat.train.passes import Passes
from adiabat.train.stacked import StackedTowers
from tests.tiny import KINDS, Kind, tiny_encoder, tiny_tokenizer

TEXTS = ["a", "two words", "three short words", "the longest of all the texts in this batch", "again two"]
PICKED = np.array([3, 0, 2, 3])


def towers_of(
    kind: Kind = "bert", *, count: int = 3, frozen: Sequence[str] = ("embeddings",), base: Encoder | None = None
) -> list[Encoder]:
    """Copies of one tower whose trained weights have gone apart a little."""
    base = base or tiny_encoder(kind)
    towers = [trainable_copy(base) for _ in range(count)]
    generator = torch.Generator().manual_seed(0)
    for tower in towers:
        if frozen:
            freeze(tower.backbone, frozen)
        for weights in trained(tower).values():
            weights.data += 0.02 * torch.randn(weights.shape, generator=generator)
    return towers


def trained(tower: Encoder) -> dict[str, nn.Parameter]:
    return {name: weights for name, weights in tower.named_parameters() if weights.requires_grad}


def table_of(tower: Encoder) -> TokenTable:
    return TokenTable.of(tower, TEXTS, side="query")


def gradients_of(tower: Encoder) -> dict[str, Tensor | None]:
    found = {name: None if weights.grad is None else weights.grad.clone() for name, weights in tower.named_parameters()}
    tower.zero_grad()
    return found


def targets_of(towers: Sequence[Encoder]) -> Tensor:
    return torch.randn(len(towers), len(PICKED), towers[0].width, generator=torch.Generator().manual_seed(1))


def apart(towers: Sequence[Encoder], *, precision: Precision = "fp32") -> list[tuple[Tensor, dict[str, Tensor | None]]]:
    """Embeddings and gradients of each tower by itself, one after another."""
    found = []
    for tower, target in zip(towers, targets_of(towers), strict=True):
        embeddings = Passes(tower, precision=precision).embed(table_of(tower), PICKED)
        (embeddings * target).sum().backward()
        found.append((embeddings.detach(), gradients_of(tower)))
    return found


def together(towers: Sequence[Encoder], *, precision: Precision = "fp32") -> list[tuple[Tensor, dict[str, Tensor | None]]]:
    """The same from the stack."""
    lanes = range(len(towers))
    stack = StackedTowers(towers, precision=precision)
    embeddings = stack.embed(table_of(towers[0]), PICKED, lanes)
    (embeddings * targets_of(towers)).sum().backward()
    stack.hand_out_gradients(lanes)
    return [(own.detach(), gradients_of(tower)) for own, tower in zip(embeddings, towers, strict=True)]


def assert_alike(
    found: list[tuple[Tensor, dict[str, Tensor | None]]],
    expected: list[tuple[Tensor, dict[str, Tensor | None]]],
    *,
    within: float = 1e-6,
) -> None:
    """Gradients equal as a whole, and each number up to five times as much of the largest.

    (A key's bias has a gradient of 0, of which only rounding is to be seen.)
    """
    for (embeddings, gradients), (wanted, wanted_gradients) in zip(found, expected, strict=True):
        torch.testing.assert_close(embeddings, wanted, rtol=0, atol=within)
        assert {name for name, own in gradients.items() if own is None} == {name for name, own in wanted_gradients.items() if own is None}
        there = [(gradients[name], gradient) for name, gradient in wanted_gradients.items() if gradient is not None]
        one, other = (torch.cat([pair[side].flatten() for pair in there]) for side in (0, 1))
        assert (one - other).norm() <= within * other.norm()
        assert (one - other).abs().max() <= 5 * within * other.abs().max()


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are padded, as on a GPU."""
    monkeypatch.setattr("adiabat.train.copies.is_packable", lambda backbone: False)


# The first keeps all, the third leaves blocks whose attention is the same for all towers, the last leaves keys and values that are.
FROZEN: list[list[str]] = [
    [],
    ["embeddings"],
    ["embeddings", "blocks[0]"],
    ["embeddings", "blocks[0]", r"\.(key|value|k_proj|v_proj|k|v|query_key_value)\."],
]


@pytest.mark.parametrize("frozen", FROZEN, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_and_gradients_are_those_of_separate_passes(kind: Kind, frozen: list[str]) -> None:
    towers = towers_of(kind, frozen=frozen)
    assert_alike(together(towers), apart(towers))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("unpacked")
def test_padded_batches_as_a_gpu_takes_them_are_those_of_separate_passes_too(kind: Kind) -> None:
    towers = towers_of(kind)
    assert_alike(together(towers), apart(towers))


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_bfloat16_passes_are_those_of_separate_ones_up_to_its_rounding(kind: Kind) -> None:
    towers = towers_of(kind)
    exact, rough = apart(towers), together(towers, precision="bf16")
    assert_alike(rough, apart(towers, precision="bf16"), within=0.05)
    assert any(not own.equal(other) for (own, _), (other, _) in zip(rough, exact, strict=True))


def test_a_gradient_worked_by_hand() -> None:
    # A text is the mean of its tokens' rows: "ab" is two tokens (and two around it), so each of its rows gets a quarter of the gradient.
    tokenizer = tiny_tokenizer()
    base = Encoder(StaticBackbone(torch.zeros(len(tokenizer), 2)), tokenizer, EncoderSettings(normalize=False)).eval()
    towers = towers_of(base=base, frozen=[])
    stack = StackedTowers(towers)
    table = TokenTable.of(towers[0], ["ab"], side="query")
    (stack.embed(table, np.array([0]), [0, 1, 2]) * torch.tensor([1.0, -2.0, 8.0]).view(3, 1, 1)).sum().backward()
    stack.hand_out_gradients([0, 1, 2])
    rows = table.lists(np.array([0]))[0]
    for tower, gradient in zip(towers, [0.25, -0.5, 2.0], strict=True):
        [found] = [weights.grad for weights in tower.parameters()]
        assert found is not None
        expected = torch.zeros_like(found)
        expected[rows] = gradient
        assert found.equal(expected)


def test_the_order_of_the_lanes_is_that_of_the_embeddings() -> None:
    towers = towers_of()
    stack = StackedTowers(towers)
    table = table_of(towers[0])
    forward, backward = (stack.embed(table, PICKED, lanes).detach() for lanes in ([0, 1, 2], [2, 1, 0]))
    torch.testing.assert_close(backward.flip(0), forward)
    assert not forward[0].allclose(forward[2])


def test_one_tower_is_a_stack_too() -> None:
    towers = towers_of(count=1)
    assert_alike(together(towers), apart(towers))


def test_a_tower_of_nan_leaves_the_others_as_they_are_to_the_bit() -> None:
    plain = together(towers_of())
    towers = towers_of()
    for weights in trained(towers[1]).values():
        weights.data.fill_(math.nan)
    found = together(towers)
    assert found[1][0].isnan().all()
    for lane in (0, 2):
        assert_alike([found[lane]], [plain[lane]], within=0.0)


# --- What becomes of the towers ---


def test_trained_weights_are_views_of_one_stack_and_frozen_ones_one_memory() -> None:
    towers = towers_of()
    before = [{name: weights.detach().clone() for name, weights in tower.named_parameters()} for tower in towers]
    parameters = [dict(tower.named_parameters()) for tower in towers]
    StackedTowers(towers)
    for tower, own, values in zip(towers, parameters, before, strict=True):
        assert all(weights is own[name] and weights.equal(values[name]) for name, weights in tower.named_parameters())
    for name, weights in towers[0].named_parameters():
        others = [dict(tower.named_parameters())[name] for tower in towers[1:]]
        assert all(other.untyped_storage().data_ptr() == weights.untyped_storage().data_ptr() for other in others)
        whole = weights.untyped_storage().nbytes() // weights.element_size()
        assert whole == weights.numel() * (3 if weights.requires_grad else 1)


def test_a_tower_that_leaves_takes_its_weights_along_and_the_former_stack_is_let_go() -> None:
    towers = towers_of()
    before = [{name: weights.detach().clone() for name, weights in trained(tower).items()} for tower in towers]
    stack = StackedTowers(towers)
    former = [weakref.ref(one) for one in stack._stacks.values()]
    stack.stack([0, 2])
    gc.collect()
    assert all(one() is None for one in former)
    for tower, values, count in zip(towers, before, [2, 1, 2], strict=True):
        for name, weights in trained(tower).items():
            assert weights.equal(values[name])
            assert weights.untyped_storage().nbytes() == count * weights.numel() * weights.element_size()
    stack.stack([])
    assert all(one.untyped_storage().nbytes() == one.numel() * one.element_size() for tower in towers for one in tower.parameters())
    # And back again, with what it has learned elsewhere.
    next(iter(trained(towers[1]).values())).data.add_(1.0)
    assert_alike(together(towers), apart(towers))


def test_weights_that_move_in_their_tower_move_in_the_stack() -> None:
    towers = towers_of()
    stack = StackedTowers(towers)
    table = table_of(towers[0])
    first = stack.embed(table, PICKED, [0, 1, 2]).detach()
    with torch.no_grad():
        for weights in trained(towers[1]).values():
            weights.mul_(1.5)
    second = stack.embed(table, PICKED, [0, 1, 2]).detach()
    assert second[0].equal(first[0])
    torch.testing.assert_close(second[1], Passes(towers[1], precision="fp32").embed(table, PICKED).detach(), rtol=0, atol=1e-6)
    assert not second[1].allclose(first[1])


def test_gradients_add_to_what_is_there_and_only_lanes_that_have_one_get_one() -> None:
    towers = towers_of()
    stack = StackedTowers(towers)
    for _ in range(2):
        stack.embed(table_of(towers[0]), PICKED, [0, 1, 2])[..., 0].sum().backward()
        stack.hand_out_gradients([2])
    twice, [none] = gradients_of(towers[2]), {one is None for one in gradients_of(towers[0]).values()}
    stack.embed(table_of(towers[0]), PICKED, [0, 1, 2])[..., 0].sum().backward()
    stack.hand_out_gradients([2])
    assert none
    for name, gradient in gradients_of(towers[2]).items():
        if gradient is not None:
            torch.testing.assert_close(twice[name], 2 * gradient)


def test_the_attention_of_the_towers_stays_what_it_was() -> None:
    towers = towers_of()
    StackedTowers(towers)
    assert [tower.backbone.config._attn_implementation for tower in towers] == ["sdpa"] * 3


def test_attention_that_is_not_mapped_cannot_be_differentiated_on_the_quiet() -> None:
    states = torch.ones(1, 1, 2, 2, requires_grad=True)
    attended, _ = stacked._attention(sdpa_attention_forward, 0, nn.Module(), states, states, states, None)
    with pytest.raises(RuntimeError, match="attention must be mapped over towers to be differentiated"):
        attended.sum().backward()


# --- What cannot be stacked ---


def changed(change: Callable[[Encoder], object]) -> list[Encoder]:
    towers = towers_of(count=2)
    change(towers[1])
    return towers


def test_a_frozen_weight_that_differs_is_named() -> None:
    towers = changed(lambda tower: tower.backbone.get_parameter("embeddings.LayerNorm.bias").data.add_(1e-6))
    with pytest.raises(ValueError, match=r"must have the same frozen weights, got others in backbone.embeddings.LayerNorm.bias"):
        StackedTowers(towers)


def test_a_buffer_that_differs_is_named() -> None:
    towers = changed(lambda tower: tower.backbone.get_buffer("embeddings.position_ids").add_(1))
    with pytest.raises(ValueError, match=r"the same frozen weights, got others in backbone.embeddings.position_ids"):
        StackedTowers(towers)


def test_a_weight_that_is_trained_in_one_tower_alone_is_named() -> None:
    towers = changed(lambda tower: tower.backbone.get_parameter("encoder.layer.0.output.dense.bias").requires_grad_(False))
    with pytest.raises(ValueError, match=r"must be alike in all but values, got others in backbone.encoder.layer.0.output.dense.bias"):
        StackedTowers(towers)


def test_towers_of_different_settings_are_refused() -> None:
    towers = towers_of(count=2)
    with pytest.raises(ValueError, match="got others in their settings"):
        StackedTowers([towers[0], towers[1].with_settings(EncoderSettings(pooling="cls")).eval()])


def test_dropout_must_be_off() -> None:
    towers = changed(lambda tower: tower.train())
    with pytest.raises(ModelError, match=r"^tune.dropout must be false where several runs are stepped together, got true; set it to false"):
        StackedTowers(towers)


def test_a_backbone_that_looks_at_numbers_is_refused(monkeypatch: pytest.MonkeyPatch, unpacked: None) -> None:
    forward = BertModel.forward

    def looking(self: BertModel, *args: object, **options: object) -> object:
        found = forward(self, *args, **options)
        return found if found.last_hidden_state.sum().item() else None

    towers = towers_of()
    monkeypatch.setattr(BertModel, "forward", looking)
    with pytest.raises(ModelError, match=r"^BertModel must be one whose passes torch can map .*item.*; run them one after another$"):
        StackedTowers(towers)


def test_a_backbone_that_goes_wrong_in_a_stack_is_refused(monkeypatch: pytest.MonkeyPatch, unpacked: None) -> None:
    towers = towers_of()
    folded = stacked._Folded.vmap
    monkeypatch.setattr(stacked._Folded, "vmap", lambda info, dims, *given: (-folded(info, dims, *given)[0], folded(info, dims, *given)[1]))
    with pytest.raises(ModelError, match=r"^BertModel must give the same vectors in a stack of weights as by itself"):
        StackedTowers(towers)
