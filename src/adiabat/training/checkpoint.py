"""When a run ends, where it stands, and its checkpoints, which are whole or not there and say so when they
were damaged later.
"""

import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from safetensors.torch import load_file, save_file
from torch import Tensor, nn, optim

from adiabat.core.disk import clear, fresh_folder, give_usual_mode, make_folder, move, sync
from adiabat.core.errors import JobError
from adiabat.core.files import read_json, reading, write_json
from adiabat.core.formats import FORMAT, Format, rebuilt
from adiabat.core.provenance import digest_of
from adiabat.runs.run_log import Keep, Validation, plain_faults

TENSORS, RECORD = "state.safetensors", "state.json"
KEPT = 2
"""Default number of checkpoints kept: one to resume from, and one to fall back to."""

REMEDY = "resume from an earlier checkpoint"

NEWER_STATE = "resume with the adiabat that began the run, or start again in another directory"

CHECKPOINT = Format(1, oldest=1)
"""Format of the state beside the tensors."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a run, and how often it writes.

    Attributes:
        steps_per_epoch: Optimiser steps between validations.
        max_epochs: Upper limit; None leaves it to `max_steps`.
        idle_epochs: Stop after this many consecutive epochs without improvement; None never stops early.
        max_steps: Upper limit; it may shorten the last epoch. None leaves it to `max_epochs`.
        max_seconds: Time limit of the whole run, over all resumed parts; the run ends with the first step
            after it. None sets no limit.
        ending_seconds: Time that is held back for what follows the last step, beside `max_seconds`, at the
            speed of the first validation; where validations become slower, the run ends earlier.
        is_trial: Stop after the first epoch unless it is better than the start.
        keep: Choice of the resulting weights.
        max_grad_norm: Maximum gradient norm; None does not clip.
        log_every: Steps per row of the log.
        checkpoint_seconds: Minimum time between checkpoints inside an epoch.
        keep_checkpoints: Number of checkpoints to keep; None keeps two.
        outside: Action after an epoch whose weights must not be the result (`Validation.outside`): stop with
            the best weights so far, or go back to them and continue at half the rate; None stops and keeps no
            other weights.
    """

    steps_per_epoch: int
    max_epochs: int | None
    idle_epochs: int | None
    max_steps: int | None = None
    max_seconds: float | None = None
    ending_seconds: float = 0.0
    is_trial: bool = False
    keep: Keep = "both"
    max_grad_norm: float | None = None
    log_every: int = 50
    checkpoint_seconds: float = 60.0
    keep_checkpoints: int | None = None
    outside: Literal["stop", "back"] | None = None


@dataclass
class Position:
    """State of a run, in steps taken and epochs finished; all of it is saved in a checkpoint.

    Attributes:
        idle: Epochs since the last improvement.
        best_epoch: Epoch of the best weights; 0 is the start.
        best: Its validation; None before the first.
        loss_sum: Sum of losses since the last log row.
        seconds: Time spent so far, over all resumed parts.
        flops: Operations so far, by parameters and tokens; 0 if they are not counted.
        operations: The same, counted one by one.
        rate_factor: Factor on the learning rate, halved each time the run goes back.
        outside: Why the last epoch's weights must not be the result; None if they may.
    """

    step: int = 0
    epoch: int = 0
    idle: int = 0
    best_epoch: int = 0
    best: Validation | None = None
    logged_step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    operations: float = 0.0
    rate_factor: float = 1.0
    outside: str | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any], path: Path = Path(RECORD)) -> "Position":
        """Inverse of `asdict`; `path` is the file of the record."""
        # Earlier versions judged no single queries.
        if isinstance(record.get("best"), Mapping):
            record = {**record, "best": {"scores": [], **record["best"]}}
        return rebuilt(cls, record, path, remedy=NEWER_STATE, error=JobError)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: its position and the reason. The module holds the best epoch's weights."""

    position: Position
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a run at one step: tensors by name, all other state as plain data, and the file of that
    data once it is read.
    """

    tensors: Mapping[str, Tensor]
    record: Mapping[str, Any]
    path: Path = Path(RECORD)


def write_checkpoint(folder: Path, step: int, snapshot: Snapshot, *, keep: int) -> Path:
    """Write a checkpoint and remove the oldest.

    The files are written beside their destination, flushed to disk and then renamed, so a checkpoint under
    its name is complete.
    Checkpoints of later steps are removed: they were damaged, and the run has fallen back to an earlier one.
    """
    target = folder / f"step-{step:09d}"
    partial = folder / f".partial-{step:09d}"
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in snapshot.tensors.items()}
    try:
        with plain_faults(target):
            # The job's own directory is never recreated: a checkpoint alone in it would be useless.
            make_folder(folder)
            fresh_folder(partial)
            save_file(tensors, partial / TENSORS)
            give_usual_mode(partial / TENSORS)
            digest = digest_of(partial / TENSORS).sha256
            write_json({**CHECKPOINT.stamp(), **snapshot.record, "sha256": digest}, partial / RECORD)
            # Contents first, then the names in the directory, then the new name of the directory: after a
            # power cut none precedes the other.
            for path in (partial / TENSORS, partial / RECORD, partial):
                sync(path)
            # A directory cannot be renamed onto one that is not empty: a run that fell back writes this step
            # a second time.
            clear(target)
            move(partial, target)
            sync(folder)
    finally:
        clear(partial)
    checkpoints = _checkpoints(folder)
    position = checkpoints.index(target)
    # Old ones, ones with a later step, and incomplete ones left by a killed run.
    clear(*checkpoints[:position], *checkpoints[position + keep :], *folder.glob(".partial-*"))
    return target


def has_checkpoints(folder: Path) -> bool:
    """Whether a run can be resumed from this folder, as far as names tell."""
    return bool(_checkpoints(folder))


def drop_older(folder: Path) -> None:
    """Remove all checkpoints but the newest, from which a finished run can be extended."""
    clear(*_checkpoints(folder)[1:])


def read_latest(folder: Path) -> tuple[Snapshot | None, list[str]]:
    """Read the newest undamaged checkpoint.

    Returns:
        The snapshot, or None; and a note for each damaged checkpoint that was skipped.
    """
    damaged: list[str] = []
    for path in _checkpoints(folder):
        try:
            return _read(path), [f"{fault}; falling back to the one before" for fault in damaged]
        except JobError as fault:
            damaged.append(f"checkpoint {path.name} is damaged or of another version ({fault})")
    if damaged:
        raise JobError(
            f"{folder} holds no whole checkpoint: {'; '.join(damaged)}; start again in another directory"
        )
    return None, []


def _checkpoints(folder: Path) -> list[Path]:
    """Checkpoints, newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def _read(path: Path) -> Snapshot:
    record = read_json(path / RECORD, remedy=REMEDY, error=JobError, required=False)
    CHECKPOINT.require(
        record.pop(FORMAT, CHECKPOINT.oldest), path / RECORD, older=NEWER_STATE, error=JobError
    )
    with reading(path / TENSORS, remedy=REMEDY, error=JobError):
        # safetensors checks only its header: a flipped bit of a weight would pass.
        if digest_of(path / TENSORS).sha256 != record["sha256"]:
            raise ValueError("its SHA-256 does not match its checksum")
        return Snapshot(load_file(path / TENSORS), record, path / RECORD)


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
    """Restore an optimizer's state from `optimizer_snapshot`."""
    groups = snapshot.record["groups"]
    # Torch compares the numbers of groups and weights alone.
    for saved, present in zip(groups, optimizer.param_groups, strict=True):
        if saved.keys() != present.keys():
            raise ValueError("the groups of the optimizer are others")
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**snapshot.tensors, **snapshot.record["scalars"]}.items():
        kind, _, path = key.partition("/")
        if kind == "optimizer":
            index, _, name = path.partition("/")
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def reset_optimizer(optimizer: optim.Optimizer) -> None:
    """Forget the state of an optimizer: each of ours begins with zeros."""
    # In place: a recorded step holds the tensors themselves.
    for slots in optimizer.state.values():
        for value in slots.values():
            if isinstance(value, Tensor):
                value.zero_()


def restore_weights(module: nn.Module, tensors: Mapping[str, Tensor], *, prefix: str) -> None:
    """Copy saved weights into a module's parameters."""
    parameters = dict(module.named_parameters())
    for name, saved in tensors.items():
        if name.startswith(prefix):
            # In place: optimisers and threads hold the parameters themselves.
            parameters[name.removeprefix(prefix)].data.copy_(saved)


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Within the context, the first signal is only recorded; a second one acts as usual.

    Outside the main thread, where Python allows no handlers, signals act as usual; so does a signal that the
    process was started to ignore, as the shell does with Ctrl-C for a background job.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Restore the handlers with the first signal, so that a second one ends a hanging step.
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
