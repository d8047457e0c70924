"""Checkpoints: whole or not there; what a validation counts for, and signals between steps."""

import errno
import json
import math
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from adiabat.config.section import OptimizerName
from adiabat.core.errors import JobError
from adiabat.runs.run_log import Validation
from adiabat.training import checkpoint
from adiabat.training.checkpoint import (
    RECORD,
    TENSORS,
    Interruption,
    Position,
    Snapshot,
    optimizer_snapshot,
    read_latest,
    restore_optimizer,
    restore_weights,
    write_checkpoint,
)
from adiabat.training.optimizers import decay_groups, make_optimizer
from tests.refused import one_line

NAMES: list[OptimizerName] = ["adamw", "adamax", "adamax-no-momentum", "adadelta", "adafactor", "sgd"]


def write(folder: Path, *steps: int, keep: int = 2) -> None:
    for step in steps:
        tensors = {"weights/a": torch.full((3,), float(step)), "b": torch.tensor(step)}
        write_checkpoint(folder, step, Snapshot(tensors, {"number": step, "nested": {"x": 0.1}}), keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def latest(folder: Path) -> tuple[int, int]:
    """The step that is read, and how many damaged checkpoints are named."""
    snapshot, damaged = read_latest(folder)
    assert all(
        sentence.startswith("checkpoint step-") and sentence.endswith("); falling back to the one before")
        for sentence in damaged
    )
    return snapshot.record["number"], len(damaged)


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "weights": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "strange": torch.tensor([float("nan"), -0.0, float("inf"), 1e-45]),
        "view": torch.arange(12.0).reshape(3, 4).T,
        "count": torch.tensor(7, dtype=torch.int64),
        "empty": torch.empty(0),
    }
    path = write_checkpoint(
        tmp_path / "checkpoints", 12, Snapshot(tensors, {"loss": 0.1 + 0.2, "none": None}), keep=2
    )
    found, damaged = read_latest(tmp_path / "checkpoints")
    assert (path.name, damaged) == ("step-000000012", [])
    read, written = (
        {name: tensor.contiguous().numpy().tobytes() for name, tensor in some.items()}
        for some in (found.tensors, tensors)
    )
    assert read == written
    assert (found.record["loss"], found.record["none"]) == (0.30000000000000004, None)


def test_no_folder_and_an_empty_folder_hold_no_checkpoint(tmp_path: Path) -> None:
    assert read_latest(tmp_path / "missing") == read_latest(tmp_path) == (None, [])


@pytest.mark.parametrize("keep", [2, 3])
def test_the_newest_are_kept_and_a_step_that_is_written_again_is_replaced(tmp_path: Path, keep: int) -> None:
    write(tmp_path, 5, 10, 100, 1000, 1000, keep=keep)
    assert names(tmp_path) == ["step-000000005", "step-000000010", "step-000000100", "step-000001000"][-keep:]
    assert latest(tmp_path) == (1000, 0)


def flipped(path: Path) -> bytes:
    content = bytearray(path.read_bytes())
    content[random.Random(0).randrange(len(content))] ^= 1
    return bytes(content)


DAMAGE: dict[str, Callable[[Path], bytes]] = {
    **{
        f"cut to {share:.0%}": lambda path, share=share: path.read_bytes()[: int(path.stat().st_size * share)]
        for share in (0, 0.5, 0.99)
    },
    "a bit": flipped,
    **{
        f"another kind, {text}": lambda path, text=text: text
        for text in (b"null", b"[1, 2]", b"{}", b"\x00\x00\x00")
    },
}


@pytest.mark.parametrize("name", [TENSORS, RECORD])
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path: Path, name: str) -> None:
    write(tmp_path, 10, 20)
    path = tmp_path / "step-000000020" / name
    whole = path.read_bytes()
    for how, damaged in DAMAGE.items():
        path.write_bytes(whole)
        path.write_bytes(damaged(path))
        assert latest(tmp_path) == (10, 1), how
    path.unlink()
    assert latest(tmp_path) == (10, 1)
    path.write_bytes(whole)
    assert latest(tmp_path) == (20, 0)


def test_every_flipped_byte_of_the_tensors_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    path = tmp_path / "step-000000020" / TENSORS
    whole = path.read_bytes()
    for place in random.Random(0).sample(range(len(whole)), 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert latest(tmp_path) == (10, 1)


def test_if_all_are_damaged_it_is_an_error_that_names_them(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    for step in (10, 20):
        (tmp_path / f"step-0000000{step}" / TENSORS).write_bytes(b"")
    with one_line(
        JobError, "no whole checkpoint", "checkpoint step-000000020", "step-000000010", "start again"
    ):
        read_latest(tmp_path)


def test_the_next_checkpoint_removes_later_damaged_ones_and_half_written_ones(tmp_path: Path) -> None:
    write(tmp_path, 10, 100)
    (tmp_path / "step-000000100" / TENSORS).write_bytes(b"")
    (tmp_path / ".partial-000000015").mkdir()
    (tmp_path / ".partial-000000015" / TENSORS).write_bytes(b"half")
    assert latest(tmp_path) == (10, 1)
    write(tmp_path, 20, 30)
    assert names(tmp_path) == ["step-000000020", "step-000000030"]
    assert latest(tmp_path) == (30, 0)


def test_a_job_whose_directory_is_gone_is_not_made_anew_and_the_advice_fits(tmp_path: Path) -> None:
    with one_line(JobError, "step-000000010 could not be written", "its directory was removed"):
        write(tmp_path / "job" / "checkpoints", 10)
    assert list(tmp_path.iterdir()) == []


def full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half(tensors: object, path: Path) -> None:
    path.write_bytes(b"half")
    raise SafetensorError("I/O error: No space left on device (os error 28)")


@pytest.mark.parametrize(
    ("failing", "how"), [("save_file", full), ("save_file", half), ("sync", full), ("digest_of", full)]
)
def test_a_full_disk_is_one_line_and_earlier_checkpoints_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, how: Callable[..., None]
) -> None:
    write(tmp_path, 10, 20)
    monkeypatch.setattr(checkpoint, failing, how)
    with one_line(JobError, "step-000000030 could not be written", "No space left on device"):
        write(tmp_path, 30)
    monkeypatch.undo()
    assert names(tmp_path) == ["step-000000010", "step-000000020"]
    assert latest(tmp_path) == (20, 0)


def test_a_checkpoint_has_its_name_once_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def note(path: Path) -> None:
        assert not (tmp_path / "step-000000010").exists() or path == tmp_path
        flushed.append(path.name)

    monkeypatch.setattr(checkpoint, "sync", note)
    write(tmp_path, 10)
    assert flushed == [TENSORS, RECORD, ".partial-000000010", tmp_path.name]


def plain(state: dict[str, Any]) -> str:
    """An optimizer's state, with every bit of its tensors."""
    return json.dumps(
        state, sort_keys=True, default=lambda tensor: [str(tensor.dtype), *tensor.double().flatten().tolist()]
    )


def grouped(name: OptimizerName, *, rate: float, decay: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A bias before a matrix, and a scalar after it: no group holds neighbours alone."""
    tensors = (torch.ones(2), torch.linspace(-1, 1, 6).view(2, 3), torch.tensor(3.0))
    module = nn.ParameterList([nn.Parameter(tensor) for tensor in tensors])
    return module, make_optimizer(name, decay_groups(module), learning_rate=rate, weight_decay=decay)


def take(module: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        for place, weights in enumerate(module.parameters()):
            weights.grad = torch.sin(weights.detach() + step + place)
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("taken", [0, 3])
def test_optimizers_and_weights_come_back_bit_for_bit(
    tmp_path: Path, name: OptimizerName, taken: int
) -> None:
    module, optimizer = grouped(name, rate=0.01, decay=0.1)
    take(module, optimizer, range(taken))
    state = optimizer_snapshot(optimizer)
    weights = {f"weights/{key}": value for key, value in module.named_parameters()}
    write_checkpoint(tmp_path, 3, Snapshot({**state.tensors, **weights}, state.record), keep=2)
    found, _ = read_latest(tmp_path)
    twin, again = grouped(name, rate=0.5, decay=0.7)
    restore_weights(twin, found.tensors, prefix="weights/")
    restore_optimizer(again, found)
    assert plain(again.state_dict()) == plain(optimizer.state_dict())
    assert [group["weight_decay"] for group in again.param_groups] == [0.1, 0.0]
    for some, of in ((module, optimizer), (twin, again)):
        take(some, of, range(3, 6))
    assert all(
        torch.equal(one, other) for one, other in zip(module.parameters(), twin.parameters(), strict=True)
    )


def test_weights_are_restored_in_place_and_only_those_of_the_prefix() -> None:
    module = nn.Linear(2, 1)
    weight, bias = module.weight, module.bias.detach().clone()
    restore_weights(
        module,
        {"best/weight": torch.tensor([[1.0, 2.0]]), "weights/bias": torch.tensor([9.0])},
        prefix="best/",
    )
    assert module.weight is weight
    assert module.weight.tolist() == [[1.0, 2.0]]
    assert torch.equal(module.bias, bias)


# --- What a validation counts for, and signals between steps ---


@pytest.mark.parametrize(
    ("keep", "loss", "errors", "better"),
    [
        *(
            ("both", loss, errors, (loss, errors) == (0.9, 9))
            for loss in (0.9, 1.0, 1.1, math.nan)
            for errors in (9, 10, 11)
        ),
        *(
            ("loss", loss, errors, loss == 0.9)
            for loss in (0.9, 1.0, 1.1, math.nan)
            for errors in (9, 10, 11)
        ),
        *(("last", loss, 11, True) for loss in (0.9, 1.1, math.nan)),
    ],
)
def test_an_epoch_counts_by_its_signals(keep: str, loss: float, errors: int, better: bool) -> None:
    assert Validation(loss, errors, 100).improves_on(Validation(1.0, 10, 100), keep=keep) is better


def test_a_position_comes_back_from_its_record() -> None:
    position = Position(step=7, epoch=2, best=Validation(0.5, 3, 10, {"RR": 0.8}))
    assert Position.from_record(asdict(position)) == position


@pytest.fixture
def _ordinary_handlers() -> Iterator[None]:
    """Python's own, whatever the process was started with."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.usefixtures("_ordinary_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_a_second_ctrl_c_acts_at_once(number: signal.Signals) -> None:
    with Interruption() as interruption:
        assert not interruption.requested
        send(number)
        assert interruption.requested
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)
        assert interruption.requested


@pytest.mark.usefixtures("_ordinary_handlers")
@pytest.mark.parametrize("noted", [False, True])
def test_handlers_are_afterwards_as_they_were_and_come_back_with_the_first_signal(noted: bool) -> None:
    acted: list[int] = []

    def own(number: int, frame: object) -> None:
        acted.append(number)

    def interrupted() -> None:
        with Interruption():
            assert signal.getsignal(signal.SIGTERM) is not own
            if noted:
                send(signal.SIGINT)
                send(signal.SIGTERM)
            raise RuntimeError("broken")

    signal.signal(signal.SIGTERM, own)
    with pytest.raises(RuntimeError, match="broken"):
        interrupted()
    assert acted == [signal.SIGTERM] * noted
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_ordinary_handlers")
def test_a_signal_that_the_process_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interruption() as interruption:
        send(signal.SIGINT)
        assert not interruption.requested
        send(signal.SIGTERM)
        assert interruption.requested


@pytest.mark.usefixtures("_ordinary_handlers")
def test_outside_the_main_thread_nothing_is_changed() -> None:
    seen: list[object] = []

    def enter() -> None:
        with Interruption() as interruption:
            seen.extend((signal.getsignal(signal.SIGINT), interruption.requested))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, False]
