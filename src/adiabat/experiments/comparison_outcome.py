"""From the rows of all runs to what a comparison found."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from jaxtyping import Float

from adiabat.core.errors import DataError
from adiabat.core.provenance import now, versions
from adiabat.experiments.comparison_rows import Row, TaskRow
from adiabat.experiments.comparison_runs import Grid
from adiabat.results.comparison_result import ComparedTask, Comparison, Contrast, Level, Standing, Start
from adiabat.results.evaluation_result import Verdict
from adiabat.stats.samples import MAX_TRAINED_SHARE
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


@dataclass(frozen=True)
class _Evidence:
    """What is known of all models, candidates before starts.

    Attributes:
        runs: For each candidate, a row per seed.
        starts: Rows of the untrained models.
        own_start: For each candidate, which of all models is its own start.
        scores: Of every model, run and query.
        draws: Of them.
        levels: Of every model, over all tasks, and on each.
    """

    runs: list[list[Row]]
    starts: list[Row]
    own_start: list[int]
    scores: Scores
    draws: Draws
    levels: list[tuple[Level, list[Level]]]


def outcome_of(grid: Grid) -> Comparison:
    """Rank the candidates of a grid whose runs are all done."""
    settings = grid.settings
    evidence = _evidence(grid)
    first = evidence.runs[0][0]
    rows = [*evidence.starts, *(row for runs in evidence.runs for row in runs)]
    return Comparison(
        compared=settings.kind,
        title=_title(grid),
        command=grid.command,
        created=now(),
        seconds=sum(row.seconds for row in rows),
        seed=settings.run.seed,
        seeds=list(settings.compare.seeds),
        versions=versions(first.device),
        measure=settings.measure.measures[0],
        tasks=[
            ComparedTask(name, one.kind, len(one.values), one.documents, one.notes)
            for name, one in ((task.name, first.tasks[task.name]) for task in grid.tasks)
        ],
        standings=_standings(grid, evidence),
        starts=_starts(grid, evidence),
        run_deviation=run_deviation([one[: len(evidence.runs)] for one in evidence.scores]),
        resamples=settings.measure.resamples,
        notes=_notes(rows),
        settings=settings.model_dump(mode="json", exclude_none=True),
    )


def _title(grid: Grid) -> str:
    """What is compared, and what all of it has in common."""
    first = grid.candidates[0]
    if grid.settings.kind == "data":
        return f"Data sets compared: {len(grid.candidates)} trained on from {first.settings.job.model}"
    return f"Backbones compared: {len(grid.candidates)} trained on {first.data}"


def _evidence(grid: Grid) -> _Evidence:
    settings = grid.settings
    runs = [[grid.rows[candidate.name, seed] for seed in settings.compare.seeds] for candidate in grid.candidates]
    starts = [grid.rows[key] for _, key in grid.starts()]
    scores = [_scores(task.name, runs, starts) for task in grid.tasks]
    draws = draw(scores, trained=len(runs), seed=settings.run.seed, resamples=settings.measure.resamples)
    own_start = [len(runs) + (one if len(starts) > 1 else 0) for one in range(len(runs))]
    return _Evidence(runs, starts, own_start, scores, draws, _levels(scores, draws))


def _scores(task: str, runs: Sequence[Sequence[Row]], starts: Sequence[Row]) -> Float[np.ndarray, "c s q"]:
    """Of every run on the queries of a task; a start stands there as often as there are runs."""
    rows = [*runs, *([start] * len(runs[0]) for start in starts)]
    values = [[row.tasks[task].values for row in of_one] for of_one in rows]
    if counts := {len(one) for of_one in values for one in of_one} - {len(values[0][0])}:
        raise DataError(
            f"task {task}: every run must be measured on the same queries, got {len(values[0][0])} and {min(counts)}; "
            "start anew in another directory"
        )
    return np.array(values, dtype=np.float64)


def _levels(scores: Scores, draws: Draws) -> list[tuple[Level, list[Level]]]:
    """Of each candidate and start, over all tasks and on each."""
    together = _column(overall(scores).mean(axis=1), draws.overall()[0])
    tasks = [_column(one.mean(axis=(1, 2)), draws.tasks[:, :, number]) for number, one in enumerate(scores)]
    return [(level, [task[place] for task in tasks]) for place, level in enumerate(together)]


def _column(scores: Float[np.ndarray, " c"], draws: Float[np.ndarray, "r c"]) -> list[Level]:
    ends = intervals(draws)
    if ((scores >= 0) & (scores <= 1)).all():
        # The deviations of a run are other candidates' too, and may lead past where a measure ends.
        ends = np.clip(ends, 0.0, 1.0)
    return [Level(score, (low, high)) for score, (low, high) in zip(scores.tolist(), ends.tolist(), strict=True)]


def _standings(grid: Grid, evidence: _Evidence) -> list[Standing]:
    scores, draws, count = evidence.scores, evidence.draws, len(evidence.runs)
    means, proof = overall(scores), [_is_proof(rows) for rows in evidence.runs]
    order = sorted(range(count), key=lambda one: (-float(means[one].mean()), one))
    shares = best_shares(draws.overall()[0][:, :count])
    to_best = _to_best(scores, draws, proof, order[0])
    gains = differences(scores, draws, np.arange(count), np.array(evidence.own_start))
    standings = []
    for one in order:
        candidate, rows = grid.candidates[one], evidence.runs[one]
        times = [row.step_seconds for row in rows if row.step_seconds is not None]
        standings.append(
            Standing(
                name=candidate.name,
                trained_on=candidate.data,
                model=str(candidate.settings.job.model),
                overall=evidence.levels[one][0],
                best_share=float(shares[one]),
                to_best=to_best.get(one),
                gain=_contrast(gains, one, judged=proof[one]),
                runs=means[one].tolist(),
                tasks=evidence.levels[one][1],
                measures=_measures(rows),
                parameters=rows[0].parameters,
                trained=rows[0].trained,
                steps=rows[0].steps,
                passes=rows[0].passes,
                pairs=rows[0].pairs,
                step_seconds=median(times) if times else None,
                speed=evidence.starts[evidence.own_start[one] - count].speed,
            )
        )
    return standings


def _to_best(scores: Scores, draws: Draws, proof: Sequence[bool], best: int) -> dict[int, Contrast]:
    """What each other candidate lacks of the best, by intervals over all pairs: which is best was found from the same scores."""
    first, second = pairs_of(len(proof))
    found = differences(scores, draws, first, second)
    contrasts = {}
    for place, (one, other) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        judged = proof[one] and proof[other]
        if best == other:
            contrasts[one] = _contrast(found, place, judged=judged)
        elif best == one:
            reversed_ = Differences(-found.values, -found.high, -found.low, found.distinct)
            contrasts[other] = _contrast(reversed_, place, judged=judged)
    return contrasts


def _contrast(found: Differences, place: int, *, judged: bool) -> Contrast:
    low, high = float(found.low[place]), float(found.high[place])
    verdict: Verdict = "no evidence"
    if judged and found.distinct[place]:
        verdict = "better" if low > 0 else "worse"
    return Contrast(float(found.values[place]), (low, high), verdict)


def _is_proof(rows: Sequence[Row]) -> bool:
    """Whether the runs of a candidate trained on few enough queries of every task for it to be called better or worse."""
    return all(_few(task) for row in rows for task in row.tasks.values())


def _few(task: TaskRow) -> bool:
    return task.trained <= MAX_TRAINED_SHARE * len(task.values)


def _measures(rows: Sequence[Row]) -> dict[str, float]:
    """Means over seeds and tasks."""
    tasks = [task for row in rows for task in row.tasks.values()]
    return {name: fmean(task.measures[name] for task in tasks) for name in tasks[0].measures}


def _starts(grid: Grid, evidence: _Evidence) -> list[Start]:
    count = len(evidence.runs)
    return [
        Start(
            model=str(candidate.settings.job.model),
            candidate=key[0],
            overall=evidence.levels[count + place][0],
            tasks=evidence.levels[count + place][1],
            measures=_measures([row]),
            parameters=row.parameters,
            speed=row.speed,
        )
        for place, ((candidate, key), row) in enumerate(zip(grid.starts(), evidence.starts, strict=True))
    ]


def _notes(rows: Sequence[Row]) -> list[str]:
    """What numbers alone do not say."""
    devices = sorted({row.device for row in rows})
    told = [f"runs were made on different devices, so that their times do not compare: {', '.join(devices)}"] if devices[1:] else []
    trained = {(task, row.candidate): one for row in rows for task, one in row.tasks.items() if one.trained}
    for (task, candidate), one in trained.items():
        much = "" if _few(one) else "; these are more than a tenth, so it is called neither better nor worse"
        told.append(f"{candidate} was trained or validated on {one.trained:,} of {len(one.values):,} queries of {task}{much}")
    return told
