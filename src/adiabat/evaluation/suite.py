"""``adiabat evaluate --suite``: every model on every task; scores are stored one by one, and the same command
resumes.
"""

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
from adiabat.evaluation.evaluate_checks import require_baseline
from adiabat.evaluation.measured_models import CorpusStores, MeasuredModel
from adiabat.evaluation.score_files import (
    SCORES,
    SUFFIX,
    folder_names,
    read_record,
    read_scores,
    score_files,
    write_scores,
)
from adiabat.evaluation.suite_findings import ModelScores, compare_models
from adiabat.evaluation.task_kinds import LoadedTask, load_tasks
from adiabat.models.device import device_name, device_of
from adiabat.models.model_names import run_difference
from adiabat.results.suite_result import SuiteModel, SuiteResult
from adiabat.stats.samples import TaskScores

STORES = "stores"
"""Folder of the vectors of corpora in a result, unless the settings name another."""


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
        return [
            f"{count:,} of {total:,} scores were kept from a call with {other}"
            for other, count in self.other_versions.items()
        ]


def evaluate_suite(
    models: Sequence[tuple[MeasuredModel, ...]],
    settings: SuiteSettings,
    folder: Path,
    *,
    command: str,
    watch: Watch,
) -> SuiteResult:
    """Score models on the tasks of a suite, and compare them."""
    names = [runs[0].name for runs in models]
    require_baseline(settings, names)
    tasks = load_tasks(settings, watch)
    if not any(task.lexical or not run.is_bm25 for task in tasks for runs in models for run in runs):
        raise ConfigError(
            f"at least one model must be able to do a task, got {', '.join(names)}; "
            "BM25 does only retrieval and triplets"
        )
    counts = ScoreCounts()
    stores = Path(settings.suite.stores) if settings.suite.stores else folder / STORES
    used = versions(device_name(device_of(settings.run.device)))
    scoring = Scoring(tasks, CorpusStores(stores, watch), counts, used, watch)
    scores = [
        scoring.model(runs, folder / SCORES / name)
        for runs, name in zip(models, folder_names(names), strict=True)
    ]
    if counts.reused:
        watch.note(
            f"{counts.reused:,} of {counts.reused + counts.computed:,} scores "
            f"were there already, in {folder / SCORES}"
        )
    return compare_models(
        scores,
        settings,
        title=settings.suite.name,
        command=command,
        baseline=settings.suite.baseline,
        versions=used,
        seconds=counts.seconds,
        notes=counts.notes(),
        inputs={task.name: {"sha256": task.sha256, "source": task.source} for task in tasks},
        watch=watch,
    )


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scoring of models on tasks, one after the other; `versions` are stored with the scores."""

    tasks: Sequence[LoadedTask]
    corpora: CorpusStores
    counts: ScoreCounts
    versions: Mapping[str, str]
    watch: Watch

    def model(self, runs: Sequence[MeasuredModel], folder: Path) -> ModelScores:
        """Score every run of a model."""
        folders = (
            [folder] if len(runs) == 1 else [folder / f"run-{number}" for number in range(1, len(runs) + 1)]
        )
        for surplus in sorted({path.parent for path in score_files(folder)} - set(folders)):
            self.watch.note(
                f"{surplus} holds scores of a run that is not listed now; "
                "compare would count it, so remove it"
            )
        about: SuiteModel | None = None
        scores: list[Mapping[str, TaskScores]] = []
        states: list[str] = []
        for number, (run, run_folder) in enumerate(zip(runs, folders, strict=True), start=1):
            about = about or run.describe(runs)
            scores.append(self.run(run, run_folder, {} if len(runs) == 1 else {"run": number}))
            states.append(run.key)
            # Free its weights for the next model.
            vars(run).pop("towers", None)
        assert about is not None
        differences = [run_difference(runs[0].model, run.model) for run in runs[1:]]
        return ModelScores(about, scores, states, [difference for difference in differences if difference])

    def run(
        self, model: MeasuredModel, folder: Path, which: Mapping[str, int] | None = None
    ) -> dict[str, TaskScores]:
        """Score one run of a model on every task that it can do, or read its stored scores; `which` is stored
        with them.
        """
        tasks = [task for task in self.tasks if task.lexical or not model.is_bm25]
        scores = {}
        for number, (task, name) in enumerate(
            zip(tasks, folder_names([task.name for task in tasks]), strict=True)
        ):
            self.watch.progress(f"{model.name}: {task.name}", number, len(tasks))
            scores[task.name] = self._score(model, task, folder / f"{name}{SUFFIX}", which or {})
        return scores

    def _score(
        self, model: MeasuredModel, task: LoadedTask, path: Path, which: Mapping[str, int]
    ) -> TaskScores:
        if (stored := self._kept(task.key(model), path)) is not None:
            return replace(stored, task=task.name)
        started = time.monotonic()
        scores = task.score(model, self.corpora, self.watch)
        self.corpora.require_unchanged()
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
            self.watch.note(f"{fault}: scored again")
            return None
        self.counts.reused += 1
        self.counts.seconds += float(record["about"]["seconds"])
        then = record["about"].get("versions", {})
        if unlike := [f"{name} {then[name]}" for name in then if self.versions.get(name) != then[name]]:
            self.counts.other_versions[", ".join(unlike)] += 1
        return scores
