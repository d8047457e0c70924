"""Random numbers noted and drawn again."""

import torch

from adiabat.training.blocks import RandomState, draws
from tests.tiny import tiny_encoder


def test_what_is_drawn_after_going_back_is_what_was_drawn():
    state = RandomState.now(torch.device("cpu"))
    first = torch.rand(3)
    state.restore()
    assert torch.equal(torch.rand(3), first)


def test_a_replay_leaves_the_random_numbers_as_they_were():
    state = RandomState.now(torch.device("cpu"))
    first = torch.rand(3)
    before = torch.get_rng_state()
    with state.replayed():
        assert torch.equal(torch.rand(3), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_tower_draws_where_any_part_trains():
    encoder = tiny_encoder().eval()
    assert not draws(encoder)
    encoder.projections.train()
    assert draws(encoder)
