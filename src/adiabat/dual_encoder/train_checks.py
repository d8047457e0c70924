"""Checks of a training run by its settings and files, before torch is loaded."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adiabat.config.dual_training import TrainSection, TrainSettings
from adiabat.config.shared import require_device_name
from adiabat.config.training_choices import ENDING
from adiabat.core.errors import BudgetError, ConfigError, JobError, several
from adiabat.core.files import is_there
from adiabat.core.wording import assignment
from adiabat.data.examples import require_columns, require_streamable
from adiabat.data.lines import parted_columns
from adiabat.data.sources import validation_source, with_split
from adiabat.models.model_paths import require_names, require_reachable
from adiabat.runs.output_dir import require_fitting, require_free
from adiabat.runs.run_config import FREE_RUN, Job, Rules, is_job, read_description
from adiabat.runs.run_log import idle_counts, least_idle, read_log
from adiabat.store.addressing import require_inputs

WORDS = {
    "digests.model": "the model differs from the one the job began with",
    "digests.examples": "the pairs differ from those the job began with",
}
"""Explanations of digests that differ once model and data have been read."""

STOPS = ("train.budget_seconds", "train.idle_epochs")
"""Limits that do not change any step before them."""

LENGTHS = ("train.steps", "train.budget_flops", "train.epochs")
"""Settings of the length of a run; the first of them that is set decides."""


def as_begun(settings: TrainSettings, *, resume: bool) -> TrainSettings:
    """Settings of a run limited by time, with the number of steps that was estimated at its start."""
    section, out = settings.train, settings.job.out
    if not (
        resume and out is not None and is_job(Path(out)) and section.steps is None and section.goes_by_time
    ):
        return settings
    return with_steps(settings, read_description(Job(Path(out))).get("train", {}).get("steps"))


def with_steps(settings: TrainSettings, steps: int | None) -> TrainSettings:
    """Settings with another number of steps; None leaves it to the other settings."""
    return settings.model_copy(update={"train": settings.train.model_copy(update={"steps": steps})})


FIXED_LENGTH = (
    " (a schedule that ends, train.warmup_fraction and a scheduled temperature without steps follow the "
    "length of the run, so earlier steps would have differed; a job begun with train.schedule = "
    '"constant" and its warm-up in train.warmup_steps can be made longer)'
)
"""Why a run cannot be extended or shortened, and how to set up one that can."""


def _goes_by_length(settings: Mapping[str, Any]) -> bool:
    """Whether a step depends on the length of the whole run."""
    if settings["train.schedule.kind"] in ENDING:
        return True
    if settings["train.warmup_fraction"] and "train.warmup_steps" not in settings:
        return True
    is_scheduled = settings.get("train.loss.temperature.kind") == "scheduled"
    return is_scheduled and "train.loss.temperature.steps" not in settings


def _stopping(settings: Mapping[str, Any]) -> set[str]:
    """Settings that decide when a run stops and change no step before."""
    return {*STOPS} if _goes_by_length(settings) else {*STOPS, *LENGTHS}


def _reasons(settings: Mapping[str, Any]) -> dict[str, str]:
    """Explanations of differences that a user may take for harmless."""
    return dict.fromkeys(LENGTHS, FIXED_LENGTH) if _goes_by_length(settings) else {}


def behind(total: int, job: Job, settings: Mapping[str, Any]) -> list[str]:
    """The faults of limits that the run has passed already."""
    rows = list(read_log(job.log)) if is_there(job.log, error=JobError) else []
    steps_taken = max((row["step"] for row in rows), default=0)
    faults = []
    if total < steps_taken:
        name = next(length for length in LENGTHS if length in settings)
        faults.append(f"{name} must give at least {steps_taken} steps, the number already taken, got {total}")
    idle = idle_counts(rows, keep="both" if settings["train.keep"] == "both" else "loss")
    limit = settings.get("train.idle_epochs")
    # A lower limit would have ended the run earlier, which resuming cannot undo.
    if limit is not None and idle and limit < (least := least_idle(idle)):
        faults.append(
            f"train.idle_epochs must be at least {least}, or the run would have ended already, got {limit}"
        )
    return faults


FREE_SOURCES = frozenset(("path", "corpus"))
"""Locations of ``data.sources``; the pairs of each source are compared by digest."""

FREE_MEMORY = ("memory.chunk_tokens", "memory.cached", "memory.checkpointing", "memory.loss_tile")
"""Settings of how a batch is passed, which do not change results."""

FREE_PATHS = (
    "job.model",
    "job.data",
    "job.out",
    "data.corpus",
    "data.cache",
    "data.validation",
    "train.loss.guide.model",
    "towers.store",
    "towers.targets",
    "towers.projection_start",
    "towers.document_model",
)
"""Locations of models and data, whose content is compared by digest."""

RULES = Rules(
    free=frozenset((*FREE_PATHS, *FREE_MEMORY, *FREE_RUN)),
    free_in={"data.sources": FREE_SOURCES},
    stopping=_stopping,
    words=WORDS,
    reasons=_reasons,
    defaults=TrainSettings().model_dump(),
)


def require_ready(settings: TrainSettings, *, resume: bool) -> str | None:
    """Check that a run can start or resume; returns a note if there is nothing to resume."""
    _require_named(settings, "out")
    settings = as_begun(settings, resume=resume)
    # Checked before the data: an omitted setting would otherwise cause faults that do not mention resuming.
    note = require_fitting(
        Path(str(settings.job.out)), settings.model_dump(), resume=resume, rules=RULES, unknown=WORDS
    )
    _require_inputs(settings)
    return note


def require_runnable(settings: TrainSettings) -> None:
    """Check the models and data of a run, whatever its directory."""
    _require_named(settings)
    _require_inputs(settings)


def require_estimable(settings: TrainSettings) -> None:
    """Check that a dry run is possible; the directory of the job may be missing or in use."""
    if settings.job.out is not None:
        require_free(Path(settings.job.out), resume=True)
    require_runnable(settings)


def _require_named(settings: TrainSettings, *names: str) -> None:
    """Refuse an incomplete ``[job]``: `names` are required beside model and data."""
    required = ("model", *(() if settings.data.sources else ("data",)), *names)
    missing = [
        f"job.{name} must be given, got none" for name in required if getattr(settings.job, name) is None
    ]
    if missing:
        raise ConfigError(
            f"{several(missing)}; write it into the file, or add {assignment(missing[0].split()[0], ...)}"
        )
    require_device_name(settings.run.device)
    require_model_names(settings)


def require_model_names(settings: TrainSettings) -> None:
    """Refuse names and paths that no model can have."""
    for setting, model in models_of(settings).items():
        require_names(model, named_by=setting)


def models_of(settings: TrainSettings) -> dict[str, str]:
    """The models that a run loads, by the setting that names them."""
    guide = settings.train.loss.guide
    named = {"job.model": settings.job.model, "towers.document_model": settings.towers.document_model}
    named["train.loss.guide"] = None if guide is None or guide.model == "self" else guide.model
    return {setting: model for setting, model in named.items() if model is not None}


def require_models(settings: TrainSettings) -> None:
    """Refuse names of models that neither the cache nor the hub has."""
    for setting, model in models_of(settings).items():
        require_reachable(model, named_by=setting)


def _require_inputs(settings: TrainSettings) -> None:
    """Refuse missing data, corpora and stores, and files without the columns that settings name."""
    data = settings.data
    sources = data.listed(settings.job.data)
    validation = validation_source(data, [source.path for source in sources])
    # A stream is read row by row, which not every format allows.
    if data.stream is not None:
        for source in sources:
            require_streamable(source.path)
    require_inputs(
        [*(with_split(source.path, source.split) for source in sources), *filter(None, [validation])],
        corpora=filter(None, [data.corpus, *(source.corpus for source in sources)]),
        stores=filter(None, [settings.towers.vectors]),
    )
    for source in sources:
        columns, _ = parted_columns(source.columns.given())
        require_columns(source.path, columns)


MOST_STEPS = 1_000_000
"""Maximum steps of a budget: each batch is drawn beforehand to compute its cost."""


def steps_of(section: TrainSection, pairs: int) -> int:
    """Number of optimiser steps of a run: `steps`, or ``ceil(epochs pairs / batch_size)``, at least 1."""
    # The small subtraction keeps a whole number of steps from being rounded up.
    return section.steps or max(1, math.ceil(section.epochs * pairs / section.batch_size - 1e-9))


def steps_within(
    budget: float, cost: Callable[[int], float], *, setting: str = "budget_flops", unit: str = "FLOP"
) -> int:
    """The largest number of steps whose summed cost is within a budget.

    Args:
        cost: Cost of a step by its number, in `unit`; steps differ by the tokens of their batch.
        setting: Name of the budget below ``[train]``.
    """
    first = cost(0)
    if first > budget:
        raise BudgetError(
            f"train.{setting} must pay for a step, which takes {first:.3g} {unit}, got "
            f"{budget:.3g}; raise it, or lower train.batch_size"
        )
    if budget > MOST_STEPS * first:
        raise BudgetError(
            f"train.{setting} must pay for at most about {MOST_STEPS:,} steps of "
            f"{first:.3g} {unit}, got {budget:.3g}; lower it"
        )
    spent, steps = first, 1
    while (spent := spent + cost(steps)) <= budget:
        steps += 1
    return steps
