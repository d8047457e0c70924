"""What a tower's passes cost: parameters by hand for every way to train one, operations by hand and against
torch's own counter.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AlbertConfig, AlbertModel

from adiabat.models.adapters import add_lora, train_biases_only
from adiabat.models.embedding_head import EncoderSettings
from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.models.towers import trainable_copy
from adiabat.scaling_laws.flops import ByLength, PassedParameters, TowerOperations, training_flops
from adiabat.training.flop_count import operations_of, passed_parameters
from adiabat.training.gradient_cache import Chunking, training_copies
from adiabat.training.passes import Group, Passes
from tests.architectures import flop_counter
from tests.tiny import KINDS, VOCABULARY, Kind, tiny_encoder, tiny_tokenizer
from tests.training.worlds import TEXTS, table_of

Prepare = Callable[[Encoder], object]

D, INNER, OUT = 16, 32, 5
NORM = 2 * D
"""Gain and bias."""
ATTENTION = 4 * (D * D + D) + NORM
BLOCK = ATTENTION + (D * INNER + INNER) + (INNER * D + D) + NORM
PROJECTION = D * OUT + OUT
WHOLE = NORM + 2 * BLOCK + PROJECTION
"""The norm of the embeddings, two blocks and the projection: no table."""
BIASES = D + 2 * (4 * D + D + INNER + D + D)
RANK_ONE = 4 * (D + D) + (D + INNER) + (INNER + D)
"""Adapters of rank 1 at the layers of one block."""


def frozen(*patterns: str) -> Prepare:
    return lambda encoder: freeze(encoder.backbone, patterns)


def adapted(rank: int, *patterns: str) -> Prepare:
    def prepare(encoder: Encoder) -> None:
        add_lora(encoder.backbone, rank=rank)
        if patterns:
            freeze(encoder.backbone, patterns)

    return prepare


def biased(encoder: Encoder) -> None:
    train_biases_only(encoder.backbone)


def nothing(encoder: Encoder) -> None:
    """Leave all to be trained."""


def tower(kind: Kind = "bert", prepare: Prepare = nothing) -> Encoder:
    encoder = trainable_copy(tiny_encoder(kind, width=D, layers=2, projection=OUT))
    prepare(encoder)
    return encoder


# --- Parameters ---


@pytest.mark.parametrize(
    ("prepare", "passed"),
    [
        (nothing, (WHOLE, WHOLE, WHOLE)),
        # Frozen tables change nothing but the norm behind them.
        (frozen("embeddings.base"), (WHOLE, WHOLE, WHOLE)),
        (frozen("embeddings"), (WHOLE, WHOLE - NORM, WHOLE - NORM)),
        # The gradient stops behind frozen leading blocks, and passes those behind something trained.
        (frozen("embeddings", "blocks[0]"), (WHOLE, BLOCK + PROJECTION, BLOCK + PROJECTION)),
        (lambda encoder: encoder.backbone.requires_grad_(False), (WHOLE, PROJECTION, PROJECTION)),
        (frozen("embeddings", "blocks[1]"), (WHOLE, WHOLE - NORM, WHOLE - NORM - BLOCK)),
        (frozen("blocks"), (WHOLE, WHOLE, NORM + PROJECTION)),
        (frozen("embeddings", "blocks[0].attention"), (WHOLE, WHOLE - NORM, WHOLE - NORM - ATTENTION)),
        (biased, (WHOLE, WHOLE, BIASES + PROJECTION)),
        # No gradient comes to the norm of the embeddings, in front of the first adapter.
        *(
            (
                adapted(r),
                (WHOLE + 2 * r * RANK_ONE, WHOLE + 2 * r * RANK_ONE - NORM, 2 * r * RANK_ONE + PROJECTION),
            )
            for r in (1, 4)
        ),
        (
            adapted(2, "blocks[0]"),
            (WHOLE + 4 * RANK_ONE, BLOCK + 2 * RANK_ONE + PROJECTION, 2 * RANK_ONE + PROJECTION),
        ),
        (lambda encoder: encoder.requires_grad_(False), (WHOLE, 0, 0)),
    ],
)
def test_parameters_passed_and_updated_by_hand(prepare: Prepare, passed: tuple[int, int, int]) -> None:
    assert passed_parameters(tower(prepare=prepare)) == PassedParameters(*passed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_counts_all_but_its_tables(kind: Kind) -> None:
    encoder = tower(kind)
    tables = {id(part.weight) for part in encoder.modules() if isinstance(part, torch.nn.Embedding)}
    whole = sum(
        weights.numel() for weights in encoder.used_parameters().values() if id(weights) not in tables
    )
    assert passed_parameters(encoder) == PassedParameters(whole, whole, whole)
    freeze(encoder.backbone, ["embeddings", "blocks[0]"])
    found = passed_parameters(encoder)
    assert found.forward == whole
    assert 0 < found.backward == found.updated < whole


def test_weights_of_repeated_layers_count_as_often_as_a_token_passes_them() -> None:
    sizes = {
        "vocab_size": VOCABULARY,
        "embedding_size": 8,
        "hidden_size": D,
        "intermediate_size": INNER,
        "max_position_embeddings": 600,
    }
    backbone = AlbertModel(AlbertConfig(**sizes, num_hidden_layers=6, num_attention_heads=2))
    encoder = trainable_copy(Encoder(backbone, tiny_tokenizer(), EncoderSettings()))
    # The norm of the embeddings and the layer that makes them as wide as the rest are passed once.
    whole = 2 * 8 + (8 * D + D) + 6 * BLOCK
    assert passed_parameters(encoder) == PassedParameters(whole, whole, whole)
    assert passed_parameters(encoder.requires_grad_(False)) == PassedParameters(whole, 0, 0)


def test_a_frozen_norm_behind_the_blocks_is_passed() -> None:
    found = passed_parameters(tower("llama", frozen("embeddings", "blocks[0]", r"^norm\.")))
    assert found.backward - found.updated == D


# --- Operations ---

DENSE = 4 * D * D + 2 * D * INNER
"""Weights of the dense layers of one block."""
ONCE = 2 * D * OUT + 2 * D * D
"""The projection, and the pooler, which BERT computes whether or not anyone reads it."""
POOLING = 2 * D
"""The mean over tokens is a product too."""

WAYS: dict[str, Prepare] = {
    "full": nothing,
    "frozen tables": frozen("embeddings"),
    "frozen block": frozen("embeddings", "blocks[0]"),
    "frozen second block": frozen("blocks[1]"),
    "bias": biased,
    "lora": adapted(4),
}


def test_everything_trained_worked_by_hand() -> None:
    found = operations_of(tower())
    attention = 2 * 2 * 2 * D
    # Two blocks; of each a multiplication and an addition for each weight and token, and for each pair of
    # tokens two products of width D.
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
    costs = [
        unit.of(one, trained=True, cached=cached, checkpointed=check)
        for cached in (False, True)
        for check in (False, True)
    ]
    assert costs == [1001, 1101, 1011, 1111]


# T5 has no biases, and no setting for any.
PAIRS = [(kind, way) for kind in KINDS for way in WAYS if (kind, way) != ("t5", "bias")]


@pytest.mark.parametrize(
    ("kind", "way", "cached", "checkpointed"),
    # Each way of every family with all that costs more, and one family without, and with one of them.
    [
        *((*pair, True, True) for pair in PAIRS),
        *(("bert", way, *both) for way in WAYS for both in ((False, False), (True, False))),
    ],
)
def test_a_whole_step_costs_what_torch_counts(kind: Kind, way: str, cached: bool, checkpointed: bool) -> None:
    encoder = tower(kind, WAYS[way])
    told, lengths = counted(encoder, Chunking(cached=cached, checkpointed=checkpointed))
    computed = np.full(len(lengths), lengths.max()) if kind == "t5" else lengths
    assert told == operations_of(encoder).of(computed, trained=True, cached=cached, checkpointed=checkpointed)


def counted(encoder: Encoder, chunking: Chunking) -> tuple[float, np.ndarray]:
    """Operations of a step, which are what torch counts, and the lengths of its texts."""
    passes = Passes(
        encoder, precision="fp32", copies=training_copies([encoder], 1, chunking, "fp32"), chunking=chunking
    )
    table = table_of(encoder)
    with sdpa_kernel(SDPBackend.MATH), flop_counter() as counter:
        torch.autograd.backward(passes.embed(table, np.arange(len(TEXTS))).sum())
    told = passes.operations([Group(table, np.arange(len(TEXTS)))])
    assert told == pytest.approx(counter.get_total_flops(), rel=0.02)
    return told, np.asarray(table.lengths)


def test_padding_to_a_length_is_counted() -> None:
    encoder = tower()
    told, lengths = counted(encoder, Chunking(64, buckets=(16, 32)))
    assert told > 1.5 * operations_of(encoder).of(lengths, trained=True, cached=False, checkpointed=False)


@pytest.mark.parametrize("way", WAYS)
def test_the_formula_of_parameters_is_near_for_short_texts_of_a_wide_tower(way: str) -> None:
    encoder = trainable_copy(tiny_encoder(width=64, layers=2))
    WAYS[way](encoder)
    lengths = np.full(8, 4)
    counted = operations_of(encoder).of(lengths, trained=True, cached=False, checkpointed=False)
    # Norms, biases and the first layers' inputs are told apart by one of the two alone.
    assert training_flops(passed_parameters(encoder), float(lengths.sum())) == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("count", [passed_parameters, operations_of])
def test_counting_leaves_mode_gradients_and_random_numbers_alone(count: Callable[[Encoder], object]) -> None:
    encoder = tower().train()
    state = torch.get_rng_state()
    count(encoder)
    assert torch.equal(torch.get_rng_state(), state)
    assert encoder.backbone.training
    assert all(weights.grad is None for weights in encoder.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())
