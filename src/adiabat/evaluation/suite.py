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
from adiabat.evaluation.measured_models import Corpora, Subject
from adiabat.evaluation.score_files import ENDING, SCORES, folder_names, read_record, read_scores, scores_in, write_scores
from adiabat.evaluation.suite_findings import Measured, findings_of
from adiabat.evaluation.task_kinds import Prepared, prepare
from adiabat.models.device import device_name, device_of
from adiabat.results.suite_result import SuiteModel, SuiteResult
from adiabat.stats.samples import TaskScores

STORES = "stores"
"""Folder of a result in which vectors of corpora lie, unless they are kept elsewhere."""


@dataclass(slots=True)
class Clock:
    """Seconds of scoring, those of earlier calls among them; and how many scores were found made, how many by other versions."""

    seconds: float = 0.0
    made: int = 0
    found: int = 0
    others: Counter[str] = field(default_factory=Counter)

    def notes(self) -> list[str]:
        """What was not measured as this call would have."""
        every = self.found + self.made
        return [f"{count:,} of {every:,} scores were kept from a call with {other}" for other, count in self.others.items()]


def evaluate_suite(
    subjects: Sequence[tuple[Subject, ...]], settings: SuiteSettings, folder: Path, *, command: str, watch: Watch
) -> SuiteResult:
    """Measure models on the tasks of a suite, and compare them."""
    names = [runs[0].name for runs in subjects]
    _require_baseline(settings.suite.baseline, names)
    tasks = prepare(settings, watch)
    if not any(task.lexical or not run.is_lexical for task in tasks for runs in subjects for run in runs):
        raise ConfigError(
            f"at least one model must be able to do a task, got {', '.join(names)}; BM25 ranks for retrieval and triplets alone"
        )
    clock = Clock()
    stores = Path(settings.suite.stores) if settings.suite.stores else folder / STORES
    used = versions(device_name(device_of(settings.run.device)))
    scored = Scoring(tasks, Corpora(stores, watch), clock, used, watch)
    measured = [scored.model(runs, folder / SCORES / name) for runs, name in zip(subjects, folder_names(names), strict=True)]
    if clock.found:
        watch.note(f"{clock.found:,} of {clock.found + clock.made:,} scores were there already, in {folder / SCORES}")
    started = time.monotonic()
    found = findings_of(
        measured, baseline=settings.suite.baseline, seed=settings.run.seed, resamples=settings.measure.resamples, watch=watch
    )
    return SuiteResult(
        title=settings.suite.name,
        command=command,
        created=now(),
        seconds=clock.seconds + time.monotonic() - started,
        seed=settings.run.seed,
        versions=used,
        tasks=found.tasks,
        models=[one.about for one in measured],
        scores=found.scores,
        pairings=found.pairings,
        baseline=settings.suite.baseline,
        resamples=settings.measure.resamples,
        grids=found.grids,
        units=found.units,
        facts=found.facts,
        notes=[*clock.notes(), *found.notes],
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs={task.name: {"sha256": task.sha256, "source": task.source} for task in tasks},
    )


def _require_baseline(baseline: str | None, names: Sequence[str]) -> None:
    if baseline is not None and baseline not in names:
        raise ConfigError(f"suite.baseline must be the name of a model, got {baseline}; the models are {', '.join(names)}")


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scoring of one model after the other.

    Attributes:
        tasks: To be done.
        corpora: Where vectors of documents are kept.
        clock: Counts what was made and what was there.
        versions: Of packages and the device, to keep with scores.
        watch: Told how far it is.
    """

    tasks: Sequence[Prepared]
    corpora: Corpora
    clock: Clock
    versions: Mapping[str, str]
    watch: Watch

    def model(self, runs: Sequence[Subject], folder: Path) -> Measured:
        """Score every run of a model."""
        places = [folder] if len(runs) == 1 else [folder / f"run-{number}" for number in range(1, len(runs) + 1)]
        for surplus in sorted({path.parent for path in scores_in(folder)} - set(places)):
            self.watch.note(f"{surplus} holds scores of a run that is not listed now; compare-runs would count it, so remove it")
        about: SuiteModel | None = None
        scores: list[Mapping[str, TaskScores]] = []
        for number, (run, place) in enumerate(zip(runs, places, strict=True), start=1):
            about = about or run.about(runs)
            scores.append(self.run(run, place, {} if len(runs) == 1 else {"run": number}))
            # Its weights: the next model needs the memory.
            vars(run).pop("towers", None)
        assert about is not None
        return Measured(about, scores)

    def run(self, subject: Subject, folder: Path, which: Mapping[str, int] | None = None) -> dict[str, TaskScores]:
        """Score one run of a model on every task that it can do; what was scored before is read.

        Args:
            which: Number of the run, to keep with the scores; None keeps none.
        """
        asked = [task for task in self.tasks if task.lexical or not subject.is_lexical]
        found = {}
        for number, (task, name) in enumerate(zip(asked, folder_names([task.name for task in asked]), strict=True)):
            self.watch.progress(f"{subject.name}: {task.name}", number, len(asked))
            found[task.name] = self._score(subject, task, folder / f"{name}{ENDING}", which or {})
        return found

    def _score(self, subject: Subject, task: Prepared, path: Path, which: Mapping[str, int]) -> TaskScores:
        if (kept := self._kept(task.key(subject), path)) is not None:
            return replace(kept, task=task.name)
        started = time.monotonic()
        scores = task.score(subject, self.corpora, self.watch)
        seconds = time.monotonic() - started
        self.clock.made += 1
        self.clock.seconds += seconds
        about: dict[str, Any] = {"model": subject.name, "source": subject.model, "state": subject.key, **which}
        about |= {"seconds": seconds, "created": now(), "versions": dict(self.versions)}
        write_scores(scores, path, key=task.key(subject), about=about)
        return scores

    def _kept(self, key: str, path: Path) -> TaskScores | None:
        """Scores of an earlier call; None where there are none that follow from the same."""
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
        self.clock.found += 1
        self.clock.seconds += float(record["about"]["seconds"])
        then = record["about"].get("versions", {})
        if unlike := [f"{name} {then[name]}" for name in then if self.versions.get(name) != then[name]]:
            self.clock.others[", ".join(unlike)] += 1
        return scores
