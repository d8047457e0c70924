"""The loop: when it stops, what it keeps, what it writes, and that a resumed run is the uninterrupted one."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adiabat.config.section import OptimizerName
from adiabat.core.errors import JobError
from adiabat.data.batch_sampler import step_seed
from adiabat.runs.run_log import read_log
from adiabat.training import checkpoint
from adiabat.training import loop as loop_module
from adiabat.training.checkpoint import read_latest
from adiabat.training.limits import InterruptionError, Limits
from adiabat.training.loop import Loop
from tests.training.kills import MOMENTS
from tests.training.toy import EPOCHS, RATES, STEPS_PER_EPOCH, Regression, Scripted, Seen, position_of, regression_loop, scripted_loop

ROOT = Path(__file__).resolve().parents[2]


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in read_log(folder / "log.jsonl")]


def bits(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: tensor.detach().contiguous().numpy().tobytes() for name, tensor in tensors.items()}


def everything(folder: Path, loop: Loop) -> dict[str, Any]:
    """All that a finished run leaves, but the seconds."""
    snapshot, _ = read_latest(folder / "checkpoints")
    assert snapshot is not None
    # The log's checksum is of its seconds as well.
    record = {**snapshot.record, "position": {**snapshot.record["position"], "seconds": 0.0}, "log": ""}
    return {
        "module": bits(dict(loop.objective.module.named_parameters())),
        "tensors": bits(dict(snapshot.tensors)),
        "record": {key: value for key, value in record.items() if key != "sha256"},
        "log": rows_of(folder),
        "position": position_of(loop),
    }


def uninterrupted(folder: Path, optimizer: OptimizerName = "adamw", seed: int = 0) -> dict[str, Any]:
    loop = regression_loop(folder, optimizer=optimizer, seed=seed)
    loop.run()
    return everything(folder, loop)


def resumed(folder: Path, optimizer: OptimizerName = "adamw", seen: Seen | None = None) -> dict[str, Any]:
    loop = regression_loop(folder, optimizer=optimizer, seen=seen)
    loop.run(resume=True)
    return everything(folder, loop)


# --- The two-signal stop ---


def stopped(tmp_path: Path, script: list[tuple[float, int]], *, idle: int = 2, most: int = 9, seen: Seen | None = None) -> tuple[Any, ...]:
    """Best epoch, epochs run, the weight left in the module (minus the best epoch's steps), and the reason."""
    objective = Scripted(script)
    outcome = scripted_loop(tmp_path, objective, limits=Limits(3, most, idle), seen=seen).run()
    return outcome.position.best_epoch, outcome.position.epoch, objective.weight.item(), outcome.reason


IDLE = "2 epochs in a row without both validation loss and errors falling"


def test_the_weights_of_the_best_epoch_are_left_in_the_module(tmp_path: Path) -> None:
    script = [(1.0, 50), (0.9, 40), (0.8, 40), (0.95, 30)]
    assert stopped(tmp_path, script) == (1, 3, -3.0, IDLE)


def test_the_start_is_kept_if_nothing_improves(tmp_path: Path) -> None:
    assert stopped(tmp_path, [(1.0, 50), (0.5, 50), (1.5, 1)]) == (0, 2, 0.0, IDLE)


def test_an_improvement_sets_the_idle_count_back(tmp_path: Path) -> None:
    script = [(1.0, 50), (2.0, 60), (0.9, 40), (2.0, 60), (0.8, 30), (2.0, 60), (2.0, 60)]
    assert stopped(tmp_path, script) == (4, 6, -12.0, IDLE)


def test_improvement_is_over_the_best_and_not_over_the_epoch_before(tmp_path: Path) -> None:
    assert stopped(tmp_path, [(1.0, 50), (2.0, 80), (1.5, 60)]) == (0, 2, 0.0, IDLE)


def test_the_limit_of_epochs_ends_a_run_that_goes_on_improving(tmp_path: Path) -> None:
    script = [(1 / (n + 1), 100 - n) for n in range(10)]
    assert stopped(tmp_path, script, most=4) == (4, 4, -12.0, "the limit of 4 epochs was reached")


def test_a_start_without_errors_is_the_result_and_says_why(tmp_path: Path) -> None:
    seen = Seen()
    reason = "validation found no errors, so that nothing could improve any more"
    assert stopped(tmp_path, [(1.0, 0)], seen=seen) == (0, 0, 0.0, reason)
    assert len(seen.notes) == 1
    assert "no error in 100 validation pairs" in seen.notes[0]
    assert "validate on more pairs, or harder ones" in seen.notes[0]


def test_an_epoch_without_errors_is_the_last(tmp_path: Path) -> None:
    seen = Seen()
    best, epochs, weight, reason = stopped(tmp_path, [(1.0, 5), (0.5, 0)], seen=seen)
    assert (best, epochs, weight, seen.notes) == (1, 1, -3.0, [])
    assert reason == "validation found no errors, so that nothing could improve any more"


# --- What is written ---


def test_the_log_holds_the_mean_loss_since_the_last_row_the_rate_and_each_validation(tmp_path: Path) -> None:
    objective = Scripted([(1.0, 50), (0.5, 40), (0.7, 60)], losses=[1.0, 3.0, 8.0, 4.0, 6.0, 0.5])
    scripted_loop(tmp_path, objective, limits=Limits(3, 2, 9, log_every=2)).run()

    def step(number: int, epoch: int, loss: float) -> dict[str, Any]:
        return {"step": number, "epoch": epoch, "loss": loss, "learning_rate": 1.0}

    def epoch(number: int, loss: float, errors: int) -> dict[str, Any]:
        return {"step": 3 * number, "epoch": number, "validation_loss": loss, "validation_errors": errors, "validation_pairs": 100}

    assert rows_of(tmp_path) == [
        epoch(0, 1.0, 50),
        step(2, 0, 2.0),
        step(3, 0, 8.0),
        epoch(1, 0.5, 40),
        step(4, 1, 4.0),
        step(6, 1, 3.25),
        epoch(2, 0.7, 60),
    ]


def test_the_learning_rate_follows_the_schedule(tmp_path: Path) -> None:
    loop = regression_loop(tmp_path)
    rates: list[float] = []
    loop.watch = lambda position: rates.append(loop.optimizer.param_groups[0]["lr"])
    for _ in range(STEPS_PER_EPOCH):
        loop.step()
    loop.log.close()
    total = STEPS_PER_EPOCH * EPOCHS
    assert rates == pytest.approx([RATES["adamw"] * (1 - step / total) for step in range(STEPS_PER_EPOCH)])


def test_the_caller_sees_every_step_and_every_epoch(tmp_path: Path) -> None:
    seen = Seen()
    stopped(tmp_path, [(1.0, 50)], seen=seen)
    assert seen.steps == [1, 2, 3, 3, 4, 5, 6, 6]


def test_frozen_weights_and_the_random_state_of_the_process_stay_as_they_were(tmp_path: Path) -> None:
    objective = Regression()
    frozen = bits(dict(objective.module.get_submodule("0").named_parameters()))
    trained = bits(dict(objective.module.get_submodule("3").named_parameters()))
    before = torch.get_rng_state()
    regression_loop(tmp_path, objective=objective).run()
    assert torch.equal(torch.get_rng_state(), before)
    assert bits(dict(objective.module.get_submodule("0").named_parameters())) == frozen
    after = bits(dict(objective.module.get_submodule("3").named_parameters()))
    assert all(after[name] != trained[name] for name in trained)


def test_a_run_repeats_itself_and_another_seed_draws_other_dropout(tmp_path: Path) -> None:
    first = uninterrupted(tmp_path / "first")
    torch.manual_seed(99)
    assert uninterrupted(tmp_path / "second") == first
    assert uninterrupted(tmp_path / "third", seed=1)["module"] != first["module"]


def test_each_step_draws_random_numbers_of_its_own_whatever_was_drawn_before(tmp_path: Path) -> None:
    drawn: list[float] = []
    regression_loop(tmp_path, objective=Regression(before_loss=lambda now: drawn.extend(torch.rand(1 + now % 2).tolist()[:1]))).run()
    expected = [torch.rand(1, generator=torch.Generator().manual_seed(step_seed(0, step))).item() for step in range(len(drawn))]
    assert drawn == expected
    assert len(set(drawn)) == STEPS_PER_EPOCH * EPOCHS


def test_a_validation_loss_that_is_no_number_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="the validation loss must be a finite number, got nan at step 3; lower the learning rate"):
        scripted_loop(tmp_path, Scripted([(1.0, 50), (math.nan, 40)], [1.0] * 3), limits=Limits(3, 5, 5)).run()
    assert all(math.isfinite(value) for row in rows_of(tmp_path) for value in row.values())


# --- Interrupting and resuming ---


def interrupting(step: int, number: signal.Signals = signal.SIGINT) -> Regression:
    return Regression(before_loss=lambda now: os.kill(os.getpid(), number) if now == step else None)


@pytest.mark.parametrize("optimizer", RATES)
def test_a_run_interrupted_again_and_again_equals_the_uninterrupted_one_bit_for_bit(tmp_path: Path, optimizer: OptimizerName) -> None:
    expected = uninterrupted(tmp_path / "whole", optimizer)
    # In the first step, inside an epoch between log rows, at an epoch's last step, at its first, and at the very last.
    for place, step in enumerate([0, 2, 9, 10, 19]):
        loop = regression_loop(tmp_path / "cut", objective=interrupting(step), optimizer=optimizer)
        with pytest.raises(InterruptionError, match=f"^stopped at step {step + 1}; run the same command with --resume to go on$"):
            loop.run(resume=place > 0)
    assert resumed(tmp_path / "cut", optimizer) == expected


def test_sigterm_leaves_a_resumable_run_too(tmp_path: Path) -> None:
    with pytest.raises(InterruptionError, match="stopped at step 7"):
        regression_loop(tmp_path / "cut", objective=interrupting(6, signal.SIGTERM)).run()
    assert resumed(tmp_path / "cut") == uninterrupted(tmp_path / "whole")


def test_a_second_ctrl_c_stops_at_once_and_the_run_is_resumed_from_the_epoch_before(tmp_path: Path) -> None:
    def twice(now: int) -> None:
        if now == 8:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        regression_loop(tmp_path / "cut", objective=Regression(before_loss=twice)).run()
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == ["step-000000005"]
    assert resumed(tmp_path / "cut") == uninterrupted(tmp_path / "whole")


def test_a_run_that_fails_before_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    def broken(now: int) -> None:
        if now == 3:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        regression_loop(tmp_path / "cut", objective=Regression(before_loss=broken)).run()
    assert resumed(tmp_path / "cut") == uninterrupted(tmp_path / "whole")


def test_a_finished_run_that_is_resumed_ends_at_once_with_the_same_result(tmp_path: Path) -> None:
    expected = uninterrupted(tmp_path)
    objective, seen = Regression(), Seen()
    loop = regression_loop(tmp_path, objective=objective, seen=seen)
    outcome = loop.run(resume=True)
    assert (seen.steps, objective.validations) == ([], 0)
    assert outcome.reason == f"the limit of {EPOCHS} epochs was reached"
    assert everything(tmp_path, loop) == expected


def test_without_resume_a_run_begins_anew(tmp_path: Path) -> None:
    expected = uninterrupted(tmp_path)
    assert uninterrupted(tmp_path) == expected


def test_checkpoints_by_time_change_nothing_but_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = checkpoint.write_checkpoint

    def counting(folder: Path, step: int, snapshot: checkpoint.Snapshot, *, keep: int) -> Path:
        written.append(step)
        return write(folder, step, snapshot, keep=keep)

    monkeypatch.setattr("adiabat.training.loop.write_checkpoint", counting)
    expected = uninterrupted(tmp_path / "epochs")
    assert written == [5, 10, 15, 20]
    loop = regression_loop(tmp_path / "steps", checkpoint_seconds=1e-9)
    loop.run()
    assert written[4:] == list(range(1, 21))
    assert everything(tmp_path / "steps", loop) == expected
    assert len(list((tmp_path / "steps" / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("name", ["state.safetensors", "state.json"])
def test_a_truncated_newest_checkpoint_falls_back_says_so_and_ends_alike(tmp_path: Path, name: str) -> None:
    expected = uninterrupted(tmp_path / "whole")
    uninterrupted(tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "checkpoints" / "step-000000020" / name, 100)
    seen = Seen()
    assert resumed(tmp_path / "cut", seen=seen) == expected
    assert len(seen.notes) == 1
    assert "checkpoint step-000000020 is damaged" in seen.notes[0]
    assert seen.steps == [16, 17, 18, 19, 20, 20]


def test_if_every_checkpoint_is_damaged_the_run_does_not_begin_anew_on_the_quiet(tmp_path: Path) -> None:
    uninterrupted(tmp_path)
    for path in (tmp_path / "checkpoints").glob("*/state.safetensors"):
        os.truncate(path, 10)
    with pytest.raises(JobError, match="holds no whole checkpoint"):
        regression_loop(tmp_path).run(resume=True)
    assert len(rows_of(tmp_path)) > 1


def test_a_full_disk_is_one_line_and_the_run_goes_on_from_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: dict[str, Tensor], path: Path) -> None:
        raise OSError(28, "No space left on device")

    objective = Regression(before_validation=lambda now: monkeypatch.setattr(checkpoint, "save_file", full) if now == 2 else None)
    with pytest.raises(JobError, match=r"step-000000010 could not be written: .*No space left on device; free some space"):
        regression_loop(tmp_path / "cut", objective=objective).run()
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "cut" / "checkpoints").iterdir()] == ["step-000000005"]
    assert resumed(tmp_path / "cut") == uninterrupted(tmp_path / "whole")


def test_runs_killed_in_a_step_a_validation_a_checkpoint_and_a_log_row_are_resumed_bit_for_bit(tmp_path: Path) -> None:
    optimizer: OptimizerName = "adamw"
    command = [sys.executable, "-m", "tests.training.kills", str(tmp_path), optimizer]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split("\n")[:-1] == [f"{moment} {-signal.SIGKILL}" for moment in MOMENTS], done.stderr
    expected = uninterrupted(tmp_path / "whole", optimizer)
    for moment in MOMENTS:
        assert list((tmp_path / moment / "checkpoints").glob("step-*"))
        assert resumed(tmp_path / moment, optimizer) == expected


def test_going_on_with_other_threads_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = []
    monkeypatch.setattr(loop_module, "device_name", lambda device: "CPU test, 2 threads")
    regression_loop(tmp_path).run()
    for name in ("CPU test, 2 threads", "CPU test, 1 threads"):
        monkeypatch.setattr(loop_module, "device_name", lambda device, name=name: name)
        seen = Seen()
        regression_loop(tmp_path, seen=seen).run(resume=True)
        notes.append(seen.notes)
    assert notes == [
        [],
        [
            "the run so far was on CPU test, 2 threads, it goes on with CPU test, 1 threads: "
            "the last digits will differ from a run that never stopped"
        ],
    ]
