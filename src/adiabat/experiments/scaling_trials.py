"""Who makes the runs of a scaling experiment: trains, measures, and gives a row for each; what was cut short goes on where it was."""

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from adiabat.config.budgets import ScalingSettings
from adiabat.config.shared import EncoderSection
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import BudgetError, DivergedError, JobError, is_out_of_memory
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import versions
from adiabat.dual_encoder.text_cache import is_trained
from adiabat.dual_encoder.tower_setup import Loader, build
from adiabat.dual_encoder.train import train
from adiabat.evaluation.measured_models import Corpora, Subject
from adiabat.evaluation.score_files import folder_of
from adiabat.evaluation.suite import STORES, Clock, Scoring
from adiabat.evaluation.task_kinds import Prepared, prepare
from adiabat.experiments.scaling_variants import Planned
from adiabat.models.device import begin_peak, device_name, device_of, peak_bytes
from adiabat.results.evaluation_result import TrainingRecord
from adiabat.results.scaling_result import ScalingRun
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job
from adiabat.scaling_laws.flops import PassedParameters
from adiabat.scaling_laws.laws import Way
from adiabat.stats.statistics import value_of
from adiabat.training.flop_count import passed_parameters
from adiabat.training.run_record import finished

OUT_OF_MEMORY = "the memory did not suffice; lower memory.chunk_tokens (with memory.cached) or train.batch_size"

RUNS = "runs"
"""Folder of a scaling experiment in which its jobs lie."""


@dataclass(frozen=True)
class Worker:
    """Makes runs, one after the other.

    Attributes:
        settings: Of the scaling experiment.
        folder: Of the scaling experiment.
        load: Gives a model by its name.
        command: For the reports of the jobs.
        watch: Whom to tell.
    """

    settings: ScalingSettings
    folder: Path
    load: Loader
    command: str
    watch: Watch

    @cached_property
    def tasks(self) -> list[Prepared]:
        """What trained models are measured on, read and found sound."""
        return prepare(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch) if self.settings.tasks else []

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

    def make(self, run: Planned) -> ScalingRun:
        """Train and measure a run."""
        row, job, device = self._begun(run), self._job(run), device_of(run.settings.run.device)
        measured = not job.is_done
        begin_peak(device)
        try:
            record = self._trained(run, job)
        except Exception as fault:
            if (told := _of_this_run(fault)) is None:
                raise
            self.watch.note(f"{run.name} failed: {told}")
            return replace(row, reason=told)
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
            memory=peak_bytes(device) if measured else 0,
            scores=self._scores(run, job),
        )

    def _job(self, run: Planned) -> Job:
        return Job(self.folder / RUNS / folder_of(run.name))

    def _begun(self, run: Planned) -> ScalingRun:
        """The row of a run that has not given anything yet."""
        return ScalingRun(
            name=run.name,
            way=run.tried.way,
            parameters=self.count(run),
            learning_rate=run.tried.learning_rate,
            batch_size=run.settings.train.batch_size,
            budget=run.budget,
            seed=run.seed,
            status="failed",
            reason="",
            device=device_name(device_of(run.settings.run.device)),
        )

    def _trained(self, run: Planned, job: Job) -> TrainingRecord:
        """The record of the finished job; one that was begun goes on."""
        if not job.is_done:
            job.folder.mkdir(parents=True, exist_ok=True)
            watch = self.watch.under(run.name, note=self._note_once)
            in_folder = run.settings.job.model_copy(update={"out": str(job.folder)})
            settings = run.settings.model_copy(update={"job": in_folder})
            train(self.load, settings, resume=is_job(job.folder), command=self.command, watch=watch)
        return finished(job, "training")[1]

    @cached_property
    def _note_once(self) -> Callable[[str], None]:
        return once(self.watch.note)

    def _scores(self, run: Planned, job: Job) -> dict[str, float]:
        """What the trained model scores on each task, by its first measure."""
        if not self.tasks:
            return {}
        device = device_of(run.settings.run.device)
        name, stores = str(job.folder), job.folder / STORES
        model = self.load(name, run.settings.encoder.of_saved(name)).to(device)
        scoring = Scoring(self.tasks, Corpora(stores, self.watch), Clock(), versions(device_name(device)), self.watch)
        found = scoring.run(Subject(run.name, run.name, EncoderSection(), lambda *_: model), job.folder / "scores")
        shutil.rmtree(stores, ignore_errors=True)
        values = {task: float(value_of(scores.samples[0])[0]) for task, scores in found.items()}
        for task in (task for task, value in values.items() if not math.isfinite(value)):
            self.watch.note(f"{run.name}: {task} has no score, its measure is not defined there")
        return {task: value for task, value in values.items() if math.isfinite(value)}

    def tidy(self, run: Planned) -> None:
        """Remove what a run needs no more once its row is on the disk."""
        self._job(run).tidy(keep_model=self.settings.scaling.keep_models)

    def tidy_left(self, run: Planned) -> None:
        """Remove what a process left that was killed once the row was on the disk; models that were kept before stay."""
        if self._job(run).checkpoints.is_dir():
            self.tidy(run)


def _of_this_run(fault: Exception) -> str | None:
    """What is wrong with a run beside which others can be made; None where they cannot, or nobody knows."""
    if isinstance(fault, DivergedError):
        return fault.what
    return str(fault) if isinstance(fault, BudgetError) else OUT_OF_MEMORY if is_out_of_memory(fault) else None
