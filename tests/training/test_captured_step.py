"""Recorded steps over a few numbers: what a replay repeats, what it reads anew, and what may not be
recorded.
"""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from adiabat.config.section import OptimizerName
from adiabat.training.captured_step import CapturedSteps, CaptureError, StaticInputs
from adiabat.training.optimizers import make_optimizer
from tests.training.emulated_graphs import EmulatedGraphs, recording


class Line:
    """A weight per input; the loss of step n is that of n + 1 points."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(3))
        self.host: list[float] = []
        self.closed = False

    def inputs(self, step: int) -> dict[str, np.ndarray]:
        """As many points as steps, of two shapes."""
        rows = 1 + step % 2
        return {
            "points": np.full((rows, 3), step / 10, dtype=np.float32),
            "told": np.ones(rows, dtype=np.bool_),
        }

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return (inputs["points"] @ self.weight - 2).square()[:1].sum() * inputs["told"].sum()

    def close(self) -> None:
        self.closed = True


class HostLine(Line):
    """Fixes a number of the host: wrong from the second step on."""

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        self.host.append(0.1 * len(self.host))
        return super().loss(inputs) + self.host[-1] * self.weight.sum()


class AskingLine(Line):
    """Asks the device for a number."""

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return super().loss(inputs) * float(inputs["points"].sum())


class MaskedLine(Line):
    """Chooses by a mask: how many, the host must know."""

    def loss(self, inputs: Mapping[str, Tensor]) -> Tensor:
        return super().loss(inputs) * inputs["points"][inputs["told"]].mean()


def steps_of(line: Line, name: OptimizerName) -> CapturedSteps:
    optimizer = make_optimizer(name, [line.weight], learning_rate=0.5, weight_decay=0.0)
    return CapturedSteps(line, optimizer, EmulatedGraphs(CPU))


def taken(line: Line, steps: int, optimizer: OptimizerName = "sgd") -> tuple[list[float], list[float]]:
    """Losses and weights of replayed steps at falling rates."""
    with recording():
        captured = steps_of(line, optimizer)
        losses = [float(captured.take(step, 0.1 / (1 + step))) for step in range(steps)]
        captured.close()
    return losses, line.weight.tolist()


CPU = torch.device("cpu")


def test_replayed_steps_are_those_worked_by_hand() -> None:
    losses, weights = taken(Line(), 4)
    weight, expected = 1.0, []
    for step in range(4):
        point, rows = step / 10, 1 + step % 2
        expected.append(rows * (3 * point * weight - 2) ** 2)
        weight -= 0.1 / (1 + step) * rows * 2 * (3 * point * weight - 2) * point
    assert losses == pytest.approx(expected, rel=1e-6)
    assert weights == pytest.approx([weight] * 3, rel=1e-6)


def test_a_number_of_the_host_stays_as_it_was_recorded() -> None:
    # One shape is recorded at step 0 and replayed at step 2, with the number of the recording: 0.1.
    losses, _ = taken(HostLine(), 3)
    plain, _ = taken(Line(), 1)
    assert losses[0] == pytest.approx(plain[0] + 0.1 * 3)
    assert losses[2] != pytest.approx(plain[0] + 0.2 * 3, abs=0.01)


@pytest.mark.parametrize("line", [AskingLine(), MaskedLine()])
def test_what_waits_for_the_device_is_not_recorded_and_moves_no_weight_or_state(line: Line) -> None:
    optimizer = make_optimizer("adamax", [line.weight], learning_rate=0.5, weight_decay=0.0)
    with recording(), pytest.raises(CaptureError, match="not permitted when stream is capturing"):
        CapturedSteps(line, optimizer, EmulatedGraphs(CPU)).take(0, 0.1)
    assert line.weight.tolist() == [1.0] * 3
    assert line.weight.grad is None
    assert all(not value.any() for value in optimizer.state[line.weight].values())
    assert line.closed


def test_an_optimizer_keeps_the_options_and_state_of_an_eager_run() -> None:
    line = Line()
    optimizer = make_optimizer("adamax", [line.weight], learning_rate=0.5, weight_decay=0.0)
    options = {name: value for name, value in optimizer.param_groups[0].items() if name != "params"}
    with recording():
        captured = CapturedSteps(line, optimizer, EmulatedGraphs(CPU))
        for step in range(3):
            captured.take(step, 0.1)
    assert {name: value for name, value in optimizer.param_groups[0].items() if name != "params"} == options
    assert float(optimizer.state[line.weight]["step"]) == 3


def test_the_first_loss_that_is_not_finite_is_kept_with_its_step() -> None:
    line = Line()
    with recording():
        captured = steps_of(line, "sgd")
        assert [captured.fault() for step in range(3) if captured.take(step, 0.1) is not None] == [None] * 3
        line.weight.data[0] = torch.inf
        for step in (3, 4):
            captured.take(step, 0.1)
        assert captured.fault() == (3, float("inf"))


def test_inputs_of_all_types_and_shapes_share_one_buffer() -> None:
    arrays = {
        "byte": np.array([True, False, True]),
        "empty": np.empty((0, 2), dtype=np.float32),
        "number": np.array(2.5),
        "table": np.arange(6).reshape(2, 3).T,
    }
    inputs = StaticInputs(arrays, CPU)
    inputs.fill(arrays)
    assert all(np.array_equal(inputs.tensors[name].numpy(), array) for name, array in arrays.items())
    assert [inputs.tensors[name].dtype for name in arrays] == [
        torch.bool,
        torch.float32,
        torch.float64,
        torch.int64,
    ]
    inputs.fill({**arrays, "number": np.array(3.5)})
    assert inputs.tensors["number"].item() == 3.5
