"""`adiabat.train` and `adiabat.estimate`: both towers trained, and what that will take."""

from adiabat.config.dual_training import TrainSettings
from adiabat.core.progress import SILENT, Watch
from adiabat.dual_encoder.estimate import Estimate
from adiabat.dual_encoder.estimate import estimate as estimate_run
from adiabat.dual_encoder.train import train as run_training
from adiabat.models.model_names import load_with
from adiabat.results.evaluation_result import Result


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
