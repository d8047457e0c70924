"""The bench that every tuned tower of a sweep is put on: the same tasks, the same probes, the same untuned tower to be compared with."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import TypeAdapter, ValidationError

from adiabat.adiabatic.drift import MEASURES, OVERLAP_LOSS, Reading, drift_of
from adiabat.adiabatic.probe_readings import noise_of, read_tower
from adiabat.adiabatic.probes import ProbeSet
from adiabat.config.shared import EncoderSection
from adiabat.config.sweeps import SweepSettings
from adiabat.core.errors import DataError
from adiabat.core.files import read_json, write_json
from adiabat.core.progress import Watch
from adiabat.data.trained_texts import TrainedTexts
from adiabat.evaluation.measured_models import MeasuredModel
from adiabat.evaluation.score_files import SCORES, run_folder_name
from adiabat.evaluation.suite import Scoring
from adiabat.evaluation.trained_queries import trained_on, without_grid_verdicts, without_verdicts
from adiabat.models.towers import DualEncoder
from adiabat.results.sweep_result import Drift, TaskOutcome
from adiabat.stats.language_grid_stats import compare_grids
from adiabat.stats.paired import paired_changes
from adiabat.stats.samples import TaskScores
from adiabat.store.vector_store import Store

START = "untuned"
"""Folder of the scores of the tower that every run starts from."""

OTHERWISE = "untuned, written otherwise"
"""Name of what it finds for probes that are written otherwise."""

READINGS = "readings"
"""Folder of what towers found for the probes."""


NOISE = "noise.json"
"""Among them, what the untuned tower's differ by where probes are written otherwise."""


@dataclass(frozen=True)
class Bench:
    """Tasks and probes.

    Attributes:
        folder: Of the sweep.
        settings: Of the sweep.
        model: That every run starts from.
        scoring: Scores a model on every task.
        probes: Looked for in `store`; None measures no drift.
        store: Of the probes.
        watch: Told how far it is.
    """

    folder: Path
    settings: SweepSettings
    model: DualEncoder
    scoring: Scoring
    probes: ProbeSet | None
    store: Store
    watch: Watch

    @cached_property
    def start(self) -> dict[str, TaskScores]:
        """Scores of the untuned tower, by task."""
        return self._scores(self.model, START)

    @cached_property
    def start_reading(self) -> Reading | None:
        """What the untuned tower finds for the probes."""
        return None if self.probes is None else self._read(self.model, self.probes, START, None)

    @cached_property
    def noise(self) -> dict[str, float]:
        """Measure to the drift of the untuned tower on probes that are written otherwise; empty where there are no probes."""
        if self.probes is None:
            return {}
        kept = self.folder / READINGS / NOISE
        # A sweep that is done needs no reading again.
        if (found := _noise_at(kept)) is None:
            write_json(found := self._noise(self.probes), kept)
        return found

    def _noise(self, probes: ProbeSet) -> dict[str, float]:
        assert self.start_reading is not None
        return noise_of(self.start_reading, self._read(self.model, probes.otherwise(), OTHERWISE, self.start_reading))

    def outcomes(self, model: DualEncoder, name: str, trained: TrainedTexts | None = None) -> list[TaskOutcome]:
        """Measure a tuned tower on every task."""
        scores = self._scores(model, name, trained)
        drawing = {"seed": self.settings.run.seed, "resamples": self.settings.measure.resamples}
        found = []
        for number, (task, after) in enumerate(scores.items()):
            self.watch.progress(f"{name}: comparing {task}", number, len(scores))
            found.append(_outcome(after, self.start[task], **drawing))
        return found

    def forget(self, model: DualEncoder) -> None:
        """Remove the vectors of the tasks' corpora that a document tower made which no other run has."""
        own = model.fingerprint("document")
        if own != self.model.fingerprint("document"):
            self.scoring.corpora.forget(own)

    def drift(self, model: DualEncoder, name: str) -> Drift | None:
        """How far its answers on the probes are from those of the untuned tower.

        Returns:
            None where there are no probes.
        """
        if self.probes is None or self.start_reading is None:
            return None
        reading = self._read(model, self.probes, name, self.start_reading)
        return drift_of(self.start_reading, reading, groups=self.probes.groups)

    def _scores(self, model: DualEncoder, name: str, trained: TrainedTexts | None = None) -> dict[str, TaskScores]:
        subject = MeasuredModel(name, name, EncoderSection(), lambda *_: model, lambda _: trained)
        return self.scoring.run(subject, self.folder / SCORES / run_folder_name(name))

    def _read(self, model: DualEncoder, probes: ProbeSet, name: str, start: Reading | None) -> Reading:
        reading = read_tower(model, probes, self.store, depth=self.settings.probes.depth, start=start, watch=self.watch)
        folder = self.folder / READINGS
        folder.mkdir(parents=True, exist_ok=True)
        # For those who look closer; nothing is read from it here.
        np.savez(folder / f"{run_folder_name(name)}.npz", vectors=reading.vectors, rows=reading.rows, scores=reading.scores)
        return reading


def _noise_at(path: Path) -> dict[str, float] | None:
    """What is kept; None where nothing whole is."""
    try:
        found = TypeAdapter(dict[str, float]).validate_python(read_json(path, remedy="it is measured again"))
    except (DataError, ValidationError):
        return None
    return found if found.keys() <= set(MEASURES) and OVERLAP_LOSS in found else None


def _outcome(after: TaskScores, before: TaskScores, *, seed: int, resamples: int) -> TaskOutcome:
    pairs = zip(after.grids, before.grids, strict=True)
    grids = [compare_grids(now, was, seed=seed, resamples=resamples) for now, was in pairs]
    changes = paired_changes(after.samples, before.samples, seed=seed, resamples=resamples)
    if not after.is_proof:
        changes, grids = without_verdicts(changes), without_grid_verdicts(grids)
    return TaskOutcome(
        task=after.task,
        kind=after.kind,
        unit=after.unit,
        units=len(after.units),
        changes=changes,
        languages=list(after.grids[0].rows) if after.grids else [],
        grids=grids,
        notes=[*after.notes, *(found.said for found in trained_on("the run", after) if found.trained_queries)],
    )
