"""A sweep from its settings to its report: checked, tuned, measured; what was cut short goes on where it was (Vasilyev et al. 2024)."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.adiabatic.regularization import require_apart
from adiabat.adiabatic.tune_data import examples_digest
from adiabat.adiabatic.tune_setup import check_settings
from adiabat.config.reader import keys_of
from adiabat.config.section import Section
from adiabat.config.sweeps import COMMON, SweepSettings, VariantSection
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, JobError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.evaluation.task_kinds import Prepared
from adiabat.experiments import dual_variants as both
from adiabat.experiments.evaluator import NOISE, READINGS
from adiabat.experiments.grid import Planned, plan_runs
from adiabat.experiments.sweep_rows import rows_at
from adiabat.experiments.sweep_trials import RUNS, Loader, Worker
from adiabat.models.device import device_name, device_of
from adiabat.results.sweep_result import SweepResult, SweepRun
from adiabat.runs.executors import make_runs
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed_for_jobs, require_begun
from adiabat.runs.run_config import FREE_RUNS, Rules, description_of, is_described, require_same, without_none
from adiabat.runs.run_dir import Job
from adiabat.stats.ranking_measures import require_relevant_alone
from adiabat.store.build import refuse_swapped
from adiabat.store.input_checks import require_inputs


def sweep(load: Loader, settings: SweepSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT) -> SweepResult:
    """Tune with every combination of a grid, measure each tuned tower on the same tasks and probes, and report what changed.

    The directory holds ``config.toml`` (as resolved), ``runs.parquet`` (a row for each run that is done), ``runs/NAME`` (a job each),
    ``scores`` (of every unit), ``readings`` (of the probes), ``stores`` (vectors of the tasks' corpora), ``result.json``, the page, tables
    and figures.
    """
    runs = _checked(settings)
    folder = Path(str(settings.sweep.out))
    going_on = is_described(folder, "sweep")
    if note := require_begun(folder, "sweep", begun=going_on, resume=resume):
        watch.note(note)
    worker = Worker(settings, folder, load, command, watch)
    targets = _targets(settings, worker.tasks)
    digests = _digests(worker, runs)
    worker.ground.require_possible([run.settings for run in runs])
    if any(run.both for run in runs):
        both.require_texts(worker.ground.store)
    _require_apart(worker, runs)
    description = _description(worker, digests)
    with claimed_for_jobs(folder, lambda: _same(folder, description) if _has_made(folder) else description, begun=going_on):
        if not _has_made(folder):
            # Of a sweep that made nothing, what was read of probes might be of others.
            (folder / READINGS / NOISE).unlink(missing_ok=True)
        rows = rows_at(folder / "runs.parquet")
        _carry_out(worker, [run for run in runs if run.name not in rows], rows.add)
        for run in runs:
            worker.tidy_left(run)
            # A row says what was varied when it was made.
            if rows[run.name].varied != run.varied:
                _require_alike(rows[run.name], run)
                rows.add(replace(rows[run.name], varied=run.varied))
        found = _result(worker, [rows[run.name] for run in runs], targets, command)
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
    require_relevant_alone(settings.measure.measures)
    runs = plan_runs(settings)
    for run in runs:
        check_settings(run.settings)
        if run.both:
            both.require_possible(run)
    return runs


def _carry_out(worker: Worker, runs: Sequence[Planned], add: Callable[[SweepRun], None]) -> None:
    if not runs:
        return
    # Before any run: what is wrong with a task and the model must not come to light after the first of them.
    worker.measure_start()
    engine, device = (worker.settings.sweep.engine, "sweep.engine"), device_of(worker.settings.run.device)
    make_runs(worker, runs, add, engine=engine, place=device, said=lambda row: f"{row.status} after {row.steps:,} steps")


def _targets(settings: SweepSettings, tasks: Sequence[Prepared]) -> list[str]:
    names = [task.name for task in tasks]
    if unknown := [name for name in settings.sweep.targets if name not in names]:
        raise ConfigError(f"sweep.targets must be names of tasks, got {', '.join(unknown)}; the tasks are {', '.join(names)}")
    return list(settings.sweep.targets) or names[:1]


def _digests(worker: Worker, runs: Sequence[Planned]) -> dict[str, Any]:
    """SHA-256 of what runs begin with; every file of examples is read here, before the model, so that its faults come first."""
    sections = dict.fromkeys(run.settings.data for run in runs)
    examples = {_key_of(section): examples_digest(*worker.ground.examples(section)) for section in sections}
    store, probes = worker.ground.store.manifest.sha256, worker.ground.probes
    taught = {_key_of(one): probes(one.texts).sha256 for one in (run.settings.rehearsal for run in runs) if one.use}
    watched = {_key_of(one): probes(one.probes).sha256 for one in (run.settings.watched for run in runs) if one.use}
    return {"query_tower": worker.ground.digest, "store_vectors": store, "examples": examples, "rehearsed": taught, "guards": watched}


def _require_apart(worker: Worker, runs: Sequence[Planned]) -> None:
    """Drift is not measured on what any run rehearses."""
    for texts in dict.fromkeys(run.settings.rehearsal.texts for run in runs if run.settings.rehearsal.use):
        if worker.probes is not None:
            require_apart(worker.ground.probes(texts), worker.probes)


def _key_of(section: Section) -> str:
    return hashlib.sha256(section.model_dump_json().encode()).hexdigest()[:12]


def _require_alike(row: SweepRun, run: Planned) -> None:
    """Refuse a row of other settings, whatever its name."""
    known = {key for key in row.varied.keys() & run.varied.keys() if None not in (row.varied[key], run.varied[key])}
    if other := sorted(key for key in known if row.varied[key] != run.varied[key]):
        key = other[0]
        raise JobError(
            f"the row {run.name} must be of {key} = {run.varied[key]}, got {row.varied[key]}; choose another --out, or a value that is "
            "written otherwise"
        )


def _description(worker: Worker, digests: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that decides what runs give. It has no table ``[job]``: the directory is no job, and has some inside."""
    settings, probes = worker.settings, worker.probes
    common = settings.model_dump(include=set(COMMON))
    elsewhere = None if probes is None or settings.probes.store is None else worker.probed.manifest.sha256
    return without_none(
        {
            "sweep": {"name": settings.sweep.name, "model": settings.job.model, "store": settings.job.store, "data": settings.job.data},
            "start": digests,
            "common": common,
            "variants": {one.name: one.own | ({"towers": one.towers} if one.towers != "query" else {}) for one in settings.variants},
            "grids": {one.name: _listed(settings, one) for one in settings.variants if one.grid},
            "grid": _listed(settings, None),
            "tasks": {task.name: {"sha256": task.sha256} for task in worker.tasks},
            "measure": settings.measure.model_dump(),
            "probes": {} if probes is None else {"sha256": probes.sha256, "depth": settings.probes.depth, "store": elsewhere},
        }
    )


def _listed(settings: SweepSettings, variant: VariantSection | None) -> dict[str, list[Any]]:
    shared = settings.values() if variant is not None else {}
    return {key: list(value) for key, value in settings.values(variant).items() if key not in shared}


def _has_made(folder: Path) -> bool:
    """Whether a sweep stands there that made something."""
    return (folder / "runs.parquet").is_file() or any((folder / RUNS).glob("*"))


def _same(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to go on with another sweep; variants that are there already and not wanted now stay described."""
    before = description_of(Job(folder), wanted, of="a sweep")
    require_same(Job(folder), wanted, rules=Rules(free=frozenset(_free(before, wanted)), defaults=_defaults()))
    return {**wanted, "variants": {**before.get("variants", {}), **wanted["variants"]}}


def _defaults() -> dict[str, Any]:
    plain = SweepSettings()
    return {"common": plain.model_dump(include=set(COMMON)), "measure": plain.measure.model_dump()}


def _free(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """What may differ: rows are known by what they vary, so other values are other rows."""
    yield from ("sweep.name", "sweep.model", "sweep.store", "sweep.data")
    yield from (f"common.{key}" for key in FREE_RUNS)
    for one in (before, wanted):
        yield from (f"grid.{key}" for key in one.get("grid", {}))
        yield from (f"grids.{name}.{key}" for name, grid in one.get("grids", {}).items() for key in grid)
    # A variant is known by its name, and must stay what it was; so must examples and texts that both read.
    for name in before.get("variants", {}).keys() ^ wanted["variants"].keys():
        yield from (f"variants.{name}.{key}" for key in ("towers", *keys_of(TuneSettings)))
    for part in ("examples", "rehearsed", "guards"):
        yield from (f"start.{part}.{key}" for key in before.get("start", {}).get(part, {}).keys() ^ wanted["start"][part].keys())


def _result(worker: Worker, runs: Sequence[SweepRun], targets: Sequence[str], command: str) -> SweepResult:
    settings, store = worker.settings, worker.ground.store
    names = [task.name for task in worker.tasks]
    probes = worker.probes
    inputs: dict[str, dict[str, str | None]] = {
        name: {"source": task.source, "sha256": task.sha256} for name, task in zip(names, worker.tasks, strict=True)
    }
    inputs |= {"tuned on": {"data": settings.job.data, "store": settings.job.store, "store_sha256": store.manifest.sha256}}
    if probes is not None:
        inputs |= {"probes": {"source": probes.name, "sha256": probes.sha256}}
    return SweepResult(
        title=f"{settings.sweep.name}: tuning the query tower of {settings.job.model}",
        command=command,
        created=now(),
        seconds=sum(run.seconds for run in runs) + worker.clock.seconds,
        seed=settings.run.seed,
        versions=versions(device_name(device_of(settings.run.device))),
        model=str(settings.job.model),
        targets=list(targets),
        tasks=names,
        varied=settings.varied,
        runs=list(runs),
        noise=worker.bench.noise,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=inputs,
        notes=[*worker.clock.notes(), *([] if probes is None else probes.notes)],
    )
