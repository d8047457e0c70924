"""The record of a sweep, or of a plan made from its runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from adiabat.config import PlanSettings, SweepSettings
from adiabat.measure.sweep_results import Advice, SweepResult, SweepRun
from adiabat.model.device import device_name, device_of
from adiabat.plan.recipe import KindFit
from adiabat.provenance import now, versions
from adiabat.sweep.analysis import Evidence, crossings, downstream, record_of


def result_of(
    settings: SweepSettings | PlanSettings,
    title: str,
    rows: Sequence[SweepRun],
    evidence: Evidence,
    fits: Sequence[KindFit],
    advice: Advice | None,
    *,
    command: str,
    inputs: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> SweepResult:
    """Put together what runs say.

    Args:
        advice: What to train; None of a sweep.
    """
    section = settings.plan if isinstance(settings, PlanSettings) else settings.sweep
    seed = settings.run.seed
    return SweepResult(
        title=title,
        command=command,
        created=now(),
        seconds=math.fsum(row.seconds for row in rows),
        seed=seed,
        versions=versions(device_name(device_of(settings.run.device))),
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


def _recorded(row: SweepRun) -> SweepRun:
    """A row of a table that somebody else made, without what is no number: a record holds none."""
    loss, validation_loss = (one if one is not None and math.isfinite(one) else None for one in (row.loss, row.validation_loss))
    validation, scores = ({name: one for name, one in every.items() if math.isfinite(one)} for every in (row.validation, row.scores))
    return replace(row, loss=loss, validation_loss=validation_loss, validation=validation, scores=scores)
