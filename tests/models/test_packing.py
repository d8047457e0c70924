"""Packed batches against padded ones, and dropout whose numbers do not depend on other threads."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from adiabat.core.ragged import Ragged
from adiabat.models import packing
from adiabat.models.compilation import compile_blocks
from adiabat.models.packing import (
    PackedBackbone,
    ThreadDropout,
    attention,
    drawing_from,
    dropped,
    gains_by_packing,
    is_packable,
    pack,
    thread_generator,
    use_thread_dropout,
)
from tests.checking import SHAPES
from tests.tiny import KINDS, Kind, tiny_backbone, tiny_encoder


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
    expected = scaled_dot_product_attention(query, key, value, is_causal=causal, enable_gqa=True)
    found = attention(query, key, value, scaling=8**-0.5, causal=causal, dropout=0.0)
    torch.testing.assert_close(found, expected.transpose(1, 2))


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
            left = weights * kept[0, head, row]
            expected = sum(left[column] * value[0, head, column] for column in range(3))
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
    batch = encoder.collate(Ragged.of([[0, 7, 1, 8, 2], [0, 9, 2]]), side="query")
    padded = encoder.backbone(batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    packed = PackedBackbone(copy.deepcopy(encoder.backbone))(batch)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(packed[real], padded[real], rtol=1e-4, atol=1e-5)


def test_a_bias_inside_the_attention_is_not_packed():
    assert {kind for kind in KINDS if not is_packable(tiny_backbone(kind))} == {"t5"}


@pytest.fixture
def one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the path of a GPU on a CPU, with plain loops in place of its kernel."""
    monkeypatch.setattr(packing, "_takes_one_kernel", lambda states: True)
    packing._segments.register_kernel("cpu")(attended_in_loops)
    packing._segments_gradient.register_kernel("cpu")(differentiated_in_loops)


def attended_in_loops(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    causal: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    parts = []
    for first, end in itertools.pairwise(starts.tolist()):
        assert end - first <= longest
        texts = [states[first:end].transpose(0, 1).unsqueeze(0).float() for states in (query, key, value)]
        parts.append(attention(*texts, scaling=scaling, causal=causal, dropout=0.0)[0])
    return torch.cat(parts).to(query.dtype), torch.zeros(query.shape[1], query.shape[0])


def differentiated_in_loops(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attended: torch.Tensor,
    logarithms: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    causal: bool,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert attended_in_loops(query, key, value, starts, longest, causal, scaling)[0].equal(attended)
    gradients = [torch.zeros_like(states) for states in (query, key, value)]
    for first, end in itertools.pairwise(starts.tolist()):
        for head in range(query.shape[1]):
            asked, offered, told, pulled = (
                states[first:end, head].float() for states in (query, key, value, gradient)
            )
            scores = scaling * asked @ offered.T
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
            weights = scores.softmax(1)
            by_weight = pulled @ told.T
            by_score = weights * (by_weight - (weights * by_weight).sum(1, keepdim=True)) * scaling
            for states, found in zip(
                gradients, (by_score @ offered, by_score.T @ asked, weights.T @ pulled), strict=True
            ):
                states[first:end, head] = found.to(states.dtype)
    return tuple(gradients)  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "gpt-neox", "llama"])
@pytest.mark.usefixtures("one_kernel")
def test_one_kernel_for_all_texts_gives_the_states_and_gradients_of_each_alone(kind: Kind) -> None:
    padded = tiny_encoder(kind)
    packed = copy.deepcopy(padded)
    pack(packed)
    target = torch.randn(len(TEXTS), padded.width, generator=seeded(0))
    for encoder in (padded, packed):
        batch = encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query")
        (encoder(batch) * target).sum().backward()
    trained = [
        (name, weights.grad, twin.grad)
        for (name, weights), twin in zip(padded.named_parameters(), packed.parameters(), strict=True)
    ]
    gradients = [(name, expected, found) for name, expected, found in trained if expected is not None]
    largest = max(float(expected.abs().max()) for _, expected, _ in gradients)
    for name, expected, found in gradients:
        # The kernel computes in bfloat16; a bias of keys has a gradient of exactly 0 without rounding.
        atol = 0.03 * float(expected.abs().max()) + 0.003 * largest
        torch.testing.assert_close(found, expected, rtol=0.05, atol=atol, msg=name)


@pytest.mark.usefixtures("one_kernel")
def test_a_gradient_is_summed_in_a_fixed_order_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[bool] = []
    monkeypatch.setattr(
        torch.ops.aten,
        "_flash_attention_backward",
        lambda *_, **__: noted.append(ordered()) or rows,
        raising=False,
    )
    rows = tuple(torch.ones(3, 2, 8) for _ in range(3))
    packing._segments_gradient._init_fn(*rows, *rows[:2], torch.zeros(6), torch.tensor([0, 3]), 3, False, 1.0)
    assert (noted, ordered()) == ([True], False)


def ordered() -> bool:
    return torch.are_deterministic_algorithms_enabled()


class WithoutWaiting(TorchDispatchMode):
    """Refuses operations of which a GPU would have to tell the host the result."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at an operation before it runs."""
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        if func is torch.ops.aten.index.Tensor:
            assert all(index is None or index.dtype == torch.long for index in args[1]), (
                "choosing by a mask counts it"
            )
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "gpt-neox", "llama"])
@pytest.mark.usefixtures("one_kernel")
def test_a_packed_pass_on_a_gpu_waits_for_nothing(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = tiny_encoder(kind)
    pack(encoder)
    batch = encoder.collate(encoder.tokenize(TEXTS, side="query"), side="query")
    for reads in ("tolist", "item", "numpy", "__bool__", "__int__", "__float__"):
        monkeypatch.setattr(torch.Tensor, reads, lambda *_: pytest.fail("the host asked for a value"))
    monkeypatch.setattr(packing, "_segments", lambda query, *rest: (query.clone(), None))
    with WithoutWaiting():
        embeddings = encoder(batch)
    assert embeddings.shape == (len(TEXTS), encoder.width)


@pytest.mark.parametrize(
    ("device", "precision", "training", "packs"),
    [
        ("cpu", "fp32", True, True),
        ("cuda", "bf16", False, True),
        ("cuda", "fp32", False, False),
        ("cuda", "bf16", True, False),
    ],
)
def test_a_gpu_packs_bfloat16_without_dropout(
    device: str, precision: Any, training: bool, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "has_segment_kernel", lambda device: device.type == "cuda")
    backbone = tiny_backbone("bert").train(training)
    assert gains_by_packing(backbone, torch.device(device), precision) is packs
    assert not gains_by_packing(tiny_backbone("t5"), torch.device(device), precision)


def test_a_head_that_the_kernel_does_not_take_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "has_segment_kernel", lambda device: True)
    backbone = tiny_backbone("bert")
    backbone.config.hidden_size = 36  # Three heads of 12.
    backbone.config.num_attention_heads = 3
    assert not gains_by_packing(backbone, torch.device("cuda"), "bf16")


@pytest.mark.skipif(SHAPES, reason="checks of shapes know no symbolic sizes, which compiled blocks have")
@pytest.mark.parametrize("kind", ["bert", "llama"])
@pytest.mark.usefixtures("one_kernel")
def test_compiled_packed_blocks_have_one_graph(kind: Kind, graphs: list[str]) -> None:
    plain, compiled = tiny_encoder(kind), tiny_encoder(kind)
    pack(plain)
    pack(compiled)
    compile_blocks(compiled.backbone)
    counts = []
    with torch.no_grad():
        for texts in (TEXTS, TEXTS[:2], TEXTS[1:], TEXTS * 3):
            batch = plain.collate(plain.tokenize(texts, side="query"), side="query")
            torch.testing.assert_close(compiled(batch), plain(batch))
            counts.append(len(graphs))
    # Attention is one operation inside the graph of its block.
    assert counts == [1, 1, 1, 1]
