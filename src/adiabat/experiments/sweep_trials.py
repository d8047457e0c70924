"""The runs of a sweep: models are tuned or trained, measured on the same tasks, and recorded in rows."""

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from adiabat.config.sweeps import SweepSettings
from adiabat.core.errors import DataError, JobError
from adiabat.core.files import read_json, write_json
from adiabat.core.formats import layout_of
from adiabat.core.provenance import versions
from adiabat.core.wording import option
from adiabat.evaluation.measured_models import CorpusStores
from adiabat.evaluation.suite import STORES, ScoreCounts, Scoring
from adiabat.experiments.evaluator import Evaluator, Start
from adiabat.experiments.grid import SweepTrial, trials_of_sweep
from adiabat.experiments.trials import Runner
from adiabat.models.device import device_name, device_of
from adiabat.models.embedding_head import NAMES
from adiabat.models.model_names import trained_by
from adiabat.models.towers import DualEncoder
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import Speed, SweepRun, TaskOutcome
from adiabat.results.training_record import TrainingRecord
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import Job
from adiabat.runs.run_log import REMEDY, read_log
from adiabat.training.run_record import finished

STARTS = "starts.json"
"""Files in the directory of a sweep."""


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A model that runs start from.

    Attributes:
        parameters: Number of parameters of both towers; shared ones count once.
        speed: Speed of encoding documents; None if it was not measured.
        key: Digest of the settings that decide the model.
        state: Digest of the model, as recorded in its score files.
    """

    model: str
    parameters: int
    speed: Speed | None = None
    key: str = ""
    state: str = ""


def read_starts(folder: Path) -> dict[str, StartRecord]:
    """Records of an earlier call by name; empty if the file is missing or damaged."""
    try:
        return TypeAdapter(dict[str, StartRecord]).validate_python(
            read_json(folder / STARTS, remedy="it is rebuilt")
        )
    except (DataError, ValidationError):
        return {}


def write_starts(records: Mapping[str, StartRecord], folder: Path) -> None:
    """Write the records."""
    write_json({name: asdict(record) for name, record in records.items()}, folder / STARTS, writer=False)


@dataclass(frozen=True)
class SweepRunner(Runner[SweepTrial, SweepRun]):
    """Makes the runs of a sweep; tasks and initial models are read and measured once."""

    settings: SweepSettings

    @cached_property
    def trials(self) -> list[SweepTrial]:
        """All runs of the sweep."""
        return trials_of_sweep(self.settings)

    @cached_property
    def counts(self) -> ScoreCounts:
        """Settings of the scores."""
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
        """Seed of draws and statistics."""
        return self.settings.run.seed

    @property
    def device(self) -> Any:
        """Device on which models are measured."""
        return device_of(self.settings.run.device)

    @property
    @abstractmethod
    def rules(self) -> dict[str, Any]:
        """Additional settings that may change on resuming: ``free``, ``free_in`` and ``growing`` of
        `ExperimentKind`.
        """

    @abstractmethod
    def check_settings(self) -> None:
        """Check the settings of runs before data or models are read."""

    @abstractmethod
    def digests(self) -> dict[str, Any]:
        """SHA-256 of the inputs of runs; all data are read here, so that errors come before the first run."""

    @abstractmethod
    def inputs(self) -> tuple[list[str], dict[str, Any]]:
        """Names of the models that runs start from, and the inputs for the result."""

    @abstractmethod
    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of a run's initial model."""

    @abstractmethod
    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the settings that decide the scores of a run's initial model."""

    @abstractmethod
    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """A run's initial model."""

    @abstractmethod
    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training pairs of a run."""

    def drift(self, trial: SweepTrial, model: DualEncoder) -> Drift | None:
        """Drift of a trained model; None if it is not measured."""
        return None

    @property
    def noise(self) -> dict[str, float]:
        """Measure of drift to that of the untuned model on probes with changed punctuation; empty if drift is
        not measured.
        """
        return {}

    @property
    def notes(self) -> list[str]:
        """Notes for the result."""
        return [*self.counts.notes(), *self.evaluator.unread]

    @cached_property
    def _starts(self) -> dict[str, Start]:
        return {}

    def start(self, trial: SweepTrial) -> Start:
        """Scores of a run's initial model, measured once; the first run of the sweep with this start decides
        its seed.
        """
        name = self.start_name(trial)
        if name not in self._starts:
            self._starts[name] = self.evaluator.start(self.start_model(self.start_trials[name]), name)
        return self._starts[name]

    @cached_property
    def start_trials(self) -> dict[str, SweepTrial]:
        """Name of each start to the first run of the sweep that uses it."""
        first: dict[str, SweepTrial] = {}
        for trial in self.trials:
            first.setdefault(self.start_name(trial), trial)
        return first

    def prepare(self, todo: Sequence[SweepTrial]) -> None:
        """Measure the initial models before any run, which finds faults of models and tasks."""
        for trial in todo:
            self.start(trial)
        self.start_records()

    def start_records(self) -> dict[str, StartRecord]:
        """The initial models by the names of their scores; a model is measured again if its record or scores
        do not match.
        """
        before, records = read_starts(self.folder), dict[str, StartRecord]()
        for name, trial in self.start_trials.items():
            key, record = self.start_digest(trial), before.get(name)
            if record is None or record.key != key or not self._is_measured(name, record):
                start = self.start(trial)
                # The speed of unchanged weights still holds.
                speed = record.speed if record is not None and record.state == start.state else None
                record = StartRecord(start.model, start.parameters, speed, key, start.state)
            records[name] = record
        if records.items() - before.items():
            write_starts({**before, **records}, self.folder)
        return records

    def _is_measured(self, name: str, record: StartRecord) -> bool:
        """Whether the scores of an initial model match its record."""
        if name in self._starts:
            return self._starts[name].state == record.state
        return self.evaluator.is_stored(name, record.state)

    @abstractmethod
    def trained_on(self, trial: SweepTrial) -> str:
        """Description of a run's training data."""

    def failed(self, trial: SweepTrial, reason: str) -> SweepRun:
        """The row of a run without a model."""
        return self._row(trial, "failed", reason)

    def refreshed(self, trial: SweepTrial, row: SweepRun) -> SweepRun:
        """The row with the settings that this call varies; a row of other values is refused, whatever its
        name.
        """
        for key in sorted(row.varied.keys() & trial.varied.keys()):
            former, present = row.varied[key], trial.varied[key]
            if None not in (former, present) and former != present:
                raise JobError(
                    f"the row {trial.name} must be of {key} = {present}, got {former}; "
                    f"choose another {option('out')}, or write the value differently"
                )
        return replace(row, varied=trial.varied, start=self.start_name(trial))

    def measured(self, trial: SweepTrial, job: Job) -> SweepRun:
        """Measure a trained model on tasks and probes."""
        record: TrainingRecord = finished(job, self.settings.sweep.verb)[1]
        model = self.load(str(job.folder), trial.settings.encoder.of_saved(str(job.folder))).to(self.device)
        start = self.start(trial)
        # All runs are compared by the similarity of their initial model, whatever similarity trained them.
        model = replace(model, root={**model.root, "similarity_fn_name": NAMES[start.similarity]})
        tasks = self.evaluator.outcomes(model, trial.name, start, trained_by(job.folder))
        self.evaluator.forget(model, [other.document for other in self._starts.values()])
        with layout_of(job.log, remedy=REMEDY, error=JobError):
            seconds_of_step = step_seconds(read_log(job.log))
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
            step_seconds=seconds_of_step,
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
            start=self.start_name(trial),
            **self.facts(trial),
        )


def step_seconds(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Median time of an optimizer step, from the log of a run; None if no two rows are a step apart.

    After a validation, time is counted from its end, so that validations are excluded.
    """
    steps, before = list[float](), None
    for row in rows:
        if "loss" in row and before is not None and row["step"] > before["step"]:
            steps.append((row["seconds"] - before["seconds"]) / (row["step"] - before["step"]))
        before = row
    return median(steps) if steps else None


def rows_at(path: Path) -> Rows[SweepRun]:
    """The finished runs of a sweep."""
    return Rows(path, SweepRun, columns=_columns, of="a sweep")


def _columns(run: SweepRun) -> dict[str, Any]:
    scalars = {
        "run": run.name,
        "variant": run.variant,
        "seed": run.seed,
        "status": run.status,
        "reason": run.reason,
    }
    # Values of one setting may have several types, which a Parquet column cannot hold.
    varied = {
        key: json.dumps(value) if isinstance(value, list) else value for key, value in run.varied.items()
    }
    numbers = {
        "learning_rate": run.learning_rate,
        "batch_size": run.batch_size,
        "steps": run.steps,
        "epochs": run.epochs,
    }
    numbers |= {"best_epoch": run.best_epoch, "seconds": run.seconds}
    columns = {**scalars, **varied, **numbers}
    for task in run.tasks:
        columns.update(_of_task(task))
    if run.drift is not None:
        columns |= {f"drift: {name}": value for name, value in run.drift.means.items()}
    return columns


def _of_task(task: TaskOutcome) -> Iterator[tuple[str, Any]]:
    main = task.main
    name = f"{task.task}: {main.measure}"
    yield from (
        (name, main.after),
        (f"{name}, before", main.before),
        (f"{name}, improvement %", main.improvement),
    )
    low, high = main.improvement_interval or (None, None)
    yield from (
        (f"{name}, low %", low),
        (f"{name}, high %", high),
        (f"{name}, p", main.p),
        (f"{name}, verdict", main.verdict),
    )
    for grid in task.grids:
        where = f"{task.task}: {grid.comparison} by {grid.similarity}"
        yield from ((f"{where}, improved", grid.improved), (f"{where}, worsened", grid.worsened))
        yield from (
            (f"{where}, improved by z", grid.improved_z),
            (f"{where}, worsened by z", grid.worsened_z),
        )
