"""New projections: by hand, from a seed, and what they do to angles."""

from pathlib import Path

import pytest
import torch
from torch import nn

from adiabat.models.embedding_head import Projection, new_projection
from adiabat.models.saving import save_projection
from adiabat.models.st_files import load_projection


def test_a_projection_by_hand() -> None:
    projection = new_projection(2, 3, seed=0)
    with torch.no_grad():
        projection.linear.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0], [-2.0, 0.5]]))
    assert projection(torch.tensor([[2.0, 4.0]])).tolist() == [[2.0, 6.0, -2.0]]


def test_a_projection_is_a_linear_map_without_bias_or_activation() -> None:
    projection = new_projection(5, 3, seed=0)
    assert [name for name, _ in projection.named_parameters()] == ["linear.weight"]
    assert isinstance(projection.activation, nn.Identity)
    pooled, weights = torch.randn(4, 5), projection.linear.weight.detach()
    plain = [[sum(float(weights[e, d]) * float(pooled[b, d]) for d in range(5)) for e in range(3)] for b in range(4)]
    torch.testing.assert_close(projection(pooled).detach(), torch.tensor(plain), atol=1e-6, rtol=0)


def test_the_seed_alone_decides_the_weights_and_the_global_random_state_is_left_alone() -> None:
    state = torch.get_rng_state()
    first = new_projection(8, 4, seed=3).linear.weight
    assert torch.equal(torch.get_rng_state(), state)
    torch.randn(1)
    assert torch.equal(new_projection(8, 4, seed=3).linear.weight, first)
    assert not torch.equal(new_projection(8, 4, seed=4).linear.weight, first)


@pytest.mark.parametrize("out", [384, 96])
def test_a_new_projection_keeps_angles_nearly(out: int) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(40, 256)
    projected = new_projection(256, out, seed=1)(vectors)
    # Each coordinate of the result has the variance of the mean squared coordinate of the vector: lengths grow with sqrt(out / width).
    lengths = projected.norm(dim=1) / vectors.norm(dim=1)
    torch.testing.assert_close(lengths.mean().item(), (out / 256) ** 0.5, rtol=0.03, atol=0)
    cosines = [nn.functional.normalize(rows, dim=1) @ nn.functional.normalize(rows, dim=1).T for rows in (vectors, projected)]
    assert (cosines[0] - cosines[1]).abs().mean() < out**-0.5


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", [nn.Identity(), nn.Tanh(), nn.GELU()], ids=["identity", "tanh", "gelu"])
def test_a_projection_reads_back_as_it_was_written(bias: bool, activation: nn.Module, tmp_path: Path) -> None:
    projection = Projection(nn.Linear(6, 4, bias=bias), activation)
    save_projection(projection, tmp_path)
    pooled = torch.randn(3, 6)
    assert torch.equal(load_projection(tmp_path)(pooled), projection(pooled))
