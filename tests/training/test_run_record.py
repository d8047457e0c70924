"""How far each tensor of a model has moved, and what a record takes from a log."""

from pathlib import Path

import numpy as np
import pytest
import torch

from adiabat.results.training_record import LayerChange
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import JobLog
from adiabat.training import run_record as layers
from adiabat.training.checkpoint import Outcome, Position
from adiabat.training.run_record import layer_changes, log_fields


def test_changes_worked_by_hand_in_the_given_order() -> None:
    zeros = torch.zeros(2)
    before = {
        "w": torch.tensor([3.0, -4.0]),
        "moved": zeros,
        "still": zeros,
        "half": torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16)),
        "empty": torch.empty(0),
    }
    after = {
        "empty": torch.empty(0),
        "half": torch.full((3,), 2.0),
        "still": zeros,
        "moved": torch.ones(2),
        "w": torch.tensor([3.0, -7.0]),
    }
    # |after - before| = |(0, 3)| = 3, |before| = 5; largest 4 -> 7, (7 - 4) / (7 + 4).
    assert layer_changes(before, after) == [
        LayerChange(name="w", relative=0.6, largest_before=4.0, largest_after=7.0, largest_change=3 / 11),
        LayerChange("moved", None, 0.0, 1.0, 1.0),
        LayerChange("still", None, 0.0, 0.0, 0.0),
        LayerChange("half", 1.0, 1.0, 2.0, 1 / 3),
        LayerChange("empty", None, 0.0, 0.0, 0.0),
    ]


@pytest.mark.parametrize("unit", [1, 8])
def test_changes_agree_with_numpy_over_many_chunks(monkeypatch: pytest.MonkeyPatch, unit: int) -> None:
    monkeypatch.setattr(layers, "_CHUNK", 7)
    before, after = (torch.randn(5, 11, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    (change,) = layer_changes({"w": unit * before}, {"w": unit * after})
    old, new = before.double().numpy(), after.double().numpy()
    assert change.relative == pytest.approx(np.linalg.norm(new - old) / np.linalg.norm(old), rel=1e-12)
    assert (change.largest_before, change.largest_after) == (
        unit * np.abs(old).max(),
        unit * np.abs(new).max(),
    )


def test_a_step_of_one_float32_unit_is_seen() -> None:
    before = torch.full((1000,), 0.05)
    after = torch.nextafter(before, torch.ones(()))
    (change,) = layer_changes({"w": before}, {"w": after})
    assert change.relative == pytest.approx(
        (after[0].double() - before[0].double()).item() / before[0].item(), rel=1e-6
    )


def test_a_log_begun_by_a_version_with_fewer_measures_gives_what_it_has(tmp_path: Path) -> None:
    job = Job(tmp_path)
    log = JobLog(job.log)
    validated = {"validation_loss": 1.0, "validation_errors": 2, "validation_pairs": 3}
    log.row(step=0, epoch=0, values={**validated, "validation_turn": 0.0}, seconds=0.0)
    log.row(step=5, epoch=1, values={**validated, "validation_turn": 0.5, "validation_new": 7.0}, seconds=1.0)
    log.close()
    fields = log_fields(job, Outcome(Position(step=5), "end"), total=5, measures=["turn", "new", "newer"])
    assert fields["measures"] == {"turn": [(0, 0.0), (1, 0.5)], "new": [(1, 7.0)]}
