"""The runs of a sweep: tuned, measured on the same tasks and probes, and a row for each."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.tune import TuningRun
from adiabat.adiabatic.tune_checks import inputs_of
from adiabat.adiabatic.tune_setup import learning_rate_of
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.sweeps import SweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import JobError
from adiabat.core.progress import Watch
from adiabat.core.provenance import versions
from adiabat.dual_encoder.train import train
from adiabat.evaluation.measured_models import CorpusStores
from adiabat.evaluation.suite import STORES, ScoreCounts, Scoring
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.experiments.dual_variants import train_settings
from adiabat.experiments.evaluator import Bench
from adiabat.experiments.grid import Planned
from adiabat.experiments.rate_search import rate_for_run
from adiabat.experiments.trials import Runner
from adiabat.models.device import device_name, device_of
from adiabat.models.embedding_head import NAMES
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import trained_by
from adiabat.results.sweep_result import SweepRun
from adiabat.runs.run_dir import Job
from adiabat.store.vector_store import Store
from adiabat.training.run_record import finished


@dataclass(frozen=True)
class SweepRunner(Runner[Planned, SweepRun]):
    """Makes the runs of a sweep; tasks, store and untuned model are read once.

    Attributes:
        settings: Of the sweep.
    """

    settings: SweepSettings

    @cached_property
    def tasks(self) -> list[LoadedTask]:
        """What tuned towers are measured on, read and found sound."""
        return load_tasks(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch)

    @cached_property
    def inputs(self) -> dict[str, str]:
        """Model, store and data, by the names that a job has for them."""
        job = self.settings.job
        return inputs_of(str(job.model), str(job.store), str(job.data))

    @cached_property
    def context(self) -> TuningContext:
        """What tuning runs share."""

        def load() -> DualEncoder:
            return self.load(self.inputs["model"], self.settings.encoder)

        return TuningContext(load, Path(self.inputs["store"]), self.inputs["data"])

    @cached_property
    def probes(self) -> ProbeSet | None:
        """Texts to measure drift on."""
        section = self.settings.probes
        return self.context.probes(section.data) if section.use else None

    @cached_property
    def probed(self) -> Store:
        """Where they are looked for."""
        return self.context.store_at(self.settings.probes.store)

    @cached_property
    def counts(self) -> ScoreCounts:
        """Of the scoring."""
        return ScoreCounts()

    @cached_property
    def bench(self) -> Bench:
        """What every tuned tower is measured on."""
        settings = self.settings
        place = device_of(settings.run.device)
        corpora = CorpusStores(Path(settings.sweep.stores) if settings.sweep.stores else self.folder / STORES, self.watch)
        scoring = Scoring(self.tasks, corpora, self.counts, versions(device_name(place)), self.watch)
        return Bench(self.folder, settings, self.context.model.to(place), scoring, self.probes, self.probed, self.watch)

    def measure_start(self) -> None:
        """Measure the untuned tower, which takes the model and every task once: whatever is wrong with them is told before any run."""
        _ = self.bench.start, self.bench.start_reading

    @property
    def keep_models(self) -> bool:
        """Whether tuned models stay once they are measured."""
        return self.settings.sweep.keep_models

    def train(self, trial: Planned, job: Job, *, resume: bool, watch: Watch) -> None:
        """Tune the query tower, or both towers."""
        if trial.both:
            train(self.load, train_settings(trial, self.inputs, self.context, job), resume=resume, command=self.command, watch=watch)
            return
        begun = TuningRun.begin(
            self.context, self.inputs, job.folder, settings=trial.settings, resume=resume, watch=watch, find_rate=rate_for_run
        )
        begun.carry_out(resume=resume, command=self.command)

    def failed(self, trial: Planned, reason: str) -> SweepRun:
        """The row of a run without a model."""
        return self._row(trial, "failed", reason)

    def refreshed(self, trial: Planned, row: SweepRun) -> SweepRun:
        """The row with the settings that this call varies; a row of other values is refused, whatever its name."""
        for key in sorted(row.varied.keys() & trial.varied.keys()):
            former, present = row.varied[key], trial.varied[key]
            if None not in (former, present) and former != present:
                raise JobError(
                    f"the row {trial.name} must be of {key} = {present}, got {former}; choose another --out, or a value that is "
                    "written otherwise"
                )
        return replace(row, varied=trial.varied)

    def measured(self, trial: Planned, job: Job) -> SweepRun:
        """Measure a tuned model on tasks and probes."""
        _, record = finished(job, "tuning")
        place = device_of(self.settings.run.device)
        model = self.load(str(job.folder), self.settings.encoder.of_saved(str(job.folder))).to(place)
        # Whatever a run was trained by, all are compared by the similarity of the untuned model.
        model = replace(model, root={**model.root, "similarity_fn_name": NAMES[self.bench.model.similarity]})
        tasks = self.bench.outcomes(model, trial.name, trained_by(job.folder))
        if trial.both:
            self.bench.forget(model)
        return replace(
            self._row(trial, "done", record.stop_reason),
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
            drift=None if trial.both else self.bench.drift(model, trial.name),
        )

    def _row(self, trial: Planned, status: Literal["done", "failed"], reason: str) -> SweepRun:
        return SweepRun(
            name=trial.name,
            variant=trial.variant,
            varied=trial.varied,
            seed=trial.seed,
            learning_rate=learning_rate_of(trial.settings.tune),
            batch_size=trial.settings.tune.batch_size,
            status=status,
            reason=reason,
            device=device_name(device_of(self.settings.run.device)),
        )
