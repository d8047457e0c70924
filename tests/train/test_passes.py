"""Passes in halves against one pass."""

import numpy as np
import pytest
import torch

from adiabat.model.tokens import TokenTable
from adiabat.train.passes import Passes, halves, in_halves
from tests.tiny import KINDS, Kind, tiny_encoder

TEXTS = ["a", "two words", "three short words", "the longest of all the texts in this batch", "", "again two"]


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def gradients(encoder, passes, table, picked, target):
    encoder.zero_grad()
    embeddings = passes.embed(table, picked)
    (embeddings * target).sum().square().backward()
    found = {name: weights.grad.clone() for name, weights in encoder.named_parameters() if weights.grad is not None}
    return embeddings.detach(), found


@pytest.mark.parametrize("kind", KINDS)
def test_two_halves_give_the_embeddings_and_gradients_of_one_pass(kind: Kind):
    encoder = tiny_encoder(kind).eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    picked = np.array([3, 0, 5, 2, 1])
    target = torch.randn(5, encoder.width, generator=torch.Generator().manual_seed(0))
    one, plain = gradients(encoder, Passes(encoder, precision="fp32"), table, picked, target)
    with in_halves(encoder, precision="fp32") as passes:
        two, halved = gradients(encoder, passes, table, picked, target)
        _, again = gradients(encoder, passes, table, picked, target)
    torch.testing.assert_close(two, one)
    assert halved.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(halved[name], gradient, rtol=1e-4, atol=1e-6 * float(1 + gradient.abs().max()))
        assert torch.equal(halved[name], again[name])


def test_gradients_add_to_what_is_there():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    weights = next(weights for name, weights in encoder.named_parameters() if name.endswith("intermediate.dense.weight"))
    with in_halves(encoder, precision="fp32") as passes:
        passes.embed(table, np.arange(4))[:, 0].sum().backward()
        once = weights.grad.clone()
        passes.embed(table, np.arange(4))[:, 0].sum().backward()
    torch.testing.assert_close(weights.grad, 2 * once)


def test_frozen_weights_get_no_gradient():
    encoder = tiny_encoder().eval()
    frozen = [weights for name, weights in encoder.named_parameters() if "embeddings" in name]
    for weights in frozen:
        weights.requires_grad_(False)
    table = TokenTable.of(encoder, TEXTS, side="query")
    with in_halves(encoder, precision="fp32") as passes:
        passes.embed(table, np.arange(4)).square().mean().backward()
    assert all(weights.grad is None for weights in frozen)


def test_a_batch_of_one_is_one_pass():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    with in_halves(encoder, precision="fp32") as passes:
        assert passes.embed(table, np.array([2])).shape == (1, encoder.width)


def test_with_dropout_on_a_batch_is_one_pass_so_that_random_numbers_come_in_a_fixed_order():
    encoder = tiny_encoder().train()
    with in_halves(encoder, precision="fp32") as passes:
        assert passes._run is None


def test_the_cut_makes_the_longer_half_as_short_as_can_be():
    lengths = np.array([9, 3, 8, 2, 4])
    cut = halves(lengths, packed=False)
    assert sorted(np.concatenate(cut).tolist()) == [0, 1, 2, 3, 4]
    cost = max(len(part) * lengths[part].max() for part in cut)
    order = np.sort(lengths)
    assert cost == min(max(k * order[k - 1], (5 - k) * order[-1]) for k in range(1, 5)) == 18


def test_packed_halves_have_nearly_the_same_number_of_tokens():
    lengths = np.array([9, 3, 8, 2, 4, 1])
    parts = halves(lengths, packed=True)
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, 3, 4, 5]
    # By hand: 9 | 8, then 4 joins 8, 3 joins 9, 2 joins the first (12 each), 1 the other.
    assert sorted(int(lengths[part].sum()) for part in parts) == [13, 14]


def test_two_texts_of_which_one_is_long_make_two_halves():
    assert [len(part) for part in halves(np.array([500, 3]), packed=True)] == [1, 1]


def test_an_error_in_a_pass_reaches_the_caller():
    encoder = tiny_encoder().eval()
    table = TokenTable.of(encoder, TEXTS, side="query")
    table.ids[:] = 10**6
    with in_halves(encoder, precision="fp32") as passes, pytest.raises(IndexError):
        passes.embed(table, np.arange(4))
