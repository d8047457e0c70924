"""The one training loop: every job of adiabat that updates weights goes through it.

Read `Loop.run` first. An objective says what a step's loss is and how a validation goes; the loop knows steps, epochs, stopping, logging,
checkpoints and resuming, and nothing of queries or documents.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn, optim

from adiabat.data.batching import step_seed
from adiabat.errors import JobError
from adiabat.model.device import device_name
from adiabat.train.checkpoint import Snapshot, optimizer_snapshot, read_latest, restore_optimizer, restore_weights, write_checkpoint
from adiabat.train.interrupt import Interruption
from adiabat.train.log import JobLog
from adiabat.train.schedules import Schedule

WEIGHTS, BEST = "weights/", "best/"


@dataclass(frozen=True, slots=True)
class Validation:
    """The two signals that must both fall for an epoch to count (mission A3).

    Attributes:
        loss: Over the validation set.
        errors: (positive, negative) pairs in the wrong order; ties are errors.
        pairs: How many pairs were looked at.
    """

    loss: float
    errors: int
    pairs: int

    def improves_on(self, best: "Validation") -> bool:
        """Whether loss **and** errors are below the best so far.

        Args:
            best: The epoch to beat.

        Returns:
            True where both fell.
        """
        return self.loss < best.loss and self.errors < best.errors


@runtime_checkable
class Objective(Protocol):
    """What a run minimises.

    A step must follow from the weights, its number and torch's random numbers (which the loop seeds anew for each step) alone, so that a
    resumed run repeats it.
    """

    @property
    def module(self) -> nn.Module:
        """Holds the parameters; those that require gradients are trained."""

    def loss(self, step: int) -> Tensor:
        """The loss of one step.

        Args:
            step: From 0.

        Returns:
            A scalar to differentiate.
        """

    def validate(self) -> Validation:
        """Loss and errors on data that is not trained on.

        Returns:
            Both, and the number of pairs.
        """


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends and how often it writes.

    Attributes:
        steps_per_epoch: Optimiser steps between validations.
        max_epochs: Upper limit.
        idle_epochs: Stop after so many epochs in a row that did not improve.
        log_every: Steps per row of the log.
        checkpoint_seconds: Least time between checkpoints inside an epoch.
        keep_checkpoints: How many are kept.
    """

    steps_per_epoch: int
    max_epochs: int
    idle_epochs: int
    log_every: int = 50
    checkpoint_seconds: float = 60.0
    keep_checkpoints: int = 2


@dataclass
class Position:
    """Where a run stands; all of it goes into a checkpoint.

    Attributes:
        step: Optimiser steps taken.
        epoch: Epochs finished.
        idle: Epochs since the last improvement.
        best_epoch: The epoch whose weights are kept; 0 is the start.
        best: Its validation; None before the first.
        logged_step: Step of the last log row.
        loss_sum: Of the steps since then.
        seconds: Spent so far, over all resumed parts.
    """

    step: int = 0
    epoch: int = 0
    idle: int = 0
    best_epoch: int = 0
    best: Validation | None = None
    logged_step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "Position":
        """Read what `asdict` wrote.

        Args:
            record: From a checkpoint.

        Returns:
            The position.
        """
        best = Validation(**record["best"]) if record["best"] else None
        return cls(**{**record, "best": best})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: where it stands and why it stopped. The module holds the best epoch's weights."""

    position: Position
    reason: str


@dataclass
class Loop:
    """Steps until a limit, the two-signal stop or an interruption.

    Attributes:
        objective: What to minimise.
        optimizer: Over the objective's trainable parameters.
        learning_rate: Peak rate; the schedule multiplies it.
        schedule: Factor by step.
        limits: When to stop and to write.
        folder: Checkpoints are written here.
        log: Rows of losses and validations.
        seed: Of torch's random numbers in each step, such as dropout's.
        watch: Called after each step and epoch with the position, for a progress display.
        note: Called with one sentence where something was lost, or nothing can be gained.
        position: Where the run stands.
    """

    objective: Objective
    optimizer: optim.Optimizer
    learning_rate: float
    schedule: Schedule
    limits: Limits
    folder: Path
    log: JobLog
    seed: int = 0
    watch: Callable[[Position], None] = lambda position: None
    note: Callable[[str], None] = lambda sentence: None
    position: Position = field(default_factory=Position, init=False)

    def __post_init__(self) -> None:
        self._trained = {name: weights for name, weights in self.objective.module.named_parameters() if weights.requires_grad}
        self._best: dict[str, Tensor] = {}
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=next(iter(self._trained.values())).device)
        self._clock = self._saved_at = time.monotonic()

    def run(self, *, resume: bool = False) -> Outcome:
        """Train, and leave the best epoch's weights in the module.

        Args:
            resume: Go on from the newest whole checkpoint where there is one.

        Returns:
            Where the run stands and why it stopped.

        Raises:
            InterruptionError: After Ctrl-C or SIGTERM, with a checkpoint written.
            JobError: If a checkpoint cannot be written, none of those there is whole, or a loss is no finite number.
        """
        self._clock = self._saved_at = time.monotonic()
        if not (resume and self._restore()):
            self._begin()
        reason = self._steps()
        restore_weights(self.objective.module, self._best, prefix=BEST)
        return Outcome(self.position, reason)

    def _steps(self) -> str:
        """Take steps until there is a reason to stop, and give it; torch's random state is afterwards as it was before."""
        device = self._loss_sum.device
        with Interruption() as interruption, torch.random.fork_rng([device] if device.type == "cuda" else []):
            while (reason := self._reason_to_stop()) is None:
                self.step()
                if self.position.step % self.limits.steps_per_epoch == 0:
                    self._end_epoch()
                    self._save()
                elif interruption.requested or time.monotonic() - self._saved_at >= self.limits.checkpoint_seconds:
                    self._save()
                interruption.raise_if_requested(f"stopped at step {self.position.step}; run the same command with --resume to go on")
        return reason

    def _begin(self) -> None:
        """Validate the start: what the first epoch has to beat, and the result if nothing does."""
        self.log.truncate(step=-1)
        validation = self._validation()
        self._keep_as_best(validation)
        self._log_epoch(validation)
        if not validation.errors:
            self.note(
                f"the start makes no error in {validation.pairs:,} validation pairs, so no epoch can improve on it and nothing is trained; "
                "validate on more or harder pairs (data.validation, data.validation_fraction, tune.negatives)"
            )

    def step(self) -> None:
        """One optimiser step.

        Raises:
            JobError: If the loss is no finite number, which is looked at when a row of the log is due.
        """
        position = self.position
        torch.manual_seed(step_seed(self.seed, position.step))
        rate = self.learning_rate * self.schedule.factor(position.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self.objective.loss(position.step)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._loss_sum += loss.detach()
        position.step += 1
        if position.step % self.limits.log_every == 0 or position.step % self.limits.steps_per_epoch == 0:
            self._log_step(rate)
        self.watch(position)

    def _log_step(self, rate: float) -> None:
        position = self.position
        mean = self._finite(float(self._loss_sum) / (position.step - position.logged_step), "training loss")
        self._loss_sum.zero_()
        position.logged_step = position.step
        self.log.row(step=position.step, epoch=position.epoch, values={"loss": mean, "learning_rate": rate}, seconds=self._elapsed())

    def _end_epoch(self) -> None:
        """Validate; keep the weights where both signals fell, count an idle epoch where not."""
        position = self.position
        position.epoch += 1
        validation = self._validation()
        if position.best is None or validation.improves_on(position.best):
            self._keep_as_best(validation)
        else:
            position.idle += 1
        self._log_epoch(validation)
        self.watch(position)

    def _keep_as_best(self, validation: Validation) -> None:
        position = self.position
        position.best, position.best_epoch, position.idle = validation, position.epoch, 0
        self._best = {BEST + name: weights.detach().clone() for name, weights in self._trained.items()}

    def _validation(self) -> Validation:
        validation = self.objective.validate()
        self._finite(validation.loss, "validation loss")
        return validation

    def _finite(self, loss: float, name: str) -> float:
        if not math.isfinite(loss):
            raise JobError(f"the {name} must be a finite number, got {loss} at step {self.position.step}; lower the learning rate")
        return loss

    def _log_epoch(self, validation: Validation) -> None:
        values = {"validation_loss": validation.loss, "validation_errors": validation.errors, "validation_pairs": validation.pairs}
        self.log.row(step=self.position.step, epoch=self.position.epoch, values=values, seconds=self._elapsed())

    def _reason_to_stop(self) -> str | None:
        position, limits = self.position, self.limits
        if position.idle >= limits.idle_epochs:
            return f"{position.idle} epochs in a row without both validation loss and errors falling"
        if position.epoch >= limits.max_epochs:
            return f"the limit of {limits.max_epochs} epochs was reached"
        if position.best and not position.best.errors:
            return "validation found no errors, so that nothing could improve any more"
        return None

    def _elapsed(self) -> float:
        return self.position.seconds + time.monotonic() - self._clock

    def _save(self) -> None:
        position = self.position
        position.seconds, self._clock = self._elapsed(), time.monotonic()
        position.loss_sum = float(self._loss_sum)
        optimizer = optimizer_snapshot(self.optimizer)
        weights = {WEIGHTS + name: tensor for name, tensor in self._trained.items()}
        record = {"position": asdict(position), "runs_on": device_name(self._loss_sum.device), **optimizer.record}
        self.log.flush()
        snapshot = Snapshot({**weights, **self._best, **optimizer.tensors}, record)
        write_checkpoint(self.folder, position.step, snapshot, keep=self.limits.keep_checkpoints)
        self._saved_at = time.monotonic()

    def _restore(self) -> bool:
        """Take up the newest whole checkpoint; False where there is none."""
        snapshot, damaged = read_latest(self.folder)
        for sentence in damaged:
            self.note(sentence)
        if snapshot is None:
            return False
        self.position = Position.from_record(dict(snapshot.record["position"]))
        before, now = snapshot.record.get("runs_on"), device_name(self._loss_sum.device)
        if before not in (None, now):
            self.note(f"the run so far was on {before}, it goes on with {now}: the last digits will differ from a run that never stopped")
        restore_weights(self.objective.module, snapshot.tensors, prefix=WEIGHTS)
        restore_optimizer(self.optimizer, snapshot)
        device = self._loss_sum.device
        self._best = {name: tensor.to(device) for name, tensor in snapshot.tensors.items() if name.startswith(BEST)}
        self._loss_sum.fill_(self.position.loss_sum)
        self.log.truncate(step=self.position.step)
        return True
