"""Measures the models of a sweep, and the models that they start from, on the same tasks and probes."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from adiabat.adiabatic.drift import MEASURES, Reading, drift_of
from adiabat.adiabatic.probes import ProbeSet
from adiabat.adiabatic.regularization import noise_of, read_tower
from adiabat.config.shared import RankingMeasureSection
from adiabat.core.disk import make_folder, new_file
from adiabat.core.errors import DataError
from adiabat.core.files import read_json, write_json, writing_to
from adiabat.core.margin import Margin
from adiabat.core.progress import Watch
from adiabat.data.records import Fingerprint
from adiabat.data.text_hashes import TrainedTexts
from adiabat.evaluation.decisive_queries import decide
from adiabat.evaluation.measured_models import MeasuredModel
from adiabat.evaluation.score_files import (
    SCORES,
    SUFFIX,
    folder_names,
    read_record,
    read_scores,
    run_folder_name,
)
from adiabat.evaluation.suite import Scoring
from adiabat.models.embedding_head import Similarity
from adiabat.models.towers import DualEncoder
from adiabat.results.rate_search_result import Drift
from adiabat.results.sweep_result import TaskOutcome
from adiabat.stats.grid_comparison import compare_grids
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import TaskScores
from adiabat.store.vector_store import Store

OTHERWISE = "untuned, written otherwise"
"""Name of the reading of probes with changed punctuation."""

READINGS, NOISE = "readings", "noise.json"
"""Folder of probe readings, and the file with the drift of the untuned model on probes with changed
punctuation."""


@dataclass(frozen=True, slots=True)
class Start:
    """A model that runs start from.

    Attributes:
        parameters: Number of parameters of both towers; shared ones count once.
        state: Digest of the model, as recorded in its score files.
    """

    name: str
    model: str
    parameters: int
    scores: Mapping[str, TaskScores]
    similarity: Similarity
    document: Fingerprint
    state: str


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures models on the tasks of a sweep.

    Attributes:
        unread: Notes about missing or damaged score files.
    """

    folder: Path
    measure: RankingMeasureSection
    seed: int
    scoring: Scoring
    watch: Watch
    unread: list[str] = field(default_factory=list)

    def start(self, model: DualEncoder, name: str) -> Start:
        """Measure a model that runs start from."""
        # Its scores are those that every run is compared with.
        subject = MeasuredModel.in_memory(model, name)
        scores = self._scores(subject)
        document = model.fingerprint("document")
        return Start(name, model.name, model.parameters, scores, model.similarity, document, subject.key)

    def outcomes(
        self, model: DualEncoder, name: str, start: Start, trained: TrainedTexts | None = None
    ) -> list[TaskOutcome]:
        """Measure a trained model on every task, and compare it with its start."""
        scores = self._scores(MeasuredModel.in_memory(model, name, trained))
        margin = self.measure.loss_margin()
        outcomes = []
        for number, (task, after) in enumerate(scores.items()):
            self.watch.progress(f"{name}: comparing {task}", number, len(scores))
            before = start.scores[task]
            outcomes.append(_outcome(after, before, self.seed, self.measure.resamples, margin))
        return outcomes

    def forget(self, model: DualEncoder, others: Collection[Fingerprint]) -> None:
        """Remove the corpus vectors that only this model's document tower made."""
        document = model.fingerprint("document")
        if document not in others:
            self.scoring.corpora.remove_vectors(document)

    def stored(self, name: str) -> dict[str, TaskScores] | None:
        """Stored scores of a model by task; None, with a note, if a file is missing or damaged."""
        scores = {}
        for task, path in self._files(name):
            try:
                scores[task] = read_scores(path)
            except DataError:
                self.unread.append(
                    f"the comparison of settings lacks {name}, whose scores {path} are missing or damaged"
                )
                return None
        return scores

    def is_stored(self, name: str, state: str) -> bool:
        """Whether every task has readable scores of this state of a model."""
        try:
            for _, path in self._files(name):
                record = read_record(path)
                if record["about"].get("state") != state:
                    return False
                read_scores(path, record)
        except DataError:
            return False
        return True

    def _files(self, name: str) -> list[tuple[str, Path]]:
        """Each task with its score file for a model."""
        names = [task.name for task in self.scoring.tasks]
        folder = self.folder / SCORES / run_folder_name(name)
        paths = [folder / f"{file}{SUFFIX}" for file in folder_names(names)]
        return list(zip(names, paths, strict=True))

    def _scores(self, subject: MeasuredModel) -> dict[str, TaskScores]:
        return self.scoring.run(subject, self.folder / SCORES / run_folder_name(subject.name))


@dataclass(frozen=True)
class DriftEvaluator:
    """Measures the drift of tuned models from the untuned one."""

    folder: Path
    depth: int
    load: Callable[[], DualEncoder]
    probes: ProbeSet
    store: Store
    watch: Watch

    @cached_property
    def model(self) -> DualEncoder:
        """The untuned model."""
        return self.load()

    @cached_property
    def start(self) -> Reading:
        """The untuned model's reading of the probes."""
        return self._read(self.model, self.probes, UNTUNED, None)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Measure to the drift of the untuned model on probes with changed punctuation; read from disk if it
        was measured before.
        """
        path = self.folder / READINGS / NOISE
        # Measured once for all calls on the same folder.
        noise = _noise_at(path)
        if noise is None:
            otherwise = self._read(self.model, self.probes.otherwise(), OTHERWISE, self.start)
            noise = noise_of(self.start, otherwise)
            write_json(noise, path, writer=False)
        return noise

    def drift(self, model: DualEncoder, name: str) -> Drift:
        """Drift of a model's results on the probes from those of the untuned model."""
        reading = self._read(model, self.probes, name, self.start)
        return drift_of(self.start, reading, groups=self.probes.groups)

    def _read(self, model: DualEncoder, probes: ProbeSet, name: str, start: Reading | None) -> Reading:
        reading = read_tower(model, probes, self.store, depth=self.depth, start=start, watch=self.watch)
        folder = self.folder / READINGS
        make_folder(folder, parents=True)
        # For inspection by users; nothing reads it again.
        path = folder / f"{run_folder_name(name)}.npz"
        with writing_to(path), new_file(path) as file:
            np.savez(file, vectors=reading.vectors, rows=reading.rows, scores=reading.scores)
        return reading


UNTUNED = "untuned"
"""Name of the untuned model's reading."""


def _noise_at(path: Path) -> dict[str, float] | None:
    """The noise measured by an earlier call; None if the file is missing, damaged, or of a version with other
    measures.
    """
    try:
        noise = TypeAdapter(dict[str, float]).validate_python(read_json(path, remedy="it is measured again"))
    except (DataError, ValidationError):
        return None
    return noise if noise.keys() == set(MEASURES) else None


def _outcome(after: TaskScores, before: TaskScores, seed: int, resamples: int, margin: Margin) -> TaskOutcome:
    decision = decide([after, before])
    drawing: dict[str, Any] = {"seed": seed, "resamples": resamples, "margin": margin}
    drawing["known"] = decision.known
    grids = []
    for tuned, start in zip(after.grids, before.grids, strict=True):
        grids.append(compare_grids(tuned, start, **drawing))
    # Units that decide: without those that a run trained on.
    after, before = decision.parts[0].scores
    changes = paired_changes(after.samples, before.samples, **drawing)
    trained_on = [overlap.said for overlap in after.trained_on("the run") if overlap.trained_queries]
    return TaskOutcome(
        task=after.task,
        kind=after.kind,
        unit=after.unit,
        units=len(after.units),
        changes=changes,
        languages=list(after.grids[0].rows) if after.grids else [],
        grids=grids,
        notes=[*after.notes, *after.cluster_notes, *trained_on],
    )
