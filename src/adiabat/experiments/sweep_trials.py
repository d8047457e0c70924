"""The runs of a sweep: models that are tuned or trained, measured on the same tasks, and a row for each."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.tune import TuningRun, learning_rate_of
from adiabat.adiabatic.tune_checks import inputs_of
from adiabat.adiabatic.tuning_context import TuningContext
from adiabat.config.sweeps import SweepSettings, TrainSweepSettings, TuneSweepSettings
from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import JobError
from adiabat.core.progress import Watch
from adiabat.core.provenance import versions
from adiabat.dual_encoder.tower_setup import build, merged
from adiabat.dual_encoder.train import train
from adiabat.evaluation.measured_models import CorpusStores
from adiabat.evaluation.suite import STORES, ScoreCounts, Scoring
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.experiments.dual_variants import train_settings
from adiabat.experiments.evaluator import DriftEvaluator, Evaluator, Start
from adiabat.experiments.grid import SweepTrial, plan_runs
from adiabat.experiments.pair_checks import read_checked
from adiabat.experiments.rate_search import rate_for_run
from adiabat.experiments.setting_digests import data_key, has_random_projection, short_digest, start_key
from adiabat.experiments.start_records import StartRecord, drawn_texts, encoding_speeds, read_starts, step_seconds, write_starts
from adiabat.experiments.trials import Runner
from adiabat.models.device import device_name, device_of
from adiabat.models.embedding_head import NAMES
from adiabat.models.model_names import trained_by
from adiabat.models.towers import DualEncoder
from adiabat.results.drift_judgement import Drift
from adiabat.results.evaluation_result import TrainingRecord
from adiabat.results.sweep_result import SweepRun
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import read_log
from adiabat.training.run_record import finished


@dataclass(frozen=True)
class SweepRunner(Runner[SweepTrial, SweepRun]):
    """Makes the runs of a sweep; tasks and starts are read and measured once.

    Attributes:
        settings: Of the sweep.
    """

    settings: SweepSettings

    @property
    def keep_models(self) -> bool:
        """Whether models stay once they are measured."""
        return self.settings.sweep.keep_models

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """All runs of the sweep."""
        return plan_runs(self.settings)

    @cached_property
    def tasks(self) -> list[LoadedTask]:
        """The tasks that models are measured on, read and checked."""
        return load_tasks(SuiteSettings(tasks=self.settings.tasks, measure=self.settings.measure), self.watch)

    @cached_property
    def counts(self) -> ScoreCounts:
        """Of the scores."""
        return ScoreCounts()

    @cached_property
    def evaluator(self) -> Evaluator:
        """Measures models on the tasks."""
        section = self.settings.sweep
        corpora = CorpusStores(Path(section.stores) if section.stores else self.folder / STORES, self.watch)
        scoring = Scoring(self.tasks, corpora, self.counts, versions(device_name(self.device)), self.watch)
        return Evaluator(self.folder, self.settings.measure, self.seed, scoring, self.watch)

    @property
    def seed(self) -> int:
        """Of draws and statistics."""
        return self.settings.run.seed

    @property
    def device(self) -> Any:
        """Where models are measured."""
        return device_of(self.settings.run.device)

    @abstractmethod
    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of the model that a run starts from."""

    @abstractmethod
    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the settings that decide the scores of the model that a run starts from."""

    @abstractmethod
    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """The model that a run starts from."""

    @abstractmethod
    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training pairs of a run."""

    def drift(self, trial: SweepTrial, model: DualEncoder) -> Drift | None:
        """Drift of a trained model's answers; None where it is not measured."""
        return None

    @cached_property
    def _starts(self) -> dict[str, Start]:
        return {}

    def start(self, trial: SweepTrial) -> Start:
        """Scores of the model that a run starts from, measured once; the first run of the sweep with this start decides its seed."""
        name = self.start_name(trial)
        if name not in self._starts:
            self._starts[name] = self.evaluator.start(self.start_model(self.start_trials[name]), name)
        return self._starts[name]

    @cached_property
    def start_trials(self) -> dict[str, SweepTrial]:
        """Name of each start to the first run of the sweep that has it."""
        return {self.start_name(trial): trial for trial in reversed(self.trials)}

    def prepare(self, waiting: Sequence[SweepTrial]) -> None:
        """Measure the starts before any run: that finds what is wrong with models and tasks."""
        for trial in waiting:
            self.start(trial)
        self.start_records()

    def start_records(self) -> dict[str, StartRecord]:
        """The models that runs start from, by the names of their scores; one whose record or scores are of another is measured."""
        before, records = read_starts(self.folder), dict[str, StartRecord]()
        for name, trial in self.start_trials.items():
            key, record = self.start_digest(trial), before.get(name)
            if record is None or record.key != key or not self._is_measured(name, record):
                start = self.start(trial)
                speed = record.speed if record is not None and record.state == start.state else None
                record = StartRecord(start.model, start.parameters, speed, key, start.state)
            records[name] = record
        if records.items() - before.items():
            write_starts({**before, **records}, self.folder)
        return records

    def _is_measured(self, name: str, record: StartRecord) -> bool:
        """Whether the scores of a start are those of its record."""
        if name in self._starts:
            return self._starts[name].state == record.state
        return self.evaluator.is_stored(name, record.state)

    @abstractmethod
    def trained_on(self, trial: SweepTrial) -> str:
        """Training data of a run, for people."""

    def failed(self, trial: SweepTrial, reason: str) -> SweepRun:
        """The row of a run without a model."""
        return self._row(trial, "failed", reason)

    def refreshed(self, trial: SweepTrial, row: SweepRun) -> SweepRun:
        """The row with the settings that this call varies; a row of other values is refused, whatever its name."""
        for key in sorted(row.varied.keys() & trial.varied.keys()):
            former, present = row.varied[key], trial.varied[key]
            if None not in (former, present) and former != present:
                raise JobError(
                    f"the row {trial.name} must be of {key} = {present}, got {former}; choose another --out, or a value that is "
                    "written otherwise"
                )
        return replace(row, varied=trial.varied)

    def measured(self, trial: SweepTrial, job: Job) -> SweepRun:
        """Measure a trained model on tasks and probes."""
        record: TrainingRecord = finished(job, self.settings.sweep.verb)[1]
        model = self.load(str(job.folder), trial.settings.encoder.of_saved(str(job.folder))).to(self.device)
        start = self.start(trial)
        # All runs are compared by the similarity of their start, whatever they were trained by.
        model = replace(model, root={**model.root, "similarity_fn_name": NAMES[start.similarity]})
        tasks = self.evaluator.outcomes(model, trial.name, start, trained_by(job.folder))
        self.evaluator.forget(model, [one.document for one in self._starts.values()])
        return replace(
            self._row(trial, "done", record.stop_reason),
            seconds=record.seconds,
            steps=record.steps,
            epochs=record.epochs,
            best_epoch=record.best_epoch,
            validation_loss=record.validation_loss,
            validation_errors=record.validation_errors,
            validation_pairs=record.validation_pairs,
            parameters=record.parameters,
            trainable=record.trainable,
            passes=record.passes or 0.0,
            step_seconds=step_seconds(read_log(job.log)),
            tasks=tasks,
            layers=record.layers,
            drift=self.drift(trial, model),
        )

    def _row(self, trial: SweepTrial, status: Literal["done", "failed"], reason: str) -> SweepRun:
        return SweepRun(
            name=trial.name,
            variant=trial.variant,
            varied=trial.varied,
            seed=trial.seed,
            status=status,
            reason=reason,
            device=device_name(self.device),
            **self.facts(trial),
        )


UNTUNED, UNTRAINED = "untuned", "untrained"
"""Names of the scores of the models that runs start from."""


@dataclass(frozen=True)
class TuneSweepRunner(SweepRunner):
    """Makes the runs of a sweep over ``tune``: all start from one model, and tune against one store."""

    settings: TuneSweepSettings

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

        return TuningContext(load, Path(self.inputs["store"]), self.inputs["data"], self.inputs["model"])

    @cached_property
    def probes(self) -> ProbeSet | None:
        """Texts to measure drift on."""
        section = self.settings.probes
        return None if section is None else self.context.probes(section.data)

    @cached_property
    def drift_evaluator(self) -> DriftEvaluator | None:
        """Measures drift on the probes; None where there are none."""
        section = self.settings.probes
        if self.probes is None or section is None:
            return None
        store = self.context.store_at(section.store)
        return DriftEvaluator(self.folder, section.depth, lambda: self.start_model(self.trials[0]), self.probes, store, self.watch)

    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of the model that a run starts from."""
        return UNTUNED

    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the query tower and the settings of the encoder."""
        return short_digest(self.context.digest, self.settings.encoder.model_dump(mode="json"))

    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """The model that a run starts from."""
        return self.context.model.to(self.device)

    def trained_on(self, trial: SweepTrial) -> str:
        """Training data of a run, for people."""
        return self.inputs["data"]

    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training queries of a run."""
        section = trial.tuned.tune
        queries = len(self.context.examples(trial.tuned.data)[0])
        return {"learning_rate": learning_rate_of(section), "batch_size": section.batch_size, "pairs": queries}

    def prepare(self, waiting: Sequence[SweepTrial]) -> None:
        """Measure the untuned model on tasks and probes before any run."""
        super().prepare(waiting)
        if self.drift_evaluator is not None:
            _ = self.drift_evaluator.start

    def train(self, trial: SweepTrial, job: Job, *, resume: bool, watch: Watch) -> None:
        """Tune the query tower, or both towers."""
        if trial.both:
            train(self.load, train_settings(trial, self.context, job), resume=resume, command=self.command, watch=watch)
            return
        begun = TuningRun.begin(self.context, job.folder, settings=trial.tuned, resume=resume, watch=watch, find_rate=rate_for_run)
        begun.carry_out(resume=resume, command=self.command)

    def drift(self, trial: SweepTrial, model: DualEncoder) -> Drift | None:
        """Drift of a tuned model's answers; None of both towers, whose answers lie among other document vectors."""
        return None if trial.both or self.drift_evaluator is None else self.drift_evaluator.drift(model, trial.name)


@dataclass(frozen=True)
class TrainSweepRunner(SweepRunner):
    """Makes the runs of a sweep over ``train``: each trains both towers, and embeds the corpora of the tasks."""

    settings: TrainSweepSettings

    @cached_property
    def _data(self) -> dict[str, tuple[str, int]]:
        return {}

    def read_data(self, trial: SweepTrial) -> tuple[str, int]:
        """SHA-256 of the training and validation pairs of a run, and the number of training pairs."""
        key = data_key(trial.trained)
        if key not in self._data:
            self._data[key] = read_checked(trial, self.trials, self.watch)
        return self._data[key]

    @cached_property
    def start_cases(self) -> dict[str, str]:
        """Key of each start to the case whose start it is; "" where all runs start from one model."""
        cases: dict[str, str] = {}
        for trial in self.trials:
            cases.setdefault(start_key(trial.trained), trial.case)
        return cases if len(cases) > 1 else dict.fromkeys(cases, "")

    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of the model that a run starts from."""
        return ", ".join(filter(None, [self.start_cases[start_key(trial.trained)], UNTRAINED]))

    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the settings that decide the untrained model; a new projection's random weights go by the seed."""
        return short_digest(start_key(trial.trained), trial.seed if has_random_projection(trial.trained) else None)

    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """The untrained model, set up as for training, which finds settings that do not fit it."""
        towers = merged(build(trial.trained, self.load).towers)
        return replace(towers, name=str(trial.trained.job.model)).to(self.device)

    def start_records(self) -> dict[str, StartRecord]:
        """The untrained models; where there are several, all are timed again once one was added: only models that take turns compare."""
        records = super().start_records()
        if len(records) > 1 and any(record.speed is None for record in records.values()):
            models = {name: partial(self.start_model, self.start_trials[name]) for name in records}
            texts = drawn_texts(self.settings.tasks, self.settings.speed.texts)
            progress = partial(self.watch.progress, "timing the encoding of documents")
            speeds = encoding_speeds(models, texts, rounds=self.settings.speed.rounds, on_progress=progress) if texts else {}
            records = {name: replace(record, speed=speeds.get(name)) for name, record in records.items()}
            write_starts(records, self.folder)
        return records

    def trained_on(self, trial: SweepTrial) -> str:
        """Training data of a run, for people."""
        return trial.trained.job.data or " + ".join(source.path for source in trial.trained.data.sources)

    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training pairs of a run."""
        section = trial.trained.train
        return {"learning_rate": section.learning_rate, "batch_size": section.batch_size, "pairs": self.read_data(trial)[1]}

    def train(self, trial: SweepTrial, job: Job, *, resume: bool, watch: Watch) -> None:
        """Train both towers."""
        section = trial.trained.job.model_copy(update={"out": str(job.folder)})
        train(self.load, trial.trained.model_copy(update={"job": section}), resume=resume, command=self.command, watch=watch)
