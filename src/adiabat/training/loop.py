"""The one training loop: every job of adiabat that updates weights goes through it.

Read `Loop.run` first. An objective defines the loss of a step and the validation; the loop handles steps,
epochs, stopping, logging, checkpoints and resuming, and knows nothing about queries or documents.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn, optim

from adiabat.core.errors import DivergedError, InterruptionError, JobError, several
from adiabat.core.formats import layout_of
from adiabat.core.progress import ignored
from adiabat.core.text import numbered
from adiabat.core.wording import again
from adiabat.data.batch_sampler import step_seed
from adiabat.models.device import device_name, retried
from adiabat.runs.run_log import IDLE, JobLog, Validation
from adiabat.scaling_laws.flops import Cost
from adiabat.training.captured_step import CapturedSteps, CaptureError
from adiabat.training.checkpoint import (
    KEPT,
    NEWER_STATE,
    Interruption,
    Limits,
    Outcome,
    Position,
    Snapshot,
    has_checkpoints,
    optimizer_snapshot,
    read_latest,
    reset_optimizer,
    restore_optimizer,
    restore_weights,
    write_checkpoint,
)
from adiabat.training.distributed import ALONE, Processes
from adiabat.training.optimizers import Schedule


@runtime_checkable
class Objective(Protocol):
    """The objective of a run.

    A step must depend only on the weights, its number and torch's random numbers (which the loop reseeds for
    each step), so that a resumed run repeats it.
    """

    @property
    def module(self) -> nn.Module:
        """Holds the parameters; those that require gradients are trained."""

    def loss(self, step: int) -> Tensor:
        """The loss of one step."""

    def validate(self) -> Validation:
        """Loss and errors on held-out data."""

    def batch_ids(self, step: int) -> list[str]:
        """Description of a step's data, for the message if it fails."""


WEIGHTS, BEST = "weights/", "best/"


def drawing_apart(device: torch.device) -> AbstractContextManager[None]:
    """A context in which steps may seed torch's generators; afterwards the random state is the caller's."""
    return torch.random.fork_rng([device] if device.type == "cuda" else [])


LOWER_RATE = "lower the learning rate and start again"


@dataclass
class Loop:
    """Steps until a limit, early stopping or an interruption.

    Attributes:
        learning_rate: Peak rate; the schedule multiplies it.
        folder: Directory of checkpoints.
        seed: Seed of torch's random numbers in each step, such as dropout's.
        watch: Called after each step and epoch with the position, for a progress display.
        note: Called with a note when something is lost, or training is pointless.
        figures: Further numbers of a step for the log, such as a learned temperature.
        saving: Called in every process before each checkpoint, to save state of the objective other than
            weights.
        ending: Called with the number of steps when no limit is reached; returns why the data end the run
            there, or None.
        cost: Cost of a step by its number, summed in `Position.flops` and `Position.operations`.
        processes: Processes that train together; each has a part of every batch, and the main one writes.
        relieve: Called when a step ran out of a GPU's memory, before it is repeated: makes passes smaller and
            returns a note, or None if it cannot.
        captured: Takes the steps by recorded graphs, with losses that are looked at only where the device is
            waited for anyway; None takes them operation by operation.
        position: State of the run.
    """

    objective: Objective
    optimizer: optim.Optimizer
    learning_rate: float
    schedule: Schedule
    limits: Limits
    folder: Path
    log: JobLog
    seed: int = 0
    watch: Callable[[Position], None] = ignored
    note: Callable[[str], None] = ignored
    figures: Callable[[], Mapping[str, float]] = dict
    saving: Callable[[], None] = ignored
    ending: Callable[[int], str | None] = ignored
    cost: Callable[[int], Cost] = lambda step: Cost(0.0, 0.0)
    processes: Processes = ALONE
    relieve: Callable[[], str | None] = ignored
    captured: CapturedSteps | None = None
    position: Position = field(default_factory=Position, init=False)

    def __post_init__(self) -> None:
        if self.captured is not None and (self.limits.max_grad_norm is not None or self.processes.count > 1):
            raise ValueError(
                "captured steps must have the whole batch and no limit of the gradient; "
                "leave out max_grad_norm and processes"
            )
        self._trained = {
            name: weights
            for name, weights in self.objective.module.named_parameters()
            if weights.requires_grad
        }
        self._best: dict[str, Tensor] = {}
        self._loss_sum = torch.zeros(
            (), dtype=torch.float64, device=next(iter(self._trained.values())).device
        )
        self._clock = self._saved_at = time.monotonic()
        self._late = False
        # Of the first and of the last validation of this process.
        self._validation_seconds: tuple[float, float] | None = None

    def run(self, *, resume: bool = False) -> Outcome:
        """Train, and leave the best epoch's weights in the module."""
        try:
            self.start(resume=resume)
            with Interruption() as interruption, drawing_apart(self.device):
                while (reason := self.advance(interruption)) is None:
                    pass
        finally:
            self.close()
        return self.finish(reason)

    def close(self) -> None:
        """Close the log and release recorded steps."""
        self.log.close()
        if self.captured is not None:
            self.captured.close()

    def finish(self, reason: str) -> Outcome:
        """Leave the best epoch's weights in the module; if the last weights are the result, none were kept
        and none are restored.
        """
        restore_weights(self.objective.module, self._best, prefix=BEST)
        return Outcome(self.position, reason)

    def start(self, *, resume: bool) -> None:
        """Restore a checkpoint, or validate the initial weights for comparison with the first epoch."""
        self._clock = self._saved_at = time.monotonic()
        if not (resume and self._restore()):
            self._begin()
        self._require_together()
        self._look_at_the_clock()

    def advance(self, interruption: Interruption | None = None) -> str | None:
        """Take a step and what follows it; returns the reason to stop, if there is one."""
        reason = self._reason_to_stop()
        if reason is None:
            self.step()
            self._rest(stopping=self.processes.any(interruption is not None and interruption.requested))
        return reason

    @contextmanager
    def on_the_clock(self) -> Iterator[None]:
        """Within the context, the time of the run goes on; outside it stands still, while other runs take
        their turn.
        """
        self._clock = time.monotonic()
        try:
            yield
        finally:
            self.position.seconds, self._clock = self._elapsed(), time.monotonic()

    def _rest(self, *, stopping: bool) -> None:
        """Work between two steps: the end of an epoch, and a checkpoint at that point or when one is due."""
        # A checkpoint after each validation: the best epoch is never lost to a kill.
        if self._at_an_end():
            self._end_epoch()
            self.save()
        elif stopping or self._save_is_due():
            self.save()
        if stopping:
            raise InterruptionError(f"stopped at step {self.position.step}; {again(resume=True)} to continue")

    @property
    def device(self) -> torch.device:
        """Device of the trained weights."""
        return self._loss_sum.device

    def _require_together(self) -> None:
        """Refuse processes that start at different steps, for example because they see different disks; then
        broadcast the weights.
        """
        steps = set(
            self.processes.gather_numbers(torch.tensor([self.position.step], device=self.device)).tolist()
        )
        if len(steps) > 1:
            raise JobError(
                f"every process must start at the same step, got {sorted(steps)}; "
                "put the job on a shared disk"
            )
        self.processes.broadcast(self._trained.values())

    def _save_is_due(self) -> bool:
        """Whether the main process finds a checkpoint due, so that all save at the same step."""
        return self.processes.any(
            self.processes.is_main and time.monotonic() - self._saved_at >= self.limits.checkpoint_seconds
        )

    def _begin(self) -> None:
        """Validate the initial weights, which are the result if no epoch is better."""
        self.log.truncate(step=-1)
        validation = self._validation()
        self._keep_as_best(validation)
        self._log_epoch(validation)
        if not validation.errors and self.limits.keep == "both":
            self.note(
                f"the initial model makes no error in {validation.pairs:,} validation pairs, so no epoch can "
                "improve on it and nothing is trained; validate on more pairs, or harder ones"
            )

    def step(self) -> None:
        """One optimiser step."""
        position = self.position
        # The rate follows from the step's number, so that a resumed run needs no state of the schedule.
        rate = self.learning_rate * position.rate_factor * self.schedule.factor(position.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # In 64 bits, and on the device: a step must not wait for the loss to reach the CPU more often than an
        # eager one checks it.
        self._loss_sum += self._take(rate)
        spent = self.cost(position.step)
        position.flops += spent.flops
        position.operations += spent.operations
        position.step += 1
        self._look_at_the_clock()
        if position.step % self.limits.log_every == 0 or self._at_an_end():
            self._log_step(rate)
        self.watch(position)

    def _take(self, rate: float) -> Tensor:
        """Take a step by its graph, or else operation by operation; returns its loss."""
        step = self.position.step
        if self.captured is not None:
            try:
                return self.captured.take(step, rate)
            except CaptureError as fault:
                self._require_sound_so_far()
                self.note(str(fault))
                self.captured = None
        # The gradients are there then.
        loss = retried(partial(self._passed, step), self._relieved)
        # Before clipping, whose norm is that of the averaged gradient.
        self.processes.average_gradients(self._trained.values())
        loss = self.processes.mean(loss)
        self._require_sound(loss)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def _relieved(self) -> bool:
        """Make the passes of a step smaller, after a shortage of a GPU's memory; False if that cannot be."""
        # Other processes would wait for this one in the middle of a step.
        alone = self.device.type == "cuda" and self.processes.count == 1
        note = self.relieve() if alone else None
        if note is not None:
            self.note(note)
            self.optimizer.zero_grad(set_to_none=True)
        return note is not None

    def _passed(self, step: int) -> Tensor:
        # Texts of different processes draw different dropout.
        torch.manual_seed((step_seed(self.seed, step) + self.processes.rank) % 2**64)
        loss = self.objective.loss(step)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def _look_at_the_clock(self) -> None:
        """Check the time limit, in all processes at the same step."""
        if (limit := self.limits.max_seconds) is not None:
            ending_slowed_by = (self._slowdown() - 1) * self.limits.ending_seconds
            self._late = self.processes.any(self._elapsed() + ending_slowed_by >= limit)

    def _slowdown(self) -> float:
        """Time of the last validation as a multiple of the first one's, at least 1."""
        if self._validation_seconds is None:
            return 1.0
        first, last = self._validation_seconds
        return max(1.0, last / first)

    def _log_step(self, rate: float) -> None:
        self._require_sound_so_far()
        position = self.position
        mean = float(self._loss_sum) / (position.step - position.logged_step)
        self._loss_sum.zero_()
        position.logged_step = position.step
        values = {"loss": mean, "learning_rate": rate, **self.figures()}
        self.log.row(step=position.step, epoch=position.epoch, values=values, seconds=self._elapsed())

    def _end_epoch(self) -> None:
        """Validate; keep the weights if both signals improved, otherwise count an idle epoch."""
        self._require_sound_so_far()
        position = self.position
        position.epoch += 1
        validation = self._validation()
        if position.best is None or validation.improves_on(position.best, keep=self.limits.keep):
            self._keep_as_best(validation)
        else:
            position.idle += 1
        if validation.outside is not None:
            self._leave(validation.outside)
        self._log_epoch(validation)
        self.watch(position)

    def _keep_as_best(self, validation: Validation) -> None:
        position = self.position
        position.best, position.best_epoch, position.idle = validation, position.epoch, 0
        # The best weights are also needed if a run may have to go back to them.
        if self.limits.keep != "last" or self.limits.outside is not None:
            self._best = {BEST + name: weights.detach().clone() for name, weights in self._trained.items()}

    def _leave(self, why: str) -> None:
        """Go back from weights outside the limit, or stop there."""
        position = self.position
        if self.limits.outside != "back":
            position.outside = why
            return
        restore_weights(self.objective.module, self._best, prefix=BEST)
        # The optimizer's state belongs to other weights.
        reset_optimizer(self.optimizer)
        position.rate_factor /= 2
        self.note(
            f"{why}: restored the weights of epoch {position.best_epoch}; continuing at "
            f"{position.rate_factor:g} of the learning rate"
        )

    def _validation(self) -> Validation:
        begun = time.monotonic()
        validation = self.objective.validate()
        seconds = time.monotonic() - begun
        first = seconds if self._validation_seconds is None else self._validation_seconds[0]
        self._validation_seconds = first, seconds
        if not math.isfinite(validation.loss):
            step = self.position.step
            advice = (
                f"{LOWER_RATE}; earlier checkpoints are in {self.folder}"
                if step
                else "check the model's weights"
            )
            raise DivergedError(
                f"the validation loss must be a finite number, got {validation.loss} at step {step}", advice
            )
        return validation

    def _require_sound(self, loss: Tensor) -> None:
        """Raise before a non-finite loss or gradient spoils the weights."""
        value, name = float(loss), "training loss"
        if math.isfinite(value) and self.limits.max_grad_norm is not None:
            norm = nn.utils.clip_grad_norm_(self._trained.values(), self.limits.max_grad_norm)
            value, name = float(norm), "norm of the gradient"
        if math.isfinite(value):
            return
        # Keep one more than usual, because these weights may be the faulty ones.
        self.save(spare=1)
        raise self._diverged(name, value)

    def _require_sound_so_far(self) -> None:
        """Raise after captured steps with a non-finite loss, whose weights must not be used; earlier
        checkpoints stay.
        """
        fault = None if self.captured is None else self.captured.fault()
        if fault is not None:
            self.position.step, value = fault
            raise self._diverged("training loss", value)

    def _diverged(self, name: str, value: float) -> DivergedError:
        step = self.position.step
        ids = several(self.objective.batch_ids(step), of="queries", shown=5)
        saved = f"; earlier weights are in {self.folder}" if has_checkpoints(self.folder) else ""
        return DivergedError(
            f"the {name} must be a finite number, got {value} at step {step} ({ids})",
            f"{LOWER_RATE}, or check these texts{saved}",
        )

    def _at_an_end(self) -> bool:
        """Whether an epoch ends here."""
        step = self.position.step
        return (
            step % self.limits.steps_per_epoch == 0
            or step == self.limits.max_steps
            or self._late
            or self.ending(step) is not None
        )

    def _log_epoch(self, validation: Validation) -> None:
        values = {
            "validation_loss": validation.loss,
            "validation_errors": validation.errors,
            "validation_pairs": validation.pairs,
        }
        values |= {f"validation_{name}": value for name, value in validation.measures.items()}
        if self.limits.keep == "ranking":
            values[IDLE] = self.position.idle
        self.log.row(
            step=self.position.step, epoch=self.position.epoch, values=values, seconds=self._elapsed()
        )

    def _reason_to_stop(self) -> str | None:
        """Reason for the run to end here; None if it continues."""
        position, limits = self.position, self.limits
        if position.outside is not None:
            return f"{position.outside}; the weights of epoch {position.best_epoch} are kept"
        if limits.is_trial and position.epoch and not position.best_epoch:
            return "the first epoch was a trial, and no better than the start"
        if limits.idle_epochs is not None and position.idle >= limits.idle_epochs:
            idle = f"{position.idle} {numbered('epoch', position.idle)} in a row"
            if limits.keep == "ranking":
                return f"{idle} without a better ranking of the validation queries"
            lower = "both validation loss and errors" if limits.keep == "both" else "the validation loss"
            return f"{idle} without {lower} falling"
        if limits.max_epochs is not None and position.epoch >= limits.max_epochs:
            return f"the limit of {limits.max_epochs} {numbered('epoch', limits.max_epochs)} was reached"
        if limits.max_steps is not None and position.step >= limits.max_steps:
            return f"the limit of {limits.max_steps:,} {numbered('step', limits.max_steps)} was reached"
        if limits.max_seconds is not None and self._late:
            # Its length would be what the search for a rate, and the end of the job, left of the one that was
            # stated.
            return "the time limit was reached"
        if limits.keep == "both" and position.best and not position.best.errors:
            return "validation found no errors, so nothing could improve"
        return self.ending(position.step)

    def _elapsed(self) -> float:
        return self.position.seconds + time.monotonic() - self._clock

    def _surroundings(self) -> str:
        count = self.processes.count
        return device_name(self.device) + (f", {count} processes" if count > 1 else "")

    def save(self, *, spare: int = 0) -> None:
        """Write a checkpoint."""
        self._require_sound_so_far()
        position = self.position
        position.seconds, self._clock = self._elapsed(), time.monotonic()
        self.saving()
        if not self.processes.is_main:
            self._saved_at = time.monotonic()
            return
        # The mean since the last log row continues after a resume as without interruption.
        position.loss_sum = float(self._loss_sum)
        optimizer = optimizer_snapshot(self.optimizer)
        weights = {WEIGHTS + name: tensor for name, tensor in self._trained.items()}
        record = {
            "position": asdict(position),
            "runs_on": self._surroundings(),
            "log": self.log.checksum,
            **optimizer.record,
        }
        # Write rows to disk before the checkpoint that refers to them.
        self.log.flush()
        snapshot = Snapshot({**weights, **self._best, **optimizer.tensors}, record)
        write_checkpoint(
            self.folder, position.step, snapshot, keep=(self.limits.keep_checkpoints or KEPT) + spare
        )
        self._saved_at = time.monotonic()

    def _restore(self) -> bool:
        """Restore the newest undamaged checkpoint; False if there is none."""
        snapshot, damaged = read_latest(self.folder)
        for sentence in damaged:
            self.note(sentence)
        if snapshot is None:
            return False
        record, file = snapshot.record, snapshot.path
        with layout_of(file, remedy=NEWER_STATE, error=JobError):
            self.position = Position.from_record(record["position"], file)
            if lacking := sorted(name for name in self._trained if WEIGHTS + name not in snapshot.tensors):
                raise LookupError(f"no weights of {lacking[0]}")
            restore_weights(self.objective.module, snapshot.tensors, prefix=WEIGHTS)
            restore_optimizer(self.optimizer, snapshot)
        before, now = record.get("runs_on"), self._surroundings()
        if before not in (None, now):
            self.note(
                f"the run so far used {before} and continues on {now}: the last digits "
                "will differ from an uninterrupted run"
            )
        self._best = {
            name: tensor.to(self.device) for name, tensor in snapshot.tensors.items() if name.startswith(BEST)
        }
        self._loss_sum.fill_(self.position.loss_sum)
        # Rows after the checkpoint belong to steps that will be repeated.
        self.log.truncate(step=self.position.step, checksum=snapshot.record.get("log"))
        return True
