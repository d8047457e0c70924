"""With what a training job may go on: other places and another device, and another end where no step before depends on it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adiabat.config import TrainSettings
from adiabat.jobs.descriptions import FREE_RUN, Rules, is_job, read_description
from adiabat.jobs.job import Job
from adiabat.train.limits import idle_counts, least_idle, validations_in
from adiabat.train.log import read_log
from adiabat.train.schedules import ENDING

WORDS = {
    "digests.model": "the model differs from the one the job began with",
    "digests.examples": "the pairs differ from those the job began with",
}
"""What it means that a digest, which is known once model and data have been read, is another one."""

STOPS = ("train.budget_seconds", "train.idle_epochs")
"""Limits that change no step before them."""

LENGTHS = ("train.steps", "train.epochs", "train.budget_flops")


def as_begun(settings: TrainSettings, *, resume: bool) -> TrainSettings:
    """Settings of a run of so many seconds, with the steps that were found to fit into them when it began."""
    section, out = settings.train, settings.job.out
    if not (resume and out is not None and is_job(Path(out)) and section.steps is None and section.goes_by_time):
        return settings
    return with_steps(settings, read_description(Job(Path(out))).get("train", {}).get("steps"))


def with_steps(settings: TrainSettings, steps: int | None) -> TrainSettings:
    """Settings with another number of steps.

    Args:
        steps: None leaves it to the other settings.
    """
    return settings.model_copy(update={"train": settings.train.model_copy(update={"steps": steps})})


def goes_by_length(settings: Mapping[str, Any]) -> list[str]:
    """Settings that make a step depend on how long the whole run is.

    Args:
        settings: All of a run, dotted; those that are None are left out.
    """
    schedule, warm_up = settings["train.schedule"], settings["train.warmup_fraction"]
    found = [f'train.schedule = "{schedule}"'] if schedule in ENDING else []
    if warm_up and "train.warmup_steps" not in settings:
        found.append(f"train.warmup_fraction = {warm_up:g}")
    if settings["train.temperature_schedule"] == "scheduled" and "train.temperature_steps" not in settings:
        found.append('train.temperature_schedule = "scheduled" without train.temperature_steps')
    return found


def _stopping(settings: Mapping[str, Any]) -> set[str]:
    """Settings that say when a run stops and change no step before."""
    return {*STOPS} if goes_by_length(settings) else {*STOPS, *LENGTHS}


def _reasons(settings: Mapping[str, Any]) -> dict[str, str]:
    """Why a run cannot be made longer or shorter, and which one can."""
    found = goes_by_length(settings)
    why = (
        f" ({' and '.join(found)} {'goes' if len(found) == 1 else 'go'} by the length of the run, so that steps already taken would have "
        'been others; a job begun with train.schedule = "constant" and its warm-up in train.warmup_steps can be made longer)'
    )
    return dict.fromkeys(LENGTHS, why) if found else {}


def behind(total: int, job: Job, settings: Mapping[str, Any]) -> list[str]:
    """What is wrong with an end of a run that has gone on before.

    Returns:
        Phrases; empty where nothing is wrong.
    """
    rows = list(read_log(job.log)) if job.log.exists() else []
    taken = max((row["step"] for row in rows), default=0)
    name = next(one for one in ("train.steps", "train.budget_flops", "train.epochs") if one in settings)
    faults = [f"{name} must give at least {taken} steps, those already taken, got {total}"] if total < taken else []
    idle = idle_counts(validations_in(rows), keep="both" if settings["train.keep"] == "both" else "loss")
    limit = settings.get("train.idle_epochs")
    if limit is not None and idle and limit < (least := least_idle(idle)):
        faults.append(f"train.idle_epochs must be at least {least}, or the run would have ended before, got {limit}")
    return faults


FREE_SOURCES = frozenset(("path", "corpus"))
"""Where one of ``data.sources`` lies: which pairs came from which of them is compared by digest."""

FREE_MEMORY = ("memory.chunk_tokens", "memory.cached", "memory.checkpointing", "memory.loss_tile")
"""How a batch passes: settings that change no number of a run."""

RULES = Rules(
    free=frozenset(
        (
            "job.model",
            "job.data",
            "job.out",
            "towers.store",
            "towers.targets",
            "towers.projection_start",
            "towers.document_model",
            "train.guide",
            "data.corpus",
            "data.cache",
            "data.validation",
            *FREE_MEMORY,
            *FREE_RUN,
        )
    ),
    free_in={"data.sources": FREE_SOURCES},
    stopping=_stopping,
    words=WORDS,
    reasons=_reasons,
    defaults=TrainSettings().model_dump(),
)
