"""Chunks of few shapes, padded and compiled, against chunks as long as their texts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.models.bulk import TokenTable
from adiabat.models.encoder import Encoder
from adiabat.training import gradient_cache as copies_module
from adiabat.training.gradient_cache import Chunking
from adiabat.training.passes import Passes, side_passes
from tests.tiny import KINDS, Kind, tiny_encoder

LENGTHS = (1, 2, 5, 9, 14, 15, 16, 17, 30, 40, 41, 60, 90, 110, 200)
TEXTS = ["x" * length for length in LENGTHS]
BUCKETS = (16, 24, 64)


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Compiles nothing, and notes the graphs that were to be."""
    noted: list[str] = []

    def note(graph: torch.fx.GraphModule, given: list[Any]) -> torch.fx.GraphModule:
        noted.append(graph.code)
        return graph

    monkeypatch.setattr(copies_module, "COMPILER", note)
    torch._dynamo.reset()
    yield noted
    torch._dynamo.reset()


def embedded(encoder: Encoder, passes: Passes, picked: np.ndarray) -> tuple[Tensor, dict[str, Tensor]]:
    table = TokenTable.of(encoder, TEXTS, side="query")
    target = torch.randn(len(picked), encoder.width, generator=torch.Generator().manual_seed(0))
    encoder.zero_grad()
    embeddings = passes.embed(table, picked)
    (embeddings * target).sum().square().backward()
    return embeddings.detach(), {name: weights.grad for name, weights in encoder.named_parameters() if weights.grad is not None}


def check(found: tuple[Tensor, dict[str, Tensor]], wanted: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
    assert found[1].keys() == wanted[1].keys()
    for name, gradient in wanted[1].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-3, atol=1e-5 * float(1 + gradient.abs().max()))


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_in_buckets_give_the_embeddings_and_gradients_of_one_pass(kind: Kind, cached: bool):
    encoder = tiny_encoder(kind).eval()
    picked = np.array([14, 0, 7, 3, 12, 5, 9])
    with side_passes(encoder, precision="fp32", chunking=Chunking(48, cached, buckets=BUCKETS)) as passes:
        found = embedded(encoder, passes, picked)
    check(found, embedded(encoder, Passes(encoder, precision="fp32"), picked))


@pytest.mark.parametrize("pooling", ["cls", "last", "max", "weighted_mean"])
def test_rows_that_fill_a_chunk_up_spoil_no_pooling(pooling: str):
    encoder = tiny_encoder().eval()
    encoder = encoder.with_settings(type(encoder.settings)(pooling=pooling, max_tokens=128)).eval()
    picked = np.array([14, 0, 7])
    with side_passes(encoder, precision="fp32", chunking=Chunking(256, buckets=BUCKETS)) as passes:
        found = embedded(encoder, passes, picked)
    check(found, embedded(encoder, Passes(encoder, precision="fp32"), picked))


def test_many_random_batches_have_few_shapes():
    encoder = tiny_encoder(layers=1).eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    random = np.random.default_rng(0)
    shapes: set[tuple[int, ...]] = set()
    with side_passes(encoder, precision="fp32", chunking=Chunking(64, buckets=BUCKETS)) as passes:
        for (copy,) in passes._copies:
            copy.register_forward_pre_hook(lambda module, given: shapes.add(tuple(given[0].input_ids.shape)))
        for _ in range(40):
            passes.embed(table, random.integers(0, len(TEXTS), random.integers(1, 30)))
    # Beyond 64 tokens comes 128, which is the tower's limit; 64 // 128 makes one row.
    assert shapes == {(4, 16), (2, 24), (1, 64), (1, 128)}


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_a_compiled_backbone_has_one_graph_for_each_bucket_and_the_same_gradients(kind: Kind, graphs: list[str]):
    encoder = tiny_encoder(kind, layers=1).eval()
    random = np.random.default_rng(0)
    with side_passes(encoder, precision="fp32", chunking=Chunking(64, buckets=BUCKETS, compiled=True)) as passes:
        assert len(passes._copies) == 1
        for _ in range(12):
            picked = random.integers(0, len(TEXTS), random.integers(1, 30))
            check(embedded(encoder, passes, picked), embedded(encoder, Passes(encoder, precision="fp32"), picked))
    # 16, 24, 64, and 128 beyond them.
    assert len(graphs) == 4


def test_more_buckets_than_the_compiler_would_keep_by_itself_are_all_compiled(graphs: list[str]):
    encoder = tiny_encoder(layers=1).eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    with (
        torch._dynamo.config.patch(recompile_limit=2),
        side_passes(encoder, precision="fp32", chunking=Chunking(1, buckets=(4, 7, 11), compiled=True)) as passes,
    ):
        for _ in range(2):
            passes.embed(table, np.arange(4))
    assert len(graphs) == 3


def test_cached_dropout_is_replayed_in_a_compiled_backbone(graphs: list[str]):
    found = []
    for cached in (False, True):
        encoder = tiny_encoder(layers=1).train()
        torch.manual_seed(7)
        with side_passes(encoder, precision="fp32", chunking=Chunking(64, cached, buckets=BUCKETS, compiled=True)) as passes:
            found.append(embedded(encoder, passes, np.array([14, 0, 7, 3])))
    assert graphs
    torch.testing.assert_close(found[1], found[0])
