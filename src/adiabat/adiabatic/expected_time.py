"""The expected time of a whole tuning job, from a short timing of real steps and of validation on this
machine.
"""

import math
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch

from adiabat.adiabatic.choice import seconds_to_choose
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.adiabatic.tuning_loop import captured_steps, optimizer_of
from adiabat.config.faults import PlacedError
from adiabat.config.tuning import RateSearchSection, TuneSettings
from adiabat.core.errors import ConfigError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.text import NO_BREAK, duration
from adiabat.core.wording import option
from adiabat.models.device import device_name, device_of
from adiabat.training.captured_step import CapturedSteps, CaptureError
from adiabat.training.passes import side_passes
from adiabat.training.time_limit import seconds_of, seconds_since, writing_time

TIMED_STEPS, TIMED_SECONDS = 10, 5.0
"""Steps that are timed, after one that sets things up; fewer if they take longer than these seconds."""

TIMED_QUERIES = 128
"""Validation queries that are timed; the time grows in proportion to their number."""

SHORT_JOB = 10.0
"""Seconds of a job whose time a single step estimates well enough."""

RANKED_AT_THE_END = 1_000
"""Validation queries that the end of a job ranks at most, by two towers (`evaluation.set_power`)."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured speed of a tuning job.

    Attributes:
        step_seconds: Time of an optimizer step.
        validation_seconds: Time of a validation, with its drift measurement.
        drift_seconds: Time of the drift measurement alone.
        setup_seconds: Time of preparing a trial of the rate search: a copy of the tower, and what only its
            first step does.
        saving_seconds: Time of a checkpoint.
        ending_seconds: Time from the moment that a time limit ends the steps until the page is written:
            validation, checkpoint, choice among candidates, power, model and page.
    """

    step_seconds: float
    validation_seconds: float
    drift_seconds: float
    device: str
    setup_seconds: float = 0.0
    saving_seconds: float = 0.0
    ending_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """The expected time of a tuning job.

    Attributes:
        step_seconds: Mean time of an optimizer step.
        validation_seconds: Time of a validation, including the measurement of drift if there is a guard.
        search_seconds: Time of the search for a learning rate; 0 without a search.
        steps_per_epoch: Steps between validations; there is also a validation before the first step.
        least_steps: Steps of a run that never improves, and so stops as early as it can.
        most_steps: Steps of a run that stops at `tune.max_epochs`.
        device: Device of the measurement.
        may_stop: Whether the guard stops the run where it exceeds the drift limit, perhaps before
            `least_steps`.
    """

    step_seconds: float
    validation_seconds: float
    search_seconds: float
    steps_per_epoch: int
    least_steps: int
    most_steps: int
    device: str
    may_stop: bool = False

    @property
    def least_seconds(self) -> float:
        """Time of the whole job if it stops as early as it can."""
        return self.search_seconds + self._run_seconds(self.least_steps)

    @property
    def most_seconds(self) -> float:
        """Time of the whole job if it takes all its epochs."""
        return self.search_seconds + self._run_seconds(self.most_steps)

    def _run_seconds(self, steps: int) -> float:
        return steps * self.step_seconds + (1 + -(-steps // self.steps_per_epoch)) * self.validation_seconds

    def summary(self) -> str:
        """The expected time in one line."""
        length = f"{duration(self.most_seconds)} ({self.most_steps:,} steps)"
        if self.least_steps < self.most_steps:
            least = f"{duration(self.least_seconds)} ({self.least_steps:,} steps) if nothing improves"
            if self.may_stop:
                least += ", or less if the drift limit stops the run"
            length = f"at least {least}, at most {length}"
        if self.search_seconds:
            length += f", including about {duration(self.search_seconds)} for the learning-rate search"
        line = (
            f"expected time: {length}; a step takes {self.step_seconds:.2g} s and "
            f"a validation {self.validation_seconds:.2g} s on {self.device}"
        )
        return line.replace(NO_BREAK, " ")


def expected_time(context: TuningContext, settings: TuneSettings, *, watch: Watch = SILENT) -> ExpectedTime:
    """Time a few real steps and a validation on a copy of the tower, and extrapolate to the whole job.

    With `tune.budget_seconds`, the job is the one that `fitted` makes of the settings.

    The seconds are those of optimizer steps and validations: ``search + steps step_seconds + (1 + epochs)
    validation_seconds``, without reading data, mining validation negatives and writing checkpoints. The
    guard's stop and a validation without errors can end a job
    earlier. The job itself is not changed: weights and random numbers are as before.

    The tests check the extrapolation on a clock of their own: steps, validations of a sample, and the runs of
    a search.

    Args:
        context: Model, store and data of the job.
        settings: Its settings.
        watch: Receives the progress of the measurement.

    Returns:
        The expected time.

    Raises:
        AdiabatError: If model, store, data and settings do not fit together.
    """
    started = time.monotonic()
    pace = measured_pace(context, settings, started=started, watch=watch)
    return time_at(pace, fitted(settings, pace, spent=seconds_since(started)))


def time_at(pace: Pace, settings: TuneSettings) -> ExpectedTime:
    """The expected time of a job at a known speed."""
    least, most = _lengths(settings)
    guard = settings.watched
    return ExpectedTime(
        step_seconds=pace.step_seconds,
        validation_seconds=pace.validation_seconds,
        search_seconds=_search_seconds(settings, pace),
        steps_per_epoch=settings.tune.batches_per_epoch,
        least_steps=least,
        most_steps=most,
        device=pace.device,
        may_stop=guard is not None and guard.limit is not None and guard.action == "stop",
    )


def measured_pace(
    context: TuningContext, settings: TuneSettings, *, started: float | None = None, watch: Watch = SILENT
) -> Pace:
    """Time a few real steps and a validation, without changing anything that the job uses.

    A time limit that counts from `started`, by default from now, and cannot hold even the fewest steps is
    refused after two of them, before the texts of validations and of rehearsal are embedded.
    """
    started = time.monotonic() if started is None else started
    start = context.model.query
    device = device_of(settings.run.device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        pace = _pace_of_steps(context, settings, started, watch)
        # Not the tower of the steps: validation negatives are mined once, with the untuned weights.
        tower, _ = prepared_tower(start, settings)
        objective = context.objective(tower, settings, most_validated=TIMED_QUERIES)
        with side_passes(tower, precision=settings.run.precision) as objective.passes:
            drift_seconds = seconds_of(lambda: objective.guard and objective.guard.look(tower), device)
            each = seconds_of(replace(objective, guard=None).validate, device) / len(objective.validation)
            choosing_seconds = 0.0
            if objective.judged is not None:
                encoding = seconds_of(partial(objective.judged.vectors, tower), device)
                encoding /= len(objective.validation)
                choosing_seconds = seconds_to_choose(context.judges(settings, objective), encoding, device)
    validated = len(context.examples(settings.data)[1])
    validation_seconds = each * validated + drift_seconds
    ranking_seconds = 2 * each * min(validated, RANKED_AT_THE_END)
    ending_seconds = sum(
        (
            validation_seconds,
            pace.saving_seconds,
            choosing_seconds,
            ranking_seconds,
            pace.ending_seconds,
        )
    )
    return replace(
        pace,
        validation_seconds=validation_seconds,
        drift_seconds=drift_seconds,
        ending_seconds=ending_seconds,
    )


def _pace_of_steps(context: TuningContext, settings: TuneSettings, started: float, watch: Watch) -> Pace:
    """The speed of steps and of writing, without validations."""
    start, begun = context.model.query, time.monotonic()
    tower, _ = prepared_tower(start, settings)
    setup_seconds = seconds_since(begun)
    objective = context.objective(tower, settings, steps_alone=True)
    writing = writing_time([tower])
    device = device_name(tower.device)
    pace = Pace(0.0, 0.0, 0.0, device, saving_seconds=writing.checkpoint, ending_seconds=writing.ending)
    pace = replace(pace, setup_seconds=setup_seconds)

    def require_time(step_seconds: float) -> None:
        stepping = replace(pace, step_seconds=step_seconds)
        _require_time(context, settings, stepping, spent=seconds_since(started))

    with side_passes(tower, precision=settings.run.precision) as objective.passes:
        step_seconds, first = _step_seconds(objective, settings, _lengths(settings)[1], watch, require_time)
    # What the first step takes longer, each trial takes again.
    setup_seconds += max(0.0, first - step_seconds)
    return replace(pace, step_seconds=step_seconds, setup_seconds=setup_seconds)


SEARCH_SHARE = 0.5
"""Maximum share of a time limit for the search of a learning rate."""

FORWARD_SHARE = 1 / 3
"""Share of a training step that its forward pass takes; the backward pass multiplies twice as much."""

FEWEST_STEPS = 10
"""Steps below which neither a trial of a rate nor a run is worth its time."""


def fitted(settings: TuneSettings, pace: Pace, *, spent: float = 0.0) -> TuneSettings:
    """The settings with as many steps of the rate search, and as many epochs, as the rest of the time limit
    allows at this speed.
    """
    stated = settings.tune.budget_seconds
    if stated is None:
        return settings
    budget = stated - spent - pace.ending_seconds
    least = spent + least_budget(settings, pace)
    search = settings.rate_search
    if search is not None:
        steps = _trial_steps_within(settings, pace, SEARCH_SHARE * budget)
        if steps is None:
            raise _too_short(settings, least)
        settings = settings.model_copy(update={"rate_search": search.model_copy(update={"steps": steps})})
    section = settings.tune
    left = budget - _search_seconds(settings, pace) - pace.validation_seconds
    epoch = section.batches_per_epoch * pace.step_seconds + pace.validation_seconds + pace.saving_seconds
    epochs = min(section.max_epochs, int(left / epoch))
    if epochs < 1:
        raise _too_short(settings, least)
    section = section.model_copy(update={"max_epochs": epochs})
    settings = settings.model_copy(update={"tune": section})
    # Copies are not validated, and what fitted the stated lengths may not fit shorter ones.
    faults = [
        *PlacedError([*section.faults()]).phrases("tune"),
        *PlacedError([*settings.faults()]).phrases(),
    ]
    if faults:
        shorter = (
            f"within tune.budget_seconds = {stated:g} this machine takes "
            f"{epochs * section.batches_per_epoch:,} steps"
        )
        told = several([f"{shorter}, where {fault.partition('; ')[0]}" for fault in faults])
        raise ConfigError(f"{told}; lower it, or raise tune.budget_seconds")
    return settings


def least_budget(settings: TuneSettings, pace: Pace) -> float:
    """A time limit that suffices: trials of the fewest steps fit into their share, an epoch with two
    validations into the rest.
    """
    section = settings.tune
    run = section.batches_per_epoch * pace.step_seconds + 2 * pace.validation_seconds + pace.saving_seconds
    if settings.rate_search is None:
        return run + pace.ending_seconds
    fewest = min(FEWEST_STEPS, settings.trial_steps)
    of_trials = _trials(settings.rate_search) * _trial_seconds(settings, pace, fewest)
    # A search takes its whole share, or less where its trials are at their longest.
    searched = max(
        of_trials / SEARCH_SHARE, min(run / (1 - SEARCH_SHARE), run + _search_seconds(settings, pace))
    )
    return searched + pace.ending_seconds


def _require_time(context: TuningContext, settings: TuneSettings, pace: Pace, *, spent: float) -> None:
    """Refuse a time limit that is too short whatever a validation takes; the advice guesses what it takes."""
    stated, least = settings.tune.budget_seconds, spent + least_budget(settings, pace)
    if stated is None or stated >= least:
        return
    rehearsal, watched = settings.rehearsal, settings.watched
    of_a_step = settings.tune.batch_size + (0 if rehearsal is None else rehearsal.texts_per_step)
    a_text = FORWARD_SHARE * pace.step_seconds / of_a_step
    drift = 0.0 if watched is None else a_text * len(context.probes(watched.probes).texts)
    validation = drift + a_text * len(context.examples(settings.data)[1])
    rehearsed = 0.0 if rehearsal is None else a_text * len(context.probes(rehearsal.texts).texts)
    # At the start the probes are read twice, and validation queries mine their negatives; at the end two
    # towers rank them.
    guessed = replace(
        pace,
        validation_seconds=validation,
        drift_seconds=drift,
        ending_seconds=pace.ending_seconds + 3 * validation,
    )
    raise _too_short(
        settings, least, guess=spent + rehearsed + 3 * validation + least_budget(settings, guessed)
    )


SPARE = 1.25
"""The advised time limit as a multiple of the least one: speeds measured in the next call may be lower."""


def _too_short(settings: TuneSettings, needed: float, *, guess: float | None = None) -> ConfigError:
    least = math.ceil(needed)
    # Whole half minutes.
    advised = 30 * math.ceil(SPARE * (needed if guess is None else guess) / 30)
    return ConfigError(
        f"tune.budget_seconds must be at least {least} ({duration(least)}) at the speed of this machine, "
        f"got {settings.tune.budget_seconds:g}; give {option('budget_seconds', f'{advised}s')}, "
        "or lower tune.batches_per_epoch, or rate_search.count of a search"
    )


def _lengths(settings: TuneSettings) -> tuple[int, int]:
    """Steps to the earliest stop of the stop rule, and to the last epoch."""
    section = settings.tune
    idle = section.max_epochs
    if section.keep != "last":
        idle = min(section.idle_epochs, idle)
    return idle * section.batches_per_epoch, section.max_epochs * section.batches_per_epoch


def _step_seconds(
    objective: StoredDocuments,
    settings: TuneSettings,
    steps: int,
    watch: Watch,
    require_time: Callable[[float], None],
) -> tuple[float, float]:
    """Mean time of the first steps without the very first one, which sets things up, and the time of that
    one.

    `require_time` receives the time of the second step, and may refuse to go on.
    """
    optimizer = optimizer_of(objective.module, settings.tune)
    captured = captured_steps(objective, optimizer)
    # Recorded steps are timed as such; where recording fails, a run takes plain ones, and so does this.
    if captured is not None:
        watch.progress("measuring steps", 0, TIMED_STEPS)
        with suppress(CaptureError), closing(captured):
            mean, first = _captured_seconds(captured, objective.encoder.device)
            require_time(mean)
            return mean, first

    def take(step: int) -> None:
        torch.autograd.backward(objective.loss(step))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        objective.cost(step)

    seconds: list[float] = []
    for step in range(1 + min(TIMED_STEPS, steps)):
        watch.progress("measuring steps", step, TIMED_STEPS)
        seconds.append(seconds_of(lambda: take(step), objective.encoder.device))  # noqa: B023 (called at once)
        if step == 1:
            require_time(seconds[-1])
        if step and (sum(seconds) > TIMED_SECONDS or steps * seconds[-1] < SHORT_JOB):
            break
    return sum(seconds[1:]) / (len(seconds) - 1), seconds[0]


def _captured_seconds(captured: CapturedSteps, device: torch.device) -> tuple[float, float]:
    """Mean time of recorded steps, of which the host prepares each while the device takes the one before; and
    the time of the first.
    """

    def take_all() -> None:
        for step in range(TIMED_STEPS):
            captured.take(step, 0.0)

    # Recording a length takes longer than many steps, and a run does it once.
    recording = seconds_of(take_all, device)
    mean = seconds_of(take_all, device) / TIMED_STEPS
    return mean, recording - (TIMED_STEPS - 1) * mean


def _search_seconds(settings: TuneSettings, pace: Pace) -> float:
    """Time of the rate search, without the trial that the run goes on from."""
    if settings.rate_search is None:
        return 0.0
    trials = _trials(settings.rate_search) - settings.continues_trial
    return trials * _trial_seconds(settings, pace, settings.trial_steps)


def _trials(section: RateSearchSection) -> float:
    """Whole trials that a rate search is worth.

    A range test makes one for every rate. The trials of a search for a safe rate are shortened by the limit:
    those of rates a factor ``f`` apart are worth ``f / (f - 1)`` whole ones.
    """
    factor: float = (section.high / section.low) ** (1 / (section.count - 1))
    trials = section.count if section.kind == "range" else min(section.count, factor / (factor - 1))
    return section.seeds * trials


def _trial_seconds(settings: TuneSettings, pace: Pace, steps: int) -> float:
    # A range test validates after each epoch, rounded up; a search for a safe rate only looks at the drift.
    epochs = -(-steps // settings.tune.batches_per_epoch)
    validation_seconds = pace.validation_seconds
    if settings.rate_search is not None and settings.rate_search.kind == "safe":
        epochs = min(settings.rate_search.checks, steps)
        validation_seconds = pace.drift_seconds
    validated = validation_seconds + epochs * (validation_seconds + pace.saving_seconds)
    return pace.setup_seconds + steps * pace.step_seconds + validated


def _trial_steps_within(settings: TuneSettings, pace: Pace, seconds: float) -> int | None:
    """Steps of each trial that fit into the time of a search, None if too few; those of a range test fill
    whole epochs where they can.
    """
    assert settings.rate_search is not None, "asked of a search"
    most = settings.trial_steps
    a_trial = seconds / _trials(settings.rate_search)
    # The first number of steps that takes too long, less one.
    steps = bisect_right(range(most + 1), a_trial, key=partial(_trial_seconds, settings, pace)) - 1
    if steps < min(FEWEST_STEPS, most):
        return None
    epoch = settings.tune.batches_per_epoch
    fills_epochs = settings.rate_search.kind == "range" and epoch <= steps < most
    return steps - steps % epoch if fills_epochs else steps
