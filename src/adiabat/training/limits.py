"""When a run ends: steps, epochs, validations, Ctrl-C and SIGTERM. Plain data that goes into checkpoints."""

import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from adiabat.core.errors import JobError

Keep = Literal["both", "loss", "last"]
"""Which weights are the result: of the epoch that had both signals lowest, or the loss lowest, or of the last one."""


@dataclass(frozen=True, slots=True)
class Validation:
    """What a validation found.

    Attributes:
        loss: Over the validation set.
        errors: (positive, negative) pairs in the wrong order, or queries whose first document is wrong; ties are errors.
        pairs: How many pairs, or queries, were looked at.
        measures: Further figures, for the log.
        outside: Why these weights must not be the result, such as a drift that is too large; None where they may.
    """

    loss: float
    errors: int
    pairs: int
    measures: Mapping[str, float] = field(default_factory=dict)
    outside: str | None = None

    def improves_on(self, best: "Validation", *, keep: Keep) -> bool:
        """Whether an epoch's weights take the place of the best so far."""
        if self.outside is not None:
            return False
        if keep == "last":
            return True
        # Strictly: an equal epoch is idle, and a NaN never improves.
        return self.loss < best.loss and (keep == "loss" or self.errors < best.errors)


def idle_counts(rows: Iterable[Mapping[str, Any]], *, keep: Keep) -> list[int]:
    """How many epochs had passed since the last improvement, after the start and after each epoch of a log."""
    counts: list[int] = []
    best: Validation | None = None
    for row in (row for row in rows if "validation_loss" in row):
        validation = Validation(row["validation_loss"], row["validation_errors"], row["validation_pairs"])
        improved = best is None or validation.improves_on(best, keep=keep)
        best = validation if improved else best
        counts.append(0 if improved else counts[-1] + 1)
    return counts


def least_idle(counts: Sequence[int]) -> int:
    """The least limit of idle epochs with which a run would have come as far as it is."""
    return max([counts[-1], *(count + 1 for count in counts[:-1])])


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends and how often it writes.

    Attributes:
        steps_per_epoch: Optimiser steps between validations.
        max_epochs: Upper limit; None leaves it to `max_steps`.
        idle_epochs: Stop after so many epochs in a row that did not improve; None goes on.
        max_steps: Upper limit; the last epoch may be shorter for it. None leaves it to `max_epochs`.
        max_seconds: Of the whole run, over all resumed parts; it ends with the first step after them. None sets no limit.
        keep: Which weights are the result.
        max_grad_norm: Gradients are scaled down to this norm; None leaves them.
        log_every: Steps per row of the log.
        checkpoint_seconds: Least time between checkpoints inside an epoch.
        keep_checkpoints: How many are kept; None keeps two.
        outside: What follows an epoch whose weights must not be the result (`Validation.outside`): the run stops with the best weights so
            far, or goes back to them, and on at half the rate; None stops, and keeps no others for it.
    """

    steps_per_epoch: int
    max_epochs: int | None
    idle_epochs: int | None
    max_steps: int | None = None
    max_seconds: float | None = None
    keep: Keep = "both"
    max_grad_norm: float | None = None
    log_every: int = 50
    checkpoint_seconds: float = 60.0
    keep_checkpoints: int | None = None
    outside: Literal["stop", "back"] | None = None


@dataclass
class Position:
    """Where a run stands, in steps taken and epochs finished; all of it goes into a checkpoint.

    Attributes:
        idle: Epochs since the last improvement.
        best_epoch: The epoch whose weights are kept; 0 is the start.
        best: Its validation; None before the first.
        loss_sum: Of the steps since the last log row.
        seconds: Spent so far, over all resumed parts.
        flops: Operations so far, by parameters and tokens; 0 where nobody counts them.
        operations: The same, counted one by one.
        rate_factor: On the learning rate: a half for each time the run went back.
        outside: Why the last epoch's weights must not be the result; None where they may.
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
    def from_record(cls, record: dict[str, Any]) -> "Position":
        """Read what `asdict` wrote."""
        best = Validation(**record["best"]) if record["best"] else None
        return cls(**{**record, "best": best})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: where it stands and why it stopped. The module holds the best epoch's weights."""

    position: Position
    reason: str


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptionError(JobError):
    """A run was asked to stop and has written what it takes to go on."""


class Interruption:
    """While entered, the first signal is only noted; a second one acts as it always does.

    Outside the main thread, where Python allows no handlers, signals keep their ordinary meaning; so does a signal that the process was
    started to ignore, as the shell does with Ctrl-C for a job in the background.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            heeded = [number for number in SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Handlers come back with the first signal, so that a second one ends a step that hangs.
        self.requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
