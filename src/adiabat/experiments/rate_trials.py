"""The trials of a rate search: short tuning runs that end when their drift exceeds the limit."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from adiabat.adiabatic.drift import MEASURES
from adiabat.adiabatic.expected_time import SEARCH_SHARE
from adiabat.adiabatic.judged_queries import MEASURE
from adiabat.adiabatic.regularization import Guard
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.adiabatic.tuning_loop import limits_of, make_loop, writing
from adiabat.config.tuning import RateSearchSection, TuneSettings
from adiabat.core.disk import clear, make_folder
from adiabat.core.errors import DivergedError, JobError
from adiabat.core.formats import layout_of
from adiabat.core.progress import Watch
from adiabat.models.device import device_name, device_of, free_memory
from adiabat.results.rate_search_result import RateTrial
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import REMEDY, read_log
from adiabat.training.captured_step import RECORDERS
from adiabat.training.checkpoint import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.passes import side_passes
from adiabat.training.side_by_side import run_side_by_side
from adiabat.training.time_limit import LEAST_LEFT

AT_ONCE = 8
"""Most trials at once. Torch gives 32 streams of a GPU in turn, of which a trial takes two, and others are
taken for copies. Two trials on one stream would share the scratch memory of their matrix products."""


COPIES = 10
"""Memory of a trial in multiples of its tower: weights, gradients, two moments, the best weights, copies
while a step is recorded, and activations."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A trial before its first step."""

    rate: float
    seed: int
    loop: Loop
    setup_seconds: float


@dataclass(frozen=True)
class RateTrials:
    """Makes the missing trials of a search, on its own or within a job, and keeps their rows.

    Trials leave no models and run one after another, each depending on earlier ones, so they do not use
    `Runner`.
    """

    context: TuningContext
    settings: TuneSettings
    folder: Path
    watch: Watch

    @property
    def section(self) -> RateSearchSection:
        """The settings of the search."""
        assert self.settings.rate_search is not None, "asked of settings that search"
        return self.settings.rate_search

    @property
    def by_loss(self) -> bool:
        """Whether the validation loss of trials chooses the rate, as in a range test."""
        return self.section.kind == "range"

    @property
    def seeds(self) -> range:
        """Seeds of the trials of each rate."""
        first = self.settings.run.seed
        return range(first, first + self.section.seeds)

    @cached_property
    def rows(self) -> Rows[RateTrial]:
        """The finished trials."""
        path = self.folder / "trials.parquet"
        return Rows(path, RateTrial, columns=_columns, of="a rate search", fault=self._fault)

    def _fault(self, row: RateTrial) -> str:
        assert self.settings.watched is not None
        measured = self.settings.watched.measure in row.drift
        if measured and all(len(values) == len(row.steps) for values in row.drift.values()):
            return ""
        return f"{row.name} without a drift for each check"

    @property
    def spent(self) -> float:
        """Seconds of all trials."""
        return sum(trial.seconds for trial in self.rows.every)

    @property
    def is_late(self) -> bool:
        """Whether the trials took their share of the time limit, as on a machine that turns out slower than
        measured.
        """
        budget = self.settings.tune.budget_seconds
        return budget is not None and self.spent >= SEARCH_SHARE * budget

    def at(self, rate: float, limit: float | None, spent: float) -> TuneSettings:
        """Settings of the run at a rate, guarded by the same limit, with what the search left of the time
        limit.
        """
        settings = self.settings
        assert settings.watched is not None
        budget = settings.tune.budget_seconds
        # A slow search may have used the whole time; the loop then ends after its first validation.
        left = None if budget is None else max(LEAST_LEFT, budget - spent)
        tune = settings.tune.model_copy(update={"learning_rate": rate, "budget_seconds": left})
        guard = settings.watched.model_copy(update={"limit": limit})
        return settings.model_copy(update={"tune": tune, "guard": guard, "rate_search": None})

    def job_of(self, rate: float, seed: int) -> Job:
        """Log and checkpoints of a trial."""
        return Job(self.folder / "trials" / f"{rate:g}-seed-{seed}")

    def clear(self, rate: float, seed: int) -> None:
        """Remove files of a trial that are not needed after its row is written; its log stays."""
        clear(self.job_of(rate, seed).checkpoints)

    def stays(self, rate: float, seed: int) -> bool:
        """Whether a trial stays within the limit; it is made if it is missing."""
        if name_of(rate, seed) not in self.rows:
            with ExitStack() as stack:
                self._run([self._prepared(rate, seed, stack, [])])
        return self.rows[name_of(rate, seed)].left_at is None

    def make_at_once(self, wanted: Sequence[tuple[float, int]]) -> None:
        """Make the missing ones of several trials at once, on a device that records their steps; elsewhere
        one follows the other.
        """
        if device_of(self.settings.run.device).type not in RECORDERS:
            return
        missing = [(rate, seed) for rate, seed in wanted if name_of(rate, seed) not in self.rows]
        size = self._trials_that_fit()
        for start in range(0, len(missing), size):
            # Between groups as between trials that follow each other.
            if start and self.is_late:
                return
            self._make_group(missing[start : start + size])

    def _trials_that_fit(self) -> int:
        """How many trials a GPU holds at the same time, at least one."""
        device = device_of(self.settings.run.device)
        if device.type != "cuda":
            return AT_ONCE
        tower = sum(weights.nbytes for weights in self.context.model.query.parameters())
        return max(1, min(AT_ONCE, free_memory(device) // (COPIES * tower)))

    def _make_group(self, wanted: Sequence[tuple[float, int]]) -> None:
        if len(wanted) < 2:
            return
        running: list[Loop] = []
        with ExitStack() as stack:
            prepared = [self._prepared(*wanted[0], stack, running)]
            # Steps that wait for the device gain nothing from taking turns.
            if prepared[0].loop.captured is not None:
                prepared += [self._prepared(rate, seed, stack, running) for rate, seed in wanted[1:]]
                self._run(prepared)

    def _run(self, prepared: Sequence[_Prepared]) -> None:
        """Make trials, each of which ends when its drift exceeds the limit or its steps are done."""
        ended = run_side_by_side([one.loop for one in prepared])
        for one, how in zip(prepared, ended, strict=True):
            reason = how.what if isinstance(how, DivergedError) else how.position.outside
            trial = self._trial(one, reason)
            self.rows.add(trial)
            if trial.left_at is None:
                said = f"stays within the limit for {trial.steps[-1]:,}"
            elif trial.diverged:
                said = f"diverges after {trial.left_at:,}"
            else:
                said = f"exceeds the limit after {trial.left_at:,}"
            self.watch.note(f"{trial.name}: {said} of {self.settings.trial_steps:,} steps")
            if not self.settings.continues_trial:
                self.clear(trial.rate, trial.seed)

    def _prepared(self, rate: float, seed: int, stack: ExitStack, running: list[Loop]) -> _Prepared:
        """A trial before its first step, added to those that run at the same time; its threads end with the
        stack.
        """
        started = time.monotonic()
        # The clock is checked between trials, whose steps were fitted to the time limit.
        tune = self.settings.tune.model_copy(update={"learning_rate": rate, "budget_seconds": None})
        run = self.settings.run.model_copy(update={"seed": seed})
        update = {"tune": tune, "guard": self.settings.watched, "run": run, "rate_search": None}
        settings = self.settings.model_copy(update=update)
        tower = prepared_tower(self.context.model.query, settings)[0]
        objective = self.context.objective(tower, settings, validated=self.by_loss)
        assert objective.guard is not None, "a search has a guard"
        # The limit ends a trial also where the run would continue beyond it and soften its weights.
        section = objective.guard.section.model_copy(update={"action": "stop"})
        objective.guard = replace(objective.guard, section=section)
        loop = self._loop(rate, seed, objective, settings, running)
        running.append(loop)
        objective.passes = stack.enter_context(side_passes(tower, precision=settings.run.precision))
        return _Prepared(rate, seed, loop, time.monotonic() - started)

    def _loop(
        self,
        rate: float,
        seed: int,
        objective: StoredDocuments,
        settings: TuneSettings,
        running: Sequence[Loop],
    ) -> Loop:
        guard, folder = objective.guard, self.job_of(rate, seed).folder
        assert guard is not None

        def show(position: Position) -> None:
            self._show(f"{name_of(rate, seed)}: {_drift_text(guard, position)}", position, running)

        make_folder(folder, parents=True)
        limits = self._limits(settings)
        return make_loop(objective, settings, folder, limits=limits, watch=show, note=self.watch.note)

    def _loss_of(self, row: Mapping[str, float]) -> float:
        """What a range test minimises: ``1 - nDCG@10`` in runs that keep by ranking, else the loss."""
        if self.settings.tune.keep == "ranking":
            return 1 - float(row[f"validation_{MEASURE}"])
        return float(row["validation_loss"])

    def _show(self, label: str, position: Position, running: Sequence[Loop]) -> None:
        """Progress of a trial; in a range test, of all."""
        steps = self.settings.trial_steps
        if not self.by_loss:
            # The number of trials is unknown: the first rate that stays within the limit is the last one.
            self.watch.progress(label, position.step, steps)
            return
        finished = len(self.rows.every)
        trials = max(len(self.section.values()) * self.section.seeds, finished + 1)
        done = finished * steps + sum(loop.position.step for loop in running)
        self.watch.progress(f"range test ({label})", done, trials * steps)

    def _limits(self, settings: TuneSettings) -> Limits:
        steps = self.settings.trial_steps
        if self.by_loss:
            limits = limits_of(settings)
            return replace(limits, max_steps=steps, outside=limits.outside and "stop")
        # Checks lie evenly over the steps, rounded up. No model is kept, so no weights need to be stored.
        between = -(-steps // self.section.checks)
        return Limits(between, None, None, max_steps=steps, keep="last", **writing(settings))

    def _trial(self, prepared: _Prepared, reason: str | None) -> RateTrial:
        """The row of a trial, read from its log."""
        loop = prepared.loop
        # Rows with the guarded drift are those of checks; that of step 0 is the untuned tower's.
        assert self.settings.watched is not None, "a search has a guard"
        guarded = f"validation_{self.settings.watched.measure}"
        checks = [row for row in read_log(loop.log.path) if row["step"] and guarded in row]
        drift = {}
        with layout_of(loop.log.path, remedy=REMEDY, error=JobError):
            for name in MEASURES:
                # An earlier version that knew fewer measures may have begun the trial.
                if all(f"validation_{name}" in row for row in checks):
                    drift[name] = [float(row[f"validation_{name}"]) for row in checks]
        return RateTrial(
            rate=prepared.rate,
            seed=prepared.seed,
            steps=[int(row["step"]) for row in checks],
            drift=drift,
            losses=[self._loss_of(row) for row in checks] if self.by_loss else [],
            left_at=loop.position.step if reason else None,
            reason=reason or "",
            # With setting up, which the time limit covers too; a resumed run knows its earlier seconds.
            seconds=prepared.setup_seconds + loop.position.seconds,
            device=device_name(loop.device),
        )


def _drift_text(guard: Guard, position: Position) -> str:
    drift = 0.0
    if position.best is not None:
        drift = position.best.measures.get(guard.section.measure, 0.0)
    return f"drift {drift:.3g} of {guard.limit:.3g}"


def _columns(row: RateTrial) -> dict[str, Any]:
    last = {f"drift: {name}": values[-1] if values else None for name, values in row.drift.items()}
    about = {"trial": row.name, "rate": row.rate, "seed": row.seed, "left_at": row.left_at}
    return {**about, **last, "seconds": row.seconds, "device": row.device, "reason": row.reason}


def name_of(rate: float, seed: int) -> str:
    """Name of a trial and its row, unique in the search."""
    return f"rate {rate:g}, seed {seed}"
