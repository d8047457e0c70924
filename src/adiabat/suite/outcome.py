"""From scores of every unit to what can be said: levels with intervals, who is better than whom, grids, and the units to look at.

Every model is compared with one other on the main measure of each task: with the baseline, or where there is none with the best of the
task. All these comparisons are one family, over which Benjamini-Hochberg keeps the share of false findings at 5 %.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from adiabat.errors import DataError, several
from adiabat.measure.cells import compare_cells
from adiabat.measure.paired import changes_over_runs
from adiabat.measure.results import Change
from adiabat.measure.samples import Cells, Sample, TaskScores
from adiabat.measure.significance import benjamini_hochberg
from adiabat.measure.statistics import value_of
from adiabat.measure.suite_results import Pairing, Score, SuiteGrid, SuiteModel, SuiteTask, UnitRow

UNITS_SHOWN = 40
"""Of each task: those on which models differ most."""

TEXT_SHOWN = 500
"""Characters of a unit's text that go into a result file."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One model with the scores of its runs, in which the seed alone differs.

    Attributes:
        about: The model.
        runs: For each run, its scores by the name of the task.
    """

    about: SuiteModel
    runs: Sequence[Mapping[str, TaskScores]]

    def on(self, task: str) -> list[TaskScores]:
        """Scores of every run on a task.

        Args:
            task: Its name.

        Returns:
            One for each run; none where the model was not measured on it.
        """
        return [run[task] for run in self.runs if task in run]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the scores of several models say; the parts of a `SuiteResult` that are made from them."""

    tasks: list[SuiteTask]
    scores: list[Score]
    pairings: list[Pairing]
    grids: list[SuiteGrid]
    units: list[UnitRow]


def findings_of(models: Sequence[Measured], *, baseline: str | None, seed: int, resamples: int) -> Findings:
    """Compare models on every task that they were measured on.

    Args:
        models: At least one.
        baseline: Name of the model that all others are compared with; None takes the best of each task.
        seed: Of resamples and sign flips.
        resamples: How many, > 0.

    Returns:
        The findings.

    Raises:
        DataError: If models were measured on different units of a task, or by different measures.
    """
    found = Findings([], [], [], [], [])
    for task in dict.fromkeys(name for model in models for run in model.runs for name in run):
        present = [model for model in models if model.on(task)]
        _require_same_units(task, present)
        found.tasks.append(_described(present[0].on(task)[0], [model.on(task) for model in present]))
        found.scores.extend(_levels(task, present, seed=seed, resamples=resamples))
        against = _reference(task, present, baseline)
        others = [model for model in present if model is not against]
        found.pairings.extend(_pairings(task, others, against, seed=seed, resamples=resamples))
        found.grids.extend(_grids(task, present, against, seed=seed, resamples=resamples))
        found.units.extend(_units(task, present))
    return replace(found, pairings=_corrected(found.pairings))


def _require_same_units(task: str, models: Sequence[Measured]) -> None:
    first = models[0].on(task)[0]
    faults = []
    for model in models:
        for scores in model.on(task):
            if list(scores.units) != list(first.units):
                lacking, more = set(first.units) - set(scores.units), set(scores.units) - set(first.units)
                faults.append(f"{model.about.name} lacks {len(lacking):,} and has {len(more):,} others, of {len(first.units):,}")
            elif scores.samples[0].measure != first.samples[0].measure:
                faults.append(f"{model.about.name} is judged by {scores.samples[0].measure}, not by {first.samples[0].measure}")
    if faults:
        name = models[0].about.name
        raise DataError(f"{task} must be measured on the same units for all models as for {name}, got {several(faults)}; measure them anew")


def _described(scores: TaskScores, every: Sequence[Sequence[TaskScores]]) -> SuiteTask:
    main = scores.samples[0]
    # A note that every model has is the task's.
    common = [note for note in scores.notes if all(note in one.notes for runs in every for one in runs)]
    return SuiteTask(
        name=scores.task,
        kind=scores.kind,
        unit=scores.unit,
        units=len(scores.units),
        documents=scores.documents,
        measure=main.measure,
        similarity=main.similarity,
        lower_is_better=main.lower_is_better,
        languages=list(scores.cells[0].rows) if scores.cells else [],
        notes=common,
    )


def _levels(task: str, models: Sequence[Measured], *, seed: int, resamples: int) -> Iterator[Score]:
    for alike in _of_equal_runs(task, models):
        measures = [(model.about.name, runs) for model in alike for runs in zip(*(one.samples for one in model.on(task)), strict=True)]
        changes = changes_over_runs([runs for _, runs in measures], None, seed=seed, resamples=resamples)
        for (name, _), change in zip(measures, changes, strict=True):
            yield Score(task, name, change.measure, change.similarity, change.after, change.after_interval, change.lower_is_better)


def _of_equal_runs(task: str, models: Sequence[Measured]) -> list[list[Measured]]:
    """Models that may share their resamples, for drawing them takes most of the time: those of as many runs as each other."""
    alike: dict[int, list[Measured]] = {}
    for model in models:
        alike.setdefault(len(model.on(task)), []).append(model)
    return list(alike.values())


def _main(task: str, model: Measured) -> list[Sample]:
    """The main measure of each run."""
    return [scores.samples[0] for scores in model.on(task)]


def _reference(task: str, models: Sequence[Measured], baseline: str | None) -> Measured:
    """Whom the others are compared with."""
    if named := next((model for model in models if model.about.name == baseline), None):
        return named
    sign = -1 if _main(task, models[0])[0].lower_is_better else 1
    return max(models, key=lambda model: sign * float(np.mean([value_of(sample) for sample in _main(task, model)])))


def _pairings(task: str, models: Sequence[Measured], against: Measured, *, seed: int, resamples: int) -> Iterator[Pairing]:
    for alike in _of_equal_runs(task, models):
        after = [_main(task, model) for model in alike]
        # BM25 and vectors rank by similarities of their own; what is compared is where the relevant documents come.
        before = [[replace(one, similarity=runs[0].similarity) for one in _main(task, against)] for runs in after]
        changes = changes_over_runs(after, before, seed=seed, resamples=resamples)
        for model, change in zip(alike, changes, strict=True):
            yield Pairing(task, model.about.name, against.about.name, change, significant=False)


def _corrected(pairings: Sequence[Pairing]) -> list[Pairing]:
    """Benjamini-Hochberg over all of them."""
    holds = benjamini_hochberg(np.array([_p(one.change) for one in pairings], dtype=np.float64))
    return [replace(one, significant=bool(held) and one.change.verdict != "no evidence") for one, held in zip(pairings, holds, strict=True)]


def _p(change: Change) -> float:
    return 1.0 if change.p is None else change.p


def _grids(task: str, models: Sequence[Measured], against: Measured, *, seed: int, resamples: int) -> Iterator[SuiteGrid]:
    for model in models:
        for place, cells in enumerate(model.on(task)[0].cells):
            if cells.similarity != model.on(task)[0].samples[0].similarity:
                continue
            before = None if model is against else _mean_cells(task, against, place)
            grid = compare_cells(_mean_cells(task, model, place), before, seed=seed, resamples=resamples)
            rows, columns = list(cells.rows), list(cells.columns)
            name = None if before is None else against.about.name
            yield SuiteGrid(task, model.about.name, name, rows, columns, cells.lower_is_better, grid)


def _mean_cells(task: str, model: Measured, place: int) -> Cells:
    """One comparison of a grid, in the mean over runs."""
    every = [scores.cells[place] for scores in model.on(task)]
    if len(every) == 1:
        return every[0]
    values = np.stack([cells.values for cells in every]).mean(axis=0, dtype=np.float64).astype(np.float32)
    # Errors are those of one run.
    return replace(every[0], values=values, errors=None, total=0)


def _units(task: str, models: Sequence[Measured]) -> Iterator[UnitRow]:
    """Where models differ most; only where a unit has a value of its own."""
    main = _main(task, models[0])[0]
    if len(models) < 2 or main.statistic != "mean":
        return
    scores = models[0].on(task)[0]
    values = np.stack([_unit_values(task, model) for model in models])
    spread = np.where(np.isfinite(values).all(axis=0), np.ptp(values, axis=0), -1.0)
    names = [model.about.name for model in models]
    for unit in np.argsort(-spread, kind="stable")[:UNITS_SHOWN].tolist():
        if spread[unit] <= 0:
            return
        text = scores.texts[unit][:TEXT_SHOWN] if scores.texts else ""
        yield UnitRow(task, scores.units[unit], text, dict(zip(names, values[:, unit].tolist(), strict=True)))


def _unit_values(task: str, model: Measured) -> Float[np.ndarray, " n"]:
    """Value of each unit in the mean over runs; NaN for a unit that has no weight."""
    every = []
    for sample in _main(task, model):
        weight = np.ones(sample.values.shape) if sample.reference is None else sample.reference
        every.append(np.divide(sample.values, weight, out=np.full(sample.values.shape, np.nan), where=weight > 0))
    return np.asarray(np.mean(every, axis=0))
