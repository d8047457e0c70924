"""A scaling experiment from its settings to its result, resumed where it was interrupted (Ziarko et al. 2024)."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.config.budgets import ScalingSettings
from adiabat.config.comparison_settings import COMMON
from adiabat.core.errors import ConfigError, JobError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.dual_encoder.dataset_cache import cache_folder
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.dual_encoder.train import check, check_pairs
from adiabat.dual_encoder.train_checks import FREE_MEMORY, FREE_SOURCES
from adiabat.experiments.scaling_analysis import evidence_of, fitted
from adiabat.experiments.scaling_rows import ROWS, result_of, rows_at
from adiabat.experiments.scaling_trials import Worker
from adiabat.experiments.scaling_variants import Planned, plan_runs, ways_of, without_freezing
from adiabat.models.device import device_of
from adiabat.results.scaling_result import ScalingResult, ScalingRun
from adiabat.runs.executors import make_runs
from adiabat.runs.finish import write_report
from adiabat.runs.output_dir import claimed_for_jobs, require_begun
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import FREE_RUNS, Rules, description_of, is_described, require_same, without_none
from adiabat.runs.run_dir import Job
from adiabat.stats.ranking_measures import require_relevant_alone
from adiabat.store.input_checks import require_inputs
from adiabat.training.blocks import blocks_of

MANY_BLOCKS = 2**31
"""Of a model that nobody has looked at yet: more than any is cut to."""


def scaling(load: Loader, settings: ScalingSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT) -> ScalingResult:
    """Train every size with every method to every budget, and report what that says of models and methods.

    The directory holds ``config.toml`` (as resolved), ``runs.parquet`` (a row for each run that is over), ``runs/NAME`` (a job each),
    ``result.json``, the page and figures.
    """
    _check(settings)
    folder = Path(str(settings.scaling.out))
    going_on = is_described(folder, "scaling")
    if note := require_begun(folder, "scaling experiment", begun=going_on, resume=resume):
        watch.note(note)
    worker = Worker(settings, folder, load, command, watch)
    examples, tasks = _examples(settings, watch), {task.name: task.sha256 for task in worker.tasks}
    models = _Models(load, settings)
    runs = plan_runs(settings, ways_of(settings, models.blocks))
    wanted = _description(settings, runs, examples=examples, models=models.prints, tasks=tasks)

    def description() -> dict[str, Any]:
        return _same(folder, wanted) if going_on else wanted

    for lost in without_freezing(settings, models.blocks):
        watch.note(lost)
    # Refused before any model is set up, and models before anything is written.
    description()
    _set_up_once(worker, _waiting(runs, rows_at(folder / ROWS)))
    with claimed_for_jobs(folder, description, begun=going_on):
        # Another process may have added some by now.
        rows = rows_at(folder / ROWS)
        _carry_out(worker, _waiting(runs, rows), rows.add)
        for run in runs:
            worker.tidy_left(run)
            # A model may lie elsewhere by now, or belong to another family.
            if rows[run.name].way != run.tried.way:
                rows.add(replace(rows[run.name], way=run.tried.way))
        found = _result(worker, [rows[run.name] for run in runs], {"sha256": examples, "tasks": tasks}, command)
        write_report(found, folder)
    _require_a_run(found.runs, folder)
    return found


def _require_a_run(rows: Sequence[ScalingRun], folder: Path) -> None:
    if all(row.status == "failed" for row in rows):
        told = f"{len(rows):,} that failed, such as {rows[0].name}: {rows[0].reason}"
        raise JobError(
            f"{folder} must hold a run that could be made, got {told}; other budgets go on with --resume, other rates in another --out"
        )


def _waiting(runs: Sequence[Planned], rows: Rows[str, ScalingRun]) -> list[Planned]:
    """Runs that have no row; and those that failed: it may have been for want of memory, or of a disk, that is there now."""
    for run in runs:
        if run.name in rows:
            _require_alike(rows[run.name], run)
    return [run for run in runs if run.name not in rows or rows[run.name].status == "failed"]


def _require_alike(row: ScalingRun, run: Planned) -> None:
    """Refuse a row of another run, whatever its name."""
    way = replace(row.way, family=run.tried.way.family, model=run.tried.way.model)
    both = {"way": (way, run.tried.way), "budget": (row.budget, run.budget), "seed": (row.seed, run.seed)}
    for what, (got, wanted) in both.items():
        if got != wanted:
            raise JobError(f"the row {run.name} must be of {what} = {wanted}, got {got}; choose another --out, or another models.name")


def _result(worker: Worker, rows: Sequence[ScalingRun], inputs: Mapping[str, Any], command: str) -> ScalingResult:
    settings, section = worker.settings, worker.settings.scaling
    evidence = evidence_of(rows, section.loss, least_steps=section.least_steps)
    fits = fitted(evidence, resamples=section.resamples, seed=settings.run.seed, watch=worker.watch) if evidence.runs else []
    data = settings.job.data or " + ".join(one.path for one in settings.data.sources)
    return result_of(settings, section.name, rows, evidence, fits, None, command=command, inputs={"trained on": {"data": data, **inputs}})


def _check(settings: ScalingSettings) -> None:
    """Refuse what can be seen to be wrong without data or models."""
    section, data = settings.scaling, settings.job.data or settings.data.sources
    wanted = {"scaling.out": section.out, "scaling.budgets": section.budgets, "models": settings.models, "job.data": data}
    if missing := [f"{name} must be given, got none" for name, value in wanted.items() if not value]:
        raise ConfigError(f"{several(missing)}; write it into the file, or add --out for the directory")
    require_relevant_alone(settings.measure.measures)
    device_of(settings.run.device)
    store = settings.towers.vectors
    require_inputs([one.path for one in settings.data.listed(settings.job.data)], stores=[] if store is None else [store])


def _examples(settings: ScalingSettings, watch: Watch) -> str:
    """SHA-256 of what runs are trained and validated on; read here, so that its faults come before any model, and kept for the runs."""
    # Any method and rate: neither decides what is read.
    plain = plan_runs(settings, ways_of(settings, lambda name: MANY_BLOCKS))[0].settings
    check(plain)
    cache = cache_folder(plain.data.cache)
    training, validation = read_pairs(plain.job.data, plain.data, stored=plain.reads_ids, cache=cache, watch=watch)
    check_pairs(training, validation, plain)
    return hashlib.sha256(" ".join([training.digest(), validation.digest()]).encode()).hexdigest()


class _Models:
    """The models of a scaling experiment, each loaded once to be looked at."""

    def __init__(self, load: Loader, settings: ScalingSettings) -> None:
        self._load, self._settings = load, settings
        self.prints: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def blocks(self, name: str) -> int:
        """How many a model has; its fingerprint is noted."""
        if name not in self._counts:
            self._counts[name] = self._looked_at(name)
        return self._counts[name]

    def _looked_at(self, name: str) -> int:
        model = self._load(name, self._settings.encoder)
        told = json.dumps([model.fingerprint(side).to_json() for side in ("query", "document")], sort_keys=True)
        self.prints[name] = hashlib.sha256(told.encode()).hexdigest()
        return len(blocks_of(model.query.backbone))


def _description(
    settings: ScalingSettings, runs: Sequence[Planned], *, examples: str, models: Mapping[str, str], tasks: Mapping[str, str]
) -> dict[str, Any]:
    """Everything that decides what runs give. It has no table ``[job]``: the directory is no job, and has some inside."""
    return without_none(
        {
            "scaling": {"name": settings.scaling.name, "data": settings.job.data, "last_steps": settings.scaling.last_steps},
            "start": {"examples": examples, "models": {family.title: models[family.model] for family in settings.models}},
            "common": settings.model_dump(include=set(COMMON) - {"job"}),
            "rates": {run.tried.way.title: run.tried.learning_rate for run in runs},
            "tasks": dict(tasks),
            "measure": settings.measure.model_dump(),
        }
    )


def _same(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to resume another scaling experiment; models, methods and tasks of earlier calls stay described."""
    before = {"start": {}, "rates": {}, "tasks": {}, **description_of(Job(folder), wanted, of="a scaling experiment")}
    plain = ScalingSettings()
    defaults = {"common": plain.model_dump(include=set(COMMON) - {"job"}), "measure": plain.measure.model_dump()}
    rules = Rules(free=frozenset(_free(before, wanted)), free_in={"common.data.sources": FREE_SOURCES}, defaults=defaults)
    require_same(Job(folder), wanted, rules=rules)
    start = {**wanted["start"], "models": {**before["start"].get("models", {}), **wanted["start"]["models"]}}
    return {**wanted, "start": start, **{table: {**before[table], **wanted[table]} for table in ("rates", "tasks")}}


def _free(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """What may differ: where inputs lie whose digests are compared, how runs go, and what has come or gone."""
    yield from ("scaling.name", "scaling.data", "common.data.cache", "common.data.corpus", "common.data.validation")
    yield from ("common.towers.store", "common.towers.targets")
    yield from (f"common.{key}" for key in (*FREE_MEMORY, *FREE_RUNS, "run.seed"))
    for table in ("rates", "tasks"):
        yield from (f"{table}.{name}" for name in before[table].keys() ^ wanted[table].keys())
    yield from (f"start.models.{name}" for name in before["start"].get("models", {}).keys() ^ wanted["start"]["models"].keys())


def _set_up_once(worker: Worker, runs: Sequence[Planned]) -> None:
    """Set every model up as it will be trained, so that what does not fit comes to light before the first run."""
    ways = list({run.tried.way: run for run in runs}.values())
    for number, run in enumerate(ways):
        worker.watch.progress("setting models up", number, len(ways))
        worker.count(run)


def _carry_out(worker: Worker, runs: Sequence[Planned], add: Callable[[ScalingRun], None]) -> None:
    engine, place = (worker.settings.scaling.engine, "scaling.engine"), device_of(worker.settings.run.device)
    make_runs(worker, runs, add, engine=engine, place=place, said=_told)


def _told(row: ScalingRun) -> str:
    loss = "" if row.loss is None else f", loss {row.loss:.4f}, validation {row.validation_loss:.4f}"
    return f"{row.status} after {row.steps:,} steps{loss}"
