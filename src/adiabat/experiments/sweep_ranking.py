"""The cases of a sweep ranked by their scores on retrieval tasks, over all seeds (Reimers 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median
from typing import Literal

import numpy as np
from jaxtyping import Float

from adiabat.config.section import value_at
from adiabat.config.sweeps import SweepSettings
from adiabat.core.errors import several
from adiabat.evaluation.task_kinds import measures_of_tasks
from adiabat.experiments.grid import SweepTrial
from adiabat.experiments.sweep_trials import SweepRunner
from adiabat.results.evaluation_result import Verdict
from adiabat.results.ranking_result import Contrast, Level, RankedTask, Ranking, Standing, Start
from adiabat.results.sweep_result import SweepRun
from adiabat.stats.clusters import Clusters
from adiabat.stats.samples import Sample, TaskScores
from adiabat.stats.statistics import value_of
from adiabat.stats.variant_ranking import (
    Differences,
    Draws,
    Scores,
    best_shares,
    differences,
    draw,
    intervals,
    overall,
    pairs_of,
    run_deviation,
)

MOST_RANKED = 40
"""Maximum number of cases to rank: time and memory of intervals for all pairs grow with its square."""


@dataclass(frozen=True)
class _Evidence:
    """Scores of all models, cases before starts.

    Attributes:
        finished: Names of the runs of all cases without a failed run; those of a case with a lost score file
            are not ranked.
        own_start: For each case, the position of its start among all models.
    """

    finished: frozenset[str]
    cases: Mapping[str, list[SweepRun]]
    starts: list[str]
    own_start: list[int]
    stored: Mapping[str, Mapping[str, TaskScores]]
    tasks: list[str]
    measure: str
    scores: Scores
    clusters: list[Clusters | None]
    draws: Draws
    levels: list[tuple[Level, list[Level]]]

    def of_case(self, number: int) -> list[tuple[SweepRun, Mapping[str, TaskScores]]]:
        """The runs of a case with their scores."""
        return [(run, self.stored[run.name]) for run in list(self.cases.values())[number]]


def why_unranked(settings: SweepSettings, cases: int) -> str:
    """Why a sweep of so many cases has no ranking, whatever comes of its runs; "" if it may have one."""
    if not 2 <= cases <= MOST_RANKED:
        return f"a ranking is of 2 to {MOST_RANKED} settings, got {cases}"
    measure = settings.measure.report[0]
    if any(
        measured is None or measure in measured
        for measured in measures_of_tasks(settings.measure, settings.tasks)
    ):
        return ""
    return (
        f"no task is measured by {measure}, the first of measure.report; name one "
        "that the tasks have, or add a retrieval task"
    )


def ranking_of(runner: SweepRunner, rows: Sequence[SweepRun]) -> Ranking | None:
    """Rank the cases of a sweep; None for fewer than two or more than `MOST_RANKED` cases."""
    evidence = _evidence(runner, rows)
    if evidence is None:
        if runner.evaluator.unread:
            runner.evaluator.unread.append(
                "fewer than two settings have all of their scores, so there is no ranking"
            )
        return None
    first = evidence.stored[next(iter(evidence.cases.values()))[0].name]
    return Ranking(
        measure=evidence.measure,
        seeds=list(runner.settings.sweep.seeds),
        tasks=[_task(first[name]) for name in evidence.tasks],
        standings=_standings(runner, evidence),
        starts=_starts(runner, evidence),
        run_deviation=run_deviation([matrix[: len(evidence.cases)] for matrix in evidence.scores]),
        resamples=runner.settings.measure.resamples,
        notes=[*_notes(rows, evidence), *_unequal_lengths(runner, evidence)],
    )


def _evidence(runner: SweepRunner, rows: Sequence[SweepRun]) -> _Evidence | None:
    done = {row.name: row for row in rows if row.status == "done"}
    trials: dict[str, list[SweepTrial]] = {}
    for trial in runner.trials:
        trials.setdefault(trial.case, []).append(trial)
    finished = {case: runs for case, runs in trials.items() if all(trial.name in done for trial in runs)}
    if not 2 <= len(finished) <= MOST_RANKED:
        return None
    names = [trial.name for trial in chain.from_iterable(finished.values())]
    stored = {name: scores for name in names if (scores := runner.evaluator.stored(name))}
    complete = {case: runs for case, runs in finished.items() if all(trial.name in stored for trial in runs)}
    if len(complete) < 2:
        return None
    start_of = {case: runner.start_name(runs[0]) for case, runs in complete.items()}
    starts = list(dict.fromkeys(start_of.values()))
    # A start whose scores are lost or belong to another start is measured again.
    runner.start_records()
    stored |= {name: scores for name in starts if (scores := runner.evaluator.stored(name))}
    measure = runner.settings.measure.report[0]
    tasks = [
        name
        for name in (task.name for task in runner.tasks)
        if all(name in by_task for by_task in stored.values())
    ]
    tasks = (
        [name for name in tasks if _values(stored[starts[0]][name], measure) is not None]
        if stored.keys() >= set(starts)
        else []
    )
    per_task = [
        _matrix(name, measure, [[trial.name for trial in runs] for runs in complete.values()], starts, stored)
        for name in tasks
    ]
    matrices = [matrix for matrix in per_task if matrix is not None]
    if not matrices or len(matrices) < len(per_task):
        return None
    section = runner.settings.measure
    clusters = [stored[starts[0]][name].samples[0].clusters for name in tasks]
    draws = draw(
        matrices, trained=len(complete), seed=runner.seed, resamples=section.resamples, clusters=clusters
    )
    cases = {case: [done[trial.name] for trial in runs] for case, runs in complete.items()}
    own_start = [len(complete) + starts.index(start_of[case]) for case in complete]
    return _Evidence(
        frozenset(names),
        cases,
        starts,
        own_start,
        stored,
        tasks,
        measure,
        matrices,
        clusters,
        draws,
        _levels(matrices, draws),
    )


def _values(scores: TaskScores, measure: str) -> Float[np.ndarray, " q"] | None:
    """One value for each query; None if the task lacks the measure."""
    return next((sample.values for sample in scores.samples if sample.measure == measure), None)


def _matrix(
    task: str,
    measure: str,
    cases: Sequence[Sequence[str]],
    starts: Sequence[str],
    stored: Mapping[str, Mapping[str, TaskScores]],
) -> Float[np.ndarray, "c s q"] | None:
    """Scores of every run on the queries of a task; a start is repeated once per run.

    None if queries differ.
    """
    rows = [*cases, *([start] * len(cases[0]) for start in starts)]
    values = [[_values(stored[name][task], measure) for name in row] for row in rows]
    lengths = {None if scores is None else len(scores) for row in values for scores in row}
    return np.array(values, dtype=np.float64) if len(lengths) == 1 and None not in lengths else None


def _task(scores: TaskScores) -> RankedTask:
    kind: Literal["ranking", "pairs"] = "pairs" if scores.kind == "triplets" else "ranking"
    return RankedTask(scores.task, kind, len(scores.units), scores.documents, scores.notes)


def _levels(scores: Scores, draws: Draws) -> list[tuple[Level, list[Level]]]:
    """Score of each candidate and start, over all tasks and on each."""
    together = _column(overall(scores).mean(axis=1), draws.overall()[0])
    tasks = [
        _column(matrix.mean(axis=(1, 2)), draws.tasks[:, :, number]) for number, matrix in enumerate(scores)
    ]
    return [(level, [task[index] for task in tasks]) for index, level in enumerate(together)]


def _column(scores: Float[np.ndarray, " c"], draws: Float[np.ndarray, "r c"]) -> list[Level]:
    ends = intervals(draws)
    if ((scores >= 0) & (scores <= 1)).all():
        # Pooled deviations come from other candidates too, and may exceed the bounds of a measure.
        ends = np.clip(ends, 0.0, 1.0)
    return [
        Level(score, (low, high)) for score, (low, high) in zip(scores.tolist(), ends.tolist(), strict=True)
    ]


def _standings(runner: SweepRunner, evidence: _Evidence) -> list[Standing]:
    scores, draws, count = evidence.scores, evidence.draws, len(evidence.cases)
    means, proof = overall(scores), [_is_proof(evidence, number) for number in range(count)]
    order = sorted(range(count), key=lambda number: (-float(means[number].mean()), number))
    shares = best_shares(draws.overall()[0][:, :count])
    to_best = _to_best(evidence, proof, order[0])
    gains = differences(
        scores, draws, np.arange(count), np.array(evidence.own_start), clusters=evidence.clusters
    )
    records, trials = runner.start_records(), {trial.name: trial for trial in runner.trials}
    names = list(evidence.cases)
    standings = []
    for number in order:
        runs = evidence.cases[names[number]]
        times = [run.step_seconds for run in runs if run.step_seconds is not None]
        start = records[evidence.starts[evidence.own_start[number] - count]]
        standings.append(
            Standing(
                name=names[number] or runner.settings.sweep.name,
                trained_on=runner.trained_on(trials[runs[0].name]),
                model=start.model,
                overall=evidence.levels[number][0],
                best_share=float(shares[number]),
                to_best=to_best.get(number),
                gain=_contrast(gains, number, judged=proof[number]),
                runs=means[number].tolist(),
                tasks=evidence.levels[number][1],
                measures=_measures(runner, evidence, [run.name for run in runs]),
                parameters=runs[0].parameters,
                trained=runs[0].trainable,
                steps=runs[0].steps,
                passes=runs[0].passes,
                pairs=runs[0].pairs,
                step_seconds=median(times) if times else None,
                speed=start.speed,
            )
        )
    return standings


def _to_best(evidence: _Evidence, proof: Sequence[bool], best: int) -> dict[int, Contrast]:
    """Difference of each other candidate to the best, with intervals over all pairs, because the best was
    chosen on the same scores.
    """
    first, second = pairs_of(len(proof))
    gaps = differences(evidence.scores, evidence.draws, first, second, clusters=evidence.clusters)
    contrasts = {}
    for index, (candidate, other) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        judged = proof[candidate] and proof[other]
        if best == other:
            contrasts[candidate] = _contrast(gaps, index, judged=judged)
        elif best == candidate:
            reversed_ = Differences(-gaps.values, -gaps.high, -gaps.low, gaps.distinct)
            contrasts[other] = _contrast(reversed_, index, judged=judged)
    return contrasts


def _contrast(gaps: Differences, index: int, *, judged: bool) -> Contrast:
    low, high = float(gaps.low[index]), float(gaps.high[index])
    verdict: Verdict = "undecided"
    if judged and gaps.distinct[index]:
        verdict = "better" if low > 0 else "worse"
    return Contrast(float(gaps.values[index]), (low, high), verdict)


def _is_proof(evidence: _Evidence, number: int) -> bool:
    """Whether the runs of a case trained on few enough queries of every task for a verdict."""
    return all(stored[task].is_proof for _, stored in evidence.of_case(number) for task in evidence.tasks)


def _measures(runner: SweepRunner, evidence: _Evidence, names: Sequence[str]) -> dict[str, float]:
    """Means over seeds and tasks."""
    samples = [
        sample
        for name in names
        for task in evidence.tasks
        for sample in _main_samples(evidence.stored[name][task])
    ]
    means: dict[str, list[float]] = {measure: [] for measure in runner.settings.measure.report}
    for sample in samples:
        if sample.measure in means:
            means[sample.measure].append(float(value_of(sample)[0]))
    return {measure: fmean(values) for measure, values in means.items() if values}


def _main_samples(scores: TaskScores) -> list[Sample]:
    """Measures by the same similarity as the first."""
    return [sample for sample in scores.samples if sample.similarity == scores.samples[0].similarity]


def _starts(runner: SweepRunner, evidence: _Evidence) -> list[Start]:
    count, records = len(evidence.cases), runner.start_records()
    names = list(evidence.cases)
    return [
        Start(
            model=records[name].model,
            case=names[evidence.own_start.index(count + number)] if len(evidence.starts) > 1 else "",
            overall=evidence.levels[count + number][0],
            tasks=evidence.levels[count + number][1],
            measures=_measures(runner, evidence, [name]),
            parameters=records[name].parameters,
            speed=records[name].speed,
        )
        for number, name in enumerate(evidence.starts)
    ]


def _notes(rows: Sequence[SweepRun], evidence: _Evidence) -> list[str]:
    """Notes that the numbers need."""
    devices = sorted({row.device for row in rows})
    notes = (
        [f"runs were made on different devices, so their times are not comparable: {', '.join(devices)}"]
        if devices[1:]
        else []
    )
    for case, runs in evidence.cases.items():
        for task in evidence.tasks:
            trained = evidence.stored[runs[0].name][task].trained
            if trained is not None and (count := int(trained.queries.sum())):
                much = (
                    ""
                    if trained.is_proof
                    else "; these are more than a tenth, so it is called neither better nor worse"
                )
                notes.append(
                    f"{case} was trained or validated on {count:,} of {trained.queries.size:,} "
                    f"queries of {task}{much}"
                )
    if left_out := sorted({row.name for row in rows} - evidence.finished):
        notes.append(f"settings with a failed run are not ranked: {several(left_out)}")
    return notes


LENGTHS = ("train.steps", "train.epochs", "train.batch_size", "train.budget_flops", "train.budget_seconds")
"""Settings that decide how much a training run computes."""


def _unequal_lengths(runner: SweepRunner, evidence: _Evidence) -> list[str]:
    """A note for training runs that were not equally long."""
    ranked = {run.name for runs in evidence.cases.values() for run in runs}
    settings = [trial.settings for trial in runner.trials if trial.name in ranked]
    differing = [key for key in LENGTHS if len({value_at(run, key) for run in settings}) > 1]
    return (
        [f"runs differ in {' and '.join(differing)}, so the ranking compares recipes of unequal cost"]
        if differing
        else []
    )
