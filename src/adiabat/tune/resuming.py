"""With what a tuning job may go on: other places and another device, and another end where no step before depends on it."""

from collections.abc import Mapping
from typing import Any

from adiabat.config import TuneSettings
from adiabat.jobs.descriptions import FREE_RUN, Rules
from adiabat.jobs.job import Job
from adiabat.train.limits import idle_counts, least_idle, validations_in
from adiabat.train.log import read_log
from adiabat.train.schedules import ENDING

WORDS = {
    "job.query_tower": "the query tower of the model differs from the one the job began with",
    "job.store_vectors": "the vectors of the store differ from those the job began with",
    "job.examples": "the examples differ from those the job began with",
    "job.probes": "the probes differ from those the job began with",
    "job.probed_vectors": "the vectors of the store that probes are looked for in differ from those the job began with",
    "job.similarity": "the similarity that queries and documents are compared by differs from that which the job began with",
    "job.rehearsed": "the rehearsed texts differ from those the job began with",
}
"""What it means that a digest, which is known once model, store and data have been read, is another one."""

LATER = frozenset(("job.probes", "job.probed_vectors", "job.rehearsed"))
"""Digests that a description lacks which was made before they were compared."""


def _behind(job: Job, wanted: Mapping[str, Any]) -> list[str]:
    """What is wrong with a stop that lies behind the run: the epochs since then cannot be taken back."""
    rows = list(read_log(job.log)) if job.log.exists() else []
    idle = idle_counts(validations_in(rows), keep="both")
    if not idle:
        return []
    least = {
        "max_epochs": (len(idle) - 1, "the epochs already done"),
        "idle_epochs": (least_idle(idle), "or the run would have ended before"),
    }
    return [
        f"tune.{name} must be at least {number}, {why}, got {wanted[f'tune.{name}']}"
        for name, (number, why) in least.items()
        if wanted.get(f"tune.{name}", number) < number
    ]


def _stopping(settings: Mapping[str, Any]) -> set[str]:
    """Settings that say when a run stops and change no step before."""
    return {"tune.idle_epochs"} | (set() if settings.get("tune.schedule") in ENDING else {"tune.max_epochs"})


RULES = Rules(
    free=frozenset(("job.model", "job.store", "job.data", *FREE_RUN)),
    stopping=_stopping,
    behind=_behind,
    words=WORDS,
    defaults=TuneSettings().model_dump(),
    later=LATER,
)
