"""From rows to laws, frontiers, profiles and correlations, as plain data (Ziarko et al. 2024)."""

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from adiabat.config.budgets import ALL_TASKS, PlanSection, PlanSettings, ScalingSection, ScalingSettings
from adiabat.core.errors import DataError
from adiabat.core.progress import Watch
from adiabat.core.provenance import now, versions
from adiabat.core.wording import call_of
from adiabat.results.scaling_result import (
    Advice,
    Coefficient,
    Correlation,
    CrossingRecord,
    HeldOutLoss,
    HeldOutRecord,
    KindRecord,
    LawRecord,
    LineRecord,
    LossOf,
    Predicted,
    ScalingResult,
    ScalingRun,
    WidthRecord,
)
from adiabat.runs.row_files import Rows
from adiabat.scaling_laws.fitting import estimate
from adiabat.scaling_laws.frontier import NEAR, Trend, crossing, profiles
from adiabat.scaling_laws.held_out import Prediction, coverages, widths
from adiabat.scaling_laws.laws import Kind, Option, Run, points_of
from adiabat.scaling_laws.recommendation import KindFit, fit_kinds
from adiabat.scaling_laws.selection import rank_correlation


@dataclass(frozen=True, slots=True)
class Evidence:
    """Rows for fitting laws.

    Attributes:
        rows: Rows with a loss.
        runs: The same rows as runs of laws.
        left_out: Name of each row without a usable loss, with the reason.
    """

    rows: list[ScalingRun]
    runs: list[Run]
    left_out: dict[str, str]


def evidence_of(rows: Sequence[ScalingRun], kind: LossOf, *, least_steps: int) -> Evidence:
    """Separate rows that laws can be fitted to from the others."""
    left_out = {}
    # The first fault of a row is told.
    usable = []
    runs = []
    for row in rows:
        loss = row.loss_of(kind)
        if row.status == "failed":
            left_out[row.name] = f"it failed: {row.reason}"
        elif loss is None or not np.isfinite(loss) or loss <= 0:
            left_out[row.name] = f"its loss must be a number above 0, got {loss}"
        elif row.steps < least_steps:
            left_out[row.name] = f"it has {row.steps} steps, fewer than {least_steps}"
        else:
            usable.append(row)
            runs.append(Run(row.option, row.budget, row.tokens, loss))
    return Evidence(usable, runs, left_out)


def fitted(
    evidence: Evidence,
    settings: ScalingSettings | PlanSettings,
    watch: Watch,
    *,
    asked: Mapping[Option, float] | None = None,
    data_tokens: float | None = None,
) -> list[KindFit]:
    """Fit the law of each family and method.

    Args:
        asked: Options and budgets that the laws must cover; None takes the options of the rows at the largest
            budget.
        data_tokens: Maximum tokens that the laws must cover; None sets no limit.
    """
    resamples = section_of(settings).resamples
    if asked is None:
        # Laws must hold at least where the runs end.
        largest = max(run.budget for run in evidence.runs)
        asked = dict.fromkeys((run.option for run in evidence.runs), largest)

    def note(kind: Kind, done: int) -> None:
        watch.progress(f"fitting the law of {kind}", done, resamples)

    return fit_kinds(
        evidence.runs,
        asked=asked,
        data_tokens=data_tokens,
        resamples=resamples,
        seed=settings.run.seed,
        note=note,
    )


def section_of(settings: ScalingSettings | PlanSettings) -> PlanSection | ScalingSection:
    """How runs are analysed."""
    return settings.plan if isinstance(settings, PlanSettings) else settings.scaling


def record_of(fit: KindFit, evidence: Evidence) -> KindRecord:
    """Results of one family and method, as plain data."""
    points, budgets = points_of(fit.runs), np.array([run.budget for run in fit.runs])
    return KindRecord(
        kind=fit.kind,
        runs=len(fit.runs),
        law=_law(fit, [row.name for row in evidence.rows if row.way.kind == fit.kind]),
        why_not=fit.why_not,
        frontier=_record(fit.frontier),
        profiles=profiles(budgets, points.size, points.loss),
        sizes=_record(fit.growth),
    )


def _law(fit: KindFit, names: Sequence[str]) -> LawRecord | None:
    if fit.law is None or fit.choice is None:
        return None
    points = points_of(fit.runs)
    law = fit.law
    model, budget = fit.choice.without_model, fit.choice.without_budget
    predicted = law.fitted.predict(points).tolist()
    held_out = [None] * len(predicted)
    if model is not None:
        held_out = model.fitted.predict(points).tolist()
    # Held-out predictions mean something for the largest model alone, which was left out.
    largest = (points.size == points.size.max()).tolist()
    columns = (names, points.loss.tolist(), predicted, held_out, largest)
    coefficients = law.coefficients()
    return LawRecord(
        formula=law.fitted.law.formula,
        coefficients=[Coefficient(name, one.value, one.low, one.high) for name, one in coefficients.items()],
        noise=float(law.residuals.std()),
        model_error=None if model is None else model.error,
        budget_error=None if budget is None else budget.error,
        left_open=list(law.left_open()),
        passed_over=[rejected.formula for rejected in fit.choice.passed_over],
        predicted=[Predicted(*row) for row in zip(*columns, strict=True)],
    )


def _record(trend: Trend | None) -> LineRecord | None:
    if trend is None:
        return None
    line = trend.line
    low, high = None, None
    if trend.again:
        slope = estimate(line.slope, np.array([resampled.slope for resampled in trend.again]))
        intercept = estimate(line.intercept, np.array([resampled.intercept for resampled in trend.again]))
        low, high = (slope.low, intercept.low), (slope.high, intercept.high)
    return LineRecord(line.slope, line.intercept, low, high, trend.budgets.tolist(), trend.values.tolist())


def crossings(fits: Sequence[KindFit]) -> list[CrossingRecord]:
    """Crossings of the frontiers of a family's methods near the budgets of its runs."""
    lines = [(fit.kind, fit.frontier) for fit in fits if fit.frontier is not None]
    # The frontier that falls slower is ahead at smaller budgets.
    lines.sort(key=_slope, reverse=True)
    records = []
    for (first, before), (second, after) in combinations(lines, 2):
        if first.family == second.family:
            point = crossing(before, after)
            # Crossings far from the runs are extrapolation.
            budgets = np.concatenate([before.budgets, after.budgets])
            if budgets.min() / NEAR <= point.budget <= budgets.max() * NEAR:
                records.append(CrossingRecord(first.family, first.method, second.method, point))
    return sorted(records, key=attrgetter("family", "found.budget"))


def _slope(frontier: tuple[Kind, Trend]) -> float:
    return frontier[1].line.slope


def downstream(evidence: Evidence, kind: LossOf, *, resamples: int, seed: int) -> list[Correlation]:
    """Correlation of losses with task scores, over the runs that have the score."""
    scored_by: dict[str, None] = {}
    for row in evidence.rows:
        scored_by |= dict.fromkeys(row.scores)
    tasks = list(scored_by)
    families = list(dict.fromkeys(row.way.family for row in evidence.rows if row.scores))
    groups = {task: [task] for task in tasks}
    if len(tasks) > 1:
        groups = {ALL_TASKS: tasks, **groups}
    correlations = []
    for name, group in groups.items():
        # A mean over tasks needs the score of each.
        scored = [row for row in evidence.rows if set(group) <= row.scores.keys()]
        correlations.append(_correlation(name, None, scored, group, kind, resamples, seed))
        if len(families) > 1:
            for family in families:
                of_family = [row for row in scored if row.way.family == family]
                correlations.append(_correlation(name, family, of_family, group, kind, resamples, seed))
    return correlations


def _correlation(
    name: str,
    family: str | None,
    scored: Sequence[ScalingRun],
    tasks: Sequence[str],
    kind: LossOf,
    resamples: int,
    seed: int,
) -> Correlation:
    """Correlation with the mean score of some tasks, over the runs that have all of them."""
    losses, scores = [], []
    for row in scored:
        losses.append(row.loss_of(kind) or 0.0)
        scores.append(fmean(row.scores[task] for task in tasks))
    found = rank_correlation(np.array(losses), np.array(scores), resamples=resamples, seed=seed)
    if found is None:
        return Correlation(name, family, len(scored), None, None)
    return Correlation(name, family, len(scored), found.value, (found.low, found.high))


STEP = 4.0
"""Factor from one budget to the next; budgets of Ziarko et al. 2024 are a factor of four apart."""

PROCESSOR = f"CPU {platform.machine()}"
"""Device of a plan that measures nothing and does not load torch."""

ROWS = "runs.parquet"
"""File in the directory of a scaling experiment."""


def rows_at(path: Path) -> Rows[ScalingRun]:
    """The finished runs of a scaling experiment."""
    return _rows(path, "remove the file to measure again")


def _rows(path: Path, advice: str) -> Rows[ScalingRun]:
    return Rows(path, ScalingRun, columns=_columns, of="a scaling experiment", fault=_fault, advice=advice)


def rows_in(source: Path) -> list[ScalingRun]:
    """The runs of an existing scaling experiment."""
    path = source / ROWS if source.is_dir() else source
    if not path.is_file():
        fault = f"plan.runs must be the directory of a scaling experiment, or its {ROWS}, got {source}"
        raise DataError(f"{fault}; make one with {call_of('scaling')}")
    return _rows(path, "repair it, or resume the scaling experiment that made it").every


def _fault(row: ScalingRun) -> str:
    """Values that no valid run has, and that would be changed silently."""
    passed = row.parameters
    above = {"budget": row.budget, "batch_size": row.batch_size, "parameters.forward": passed.forward}
    if row.status == "done":
        above |= {"steps": row.steps, "tokens": row.tokens, "flops": row.flops}
        above["parameters.updated"] = passed.updated
    least = {"rank": row.way.rank or 0, "frozen": row.way.frozen, "seconds": row.seconds}
    least |= {"memory": row.memory, "passes": row.passes}
    # NaN fails both comparisons.
    wrong = [f"{name} = {value}" for name, value in above.items() if not 0 < value < math.inf]
    wrong += [f"{name} = {value}" for name, value in least.items() if not 0 <= value < math.inf]
    # A gradient passes no more parameters than a token does.
    if not wrong and max(passed.backward, passed.updated) > passed.forward:
        wrong = [str(passed)]
    return f"{row.name} has {' and '.join(wrong)}" if wrong else ""


def _columns(run: ScalingRun) -> dict[str, Any]:
    way, passed = run.way, run.parameters
    columns: dict[str, Any] = {
        "run": run.name,
        "family": way.family,
        "model": way.name,
        "blocks": way.blocks,
        "method": way.method,
    }
    for name in ("rank", "frozen"):
        columns[name] = getattr(way, name)
    for name in ("seed", "budget", "status", "reason"):
        columns[name] = getattr(run, name)
    columns["size"] = run.option.size
    for name in ("forward", "backward", "updated"):
        columns[name] = getattr(passed, name)
    columns["share"] = run.option.share
    for name in ("learning_rate", "batch_size", "steps", "tokens", "flops", "seconds", "memory", "device"):
        columns[name] = getattr(run, name)
    columns |= {"loss": run.loss, "validation_loss": run.validation_loss, **run.validation}
    return columns | {f"task: {name}": score for name, score in run.scores.items()}


def result_of(
    settings: ScalingSettings | PlanSettings,
    title: str,
    rows: Sequence[ScalingRun],
    evidence: Evidence,
    fits: Sequence[KindFit],
    advice: Advice | None,
    *,
    command: str,
    device: str = PROCESSOR,
    inputs: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> ScalingResult:
    """Assemble the result.

    Args:
        advice: The recommendation; None for a scaling experiment.
        device: Device of runs or measurements.
    """
    section = section_of(settings)
    seed = settings.run.seed
    return ScalingResult(
        kind="scaling" if advice is None else "plan",
        title=title,
        command=command,
        created=now(),
        seconds=math.fsum(row.seconds for row in rows),
        seed=seed,
        versions=versions(device),
        loss=section.loss,
        runs=[_recorded(row) for row in rows],
        left_out=evidence.left_out,
        kinds=[record_of(fit, evidence) for fit in fits],
        crossings=crossings(fits),
        downstream=downstream(evidence, section.loss, resamples=section.resamples, seed=seed),
        held_out=held_out(fits, advice),
        resamples=section.resamples,
        advice=advice,
        settings=settings.recorded(),
        inputs=dict(inputs or {}),
        notes=list(notes),
    )


def held_out(fits: Sequence[KindFit], advice: Advice | None) -> HeldOutRecord | None:
    """Predictions of held-out budgets, with the widths that they give; None where no budget could be held
    out.
    """
    predicted = list(chain.from_iterable(fit.held_out for fit in fits))
    if not predicted:
        return None
    losses = []
    for one in predicted:
        interval = (one.law.low, one.law.high)
        title = one.run.option.way.title
        losses.append(
            HeldOutLoss(title, one.run.budget, one.reach, one.run.loss, one.law.value, interval, one.line)
        )
    # A scaling experiment is asked for the next budget, a plan for its own.
    reach = STEP if advice is None or advice.beyond is None else advice.beyond
    families = [fit.kind.family for fit in fits]
    return HeldOutRecord(losses, coverages(predicted), list(_widths(predicted, families, reach)))


def _widths(predicted: Sequence[Prediction], families: Sequence[str], reach: float) -> Iterator[WidthRecord]:
    for family in dict.fromkeys(families):
        wide = widths(predicted, family, reach, reach)
        if wide.law is not None:
            line = None if wide.line is None else math.exp(wide.line.size)
            yield WidthRecord(family, reach, math.exp(wide.law.size), line, wide.law.level, wide.law.scores)


def _recorded(row: ScalingRun) -> ScalingRun:
    """A row of a table from elsewhere, without non-finite numbers, which records cannot hold."""
    return replace(
        row,
        loss=_finite(row.loss),
        validation_loss=_finite(row.validation_loss),
        validation={name: value for name, value in row.validation.items() if math.isfinite(value)},
        scores={name: score for name, score in row.scores.items() if math.isfinite(score)},
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
