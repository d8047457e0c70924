"""Who makes the runs of a sweep: tunes, measures, and gives a row for each; what was cut short goes on where it was."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.tune import TuningRun
from adiabat.adiabatic.tune_checks import inputs_of
from adiabat.adiabatic.tune_setup import learning_rate_of
from adiabat.adiabatic.tuning_context import Ground
from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import SweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import DivergedError
from adiabat.core.progress import Watch, once
from adiabat.core.provenance import versions
from adiabat.dual_encoder.train import train
from adiabat.evaluation.measured_models import Corpora
from adiabat.evaluation.score_files import folder_of
from adiabat.evaluation.suite import STORES, Clock, Scoring
from adiabat.evaluation.task_kinds import Prepared, prepare
from adiabat.experiments.dual_variants import train_settings
from adiabat.experiments.evaluator import Bench
from adiabat.experiments.grid import Planned
from adiabat.experiments.rate_search import rate_for_run
from adiabat.models.device import device_name, device_of
from adiabat.models.similarity_function import NAMES
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import trained_by
from adiabat.results.sweep_result import SweepRun
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job
from adiabat.store.vector_store import Store
from adiabat.training.run_record import finished

Loader = Callable[[str, EncoderSection], DualEncoder]
"""Loads a model by its name, with overrides."""

RUNS = "runs"
"""Folder of a sweep in which its jobs lie."""


@dataclass(frozen=True)
class Worker:
    """Makes runs, one after the other; what they share is read and computed once.

    Attributes:
        settings: Of the sweep.
        folder: Of the sweep.
        load: Gives a model by its name.
        command: For the reports of the jobs.
        watch: Whom to tell.
    """

    settings: SweepSettings
    folder: Path
    load: Loader
    command: str
    watch: Watch

    @cached_property
    def tasks(self) -> list[Prepared]:
        """What tuned towers are measured on, read and found sound."""
        return prepare(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Model, store and data, by the names that a job has for them."""
        job = self.settings.job
        return inputs_of(str(job.model), str(job.store), str(job.data))

    @cached_property
    def ground(self) -> Ground:
        """What tuning runs share."""

        def load() -> DualEncoder:
            return self.load(self.inputs["model"], self.settings.encoder)

        return Ground(load, Path(self.inputs["store"]), self.inputs["data"])

    @cached_property
    def probes(self) -> ProbeSet | None:
        """Texts to measure drift on."""
        section = self.settings.probes
        return self.ground.probes(section.data) if section.use else None

    @cached_property
    def probed(self) -> Store:
        """Where they are looked for."""
        return self.ground.store_at(self.settings.probes.store)

    @cached_property
    def clock(self) -> Clock:
        """Of the scoring."""
        return Clock()

    @cached_property
    def bench(self) -> Bench:
        """What every tuned tower is measured on."""
        settings = self.settings
        place = device_of(settings.run.device)
        corpora = Corpora(Path(settings.sweep.stores) if settings.sweep.stores else self.folder / STORES, self.watch)
        scoring = Scoring(self.tasks, corpora, self.clock, versions(device_name(place)), self.watch)
        return Bench(self.folder, settings, self.ground.model.to(place), scoring, self.probes, self.probed, self.watch)

    def measure_start(self) -> None:
        """Measure the untuned tower, which takes the model and every task once: whatever is wrong with them is told before any run."""
        _ = self.bench.start, self.bench.start_reading

    def make(self, run: Planned) -> SweepRun:
        """Tune and measure a run."""
        if not self._job(run).is_done:
            try:
                if run.both:
                    self._train_both(run)
                else:
                    self._tune(run)
            except DivergedError as fault:
                self.watch.note(f"{run.name} failed: {fault}")
                return self._row(run, "failed", fault.what)
        return self._measured(run)

    def _job(self, run: Planned) -> Job:
        return Job(self.folder / RUNS / folder_of(run.name))

    def _tune(self, run: Planned) -> None:
        """Tune the query tower; a run that was begun goes on."""
        folder = self._job(run).folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        watch, resume = self.watch.under(run.name, note=self._note_once), is_job(folder)
        begun = TuningRun.begin(self.ground, self.inputs, folder, settings=run.settings, resume=resume, watch=watch, find_rate=rate_for_run)
        begun.carry_out(resume=resume, command=self.command)

    def _train_both(self, run: Planned) -> None:
        """Tune both towers; a run that was begun goes on."""
        job = self._job(run)
        settings, resume = train_settings(run, self.inputs, self.ground, job), is_job(job.folder)
        train(self.load, settings, resume=resume, command=self.command, watch=self.watch.under(run.name, note=self._note_once))

    @cached_property
    def _note_once(self) -> Callable[[str], None]:
        return once(self.watch.note)

    def _measured(self, run: Planned) -> SweepRun:
        job = self._job(run)
        _, record = finished(job, "tuning")
        place = device_of(self.settings.run.device)
        model = self.load(str(job.folder), self.settings.encoder.of_saved(str(job.folder))).to(place)
        # Whatever a run was trained by, all are compared by the similarity of the untuned model.
        model = replace(model, root={**model.root, "similarity_fn_name": NAMES[self.bench.model.similarity]})
        tasks = self.bench.outcomes(model, run.name, trained_by(job.folder))
        if run.both:
            self.bench.forget(model)
        return replace(
            self._row(run, "done", record.stop_reason),
            seconds=record.seconds,
            steps=record.steps,
            epochs=record.epochs,
            best_epoch=record.best_epoch,
            validation_loss=record.validation_loss,
            validation_errors=record.validation_errors,
            validation_pairs=record.validation_pairs,
            trainable=record.trainable,
            tasks=tasks,
            layers=record.layers,
            # What is found in vectors of the untuned document tower says nothing of a pair with another one.
            drift=None if run.both else self.bench.drift(model, run.name),
        )

    def _row(self, run: Planned, status: str, reason: str) -> SweepRun:
        return SweepRun(
            name=run.name,
            variant=run.variant,
            varied=run.varied,
            seed=run.seed,
            learning_rate=learning_rate_of(run.settings.tune),
            batch_size=run.settings.tune.batch_size,
            status="done" if status == "done" else "failed",
            reason=reason,
            device=device_name(device_of(self.settings.run.device)),
        )

    def tidy(self, run: Planned) -> None:
        """Remove what a run needs no more once its row is on the disk."""
        job = self._job(run)
        shutil.rmtree(job.prepared, ignore_errors=True)
        job.tidy(keep_model=self.settings.sweep.keep_models)

    def tidy_left(self, run: Planned) -> None:
        """Remove what a process left that was killed once the row was on the disk; models that were kept before stay."""
        if self._job(run).checkpoints.is_dir():
            self.tidy(run)
