"""Comparison of models by the scores of every unit: levels with intervals, pairings with verdicts, grids, and the units that differ most.

Every model is compared with one other on the main measure of each task: with the baseline, or without one with the best of the task. All
comparisons are one family, in which Benjamini-Hochberg keeps the share of false findings at 5 %. Where the best was chosen on the units
that test it, each p-value first counts for all pairs of models of the task.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Real

from adiabat.config.tasks import CompareSettings, SuiteSettings
from adiabat.core.errors import DataError, several
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now
from adiabat.evaluation.suite_analysis import analysed
from adiabat.evaluation.trained_queries import trained_on
from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.suite_result import Fact, Pairing, Score, SuiteGrid, SuiteModel, SuiteResult, SuiteTask, UnitRow, equal_values
from adiabat.stats.language_grid_stats import compare_grids
from adiabat.stats.paired import changes_over_runs
from adiabat.stats.samples import GridSample, Sample, TaskScores
from adiabat.stats.significance import benjamini_hochberg
from adiabat.stats.statistics import value_of

UNITS_SHOWN = 40
"""Units shown of each task: those on which models differ most."""

TEXT_SHOWN = 500
"""Characters of a unit's text in a result file."""


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Scores of one model in its runs, which differ in their seed alone.

    Attributes:
        model: The model.
        runs: For each run, its scores by the name of the task.
    """

    model: SuiteModel
    runs: Sequence[Mapping[str, TaskScores]]

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    def scores_of(self, task: str) -> list[TaskScores]:
        """Scores of every run on a task."""
        return [run[task] for run in self.runs if task in run]


@dataclass(frozen=True, slots=True)
class Findings:
    """Parts of a `SuiteResult` that are computed from scores."""

    tasks: list[SuiteTask]
    scores: list[Score]
    pairings: list[Pairing]
    grids: list[SuiteGrid]
    units: list[UnitRow]
    facts: list[Fact]
    notes: list[str]


def compare_models(
    models: Sequence[ModelScores],
    settings: SuiteSettings | CompareSettings,
    *,
    title: str,
    command: str,
    baseline: str | None,
    versions: Mapping[str, str],
    seconds: float = 0.0,
    notes: Sequence[str],
    inputs: Mapping[str, Any],
    watch: Watch = SILENT,
) -> SuiteResult:
    """Compare models on all of their tasks; `seconds` is the time of scoring."""
    started, seed, resamples = time.monotonic(), settings.run.seed, settings.measure.resamples
    findings = findings_of(models, baseline=baseline, seed=seed, resamples=resamples, watch=watch)
    result = SuiteResult(
        title=title,
        command=command,
        created=now(),
        seconds=seconds + time.monotonic() - started,
        seed=seed,
        versions=dict(versions),
        tasks=findings.tasks,
        models=[model.model for model in models],
        scores=findings.scores,
        pairings=findings.pairings,
        baseline=baseline,
        resamples=resamples,
        grids=findings.grids,
        units=findings.units,
        facts=findings.facts,
        notes=[*notes, *findings.notes],
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=dict(inputs),
    )
    return analysed(result)


def findings_of(models: Sequence[ModelScores], *, baseline: str | None, seed: int, resamples: int, watch: Watch = SILENT) -> Findings:
    """Compare models on every task with the model named `baseline`, or with the best of the task."""
    findings = Findings([], [], [], [], [], [], [])
    tasks = list(dict.fromkeys(name for model in models for run in model.runs for name in run))
    for number, task in enumerate(tasks):
        watch.progress(f"comparing on {task}", number, len(tasks))
        present = [model for model in models if model.scores_of(task)]
        _require_same_units(task, present)
        findings.tasks.append(_described(task, present))
        findings.facts.extend(_facts(task, present))
        findings.notes.extend(f"{task}: {overlap.said}" for overlap in _trained_on(task, present))
        findings.scores.extend(_levels(task, present, seed=seed, resamples=resamples))
        findings.units.extend(_units(task, present))
        present = [model for model in present if _is_proof(task, model)]
        if not present:
            continue
        against = _reference(task, present, baseline)
        others = [model for model in present if model is not against]
        findings.pairings.extend(_pairings(task, others, against, seed=seed, resamples=resamples))
        choice = _choice(against.name, len(present), baseline)
        findings.grids.extend(_grids(task, present, against, choice=choice, seed=seed, resamples=resamples))
    watch.progress("comparing", len(tasks), len(tasks))
    return replace(findings, pairings=_corrected(findings.pairings, baseline))


def _require_same_units(task: str, models: Sequence[ModelScores]) -> None:
    first = models[0].scores_of(task)[0]
    faults = [
        f"{model.name} {fault}"
        for model in models
        for scores in model.scores_of(task)
        if (fault := _unlike(scores, first) or _unlike_runs(scores, model.scores_of(task)[0]))
    ]
    if faults:
        name = models[0].name
        raise DataError(
            f"{task} must be scored on the same units by the same measure for all models as for {name}, got {several(faults)}; "
            "score them again"
        )


def _unlike(scores: TaskScores, first: TaskScores) -> str | None:
    """Why two scores cannot be compared unit by unit."""
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
    """Texts as files hold them, half a surrogate pair as "?"."""
    return [text.encode("utf-8", "replace") for text in texts]


def _unlike_runs(scores: TaskScores, first: TaskScores) -> str | None:
    """Why two runs of one model cannot be averaged."""
    if [sample.key for sample in scores.samples] != [sample.key for sample in first.samples]:
        return "has runs with unlike measures"
    return None


def _grids_of(scores: TaskScores) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """Comparisons and languages of the grids by the main similarity: vectors of unit length have no other."""
    return [(grid.comparison, grid.rows, grid.columns) for grid in scores.grids if grid.similarity == scores.samples[0].similarity]


def _languages(scores: TaskScores) -> str:
    return ", ".join(scores.grids[0].rows) if scores.grids else "none"


def _equal(values: Real[np.ndarray, " n"] | None, reference: Real[np.ndarray, " m"] | None) -> bool:
    return values is reference or (values is not None and reference is not None and np.array_equal(values, reference))


def _described(task: str, models: Sequence[ModelScores]) -> SuiteTask:
    scores = models[0].scores_of(task)[0]
    main = scores.samples[0]
    notes_of = {model.name: list(dict.fromkeys(note for scores in model.scores_of(task) for note in scores.notes)) for model in models}
    # A note of every model is a note of the task.
    common = [note for note in scores.notes if all(note in notes for notes in notes_of.values())]
    others = dict.fromkeys(note for notes in notes_of.values() for note in notes if note not in common)
    specific = [f"{', '.join(name for name, notes in notes_of.items() if note in notes)}: {note}" for note in others]
    return SuiteTask(
        name=scores.task,
        kind=scores.kind,
        unit=scores.unit,
        units=len(scores.units),
        documents=scores.documents,
        measure=main.measure,
        similarity=main.similarity,
        lower_is_better=main.lower_is_better,
        languages=list(scores.grids[0].rows) if scores.grids else [],
        notes=[*common, *specific],
    )


def _facts(task: str, models: Sequence[ModelScores]) -> Iterator[Fact]:
    """Further figures of each model, averaged over its runs."""
    for model in models:
        runs = model.scores_of(task)
        for name in dict.fromkeys(name for scores in runs for name in scores.facts):
            yield Fact(model.name, task, name, float(np.mean([scores.facts.get(name, 0.0) for scores in runs])))
    for overlap in _trained_on(task, models):
        counts = {"queries trained on": overlap.trained_queries, "relevant documents trained on": overlap.trained_relevant}
        yield from (Fact(overlap.model, task, name, float(count)) for name, count in counts.items() if count is not None)


def _is_proof(task: str, model: ModelScores) -> bool:
    """Whether no run of a model trained on more than a few of the units."""
    return all(scores.is_proof for scores in model.scores_of(task))


def _trained_on(task: str, models: Sequence[ModelScores]) -> list[TrainedOn]:
    """Training data of the models, each record once."""
    return list(
        dict.fromkeys(overlap for model in models for scores in model.scores_of(task) for overlap in trained_on(model.name, scores))
    )


def _levels(task: str, models: Sequence[ModelScores], *, seed: int, resamples: int) -> Iterator[Score]:
    proof = {model.name: _is_proof(task, model) for model in models}
    for group in _of_equal_runs(task, models):
        measures = [
            (model.name, runs)
            for model in group
            for runs in zip(*(run_scores.samples for run_scores in model.scores_of(task)), strict=True)
        ]
        changes = changes_over_runs([runs for _, runs in measures], None, seed=seed, resamples=resamples)
        for (name, _), change in zip(measures, changes, strict=True):
            about = (change.measure, change.similarity, change.after, change.after_interval, change.lower_is_better)
            yield Score(task, name, *about, is_proof=proof[name])


def _of_equal_runs(task: str, models: Sequence[ModelScores]) -> list[list[ModelScores]]:
    """Models by their number of runs: those of equal numbers share resamples, which take most of the time."""
    by_runs: dict[int, list[ModelScores]] = {}
    for model in models:
        by_runs.setdefault(len(model.scores_of(task)), []).append(model)
    return list(by_runs.values())


def _main(task: str, model: ModelScores) -> list[Sample]:
    """Main measure of each run."""
    return [scores.samples[0] for scores in model.scores_of(task)]


def _reference(task: str, models: Sequence[ModelScores], baseline: str | None) -> ModelScores:
    """The model that others are compared with."""
    if baseline_model := next((model for model in models if model.name == baseline), None):
        return baseline_model
    sign = -1 if _main(task, models[0])[0].lower_is_better else 1
    values = [sign * float(np.mean([value_of(sample) for sample in _main(task, model)])) for model in models]
    # The first of equal models.
    return next(model for model, value in zip(models, values, strict=True) if equal_values(value, max(values)))


def _pairings(task: str, models: Sequence[ModelScores], against: ModelScores, *, seed: int, resamples: int) -> Iterator[Pairing]:
    for group in _of_equal_runs(task, models):
        after = [_main(task, model) for model in group]
        # BM25 and vectors rank by different similarities; the comparison is of ranks.
        before = [[replace(sample, similarity=runs[0].similarity) for sample in _main(task, against)] for runs in after]
        changes = changes_over_runs(after, before, seed=seed, resamples=resamples)
        for model, change in zip(group, changes, strict=True):
            yield Pairing(task, model.name, against.name, change, significant=False)


def _corrected(pairings: Sequence[Pairing], baseline: str | None) -> list[Pairing]:
    """Benjamini-Hochberg over all pairings; where the best model was chosen on the same units, all pairs of a task count."""
    others = Counter(pairing.task for pairing in pairings)
    chosen = [_choice(pairing.against, others[pairing.task] + 1, baseline) for pairing in pairings]
    known = (1.0 if pairing.change.p is None else pairing.change.p for pairing in pairings)
    values = [min(1.0, weight * p) for weight, p in zip(chosen, known, strict=True)]
    holds = benjamini_hochberg(np.array(values, dtype=np.float64))
    return [
        replace(pairing, significant=bool(rejected) and pairing.change.verdict != "no evidence")
        for pairing, rejected in zip(pairings, holds, strict=True)
    ]


def _choice(against: str, models: int, baseline: str | None) -> float:
    """Number of comparisons that a p-value counts for: k models make k (k - 1) / 2 pairs, of which the k - 1 with the best are tested."""
    return 1.0 if against == baseline else models / 2


def _grids(
    task: str, models: Sequence[ModelScores], against: ModelScores, *, choice: float, seed: int, resamples: int
) -> Iterator[SuiteGrid]:
    for model in models:
        for number, grid_sample in enumerate(model.scores_of(task)[0].grids):
            if grid_sample.similarity != model.scores_of(task)[0].samples[0].similarity:
                continue
            # Exchanges of units ignore seeds, so models of several runs get values and no verdicts.
            several_runs = len(model.scores_of(task)) > 1 or len(against.scores_of(task)) > 1
            before = (
                None if model is against or several_runs else replace(_mean_cells(task, against, number), similarity=grid_sample.similarity)
            )
            grid = compare_grids(_mean_cells(task, model, number), before, seed=seed, resamples=resamples, choice=choice)
            rows, columns = list(grid_sample.rows), list(grid_sample.columns)
            name = None if before is None else against.name
            yield SuiteGrid(task, model.name, name, rows, columns, grid_sample.lower_is_better, grid)


def _mean_cells(task: str, model: ModelScores, number: int) -> GridSample:
    """One comparison of a grid, averaged over runs."""
    grids = [scores.grids[number] for scores in model.scores_of(task)]
    if len(grids) == 1:
        return grids[0]
    values = np.stack([grid.values for grid in grids]).mean(axis=0, dtype=np.float64).astype(np.float32)
    # Error counts belong to a single run.
    return replace(grids[0], values=values, errors=None, total=0)


def _units(task: str, models: Sequence[ModelScores]) -> Iterator[UnitRow]:
    """Units on which models differ most, where units have values of their own."""
    main = _main(task, models[0])[0]
    if len(models) < 2 or main.statistic != "mean" or main.pseudo_values:
        return
    scores = models[0].scores_of(task)[0]
    values = np.stack([_unit_values(task, model) for model in models])
    spread = np.where(np.isfinite(values).all(axis=0), np.ptp(values, axis=0), -1.0)
    names = [model.name for model in models]
    for unit in np.argsort(-spread, kind="stable")[:UNITS_SHOWN].tolist():
        if spread[unit] <= 0:
            return
        text = scores.texts[unit][:TEXT_SHOWN] if scores.texts else ""
        yield UnitRow(task, scores.units[unit], text, dict(zip(names, values[:, unit].tolist(), strict=True)))


def _unit_values(task: str, model: ModelScores) -> Float[np.ndarray, " n"]:
    """Value of each unit, averaged over runs; NaN for a unit without weight."""
    run_values = []
    for sample in _main(task, model):
        weight = np.ones(sample.values.shape) if sample.reference is None else sample.reference
        run_values.append(np.divide(sample.values, weight, out=np.full(sample.values.shape, np.nan), where=weight > 0))
    return np.asarray(np.mean(run_values, axis=0))
