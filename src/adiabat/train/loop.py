"""The one training loop: every job of adiabat that updates weights goes through it.

Read `Loop.run` first. An objective says what a step's loss is and how a validation goes; the loop knows steps, epochs, stopping, logging,
checkpoints and resuming, and nothing of queries or documents.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn, optim

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


class Objective(Protocol):
    """What a run minimises. A step must follow from the weights and its number alone, so that a resumed run repeats it."""

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
        watch: Called after each step and epoch with the position, for a progress display.
        warn: Called with one sentence where something was lost.
    """

    objective: Objective
    optimizer: optim.Optimizer
    learning_rate: float
    schedule: Schedule
    limits: Limits
    folder: Path
    log: JobLog
    watch: Callable[[Position], None] = lambda position: None
    warn: Callable[[str], None] = lambda sentence: None
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
            JobError: If a checkpoint cannot be written, or none of those there is whole.
        """
        self._clock = self._saved_at = time.monotonic()
        if not (resume and self._restore()):
            self._begin()
        with Interruption() as interruption:
            while (reason := self._reason_to_stop()) is None:
                self._step()
                if self.position.step % self.limits.steps_per_epoch == 0:
                    self._end_epoch()
                    self._save()
                elif interruption.requested or time.monotonic() - self._saved_at >= self.limits.checkpoint_seconds:
                    self._save()
                interruption.raise_if_requested(f"stopped at step {self.position.step}; run the same command with --resume to go on")
        restore_weights(self.objective.module, self._best, prefix=BEST)
        return Outcome(self.position, reason)

    def _begin(self) -> None:
        """Validate the start: what the first epoch has to beat, and the result if nothing does."""
        self.log.truncate(step=-1)
        self._keep_as_best(self.objective.validate())
        self._log_epoch(self.position.best)

    def _step(self) -> None:
        """One optimiser step."""
        position = self.position
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
        mean = float(self._loss_sum) / (position.step - position.logged_step)
        self._loss_sum.zero_()
        position.logged_step = position.step
        self.log.row(step=position.step, epoch=position.epoch, values={"loss": mean, "learning_rate": rate}, seconds=self._elapsed())

    def _end_epoch(self) -> None:
        """Validate; keep the weights where both signals fell, count an idle epoch where not."""
        position = self.position
        position.epoch += 1
        validation = self.objective.validate()
        assert position.best is not None
        if validation.improves_on(position.best):
            self._keep_as_best(validation)
        else:
            position.idle += 1
        self._log_epoch(validation)
        self.watch(position)

    def _keep_as_best(self, validation: Validation) -> None:
        position = self.position
        position.best, position.best_epoch, position.idle = validation, position.epoch, 0
        self._best = {BEST + name: weights.detach().clone() for name, weights in self._trained.items()}

    def _log_epoch(self, validation: Validation | None) -> None:
        assert validation is not None
        values = {"validation_loss": validation.loss, "validation_errors": validation.errors, "validation_pairs": validation.pairs}
        self.log.row(step=self.position.step, epoch=self.position.epoch, values=values, seconds=self._elapsed())

    def _reason_to_stop(self) -> str | None:
        position, limits = self.position, self.limits
        if position.idle >= limits.idle_epochs:
            return f"{position.idle} epochs in a row without both validation loss and errors falling"
        if position.epoch >= limits.max_epochs:
            return f"the limit of {limits.max_epochs} epochs was reached"
        return None

    def _elapsed(self) -> float:
        return self.position.seconds + time.monotonic() - self._clock

    def _save(self) -> None:
        position = self.position
        position.seconds, self._clock = self._elapsed(), time.monotonic()
        position.loss_sum = float(self._loss_sum)
        optimizer = optimizer_snapshot(self.optimizer)
        weights = {WEIGHTS + name: tensor for name, tensor in self._trained.items()}
        random = {"random/cpu": torch.get_rng_state()}
        if self._loss_sum.is_cuda:
            random["random/cuda"] = torch.cuda.get_rng_state(self._loss_sum.device)
        record = {"position": asdict(position), **optimizer.record}
        self.log.flush()
        snapshot = Snapshot({**weights, **self._best, **optimizer.tensors, **random}, record)
        write_checkpoint(self.folder, position.step, snapshot, keep=self.limits.keep_checkpoints)
        self._saved_at = time.monotonic()

    def _restore(self) -> bool:
        """Take up the newest whole checkpoint; False where there is none."""
        snapshot, damaged = read_latest(self.folder)
        for sentence in damaged:
            self.warn(sentence)
        if snapshot is None:
            return False
        self.position = Position.from_record(dict(snapshot.record["position"]))
        restore_weights(self.objective.module, snapshot.tensors, prefix=WEIGHTS)
        restore_optimizer(self.optimizer, snapshot)
        device = self._loss_sum.device
        self._best = {name: tensor.to(device) for name, tensor in snapshot.tensors.items() if name.startswith(BEST)}
        self._loss_sum.fill_(self.position.loss_sum)
        torch.set_rng_state(snapshot.tensors["random/cpu"])
        if device.type == "cuda":
            torch.cuda.set_rng_state(snapshot.tensors["random/cuda"], device)
        self.log.truncate(step=self.position.step)
        return True
