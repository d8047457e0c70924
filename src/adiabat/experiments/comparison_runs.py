"""The grid of a comparison: each candidate trained with each seed as an ordinary job, measured, and noted in a row."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np

from adiabat.config.comparison_settings import CompareBackbonesSection, CompareSettings
from adiabat.config.dual_training import DigestsSection, JobSection, TrainSettings
from adiabat.config.shared import MeasureSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, several
from adiabat.core.progress import Watch, once
from adiabat.data.records import Document
from adiabat.data.trained_texts import TrainedTexts
from adiabat.dual_encoder.batch_plan import sampler_of
from adiabat.dual_encoder.pair_data import read_pairs
from adiabat.dual_encoder.tower_setup import Loader, build, merged
from adiabat.dual_encoder.train import check_pairs, train
from adiabat.evaluation.retrieval import score_retrieval
from adiabat.evaluation.retrieval_data import Corpus, RetrievalTaskData, without_skip_warnings
from adiabat.evaluation.systems import System
from adiabat.experiments.comparison_rows import Key, Row, TaskRow, digests_of
from adiabat.experiments.comparison_spec import Candidate
from adiabat.models.device import device_name, device_of
from adiabat.models.towers import DualEncoder
from adiabat.models.trained_file import trained_by
from adiabat.results.comparison_result import Speed
from adiabat.results.evaluation_result import TrainingRecord
from adiabat.runs.row_files import Rows
from adiabat.runs.run_config import is_job
from adiabat.runs.run_dir import Job
from adiabat.runs.run_log import read_log
from adiabat.stats.samples import TaskScores
from adiabat.stats.statistics import value_of
from adiabat.store.build import build_store
from adiabat.store.text_vectors import known_documents
from adiabat.store.vector_store import Store
from adiabat.training.limits import InterruptionError
from adiabat.training.run_record import finished


def measure_on(
    tasks: Sequence[RetrievalTaskData],
    model: DualEncoder,
    folder: Path,
    *,
    measure: MeasureSection,
    trained: TrainedTexts | None = None,
    watch: Watch,
) -> dict[str, TaskScores]:
    """Embed each corpus by a model, measure it on the tasks, and remove the stores.

    Args:
        trained: What the model was trained on; None where it was not trained.
    """
    found: dict[str, TaskScores] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with without_skip_warnings():
        for number, corpus in enumerate(dict.fromkeys(task.corpus for task in tasks)):
            system = System(model, _embedded(model, corpus, folder / f"corpus-{number}", watch))
            for task in (one for one in tasks if one.corpus == corpus):
                examples = task.addressed(system.store)
                by = (model.ranks_by,)
                found[task.name] = score_retrieval(system, examples, settings=measure, trained=trained, similarities=by, watch=watch)
    shutil.rmtree(folder)
    return {task.name: found[task.name] for task in tasks}


def drawn_texts(tasks: Sequence[RetrievalTaskData], count: int) -> list[str]:
    """Documents of the tasks, drawn at random, equally many of each corpus as far as it goes."""
    corpora = list(dict.fromkeys(task.corpus for task in tasks))
    drawn = list[str]()
    with without_skip_warnings():
        for corpus in corpora:
            drawn += _sample(corpus.documents(), -(-count // len(corpora)))
    return drawn[:count]


def _sample(documents: Iterator[Document], count: int) -> list[str]:
    """So many of a stream, each as likely as any other (Vitter 1985, algorithm R)."""
    random = Random(0)
    kept = list[str]()
    for number, document in enumerate(documents):
        place = number if number < count else random.randint(0, number)
        if number < count:
            kept.append(document.text)
        elif place < count:
            kept[place] = document.text
    return kept


def _embedded(model: DualEncoder, corpus: Corpus, folder: Path, watch: Watch) -> Store:
    progress = _on(f"embedding {corpus.source}", watch)

    def documents() -> Iterator[Document]:
        blank, setting = corpus.blank, "tasks.blank"
        return known_documents(model.document, corpus.documents(), blank=blank, source=corpus.source, note=watch.note, setting=setting)

    return build_store(model, documents, folder, on_progress=progress, source=corpus.source, encoder_name=model.name).store


def _on(label: str, watch: Watch) -> Callable[[int, int], None]:
    return lambda done, total: watch.progress(label, done, total)


WARMING = 64
"""Texts encoded before the clock starts: the first pass sets things up, and may try what precision the model stands."""


def encoding_speeds(
    models: Mapping[str, Callable[[], DualEncoder]],
    texts: Sequence[str],
    *,
    rounds: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, Speed]:
    """Time the encoding of documents by several models, in the precision that a store is built in.

    Models take turns, so that what else the machine does meanwhile falls on all of them alike. Each is loaded anew when its turn comes:
    one at a time is in memory.

    Returns:
        Texts per second of each.
    """
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds):
        for place, (name, load) in enumerate(models.items()):
            on_progress(number * len(models) + place, rounds * len(models))
            speeds[name].append(len(texts) / _seconds(load(), texts))
    on_progress(rounds * len(models), rounds * len(models))
    return {name: Speed(median(one), min(one), max(one), len(texts), rounds) for name, one in speeds.items()}


def _seconds(model: DualEncoder, texts: Sequence[str]) -> float:
    model.encode(texts[:WARMING], side="document")
    begun = perf_counter()
    model.encode(texts, side="document")
    return perf_counter() - begun


def step_seconds(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Median time of an optimiser step, out of the log of a run.

    A row of the log that stands behind a validation counts from its end, so that validations are left out.

    Returns:
        Seconds; None where no two rows lie a step apart.
    """
    steps, before = list[float](), None
    for row in rows:
        if "loss" in row and before is not None and row["step"] > before["step"]:
            steps.append((row["seconds"] - before["seconds"]) / (row["step"] - before["step"]))
        before = row
    return median(steps) if steps else None


@dataclass
class Grid:
    """What is to be done, and where.

    Attributes:
        folder: Of the comparison.
        settings: Of the comparison.
        candidates: Those that are compared.
        tasks: Those that are measured on.
        rows: What is done.
        load: Gives a model by its name.
        command: For the reports of the jobs.
        watch: Whom to tell.
        pairs: Trained on, by candidate: of those that `read_data` read.
    """

    folder: Path
    settings: CompareSettings
    candidates: Sequence[Candidate]
    tasks: Sequence[RetrievalTaskData]
    rows: Rows[Key, Row]
    load: Loader
    command: str
    watch: Watch
    pairs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._note_once = once(self.watch.note)

    def starts(self) -> list[tuple[Candidate, Key]]:
        """The untrained models: one for all candidates where these differ in data, else one for each."""
        if self.settings.kind == "data":
            return [(self.candidates[0], ("", None))]
        return [(candidate, (candidate.name, None)) for candidate in self.candidates]

    def runs(self) -> list[tuple[Candidate, Key]]:
        """Every run, seed by seed, so that the first seed tells early how all candidates come off."""
        return [(candidate, (candidate.name, seed)) for seed in self.settings.compare.seeds for candidate in self.candidates]

    def read_data(self) -> None:
        """Read what candidates are trained on that have runs to come, so that its faults come before any training."""
        faults = []
        coming = dict.fromkeys(candidate.name for candidate, key in self.runs() if key not in self.rows)
        for number, candidate in enumerate(one for one in self.candidates if one.name in coming):
            self.watch.progress("reading training data", number, len(coming))
            try:
                self.pairs[candidate.name] = self._pairs_of(candidate)
            except AdiabatError as fault:
                faults.append(f'candidate "{candidate.name}": {fault}')
        if faults:
            raise DataError(several(faults))

    def _pairs_of(self, candidate: Candidate) -> int:
        settings = candidate.settings
        if settings.data.stream:
            raise ConfigError(
                "data.stream must be left out of a comparison, which reads its candidates before it trains on any, got true; leave it out"
            )
        training, validation = read_pairs(settings.job.data, settings.data, stored=settings.reads_ids)
        check_pairs(training, validation, settings)
        # Planned without tokens, which take the model: enough to see whether there is more than one topic where batches go by them.
        sampler_of(settings, training, tokens=np.zeros(len(training), dtype=np.int64))
        return len(training)

    def work(self) -> None:
        """Do what is not done yet: the starts first, which takes every model and every task once, and then the runs."""
        for candidate, key in self.starts():
            if key not in self.rows:
                with _naming(f"{key[0] or candidate.settings.job.model}, untrained"):
                    self.rows.add(self._start(candidate, key))
        self._time_encoding()
        runs = self.runs()
        for number, (candidate, key) in enumerate(runs, start=1):
            job = Job(self.folder / "runs" / candidate.name / f"seed-{key[1]}")
            if key not in self.rows:
                title = f"{candidate.name}, seed {key[1]}"
                self.watch.note(f"{title}: run {number} of {len(runs)}")
                with _naming(title):
                    self.rows.add(self._run(candidate, key, job, self._watch(candidate.name, title)))
            job.tidy(keep_model=self.settings.compare.keep_models)
        shutil.rmtree(self.folder / "stores", ignore_errors=True)

    def _start(self, candidate: Candidate, key: Key) -> Row:
        """Measure what training starts from; towers are built as for a run, which tells whether its settings fit the model."""
        begun = time.monotonic()
        place = device_of(candidate.settings.run.device)
        model = self._untrained(candidate)
        watch = self._watch(candidate.name, f"{key[0] or model.name}, untrained")
        scores = measure_on(self.tasks, model, self._store(key), measure=self.settings.measure, watch=watch)
        return Row(
            candidate=key[0],
            seed=None,
            tasks=_task_rows(scores, self.settings.measure.measures),
            parameters=model.parameters,
            seconds=time.monotonic() - begun,
            device=device_name(place),
        )

    def _untrained(self, candidate: Candidate) -> DualEncoder:
        settings = candidate.settings
        towers = merged(build(settings, self.load).towers)
        return replace(towers, name=str(settings.job.model)).to(device_of(settings.run.device))

    def _time_encoding(self) -> None:
        """Time the backbones, all of them anew where one was added: only what is timed in turns compares."""
        compared, keys = self.settings.compare, {key: candidate for candidate, key in self.starts()}
        if not isinstance(compared, CompareBackbonesSection) or all(self.rows[key].speed for key in keys):
            return
        models = {key[0]: partial(self._untrained, candidate) for key, candidate in keys.items()}
        texts = drawn_texts(self.tasks, compared.speed_texts)
        progress = partial(self.watch.progress, "timing the encoding of documents")
        for name, speed in encoding_speeds(models, texts, rounds=compared.speed_rounds, on_progress=progress).items():
            self.rows.add(replace(self.rows[name, None], speed=speed))

    def _run(self, candidate: Candidate, key: Key, job: Job, watch: Watch) -> Row:
        """Train one candidate with one seed, and measure it; a job that was begun goes on."""
        record, digests = self._trained(candidate, key, job, watch)
        begun = time.monotonic()
        place = device_of(candidate.settings.run.device)
        model = self.load(str(job.folder), candidate.settings.encoder.of_saved(str(job.folder))).to(place)
        trained = trained_by(job.folder)
        scores = measure_on(self.tasks, model, self._store(key), measure=self.settings.measure, trained=trained, watch=watch)
        return Row(
            candidate=candidate.name,
            seed=key[1],
            tasks=_task_rows(scores, self.settings.measure.measures),
            parameters=record.parameters,
            seconds=record.seconds + time.monotonic() - begun,
            device=device_name(place),
            trained=record.trainable,
            pairs=self.pairs[candidate.name],
            steps=record.steps,
            passes=record.passes or 0.0,
            step_seconds=step_seconds(read_log(job.log)),
            digests=digests,
        )

    def _trained(self, candidate: Candidate, key: Key, job: Job, watch: Watch) -> tuple[TrainingRecord, dict[str, str]]:
        """The record of the finished job, and what it began with."""
        if not job.is_done:
            job.folder.mkdir(parents=True, exist_ok=True)
            train(self.load, self._settings(candidate, key, job), resume=is_job(job.folder), command=self.command, watch=watch)
        result, record = finished(job, "training")
        return record, {name: str(result.inputs["train"][f"{name}_sha256"]) for name in ("model", "examples")}

    def _settings(self, candidate: Candidate, key: Key, job: Job) -> TrainSettings:
        """A candidate's other runs say what this one must find: a file may have changed under its name."""
        settings, (_, seed) = candidate.settings, key
        named = JobSection(**{**settings.job.model_dump(), "out": str(job.folder)})
        digests = DigestsSection(**digests_of(self.rows, candidate.name))
        return settings.model_copy(update={"job": named, "digests": digests, "run": settings.run.model_copy(update={"seed": seed})})

    def _store(self, key: Key) -> Path:
        return self.folder / "stores" / (key[0] or "start") / ("untrained" if key[1] is None else f"seed-{key[1]}")

    def _watch(self, who: str, title: str) -> Watch:
        """Says of which run it speaks; what all runs of a candidate have to say is said once."""
        return self.watch.under(title, note=lambda sentence: self._note_once(f"{who}: {sentence}"))


@contextmanager
def _naming(title: str) -> Iterator[None]:
    """Say of which run a fault speaks."""
    try:
        yield
    except InterruptionError:
        raise
    except AdiabatError as fault:
        fault.args = (f"{title}: {fault}",)
        raise


def _task_rows(scores: Mapping[str, TaskScores], measures: Sequence[str]) -> dict[str, TaskRow]:
    """The first measure carries a comparison, of listed candidates as of a whole corpus."""
    rows = {}
    for name, found in scores.items():
        of = {sample.measure: sample for sample in found.samples}
        means = {measure: float(value_of(of[measure])[0]) for measure in measures}
        kind: Literal["ranking", "pairs"] = "pairs" if found.kind == "triplets" else "ranking"
        trained = 0 if found.trained is None else int(found.trained.queries.sum())
        rows[name] = TaskRow(kind, found.documents, of[measures[0]].values.tolist(), means, found.notes, trained)
    return rows
