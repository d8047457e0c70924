"""When a run ends, and its learning rate at each optimizer step: schedules are pure functions of the step (Vasilyev et al. 2024).

A factor multiplies the peak learning rate. Step 0 is the first update. Every schedule may begin with a linear warm-up, and its own curve
starts where the warm-up ends.
"""

import math
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Literal, Self

from adiabat.config.section import ScalingRule, ScheduleName
from adiabat.config.training_choices import Schedule as ScheduleChoice
from adiabat.core.errors import ConfigError, JobError

ENDING: tuple[ScheduleName, ...] = ("linear", "quadratic", "cosine")
"""Schedules that come down to a final fraction at a last step, which they must therefore know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule with its lengths; the settings check the ranges of its numbers.

    Attributes:
        name: Which curve; see `factor`.
        total_steps: Optimiser steps of the whole run, warm-up included; None where the run's end is not known, which ``linear``,
            ``quadratic`` and ``cosine`` do not allow. Later steps get the last factor.
        steps_per_epoch: Optimiser steps of an epoch, >= 1. Read by ``exponential``.
        gamma: Factor per epoch, in (0, 1]. Read by ``exponential``.
        warmup_steps: The first ``W`` updates get the factors ``1/W, 2/W, ... 1``; 0 for none. See `warmup_steps_of`.
        final_fraction: Share of the peak at the end, in [0, 1]. Read by ``linear``, ``quadratic`` and ``cosine``.
    """

    name: ScheduleName = "constant"
    total_steps: int | None = None
    steps_per_epoch: int = 1000
    gamma: float = 0.95
    warmup_steps: int = 0
    final_fraction: float = 0.0

    def __post_init__(self) -> None:
        if self.total_steps is None and self.name in ENDING:
            raise ConfigError(f"total_steps must be given for the {self.name} schedule, got none; say how long the run is")
        if self.total_steps is not None and self.warmup_steps > self.total_steps:
            raise ConfigError(f"warmup_steps must be at most total_steps, {self.total_steps}, got {self.warmup_steps}")

    def factor(self, step: int) -> float:
        """Share of the peak learning rate for one update, in [0, 1].

        With ``t`` updates since the warm-up, ``p = min(1, t / (T - W))``, ``f`` the final fraction and ``g`` gamma: ``constant: 1``;
        ``linear: f + (1 - f) (1 - p)``; ``quadratic: f + (1 - f) (1 - p^2)``; ``cosine: f + (1 - f) (1 + cos(pi p)) / 2``;
        ``exponential: g^e`` with ``e`` the whole epochs in ``t``. So the last update of ``linear`` still moves.

        Args:
            step: Optimiser steps already taken, >= 0: 0 for the first update.

        Reference:
            Vasilyev et al. 2024 (``a0 (1 - t/T)``, ``a0 (1 - (t/T)^2)``, ``a0 g^t``); Loshchilov and Hutter 2017 (cosine).
        """
        if step < 0:
            raise ValueError(f"step must be 0 or more, got {step}; the first update has step 0")
        if step < self.warmup_steps:
            # From 1/W and not from 0: an update that moves nothing would be a batch lost.
            return (step + 1) / self.warmup_steps
        since = step - self.warmup_steps
        if self.name == "exponential":
            return float(self.gamma ** (since // self.steps_per_epoch))
        share = min(since / max(1, self.total_steps - self.warmup_steps), 1.0) if self.total_steps else 0.0
        if self.name == "linear":
            curve = 1.0 - share
        elif self.name == "quadratic":
            curve = 1.0 - share**2
        elif self.name == "cosine":
            curve = (1.0 + math.cos(math.pi * share)) / 2
        else:
            return 1.0
        return self.final_fraction + (1.0 - self.final_fraction) * curve


def schedule_from(choice: ScheduleChoice, *, total_steps: int | None, steps_per_epoch: int, warmup_steps: int) -> Schedule:
    """The schedule that settings choose, with the lengths of a run."""
    shape = choice.model_dump()
    return Schedule(name=shape.pop("kind"), total_steps=total_steps, steps_per_epoch=steps_per_epoch, warmup_steps=warmup_steps, **shape)


def warmup_steps_of(fraction: float, *, total_steps: int) -> int:
    """Steps of a warm-up that takes a share of the run, rounded up."""
    # The small subtraction keeps 0.1 * 30 = 3.0000000000000004 from becoming 4.
    return math.ceil(fraction * total_steps - 1e-9)


def scaled_learning_rate(rate: float, *, batch_size: int, reference_batch_size: int, rule: ScalingRule) -> float:
    """Learning rate for a batch size, from a pair of batch size and rate known to be good.

    ``none: a``; ``linear: a B / B0``; ``sqrt: a sqrt(B / B0)``.

    Args:
        rate: ``a``, the rate that goes with the reference batch size, > 0.
        batch_size: ``B``, queries per optimiser step, >= 1.
        reference_batch_size: ``B0``, >= 1.
        rule: How the rate follows the batch size.

    Reference:
        Goyal et al. 2017 (linear); Krizhevsky 2014 (square root); Vasilyev et al. 2024.
    """
    ratio = batch_size / reference_batch_size
    return rate * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[rule]


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
