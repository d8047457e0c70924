"""``runs.parquet`` of a scaling experiment: a row for each run."""

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adiabat.config.budgets import PlanSettings, ScalingSettings
from adiabat.core.errors import DataError
from adiabat.core.provenance import now, versions
from adiabat.experiments.scaling_analysis import Evidence, crossings, downstream, record_of
from adiabat.results.scaling_result import Advice, ScalingResult, ScalingRun
from adiabat.runs.row_files import Rows
from adiabat.scaling_laws.recommendation import KindFit

PROCESSOR = f"CPU {platform.machine()}"
"""Device of a plan that measures nothing, and loads no torch."""

ROWS = "runs.parquet"
"""In the directory of a scaling experiment."""


def rows_at(path: Path) -> Rows[ScalingRun]:
    """The runs of a scaling experiment that are over."""
    return _rows(path, "without the file, what is measured is made again")


def _rows(path: Path, advice: str) -> Rows[ScalingRun]:
    return Rows(path, ScalingRun, columns=_columns, of="a scaling experiment", fault=_fault, advice=advice)


def rows_in(place: Path) -> list[ScalingRun]:
    """The runs of a scaling experiment that is there."""
    path = place / ROWS if place.is_dir() else place
    if not path.is_file():
        raise DataError(f"--runs must be the directory of a scaling experiment, or its {ROWS}, got {place}; make one with adiabat scaling")
    return _rows(path, "mend it, or go on with the scaling experiment that made it").every


def _fault(row: ScalingRun) -> str:
    """Numbers that no run has, and that would become others by the way."""
    passed, done = row.parameters, row.status == "done"
    above = {"budget": row.budget, "batch_size": row.batch_size, "parameters.forward": passed.forward}
    if done:
        above |= {"steps": row.steps, "tokens": row.tokens, "flops": row.flops, "parameters.updated": passed.updated}
    wrong = [f"{name} = {value}" for name, value in above.items() if not 0 < value < math.inf]
    least = {"rank": row.way.rank or 0, "frozen": row.way.frozen, "seconds": row.seconds, "memory": row.memory, "passes": row.passes}
    wrong += [f"{name} = {value}" for name, value in least.items() if not 0 <= value < math.inf]
    if not wrong and max(passed.backward, passed.updated) > passed.forward:
        wrong = [str(passed)]
    return f"{row.name} has {' and '.join(wrong)}" if wrong else ""


def _columns(run: ScalingRun) -> dict[str, Any]:
    way, passed = run.way, run.parameters
    what: dict[str, Any] = {"run": run.name, "family": way.family, "model": way.name, "blocks": way.blocks, "method": way.method}
    what |= {"rank": way.rank, "frozen": way.frozen, "seed": run.seed, "budget": run.budget, "status": run.status, "reason": run.reason}
    counts = {
        "size": run.option.size,
        "forward": passed.forward,
        "backward": passed.backward,
        "updated": passed.updated,
        "share": run.option.share,
    }
    spent: dict[str, Any] = {"learning_rate": run.learning_rate, "batch_size": run.batch_size, "steps": run.steps, "tokens": run.tokens}
    spent |= {"flops": run.flops, "seconds": run.seconds, "memory": run.memory, "device": run.device}
    found = {"loss": run.loss, "validation_loss": run.validation_loss, **run.validation}
    scores = {f"task: {name}": score for name, score in run.scores.items()}
    return {**what, **counts, **spent, **found, **scores}


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
    """Put together what runs say.

    Args:
        advice: What to train; None of a scaling experiment.
        device: That runs or measurements were made on.
    """
    section = settings.plan if isinstance(settings, PlanSettings) else settings.scaling
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
        resamples=section.resamples,
        advice=advice,
        settings=settings.model_dump(mode="json", exclude_none=True),
        inputs=dict(inputs or {}),
        notes=list(notes),
    )


def _recorded(row: ScalingRun) -> ScalingRun:
    """A row of a table that somebody else made, without what is no number: a record holds none."""
    loss, validation_loss = (one if one is not None and math.isfinite(one) else None for one in (row.loss, row.validation_loss))
    validation, scores = ({name: one for name, one in every.items() if math.isfinite(one)} for every in (row.validation, row.scores))
    return replace(row, loss=loss, validation_loss=validation_loss, validation=validation, scores=scores)
