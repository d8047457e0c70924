"""What can be seen to be wrong with a tuning run from its settings and on disk, before torch is loaded."""

from collections.abc import Mapping
from pathlib import Path

from adiabat.config import TuneSettings
from adiabat.jobs.directory import require_fitting
from adiabat.model.device_names import require_device_name
from adiabat.store.build import refuse_swapped
from adiabat.train.inputs import require_inputs
from adiabat.tune.resuming import RULES, WORDS


def inputs_of(model: str, store: str | Path, data: str) -> dict[str, str]:
    """What a tuning job is given beside its settings, as its ``config.toml`` has it.

    Args:
        model: Its name.
        store: Document vectors of this model.
        data: Examples.

    Returns:
        Name to value.
    """
    return {"model": model, "store": str(store), "data": data}


def require_ready(inputs: Mapping[str, str], out: Path, *, settings: TuneSettings, resume: bool) -> str | None:
    """Refuse a run that cannot begin, or go on.

    Args:
        inputs: See `inputs_of`.
        out: Directory of the job.
        settings: Of the run.
        resume: Whether its job may stand there already.

    Returns:
        What to tell people where there is nothing to go on with, and None elsewhere.

    Raises:
        ConfigError: If the device has no name.
        JobError: If the directory is not for this job.
        AdiabatError: If data or store are missing, or swapped.
    """
    require_device_name(settings.run.device)
    # Before the data: settings that were left out make faults that speak of anything but resuming.
    note = require_fitting(out, {"job": dict(inputs), **settings.model_dump()}, resume=resume, rules=RULES, unknown=WORDS)
    require_named(inputs, settings)
    return note


def require_named(inputs: Mapping[str, str], settings: TuneSettings) -> None:
    """Refuse data and stores that are missing, or swapped.

    Args:
        inputs: See `inputs_of`.
        settings: Name the validation data.

    Raises:
        AdiabatError: If they are.
    """
    refuse_swapped(inputs["store"], inputs["model"], inputs["data"], order="MODEL STORE DATA")
    require_inputs([inputs["data"], *filter(None, [settings.data.validation])], stores=[inputs["store"]])
