"""A sweep from its settings to its report: checked, tuned, measured; what was cut short goes on where it was (Vasilyev et al. 2024)."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adiabat.adiabatic.regularization import require_apart
from adiabat.adiabatic.tune_data import examples_digest
from adiabat.adiabatic.tune_setup import check_settings
from adiabat.config.section import Section
from adiabat.config.sweeps import COMMON, SweepSettings, VariantSection
from adiabat.core.errors import ConfigError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.evaluation.task_kinds import LoadedTask
from adiabat.experiments import dual_variants as both
from adiabat.experiments.evaluator import NOISE, READINGS
from adiabat.experiments.grid import Planned, plan_runs
from adiabat.experiments.sweep_rows import rows_at
from adiabat.experiments.sweep_trials import SweepRunner
from adiabat.experiments.trials import ExperimentKind, is_begun, run_trials
from adiabat.models.device import device_name, device_of
from adiabat.results.sweep_result import SweepResult, SweepRun
from adiabat.runs.finish import write_report
from adiabat.runs.run_config import FREE_RUNS, without_none
from adiabat.stats.ranking_measures import require_relevant_only
from adiabat.store.input_checks import require_inputs
from adiabat.store.vector_store import refuse_swapped


def sweep(load: Loader, settings: SweepSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT) -> SweepResult:
    """Tune with every combination of a grid, measure each tuned tower on the same tasks and probes, and report what changed.

    The directory holds ``config.toml`` (as resolved), ``runs.parquet`` (a row for each run that is done), ``runs/NAME`` (a job each),
    ``scores`` (of every unit), ``readings`` (of the probes), ``stores`` (vectors of the tasks' corpora), ``result.json``, the page, tables
    and figures.
    """
    trials = _checked(settings)
    folder = Path(str(settings.sweep.out))
    begun = SWEEP.begin(folder, resume=resume, watch=watch)
    runner = SweepRunner(folder, load, command, watch, settings)
    targets = _targets(settings, runner.tasks)
    digests = _digests(runner, trials)
    runner.context.require_possible([trial.settings for trial in trials])
    if any(trial.both for trial in trials):
        both.require_texts(runner.context.store)
    _require_apart(runner, trials)
    description = _description(runner, digests)

    def described() -> dict[str, Any]:
        if not is_begun(folder):
            # Probes of a sweep that has no run yet may have been others.
            (folder / READINGS / NOISE).unlink(missing_ok=True)
        return SWEEP.resumed(folder, description)

    with run_trials(
        runner,
        trials,
        described,
        rows_at,
        begun=begun,
        load_tasks=lambda waiting: runner.measure_start(),
        executor=(settings.sweep.engine, "sweep.engine"),
        place=device_of(settings.run.device),
        outcome=lambda row: f"{row.status} after {row.steps:,} steps",
    ) as rows:
        found = _result(runner, rows, targets, command)
        write_report(found, folder)
    return found


def _checked(settings: SweepSettings) -> list[Planned]:
    """The runs, once whatever can be seen without data or model is sound."""
    named = {"sweep.out": settings.sweep.out, **{f"job.{name}": getattr(settings.job, name) for name in ("model", "store", "data")}}
    faults = [f"{name} must be given, got none" for name, value in named.items() if value is None]
    if not settings.tasks:
        faults.append("tasks must be given, got none; list under [[tasks]] what tuned towers are measured on")
    if faults:
        raise ConfigError(several(faults))
    refuse_swapped(str(settings.job.store), str(settings.job.model), str(settings.job.data), order="MODEL STORE DATA")
    require_inputs([str(settings.job.data)], stores=[str(settings.job.store)])
    require_relevant_only(settings.measure.measures)
    runs = plan_runs(settings)
    for run in runs:
        check_settings(run.settings)
        if run.both:
            both.require_possible(run)
    return runs


def _targets(settings: SweepSettings, tasks: Sequence[LoadedTask]) -> list[str]:
    names = [task.name for task in tasks]
    if unknown := [name for name in settings.sweep.targets if name not in names]:
        raise ConfigError(f"sweep.targets must be names of tasks, got {', '.join(unknown)}; the tasks are {', '.join(names)}")
    return list(settings.sweep.targets) or names[:1]


def _digests(runner: SweepRunner, runs: Sequence[Planned]) -> dict[str, Any]:
    """SHA-256 of what runs begin with; every file of examples is read here, before the model, so that its faults come first."""
    sections = dict.fromkeys(run.settings.data for run in runs)
    examples = {_key_of(section): examples_digest(*runner.context.examples(section)) for section in sections}
    store, probes = runner.context.store.manifest.sha256, runner.context.probes
    taught = {_key_of(one): probes(one.texts).sha256 for one in (run.settings.rehearsal for run in runs) if one.use}
    watched = {_key_of(one): probes(one.probes).sha256 for one in (run.settings.watched for run in runs) if one.use}
    return {"query_tower": runner.context.digest, "store_vectors": store, "examples": examples, "rehearsed": taught, "guards": watched}


def _require_apart(runner: SweepRunner, runs: Sequence[Planned]) -> None:
    """Drift is not measured on what any run rehearses."""
    for texts in dict.fromkeys(run.settings.rehearsal.texts for run in runs if run.settings.rehearsal.use):
        if runner.probes is not None:
            require_apart(runner.context.probes(texts), runner.probes)


def _key_of(section: Section) -> str:
    return hashlib.sha256(section.model_dump_json().encode()).hexdigest()[:12]


def _description(runner: SweepRunner, digests: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that decides what runs give. It has no table ``[job]``: the directory is no job, and has some inside."""
    settings, probes = runner.settings, runner.probes
    common = settings.model_dump(include=set(COMMON))
    elsewhere = None if probes is None or settings.probes.store is None else runner.probed.manifest.sha256
    return without_none(
        {
            "sweep": {"name": settings.sweep.name, "model": settings.job.model, "store": settings.job.store, "data": settings.job.data},
            "start": digests,
            "common": common,
            "variants": {one.name: one.own | ({"towers": one.towers} if one.towers != "query" else {}) for one in settings.variants},
            "grids": {one.name: _listed(settings, one) for one in settings.variants if one.grid},
            "grid": _listed(settings, None),
            "tasks": {task.name: {"sha256": task.sha256} for task in runner.tasks},
            "measure": settings.measure.model_dump(),
            "probes": {} if probes is None else {"sha256": probes.sha256, "depth": settings.probes.depth, "store": elsewhere},
        }
    )


def _listed(settings: SweepSettings, variant: VariantSection | None) -> dict[str, list[Any]]:
    shared = settings.values() if variant is not None else {}
    return {key: list(value) for key, value in settings.values(variant).items() if key not in shared}


def _kind() -> ExperimentKind:
    plain = SweepSettings()
    named = (f"sweep.{name}" for name in ("name", "model", "store", "data"))
    return ExperimentKind(
        "sweep",
        "sweep",
        free=frozenset((*named, *(f"common.{key}" for key in FREE_RUNS))),
        # Rows are known by the values that they vary.
        free_tables=("grid", "grids"),
        growing=("variants", "start.examples", "start.rehearsed", "start.guards"),
        defaults={"common": plain.model_dump(include=set(COMMON)), "measure": plain.measure.model_dump()},
    )


SWEEP = _kind()


def _result(runner: SweepRunner, runs: Sequence[SweepRun], targets: Sequence[str], command: str) -> SweepResult:
    settings, store = runner.settings, runner.context.store
    names = [task.name for task in runner.tasks]
    probes = runner.probes
    inputs: dict[str, dict[str, str | None]] = {
        name: {"source": task.source, "sha256": task.sha256} for name, task in zip(names, runner.tasks, strict=True)
    }
    inputs |= {"tuned on": {"data": settings.job.data, "store": settings.job.store, "store_sha256": store.manifest.sha256}}
    if probes is not None:
        inputs |= {"probes": {"source": probes.name, "sha256": probes.sha256}}
    return SweepResult(
        title=f"{settings.sweep.name}: tuning the query tower of {settings.job.model}",
        command=command,
        created=now(),
        seconds=sum(run.seconds for run in runs) + runner.counts.seconds,
        seed=settings.run.seed,
        versions=versions(device_name(device_of(settings.run.device))),
        model=str(settings.job.model),
        targets=list(targets),
        tasks=names,
        varied=settings.varied,
        runs=list(runs),
        noise=runner.bench.noise,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=inputs,
        notes=[*runner.counts.notes(), *([] if probes is None else probes.notes)],
    )
