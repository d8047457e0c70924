"""From scores of every unit to what can be said: levels with intervals, who is better than whom, grids, and the units to look at.

Every model is compared with one other on the main measure of each task: with the baseline, or where there is none with the best of the
task. All these comparisons are one family, over which Benjamini-Hochberg keeps the share of false findings at 5 %. Where the best was
chosen on the units that it is then tested on, each p-value first counts for all pairs of models of the task.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Real

from adiabat.core.errors import DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.evaluation.trained_queries import trained_on
from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.suite_result import Fact, Pairing, Score, SuiteGrid, SuiteModel, SuiteTask, UnitRow, equal_values
from adiabat.stats.language_grid_stats import compare_cells
from adiabat.stats.paired import changes_over_runs
from adiabat.stats.samples import Cells, Sample, TaskScores
from adiabat.stats.significance import benjamini_hochberg
from adiabat.stats.statistics import value_of

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
        """Scores of every run on a task."""
        return [run[task] for run in self.runs if task in run]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the scores of several models say; the parts of a `SuiteResult` that are made from them."""

    tasks: list[SuiteTask]
    scores: list[Score]
    pairings: list[Pairing]
    grids: list[SuiteGrid]
    units: list[UnitRow]
    facts: list[Fact]
    notes: list[str]


def findings_of(models: Sequence[Measured], *, baseline: str | None, seed: int, resamples: int, watch: Watch = SILENT) -> Findings:
    """Compare models on every task that they were measured on.

    Args:
        baseline: Name of the model that all others are compared with; None takes the best of each task.
    """
    found = Findings([], [], [], [], [], [], [])
    tasks = list(dict.fromkeys(name for model in models for run in model.runs for name in run))
    for number, task in enumerate(tasks):
        watch.progress(f"comparing on {task}", number, len(tasks))
        present = [model for model in models if model.on(task)]
        _require_same_units(task, present)
        found.tasks.append(_described(task, present))
        found.facts.extend(_facts(task, present))
        found.notes.extend(f"{task}: {one.said}" for one in _trained_on(task, present))
        found.scores.extend(_levels(task, present, seed=seed, resamples=resamples))
        found.units.extend(_units(task, present))
        present = [model for model in present if _is_proof(task, model)]
        if not present:
            continue
        against = _reference(task, present, baseline)
        others = [model for model in present if model is not against]
        found.pairings.extend(_pairings(task, others, against, seed=seed, resamples=resamples))
        choice = _choice(against.about.name, len(present), baseline)
        found.grids.extend(_grids(task, present, against, choice=choice, seed=seed, resamples=resamples))
    watch.progress("comparing", len(tasks), len(tasks))
    return replace(found, pairings=_corrected(found.pairings, baseline))


def _require_same_units(task: str, models: Sequence[Measured]) -> None:
    first = models[0].on(task)[0]
    faults = [
        f"{model.about.name} {fault}"
        for model in models
        for scores in model.on(task)
        if (fault := _unlike(scores, first) or _unlike_runs(scores, model.on(task)[0]))
    ]
    if faults:
        name = models[0].about.name
        raise DataError(
            f"{task} must be measured alike on the same units for all models as for {name}, got {several(faults)}; measure them anew"
        )


def _unlike(scores: TaskScores, first: TaskScores) -> str | None:
    """Why two cannot be compared unit by unit."""
    if _stored(scores.units) != _stored(first.units):
        lacking, more = set(first.units) - set(scores.units), set(scores.units) - set(first.units)
        return f"lacks {len(lacking):,} and has {len(more):,} others, of {len(first.units):,}"
    if scores.texts and first.texts and _stored(scores.texts) != _stored(first.texts):
        return "has other texts under the same ids"
    main, other = scores.samples[0], first.samples[0]
    if main.measure != other.measure:
        return f"is judged by {main.measure}, not by {other.measure}"
    if main.statistic != other.statistic or not _equal(main.reference, other.reference) or not _equal(main.groups, other.groups):
        return "has other judgements of the same units"
    if _grids_of(scores) != _grids_of(first):
        return f"has a grid of other languages: {_languages(scores)}, not {_languages(first)}"
    return None


def _stored(texts: Sequence[str]) -> list[bytes]:
    """Texts as files keep them: half a character is none there."""
    return [text.encode("utf-8", "replace") for text in texts]


def _unlike_runs(scores: TaskScores, first: TaskScores) -> str | None:
    """Why two runs of one model cannot be averaged."""
    if [one.key for one in scores.samples] != [one.key for one in first.samples]:
        return "has runs with unlike measures"
    return None


def _grids_of(scores: TaskScores) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """What is compared in which languages, by the similarity that carries the verdict: vectors of unit length have no other."""
    return [(one.comparison, one.rows, one.columns) for one in scores.cells if one.similarity == scores.samples[0].similarity]


def _languages(scores: TaskScores) -> str:
    return ", ".join(scores.cells[0].rows) if scores.cells else "none"


def _equal(one: Real[np.ndarray, " n"] | None, other: Real[np.ndarray, " m"] | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _described(task: str, models: Sequence[Measured]) -> SuiteTask:
    scores = models[0].on(task)[0]
    main = scores.samples[0]
    said = {model.about.name: list(dict.fromkeys(note for one in model.on(task) for note in one.notes)) for model in models}
    # A note that every model has is the task's.
    common = [note for note in scores.notes if all(note in notes for notes in said.values())]
    others = dict.fromkeys(note for notes in said.values() for note in notes if note not in common)
    own = [f"{', '.join(name for name, notes in said.items() if note in notes)}: {note}" for note in others]
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
        notes=[*common, *own],
    )


def _facts(task: str, models: Sequence[Measured]) -> Iterator[Fact]:
    """Further figures of each model, in the mean over its runs."""
    for model in models:
        runs = model.on(task)
        for name in dict.fromkeys(name for one in runs for name in one.facts):
            yield Fact(model.about.name, task, name, float(np.mean([one.facts.get(name, 0.0) for one in runs])))
    for found in _trained_on(task, models):
        counts = {"queries trained on": found.trained_queries, "relevant documents trained on": found.trained_relevant}
        yield from (Fact(found.model, task, name, float(count)) for name, count in counts.items() if count is not None)


def _is_proof(task: str, model: Measured) -> bool:
    """Whether no run of a model was trained on more than a few of the units."""
    return all(scores.is_proof for scores in model.on(task))


def _trained_on(task: str, models: Sequence[Measured]) -> list[TrainedOn]:
    """What the models of jobs were trained on, each count of a model once."""
    return list(dict.fromkeys(found for model in models for scores in model.on(task) for found in trained_on(model.about.name, scores)))


def _levels(task: str, models: Sequence[Measured], *, seed: int, resamples: int) -> Iterator[Score]:
    proof = {model.about.name: _is_proof(task, model) for model in models}
    for alike in _of_equal_runs(task, models):
        measures = [(model.about.name, runs) for model in alike for runs in zip(*(one.samples for one in model.on(task)), strict=True)]
        changes = changes_over_runs([runs for _, runs in measures], None, seed=seed, resamples=resamples)
        for (name, _), change in zip(measures, changes, strict=True):
            about = (change.measure, change.similarity, change.after, change.after_interval, change.lower_is_better)
            yield Score(task, name, *about, is_proof=proof[name])


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
    values = [sign * float(np.mean([value_of(sample) for sample in _main(task, model)])) for model in models]
    # Of equal models the first is meant.
    return next(model for model, value in zip(models, values, strict=True) if equal_values(value, max(values)))


def _pairings(task: str, models: Sequence[Measured], against: Measured, *, seed: int, resamples: int) -> Iterator[Pairing]:
    for alike in _of_equal_runs(task, models):
        after = [_main(task, model) for model in alike]
        # BM25 and vectors rank by similarities of their own; what is compared is where the relevant documents come.
        before = [[replace(one, similarity=runs[0].similarity) for one in _main(task, against)] for runs in after]
        changes = changes_over_runs(after, before, seed=seed, resamples=resamples)
        for model, change in zip(alike, changes, strict=True):
            yield Pairing(task, model.about.name, against.about.name, change, significant=False)


def _corrected(pairings: Sequence[Pairing], baseline: str | None) -> list[Pairing]:
    """Benjamini-Hochberg over all of them; a best model was chosen from the same units, so all pairs of a task count."""
    others = Counter(one.task for one in pairings)
    chosen = [_choice(one.against, others[one.task] + 1, baseline) for one in pairings]
    known = (1.0 if one.change.p is None else one.change.p for one in pairings)
    values = [min(1.0, weight * p) for weight, p in zip(chosen, known, strict=True)]
    holds = benjamini_hochberg(np.array(values, dtype=np.float64))
    return [replace(one, significant=bool(held) and one.change.verdict != "no evidence") for one, held in zip(pairings, holds, strict=True)]


def _choice(against: str, models: int, baseline: str | None) -> float:
    """For how many comparisons a p-value counts: k models make k (k - 1) / 2 pairs, of which the k - 1 with the best are looked at."""
    return 1.0 if against == baseline else models / 2


def _grids(task: str, models: Sequence[Measured], against: Measured, *, choice: float, seed: int, resamples: int) -> Iterator[SuiteGrid]:
    for model in models:
        for place, cells in enumerate(model.on(task)[0].cells):
            if cells.similarity != model.on(task)[0].samples[0].similarity:
                continue
            # Exchanging units alone is silent on seeds, so runs of several get values and no verdicts.
            several_runs = len(model.on(task)) > 1 or len(against.on(task)) > 1
            before = None if model is against or several_runs else replace(_mean_cells(task, against, place), similarity=cells.similarity)
            grid = compare_cells(_mean_cells(task, model, place), before, seed=seed, resamples=resamples, choice=choice)
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
    if len(models) < 2 or main.statistic != "mean" or main.pseudo_values:
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
