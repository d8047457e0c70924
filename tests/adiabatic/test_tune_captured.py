"""Tuning jobs whose steps are recorded and replayed, as on a GPU: resumed, diverged, led back, out of memory,
or not recorded at all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from adiabat.adiabatic.expected_time import expected_time
from adiabat.adiabatic.fixed_steps import FixedSteps
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import DivergedError, InterruptionError
from adiabat.models.loading import load
from adiabat.results.evaluation_result import Result
from adiabat.training.captured_step import CapturedSteps
from tests.adiabatic.problem import Problem, quick, run, settings_of
from tests.jobs import everything, interrupt_at, log_of
from tests.training.emulated_graphs import EmulatedGraphs, recording

RISKY: dict[str, Any] = {
    "negatives": {"kind": "random", "per_query": 2},
    "optimizer": "adamax",
    "learning_rate": 1e-3,
}
"""Whatever a resumed job could get wrong: drawn negatives, and an optimizer that counts its steps."""


@pytest.fixture(scope="module")
def eager(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job whose steps no graph takes."""
    out = tmp_path_factory.mktemp("eager") / "job"
    run(problem, out, settings_of(tune=RISKY))
    return out


def tower_of(out: Path) -> dict[str, Tensor]:
    # The softmax ignores the bias of keys, whose gradient is 0 but for rounding, which most optimizers scale
    # up.
    return {
        name: weights.detach()
        for name, weights in load(out / "model").query.named_parameters()
        if not name.endswith("key.bias")
    }


def apart(one: Path, other: Path) -> float:
    towers = tower_of(one), tower_of(other)
    return max(float((towers[0][name] - towers[1][name]).abs().max()) for name in towers[0])


def run_recorded(problem: Problem, out: Path, settings: TuneSettings, **options: Any) -> Result:
    with recording() as graphs:
        result = run(problem, out, settings, **options)
        assert graphs.recorded, options.get("notes")
        return result


def test_a_job_that_was_interrupted_is_the_uninterrupted_one_bit_for_bit(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tune=RISKY | {"schedule": "linear"})
    run_recorded(problem, tmp_path / "whole", settings)
    with monkeypatch.context() as patch:
        interrupt_at(6, patch)
        with pytest.raises(InterruptionError, match="stopped at step 7"):
            run_recorded(problem, tmp_path / "job", settings)
    run_recorded(problem, tmp_path / "job", settings, resume=True)
    assert everything(tmp_path / "job") == everything(tmp_path / "whole")


@pytest.mark.parametrize("recorded_first", [True, False])
def test_recorded_and_eager_runs_go_on_from_each_others_checkpoints(
    problem: Problem, eager: Path, tmp_path: Path, recorded_first: bool
) -> None:
    first, then = (run_recorded, run) if recorded_first else (run, run_recorded)
    first(problem, tmp_path / "job", settings_of(tune=RISKY | {"max_epochs": 1}))
    then(problem, tmp_path / "job", settings_of(tune=RISKY), resume=True)
    assert apart(tmp_path / "job", eager) < 1e-5
    losses = ([row["loss"] for row in log_of(out) if "loss" in row] for out in (tmp_path / "job", eager))
    assert next(losses) == pytest.approx(next(losses), abs=1e-5)


def test_a_loss_that_is_not_a_number_is_named_where_the_loop_looks_and_reaches_no_checkpoint(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = FixedSteps.inputs

    def spoilt(self: FixedSteps, step: int) -> dict[str, np.ndarray]:
        made = inputs(self, step)
        # A tower of NaN from the sixth step on.
        if step == 5:
            next(self._objective.encoder.parameters()).data.fill_(torch.nan)
        return made

    monkeypatch.setattr(FixedSteps, "inputs", spoilt)
    settings = settings_of(tune=RISKY, run={"log_every": 100})
    with pytest.raises(DivergedError, match=r"got nan at step 5 \(5 queries.*earlier weights are in"):
        run_recorded(problem, tmp_path / "job", settings)
    assert [path.name for path in (tmp_path / "job" / "checkpoints").iterdir()] == ["step-000000004"]
    assert [row["step"] for row in log_of(tmp_path / "job")] == [0, 4, 4]


def test_a_run_that_goes_back_keeps_the_optimizer_of_its_graphs(problem: Problem, tmp_path: Path) -> None:
    probes = str(problem.store.parent / "probes.txt")
    guard = {"probes": probes, "depth": 10, "limit": 1e-4, "action": "back"}
    table = settings_of(tune={"learning_rate": 1e-3, "optimizer": "adamax"}).model_dump() | {"guard": guard}
    settings, notes = TuneSettings.model_validate(table), list[str]()
    run_recorded(problem, tmp_path / "job", settings, notes=notes)
    assert sum("restored the weights of epoch" in note for note in notes) > 1
    run(problem, tmp_path / "eager", settings)
    assert apart(tmp_path / "job", tmp_path / "eager") < 1e-5


class Full(EmulatedGraphs):
    """Has no memory for a graph."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        work()
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Waiting(EmulatedGraphs):
    """Cannot record the operations of the model."""

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        work()
        raise RuntimeError("operation not permitted when stream is capturing\nfurther lines")


@pytest.mark.parametrize(
    ("recorder", "said"),
    [(Full, "lower tune.batch_size"), (Waiting, "not permitted when stream is capturing)")],
)
def test_steps_that_cannot_be_recorded_are_taken_operation_by_operation_from_the_same_weights(
    problem: Problem, eager: Path, tmp_path: Path, recorder: type[EmulatedGraphs], said: str
) -> None:
    notes: list[str] = []
    with recording(recorder):
        run(problem, tmp_path / "job", settings_of(tune=RISKY), notes=notes)
    assert [note for note in notes if said in note and "\n" not in note]
    assert apart(tmp_path / "job", eager) == 0


HALF = "half of the free memory of the GPU does not hold"


@pytest.mark.parametrize(
    ("tune", "free", "said"),
    [
        ({"dropout": True}, 1 << 40, "tune.dropout"),
        ({"optimizer": "adafactor"}, 1 << 40, "tune.optimizer = adafactor"),
        ({"negatives": "hardest"}, 0, HALF),
        ({"loss": {"kind": "store_softmax"}}, 0, HALF),
    ],
)
def test_a_job_says_why_its_steps_are_not_recorded(
    problem: Problem, tmp_path: Path, tune: dict[str, Any], free: int, said: str
) -> None:
    notes: list[str] = []
    with recording(free_memory=free) as graphs:
        result = run(problem, tmp_path / "job", settings_of(tune={**tune, "max_epochs": 1}), notes=notes)
        assert not graphs.recorded
    for told in (notes, result.training.notes):
        assert [said in note for note in told if "not recorded" in note] == [True]


def test_on_a_cpu_nothing_is_recorded_and_nothing_said(problem: Problem, tmp_path: Path) -> None:
    notes: list[str] = []
    run(problem, tmp_path / "job", settings_of(tune={"dropout": True, "max_epochs": 1}), notes=notes)
    assert not [note for note in notes if "record" in note]


def test_the_rate_search_of_a_job_and_the_measurement_of_its_speed_replay_steps_too(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = CapturedSteps.take

    def counted(self: CapturedSteps, step: int, learning_rate: float) -> Tensor:
        taken.append(step)
        return take(self, step, learning_rate)

    monkeypatch.setattr(CapturedSteps, "take", counted)
    run_recorded(problem, tmp_path / "job", quick(tmp_path))
    folders = (tmp_path / "job" / "rate-search" / "trials").iterdir()
    trials = [log_of(folder)[-1]["step"] for folder in folders]
    # The job goes on from the checkpoint of a trial, at step 8 of 12.
    assert len(taken) == sum(trials) + 4
    taken.clear()
    with recording():
        expected_time(problem.context(), settings_of())
    # Once to record, once on the clock.
    assert taken == [*range(10), *range(10)]
