"""How a batch is cut and shared out; chunks of few shapes, padded and compiled, against chunks as long as
their texts.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.models.encoder import Encoder
from adiabat.models.freezing import freeze
from adiabat.training.gradient_cache import Chunking, RoundedWeights, evenly, pieces_of, shared_out
from adiabat.training.passes import Passes, side_passes
from tests.tiny import KINDS, Kind, tiny_encoder
from tests.training.worlds import Gradients, assert_alike, passed, table_of

SIX = np.array([9, 3, 8, 2, 4, 1])


def test_the_cut_makes_the_longer_half_as_short_as_can_be():
    lengths = SIX[:5]
    cut = shared_out(lengths, 2, packed=False)
    assert sorted(np.concatenate(cut).tolist()) == [0, 1, 2, 3, 4]
    cost = max(len(part) * lengths[part].max() for part in cut)
    order = np.sort(lengths)
    assert cost == min(max(k * order[k - 1], (5 - k) * order[-1]) for k in range(1, 5)) == 18


def test_packed_halves_have_nearly_the_same_number_of_tokens():
    parts = shared_out(SIX, 2, packed=True)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3, 4, 5]
    # By hand: 9 | 8, then 4 joins 8, 3 joins 9, 2 joins the first (12 each), 1 the other.
    assert sorted(int(SIX[part].sum()) for part in parts) == [13, 14]
    assert [len(part) for part in shared_out(np.array([500, 3]), 2, packed=True)] == [1, 1]


def test_every_piece_goes_to_the_thread_that_has_least():
    assert [part.tolist() for part in evenly(np.array([5, 9, 4, 3, 1]), 2)] == [[1, 3], [0, 2, 4]]
    assert [part.tolist() for part in evenly(np.array([5]), 2)] == [[0]]


# Rows of [5], [4, 2], [2] within 8 tokens; padded, the second costs 2 x 4. With buckets, 9 and 20 go beyond
# them, to the next multiple of 128, which is cut at the limit: 16 // 12 = 1 row.
@pytest.mark.parametrize(
    ("lengths", "chunking", "packed", "expected"),
    [
        ([], Chunking(8), True, []),
        ([2, 5, 2, 4], Chunking(8), True, [([1], None, 5), ([3, 0], None, 6), ([2], None, 2)]),
        ([2, 5, 2, 4], Chunking(8), False, [([1], None, 5), ([3, 0], None, 8), ([2], None, 2)]),
        (
            [3, 20, 4, 5, 9],
            Chunking(16, buckets=(4, 8)),
            False,
            [([1], (1, 12), 12), ([4], (1, 12), 12), ([3], (2, 8), 16), ([0, 2], (4, 4), 16)],
        ),
    ],
)
def test_pieces_by_hand(lengths: list[int], chunking: Chunking, packed: bool, expected: list[Any]):
    pieces = pieces_of(np.array(lengths, dtype=np.int64), chunking, threads=2, packed=packed, longest=12)
    assert [(piece.positions.tolist(), piece.shape, piece.tokens) for piece in pieces] == expected


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("tokens", [None, 1000])
def test_a_batch_that_fits_one_chunk_still_keeps_both_threads_busy(packed: bool, tokens: int | None):
    halves = pieces_of(SIX, Chunking(tokens), threads=2, packed=packed, longest=128)
    assert [piece.positions.tolist() for piece in halves] == [
        part.tolist() for part in shared_out(SIX, 2, packed=packed)
    ]
    assert len(pieces_of(SIX, Chunking(tokens), threads=1, packed=packed, longest=128)) == 1
    assert len(pieces_of(SIX[:1], Chunking(tokens), threads=2, packed=packed, longest=128)) == 1


# --- Buckets ---

LENGTHS = (1, 2, 5, 9, 14, 15, 16, 17, 30, 40, 41, 60, 90, 110, 200)
TEXTS = ["x" * length for length in LENGTHS]
BUCKETS = (16, 24, 64)
PICKED = np.array([14, 0, 7, 3, 12, 5, 9])


def embedded(encoder: Encoder, passes: Passes, picked: np.ndarray) -> tuple[Tensor, Gradients]:
    return passed(encoder, passes, picked, TEXTS)


def check_alike(encoder: Encoder, passes: Passes, picked: np.ndarray) -> None:
    """Embeddings and gradients are those of one pass."""
    embeddings, found = embedded(encoder, passes, picked)
    wanted, gradients = embedded(encoder, Passes(encoder, precision="fp32"), picked)
    torch.testing.assert_close(embeddings, wanted, rtol=1e-4, atol=1e-5)
    assert_alike(found, gradients, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_in_buckets_give_the_embeddings_and_gradients_of_one_pass(kind: Kind, cached: bool):
    encoder = tiny_encoder(kind).eval()
    with side_passes(encoder, precision="fp32", chunking=Chunking(48, cached, buckets=BUCKETS)) as passes:
        check_alike(encoder, passes, PICKED)


@pytest.mark.parametrize("pooling", ["cls", "last", "max", "weighted_mean"])
def test_rows_that_fill_a_chunk_up_spoil_no_pooling(pooling: str):
    encoder = tiny_encoder().eval()
    encoder = encoder.with_settings(type(encoder.settings)(pooling=pooling, max_tokens=128)).eval()
    with side_passes(encoder, precision="fp32", chunking=Chunking(256, buckets=BUCKETS)) as passes:
        check_alike(encoder, passes, PICKED[:3])


def test_many_random_batches_have_few_shapes():
    encoder = tiny_encoder().eval()
    table = table_of(encoder, TEXTS)
    random = np.random.default_rng(0)
    shapes: set[tuple[int, ...]] = set()
    with side_passes(encoder, precision="fp32", chunking=Chunking(64, buckets=BUCKETS)) as passes:
        for copy in passes._towers[0].copies:
            copy.register_forward_pre_hook(lambda module, given: shapes.add(tuple(given[0].input_ids.shape)))
        for _ in range(20):
            passes.embed(table, random.integers(0, len(TEXTS), random.integers(1, 30)))
    # Beyond 64 tokens comes 128, which is the tower's limit; 64 // 128 makes one row.
    assert shapes == {(4, 16), (2, 24), (1, 64), (1, 128)}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_compiled_blocks_have_one_graph_for_every_shape_and_equal_gradients(kind: Kind, graphs: list[str]):
    encoder = tiny_encoder(kind).eval()
    random = np.random.default_rng(0)
    with side_passes(encoder, precision="fp32", chunking=Chunking(64, compiled=True)) as passes:
        assert passes._threads == 1
        for count in (7, 12, 3, 29):
            check_alike(encoder, passes, random.integers(0, len(TEXTS), count))
        many = len(graphs)
        check_alike(encoder, passes, random.integers(0, len(TEXTS), 18))
    assert 0 < many == len(graphs)


def test_more_graphs_than_the_compiler_would_keep_by_itself_are_all_compiled(graphs: list[str]):
    encoder = tiny_encoder().eval()
    table = table_of(encoder, TEXTS)
    with (
        torch._dynamo.config.patch(recompile_limit=1),
        side_passes(encoder, precision="fp32", chunking=Chunking(compiled=True)) as passes,
    ):
        passes.embed(table, np.arange(4))
        with torch.no_grad():
            passes.embed(table, np.arange(5))
    assert len(graphs) == 2


def test_a_frozen_prefix_of_compiled_blocks_is_computed_once(graphs: list[str]):
    encoder = tiny_encoder(layers=2).eval()
    freeze(encoder.backbone, ["embeddings.*", "encoder.layer.0.*"])
    with side_passes(encoder, precision="fp32", chunking=Chunking(48, cached=True, compiled=True)) as passes:
        check_alike(encoder, passes, PICKED)
    assert graphs


def test_cached_dropout_is_replayed_in_a_compiled_backbone(graphs: list[str]):
    found = []
    encoder = tiny_encoder().train()
    for cached in (False, True):
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(32, cached, compiled=True)) as passes:
            found.append(embedded(encoder, passes, np.array([3, 0, 5, 2])))
    assert graphs
    torch.testing.assert_close(found[1], found[0])


# --- Weights in bfloat16, rounded once a step, against autocast, which rounds them in every chunk ---


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_rounded_once_a_step_give_every_bit_of_autocasts_gradients(
    kind: Kind, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for renewed in (True, False):
        encoder = tiny_encoder(kind, layers=2, projection=9).eval()
        if not renewed:
            monkeypatch.setattr(RoundedWeights, "renew", lambda self: None)
        with side_passes(encoder, precision="bf16", chunking=Chunking(12, cached)) as passes:
            for _ in range(2):
                embeddings, gradients = passed(encoder, passes, np.array([3, 1, 0, 2, 5]))
                with torch.no_grad():
                    for weights in encoder.parameters():
                        weights.add_(0 if weights.grad is None else weights.grad, alpha=-0.01)
        found.append((embeddings, gradients))
    assert found[0][0].equal(found[1][0])
    assert found[0][1].keys() == found[1][1].keys()
    for name, gradient in found[0][1].items():
        assert gradient.equal(found[1][1][name]), name


def test_rounded_weights_stay_in_the_copies() -> None:
    encoder = tiny_encoder().eval()
    with side_passes(encoder, precision="bf16") as passes:
        passed(encoder, passes, np.array([3, 1]))
        assert any("weight" in vars(layer) for copy in passes._towers[0].copies for layer in copy.modules())
    assert not any("weight" in vars(layer) for layer in encoder.modules())
    assert {weights.dtype for weights in encoder.parameters()} == {torch.float32}
