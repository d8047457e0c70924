"""Jobs that change weights."""

from pathlib import Path

from adiabat.adiabatic.tune import tune as run_tuning
from adiabat.config.dual_training import TrainSettings
from adiabat.config.tuning import TuneSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.dual_encoder.estimate import Estimate
from adiabat.dual_encoder.estimate import estimate as estimate_run
from adiabat.dual_encoder.train import train as run_training
from adiabat.models.model_names import Model, load, load_with, name_of
from adiabat.results.evaluation_result import Result


def tune(
    model: Model,
    store: str | Path,
    data: str | Path,
    out: str | Path,
    *,
    settings: TuneSettings | None = None,
    resume: bool = False,
    command: str = "adiabat.tune(...)",
    watch: Watch = SILENT,
) -> Result:
    """Tune a query tower against the stored vectors of the document tower; see `adiabat.adiabatic.tune.tune`.

    Args:
        model: Where tuning starts.
        store: Document vectors of that model.
        data: (query, positives, negatives).
        out: Directory of the job, afterwards a MODEL.
        settings: None takes the default regime.
        resume: Go on with a job that was cut short.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What the run did, as in ``result.json``.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    settings = settings or TuneSettings()
    return run_tuning(
        lambda: load(model, settings=settings.encoder),
        Path(store),
        str(data),
        Path(out),
        settings=settings,
        model_name=name_of(model),
        resume=resume,
        command=command,
        watch=watch,
    )


def train(settings: TrainSettings, *, resume: bool = False, command: str = "adiabat.train(...)", watch: Watch = SILENT) -> Result | None:
    """Train both towers of a dual encoder; see `adiabat.dual_encoder.train.train`.

    Args:
        settings: Everything, `JobSection.model`, `JobSection.data` and `JobSection.out` among it.
        resume: Go on with a job that was cut short.
        command: For the report.
        watch: Whom to tell.

    Returns:
        What the run did, as in ``result.json``; None in a process that is not the main one.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return run_training(load_with, settings, resume=resume, command=command, watch=watch)


def estimate(settings: TrainSettings, *, watch: Watch = SILENT) -> Estimate:
    """What a training run will take: `train` without its steps, and without writing anything.

    Args:
        settings: As for `train`; `JobSection.out` need not be given.
        watch: Whom to tell.

    Returns:
        Parameters, tokens, floating-point operations, memory and time.

    Raises:
        AdiabatError: If anything the user gave is wrong.
    """
    return estimate_run(load_with, settings, watch=watch)
