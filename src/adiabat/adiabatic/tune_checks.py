"""Checks of a tuning run by its settings and files, before torch is loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adiabat.config.section import overlaid
from adiabat.config.shared import require_device_name
from adiabat.config.training_choices import ENDING
from adiabat.config.tuning import TuneSettings
from adiabat.core.errors import ConfigError, JobError
from adiabat.core.files import is_there
from adiabat.core.wording import call_of, option
from adiabat.data.examples import require_columns
from adiabat.data.sources import validation_source, with_split
from adiabat.runs.output_dir import require_begun, require_fitting
from adiabat.runs.run_config import FREE_RUN, Job, Rules, is_described
from adiabat.runs.run_log import idle_counts, least_idle, read_log
from adiabat.store.addressing import require_inputs
from adiabat.store.vector_store import refuse_swapped

WORDS = {
    "job.query_tower": "the query tower of the model differs from the one the job began with",
    "job.store_vectors": "the vectors of the store differ from those the job began with",
    "job.examples": "the examples differ from those the job began with",
    "job.probes": "the probes differ from those the job began with",
    "job.probed_vectors": "the vectors of the store that is searched for the probes differ "
    "from those the job began with",
    "job.similarity": "the similarity of queries and documents differs from the one the job began with",
    "job.retained": "the choosing half of the retention sets differs from the one the job began with",
    "job.rehearsed": "the rehearsed texts differ from those the job began with",
}
"""Explanations of digests that differ once model, store and data have been read."""

LATER = frozenset(("job.probes", "job.probed_vectors", "job.rehearsed", "job.retained"))
"""Digests missing from configurations that were written before they were compared."""


def _behind(job: Job, settings: Mapping[str, Any]) -> list[str]:
    """The fault of a stop before the current epoch; finished epochs cannot be undone."""
    rows = list(read_log(job.log)) if is_there(job.log, error=JobError) else []
    idle = idle_counts(rows, keep=settings.get("tune.keep", "both"))
    if not idle:
        return []
    least = {
        "max_epochs": (len(idle) - 1, "the epochs already done"),
        "idle_epochs": (least_idle(idle), "or the run would have ended already"),
    }
    return [
        f"tune.{name} must be at least {number}, {why}, got {settings[f'tune.{name}']}"
        for name, (number, why) in least.items()
        if settings.get(f"tune.{name}", number) < number
    ]


def _stopping(settings: Mapping[str, Any]) -> set[str]:
    """Settings that decide when a run stops and change no step before; a time limit fixes the epochs at the
    start.
    """
    # A schedule that ends with the run, or a time limit, makes steps depend on the number of epochs.
    fixed = settings.get("tune.schedule.kind") in ENDING or "tune.budget_seconds" in settings
    return {"tune.idle_epochs"} | (set() if fixed else {"tune.max_epochs"})


def _reasons(settings: Mapping[str, Any]) -> dict[str, str]:
    """Why the number of epochs must not change."""
    limited = "tune.budget_seconds" in settings
    return (
        {"tune.max_epochs": " (tune.budget_seconds fixed the epochs at the first start)"} if limited else {}
    )


SEARCH_STEPS, EPOCHS = "steps_of_search_within_budget", "epochs_within_budget"
"""Keys of ``[job]``: the lengths that `tune.budget_seconds` allowed at the speed that was measured at the
start."""

RESERVE = "reserved_within_budget"
"""Key of ``[job]``: the seconds of the limit that were held back for what follows the last step."""

RULES = Rules(
    # All settings that a recipe sets are compared themselves.
    free=frozenset(
        (
            "job.model",
            "job.store",
            "job.data",
            "tune.recipe",
            "tune.evidence",
            f"job.{SEARCH_STEPS}",
            f"job.{EPOCHS}",
            f"job.{RESERVE}",
            *FREE_RUN,
        )
    ),
    # A digest of their examples is compared.
    free_in={"retain": frozenset(("store", "data"))},
    stopping=_stopping,
    behind=_behind,
    reasons=_reasons,
    words=WORDS,
    # A loss of another kind than the default may have settings that are newer than a job.
    defaults=overlaid(TuneSettings, TuneSettings().model_dump(), {"tune": {"loss": {"hardness": 0.0}}}),
    later=LATER,
)


def inputs_of(model: str, store: str | Path, data: str) -> dict[str, str]:
    """Inputs of a tuning job beside its settings, as in its ``config.toml``."""
    return {"model": model, "store": str(store), "data": data}


def require_ready(
    inputs: Mapping[str, str], out: Path, *, settings: TuneSettings, resume: bool
) -> str | None:
    """Check that a run can start or resume.

    Returns:
        A note if there is nothing to resume; None otherwise.
    """
    require_device_name(settings.run.device)
    # Checked before the data: an omitted setting would otherwise cause faults that do not mention resuming.
    note = require_fitting(
        out, {"job": dict(inputs), **settings.model_dump()}, resume=resume, rules=RULES, unknown=WORDS
    )
    require_named(inputs, settings)
    return note


SEARCH = "search"
"""Table that identifies the configuration of a search for a safe rate."""


def require_search(out: Path, *, resume: bool) -> str | None:
    """Check the directory of a search; returns a note if there is nothing to resume."""
    return require_begun(out, "search for a safe rate", begun=is_described(out, SEARCH), resume=resume)


def require_named(inputs: Mapping[str, str], settings: TuneSettings) -> None:
    """Refuse data and stores that are missing or swapped, and retention sets without effect."""
    require_device_name(settings.run.device)
    # Not where settings are read: the usual recipe is chosen after that.
    if settings.retain and settings.tune.keep != "ranking":
        raise ConfigError(
            f"tune.keep must be ranking with {option('retain')}, which chooses among rankings, got "
            f"{settings.tune.keep}; set it, or leave the retention sets to {call_of('evaluate')}"
        )
    refuse_swapped(inputs["store"], inputs["model"], inputs["data"], order=("model", "store", "data"))
    validation = validation_source(settings.data, [inputs["data"]])
    examples = [with_split(inputs["data"], settings.data.split), *filter(None, [validation])]
    examples += [with_split(each.data, each.split) for each in settings.retain]
    require_inputs(examples, stores=[inputs["store"], *(each.store for each in settings.retain)])
    require_columns(inputs["data"], settings.data.columns.given())
