"""Comparison of models by the scores of every unit: levels, pairings, grids, the units that differ most, and
the analysis over tasks.

Every model is compared with one other on the main measure of each task: with the baseline, or without one
with the best of the task. All comparisons are one family, in which Benjamini-Hochberg keeps the share of
false findings at 5 %. Where the best was chosen on the units that test it, each p-value first counts for all
pairs of models of the task. Comparisons are judged once all p-values are known.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from adiabat.config.tasks import CompareSettings, SuiteSettings
from adiabat.core.errors import DataError, several
from adiabat.core.margin import Margin
from adiabat.core.progress import SILENT, Watch
from adiabat.core.provenance import now
from adiabat.core.text import numbered
from adiabat.evaluation.decisive_queries import decide
from adiabat.evaluation.verdicts import grid_over_runs, require_margin_below
from adiabat.results.evaluation_result import TrainedOn
from adiabat.results.suite_result import (
    Fact,
    KindMean,
    ModelStanding,
    Pairing,
    Score,
    SuiteAnalysis,
    SuiteGrid,
    SuiteModel,
    SuiteResult,
    SuiteTask,
    TaskRanking,
    UnitRow,
    by_kind,
    equal_values,
)
from adiabat.results.verdict import WORDS, Reason
from adiabat.stats.judgement import VOID
from adiabat.stats.paired import Finding, changes_over_runs, findings
from adiabat.stats.samples import Sample, TaskScores
from adiabat.stats.significance import benjamini_hochberg
from adiabat.stats.statistics import value_of

UNITS_SHOWN = 40
"""Units shown of each task: those on which models differ most."""

TEXT_SHOWN = 500
"""Characters of a unit's text in a result file."""

SuiteT = TypeVar("SuiteT", bound=SuiteResult)


@dataclass(frozen=True, slots=True)
class ModelScores:
    """Scores of one model by the name of the task, for each of its runs, which differ only in their seed.

    Attributes:
        states: What decides the scores of each run, such as a digest of its weights; empty if that is
            unknown.
        run_differences: Sentences on runs that differ in more than the seed.
    """

    model: SuiteModel
    runs: Sequence[Mapping[str, TaskScores]]
    states: Sequence[str] = ()
    run_differences: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    def on(self, task: str) -> "_Measured | None":
        """The model on a task; None if it did not do it."""
        runs = [run[task] for run in self.runs if task in run]
        return _Measured(self.name, runs, self.states, self.known) if runs else None

    @property
    def known(self) -> list[Reason]:
        """What is known of its runs."""
        known = []
        if self.run_differences:
            known.append(Reason.RUNS_DIFFER)
        if len(set(self.states)) < len(self.states):
            known.append(Reason.EQUAL_RUNS)
        return known


@dataclass(frozen=True, slots=True)
class _Measured:
    """A model's scores on one task, run by run, with what is known of the runs."""

    name: str
    runs: Sequence[TaskScores]
    states: Sequence[str] = ()
    known: Sequence[Reason] = ()

    @property
    def main(self) -> list[Sample]:
        """Main measure of each run."""
        return [scores.samples[0] for scores in self.runs]

    @property
    def is_proof(self) -> bool:
        """Whether no run trained on more than a few of the units."""
        return all(scores.is_proof for scores in self.runs)

    @property
    def trained_on(self) -> list[TrainedOn]:
        """Training data of the runs, each record once."""
        overlaps = dict[TrainedOn, None]()
        for scores in self.runs:
            overlaps |= dict.fromkeys(scores.trained_on(self.name))
        return list(overlaps)

    def is_same_as(self, other: "_Measured") -> bool:
        """Whether all runs of both are known to be one model, with the same vectors of documents."""
        if not (self.states and other.states) or len({*self.states, *other.states}) > 1:
            return False
        values = [sample.values for sample in (*self.main, *other.main)]
        return all(np.array_equal(values[0], each) for each in values)


@dataclass(frozen=True, slots=True)
class _Paired:
    """A model measured beside another on a task, before it is judged.

    Attributes:
        weight: Number of comparisons that the p-value counts for.
    """

    task: str
    contest: "_Contest"
    finding: Finding
    weight: float

    @property
    def p_value(self) -> float:
        """The p-value for all comparisons that it counts for."""
        p = self.finding.change.p
        return 1.0 if p is None else min(1.0, self.weight * p)

    def judged(self, *, holds: bool) -> Pairing:
        """The comparison with its verdict."""
        change = self.finding.judged(self.contest.known, holds=holds)
        return Pairing(self.task, self.contest.model.name, self.contest.against.name, change)


@dataclass(frozen=True, slots=True)
class _Contest:
    """A model beside another, on the units of a task that decide between the two."""

    model: _Measured
    against: _Measured
    known: Sequence[Reason]
    notes: Sequence[str]

    @classmethod
    def of(cls, model: _Measured, against: _Measured) -> "_Contest":
        """Leave out what one of both was trained on."""
        decision = decide([*model.runs, *against.runs])
        known = [*decision.known, *model.known, *against.known]
        if model.is_same_as(against):
            known.append(Reason.ONE_MODEL)
        scores, runs = decision.parts[0].scores, len(model.runs)
        model = replace(model, runs=scores[:runs])
        against = replace(against, runs=scores[runs:])
        return cls(model, against, known, decision.notes())

    @property
    def is_tested(self) -> bool:
        """Whether it may have a verdict, and so belongs to the family of all comparisons."""
        return not set(self.known) & set(VOID)

    @property
    def before(self) -> list[Sample]:
        """Main measure of the other, as if it were by the same similarity: BM25's ranks are compared too."""
        similarity = self.model.main[0].similarity
        return [replace(sample, similarity=similarity) for sample in self.against.main]


def compare_models(
    models: Sequence[ModelScores],
    settings: SuiteSettings | CompareSettings,
    *,
    title: str,
    command: str,
    baseline: str | None,
    versions: Mapping[str, str],
    seconds: float = 0.0,
    notes: Sequence[str] = (),
    inputs: Mapping[str, Any],
    watch: Watch = SILENT,
) -> SuiteResult:
    """Compare models on every task with the model named `baseline`, or with the best of the task; `seconds`
    is the time of scoring.
    """
    started = time.monotonic()
    measured = SuiteResult(
        title=title,
        command=command,
        created=now(),
        seconds=seconds,
        seed=settings.run.seed,
        versions=dict(versions),
        tasks=[],
        models=[model.model for model in models],
        scores=[],
        pairings=[],
        baseline=baseline,
        resamples=settings.measure.resamples,
        notes=list(notes),
        settings=settings.recorded(),
        inputs=dict(inputs),
    )
    result = with_findings(measured, models, settings.measure.loss_margin(), watch)
    tasks = [task.name for task in result.tasks]
    result.notes.extend(_apart(models))
    result.notes.extend(_fewer_runs(models, tasks))
    return replace(result, seconds=seconds + time.monotonic() - started)


def with_findings(
    result: SuiteT, models: Sequence[ModelScores], margin: Margin, watch: Watch = SILENT
) -> SuiteT:
    """A result that lists these models, with the comparison of them on every task."""
    # In the order in which models did them.
    tasks = dict[str, None]()
    for model in models:
        for run in model.runs:
            tasks |= dict.fromkeys(run)
    comparison = _Comparison(result, margin)
    for number, task in enumerate(tasks):
        watch.progress(f"comparing on {task}", number, len(tasks))
        measured = [model.on(task) for model in models]
        comparison.add(task, [each for each in measured if each is not None])
    watch.progress("comparing", len(tasks), len(tasks))
    for model in models:
        result.notes.extend(model.run_differences)
    return analysed(replace(result, pairings=comparison.judged()))


def _apart(models: Sequence[ModelScores]) -> Iterator[str]:
    """A sentence on each model that is known to have trained on nothing of some tasks."""
    for model in models:
        overlaps: dict[str, list[TrainedOn]] = {}
        for run in model.runs:
            for scores in run.values():
                overlaps.setdefault(scores.task, []).extend(scores.trained_on(model.name))
        apart = []
        for task, of_runs in overlaps.items():
            if of_runs and all(overlap.is_apart for overlap in of_runs):
                apart.append(task)
        if apart:
            yield (
                f"{model.name} was trained or validated on none of the queries and "
                f"relevant documents of {', '.join(apart)}"
            )


def _fewer_runs(models: Sequence[ModelScores], tasks: Sequence[str]) -> Iterator[str]:
    """A sentence on each task on which a model lacks the scores of some of its runs."""
    for model in models:
        for task in tasks:
            count = sum(task in run for run in model.runs)
            if 0 < count < len(model.runs):
                yield f"{task}: {model.name} has scores of only {count} of its {len(model.runs)} runs"


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A result to which tasks are added, and the comparisons that are judged when all are known."""

    result: SuiteResult
    margin: Margin
    paired: list[_Paired] = field(default_factory=list)

    def add(self, task: str, models: Sequence[_Measured]) -> None:
        """Add the findings on one task."""
        result = self.result
        _require_same_units(task, models)
        result.tasks.append(_described(models))
        result.facts.extend(_facts(task, models))
        result.scores.extend(_levels(task, models, seed=result.seed, resamples=result.resamples))
        result.units.extend(_units(task, models))
        ranked = [model for model in models if model.is_proof]
        against = _reference(ranked or models, models, result.baseline)
        contests = [_Contest.of(model, against) for model in models if model is not against]
        weight = 1.0
        if against.name != result.baseline:
            # k models make k (k - 1) / 2 pairs, of which the k - 1 with the best are tested: k / 2 each.
            tested = sum(contest.is_tested for contest in contests)
            weight = max(1.0, (tested + 1) / 2)
        self._pair(task, contests, weight)
        result.grids.extend(self._grids(task, _Contest(against, against, (), ()), None, weight))
        for contest in contests:
            result.grids.extend(self._grids(task, contest, against.name, weight))
        void = [contest.model.name for contest in contests if Reason.TRAINED_ON in contest.known]
        notes = list(_overlap_notes(models, void))
        for contest in contests:
            notes += [f"{contest.model.name} beside {against.name}: {note}" for note in contest.notes]
        result.notes.extend(f"{task}: {note}" for note in notes)

    def judged(self) -> list[Pairing]:
        """All comparisons with their verdicts: Benjamini-Hochberg over those that are tested."""
        tested = [pair.contest.is_tested for pair in self.paired]
        values = np.array([pair.p_value for pair in self.paired], dtype=np.float64)
        holds = np.zeros(values.size, dtype=np.bool_)
        holds[tested] = benjamini_hochberg(values[tested])
        decided = zip(self.paired, holds.tolist(), strict=True)
        return [pair.judged(holds=holds_one) for pair, holds_one in decided]

    def _pair(self, task: str, contests: Sequence[_Contest], weight: float) -> None:
        # Models of equally many runs share resamples, which take most of the time.
        for runs in dict.fromkeys(len(contest.model.runs) for contest in contests):
            group = [contest for contest in contests if len(contest.model.runs) == runs]
            found = findings(
                [contest.model.main for contest in group],
                [contest.before for contest in group],
                seed=self.result.seed,
                resamples=self.result.resamples,
                margin=self.margin,
            )
            for contest, finding in zip(group, found, strict=True):
                require_margin_below(self.margin, finding.change, task)
                self.paired.append(_Paired(task, contest, finding, weight))

    def _grids(self, task: str, contest: _Contest, against: str | None, choice: float) -> Iterator[SuiteGrid]:
        model = contest.model
        for number, first in enumerate(model.runs[0].grids):
            if first.similarity != model.main[0].similarity:
                continue
            runs = [scores.grids[number] for scores in model.runs]
            before = None
            if against:
                others = [scores.grids[number] for scores in contest.against.runs]
                before = [replace(grid, similarity=first.similarity) for grid in others]
            grid = grid_over_runs(
                runs,
                before,
                known=contest.known,
                seed=self.result.seed,
                resamples=self.result.resamples,
                choice=choice,
                margin=self.margin,
            )
            languages = list(first.rows), list(first.columns)
            yield SuiteGrid(task, model.name, against, *languages, first.lower_is_better, grid)


def _overlap_notes(models: Sequence[_Measured], void: Sequence[str]) -> Iterator[str]:
    """What models trained on of a task, equal counts together; `void` are those that trained on too much."""
    alike: dict[TrainedOn, list[str]] = {}
    for model in models:
        for overlap in model.trained_on:
            if not overlap.is_apart:
                counts = replace(overlap, model="", is_proof=model.name not in void)
                alike.setdefault(counts, []).append(model.name)
    for counts, names in alike.items():
        # A sweep compares many models that trained on the same data.
        name = names[0] if len(names) == 1 else f"each of {', '.join(names)}"
        memory = ""
        if counts.answered and counts.is_proof:
            memory = "; part of its score may be memory of these documents"
        yield f"{replace(counts, model=name).said}{memory}"


def _require_same_units(task: str, models: Sequence[_Measured]) -> None:
    first, faults = models[0].runs[0], []
    for model in models:
        for scores in model.runs:
            if fault := _unlike(scores, first, model.runs[0]):
                faults.append(f"{model.name} {fault}")
    if faults:
        raise DataError(
            f"{task} must be scored on the same units by the same measure for all models "
            f"as for {models[0].name}, got {several(faults)}; score them again"
        )


def _unlike(scores: TaskScores, first: TaskScores, first_run: TaskScores) -> str | None:
    """Why two scores cannot be compared unit by unit, or two runs of a model cannot be averaged."""
    if _stored(scores.units) != _stored(first.units):
        return _unlike_units(scores.units, first.units)
    if scores.texts and first.texts and _stored(scores.texts) != _stored(first.texts):
        return "has other texts under the same ids"
    main, other = scores.samples[0], first.samples[0]
    if main.measure != other.measure:
        return f"is judged by {main.measure}, not by {other.measure}"
    if main.statistic != other.statistic or not main.judges_like(other):
        return "has other judgements of the same units"
    if _main_grids(scores) != _main_grids(first):
        return f"has a grid of other languages: {_languages(scores)}, not {_languages(first)}"
    if [sample.key for sample in scores.samples] != [sample.key for sample in first_run.samples]:
        return "has runs with unlike measures"
    return None


def _unlike_units(units: Sequence[str], expected: Sequence[str]) -> str:
    """How units differ from those of the first model."""
    lacking, more = len(set(expected) - set(units)), len(set(units) - set(expected))
    counts = []
    if lacking:
        counts.append(f"lacks {lacking:,}")
    if more:
        counts.append(f"has {more:,} {numbered('other', more)}")
    return f"{' and '.join(counts)}, of {len(expected):,}" if counts else "has them in another order"


def _stored(texts: Sequence[str]) -> list[bytes]:
    """Texts as files hold them, half a surrogate pair as "?"."""
    return [text.encode("utf-8", "replace") for text in texts]


def _main_grids(scores: TaskScores) -> list[tuple[str, Sequence[str], Sequence[str]]]:
    """Comparison, rows and columns of the grids by the main similarity: unit vectors have no other."""
    main = scores.samples[0].similarity
    return [(grid.comparison, grid.rows, grid.columns) for grid in scores.grids if grid.similarity == main]


def _languages(scores: TaskScores) -> str:
    return ", ".join(scores.grids[0].rows) if scores.grids else "none"


def _described(models: Sequence[_Measured]) -> SuiteTask:
    scores = models[0].runs[0]
    main = scores.samples[0]
    concerned: dict[str, dict[str, None]] = {}
    for model in models:
        for run in model.runs:
            for note in run.notes:
                concerned.setdefault(note, {})[model.name] = None
    # A note of every model is a note of the task, and comes first.
    common = [note for note in concerned if len(concerned[note]) == len(models)]
    specific = [f"{', '.join(names)}: {note}" for note, names in concerned.items() if note not in common]
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
        notes=[*common, *specific, *scores.cluster_notes],
    )


def _facts(task: str, models: Sequence[_Measured]) -> Iterator[Fact]:
    """Further figures of each model, averaged over its runs."""
    for model in models:
        names: dict[str, None] = {}
        for scores in model.runs:
            names |= dict.fromkeys(scores.facts)
        for name in names:
            values = [scores.facts.get(name, 0.0) for scores in model.runs]
            yield Fact(model.name, task, name, float(np.mean(values)))
    for model in models:
        for overlap in model.trained_on:
            counts = {
                "queries trained on": overlap.trained_queries,
                "relevant documents trained on": overlap.trained_relevant,
            }
            for name, count in counts.items():
                if count is not None:
                    yield Fact(overlap.model, task, name, float(count))


def _of_equal_runs(models: Sequence[_Measured]) -> list[list[_Measured]]:
    """Models by their number of runs: those of equal numbers share resamples, which take most of the time."""
    by_runs: dict[int, list[_Measured]] = {}
    for model in models:
        by_runs.setdefault(len(model.runs), []).append(model)
    return list(by_runs.values())


def _levels(task: str, models: Sequence[_Measured], *, seed: int, resamples: int) -> Iterator[Score]:
    """Every measure of every model, with its interval."""
    for group in _of_equal_runs(models):
        measures: list[tuple[_Measured, tuple[Sample, ...]]] = []
        for model in group:
            samples = [scores.samples for scores in model.runs]
            # One measure at a time, of all runs.
            measures += [(model, runs) for runs in zip(*samples, strict=True)]
        changes = changes_over_runs([runs for _, runs in measures], None, seed=seed, resamples=resamples)
        for (model, _), change in zip(measures, changes, strict=True):
            yield Score(
                task,
                model.name,
                change.measure,
                change.similarity,
                change.after,
                change.after_interval,
                change.lower_is_better,
                is_proof=model.is_proof,
            )


def _reference(ranked: Sequence[_Measured], models: Sequence[_Measured], baseline: str | None) -> _Measured:
    """The model that others are compared with: the baseline if it did the task, else the best."""
    for model in models:
        if model.name == baseline:
            return model
    sign = -1 if ranked[0].main[0].lower_is_better else 1
    values = []
    for model in ranked:
        of_runs = [value_of(sample) for sample in model.main]
        values.append(sign * float(np.mean(of_runs)))
    best = max(values)
    # The first of equal models.
    return next(model for model, value in zip(ranked, values, strict=True) if equal_values(value, best))


def _units(task: str, models: Sequence[_Measured]) -> Iterator[UnitRow]:
    """Units on which models differ most, where units have values of their own."""
    if len(models) < 2:
        return
    scores, main = models[0].runs[0], models[0].main[0]
    if main.statistic != "mean" or main.pseudo_values:
        return
    means = []
    for model in models:
        of_runs = [sample.unit_values for sample in model.main]
        means.append(np.mean(of_runs, axis=0))
    values = np.stack(means)
    # A unit without a value for some model comes last.
    known = np.isfinite(values).all(axis=0)
    spread = np.where(known, np.ptp(values, axis=0), -1.0)
    names = [model.name for model in models]
    for unit in np.argsort(-spread, kind="stable")[:UNITS_SHOWN].tolist():
        if spread[unit] <= 0:
            return
        text = scores.texts[unit][:TEXT_SHOWN] if scores.texts else ""
        by_model = dict(zip(names, values[:, unit].tolist(), strict=True))
        yield UnitRow(task, scores.units[unit], text, by_model)


def analysed(result: SuiteT) -> SuiteT:
    """A result with its analysis."""
    scores: dict[tuple[str, str], Score] = {}
    for task in result.tasks:
        for model in result.models:
            if (score := result.main_score(task.name, model.name)) is not None:
                scores[task.name, model.name] = score
    tasks = []
    for task in result.tasks:
        of_task = [score for score in scores.values() if score.task == task.name]
        tasks.append(_ranking(result, task, of_task))
    models = []
    for model in result.models:
        measured = sum(name == model.name for _, name in scores)
        models.append(_standing(result, tasks, model.name, measured))
    means = []
    for kind, group in by_kind(result.tasks):
        # A mean over different measures would mean nothing.
        if len(group) > 1 and len({task.measure for task in group}) == 1:
            values = {model.name: _mean(scores, group, model.name) for model in result.models}
            means.append(KindMean(kind, group[0].measure, len(group), group[0].lower_is_better, values))
    return replace(result, analysis=SuiteAnalysis(tasks, models, means))


def _ranking(result: SuiteResult, task: SuiteTask, scores: Sequence[Score]) -> TaskRanking:
    pairings = [pairing for pairing in result.pairings if pairing.task == task.name]
    against = pairings[-1].against if pairings else None
    # Models trained on the units have no rank, and one model alone has none either.
    proofs = [score for score in scores if score.is_proof]
    ranks = {score.model: _rank(score, proofs) for score in proofs} if len(proofs) > 1 else {}
    top = min(ranks.values(), default=0.0)
    best = [model for model, rank in ranks.items() if rank == top]
    if against in best:
        best = [against, *(model for model in best if model != against)]
    ranked = [pairing for pairing in pairings if pairing.model in ranks]
    even = []
    for pairing in ranked:
        if pairing.against in best and pairing.verdict != "worse" and pairing.model not in best:
            even.append(pairing.model)
    clear = best == [against] and all(pairing.verdict == "worse" for pairing in ranked)
    return TaskRanking(task.name, against, ranks, best, [*best, *even], clear)


def _rank(score: Score, among: Sequence[Score]) -> float:
    sign = -1 if score.lower_is_better else 1
    equal = above = 0
    for other in among:
        if equal_values(other.value, score.value):
            equal += 1
        elif sign * other.value > sign * score.value:
            above += 1
    # Equal models, among which is the model itself, share the mean of their ranks.
    return 1 + above + (equal - 1) / 2


def _standing(result: SuiteResult, tasks: Sequence[TaskRanking], model: str, measured: int) -> ModelStanding:
    baseline = result.baseline
    contests = [ranking for ranking in tasks if model in ranking.ranks]
    best = [ranking for ranking in contests if model in ranking.best]
    beside_best = [ranking for ranking in contests if ranking.against not in (None, baseline)]
    even = None
    if baseline is None or beside_best:
        even = sum(model in ranking.even for ranking in beside_best)
    verdicts = None
    if baseline is not None and model != baseline:
        beside_baseline = (model, baseline)
        pairings = [one for one in result.pairings if (one.model, one.against) == beside_baseline]
        counts = Counter(pairing.verdict for pairing in pairings)
        verdicts = {verdict: counts[verdict] for verdict in WORDS}
    mean_rank = None
    ranked = [ranking for ranking in tasks if ranking.ranks]
    # Ranks are comparable only over the same tasks.
    if ranked and len(contests) == len(ranked):
        mean_rank = sum(ranking.ranks[model] for ranking in contests) / len(contests)
    return ModelStanding(
        model=model,
        tasks=measured,
        best=len(best),
        clear=sum(ranking.clear for ranking in best),
        even=even,
        verdicts=verdicts,
        mean_rank=mean_rank,
    )


def _mean(scores: dict[tuple[str, str], Score], tasks: Sequence[SuiteTask], model: str) -> float | None:
    values = [scores[task.name, model].value for task in tasks if (task.name, model) in scores]
    return sum(values) / len(values) if len(values) == len(tasks) else None
