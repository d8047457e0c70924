"""Runs of a sweep over ``train``, each of which trains both towers (Reimers 2021); pairs are read once and
checked against every run.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from adiabat.config.dual_training import DigestsSection, TrainSettings
from adiabat.config.sweeps import TrainSweepSettings
from adiabat.config.tasks import TaskSection
from adiabat.core.errors import AdiabatError, ConfigError, DataError, ModelError, several
from adiabat.core.progress import Watch
from adiabat.data.pair_sets import PairSet
from adiabat.data.records import Document
from adiabat.dual_encoder.batches import sampler_of
from adiabat.dual_encoder.pair_data import cache_folder, read_pairs
from adiabat.dual_encoder.tower_setup import build, merged
from adiabat.dual_encoder.train import check, check_pairs, train
from adiabat.dual_encoder.train_checks import FREE_MEMORY, FREE_PATHS, FREE_SOURCES
from adiabat.evaluation.measured_models import Corpus, without_skip_warnings
from adiabat.experiments.grid import SweepTrial, short_digest
from adiabat.experiments.sweep_trials import StartRecord, SweepRunner, write_starts
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import Speed
from adiabat.runs.run_config import Job, read_description
from adiabat.store.vector_store import Store

UNTRAINED = "untrained"
"""Name of the scores of the initial models."""


@dataclass(frozen=True)
class TrainSweepRunner(SweepRunner):
    """Makes the runs of a sweep over ``train``: each trains both towers and embeds the corpora of the
    tasks.
    """

    settings: TrainSweepSettings

    @property
    def rules(self) -> dict[str, Any]:
        """Settings that may change when the sweep is resumed."""
        tables = ["common", *(f"variants.{one.name}" for one in self.settings.variants)]
        moved = {f"{table}.{key}" for table, key in product(tables, FREE_PATHS)}
        memory = {f"common.{key}" for key in FREE_MEMORY}
        return {
            "free": {"sweep.data", "sweep.model", *moved, *memory},
            "free_in": {f"{table}.data.sources": FREE_SOURCES for table in tables},
            "growing": ("start.models",),
        }

    def check_settings(self) -> None:
        """Check the settings of runs before data or models are read."""
        faults = []
        for trial in self.trials:
            try:
                check(trial.trained)
            except AdiabatError as fault:
                faults.append(_named(trial, fault))
        if faults:
            raise ConfigError(several(list(dict.fromkeys(faults))))

    @cached_property
    def _data(self) -> dict[str, tuple[str, int]]:
        return {}

    def read_data(self, trial: SweepTrial) -> tuple[str, int]:
        """SHA-256 of the training and validation pairs of a run, and the number of training pairs."""
        key = _data_key(trial.trained)
        if key not in self._data:
            alike = [other for other in self.trials if _data_key(other.trained) == key]
            self._data[key] = read_checked(trial, alike, self.watch)
        return self._data[key]

    def digests(self) -> dict[str, Any]:
        """SHA-256 of the pairs of all runs, which are read here, and of their initial models."""
        examples, models, known = dict[str, str](), dict[str, str](), dict[str, str]()
        faults: list[str] = []
        for number, trial in enumerate(self.trials):
            if (key := _examples_key(trial)) not in examples:
                self.watch.progress("reading training data", number, len(self.trials))
                try:
                    examples[key] = self.read_data(trial)[0]
                except AdiabatError as fault:
                    examples[key] = ""
                    faults.append(str(fault))
        if faults:
            raise DataError(several(list(dict.fromkeys(faults))))
        for trial in self.trials:
            if (key := _models_key(trial)) not in models:
                built_from = _model_key(trial.trained)
                if built_from not in known:
                    try:
                        known[built_from] = build(trial.trained, self.load).digest
                    except AdiabatError as fault:
                        known[built_from] = ""
                        faults.append(_named(trial, fault))
                models[key] = known[built_from]
        if faults:
            raise ModelError(several(list(dict.fromkeys(faults))))
        return {"examples": examples, "models": models}

    def inputs(self) -> tuple[list[str], dict[str, Any]]:
        """Names of the initial models, and the inputs for the result."""
        models = list(dict.fromkeys(str(trial.trained.job.model) for trial in self.trials))
        return models, {
            "trained on": {self.trained_on(trial): self.read_data(trial)[0] for trial in self.trials}
        }

    @cached_property
    def start_cases(self) -> dict[str, str]:
        """Key of each start to its case; "" if all runs start from one model."""
        cases: dict[str, str] = {}
        for trial in self.trials:
            cases.setdefault(_start_key(trial.trained), trial.case)
        return cases if len(cases) > 1 else dict.fromkeys(cases, "")

    def start_name(self, trial: SweepTrial) -> str:
        """Name of the scores of a run's initial model."""
        return ", ".join(filter(None, [self.start_cases[_start_key(trial.trained)], UNTRAINED]))

    def start_digest(self, trial: SweepTrial) -> str:
        """Digest of the settings that decide the untrained model; a new projection's random weights depend on
        the seed.
        """
        towers = trial.trained.towers
        is_random = towers.projection_start is None and (
            towers.projection_width is not None or towers.kind == "shared_projection"
        )
        return short_digest(_start_key(trial.trained), trial.seed if is_random else None)

    def start_model(self, trial: SweepTrial) -> DualEncoder:
        """The untrained model, set up as for training, which finds settings that do not fit it."""
        towers = merged(build(trial.trained, self.load).towers)
        return replace(towers, name=str(trial.trained.job.model)).to(self.device)

    def start_records(self) -> dict[str, StartRecord]:
        """The untrained models; if one of several was added, all are timed again, because only models that
        take turns are comparable.
        """
        records = super().start_records()
        if len(records) > 1 and any(record.speed is None for record in records.values()):
            models = {name: partial(self.start_model, self.start_trials[name]) for name in records}
            texts = drawn_texts(self.settings.tasks, self.settings.speed.texts)
            progress = partial(self.watch.progress, "timing the encoding of documents")
            speeds = (
                encoding_speeds(models, texts, rounds=self.settings.speed.rounds, on_progress=progress)
                if texts
                else {}
            )
            records = {name: replace(record, speed=speeds.get(name)) for name, record in records.items()}
            write_starts(records, self.folder)
        return records

    def trained_on(self, trial: SweepTrial) -> str:
        """Description of a run's training data."""
        return trial.trained.job.data or " + ".join(source.path for source in trial.trained.data.sources)

    def facts(self, trial: SweepTrial) -> dict[str, Any]:
        """Learning rate, batch size and number of training pairs of a run."""
        section = trial.trained.train
        return {
            "learning_rate": section.learning_rate,
            "batch_size": section.batch_size,
            "pairs": self.read_data(trial)[1],
        }

    def label(self, trial: SweepTrial) -> str:
        """The case of a run: cases may differ in data and model, which its notes name."""
        return trial.case

    def train(self, trial: SweepTrial, job: Job, *, resume: bool, watch: Watch) -> None:
        """Train both towers on the inputs recorded at the start of the sweep."""
        section = trial.trained.job.model_copy(update={"out": str(job.folder)})
        begun = read_description(Job(self.folder))["start"]
        digests = DigestsSection(
            model=begun["models"][_models_key(trial)], examples=begun["examples"][_examples_key(trial)]
        )
        settings = trial.trained.model_copy(update={"job": section, "digests": digests})
        train(self.load, settings, resume=resume, command=self.command, watch=watch)


def _data_key(settings: TrainSettings) -> str:
    """Settings that decide the training pairs of a run."""
    data = settings.data.model_dump(mode="json", exclude={"cache"})
    return short_digest(settings.job.data, settings.reads_ids, settings.towers.vectors, data)


def _model_key(settings: TrainSettings) -> str:
    """Settings that decide the models of a run."""
    towers, guide = settings.towers, settings.train.loss.guide
    others = [towers.document_model, towers.projection_start, None if guide is None else guide.model]
    return short_digest(settings.job.model, settings.encoder.model_dump(mode="json"), others)


def _examples_key(trial: SweepTrial) -> str:
    return trial.key("job.", "data.", "towers.")


def _models_key(trial: SweepTrial) -> str:
    return trial.key("job.", "encoder.", "towers.", "train.loss")


def _start_key(settings: TrainSettings) -> str:
    """Settings that decide the initial model of a run."""
    tables = [getattr(settings, name).model_dump(mode="json") for name in ("encoder", "towers")]
    return short_digest(settings.job.model, settings.train.loss.ranks_by, *tables)


def _named(trial: SweepTrial, fault: AdiabatError) -> str:
    return f"{trial.case}: {fault}" if trial.case else str(fault)


def read_checked(trial: SweepTrial, alike: Sequence[SweepTrial], watch: Watch) -> tuple[str, int]:
    """SHA-256 of the training and validation pairs of a run, including target vectors, and the number of
    pairs.

    Args:
        alike: Runs with the same data, against which the pairs are checked.
    """
    settings = trial.trained
    try:
        if settings.data.stream is not None:
            raise ConfigError(
                "data.stream must be left out of a sweep, which reads all pairs first; leave it out"
            )
        cache = cache_folder(settings.data.cache)
        training, validation = read_pairs(
            settings.job.data, settings.data, stored=settings.reads_ids, cache=cache, watch=watch
        )
    except AdiabatError as fault:
        raise DataError(_named(trial, fault)) from fault
    if faults := list(_faults(training, validation, alike)):
        raise DataError(several(faults))
    vectors = [] if settings.towers.vectors is None else [Store.open(settings.towers.vectors).manifest.sha256]
    digest = hashlib.sha256(" ".join([training.digest(), validation.digest(), *vectors]).encode()).hexdigest()
    return digest, len(training)


def _faults(training: PairSet, validation: PairSet, trials: Sequence[SweepTrial]) -> Iterator[str]:
    # Plan without tokens, which would need the model; this finds batches by topic on data with a single
    # topic.
    tokens = np.zeros(len(training), dtype=np.int64)
    distinct: dict[str, SweepTrial] = {}
    for trial in trials:
        train_table = trial.trained.train.model_dump(
            mode="json", include={"loss", "batch_size", "keep", "error_unit"}
        )
        tables = [getattr(trial.trained, name).model_dump(mode="json") for name in ("batches", "mixture")]
        distinct.setdefault(short_digest(train_table, *tables), trial)
    for trial in distinct.values():
        try:
            check_pairs(training, validation, trial.trained)
            sampler_of(trial.trained, training, tokens=tokens)
        except AdiabatError as fault:
            yield _named(trial, fault)


def drawn_texts(tasks: Iterable[object], count: int) -> list[str]:
    """Documents of retrieval tasks, drawn at random, equally many of each corpus if possible."""
    corpora = list(dict.fromkeys(Corpus.of(task) for task in tasks if isinstance(task, TaskSection)))
    drawn: list[str] = []
    with without_skip_warnings():
        for corpus in corpora:
            # An equal share, rounded up: what is too much is cut off at the end.
            drawn += _sample(corpus.documents(), -(-count // len(corpora)))
    return drawn[:count]


def _sample(documents: Iterator[Document], count: int) -> list[str]:
    """A uniform random sample of a stream (Vitter 1985, algorithm R)."""
    random = Random(0)
    sample: list[str] = []
    for number, document in enumerate(documents):
        # The first `count` fill the sample; each later one takes a random place, if it is inside of it.
        position = number if number < count else random.randint(0, number)
        if number < count:
            sample.append(document.text)
        elif position < count:
            sample[position] = document.text
    return sample


WARM_UP = 64
"""Texts encoded before timing starts: the first batches include setup, and possibly a test of the
precision."""


def encoding_speeds(
    models: Mapping[str, Callable[[], DualEncoder]],
    texts: Sequence[str],
    *,
    rounds: int,
    on_progress: Callable[[int, int], None],
) -> dict[str, Speed]:
    """Time the encoding of documents by several models, in the precision of store building.

    Models take turns, so that other load on the machine affects all of them equally. Each is loaded again at
    its turn, so that only one is in memory.
    """
    speeds: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds):
        for position, (name, load) in enumerate(models.items()):
            on_progress(number * len(models) + position, rounds * len(models))
            model = load()
            model.encode(texts[:WARM_UP], side="document")
            begun = perf_counter()
            model.encode(texts, side="document")
            speeds[name].append(len(texts) / (perf_counter() - begun))
    on_progress(rounds * len(models), rounds * len(models))
    return {
        name: Speed(median(times), min(times), max(times), len(texts), rounds)
        for name, times in speeds.items()
    }
