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
    """What a tuning job is given beside its settings, as its ``config.toml`` has it."""
    return {"model": model, "store": str(store), "data": data}


def require_ready(inputs: Mapping[str, str], out: Path, *, settings: TuneSettings, resume: bool) -> str | None:
    """Refuse a run that cannot begin, or go on.

    Returns:
        What to tell people where there is nothing to go on with, and None elsewhere.
    """
    require_device_name(settings.run.device)
    # Before the data: settings that were left out make faults that speak of anything but resuming.
    note = require_fitting(out, {"job": dict(inputs), **settings.model_dump()}, resume=resume, rules=RULES, unknown=WORDS)
    require_named(inputs, settings)
    return note


def require_named(inputs: Mapping[str, str], settings: TuneSettings) -> None:
    """Refuse data and stores that are missing, or swapped."""
    refuse_swapped(inputs["store"], inputs["model"], inputs["data"], order="MODEL STORE DATA")
    require_inputs([inputs["data"], *filter(None, [settings.data.validation])], stores=[inputs["store"]])
