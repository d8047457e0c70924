"""Runs of a sweep over ``tune``: of the query tower, or of both towers from the same start (Vasilyev et al.
2024, figure 11a).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from adiabat.adiabatic.negatives import listed_negatives
from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.regularization import require_apart
from adiabat.adiabatic.tune import TuningRun
from adiabat.adiabatic.tuning_context import TuningContext, examples_digest
from adiabat.adiabatic.tuning_loop import check_settings, learning_rate_of
from adiabat.config.dual_training import TrainSettings
from adiabat.config.reader import checked
from adiabat.config.section import Section, value_at
from adiabat.config.sweeps import TuneSweepSettings
from adiabat.config.training_choices import OF_BOTH_TOWERS
from adiabat.config.tuning import TuneSection
from adiabat.core.disk import make_folder
from adiabat.core.errors import ConfigError, StoreError, several
from adiabat.core.files import write_text
from adiabat.core.progress import Watch
from adiabat.core.ragged import Ragged
from adiabat.dual_encoder.train import train
from adiabat.experiments.evaluator import DriftEvaluator
from adiabat.experiments.grid import SweepTrial, short_digest
from adiabat.experiments.sweep_trials import SweepRunner
from adiabat.losses.in_batch import Distance
from adiabat.models.towers import DualEncoder
from adiabat.results.rate_search_result import Drift
from adiabat.runs.run_config import Job
from adiabat.store.addressing import AddressedSet
from adiabat.store.vector_store import Store


@dataclass(frozen=True)
class TuneSweepRunner(SweepRunner):
    """Makes the runs of a sweep over ``tune``: all start from one model and tune against one store."""

    settings: TuneSweepSettings

    @property
    def rules(self) -> dict[str, Any]:
        """Settings that may change when the sweep is resumed."""
        return {
            "free": {f"sweep.{name}" for name in ("model", "store", "data")},
            "growing": ("start.rehearsed", "start.guards"),
        }

    def check_settings(self) -> None:
        """Check the settings of runs before data or models are read."""
        for trial in self.trials:
            check_settings(trial.tuned)
            if trial.both:
                require_possible(trial)

    def digests(self) -> dict[str, Any]:
        """SHA-256 of the inputs of runs; every file of examples is read before the model, so that errors come
        first.
        """
        settings, context = [trial.tuned for trial in self.trials], self.context
        examples, rehearsed, guards = dict[str, str](), dict[str, str](), dict[str, str]()
        for data in dict.fromkeys(run.data for run in settings):
            scored = any(run.tune.loss.needs_scores for run in settings if run.data == data)
            examples[_key_of(data)] = examples_digest(*context.examples(data), scored=scored)
        store = context.store.manifest.sha256
        for run in settings:
            if run.rehearsal:
                rehearsed[_key_of(run.rehearsal)] = context.probes(run.rehearsal.texts).sha256
            if run.watched:
                guards[_key_of(run.watched)] = context.probes(run.watched.probes).sha256
        digests = {
            # The first to load the model.
            "query_tower": context.digest,
            "store_vectors": store,
            "examples": examples,
            "rehearsed": rehearsed,
            "guards": guards,
        }
        context.require_possible(settings)
        if any(trial.both for trial in self.trials) and not context.store.has_texts:
            raise StoreError(
                f'{context.store.path} must keep texts where variants.towers = "both", it '
                "holds vectors only; rebuild it with texts"
            )
        # Drift must not be measured on texts that any run rehearses.
        for texts in dict.fromkeys(run.rehearsal.texts for run in settings if run.rehearsal):
            if self.probes is not None:
                require_apart(context.probes(texts), self.probes)
        return digests

    def inputs(self) -> tuple[list[str], dict[str, Any]]:
        """The name of the initial model, and the inputs for the result."""
        store = {"store": self.settings.job.store, "store_sha256": self.context.store.manifest.sha256}
        inputs: dict[str, Any] = {"tuned on": {"data": self.settings.job.data, **store}}
        if self.probes is not None:
            inputs["probes"] = {"source": self.probes.name, "sha256": self.probes.sha256}
        return [str(self.settings.job.model)], inputs

    @cached_property
    def context(self) -> TuningContext:
        """The tuning context that all runs share."""
        job, encoder = self.settings.job, self.settings.encoder
        return TuningContext(
            lambda: self.load(str(job.model), encoder), Path(str(job.store)), str(job.data), str(job.model)
        )

    @cached_property
    def probes(self) -> ProbeSet | None:
        """Texts to measure drift on."""
        section = self.settings.probes
        return None if section is None else self.context.probes(section.data)

    @cached_property
    def drift_evaluator(self) -> DriftEvaluator | None:
        """Measures drift on the probes; None without probes."""
        section = self.settings.probes
        if self.probes is None or section is None:
            return None
        store = self.context.store_at(section.store)
        return DriftEvaluator(
            self.folder,
            section.depth,
            lambda: self.start_model(self.trials[0]),
            self.probes,
            store,
            self.watch,
        )

    @property
    def noise(self) -> dict[str, float]:
        """Measure of drift to that of the untuned model on probes with changed punctuation; empty if drift is
        not measured.
        """
        return {} if self.drift_evaluator is None else self.drift_evaluator.noise

    @property
    def notes(self) -> list[str]:
        """Notes for the result."""
        return [*super().notes, *([] if self.probes is None else self.probes.notes)]

    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of a run's initial model."""
        return "untuned"

    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the query tower and the settings of the encoder."""
        return short_digest(self.context.digest, self.settings.encoder.model_dump(mode="json"))

    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """A run's initial model."""
        return self.context.model.to(self.device)

    def trained_on(self, trial: SweepTrial) -> str:
        """Description of a run's training data."""
        return str(self.settings.job.data)

    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training queries of a run."""
        section = trial.tuned.tune
        queries = len(self.context.examples(trial.tuned.data)[0])
        return {
            "learning_rate": learning_rate_of(section),
            "batch_size": section.batch_size,
            "pairs": queries,
        }

    def prepare(self, todo: Sequence[SweepTrial]) -> None:
        """Measure the untuned model on tasks and probes before any run."""
        super().prepare(todo)
        if self.drift_evaluator is not None:
            _ = self.drift_evaluator.start

    def train(self, trial: SweepTrial, job: Job, *, resume: bool, watch: Watch) -> None:
        """Tune the query tower, or both towers."""
        if trial.both:
            train(
                self.load,
                train_settings(trial, self.context, job),
                resume=resume,
                command=self.command,
                watch=watch,
            )
            return
        run = TuningRun.begin(self.context, job.folder, settings=trial.tuned, resume=resume, watch=watch)
        run.carry_out().finish(command=self.command)

    def drift(self, trial: SweepTrial, model: DualEncoder) -> Drift | None:
        """Drift of a tuned model; None if both towers were tuned, because its document vectors differ."""
        return (
            None
            if trial.both or self.drift_evaluator is None
            else self.drift_evaluator.drift(model, trial.name)
        )


SIDES_APART: Mapping[str, Any] = {
    "tune.negatives.kind": "examples",
    "tune.l2_to_start": 0.0,
}
"""Settings with a fixed value if both towers are tuned: other values need fixed documents."""


def require_possible(run: SweepTrial) -> None:
    """Refuse settings that do not apply to tuning both towers."""
    given = {name: value_at(run.tuned, name) for name in SIDES_APART}
    faults = [
        f"{name} must be left out" for name in ("guard", "rehearsal") if getattr(run.tuned, name) is not None
    ]
    faults += [
        f"{name.removesuffix('.kind')} must be {json.dumps(value)}, got {json.dumps(given[name])}"
        for name, value in SIDES_APART.items()
        if given[name] != value
    ]
    section = run.tuned.tune
    if section.loss.kind not in OF_BOTH_TOWERS:
        allowed = " or ".join(map(json.dumps, OF_BOTH_TOWERS))
        faults.append(f'tune.loss must be {allowed}, got "{section.loss.kind}"')
    if section.keep == "ranking":
        faults.append('tune.keep must be "both", "loss" or "last", got "ranking"')
    if section.schedule.kind == "exponential":
        faults.append('tune.schedule must go by steps, got "exponential"')
    if faults:
        raise ConfigError(
            f'{run.name}: where variants.towers = "both", {several(faults)}; change '
            'it, or set variants.towers = "query"'
        )


def _key_of(section: Section) -> str:
    return short_digest(section.model_dump(mode="json"))


def train_settings(run: SweepTrial, context: TuningContext, job: Job) -> TrainSettings:
    """Write the training and validation data of a run, and its settings for `adiabat train`.

    Queries, their first positives and their negatives are those of a run that tunes only the query tower.
    """
    settings, section = run.tuned, run.tuned.tune
    files = {name: job.prepared / f"{name}.jsonl" for name in ("train", "validation")}
    make_folder(job.prepared, parents=True)
    train, validation = context.with_negatives(settings)
    negatives = listed_negatives(train, np.arange(len(train)), section)
    firsts = Ragged.of(train.positives[row][:1] for row in range(len(train)))
    _write(files["train"], _rows(train, firsts, negatives, context.store))
    _write(files["validation"], _rows(validation, validation.positives, validation.negatives, context.store))
    return checked(
        TrainSettings,
        {
            "job": {"model": context.inputs["model"], "data": str(files["train"]), "out": str(job.folder)},
            "encoder": settings.encoder.model_dump(exclude_unset=True),
            "data": {"validation": str(files["validation"]), "cache": str(job.prepared)},
            "towers": {"kind": "asymmetric"},
            "train": _regime(section, context.distance(section)),
            "run": settings.run.model_dump(),
        },
    )


def _regime(section: TuneSection, distance: Distance) -> dict[str, Any]:
    """``[train]`` of a run, in which settings of ``[tune]`` keep their meaning."""
    same = ("freeze", "optimizer", "weight_decay", "warmup_steps", "batch_size")
    table = {name: getattr(section, name) for name in (*same, "dropout")}
    table["keep"] = "best" if section.keep == "loss" else section.keep
    table["loss"] = section.loss.of_both_towers(distance, section.negatives.per_query)
    table |= {"method": section.method.model_dump(), "schedule": section.schedule.model_dump()}
    table |= {"learning_rate": learning_rate_of(section), "max_grad_norm": 0.0, "error_unit": "pairs"}
    table |= {
        "validate_every": section.batches_per_epoch,
        "steps": section.max_epochs * section.batches_per_epoch,
    }
    if section.keep != "last":
        table["idle_epochs"] = section.idle_epochs
    return table


def _rows(
    examples: AddressedSet, positives: Ragged, negatives: Ragged, store: Store
) -> Iterator[dict[str, Any]]:
    for row, query in enumerate(examples.queries):
        near, far = (list(dict.fromkeys(store.texts(rows[row]))) for rows in (positives, negatives))
        yield {"query_id": examples.query_ids[row], "query": query, "pos": near, "neg": far}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    write_text("".join(json.dumps(row) + "\n" for row in rows), path)
