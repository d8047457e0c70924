"""Checks of a verb's arguments that need no torch, which takes seconds to load."""

from pathlib import Path

from adiabat.adiabatic.tune_checks import inputs_of
from adiabat.adiabatic.tune_checks import require_ready as require_ready_to_tune
from adiabat.config.dual_training import TrainSettings
from adiabat.config.tuning import TuneSettings
from adiabat.dual_encoder.train_checks import require_estimable, require_ready


def check_tune(model: str, store: Path, data: str, out: Path, settings: TuneSettings, *, resume: bool) -> None:
    """Refuse a tuning run that cannot begin or resume."""
    require_ready_to_tune(inputs_of(model, store, data), out, settings=settings, resume=resume)


def check_train(settings: TrainSettings, *, resume: bool, dry_run: bool) -> None:
    """Refuse a training run that cannot begin or resume, or whose cost cannot be estimated."""
    if dry_run:
        require_estimable(settings)
    else:
        require_ready(settings, resume=resume)
