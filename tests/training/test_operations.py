"""Operations counted from a few tokens, against torch's own counter over whole batches, and by hand."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from adiabat.models.adapters import add_lora, train_biases_only
from adiabat.models.bulk import TokenTable
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.models.towers import trainable_copy
from adiabat.scaling_laws.flops import ByLength, TowerOperations, training_flops
from adiabat.training.flop_count import operations_of, passed_parameters
from adiabat.training.gradient_cache import Chunking, training_copies
from adiabat.training.passes import Group, Passes
from tests.tiny import KINDS, Kind, tiny_encoder

D, INNER, OUT = 16, 32, 5
DENSE = 4 * D * D + 2 * D * INNER
"""Weights of the dense layers of one block."""
ONCE = 2 * D * OUT + 2 * D * D
"""The projection, and the pooler, which BERT computes whether or not anyone reads it."""
POOLING = 2 * D
"""The mean over tokens is a product too."""

TEXTS = ["a", "two words", "three short words", "the longest of all the texts in this batch", "", "again two"]

WAYS: dict[str, Callable[[Encoder], object]] = {
    "full": lambda encoder: None,
    "frozen tables": lambda encoder: freeze(encoder.backbone, ["embeddings"]),
    "frozen block": lambda encoder: freeze(encoder.backbone, ["embeddings", "blocks[0]"]),
    "frozen second block": lambda encoder: freeze(encoder.backbone, ["blocks[1]"]),
    "bias": lambda encoder: train_biases_only(encoder.backbone),
    "lora": lambda encoder: add_lora(encoder.backbone, rank=4),
}


def tower(kind: Kind = "bert", prepare: Callable[[Encoder], object] = WAYS["full"]) -> Encoder:
    encoder = trainable_copy(tiny_encoder(kind, width=D, layers=2, projection=OUT))
    prepare(encoder)
    return encoder


def test_everything_trained_worked_by_hand() -> None:
    found = operations_of(tower())
    attention = 2 * 2 * 2 * D
    # Two blocks; of each a multiplication and an addition for each weight and token, and for each pair of tokens two products of width D.
    assert found.forward == ByLength(ONCE, 2 * 2 * DENSE + POOLING, attention)
    assert found.again == found.forward
    assert found.blocks == ByLength(0, 2 * 2 * DENSE, attention)
    assert found.backward == ByLength(2 * 2 * D * OUT, 2 * 2 * 2 * DENSE + POOLING, 2 * attention)


def test_a_frozen_block_is_passed_forwards_alone() -> None:
    found = operations_of(tower(prepare=WAYS["frozen block"]))
    attention = 2 * 2 * D
    assert found.forward == ByLength(ONCE, 2 * 2 * DENSE + POOLING, 2 * attention)
    assert found.again == ByLength(ONCE, 2 * DENSE + POOLING, attention)
    assert found.blocks == ByLength(0, 2 * DENSE, attention)
    # Nobody asks for the gradient of what comes into the three layers that read the frozen block.
    assert found.backward == ByLength(2 * 2 * D * OUT, 2 * (2 * DENSE - 3 * D * D) + POOLING, 2 * attention)


def test_a_tower_that_is_not_trained_has_no_gradient_to_pay_for() -> None:
    found = operations_of(tower(prepare=lambda encoder: encoder.requires_grad_(False)))
    assert found.backward == ByLength(0, 0, 0)
    lengths = np.array([3, 5])
    assert found.of(lengths, trained=False, cached=True, checkpointed=True) == found.forward.of(lengths)


def test_lengths_are_summed_text_by_text() -> None:
    assert ByLength(1, 10, 100).of(np.array([2, 3])) == 2 + 10 * 5 + 100 * 13
    assert ByLength(1, 10, 100).of(np.array([], dtype=np.int64)) == 0


def test_caching_and_checkpointing_each_pay_for_one_pass_more() -> None:
    unit = TowerOperations(*(ByLength(number, 0, 0) for number in (1, 10, 100, 1000)))
    one = np.array([5])
    costs = [unit.of(one, trained=True, cached=cached, checkpointed=check) for cached in (False, True) for check in (False, True)]
    assert costs == [1001, 1101, 1011, 1111]


# T5 has no biases, and no setting for any.
PAIRS = [(kind, way) for kind in KINDS for way in WAYS if (kind, way) != ("t5", "bias")]


@pytest.mark.parametrize(
    ("kind", "way", "cached", "checkpointed"),
    # Each way of every family with all that costs more, and one family without, and with one of them.
    [*((*pair, True, True) for pair in PAIRS), *(("bert", way, *both) for way in WAYS for both in ((False, False), (True, False)))],
)
def test_a_whole_step_costs_what_torch_counts(kind: Kind, way: str, cached: bool, checkpointed: bool) -> None:
    encoder = tower(kind, WAYS[way])
    chunking = Chunking(cached=cached, checkpointed=checkpointed)
    (copies,) = training_copies([encoder], 1, chunking)
    passes = Passes(encoder, precision="fp32", copies=[copies], chunking=chunking)
    table = TokenTable.of(encoder, TEXTS, side="query")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        torch.autograd.backward(passes.embed(table, np.arange(len(TEXTS))).sum())
    lengths = np.asarray(table.lengths)
    packed = kind != "t5"
    computed = lengths if packed else np.full(len(lengths), lengths.max())
    told = operations_of(encoder).of(computed, trained=True, cached=cached, checkpointed=checkpointed)
    assert told == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert passes.operations([Group(table, np.arange(len(TEXTS)))]) == told


def test_padding_to_a_length_is_counted() -> None:
    encoder = tower()
    chunking = Chunking(64, buckets=(16, 32))
    passes = Passes(encoder, precision="fp32", copies=training_copies([encoder], 1, chunking), chunking=chunking)
    table = TokenTable.of(encoder, TEXTS, side="query")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        torch.autograd.backward(passes.embed(table, np.arange(len(TEXTS))).sum())
    told = passes.operations([Group(table, np.arange(len(TEXTS)))])
    assert told == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert told > 1.5 * operations_of(encoder).of(np.asarray(table.lengths), trained=True, cached=False, checkpointed=False)


@pytest.mark.parametrize("way", WAYS)
def test_the_formula_of_parameters_is_near_for_short_texts_of_a_wide_tower(way: str) -> None:
    encoder = trainable_copy(tiny_encoder(width=64, layers=2))
    WAYS[way](encoder)
    lengths = np.full(8, 4)
    counted = operations_of(encoder).of(lengths, trained=True, cached=False, checkpointed=False)
    # Norms, biases and the first layers' inputs are told apart by one of the two alone.
    assert training_flops(passed_parameters(encoder), float(lengths.sum())) == pytest.approx(counted, rel=0.1)


def test_counting_leaves_mode_gradients_hooks_and_random_numbers_alone() -> None:
    encoder = tower().train()
    state = torch.get_rng_state()
    operations_of(encoder)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.backbone.training
    assert all(weights.grad is None for weights in encoder.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
