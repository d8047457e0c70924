"""The largest rate whose drift stays within a limit, found by short runs without labels.

The highest rate goes first. Drift grows with rate and steps, so that a rate f times too high leaves the band after about one f-th of the
steps; the first that stays inside to its end is the answer. Rates a factor f apart so cost ``1 + 1/f + 1/f^2 + ... = f / (f - 1)`` whole
runs: 1.9 with the ten rates of the default.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adiabat.adiabatic.drift import MEASURES
from adiabat.adiabatic.negatives import mined_negatives_note
from adiabat.adiabatic.stored_loss import DriftingDocuments
from adiabat.adiabatic.tune_checks import LATER, WORDS, inputs_of, require_named
from adiabat.adiabatic.tune_setup import check_settings, make_loop, prepared_tower, writing
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.tuning import LadderSection, TuneSettings
from adiabat.core.errors import ConfigError, DivergedError, JobError
from adiabat.core.files import sole_writer
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.models.device import device_name, device_of
from adiabat.models.towers import DualEncoder
from adiabat.results.rate_search_result import Rung, SafeRate
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed_for_jobs, require_begun
from adiabat.runs.row_files import Rows, json_rows
from adiabat.runs.run_config import FREE_RUNS, Rules, is_described, require_same
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import read_log
from adiabat.training.limits import Limits, Position
from adiabat.training.loop import Loop
from adiabat.training.passes import side_passes


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that is to be made.

    Attributes:
        rate: Its learning rate.
        seed: Of the run.
    """

    rate: float
    seed: int

    def __str__(self) -> str:
        return f"rate {self.rate:g}, seed {self.seed}"

    def settings(self, settings: TuneSettings) -> TuneSettings:
        """Of the run."""
        tune, run = settings.tune.model_copy(update={"learning_rate": self.rate}), settings.run.model_copy(update={"seed": self.seed})
        return settings.model_copy(update={"tune": tune, "guard": settings.watched, "run": run})

    def folder(self, ladder: Path) -> Path:
        """Where it is made."""
        return ladder / "rungs" / f"{self.rate:g}-seed-{self.seed}"


def make_rung(attempt: Attempt, context: TuningContext, settings: TuneSettings, ladder: Path, watch: Watch) -> Rung:
    """Make a run, which ends when its drift leaves the band, or its steps are done."""
    own = attempt.settings(settings)
    objective = context.drifting(prepared_tower(context.model.query, own)[0], own)
    loop = _loop(attempt, objective, settings, ladder, watch)
    try:
        with side_passes(objective.encoder, precision=settings.run.precision) as objective.passes:
            reason = loop.run(resume=True).position.outside
    except DivergedError as fault:
        reason = fault.what
    return _rung(attempt, loop, reason)


def clear_rung(attempt: Attempt, ladder: Path) -> None:
    """Remove what a run needs no more once its row is written; its log stays."""
    shutil.rmtree(Job(attempt.folder(ladder)).checkpoints, ignore_errors=True)


def _loop(attempt: Attempt, objective: DriftingDocuments, settings: TuneSettings, ladder: Path, watch: Watch) -> Loop:
    steps, folder = settings.ladder.steps, attempt.folder(ladder)
    every = -(-steps // settings.ladder.looks)
    # No model is left, so that no weights are kept to come back to.
    limits = Limits(every, None, None, max_steps=steps, keep="last", **writing(settings))

    def show(position: Position) -> None:
        drift = position.best.loss if position.best else 0.0
        watch.progress(f"{attempt}: drift {drift:.3g} of {objective.guard.most:.3g}", position.step, steps)

    folder.mkdir(parents=True, exist_ok=True)
    return make_loop(objective, attempt.settings(settings), folder, limits=limits, watch=show, note=watch.note)


def _rung(attempt: Attempt, loop: Loop, reason: str | None) -> Rung:
    rows = [row for row in read_log(loop.log.path) if row["step"]]
    looks = [row for row in rows if f"validation_{MEASURES[0]}" in row]
    return Rung(
        rate=attempt.rate,
        seed=attempt.seed,
        steps=[int(row["step"]) for row in looks],
        drift={name: [float(row[f"validation_{name}"]) for row in looks] for name in MEASURES},
        left_at=loop.position.step if reason else None,
        reason=reason or "",
        seconds=loop.position.seconds,
        device=device_name(loop.device),
    )


SEARCH = "search"
"""Table of a description by which one tells that it is of a ladder."""


def safe_rate(
    load_model: Callable[[], DualEncoder],
    store_path: Path,
    data_path: str,
    out: Path,
    *,
    settings: TuneSettings,
    model_name: str,
    resume: bool = False,
    command: str = "",
    watch: Watch = SILENT,
) -> SafeRate:
    """Find the largest rate whose drift stays within the guard's limit.

    The directory holds ``config.toml`` (as resolved), ``rungs.jsonl`` (a row for each run), ``rungs/RATE-seed-N/log.jsonl``,
    ``result.json``, ``report.html`` and figures. No model is left behind.
    """
    check_settings(settings)
    _check_ladder(settings)
    inputs = inputs_of(model_name, store_path, data_path)
    require_named(inputs, settings)
    begun = is_described(out, SEARCH)
    if note := require_begun(out, "search for a safe rate", begun=begun, resume=resume):
        watch.note(note)
    if begun:
        # Before the data: settings that were left out make faults that speak of anything but resuming.
        require_same(Job(out), {SEARCH: inputs, **settings.model_dump()}, rules=RULES, unknown=RULES.words)
    context = TuningContext(load_model, store_path, data_path)
    context.examples(settings.data)
    _claim(context, inputs, out, settings, begun=begun)
    if note := _mined_note(context, settings):
        watch.note(note)
    return climb(context, inputs, out, settings=settings, command=command, watch=watch)


def climb(
    context: TuningContext, inputs: Mapping[str, str], folder: Path, *, settings: TuneSettings, command: str = "", watch: Watch = SILENT
) -> SafeRate:
    """Make the runs of a ladder that are still to be made."""
    folder.mkdir(exist_ok=True)
    with sole_writer(folder):
        measure = settings.watched.measure
        rows = json_rows(
            folder / "rungs.jsonl",
            Rung,
            key=lambda rung: Attempt(rung.rate, rung.seed),
            sound=lambda rung: measure in rung.drift and all(len(values) == len(rung.steps) for values in rung.drift.values()),
        )
        rate = _Ladder(context, settings, folder, rows, watch).climb()
        found = _result(context, settings, inputs, rows.every, rate, command)
        write_report(found, folder)
    return found


def _check_ladder(settings: TuneSettings) -> None:
    if settings.tune.learning_rate != "safe":
        raise ConfigError(f"tune.learning_rate must be safe where the rate is looked for, got {settings.tune.learning_rate:g}")


def _claim(context: TuningContext, inputs: Mapping[str, str], folder: Path, settings: TuneSettings, *, begun: bool) -> None:
    # Before anything is written.
    context.require_possible([settings])
    description = {SEARCH: {**inputs, **context.digests(settings, *context.examples(settings.data))}, **settings.model_dump()}
    if begun:
        require_same(Job(folder), description, rules=RULES)
    with claimed_for_jobs(folder, lambda: description, begun=begun):
        # Runs are made under a lock of their own, as where a ladder stands within a job.
        pass


def rate_for_run(context: TuningContext, inputs: Mapping[str, str], folder: Path, settings: TuneSettings, watch: Watch) -> TuneSettings:
    """Search for the largest safe rate before a run, and give the run's settings at that rate."""
    return at_safe_rate(settings, climb(context, inputs, folder, settings=settings, watch=watch))


def at_safe_rate(settings: TuneSettings, found: SafeRate) -> TuneSettings:
    """Settings of a run at the rate that was found, guarded by the same limit."""
    if found.rate is None:
        raise JobError(
            f"one rate of the ladder must stay within the band (drift {found.limit:.3g}), got none: the lowest, {found.rates[0]:g}, leaves "
            "it; lower ladder.low, take fewer ladder.steps, or give a larger guard.most, and start anew"
        )
    tune = settings.tune.model_copy(update={"learning_rate": found.rate})
    guard = settings.watched.model_copy(update={"most": found.limit})
    return settings.model_copy(update={"tune": tune, "guard": guard, "ladder": LadderSection()})


@dataclass(frozen=True, slots=True)
class _Ladder:
    context: TuningContext
    settings: TuneSettings
    folder: Path
    rows: Rows[Attempt, Rung]
    watch: Watch

    def climb(self) -> float | None:
        """Down from the highest rate to the first that is safe."""
        for done in self.rows.every:
            clear_rung(Attempt(done.rate, done.seed), self.folder)
        downwards = sorted({*self.settings.ladder.rates, *(rung.rate for rung in self.rows.every)}, reverse=True)
        return next(filter(self._is_safe, downwards), None)

    def _is_safe(self, rate: float) -> bool:
        # A seed that is asked for no more has left all the same.
        if any(rung.rate == rate and rung.left_at is not None for rung in self.rows.every):
            return False
        first = self.settings.run.seed
        return all(self._stays(Attempt(rate, seed)) for seed in range(first, first + self.settings.ladder.seeds))

    def _stays(self, attempt: Attempt) -> bool:
        if attempt not in self.rows:
            self._make(attempt)
        return self.rows[attempt].left_at is None

    def _make(self, attempt: Attempt) -> None:
        rung = make_rung(attempt, self.context, self.settings, self.folder, self.watch)
        self.rows.add(rung)
        ended = f"stays inside for {rung.steps[-1]:,}" if rung.left_at is None else f"leaves the band by {rung.left_at:,}"
        self.watch.note(f"{attempt}: {ended} of {self.settings.ladder.steps:,} steps")
        clear_rung(attempt, self.folder)


def _result(
    context: TuningContext, settings: TuneSettings, inputs: Mapping[str, str], rungs: list[Rung], rate: float | None, command: str
) -> SafeRate:
    guard, section = context.guard(settings), settings.ladder
    rates = sorted({*section.rates, *(one.rate for one in rungs)})
    assert guard.most is not None
    return SafeRate(
        title=f"The largest safe rate for tuning {inputs['model']} on {context.examples(settings.data)[0].name}",
        command=command,
        created=now(),
        seconds=sum(one.seconds for one in rungs),
        seed=settings.run.seed,
        versions=versions(device_name(device_of(settings.run.device))),
        model=inputs["model"],
        measure=guard.section.measure,
        limit=guard.most,
        noise=dict(guard.noise),
        probes=guard.probes,
        steps=section.steps,
        rates=rates,
        rate=rate,
        rungs=rungs,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs={**inputs, "store_sha256": context.store.manifest.sha256},
        notes=[*_notes(rates, rate), *filter(None, [_mined_note(context, settings)])],
    )


def _mined_note(context: TuningContext, settings: TuneSettings) -> str | None:
    return mined_negatives_note(context.examples(settings.data)[0], settings.tune)


def _notes(rates: Sequence[float], rate: float | None) -> list[str]:
    if rate == rates[-1]:
        return ["even the highest rate of the ladder stays inside: larger ones may be safe too, see ladder.high"]
    return [] if rate is not None else ["even the lowest rate of the ladder leaves the band: see ladder.low"]


def _rules() -> Rules:
    """Rungs are known by rate and seed, so that a ladder may grow."""
    places = (f"{SEARCH}.{name}" for name in ("model", "store", "data"))
    grown = ("ladder.low", "ladder.high", "ladder.count", "ladder.seeds")
    words = {f"{SEARCH}.{name.removeprefix('job.')}": told for name, told in WORDS.items()}
    later = frozenset(f"{SEARCH}.{name.removeprefix('job.')}" for name in LATER)
    return Rules(free=frozenset((*places, *grown, *FREE_RUNS)), words=words, defaults=TuneSettings().model_dump(), later=later)


RULES = _rules()
"""With what a search may go on."""
