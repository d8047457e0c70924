"""The loop: when it stops, what it keeps, what it writes, and that a resumed run is the uninterrupted one."""

import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from adiabat.config.section import OptimizerName
from adiabat.core.errors import InterruptionError, JobError
from adiabat.data.batch_sampler import step_seed
from adiabat.runs.run_log import Keep, Validation, read_log
from adiabat.training import checkpoint
from adiabat.training import loop as loop_module
from adiabat.training.checkpoint import Limits, read_latest
from adiabat.training.distributed import Processes
from adiabat.training.loop import Loop
from tests.forks import exit_code
from tests.refused import Facts, one_line
from tests.training.kills import MOMENTS, kill
from tests.training.toy import (
    EPOCHS,
    RATES,
    STEPS_PER_EPOCH,
    Regression,
    Scripted,
    Seen,
    position_of,
    regression_loop,
    scripted_loop,
)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key != "seconds"}
        for row in read_log(folder / "log.jsonl")
    ]


def bits(tensors: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: tensor.detach().contiguous().numpy().tobytes() for name, tensor in tensors.items()}


def checkpoints_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def everything(folder: Path, loop: Loop) -> dict[str, Any]:
    """All that a finished run leaves, but the seconds."""
    snapshot, _ = read_latest(folder / "checkpoints")
    # The log's checksum is of its seconds as well.
    record = {**snapshot.record, "position": {**snapshot.record["position"], "seconds": 0.0}, "log": ""}
    return {
        "module": bits(dict(loop.objective.module.named_parameters())),
        "tensors": bits(dict(snapshot.tensors)),
        "record": {key: value for key, value in record.items() if key != "sha256"},
        "log": rows_of(folder),
        "position": position_of(loop),
    }


def run(
    folder: Path, optimizer: OptimizerName = "adamw", *, resume: bool = False, **options: Any
) -> dict[str, Any]:
    loop = regression_loop(folder, optimizer=optimizer, **options)
    loop.run(resume=resume)
    return everything(folder, loop)


# --- The two-signal stop ---

IDLE = "2 epochs in a row without both validation loss and errors falling"
PERFECT = "validation found no errors, so nothing could improve"
STEPS = "the limit of 6 steps was reached"
TRIAL = "the first epoch was a trial, and no better than the start"
SCRIPT = [(1.0, 50), (0.9, 60), (0.8, 70), (0.85, 10)]
USUAL = Limits(3, 9, 2)


def short(keep: Keep) -> Limits:
    return Limits(2, None, None, max_steps=6, keep=keep)


@pytest.mark.parametrize(
    ("script", "limits", "best", "epochs", "reason"),
    [
        ([(1.0, 50), (0.9, 40), (0.8, 40), (0.95, 30)], USUAL, 1, 3, IDLE),
        # The start is kept if nothing improves.
        ([(1.0, 50), (0.5, 50), (1.5, 1)], USUAL, 0, 2, IDLE),
        # An improvement sets the idle count back.
        ([(1.0, 50), (2.0, 60), (0.9, 40), (2.0, 60), (0.8, 30), (2.0, 60), (2.0, 60)], USUAL, 4, 6, IDLE),
        # Improvement is over the best, not over the epoch before.
        ([(1.0, 50), (2.0, 80), (1.5, 60)], USUAL, 0, 2, IDLE),
        (
            [(1 / (n + 1), 100 - n) for n in range(10)],
            Limits(3, 4, 2),
            4,
            4,
            "the limit of 4 epochs was reached",
        ),
        ([(1.0, 0)], USUAL, 0, 0, PERFECT),
        ([(1.0, 5), (0.5, 0)], USUAL, 1, 1, PERFECT),
        # The last epoch has the fewest errors and a loss below the start's.
        (SCRIPT, short("both"), 3, 3, STEPS),
        (SCRIPT, short("loss"), 2, 3, STEPS),
        (SCRIPT, short("last"), 3, 3, STEPS),
        # No errors are no reason to stop where errors do not count.
        ([(1.0, 0), (0.9, 0)], short("loss"), 1, 3, STEPS),
        ([(1.0, 0), (0.9, 0)], short("last"), 3, 3, STEPS),
        # A trial ends after the first epoch, or goes on as any run.
        ([(1.0, 50), (1.1, 50), (0.5, 10)], replace(USUAL, is_trial=True), 0, 1, TRIAL),
        ([(1.0, 50), (0.9, 40), (0.95, 60)], replace(USUAL, is_trial=True), 1, 3, IDLE),
    ],
)
def test_a_run_stops_and_leaves_the_weights_of_the_epoch_that_counts(
    tmp_path: Path, script: list[tuple[float, int]], limits: Limits, best: int, epochs: int, reason: str
) -> None:
    objective, seen = Scripted(script), Seen()
    outcome = scripted_loop(tmp_path, objective, limits=limits, seen=seen).run()
    # Each step moves the weight by -1.
    found = (outcome.position.best_epoch, outcome.position.epoch, objective.weight.item(), outcome.reason)
    assert found == (best, epochs, -best * limits.steps_per_epoch, reason)
    assert [("no error in 100 validation pairs" in note) for note in seen.notes] == (
        [True] if not epochs else []
    )


@pytest.mark.parametrize(
    ("later", "ending", "steps"),
    [
        # A step and the first validation take a second each: after 12 steps, 19 of 20 seconds have passed.
        (1.0, 4.0, 13),
        # Validations that take twice as long: what follows the last step takes 4 more seconds, too.
        (2.0, 4.0, 9),
        (2.0, 0.0, 11),
        # A first validation that sets things up is no promise of a faster ending.
        (0.5, 4.0, 16),
    ],
)
def test_a_machine_that_slows_down_ends_its_steps_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, ending: float, steps: int
) -> None:
    now = [0.0]

    class Clocked(Scripted):
        def loss(self, step: int) -> Tensor:
            now[0] += 1.0
            return super().loss(step)

        def validate(self) -> Validation:
            now[0] += later if self.validated else 1.0
            return super().validate()

    monkeypatch.setattr(loop_module.time, "monotonic", lambda: now[0])
    limits = Limits(2, None, None, keep="last", max_seconds=20.0, ending_seconds=ending)
    outcome = scripted_loop(tmp_path, Clocked([(1.0, 50)]), limits=limits).run()
    assert (outcome.position.step, outcome.reason) == (steps, "the time limit was reached")


# --- What is written ---


def test_the_log_holds_mean_losses_the_rate_figures_and_each_validation(tmp_path: Path) -> None:
    objective, seen = Scripted([(1.0, 50), (0.5, 40), (0.7, 60)], losses=[1.0, 3.0, 8.0, 4.0, 6.0]), Seen()
    loop = scripted_loop(
        tmp_path, objective, limits=Limits(3, None, 9, max_steps=5, keep="last", log_every=2), seen=seen
    )
    loop.figures = lambda: {"temperature": 0.5}
    loop.run()

    def step(number: int, epoch: int, loss: float) -> dict[str, Any]:
        return {"step": number, "epoch": epoch, "loss": loss, "learning_rate": 1.0, "temperature": 0.5}

    def validation(number: int, epoch: int, loss: float, errors: int) -> dict[str, Any]:
        return {
            "step": number,
            "epoch": epoch,
            "validation_loss": loss,
            "validation_errors": errors,
            "validation_pairs": 100,
        }

    # The last epoch is shorter.
    assert rows_of(tmp_path) == [
        validation(0, 0, 1.0, 50),
        step(2, 0, 2.0),
        step(3, 0, 8.0),
        validation(3, 1, 0.5, 40),
        step(4, 1, 4.0),
        step(5, 1, 6.0),
        validation(5, 2, 0.7, 60),
    ]
    assert seen.steps == [1, 2, 3, 3, 4, 5, 5]


def test_the_learning_rate_follows_the_schedule(tmp_path: Path) -> None:
    loop = regression_loop(tmp_path)
    rates: list[float] = []
    loop.watch = lambda position: rates.append(loop.optimizer.param_groups[0]["lr"])
    for _ in range(STEPS_PER_EPOCH):
        loop.step()
    loop.log.close()
    total = STEPS_PER_EPOCH * EPOCHS
    assert rates == pytest.approx([RATES["adamw"] * (1 - step / total) for step in range(STEPS_PER_EPOCH)])


def test_frozen_weights_and_the_random_state_of_the_process_stay_as_they_were(tmp_path: Path) -> None:
    objective = Regression()
    before, state = bits(dict(objective.module.named_parameters())), torch.get_rng_state()
    regression_loop(tmp_path, objective=objective).run()
    assert torch.equal(torch.get_rng_state(), state)
    after = bits(dict(objective.module.named_parameters()))
    assert {name for name in before if after[name] == before[name]} == {"0.weight", "0.bias"}
    assert objective.module.get_parameter("0.weight").grad is None


def test_a_run_repeats_itself_and_another_seed_draws_other_dropout(tmp_path: Path) -> None:
    first = run(tmp_path / "first")
    torch.manual_seed(99)
    assert run(tmp_path / "second") == first
    # Without resume it begins anew.
    assert run(tmp_path / "first") == first
    assert run(tmp_path / "third", seed=1)["module"] != first["module"]


def test_each_step_draws_random_numbers_of_its_own_whatever_was_drawn_before(tmp_path: Path) -> None:
    drawn: list[float] = []
    regression_loop(
        tmp_path,
        objective=Regression(before_loss=lambda now: drawn.extend(torch.rand(1 + now % 2).tolist()[:1])),
    ).run()
    expected = [
        torch.rand(1, generator=torch.Generator().manual_seed(step_seed(0, step))).item()
        for step in range(len(drawn))
    ]
    assert drawn == expected
    assert len(set(drawn)) == STEPS_PER_EPOCH * EPOCHS


# --- Numbers that are none ---


QUERIES = "(2 queries: q2; q3); lower"


class Exploding(Scripted):
    """Its loss is finite, its gradient is not from the second step on."""

    def loss(self, step: int) -> Tensor:
        return super().loss(step) + (torch.sqrt(self.weight - self.weight.detach()).sum() if step else 0.0)


@pytest.mark.parametrize(
    ("objective", "facts", "weight"),
    [
        (Scripted([(1.0, 50)], [1.0, 1.0, math.nan]), ("training loss", "got nan at step 2", QUERIES), -2),
        (Scripted([(1.0, 50)], [1.0, 1.0, math.inf]), ("training loss", "got inf at step 2", QUERIES), -2),
        (Exploding([(1.0, 50)]), ("norm of the gradient", "got inf at step 1"), -1),
        (Scripted([(1.0, 50), (math.nan, 40)]), ("validation loss", "got nan at step 3", "lower"), -3),
    ],
)
def test_a_number_that_is_none_moves_no_weight_and_leaves_a_checkpoint_of_before(
    tmp_path: Path, objective: Scripted, facts: Facts, weight: float
) -> None:
    with one_line(JobError, *facts):
        scripted_loop(tmp_path, objective, limits=Limits(3, None, None, max_steps=4, max_grad_norm=1.0)).run()
    assert objective.weight.item() == pytest.approx(weight, abs=1e-5)
    assert all(math.isfinite(value) for row in rows_of(tmp_path) for value in row.values())
    if "validation loss" not in facts:
        snapshot, _ = read_latest(tmp_path / "checkpoints")
        assert (snapshot.record["position"]["step"], snapshot.tensors["weights/weight"].item()) == (
            -weight,
            objective.weight.item(),
        )


def test_gradients_are_scaled_down_to_the_norm(tmp_path: Path) -> None:
    objective = Scripted([(1.0, 50)])
    scripted_loop(
        tmp_path, objective, limits=Limits(10, None, None, max_steps=4, keep="last", max_grad_norm=0.25)
    ).run()
    # Four steps of SGD at rate 1 along a gradient of 1, which is cut to 0.25 (torch divides by the norm plus
    # 1e-6).
    assert objective.weight.item() == pytest.approx(-1.0, abs=1e-5)


# --- Interrupting and resuming ---


def send(*numbers: int, at: int) -> Regression:
    return Regression(
        before_loss=lambda now: [os.kill(os.getpid(), number) for number in numbers if now == at]
    )


def fail(now: int) -> None:
    if now == 3:
        raise RuntimeError("power cut")


def interrupted(folder: Path, optimizer: OptimizerName = "adamw") -> None:
    # In the first step, inside an epoch between log rows, at an epoch's last step, at its first, and at the
    # very last.
    for place, (step, number) in enumerate([(0, 2), (2, 15), (9, 2), (10, 2), (19, 2)]):
        with one_line(InterruptionError, f"stopped at step {step + 1};", "resume=True"):
            run(folder, optimizer, objective=send(number, at=step), resume=place > 0)


def ended_by_a_second_ctrl_c(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(folder, objective=send(signal.SIGINT, signal.SIGINT, at=8))
    assert checkpoints_of(folder) == ["step-000000005"]


def failed_before_a_checkpoint(folder: Path) -> None:
    with pytest.raises(RuntimeError, match="power cut"):
        run(folder, objective=Regression(before_loss=fail))


def ended_by_a_full_disk(folder: Path) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        objective = Regression(
            before_validation=lambda now: patch.setattr(checkpoint, "save_file", full) if now == 2 else None
        )
        with one_line(
            JobError, "step-000000010 could not be written", "No space left on device", "free some"
        ):
            run(folder, objective=objective)
    assert checkpoints_of(folder) == ["step-000000005"]


def truncated(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        run(folder)
        os.truncate(folder / "checkpoints" / "step-000000020" / name, 100)

    return cut


CUTS: dict[str, tuple[Callable[[Path], None], int, int]] = {
    "interrupted again and again": (interrupted, 20, 0),
    "a second Ctrl-C": (ended_by_a_second_ctrl_c, 5, 0),
    "a failure before the first checkpoint": (failed_before_a_checkpoint, 0, 0),
    "a full disk": (ended_by_a_full_disk, 5, 0),
    "truncated tensors": (truncated("state.safetensors"), 15, 1),
    "a truncated record": (truncated("state.json"), 15, 1),
    "finished": (run, 20, 0),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_run_that_was_cut_is_resumed_bit_for_bit_from_where_it_stood(tmp_path: Path, name: str) -> None:
    cut, step, damaged = CUTS[name]
    cut(tmp_path / "cut")
    seen = Seen()
    assert run(tmp_path / "cut", resume=True, seen=seen) == run(tmp_path / "whole")
    assert len(set(seen.steps)) == STEPS_PER_EPOCH * EPOCHS - step
    assert ["checkpoint step-000000020 is damaged" in note for note in seen.notes] == [True] * damaged


@pytest.mark.parametrize("optimizer", [name for name in RATES if name != "adamw"])
def test_every_optimizer_is_resumed_bit_for_bit(tmp_path: Path, optimizer: OptimizerName) -> None:
    interrupted(tmp_path / "cut", optimizer)
    assert run(tmp_path / "cut", optimizer, resume=True) == run(tmp_path / "whole", optimizer)


def test_runs_killed_at_any_moment_are_resumed_bit_for_bit(tmp_path: Path) -> None:
    # First, so that what torch imports at its first use is not imported in each process.
    expected = run(tmp_path / "whole")
    assert [exit_code(partial(kill, moment, tmp_path)) for moment in MOMENTS] == [-signal.SIGKILL] * len(
        MOMENTS
    )
    for moment in MOMENTS:
        assert list((tmp_path / moment / "checkpoints").glob("step-*"))
        assert run(tmp_path / moment, resume=True) == expected


def test_checkpoints_by_time_change_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = checkpoint.write_checkpoint

    def counting(folder: Path, step: int, snapshot: checkpoint.Snapshot, *, keep: int) -> Path:
        written.append(step)
        return write(folder, step, snapshot, keep=keep)

    monkeypatch.setattr("adiabat.training.loop.write_checkpoint", counting)
    expected = run(tmp_path / "epochs")
    assert written == [5, 10, 15, 20]
    assert run(tmp_path / "steps", checkpoint_seconds=1e-9) == expected
    assert written[4:] == list(range(1, 21))
    assert len(checkpoints_of(tmp_path / "steps")) == 2


def test_if_every_checkpoint_is_damaged_the_run_does_not_begin_anew_on_the_quiet(tmp_path: Path) -> None:
    run(tmp_path)
    for path in (tmp_path / "checkpoints").glob("*/state.safetensors"):
        os.truncate(path, 10)
    with one_line(JobError, "no whole checkpoint"):
        run(tmp_path, resume=True)
    assert len(rows_of(tmp_path)) > 1


def test_going_on_with_other_threads_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = []
    for name, resume in (("CPU, 2 threads", False), ("CPU, 2 threads", True), ("CPU, 1 threads", True)):
        monkeypatch.setattr(loop_module, "device_name", lambda device, name=name: name)
        seen = Seen()
        run(tmp_path, resume=resume, seen=seen)
        notes += seen.notes
    assert notes == [
        "the run so far used CPU, 2 threads and continues on CPU, 1 threads: the last "
        "digits will differ from an uninterrupted run"
    ]
    loop = regression_loop(tmp_path)
    loop.processes = Processes(0, 2)
    assert loop._surroundings() == "CPU, 1 threads, 2 processes"


class Apart(Processes):
    """Two processes of which the other one stands at another step."""

    def gather_numbers(self, numbers: Tensor) -> Tensor:
        return torch.cat([numbers, numbers + 6])


def test_processes_at_different_steps_are_refused(tmp_path: Path) -> None:
    loop = scripted_loop(
        tmp_path, Scripted([(1.0, 5)]), limits=Limits(2, None, None, max_steps=2, keep="last")
    )
    loop.processes = Apart()
    with one_line(JobError, "at the same step", "got [0, 6]", "a shared disk"):
        loop.run()


@pytest.mark.parametrize("shortages", [1, 2])
def test_a_step_beyond_a_gpus_memory_is_repeated_once_in_smaller_passes(
    tmp_path: Path, shortages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = regression_loop(tmp_path / "plain")
    plain.step()
    tried: list[int] = []

    def shortage(step: int) -> None:
        tried.append(step)
        if len(tried) <= shortages:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    seen = Seen()
    loop = regression_loop(tmp_path / "short", objective=Regression(before_loss=shortage), seen=seen)
    remedies = iter(["passes have 30 tokens"])
    loop.relieve = lambda: next(remedies, None)
    monkeypatch.setattr(Loop, "device", torch.device("cuda"))
    if shortages == 2:
        with pytest.raises(torch.OutOfMemoryError):
            loop.step()
    else:
        loop.step()
        for found, expected in zip(
            loop.objective.module.parameters(), plain.objective.module.parameters(), strict=True
        ):
            assert found.equal(expected)
    assert (tried, seen.notes) == ([0, 0], ["passes have 30 tokens"])


def test_a_shortage_on_a_cpu_is_not_tried_again(tmp_path: Path) -> None:
    def shortage(step: int) -> None:
        raise torch.OutOfMemoryError("out of memory")

    loop = regression_loop(tmp_path, objective=Regression(before_loss=shortage))
    loop.relieve = lambda: pytest.fail("a CPU has no more to give")
    with pytest.raises(torch.OutOfMemoryError):
        loop.step()
