"""What can be seen to be wrong with a training run from its settings and on disk, before torch is loaded."""

from pathlib import Path

from adiabat.config import TrainSettings
from adiabat.contrastive.resuming import RULES, WORDS, as_begun
from adiabat.data.streaming import require_streamable
from adiabat.errors import ConfigError, several
from adiabat.jobs.directory import require_fitting, require_free
from adiabat.model.device_names import require_device_name
from adiabat.train.inputs import require_inputs


def require_ready(settings: TrainSettings, *, resume: bool) -> str | None:
    """Refuse a run that cannot begin, or go on.

    Returns:
        What to tell people where there is nothing to go on with, and None elsewhere.
    """
    _require_named(settings, "out")
    settings = as_begun(settings, resume=resume)
    # Before the data: settings that were left out make faults that speak of anything but resuming.
    note = require_fitting(Path(str(settings.job.out)), settings.model_dump(), resume=resume, rules=RULES, unknown=WORDS)
    _require_inputs(settings)
    return note


def require_estimable(settings: TrainSettings) -> None:
    """Refuse what cannot be estimated; the directory of the job need not be given, and may hold it."""
    _require_named(settings)
    if settings.job.out is not None:
        require_free(Path(settings.job.out), resume=True)
    _require_inputs(settings)


def _require_named(settings: TrainSettings, *names: str) -> None:
    """Refuse a run of which ``[job]`` does not say enough: `names` must be there beside model and data."""
    wanted = ("model", *(() if settings.data.sources else ("data",)), *names)
    missing = [f"job.{name} must be given, got none" for name in wanted if getattr(settings.job, name) is None]
    if missing:
        raise ConfigError(f"{several(missing)}; write it into the file, or add --set {missing[0].split()[0]}=...")
    require_device_name(settings.run.device)


def _require_inputs(settings: TrainSettings) -> None:
    data = settings.data
    sources = data.listed(settings.job.data)
    if data.stream:
        for one in sources:
            require_streamable(one.path)
    require_inputs(
        [*(one.path for one in sources), *filter(None, [data.validation])],
        corpora=filter(None, [data.corpus, *(one.corpus for one in sources)]),
        stores=filter(None, [settings.towers.vectors]),
    )
