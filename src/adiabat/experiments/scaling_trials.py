"""The runs of a scaling experiment: trained, measured, and a row for each."""

import math
import shutil
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from adiabat.config.budgets import ScalingSettings
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import JobError, is_out_of_memory
from adiabat.core.progress import Watch
from adiabat.core.provenance import versions
from adiabat.dual_encoder.text_cache import is_trained
from adiabat.dual_encoder.tower_setup import build
from adiabat.dual_encoder.train import train
from adiabat.evaluation.measured_models import CorpusStores, MeasuredModel
from adiabat.evaluation.suite import STORES, ScoreCounts, Scoring
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.experiments.scaling_variants import Planned
from adiabat.experiments.trials import Runner
from adiabat.models.device import device_name, device_of, peak_memory, reset_peak_memory
from adiabat.results.scaling_result import ScalingRun
from adiabat.runs.run_dir import Job
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.laws import Way
from adiabat.stats.statistics import value_of
from adiabat.training.flop_count import passed_parameters
from adiabat.training.run_record import finished


@dataclass(frozen=True)
class ScalingRunner(Runner[Planned, ScalingRun]):
    """Makes the runs of a scaling experiment.

    Attributes:
        settings: Of the experiment.
    """

    settings: ScalingSettings

    @property
    def keep_models(self) -> bool:
        """Whether trained models stay once they are measured."""
        return self.settings.scaling.keep_models

    @cached_property
    def tasks(self) -> list[LoadedTask]:
        """What trained models are measured on, read and found sound."""
        if not self.settings.tasks:
            return []
        return load_tasks(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch)

    @cached_property
    def _counted(self) -> dict[Way, PassedParameters]:
        return {}

    def count(self, run: Planned) -> PassedParameters:
        """Set a model up as a run trains it, once for each way, and count its parameters."""
        way = run.tried.way
        if way not in self._counted:
            try:
                towers = build(run.settings, self.load).towers
            except Exception as fault:
                if not is_out_of_memory(fault):
                    raise
                raise JobError(f"{way.title} must fit into memory, it does not; leave it out, or take a larger machine") from fault
            self._counted[way] = passed_parameters(towers.query if is_trained(towers.query) else towers.document)
        return self._counted[way]

    def train(self, trial: Planned, job: Job, *, resume: bool, watch: Watch) -> None:
        """Train both towers, and note the memory that it takes."""
        device = device_of(trial.settings.run.device)
        reset_peak_memory(device)
        section = trial.settings.job.model_copy(update={"out": str(job.folder)})
        train(self.load, trial.settings.model_copy(update={"job": section}), resume=resume, command=self.command, watch=watch)
        self._peaks[trial.name] = peak_memory(device)

    @cached_property
    def _peaks(self) -> dict[str, int]:
        return {}

    def failed(self, trial: Planned, reason: str) -> ScalingRun:
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

    def measured(self, trial: Planned, job: Job) -> ScalingRun:
        """Read the losses of a trained model, and measure it on the tasks."""
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

    def refreshed(self, trial: Planned, row: ScalingRun) -> ScalingRun:
        """The row with the model's present place and family; a row of another run is refused, whatever its name."""
        way = replace(row.way, family=trial.tried.way.family, model=trial.tried.way.model)
        both = {"way": (way, trial.tried.way), "budget": (row.budget, trial.budget), "seed": (row.seed, trial.seed)}
        for name, (former, present) in both.items():
            if former != present:
                raise JobError(
                    f"the row {trial.name} must be of {name} = {present}, got {former}; choose another --out, or another models.name"
                )
        return replace(row, way=trial.tried.way)

    def _scores(self, run: Planned, job: Job) -> dict[str, float]:
        """What the trained model scores on each task, by its first measure."""
        if not self.tasks:
            return {}
        device = device_of(run.settings.run.device)
        name, stores = str(job.folder), job.folder / STORES
        model = self.load(name, run.settings.encoder.of_saved(name)).to(device)
        scoring = Scoring(self.tasks, CorpusStores(stores, self.watch), ScoreCounts(), versions(device_name(device)), self.watch)
        found = scoring.run(MeasuredModel(run.name, run.name, EncoderSection(), lambda *_: model), job.folder / "scores")
        shutil.rmtree(stores, ignore_errors=True)
        values = {task: float(value_of(scores.samples[0])[0]) for task, scores in found.items()}
        for task in (task for task, value in values.items() if not math.isfinite(value)):
            self.watch.note(f"{run.name}: {task} has no score, its measure is not defined there")
        return {task: value for task, value in values.items() if math.isfinite(value)}
