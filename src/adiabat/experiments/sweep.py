"""A sweep from its settings to its report: checked, run, measured, ranked and resumed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adiabat.config.sweeps import SweepSettings, TrainSweepSettings, TuneSweepSettings, VariantSection
from adiabat.core.disk import remove
from adiabat.core.errors import ConfigError
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now, versions
from adiabat.dual_encoder.tower_setup import Loader
from adiabat.evaluation.task_kinds import require_task_margin
from adiabat.experiments.evaluator import NOISE, READINGS
from adiabat.experiments.experiment_checks import require_complete
from adiabat.experiments.sweep_analysis import analysed
from adiabat.experiments.sweep_ranking import ranking_of, why_unranked
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
    require_task_margin(settings.measure, settings.tasks)
    folder = Path(str(settings.sweep.out))
    runner = _runner(settings, folder, load, command, watch)
    device_of(settings.run.device)
    runner.check_settings()
    if why := why_unranked(settings, len({trial.case for trial in runner.trials})):
        watch.note(f"this sweep will have no ranking: {why}")
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
        prepare=runner.prepare,
        section=settings.sweep,
        kind=kind,
        place=runner.device,
        outcome=lambda row: f"{row.status} after {row.steps:,} steps",
    ) as rows:
        result = analysed(_result(runner, rows, targets))
        write_report(result, folder)
    return result


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
    settings, tasks = runner.settings, runner.tasks
    models, inputs = runner.inputs()
    noise, ranking = runner.noise, ranking_of(runner, rows)
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
        tasks=[task.name for task in tasks],
        varied=settings.varied,
        runs=list(rows),
        noise=noise,
        ranking=ranking,
        settings=settings.recorded(),
        inputs={**{task.name: {"source": task.source, "sha256": task.sha256} for task in tasks}, **inputs},
        notes=runner.notes,
    )
