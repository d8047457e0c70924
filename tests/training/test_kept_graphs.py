"""Graphs that gradient caching keeps: how large they are, which fit, and that gradients do not depend on
it.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from adiabat.training.gradient_cache import Chunking
from adiabat.training.kept_graphs import first_that_fit, free_bytes, graph_bytes
from adiabat.training.passes import Group, Passes, side_passes
from tests.tiny import Kind, tiny_encoder
from tests.training.worlds import TEXTS as SIX_TEXTS
from tests.training.worlds import loss_of, table_of

TEXTS = [*SIX_TEXTS, "and one more of them"]
PICKED = np.array([3, 1, 0, 6, 5, 2])


def test_the_size_of_a_graph_worked_by_hand() -> None:
    layer = nn.Linear(3, 5)
    rows = torch.randn(7, 3)
    # A linear layer keeps its input, tanh its output; the weights are there anyway.
    assert graph_bytes(lambda: torch.tanh(layer(rows)), layer.parameters()) == 4 * (7 * 3 + 7 * 5)
    # One storage counts once.
    assert graph_bytes(lambda: (rows.requires_grad_() * rows).sum(), ()) == 4 * 7 * 3


@pytest.mark.parametrize(
    ("sizes", "room", "kept"),
    [
        ([4, 3, 2, 1], 7, [True, True, False, False]),
        ([9, 3, 4], 7, [False, True, True]),
        ([1], 0, [False]),
        ([0, 1], 0, [True, False]),
    ],
)
def test_graphs_that_fit_are_kept_in_order(sizes: list[float], room: float, kept: list[bool]) -> None:
    assert first_that_fit(sizes, room) == kept


def test_a_cpu_keeps_nothing_by_itself() -> None:
    assert free_bytes(torch.device("cpu"), ()) == 0


def test_a_gpu_keeps_what_is_free_beside_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 5000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    trained, frozen = torch.ones(10, requires_grad=True), torch.ones(1000)
    # Four fifths of 1,500, less gradients, moments and rounded weights of 40 bytes each.
    assert free_bytes(torch.device("cuda"), [trained, frozen]) == 1200 - 160
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 5000))
    assert free_bytes(torch.device("cuda"), [torch.ones(1000, requires_grad=True)]) == 0


def step(kind: Kind, kept_bytes: int | None, *, dropout: bool) -> tuple[list[torch.Tensor], int, float]:
    """Gradients of a cached batch, forward passes that it took, and their cost."""
    encoder = tiny_encoder(kind, layers=2).train(dropout)
    table, passed = table_of(encoder, TEXTS), []
    chunking = Chunking(30, cached=True, kept_bytes=kept_bytes)
    with side_passes(encoder, precision="fp32", chunking=chunking) as passes:
        torch.manual_seed(3)
        cost = passes.operations([Group(table, PICKED)])
        for copy in passes._towers[0].copies:
            copy.register_forward_hook(lambda module, given, result: passed.append(len(result)))
        loss_of(passes.embed(table, PICKED)).backward()
        assert cost == passes.operations([Group(table, PICKED)])
    return [weights.grad for weights in encoder.parameters() if weights.grad is not None], sum(passed), cost


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(("kind", "half"), [("bert", 150_000), ("t5", 250_000)])
def test_kept_graphs_change_no_gradient_and_compute_once(kind: Kind, half: int, dropout: bool) -> None:
    again, twice, dear = step(kind, 0, dropout=dropout)
    assert twice == 2 * len(PICKED)
    kept, once, cheap = step(kind, 10**12, dropout=dropout)
    some, between, middling = step(kind, half, dropout=dropout)
    assert once == len(PICKED) < between < twice
    assert cheap < middling < dear
    # Packed, a pass has the same kernels with and without gradients, so every bit is the same.
    tolerance = 0.0 if kind == "bert" else 1e-5
    for expected, all_kept, some_kept in zip(again, kept, some, strict=True):
        torch.testing.assert_close(all_kept, expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(some_kept, expected, rtol=tolerance, atol=tolerance)


def test_without_caching_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Passes, "_bytes_per_token", lambda *_: pytest.fail("there is nothing to keep"))
    encoder = tiny_encoder().eval()
    table = table_of(encoder, TEXTS)
    plain = Passes(encoder, precision="fp32", chunking=Chunking(30, kept_bytes=1))
    plain.embed(table, PICKED).sum().backward()
    with torch.no_grad():
        Passes(encoder, precision="fp32", chunking=Chunking(30, True, kept_bytes=1)).embed(table, PICKED)


def test_a_relieved_pass_is_half_as_long_keeps_nothing_and_gives_the_same_gradients() -> None:
    expected, _, _ = step("bert", 10**12, dropout=True)
    encoder = tiny_encoder("bert", layers=2).train()
    table, lengths = table_of(encoder, TEXTS), []
    # Without caching at first, as whoever did not expect a shortage.
    with side_passes(encoder, precision="fp32", chunking=Chunking(60, kept_bytes=10**12)) as passes:
        assert passes.relieve() == 30
        assert passes.relieve() is None
        passes._towers[0].copies[0].register_forward_hook(
            lambda module, given, result: lengths.append(sum(given[0].layout.lengths))
        )
        torch.manual_seed(3)
        loss_of(passes.embed(table, PICKED)).backward()
    # Each chunk passes twice.
    assert lengths == [*lengths[: len(lengths) // 2], *lengths[: len(lengths) // 2]]
    assert max(lengths) <= max(30, int(table.lengths.max()))
    found = [weights.grad for weights in encoder.parameters() if weights.grad is not None]
    assert all(one.equal(gradient) for one, gradient in zip(found, expected, strict=True))
    assert Passes(encoder, precision="fp32").relieve() is None


@pytest.mark.parametrize(("less", "stated"), [(0, False), (1, False), (1, True)])
def test_what_is_free_also_holds_a_graph_that_is_made_again(
    less: int, stated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = tiny_encoder("bert").eval()
    table = table_of(encoder, TEXTS)
    groups = [Group(table, np.arange(len(TEXTS)))]
    chunking = Chunking(20, cached=True)
    pieces = Passes(encoder, precision="fp32", chunking=chunking)._pieces(groups)
    sizes = [piece.tokens for _, piece in pieces]
    room = sum(sizes) - less
    monkeypatch.setattr(Passes, "_bytes_per_token", lambda self, group, piece, manner: 1.0)
    monkeypatch.setattr("adiabat.training.passes.free_bytes", lambda device, weights: room)
    chunking = replace(chunking, kept_bytes=room if stated else None)
    passes = Passes(encoder, precision="fp32", chunking=chunking)
    manners = [passes._manner(passes._towers[0])]
    keeps = passes._kept(groups, pieces, manners)
    kept = [size for size, keep in zip(sizes, keeps, strict=True) if keep]
    if not less:
        assert kept == sizes
    else:
        again = 0 if stated else max(sizes)
        assert 0 < sum(kept) <= room - again
