"""Checkpoints: whole or not there."""

import errno
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from adiabat.config.section import OptimizerName
from adiabat.core.errors import JobError
from adiabat.training import checkpoint
from adiabat.training.checkpoint import (
    RECORD,
    TENSORS,
    Snapshot,
    optimizer_snapshot,
    read_latest,
    restore_optimizer,
    restore_weights,
    write_checkpoint,
)
from adiabat.training.optimizers import decay_groups, make_optimizer

NAMES: list[OptimizerName] = ["adamw", "adamax", "adamax-no-momentum", "adadelta", "adafactor", "sgd"]


def snapshot_of(number: int) -> Snapshot:
    return Snapshot({"weights/a": torch.full((3,), float(number)), "b": torch.tensor(number)}, {"number": number, "nested": {"x": 0.1}})


def write(folder: Path, *steps: int, keep: int = 2) -> None:
    for step in steps:
        write_checkpoint(folder, step, snapshot_of(step), keep=keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def latest(folder: Path) -> int:
    snapshot, damaged = read_latest(folder)
    assert snapshot is not None
    assert damaged == []
    return int(snapshot.record["number"])


def test_what_is_written_is_read_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "weights": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
        "strange": torch.tensor([float("nan"), -0.0, float("inf"), 1e-45]),
        "view": torch.arange(12.0).reshape(3, 4).T,
        "count": torch.tensor(7, dtype=torch.int64),
        "empty": torch.empty(0),
    }
    (tmp_path / "deep").mkdir()
    path = write_checkpoint(tmp_path / "deep" / "checkpoints", 12, Snapshot(tensors, {"loss": 0.1 + 0.2, "none": None}), keep=2)
    found, damaged = read_latest(tmp_path / "deep" / "checkpoints")
    assert path.name == "step-000000012"
    assert damaged == []
    assert found is not None
    assert {name: tensor.contiguous().numpy().tobytes() for name, tensor in found.tensors.items()} == {
        name: tensor.contiguous().numpy().tobytes() for name, tensor in tensors.items()
    }
    assert (found.record["loss"], found.record["none"]) == (0.30000000000000004, None)


def test_no_folder_and_an_empty_folder_hold_no_checkpoint(tmp_path: Path) -> None:
    assert read_latest(tmp_path / "missing") == (None, [])
    assert read_latest(tmp_path) == (None, [])


@pytest.mark.parametrize("keep", [2, 3])
def test_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    write(tmp_path, 5, 10, 100, 1000, keep=keep)
    assert names(tmp_path) == ["step-000000005", "step-000000010", "step-000000100", "step-000001000"][-keep:]
    assert latest(tmp_path) == 1000


def test_writing_a_step_again_replaces_it(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write_checkpoint(tmp_path, 5, snapshot_of(6), keep=2)
    assert latest(tmp_path) == 6


@pytest.mark.parametrize("name", [TENSORS, RECORD])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_newest_falls_back_to_the_one_before_and_says_so(tmp_path: Path, name: str, share: float) -> None:
    write(tmp_path, 10, 20)
    path = tmp_path / "step-000000020" / name
    os.truncate(path, int(path.stat().st_size * share))
    snapshot, damaged = read_latest(tmp_path)
    assert snapshot is not None
    assert snapshot.record["number"] == 10
    assert len(damaged) == 1
    assert damaged[0].startswith("checkpoint step-000000020 is damaged (")
    assert damaged[0].endswith("); falling back to the one before")


@pytest.mark.parametrize("name", [TENSORS, RECORD])
def test_a_missing_file_falls_back_too(tmp_path: Path, name: str) -> None:
    write(tmp_path, 10, 20)
    (tmp_path / "step-000000020" / name).unlink()
    snapshot, damaged = read_latest(tmp_path)
    assert snapshot is not None
    assert (snapshot.record["number"], len(damaged)) == (10, 1)


def test_every_flipped_byte_of_the_tensors_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    path = tmp_path / "step-000000020" / TENSORS
    whole = path.read_bytes()
    for place in random.Random(0).sample(range(len(whole)), 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert len(read_latest(tmp_path)[1]) == 1
    path.write_bytes(whole)
    assert latest(tmp_path) == 20


@pytest.mark.parametrize("text", ["null", "[1, 2]", "7", "{}", "\x00\x00\x00"])
def test_a_record_of_another_kind_is_a_damaged_checkpoint(tmp_path: Path, text: str) -> None:
    write(tmp_path, 10, 20)
    (tmp_path / "step-000000020" / RECORD).write_text(text)
    snapshot, damaged = read_latest(tmp_path)
    assert snapshot is not None
    assert (snapshot.record["number"], len(damaged)) == (10, 1)


def test_if_all_are_damaged_it_is_an_error_that_names_them(tmp_path: Path) -> None:
    write(tmp_path, 10, 20)
    for step in (10, 20):
        (tmp_path / f"step-0000000{step}" / TENSORS).write_bytes(b"")
    with pytest.raises(JobError, match=r"holds no whole checkpoint: checkpoint step-000000020 .* step-000000010 .*; start anew in another"):
        read_latest(tmp_path)


def test_the_next_checkpoint_removes_damaged_ones_of_later_steps_so_that_two_whole_ones_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 10, 100)
    (tmp_path / "step-000000100" / TENSORS).write_bytes(b"")
    write(tmp_path, 20, 30)
    assert names(tmp_path) == ["step-000000020", "step-000000030"]
    assert latest(tmp_path) == 30


def test_what_a_killed_run_had_half_written_is_no_checkpoint_and_is_removed(tmp_path: Path) -> None:
    write(tmp_path, 10)
    (tmp_path / ".partial-000000015").mkdir()
    (tmp_path / ".partial-000000015" / TENSORS).write_bytes(b"half")
    assert latest(tmp_path) == 10
    write(tmp_path, 20)
    assert names(tmp_path) == ["step-000000010", "step-000000020"]


def test_a_job_whose_directory_is_gone_is_not_made_anew_and_the_advice_fits(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="step-000000010 could not be written: .*; its directory is gone: something removed or renamed it"):
        write(tmp_path / "job" / "checkpoints", 10)
    assert list(tmp_path.iterdir()) == []


def full(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("failing", ["save_file", "_flush", "digest_of"])
def test_a_full_disk_is_one_line_and_earlier_checkpoints_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    write(tmp_path, 10, 20)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, failing, full)
        with pytest.raises(JobError, match=r"step-000000030 could not be written: .*No space left on device; free some space") as caught:
            write(tmp_path, 30)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["step-000000010", "step-000000020"]
    assert latest(tmp_path) == 20


def test_a_full_disk_halfway_through_the_tensors_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 10)

    def half(tensors: dict[str, Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", half)
    with pytest.raises(JobError, match="No space left"):
        write(tmp_path, 20)
    assert names(tmp_path) == ["step-000000010"]


def test_a_checkpoint_has_its_name_only_once_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    def note(path: Path) -> None:
        assert not (tmp_path / "step-000000010").exists() or path == tmp_path
        flushed.append(path.name)

    monkeypatch.setattr(checkpoint, "_flush", note)
    write(tmp_path, 10)
    assert flushed == [TENSORS, RECORD, ".partial-000000010", tmp_path.name]


def trained(name: OptimizerName, steps: int) -> tuple[nn.Parameter, nn.Parameter, torch.optim.Optimizer]:
    first, second = nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3)), nn.Parameter(torch.ones(4))
    optimizer = make_optimizer(name, [first, second], learning_rate=0.01, weight_decay=0.1)
    for step in range(steps):
        first.grad, second.grad = torch.sin(first.detach() + step), torch.cos(second.detach() * step)
        optimizer.step()
    return first, second, optimizer


def plain(state: dict[str, Any]) -> str:
    """An optimizer's state, with every bit of its tensors."""
    return json.dumps(state, sort_keys=True, default=lambda tensor: [str(tensor.dtype), *tensor.double().flatten().tolist()])


def grouped(name: OptimizerName, *, rate: float, decay: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A bias before a matrix, and a scalar after it: no group holds neighbours alone."""
    module = nn.ParameterList(
        [nn.Parameter(torch.ones(2)), nn.Parameter(torch.linspace(-1, 1, 6).view(2, 3)), nn.Parameter(torch.tensor(3.0))]
    )
    return module, make_optimizer(name, decay_groups(module), learning_rate=rate, weight_decay=decay)


def steps(module: nn.Module, optimizer: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        for place, weights in enumerate(module.parameters()):
            weights.grad = torch.sin(weights.detach() + number + place)
        optimizer.step()


@pytest.mark.parametrize("name", NAMES)
def test_groups_that_decay_and_that_do_not_come_back_bit_for_bit_and_go_on_alike(tmp_path: Path, name: OptimizerName) -> None:
    module, optimizer = grouped(name, rate=0.01, decay=0.1)
    steps(module, optimizer, range(3))
    state = optimizer_snapshot(optimizer)
    weights = {f"weights/{key}": value for key, value in module.named_parameters()}
    write_checkpoint(tmp_path, 3, Snapshot({**state.tensors, **weights}, state.record), keep=2)
    found, _ = read_latest(tmp_path)
    assert found is not None
    twin, again = grouped(name, rate=0.5, decay=0.7)
    restore_weights(twin, found.tensors, prefix="weights/")
    restore_optimizer(again, found)
    assert plain(again.state_dict()) == plain(optimizer.state_dict())
    assert [group["weight_decay"] for group in again.param_groups] == [0.1, 0.0]
    steps(module, optimizer, range(3, 6))
    steps(twin, again, range(3, 6))
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), twin.parameters(), strict=True))


def test_an_optimizer_that_has_not_stepped_comes_back_too() -> None:
    _, _, optimizer = trained("adamw", 0)
    fresh = make_optimizer("adamw", [nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.ones(4))], learning_rate=0.3, weight_decay=0.2)
    restore_optimizer(fresh, optimizer_snapshot(optimizer))
    assert fresh.param_groups[0]["lr"] == 0.01


def test_weights_are_restored_in_place_and_only_those_of_the_prefix() -> None:
    module = nn.Linear(2, 1)
    weight, bias = module.weight, module.bias.detach().clone()
    restore_weights(module, {"best/weight": torch.tensor([[1.0, 2.0]]), "weights/bias": torch.tensor([9.0])}, prefix="best/")
    assert module.weight is weight
    assert module.weight.tolist() == [[1.0, 2.0]]
    assert torch.equal(module.bias, bias)
