"""Checkpoints that are whole or not there, and say so when they were damaged later."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn, optim

from adiabat.core.errors import DataError, JobError
from adiabat.core.files import advice_on, read_json, reading, write_json
from adiabat.core.provenance import digest_of
from adiabat.runs.run_log import GO_ON

TENSORS, RECORD = "state.safetensors", "state.json"
KEPT = 2
"""Checkpoints that are kept by default: one to resume from, and one to fall back to."""

REMEDY = "resume from an earlier checkpoint"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run at one step: tensors by name, and everything else as plain data."""

    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]


def write_checkpoint(folder: Path, step: int, snapshot: Snapshot, *, keep: int) -> Path:
    """Write one checkpoint and remove the oldest.

    The files are written beside their place, flushed to disk and then renamed, so a checkpoint that has its name is whole. Checkpoints of
    later steps are removed: the run has fallen back behind them because they were damaged.
    """
    target = folder / f"step-{step:09d}"
    partial = folder / f".partial-{step:09d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        # The job's own directory is never made anew: a checkpoint alone in it would be of no use.
        folder.mkdir(exist_ok=True)
        partial.mkdir()
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in snapshot.tensors.items()}, partial / TENSORS)
        write_json({**snapshot.record, "sha256": digest_of(partial / TENSORS).sha256}, partial / RECORD)
        # Contents first, then the names in the directory, then the new name of the directory: after a power cut none precedes the other.
        for path in (partial / TENSORS, partial / RECORD, partial):
            _flush(path)
        # A directory cannot be renamed onto one that is not empty: a run that fell back writes this step a second time.
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
        _flush(folder)
    except (OSError, SafetensorError, DataError) as fault:
        shutil.rmtree(partial, ignore_errors=True)
        raise JobError(f"{target} could not be written: {fault}; {advice_on(fault, GO_ON)}") from fault
    checkpoints = _checkpoints(folder)
    position = checkpoints.index(target)
    # Those that are old, those that claim to be newer, and what a killed run had half written.
    for path in (*checkpoints[:position], *checkpoints[position + keep :], *folder.glob(".partial-*")):
        shutil.rmtree(path, ignore_errors=True)
    return target


def drop_older(folder: Path) -> None:
    """Remove all checkpoints but the newest, from which a run that is over can be made longer."""
    for path in _checkpoints(folder)[1:]:
        shutil.rmtree(path, ignore_errors=True)


def read_latest(folder: Path) -> tuple[Snapshot | None, list[str]]:
    """Read the newest checkpoint that is whole.

    Returns:
        The snapshot, None where there is none; and one sentence for each damaged checkpoint that was passed over.
    """
    damaged: list[str] = []
    for path in _checkpoints(folder):
        try:
            return _read(path), [f"{fault}; falling back to the one before" for fault in damaged]
        except JobError as fault:
            damaged.append(f"checkpoint {path.name} is damaged ({fault})")
    if damaged:
        raise JobError(f"{folder} holds no whole checkpoint: {'; '.join(damaged)}; start again in another directory")
    return None, []


def _checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _read(path: Path) -> Snapshot:
    record = read_json(path / RECORD, remedy=REMEDY, error=JobError, required=False)
    with reading(path / TENSORS, remedy=REMEDY, error=JobError):
        # safetensors checks its header alone: a flipped bit of a weight would pass.
        if digest_of(path / TENSORS).sha256 != record["sha256"]:
            raise ValueError("its SHA-256 does not match its checksum")
        return Snapshot(load_file(path / TENSORS), record)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def optimizer_snapshot(optimizer: optim.Optimizer) -> Snapshot:
    """An optimizer's state as tensors and plain data."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {}
    for index, slots in state["state"].items():
        for name, value in slots.items():
            (tensors if isinstance(value, Tensor) else scalars)[f"optimizer/{index}/{name}"] = value
    return Snapshot(tensors, {"scalars": scalars, "groups": state["param_groups"]})


def restore_optimizer(optimizer: optim.Optimizer, snapshot: Snapshot) -> None:
    """Give an optimizer the state that `optimizer_snapshot` took."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**snapshot.tensors, **snapshot.record["scalars"]}.items():
        kind, _, path = key.partition("/")
        if kind == "optimizer":
            index, _, name = path.partition("/")
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": snapshot.record["groups"]})


def restore_weights(module: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str) -> None:
    """Copy saved weights into a module's parameters."""
    parameters = dict(module.named_parameters())
    for name, saved in tensors.items():
        if name.startswith(prefix):
            # In place: optimisers and threads hold the parameters themselves.
            parameters[name.removeprefix(prefix)].data.copy_(saved)
