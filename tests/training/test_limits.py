"""When a run ends, which weights it leaves, and that no weight ever becomes what cannot be mended."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from adiabat.core.errors import JobError
from adiabat.runs.run_log import read_log
from adiabat.training.checkpoint import read_latest
from adiabat.training.limits import Keep, Limits, Position, Validation
from tests.training.toy import Regression, Scripted, regression_loop, scripted_loop


@pytest.mark.parametrize(
    ("keep", "better"), [("both", [(0.9, 9)]), ("loss", [(0.9, 9), (0.9, 10), (0.9, 11)]), ("last", [(0.9, 9), (1.1, 11), (math.nan, 9)])]
)
def test_an_epoch_counts_by_both_signals_by_the_loss_or_always(keep: Keep, better: list[tuple[float, int]]) -> None:
    for loss, errors in better:
        assert Validation(loss, errors, 100).improves_on(Validation(1.0, 10, 100), keep=keep)


@pytest.mark.parametrize("keep", ["both", "loss"])
@pytest.mark.parametrize("loss", [1.0, 1.1, math.nan])
def test_a_loss_that_is_not_lower_never_counts(keep: Keep, loss: float) -> None:
    assert not Validation(loss, 0, 100).improves_on(Validation(1.0, 10, 100), keep=keep)


@pytest.mark.parametrize("errors", [10, 11])
def test_a_lower_loss_alone_is_not_enough_for_both(errors: int) -> None:
    assert not Validation(0.9, errors, 100).improves_on(Validation(1.0, 10, 100), keep="both")


def test_a_position_comes_back_from_its_record() -> None:
    from dataclasses import asdict

    position = Position(step=7, epoch=2, best=Validation(0.5, 3, 10, {"RR": 0.8}))
    assert Position.from_record(asdict(position)) == position


SCRIPT = [(1.0, 50), (0.9, 60), (0.8, 70), (0.85, 10)]


@pytest.mark.parametrize(("keep", "best", "weight"), [("both", 3, -6.0), ("loss", 2, -4.0), ("last", 3, -6.0)])
def test_the_weights_left_are_those_of_the_epoch_that_counts(tmp_path: Path, keep: Keep, best: int, weight: float) -> None:
    # Each step moves the weight by -1. The last epoch has the fewest errors and a loss below the start's.
    objective = Scripted(SCRIPT)
    loop = scripted_loop(tmp_path, objective, limits=Limits(2, None, None, max_steps=6, keep=keep))
    outcome = loop.run()
    assert (outcome.position.best_epoch, objective.weight.item()) == (best, weight)
    assert outcome.reason == "the limit of 6 steps was reached"


def test_a_last_epoch_may_be_shorter_and_is_validated_and_logged(tmp_path: Path) -> None:
    loop = scripted_loop(tmp_path, Scripted(SCRIPT), limits=Limits(3, None, None, max_steps=5, keep="last", log_every=3))
    assert loop.run().position.epoch == 2
    rows = list(read_log(tmp_path / "log.jsonl"))
    assert [row["step"] for row in rows if "loss" in row] == [3, 5]
    assert [row["step"] for row in rows if "validation_loss" in row] == [0, 3, 5]


@pytest.mark.parametrize("keep", ["loss", "last"])
def test_no_errors_are_no_reason_to_stop_where_errors_do_not_count(tmp_path: Path, keep: Keep) -> None:
    notes = []
    loop = scripted_loop(tmp_path, Scripted([(1.0, 0), (0.9, 0)]), limits=Limits(2, None, None, max_steps=4, keep=keep))
    loop.note = notes.append
    assert loop.run().position.step == 4
    assert notes == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_training_loss_that_is_no_number_moves_no_weight_and_leaves_a_checkpoint_of_before(tmp_path: Path, bad: float) -> None:
    objective = Scripted([(1.0, 50), (0.5, 40)], [1.0, 1.0, bad, 1.0])
    loop = scripted_loop(tmp_path, objective, limits=Limits(10, None, None, max_steps=4))
    with pytest.raises(JobError) as caught:
        loop.run()
    said = str(caught.value)
    assert said.startswith(f"the training loss must be a finite number, got {bad} at step 2 (2 queries: q2; q3); lower the learning rate")
    assert "\n" not in said
    assert objective.weight.item() == -2.0
    snapshot, _ = read_latest(tmp_path / "checkpoints")
    assert snapshot is not None
    assert snapshot.record["position"]["step"] == 2
    assert snapshot.tensors["weights/weight"].item() == -2.0


class Exploding(Scripted):
    """Its loss is finite, its gradient is not from the second step on."""

    def loss(self, step: int) -> torch.Tensor:
        return super().loss(step) + (torch.sqrt(self.weight - self.weight.detach()).sum() if step else 0.0)


def test_a_gradient_that_is_no_number_ends_the_run_too_where_its_norm_is_limited(tmp_path: Path) -> None:
    objective = Exploding([(1.0, 50)])
    loop = scripted_loop(tmp_path, objective, limits=Limits(10, None, None, max_steps=4, max_grad_norm=1.0))
    with pytest.raises(JobError, match=r"the norm of the gradient must be a finite number, got (nan|inf) at step 1"):
        loop.run()
    assert objective.weight.item() == pytest.approx(-1.0, abs=1e-5)


def test_gradients_are_scaled_down_to_the_norm(tmp_path: Path) -> None:
    objective = Scripted([(1.0, 50)])
    loop = scripted_loop(tmp_path, objective, limits=Limits(10, None, None, max_steps=4, keep="last", max_grad_norm=0.25))
    loop.run()
    # Four steps of SGD at rate 1 along a gradient of 1, which is cut to 0.25 (torch divides by the norm plus 1e-6).
    assert objective.weight.item() == pytest.approx(-1.0, abs=1e-5)


def test_figures_stand_in_the_log(tmp_path: Path) -> None:
    loop = scripted_loop(tmp_path, Scripted([(1.0, 50)]), limits=Limits(2, None, None, max_steps=2, log_every=1))
    loop.figures = lambda: {"temperature": 0.5}
    loop.run()
    assert [row["temperature"] for row in read_log(tmp_path / "log.jsonl") if "loss" in row] == [0.5, 0.5]


def test_weights_that_are_all_frozen_stay_out_of_the_norm(tmp_path: Path) -> None:
    loop = regression_loop(tmp_path, objective=Regression())
    frozen = loop.objective.module.get_submodule("0")
    assert isinstance(frozen, nn.Linear)
    before = frozen.weight.detach().clone()
    loop.step()
    assert frozen.weight.equal(before)
    assert frozen.weight.grad is None
