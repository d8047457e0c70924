"""``adiabat evaluate --suite``: every model on every task, each score kept as soon as it is there, so that the same command goes on."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adiabat.config.tasks import SuiteSettings
from adiabat.core.errors import ConfigError, DataError
from adiabat.core.progress import Watch
from adiabat.core.provenance import now, versions
from adiabat.evaluation.measured_models import CorpusStores, MeasuredModel
from adiabat.evaluation.score_files import SCORES, SUFFIX, folder_names, read_record, read_scores, score_files, write_scores
from adiabat.evaluation.suite_analysis import analysed
from adiabat.evaluation.suite_findings import ModelScores, findings_of
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.models.device import device_name, device_of
from adiabat.results.suite_result import SuiteModel, SuiteResult
from adiabat.stats.samples import TaskScores

STORES = "stores"
"""Folder of a result in which vectors of corpora lie, unless they are kept elsewhere."""


@dataclass(slots=True)
class ScoreCounts:
    """Scores computed and reused, with their seconds, and reused ones of other versions."""

    seconds: float = 0.0
    computed: int = 0
    reused: int = 0
    other_versions: Counter[str] = field(default_factory=Counter)

    def notes(self) -> list[str]:
        """Reused scores of other versions."""
        total = self.reused + self.computed
        return [f"{count:,} of {total:,} scores were kept from a call with {other}" for other, count in self.other_versions.items()]


def evaluate_suite(
    models: Sequence[tuple[MeasuredModel, ...]], settings: SuiteSettings, folder: Path, *, command: str, watch: Watch
) -> SuiteResult:
    """Score models on the tasks of a suite, and compare them."""
    names = [runs[0].name for runs in models]
    _require_baseline(settings.suite.baseline, names)
    tasks = load_tasks(settings, watch)
    if not any(task.lexical or not run.is_bm25 for task in tasks for runs in models for run in runs):
        raise ConfigError(
            f"at least one model must be able to do a task, got {', '.join(names)}; BM25 ranks for retrieval and triplets alone"
        )
    counts = ScoreCounts()
    stores = Path(settings.suite.stores) if settings.suite.stores else folder / STORES
    used = versions(device_name(device_of(settings.run.device)))
    scoring = Scoring(tasks, CorpusStores(stores, watch), counts, used, watch)
    scores = [scoring.model(runs, folder / SCORES / name) for runs, name in zip(models, folder_names(names), strict=True)]
    if counts.reused:
        watch.note(f"{counts.reused:,} of {counts.reused + counts.computed:,} scores were there already, in {folder / SCORES}")
    started = time.monotonic()
    findings = findings_of(
        scores, baseline=settings.suite.baseline, seed=settings.run.seed, resamples=settings.measure.resamples, watch=watch
    )
    result = SuiteResult(
        title=settings.suite.name,
        command=command,
        created=now(),
        seconds=counts.seconds + time.monotonic() - started,
        seed=settings.run.seed,
        versions=used,
        tasks=findings.tasks,
        models=[model_scores.model for model_scores in scores],
        scores=findings.scores,
        pairings=findings.pairings,
        baseline=settings.suite.baseline,
        resamples=settings.measure.resamples,
        grids=findings.grids,
        units=findings.units,
        facts=findings.facts,
        notes=[*counts.notes(), *findings.notes],
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs={task.name: {"sha256": task.sha256, "source": task.source} for task in tasks},
    )
    return analysed(result)


def _require_baseline(baseline: str | None, names: Sequence[str]) -> None:
    if baseline is not None and baseline not in names:
        raise ConfigError(f"suite.baseline must be the name of a model, got {baseline}; the models are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scoring of models on tasks, one after the other.

    Attributes:
        tasks: To score.
        corpora: Document vectors.
        counts: Scores computed and reused.
        versions: Of packages and the device, stored with scores.
        watch: Progress.
    """

    tasks: Sequence[LoadedTask]
    corpora: CorpusStores
    counts: ScoreCounts
    versions: Mapping[str, str]
    watch: Watch

    def model(self, runs: Sequence[MeasuredModel], folder: Path) -> ModelScores:
        """Score every run of a model."""
        folders = [folder] if len(runs) == 1 else [folder / f"run-{number}" for number in range(1, len(runs) + 1)]
        for surplus in sorted({path.parent for path in score_files(folder)} - set(folders)):
            self.watch.note(f"{surplus} holds scores of a run that is not listed now; compare would count it, so remove it")
        about: SuiteModel | None = None
        scores: list[Mapping[str, TaskScores]] = []
        for number, (run, run_folder) in enumerate(zip(runs, folders, strict=True), start=1):
            about = about or run.describe(runs)
            scores.append(self.run(run, run_folder, {} if len(runs) == 1 else {"run": number}))
            # Its weights: the next model needs the memory.
            vars(run).pop("towers", None)
        assert about is not None
        return ModelScores(about, scores)

    def run(self, model: MeasuredModel, folder: Path, which: Mapping[str, int] | None = None) -> dict[str, TaskScores]:
        """Score one run of a model on every task that it can do, or read its stored scores; `which` is stored with them."""
        tasks = [task for task in self.tasks if task.lexical or not model.is_bm25]
        scores = {}
        for number, (task, name) in enumerate(zip(tasks, folder_names([task.name for task in tasks]), strict=True)):
            self.watch.progress(f"{model.name}: {task.name}", number, len(tasks))
            scores[task.name] = self._score(model, task, folder / f"{name}{SUFFIX}", which or {})
        return scores

    def _score(self, model: MeasuredModel, task: LoadedTask, path: Path, which: Mapping[str, int]) -> TaskScores:
        if (stored := self._kept(task.key(model), path)) is not None:
            return replace(stored, task=task.name)
        started = time.monotonic()
        scores = task.score(model, self.corpora, self.watch)
        seconds = time.monotonic() - started
        self.counts.computed += 1
        self.counts.seconds += seconds
        about: dict[str, Any] = {"model": model.name, "source": model.model, "state": model.key, **which}
        about |= {"seconds": seconds, "created": now(), "versions": dict(self.versions)}
        write_scores(scores, path, key=task.key(model), about=about)
        return scores

    def _kept(self, key: str, path: Path) -> TaskScores | None:
        """Stored scores of an earlier call with the same key; None otherwise."""
        if not path.exists():
            return None
        try:
            record = read_record(path)
            if record["key"] != key:
                return None
            scores = read_scores(path, record)
        except DataError as fault:
            self.watch.note(f"{fault}: measured anew")
            return None
        self.counts.reused += 1
        self.counts.seconds += float(record["about"]["seconds"])
        then = record["about"].get("versions", {})
        if unlike := [f"{name} {then[name]}" for name in then if self.versions.get(name) != then[name]]:
            self.counts.other_versions[", ".join(unlike)] += 1
        return scores
