"""A sweep from its settings to its report: checked, run, measured, compared and resumed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.sweeps import SweepSettings, TrainSweepSettings, TuneSweepSettings, VariantSection
from adiabat.core.disk import remove
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.evaluation.suite_findings import with_findings
from adiabat.experiments.evaluator import NOISE, READINGS
from adiabat.experiments.experiment_checks import require_complete
from adiabat.experiments.sweep_analysis import with_variation
from adiabat.experiments.sweep_comparison import (
    compared_models,
    comparison_notes,
    complete_cases,
    why_not_compared,
)
from adiabat.experiments.sweep_trials import SweepRunner, rows_at
from adiabat.experiments.train_sweep import TrainSweepRunner
from adiabat.experiments.trials import ExperimentKind, is_begun, run_trials
from adiabat.experiments.tune_sweep import TuneSweepRunner
from adiabat.models.device import device_name, device_of
from adiabat.results.sweep_result import SweepResult, SweepRun
from adiabat.runs.output_dir import write_report
from adiabat.runs.run_config import FREE_RUNS, without_none

Runner = TuneSweepRunner | TrainSweepRunner


def sweep(
    load: Loader, settings: SweepSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT
) -> SweepResult:
    """Tune or train with every combination of a grid, measure each model on the same tasks, and report what
    changed.

    The directory holds ``config.toml`` (resolved), ``runs.parquet`` (a row for each finished run),
    ``runs/NAME`` (a job each), ``scores`` (of every unit), ``readings`` (of the probes), ``stores`` (vectors
    of the tasks' corpora), ``result.json``, the page, tables and figures.
    """
    require_complete(settings)
    folder = Path(str(settings.sweep.out))
    runner = _runner(settings, folder, load, command, watch)
    device_of(settings.run.device)
    runner.check_settings()
    _require_names(runner)
    if why := why_not_compared(len({trial.case for trial in runner.trials})):
        watch.note(why)
    kind = _kind(runner)
    begun = kind.begin(folder, resume=resume, watch=watch)
    targets = _targets(settings, [task.name for task in runner.tasks])
    description = _description(runner)

    def described() -> dict[str, Any]:
        if not is_begun(folder):
            # A sweep without runs may have had other probes.
            remove(folder / READINGS / NOISE)
        return kind.resumed(folder, description)

    with run_trials(
        runner,
        runner.trials,
        described,
        rows_at,
        begun=begun,
        section=settings.sweep,
        kind=kind,
        place=runner.device,
        outcome=_outcome,
    ) as rows:
        result = _result(runner, rows, targets)
        write_report(result, folder)
    return result


def _outcome(row: SweepRun) -> str:
    return f"{row.status} after {row.steps:,} steps"


def _require_names(runner: Runner) -> None:
    """Refuse a variant that has the name of an initial model."""
    starts = {runner.start_name(trial) for trial in runner.trials}
    if taken := sorted(starts & {trial.case for trial in runner.trials}):
        raise ConfigError(
            f"variants.name must not be that of an initial model, got {taken[0]}; rename the variant"
        )


def _runner(settings: SweepSettings, folder: Path, load: Loader, command: str, watch: Watch) -> Runner:
    if isinstance(settings, TuneSweepSettings):
        return TuneSweepRunner(folder, load, command, watch, settings)
    assert isinstance(settings, TrainSweepSettings)
    return TrainSweepRunner(folder, load, command, watch, settings)


def _targets(settings: SweepSettings, names: Sequence[str]) -> list[str]:
    if unknown := [name for name in settings.sweep.targets if name not in names]:
        raise ConfigError(
            f"sweep.targets must be names of tasks, got {', '.join(unknown)}; "
            f"the tasks are {', '.join(names)}"
        )
    return list(settings.sweep.targets) or list(names if settings.sweep.verb == "train" else names[:1])


def _description(runner: Runner) -> dict[str, Any]:
    """Everything that decides the results of runs.

    It has no table ``[job]``: the directory is no job, but contains some.
    """
    settings = runner.settings
    digests, probes = runner.digests(), dict[str, Any]()
    if (
        isinstance(runner, TuneSweepRunner)
        and runner.probes is not None
        and (section := runner.settings.probes) is not None
    ):
        store = None if section.store is None else runner.context.store_at(section.store).manifest.sha256
        probes = {"sha256": runner.probes.sha256, "depth": section.depth, "store": store}
    variants = {
        one.name: {**one.own, **({"towers": "both"} if getattr(one, "towers", "") == "both" else {})}
        for one in settings.variants
    }
    return without_none(
        {
            "sweep": {"name": settings.sweep.name, "verb": settings.sweep.verb, **settings.job.model_dump()},
            "start": digests,
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


def _kind(runner: SweepRunner) -> ExperimentKind:
    settings, rules = runner.settings, runner.rules
    plain = type(settings)()
    return ExperimentKind(
        "sweep",
        "sweep",
        free=frozenset({"sweep.name", *(f"common.{key}" for key in FREE_RUNS), *rules["free"]}),
        # Rows are identified by the values that they vary.
        free_tables=("grid", "grids"),
        free_in=rules.get("free_in", {}),
        growing=("variants", "start.examples", *rules["growing"]),
        defaults={
            "common": plain.model_dump(include=set(settings.shared) - {"job"}),
            "measure": plain.measure.model_dump(),
        },
    )


def _result(runner: SweepRunner, rows: Sequence[SweepRun], targets: Sequence[str]) -> SweepResult:
    """The comparison of all settings, with the rows and the analysis over them."""
    settings, tasks = runner.settings, runner.tasks
    models, inputs = runner.inputs()
    cases, records = complete_cases(runner.trials, rows), runner.start_records()
    compared = compared_models(runner, cases, rows)
    trained = ", ".join(models)
    verb = "tuning the query tower of" if settings.sweep.verb == "tune" else "training"
    speed = {name: record.speed for name, record in records.items() if record.speed is not None}
    sources = {task.name: {"source": task.source, "sha256": task.sha256} for task in tasks}
    result = SweepResult(
        title=f"{settings.sweep.name}: {verb} {trained}",
        command=runner.command,
        created=now(),
        seconds=sum(run.seconds for run in rows) + runner.counts.seconds,
        seed=runner.seed,
        versions=versions(device_name(runner.device)),
        tasks=[],
        models=[model.model for model in compared],
        scores=[],
        pairings=[],
        baseline=None,
        resamples=settings.measure.resamples,
        model=trained,
        targets=list(targets),
        varied=settings.varied,
        runs=list(rows),
        starts=list(records),
        speed=speed,
        noise=runner.noise,
        settings=settings.recorded(),
        inputs={**sources, **inputs},
        notes=[*comparison_notes(runner, cases, rows), *runner.notes],
    )
    findings = with_findings(result, compared, settings.measure.loss_margin(), runner.watch)
    return with_variation(findings)
