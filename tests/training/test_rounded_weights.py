"""Weights in bfloat16, rounded once a step, against autocast, which rounds them in every chunk."""

import numpy as np
import pytest
import torch

from adiabat.training.gradient_cache import Chunking, RoundedWeights
from adiabat.training.passes import side_passes
from tests.tiny import KINDS, Kind, tiny_encoder
from tests.training.test_passes import passed


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
