"""A scaling experiment from its settings to its result, with resuming (Ziarko et al. 2024)."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from adiabat.config.budgets import ScalingSettings
from adiabat.config.reader import TRAIN_TABLES
from adiabat.core.disk import clear
from adiabat.core.errors import JobError, is_out_of_memory
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import versions
from adiabat.core.wording import option
from adiabat.data.sources import with_split
from adiabat.dual_encoder.pair_data import cache_folder, read_pairs
from adiabat.dual_encoder.text_cache import is_trained
from adiabat.dual_encoder.tower_setup import Loader, build
from adiabat.dual_encoder.train import check, check_pairs, train
from adiabat.dual_encoder.train_checks import FREE_MEMORY, FREE_SOURCES
from adiabat.evaluation.measured_models import CorpusStores, MeasuredModel
from adiabat.evaluation.suite import STORES, ScoreCounts, Scoring
from adiabat.experiments.experiment_checks import lawless, many_blocks, require_stated
from adiabat.experiments.grid import ScalingTrial, trials_of_scaling, ways_of, without_freezing
from adiabat.experiments.scaling_analysis import ROWS, evidence_of, fitted, result_of, rows_at
from adiabat.experiments.trials import ExperimentKind, Runner, run_trials, waiting
from adiabat.models.compilation import blocks_of
from adiabat.models.device import device_name, device_of, peak_memory, reset_peak_memory
from adiabat.models.towers import DualEncoder
from adiabat.results.scaling_result import ScalingResult, ScalingRun
from adiabat.runs.output_dir import write_report
from adiabat.runs.run_config import FREE_RUNS, Job, without_none
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.laws import Way
from adiabat.stats.statistics import value_of
from adiabat.store.addressing import require_inputs
from adiabat.training.flop_count import passed_parameters
from adiabat.training.run_record import finished


@dataclass(frozen=True)
class ScalingRunner(Runner[ScalingTrial, ScalingRun]):
    """Makes the runs of a scaling experiment."""

    settings: ScalingSettings

    @cached_property
    def _counted(self) -> dict[Way, PassedParameters]:
        return {}

    def count(self, run: ScalingTrial) -> PassedParameters:
        """Set up a model as a run does, once for each method, and count its parameters."""
        way = run.tried.way
        if way not in self._counted:
            try:
                towers = build(run.settings, self.load).towers
            except Exception as fault:
                if not is_out_of_memory(fault):
                    raise
                raise JobError(
                    f"{way.title} does not fit into memory; leave it out, or use a larger machine"
                ) from fault
            trained = towers.query if is_trained(towers.query) else towers.document
            self._counted[way] = passed_parameters(trained)
        return self._counted[way]

    def train(self, trial: ScalingTrial, job: Job, *, resume: bool, watch: Watch) -> None:
        """Train both towers, and record the peak memory."""
        device = device_of(trial.settings.run.device)
        # The peak of this run alone.
        reset_peak_memory(device)
        section = trial.settings.job.model_copy(update={"out": str(job.folder)})
        settings = trial.settings.model_copy(update={"job": section})
        train(self.load, settings, resume=resume, command=self.command, watch=watch)
        self._peaks[trial.name] = peak_memory(device)

    @cached_property
    def _peaks(self) -> dict[str, int]:
        return {}

    def failed(self, trial: ScalingTrial, reason: str) -> ScalingRun:
        """The row of a run without a model."""
        return ScalingRun(
            name=trial.name,
            way=trial.tried.way,
            parameters=self.count(trial),
            learning_rate=trial.tried.learning_rate,
            batch_size=trial.settings.train.batch_size,
            budget=trial.budget,
            seed=trial.seed,
            status="failed",
            reason=reason,
            device=device_name(device_of(trial.settings.run.device)),
        )

    def measured(self, trial: ScalingTrial, job: Job) -> ScalingRun:
        """Read the losses of a trained model, and measure it on the tasks."""
        # Both kinds of rows share what the settings decide.
        row, record = self.failed(trial, ""), finished(job, "training")[1]
        return replace(
            row,
            status="done",
            reason=record.stop_reason,
            steps=record.steps,
            tokens=record.flops / row.option.flops_per_token,
            flops=record.flops,
            loss=fmean(loss for _, loss in record.loss[-self.settings.scaling.last_steps :]),
            validation_loss=dict(record.validation_loss)[record.best_epoch],
            validation={name: dict(points)[record.best_epoch] for name, points in record.measures.items()},
            passes=record.passes or 0.0,
            queries=record.validation_pairs,
            seconds=record.seconds,
            memory=self._peaks.get(trial.name, 0),
            scores=self._scores(trial, job),
        )

    def refreshed(self, trial: ScalingTrial, row: ScalingRun) -> ScalingRun:
        """The row with the present position and family of its model; a row of another run is refused,
        whatever its name.
        """
        way = replace(row.way, family=trial.tried.way.family, model=trial.tried.way.model)
        former = {"way": way, "budget": row.budget, "seed": row.seed}
        present = {"way": trial.tried.way, "budget": trial.budget, "seed": trial.seed}
        for name, value in present.items():
            if former[name] != value:
                raise JobError(
                    f"the row {trial.name} must be of {name} = {value}, got {former[name]}; "
                    f"choose another {option('out')}, or another models.name"
                )
        return replace(row, way=trial.tried.way)

    def _scores(self, run: ScalingTrial, job: Job) -> dict[str, float]:
        """Score of the trained model on each task, by its first measure."""
        if not self.tasks:
            return {}
        device = device_of(run.settings.run.device)
        name, stores = str(job.folder), job.folder / STORES
        model = self.load(name, run.settings.encoder.of_saved(name)).to(device)
        corpora = CorpusStores(stores, self.watch)
        scoring = Scoring(self.tasks, corpora, ScoreCounts(), versions(device_name(device)), self.watch)
        measured = MeasuredModel.in_memory(model, run.name)
        # Scores of a task may be undefined, such as a correlation of equal values.
        values = {}
        for task, scores in scoring.run(measured, job.folder / "scores").items():
            value = float(value_of(scores.samples[0])[0])
            if math.isfinite(value):
                values[task] = value
            else:
                self.watch.note(f"{run.name}: {task} has no score, because its measure is undefined for it")
        # Vectors of a corpus are as large as many models.
        clear(stores)
        return values


def scaling(
    load: Loader, settings: ScalingSettings, *, resume: bool = False, command: str = "", watch: Watch = SILENT
) -> ScalingResult:
    """Train every size with every method to every budget, and report laws, frontiers and scores.

    The directory holds ``config.toml`` (resolved), ``runs.parquet`` (a row for each finished run),
    ``runs/NAME`` (a job each), ``result.json``, the page and figures.
    """
    _check(settings)
    for note in lawless(settings):
        watch.note(note)
    folder = Path(str(settings.scaling.out))
    begun = SCALING.begin(folder, resume=resume, watch=watch)
    runner = ScalingRunner(folder, load, command, watch, settings)
    examples = _examples(settings, watch)
    tasks = {task.name: task.sha256 for task in runner.tasks}
    blocks = {}
    digests = {}
    for name in dict.fromkeys(family.model for family in settings.models):
        blocks[name], digests[name] = _looked_at(load(name, settings.encoder))
    trials = trials_of_scaling(settings, ways_of(settings, blocks.__getitem__))
    description = _description(settings, trials, examples=examples, models=digests, tasks=tasks)
    for lost in without_freezing(settings, blocks.__getitem__):
        watch.note(lost)
    # Refuse a different experiment before models are set up, and unsuitable models before anything is
    # written.
    SCALING.resumed(folder, description)
    _set_up_once(runner, waiting(runner, trials, rows_at(folder / ROWS)))
    with run_trials(
        runner,
        trials,
        lambda: SCALING.resumed(folder, description),
        rows_at,
        begun=begun,
        section=settings.scaling,
        kind=SCALING,
        place=device_of(settings.run.device),
        outcome=_outcome,
    ) as rows:
        result = _result(runner, rows, {"sha256": examples, "tasks": tasks}, command)
        write_report(result, folder)
    _require_a_run(result.runs, folder)
    return result


def _require_a_run(rows: Sequence[ScalingRun], folder: Path) -> None:
    if all(row.status == "failed" for row in rows):
        failures = f"{len(rows):,} that failed, such as {rows[0].name}: {rows[0].reason}"
        raise JobError(
            f"{folder} must hold a run that succeeded, got {failures}; "
            f"change budgets with {option('resume', True)}, or rates with another {option('out')}"
        )


def _result(
    runner: ScalingRunner, rows: Sequence[ScalingRun], inputs: Mapping[str, Any], command: str
) -> ScalingResult:
    settings, section = runner.settings, runner.settings.scaling
    evidence = evidence_of(rows, section.loss, least_steps=section.least_steps)
    fits = fitted(evidence, settings, runner.watch) if evidence.runs else []
    data = settings.job.data or " + ".join(source.path for source in settings.data.sources)
    return result_of(
        settings,
        section.name,
        rows,
        evidence,
        fits,
        None,
        command=command,
        device=device_name(device_of(settings.run.device)),
        inputs={"trained on": {"data": data, **inputs}},
    )


def _check(settings: ScalingSettings) -> None:
    """Checks that need neither data nor models."""
    require_stated(settings)
    device_of(settings.run.device)
    store = settings.towers.vectors
    sources = [with_split(source.path, source.split) for source in settings.data.listed(settings.job.data)]
    require_inputs(sources, stores=[] if store is None else [store])


def _examples(settings: ScalingSettings, watch: Watch) -> str:
    """SHA-256 of the training and validation data; read here so that errors come before any model, and cached
    for the runs.
    """
    # Any method and rate will do: neither affects the data.
    plain = trials_of_scaling(settings, ways_of(settings, many_blocks))[0].settings
    check(plain)
    cache = cache_folder(plain.data.cache)
    training, validation = read_pairs(
        plain.job.data, plain.data, stored=plain.reads_ids, cache=cache, watch=watch
    )
    check_pairs(training, validation, plain)
    return hashlib.sha256(" ".join([training.digest(), validation.digest()]).encode()).hexdigest()


def _looked_at(model: DualEncoder) -> tuple[int, str]:
    """Number of blocks, and digest of a model."""
    prints = json.dumps([each.to_json() for each in model.fingerprints()], sort_keys=True)
    return len(blocks_of(model.query.backbone)), hashlib.sha256(prints.encode()).hexdigest()


def _description(
    settings: ScalingSettings,
    runs: Sequence[ScalingTrial],
    *,
    examples: str,
    models: Mapping[str, str],
    tasks: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that decides the results of runs.

    It has no table ``[job]``: the directory is no job, but contains some.
    """
    return without_none(
        {
            "scaling": {
                "name": settings.scaling.name,
                "data": settings.job.data,
                "last_steps": settings.scaling.last_steps,
            },
            "start": {
                "examples": examples,
                "models": {family.title: models[family.model] for family in settings.models},
            },
            "common": settings.model_dump(include=set(TRAIN_TABLES) - {"job"}),
            "rates": {run.tried.way.title: run.tried.learning_rate for run in runs},
            "tasks": dict(tasks),
            "measure": settings.measure.model_dump(),
        }
    )


def _kind() -> ExperimentKind:
    plain = ScalingSettings()
    places = ("data.cache", "data.corpus", "data.validation", "towers.store", "towers.targets")
    return ExperimentKind(
        "scaling",
        "scaling experiment",
        free=frozenset(
            (
                "scaling.name",
                "scaling.data",
                *(f"common.{key}" for key in (*places, *FREE_MEMORY, *FREE_RUNS, "run.seed")),
            )
        ),
        free_in={"common.data.sources": FREE_SOURCES},
        growing=("start.models", "rates", "tasks"),
        defaults={
            "common": plain.model_dump(include=set(TRAIN_TABLES) - {"job"}),
            "measure": plain.measure.model_dump(),
        },
    )


SCALING = _kind()


def _set_up_once(runner: ScalingRunner, runs: Sequence[ScalingTrial]) -> None:
    """Set up every model for training, so that settings that do not fit are found before the first run."""
    ways = list({run.tried.way: run for run in runs}.values())
    for number, run in enumerate(ways):
        runner.watch.progress("setting models up", number, len(ways))
        runner.count(run)


def _outcome(row: ScalingRun) -> str:
    loss = "" if row.loss is None else f", loss {row.loss:.4f}, validation {row.validation_loss:.4f}"
    return f"{row.status} after {row.steps:,} steps{loss}"
