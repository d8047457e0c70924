"""The largest learning rate whose drift stays within a limit, found by short runs without labels.

The highest rate goes first. Drift grows with rate and steps, so a rate f times too high exceeds the limit
after about one f-th of the steps; the first rate that stays within it to the end is the result. Rates a
factor f apart thus cost ``1 + 1/f + 1/f^2 + ... = f / (f - 1)`` whole runs: 1.9 with the ten default rates.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from adiabat.adiabatic.drift import MEASURES
from adiabat.adiabatic.expected_time import SEARCH_SHARE
from adiabat.adiabatic.negatives import mined_negatives_note
from adiabat.adiabatic.stored_loss import StoredDocuments
from adiabat.adiabatic.tune_checks import LATER, SEARCH, WORDS, require_named, require_search
from adiabat.adiabatic.tuning_context import TuningContext, prepared_tower
from adiabat.adiabatic.tuning_loop import check_settings, limits_of, make_loop, writing
from adiabat.config.tuning import RateSearchSection, TuneSettings
from adiabat.core.disk import clear, copy_folder, make_folder, move
from adiabat.core.errors import ConfigError, DivergedError, JobError
from adiabat.core.files import LARGEST_LOG, read_plain, sole_writer, write_bytes
from adiabat.core.formats import layout_of
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.models.device import device_name, device_of, free_memory
from adiabat.results.rate_search_result import RateTrial, SafeRate
from adiabat.runs.output_dir import claimed_for_jobs, write_report
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import FREE_RUNS, Job, Rules, is_described, require_same
from adiabat.runs.run_log import REMEDY, read_log
from adiabat.training.captured_step import RECORDERS
from adiabat.training.checkpoint import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.passes import side_passes
from adiabat.training.side_by_side import run_side_by_side
from adiabat.training.time_limit import LEAST_LEFT


def safe_rate(
    context: TuningContext,
    out: Path,
    *,
    settings: TuneSettings,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
) -> SafeRate:
    """Find the largest rate whose drift stays within the guard's limit.

    The directory holds ``config.toml`` (resolved), ``trials.parquet`` (a row for each run),
    ``trials/RATE-seed-N/log.jsonl``, ``result.json``, ``report.html`` and figures. Models are not kept.
    """
    check_settings(settings)
    if settings.rate_search is None or settings.rate_search.kind != "safe":
        got = "none" if settings.rate_search is None else settings.rate_search.kind
        raise ConfigError(
            f"rate_search.kind must be safe in a search for a safe rate, got {got}; leave it out"
        )
    require_named(context.inputs, settings)
    begun = is_described(out, SEARCH)
    if note := require_search(out, resume=resume):
        watch.note(note)
    if begun:
        # Checked before the data: an omitted setting would otherwise cause faults that do not mention
        # resuming.
        require_same(
            Job(out), {SEARCH: context.inputs, **settings.model_dump()}, rules=RULES, unknown=RULES.words
        )
    examples = context.examples(settings.data)
    # Checked before anything is written.
    context.require_possible([settings])
    description = {
        SEARCH: {**context.inputs, **context.digests(settings, *examples)},
        **settings.model_dump(),
    }
    if begun:
        require_same(Job(out), description, rules=RULES)
    with claimed_for_jobs(out, lambda: description, begun=begun):
        # Trials are made under their own lock, as when a search is part of a job.
        pass
    search = RateSearch(context, settings, out, watch)
    if note := search.mined_note:
        watch.note(note)
    return search.carry_out(command)


def rate_for_run(context: TuningContext, folder: Path, settings: TuneSettings, watch: Watch) -> TuneSettings:
    """Search for the largest safe rate before a run; returns the run's settings at that rate, guarded by the
    same limit.
    """
    search = RateSearch(context, settings, folder, watch)
    if search.section.kind == "range":
        return search.tested()
    safe = search.carry_out()
    if safe.rate is None:
        raise JobError(
            f"one rate of the search must stay within the limit (drift {safe.limit:.3g}), "
            f"got none: the lowest, {safe.rates[0]:g}, "
            "exceeds it; lower rate_search.low, take fewer rate_search.steps, or "
            "give a larger guard.limit, and start again"
        )
    return search.at(safe.rate, safe.limit, sum(trial.seconds for trial in safe.trials))


AT_ONCE = 8
"""Most trials at once. Torch gives 32 streams of a GPU in turn, of which a trial takes two, and others are
taken for copies. Two trials on one stream would share the scratch memory of their matrix products."""


COPIES = 10
"""Memory of a trial in multiples of its tower: weights, gradients, two moments, the best weights, copies
while a step is recorded, and activations."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A trial before its first step; `by_loss` says whether its validation loss counts."""

    rate: float
    seed: int
    loop: Loop
    by_loss: bool
    setup_seconds: float


@dataclass(frozen=True)
class RateSearch:
    """Makes the missing runs of a search, on its own or within a job.

    Its trials leave no models and run one after another, each depending on earlier ones, so they do not use
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

    @cached_property
    def rows(self) -> Rows[RateTrial]:
        """The finished trials."""
        assert self.settings.watched is not None
        measure = self.settings.watched.measure

        def fault(row: RateTrial) -> str:
            complete = measure in row.drift and all(
                len(values) == len(row.steps) for values in row.drift.values()
            )
            return "" if complete else f"{row.name} without a drift for each check"

        def columns(row: RateTrial) -> dict[str, Any]:
            last = {f"drift: {name}": values[-1] if values else None for name, values in row.drift.items()}
            about = {"seconds": row.seconds, "device": row.device, "reason": row.reason}
            return {
                "trial": row.name,
                "rate": row.rate,
                "seed": row.seed,
                "left_at": row.left_at,
                **last,
                **about,
            }

        return Rows(
            self.folder / "trials.parquet", RateTrial, columns=columns, of="a rate search", fault=fault
        )

    def tested(self) -> TuneSettings:
        """Run every rate, or lower ones until one stays within the limit; return the settings of the lowest
        validation loss.

        The files of the trial of that rate become those of the run, which goes on from there. A test that has
        used its share of the time limit ends after the first rate that stays within the drift limit.
        """
        rates = sorted(self.section.values(), reverse=True)
        lower = [rates[-1] * (rates[-1] / rates[-2]) ** step for step in range(1, 1 + len(rates))]
        losses: dict[float, float] = {}
        make_folder(self.folder)
        with sole_writer(self.folder):
            self._make_at_once([(rate, seed) for rate in rates for seed in self._seeds])
            for rate in (*rates, *lower):
                if any(map(math.isfinite, losses.values())) and (rate < rates[-1] or self._is_late):
                    break
                for seed in self._seeds:
                    self._stays(rate, seed)
                losses = self._mean_losses()
                best = min(losses, key=lambda rate: (losses[rate], rate))
                for trial in self.rows.every:
                    if trial.rate in losses and (trial.rate, trial.seed) != (best, self.settings.run.seed):
                        self._clear(trial.rate, trial.seed)
        rate = best
        if not math.isfinite(losses[rate]):
            raise JobError(
                "one rate of the range test must stay within the guard's limit until "
                "its first validation, got none down to "
                f"{rate:g}; lower rate_search.low, or raise guard.limit, and start again"
            )
        listed = ", ".join(
            f"{rate:.2g}: {loss:.4f}" if math.isfinite(loss) else f"{rate:.2g}: none"
            for rate, loss in losses.items()
        )
        self.watch.note(
            f"range test: lowest validation loss within the drift limit by rate: {listed}; tuning at {rate:g}"
        )
        guard = self.context.guard(self.settings)
        assert guard is not None
        continued = self._hand_over(rate)
        return self.at(
            rate, guard.limit, sum(trial.seconds for trial in self.rows.every if trial is not continued)
        )

    @property
    def _is_late(self) -> bool:
        """Whether the trials took their share of the time limit, as on a machine that turns out slower than
        measured.
        """
        budget = self.settings.tune.budget_seconds
        return budget is not None and sum(trial.seconds for trial in self.rows.every) >= SEARCH_SHARE * budget

    def _hand_over(self, rate: float) -> RateTrial | None:
        """Make the log and the checkpoints of a trial those of the run; returns the trial, or None if the run
        begins anew.

        Rows of a log have seconds and a checksum of all rows before, so only a run that took them over begins
        with those of the trial.
        """
        trial = self.rows[name_of(rate, self.settings.run.seed)]
        made, run = Job(self._folder(rate, trial.seed)), Job(self.folder.parent)
        if not self.settings.continues_trial or trial.left_at is not None or not made.log.exists():
            return None
        rows = read_plain(made.log, limit=LARGEST_LOG, error=JobError)
        if not run.checkpoints.exists() and made.checkpoints.exists():
            if made.board.exists():
                copy_folder(made.board, run.board)
            # Last, and at once: a run that has checkpoints has the log up to them.
            write_bytes(rows, run.log)
            move(made.checkpoints, run.checkpoints)
        return (
            trial
            if run.checkpoints.exists()
            and read_plain(run.log, limit=LARGEST_LOG, error=JobError).startswith(rows)
            else None
        )

    def _mean_losses(self) -> dict[float, float]:
        """The validation loss of each rate that has a trial of every seed, whenever these were made, averaged
        over the seeds.
        """
        rates = sorted({trial.rate for trial in self.rows.every}, reverse=True)
        names = {rate: [name_of(rate, seed) for seed in self._seeds] for rate in rates}
        done = {
            rate: of_rate for rate, of_rate in names.items() if all(name in self.rows for name in of_rate)
        }
        return {
            rate: fmean(_lowest_loss(self.rows[name]) for name in of_rate) for rate, of_rate in done.items()
        }

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

    def carry_out(self, command: str = "") -> SafeRate:
        """Try rates from the highest down to the first safe one."""
        make_folder(self.folder)
        with sole_writer(self.folder):
            for trial in self.rows.every:
                self._clear(trial.rate, trial.seed)
            downwards = sorted(
                {*self.section.values(), *(trial.rate for trial in self.rows.every)}, reverse=True
            )
            result = self._result(next(filter(self._is_safe, downwards), None), command)
            write_report(result, self.folder)
        return result

    def _is_safe(self, rate: float) -> bool:
        # A seed that is no longer requested has exceeded the limit nevertheless.
        if any(trial.rate == rate and trial.left_at is not None for trial in self.rows.every):
            return False
        return all(self._stays(rate, seed) for seed in self._seeds)

    @property
    def _seeds(self) -> range:
        first = self.settings.run.seed
        return range(first, first + self.section.seeds)

    def _stays(self, rate: float, seed: int) -> bool:
        if name_of(rate, seed) not in self.rows:
            with ExitStack() as stack:
                self._run([self._prepared(rate, seed, stack, [])])
        return self.rows[name_of(rate, seed)].left_at is None

    def _make_at_once(self, wanted: Sequence[tuple[float, int]]) -> None:
        """Make the missing ones of several trials at once, on a device that records their steps; elsewhere
        one follows the other.
        """
        missing = [(rate, seed) for rate, seed in wanted if name_of(rate, seed) not in self.rows]
        if device_of(self.settings.run.device).type not in RECORDERS:
            return
        size = self._trials_that_fit()
        for start in range(0, len(missing), size):
            # Between groups as between trials that follow each other.
            if start and self._is_late:
                return
            self._make_group(missing[start : start + size])

    def _trials_that_fit(self) -> int:
        """How many trials a GPU holds at the same time, at least one."""
        device = device_of(self.settings.run.device)
        tower = sum(weights.nbytes for weights in self.context.model.query.parameters())
        fitting = free_memory(device) // (COPIES * tower) if device.type == "cuda" else AT_ONCE
        return max(1, min(AT_ONCE, fitting))

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

    def _folder(self, rate: float, seed: int) -> Path:
        return self.folder / "trials" / f"{rate:g}-seed-{seed}"

    def _clear(self, rate: float, seed: int) -> None:
        """Remove files of a run that are not needed after its row is written; its log stays."""
        clear(Job(self._folder(rate, seed)).checkpoints)

    def _run(self, prepared: Sequence["_Prepared"]) -> None:
        """Make trials, each of which ends when its drift exceeds the limit or its steps are done."""
        ended = run_side_by_side([one.loop for one in prepared])
        for one, how in zip(prepared, ended, strict=True):
            reason = how.what if isinstance(how, DivergedError) else how.position.outside
            trial = self._trial(one, reason)
            self.rows.add(trial)
            left = "diverges" if trial.diverged else "exceeds the limit"
            within = (
                f"stays within the limit for {trial.steps[-1]:,}"
                if trial.left_at is None
                else f"{left} after {trial.left_at:,}"
            )
            self.watch.note(f"{trial.name}: {within} of {self.settings.trial_steps:,} steps")
            if not self.settings.continues_trial:
                self._clear(trial.rate, trial.seed)

    def _prepared(self, rate: float, seed: int, stack: ExitStack, running: list[Loop]) -> "_Prepared":
        """A trial before its first step, added to those that run at the same time; its threads end with the
        stack.
        """
        started = time.monotonic()
        # The clock is checked between trials, whose steps were fitted to the time limit.
        tune = self.settings.tune.model_copy(update={"learning_rate": rate, "budget_seconds": None})
        run = self.settings.run.model_copy(update={"seed": seed})
        settings = self.settings.model_copy(
            update={"tune": tune, "guard": self.settings.watched, "run": run, "rate_search": None}
        )
        by_loss = self.section.kind == "range"
        objective = self.context.objective(
            prepared_tower(self.context.model.query, settings)[0], settings, validated=by_loss
        )
        assert objective.guard is not None, "a search has a guard"
        # The limit ends a trial also where the run would continue beyond it and soften its weights.
        objective.guard = replace(
            objective.guard, section=objective.guard.section.model_copy(update={"action": "stop"})
        )
        loop = self._loop(rate, seed, objective, settings, running)
        running.append(loop)
        objective.passes = stack.enter_context(
            side_passes(objective.encoder, precision=settings.run.precision)
        )
        return _Prepared(rate, seed, loop, by_loss, time.monotonic() - started)

    def _trial(self, prepared: "_Prepared", reason: str | None) -> RateTrial:
        loop, by_loss = prepared.loop, prepared.by_loss
        rows = [row for row in read_log(loop.log.path) if row["step"]]
        checks = [row for row in rows if f"validation_{MEASURES[0]}" in row]
        with layout_of(loop.log.path, remedy=REMEDY, error=JobError):
            drift = {name: [float(row[f"validation_{name}"]) for row in checks] for name in MEASURES}
        return RateTrial(
            rate=prepared.rate,
            seed=prepared.seed,
            steps=[int(row["step"]) for row in checks],
            drift=drift,
            losses=[float(row["validation_loss"]) for row in checks] if by_loss else [],
            left_at=loop.position.step if reason else None,
            reason=reason or "",
            # With setting up, which the time limit covers too; a resumed run knows its earlier seconds.
            seconds=prepared.setup_seconds + loop.position.seconds,
            device=device_name(loop.device),
        )

    def _loop(
        self,
        rate: float,
        seed: int,
        objective: StoredDocuments,
        settings: TuneSettings,
        running: Sequence[Loop],
    ) -> Loop:
        steps, folder = self.settings.trial_steps, self._folder(rate, seed)
        limits = self._limits(settings, steps)
        limit = objective.guard.limit if objective.guard else None
        assert limit is not None, "a search has a guard with a limit"

        def show(position: Position) -> None:
            best = position.best
            drift = (
                0.0
                if best is None
                else best.measures.get(objective.guard.section.measure, 0.0)
                if objective.guard
                else 0.0
            )
            label = f"{name_of(rate, seed)}: drift {drift:.3g} of {limit:.3g}"
            if self.section.kind != "range":
                # The number of trials is unknown: the first rate that stays within the limit is the last one.
                self.watch.progress(label, position.step, steps)
                return
            trials = max(len(self.section.values()) * self.section.seeds, len(self.rows.every) + 1)
            done = len(self.rows.every) * steps + sum(loop.position.step for loop in running)
            self.watch.progress(f"range test ({label})", done, trials * steps)

        make_folder(folder, parents=True)
        return make_loop(objective, settings, folder, limits=limits, watch=show, note=self.watch.note)

    def _limits(self, settings: TuneSettings, steps: int) -> Limits:
        if self.section.kind == "range":
            limits = limits_of(settings)
            return replace(limits, max_steps=steps, outside=limits.outside and "stop")
        # No model is kept, so no weights need to be stored.
        return Limits(
            -(-steps // self.section.checks), None, None, max_steps=steps, keep="last", **writing(settings)
        )

    @property
    def mined_note(self) -> str | None:
        """A note on queries with negatives that their data do not list."""
        return mined_negatives_note(self.context.examples(self.settings.data)[0], self.settings.tune)

    def _result(self, rate: float | None, command: str) -> SafeRate:
        guard, section, inputs = self.context.guard(self.settings), self.section, self.context.inputs
        trials = self.rows.every
        rates = sorted({*section.values(), *(trial.rate for trial in trials)})
        assert guard is not None
        assert guard.limit is not None
        notes = [self.mined_note] if self.mined_note else []
        if rate == rates[-1]:
            notes.insert(
                0,
                "even the highest rate of the search stays within the limit: larger ones "
                "may be safe too; raise rate_search.high",
            )
        elif rate is None:
            notes.insert(0, "even the lowest rate of the search exceeds the limit; lower rate_search.low")
        return SafeRate(
            title=f"The largest safe rate for tuning {inputs['model']} on "
            f"{self.context.examples(self.settings.data)[0].name}",
            command=command,
            created=now(),
            seconds=sum(trial.seconds for trial in trials),
            seed=self.settings.run.seed,
            versions=versions(device_name(device_of(self.settings.run.device))),
            model=inputs["model"],
            measure=guard.section.measure,
            limit=guard.limit,
            noise=dict(guard.noise),
            probes=guard.probes,
            steps=section.steps,
            rates=rates,
            rate=rate,
            trials=trials,
            settings=self.settings.recorded(),
            inputs={**inputs, "store_sha256": self.context.store.manifest.sha256},
            notes=notes,
        )


def _lowest_loss(trial: RateTrial) -> float:
    """The lowest validation loss within the limit; infinite if there is none, or if the trial diverged, as
    the run would.
    """
    within = trial.losses if trial.left_at is None else trial.losses[:-1]
    return math.inf if trial.diverged else min(within, default=math.inf)


def name_of(rate: float, seed: int) -> str:
    """Name of a trial and its row, unique in the search."""
    return f"rate {rate:g}, seed {seed}"


def _rules() -> Rules:
    """Trials are identified by rate and seed, so that a search can be extended."""
    places = (f"{SEARCH}.{name}" for name in ("model", "store", "data"))
    grown = ("rate_search.low", "rate_search.high", "rate_search.count", "rate_search.seeds")
    words = {f"{SEARCH}.{name.removeprefix('job.')}": phrase for name, phrase in WORDS.items()}
    later = frozenset(f"{SEARCH}.{name.removeprefix('job.')}" for name in LATER)
    return Rules(
        free=frozenset((*places, *grown, *FREE_RUNS)),
        words=words,
        defaults=TuneSettings().model_dump(),
        later=later,
    )


RULES = _rules()
"""Settings that may change when a search is resumed."""
