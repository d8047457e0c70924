"""A sweep from its settings to its report: checked, trained, measured, ranked, and resumed where it was interrupted."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adiabat.adiabatic.regularization import require_apart
from adiabat.adiabatic.tune import check_settings
from adiabat.adiabatic.tuning_context import examples_digest
from adiabat.config.section import Section
from adiabat.config.sweeps import SweepSettings, TrainSweepSettings, TuneSweepSettings, VariantSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.dual_encoder.train import check
from adiabat.dual_encoder.train_checks import FREE_MEMORY
from adiabat.experiments import dual_variants as both
from adiabat.experiments.evaluator import NOISE, READINGS
from adiabat.experiments.grid import SweepTrial
from adiabat.experiments.setting_digests import pairs_key, short_digest
from adiabat.experiments.sweep_analysis import analysed
from adiabat.experiments.sweep_ranking import ranking_of
from adiabat.experiments.sweep_rows import rows_at
from adiabat.experiments.sweep_trials import TrainSweepRunner, TuneSweepRunner
from adiabat.experiments.trials import ExperimentKind, is_begun, run_trials
from adiabat.models.device import device_name, device_of
from adiabat.results.sweep_result import SweepResult, SweepRun
from adiabat.runs.finish import write_report
from adiabat.runs.run_config import FREE_RUNS, without_none
from adiabat.stats.ranking_measures import require_relevant_only
from adiabat.store.addressing import require_inputs
from adiabat.store.vector_store import refuse_swapped

MOVABLE = ("job.data", "data.cache")
"""Settings of a variant that say where files lie; digests of the pairs are compared."""


def sweep(load: Loader, settings: SweepSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT) -> SweepResult:
    """Tune or train with every combination of a grid, measure each model on the same tasks, and report what changed.

    The directory holds ``config.toml`` (as resolved), ``runs.parquet`` (a row for each run that is done), ``runs/NAME`` (a job each),
    ``scores`` (of every unit), ``readings`` (of the probes), ``stores`` (vectors of the tasks' corpora), ``result.json``, the page, tables
    and figures.
    """
    _require_complete(settings)
    folder = Path(str(settings.sweep.out))
    runner = _runner(settings, folder, load, command, watch)
    _check_runs(runner)
    kind = _kind(settings)
    begun = kind.begin(folder, resume=resume, watch=watch)
    targets = _targets(settings, [task.name for task in runner.tasks])
    description = _description(runner)

    def described() -> dict[str, Any]:
        if not is_begun(folder):
            # Probes of a sweep that has no run yet may have been others.
            (folder / READINGS / NOISE).unlink(missing_ok=True)
        return kind.resumed(folder, description)

    with run_trials(
        runner,
        runner.trials,
        described,
        rows_at,
        begun=begun,
        prepare=runner.prepare,
        executor=(settings.sweep.engine, "sweep.engine"),
        place=runner.device,
        outcome=lambda row: f"{row.status} after {row.steps:,} steps",
    ) as rows:
        result = analysed(_result(runner, rows, targets))
        write_report(result, folder)
    return result


def _runner(settings: SweepSettings, folder: Path, load: Loader, command: str, watch: Watch) -> TuneSweepRunner | TrainSweepRunner:
    if isinstance(settings, TuneSweepSettings):
        return TuneSweepRunner(folder, load, command, watch, settings)
    assert isinstance(settings, TrainSweepSettings)
    return TrainSweepRunner(folder, load, command, watch, settings)


def _require_complete(settings: SweepSettings) -> None:
    """Refuse a sweep without the settings that every sweep needs."""
    required: dict[str, Any] = {"sweep.out": settings.sweep.out}
    if isinstance(settings, TuneSweepSettings):
        required |= {f"job.{name}": getattr(settings.job, name) for name in ("model", "store", "data")}
    faults = [f"{name} must be given, got none" for name, value in required.items() if value is None]
    if not settings.tasks:
        faults.append("tasks must be given, got none; list under [[tasks]] what models are measured on")
    if (processes := os.environ.get("WORLD_SIZE", "1")) != "1":
        faults.append(f"adiabat sweep must run in one process, got {processes}; start it without a launcher")
    if faults:
        raise ConfigError(several(faults))
    require_relevant_only(settings.measure.measures)
    if isinstance(settings, TuneSweepSettings):
        refuse_swapped(str(settings.job.store), str(settings.job.model), str(settings.job.data), order="MODEL STORE DATA")
        require_inputs([str(settings.job.data)], stores=[str(settings.job.store)])


def _check_runs(runner: TuneSweepRunner | TrainSweepRunner) -> None:
    """Refuse runs whose settings are wrong, before data or models are read."""
    device_of(runner.settings.run.device)
    if isinstance(runner, TuneSweepRunner):
        for trial in runner.trials:
            check_settings(trial.tuned)
            if trial.both:
                both.require_possible(trial)
        return
    if faults := list(dict.fromkeys(_train_faults(runner.trials))):
        raise ConfigError(several(faults))


def _train_faults(trials: Sequence[SweepTrial]) -> Iterator[str]:
    for trial in trials:
        try:
            check(trial.trained)
        except ConfigError as fault:
            yield f"{trial.case}: {fault}" if trial.case else str(fault)


def _targets(settings: SweepSettings, names: Sequence[str]) -> list[str]:
    if unknown := [name for name in settings.sweep.targets if name not in names]:
        raise ConfigError(f"sweep.targets must be names of tasks, got {', '.join(unknown)}; the tasks are {', '.join(names)}")
    return list(settings.sweep.targets) or list(names if settings.sweep.verb == "train" else names[:1])


def _tune_digests(runner: TuneSweepRunner) -> dict[str, Any]:
    """SHA-256 of the inputs of runs; every file of examples is read here, before the model, so that its errors come first."""
    settings = [trial.tuned for trial in runner.trials]
    examples = {_key_of(one): examples_digest(*runner.context.examples(one)) for one in dict.fromkeys(run.data for run in settings)}
    store, probes = runner.context.store.manifest.sha256, runner.context.probes
    rehearsed = {_key_of(one): probes(one.texts).sha256 for one in (run.rehearsal for run in settings) if one}
    guards = {_key_of(one): probes(one.probes).sha256 for one in (run.watched for run in settings) if one}
    digests = {"query_tower": runner.context.digest, "store_vectors": store, "examples": examples, "rehearsed": rehearsed, "guards": guards}
    runner.context.require_possible(settings)
    if any(trial.both for trial in runner.trials):
        both.require_texts(runner.context.store)
    # Drift is not measured on what any run rehearses.
    for texts in dict.fromkeys(run.rehearsal.texts for run in settings if run.rehearsal):
        if runner.probes is not None:
            require_apart(runner.context.probes(texts), runner.probes)
    return digests


def _train_digests(runner: TrainSweepRunner) -> dict[str, Any]:
    """SHA-256 of the pairs of all runs, which are read here, and the fingerprints of the models that they start from."""
    examples, faults = dict[str, str](), list[str]()
    for number, trial in enumerate(runner.trials):
        if (key := pairs_key(trial)) not in examples:
            runner.watch.progress("reading training data", number, len(runner.trials))
            try:
                examples[key] = runner.read_data(trial)[0]
            except AdiabatError as fault:
                examples[key] = ""
                faults.append(str(fault))
    if faults:
        raise DataError(several(list(dict.fromkeys(faults))))
    models = {str(trial.trained.job.model): trial for trial in reversed(runner.trials)}
    prints = {name: runner.load(name, trial.trained.encoder) for name, trial in reversed(models.items())}
    digests = {
        name: short_digest(model.fingerprint("query").to_json(), model.fingerprint("document").to_json()) for name, model in prints.items()
    }
    return {"examples": examples, "models": digests}


def _key_of(section: Section) -> str:
    return short_digest(section.model_dump(mode="json"))


def _description(runner: TuneSweepRunner | TrainSweepRunner) -> dict[str, Any]:
    """Everything that decides the results of runs. It has no table ``[job]``: the directory is no job, and has some inside."""
    settings = runner.settings
    start = _tune_digests(runner) if isinstance(runner, TuneSweepRunner) else _train_digests(runner)
    probes: dict[str, Any] = {}
    if isinstance(runner, TuneSweepRunner) and runner.probes is not None and (section := runner.settings.probes) is not None:
        store = None if section.store is None else runner.context.store_at(section.store).manifest.sha256
        probes = {"sha256": runner.probes.sha256, "depth": section.depth, "store": store}
    variants = {one.name: {**one.own, **({"towers": "both"} if getattr(one, "towers", "") == "both" else {})} for one in settings.variants}
    return without_none(
        {
            "sweep": {"name": settings.sweep.name, "verb": settings.sweep.verb, **settings.job.model_dump()},
            "start": start,
            "common": settings.model_dump(include=set(settings.shared) - {"job"}),
            "variants": variants,
            "grids": {one.name: _listed(settings, one) for one in settings.variants if one.grid},
            "grid": _listed(settings, None),
            "tasks": {task.name: {"sha256": task.sha256} for task in runner.tasks},
            "measure": settings.measure.model_dump(),
            "probes": probes,
        }
    )


def _listed(settings: SweepSettings, variant: VariantSection | None) -> dict[str, list[Any]]:
    shared = settings.values() if variant is not None else {}
    return {key: list(value) for key, value in settings.values(variant).items() if key not in shared}


def _kind(settings: SweepSettings) -> ExperimentKind:
    plain = type(settings)()
    free = ["sweep.name", *(f"common.{key}" for key in FREE_RUNS)]
    growing = ["variants", "start.examples"]
    if isinstance(settings, TuneSweepSettings):
        free += ["sweep.model", "sweep.store", "sweep.data"]
        growing += ["start.rehearsed", "start.guards"]
    else:
        # Files may lie elsewhere by now: digests are compared.
        free += ["sweep.data", "common.data.cache", *(f"variants.{one.name}.{key}" for one in settings.variants for key in MOVABLE)]
        free += [*(f"common.{key}" for key in FREE_MEMORY)]
        growing += ["start.models"]
    return ExperimentKind(
        "sweep",
        "sweep",
        free=frozenset(free),
        # Rows are known by the values that they vary.
        free_tables=("grid", "grids"),
        growing=tuple(growing),
        defaults={"common": plain.model_dump(include=set(settings.shared) - {"job"}), "measure": plain.measure.model_dump()},
    )


def _result(runner: TuneSweepRunner | TrainSweepRunner, rows: Sequence[SweepRun], targets: Sequence[str]) -> SweepResult:
    settings, noise, notes = runner.settings, dict[str, float](), runner.counts.notes()
    inputs: dict[str, Any] = {task.name: {"source": task.source, "sha256": task.sha256} for task in runner.tasks}
    if isinstance(runner, TuneSweepRunner):
        models = [runner.inputs["model"]]
        store = {"store": runner.settings.job.store, "store_sha256": runner.context.store.manifest.sha256}
        inputs["tuned on"] = {"data": runner.settings.job.data, **store}
        if runner.probes is not None and runner.drift_evaluator is not None:
            inputs["probes"] = {"source": runner.probes.name, "sha256": runner.probes.sha256}
            noise, notes = runner.drift_evaluator.noise, [*notes, *runner.probes.notes]
    else:
        models = list(dict.fromkeys(str(trial.trained.job.model) for trial in runner.trials))
        inputs["trained on"] = {runner.trained_on(trial): runner.read_data(trial)[0] for trial in runner.trials}
    ranking = ranking_of(runner, rows)
    verb = "tuning the query tower of" if settings.sweep.verb == "tune" else "training"
    return SweepResult(
        title=f"{settings.sweep.name}: {verb} {', '.join(models)}",
        command=runner.command,
        created=now(),
        seconds=sum(run.seconds for run in rows) + runner.counts.seconds,
        seed=runner.seed,
        versions=versions(device_name(runner.device)),
        model=", ".join(models),
        targets=list(targets),
        tasks=[task.name for task in runner.tasks],
        varied=settings.varied,
        runs=list(rows),
        noise=noise,
        ranking=ranking,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=inputs,
        notes=[*notes, *runner.evaluator.unread],
    )
